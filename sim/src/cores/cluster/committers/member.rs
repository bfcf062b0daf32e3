//! Such a client as the one member of its group, in the classic protocol: it joins, is heard,
//! leaves, or is not heard of any more.

use std::time::Duration;

use bytes::Bytes;
use quorate_core::group::interface::{
    Input, Join, Joined, Leaving, MemberClaim, Outcome, Protocol, Refusal, Sync,
};
use quorate_core::id::RequestId;
use quorate_core::reached;
use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;

use super::super::conversations::Reply;
use super::{AGAIN, Committer, refusal_of};
use crate::history::offsets::Event;

/// Attempts at one join.
const ATTEMPTS: u32 = 4;

/// Its place in the group.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    id: String,
    generation: i32,
    /// When it is to be heard next.
    due: Instant,
}

impl Committer {
    fn instance(&self) -> Option<String> {
        self.is_static.then(|| format!("og{}-i", self.place))
    }

    /// Who it says it is.
    pub(super) fn claim(&self) -> MemberClaim {
        let group = self.group();
        match &self.member {
            None => MemberClaim { group, member: String::new(), instance: None, generation: -1 },
            Some(Membership { id, generation, .. }) => MemberClaim {
                group,
                member: id.clone(),
                instance: self.instance(),
                generation: *generation,
            },
        }
    }

    pub(super) fn heard(&mut self, invoked: Instant, is_stored: bool) {
        self.tell(invoked, Event::Heard { is_stored });
    }

    fn forgets(&mut self, invoked: Instant) {
        self.member = None;
        self.tell(invoked, Event::Leaves);
    }

    /// What a refusal says of its membership.
    pub(super) fn learn(&mut self, invoked: Instant, code: Code) {
        if self.member.is_none() {
            return;
        }
        match code {
            Code::UnknownMemberId => {
                self.member = None;
                self.tell(invoked, Event::Expelled);
            }
            Code::IllegalGeneration | Code::FencedInstanceId | Code::RebalanceInProgress => {
                self.forgets(invoked);
            }
            _ => {}
        }
    }

    /// It joins, perhaps as a static member, or gives up: then the coordinator may know a member
    /// that never comes again.
    pub(super) async fn join(&mut self) {
        // As clients of version 9, of 5, and of 2 have it.
        let (id_required, skips) =
            *self.seeker.chance.pick(&[(true, true), (true, false), (false, false)]);
        let mut id = String::new();
        for _ in 0..ATTEMPTS {
            let came_without = id.is_empty();
            let join = Join {
                request: RequestId(0),
                group: self.group(),
                member: id.clone(),
                instance: self.instance(),
                client_id: format!("c{}", self.seeker.client),
                client_host: "/simulated".to_owned(),
                session_timeout: self.spec.session,
                rebalance_timeout: self.spec.session,
                protocol_type: "consumer".to_owned(),
                protocols: vec![Protocol {
                    name: "eager".to_owned(),
                    metadata: subscription(self),
                }],
                member_id_required: id_required,
                skip_assignment: skips,
            };
            let (invoked, patience) = (self.now(), self.spec.session * 2);
            match self.ask(Input::Join(join), patience).await {
                Some(Reply::Group(Outcome::Joined(joined))) => {
                    if came_without {
                        let member = joined.member.clone();
                        self.tell(invoked, Event::Given { member });
                    }
                    self.sync(joined).await;
                    return;
                }
                Some(Reply::Group(Outcome::Refused(Refusal::MemberIdRequired { member }))) => {
                    if came_without {
                        self.tell(invoked, Event::Given { member: member.clone() });
                    }
                    id = member;
                    continue;
                }
                Some(other) => {
                    if let Some(code) = refusal_of(Some(&other)) {
                        self.heed(code);
                    }
                }
                // Who does not know whether it has joined joins again, as another.
                None => reached!("a-join-is-lost"),
            }
            id.clear();
            self.seeker.pause(AGAIN).await;
        }
    }

    /// It is the only member, so it leads, unless one that it was before does.
    async fn sync(&mut self, joined: Joined) {
        let leads = joined.leader == joined.member && !joined.skip_assignment;
        let assigned = (joined.member.clone(), Bytes::from_static(b"all"));
        let member = MemberClaim {
            group: self.group(),
            member: joined.member.clone(),
            instance: self.instance(),
            generation: joined.generation,
        };
        let input = Input::Sync(Sync {
            request: RequestId(0),
            member,
            protocol_type: None,
            protocol: None,
            assignments: if leads { vec![assigned] } else { Vec::new() },
        });
        let (invoked, patience) = (self.now(), self.spec.session * 2);
        let reply = self.ask(input, patience).await;
        if let Some(code) = refusal_of(reply.as_ref()) {
            return self.heed(code);
        }
        if reply.is_some() {
            let due = self.now() + self.spec.session / 4;
            let (id, generation) = (joined.member, joined.generation);
            self.member = Some(Membership { id, generation, due });
            // Whoever does not lead may be told what it was assigned before.
            self.heard(invoked, leads);
        }
    }

    pub(super) async fn beat_if_due(&mut self) {
        let now = self.now();
        let Some(member) = &mut self.member else { return };
        if member.due > now {
            return;
        }
        member.due = now + self.spec.session / 4;
        let input = Input::Heartbeat { request: RequestId(0), member: self.claim() };
        let reply = self.ask(input, Duration::ZERO).await;
        match refusal_of(reply.as_ref()) {
            Some(code) => {
                self.heed(code);
                self.learn(now, code);
            }
            None if reply.is_some() => self.heard(now, false),
            None => {}
        }
    }

    pub(super) async fn leave(&mut self) {
        let Some(member) = self.member.clone() else { return };
        let invoked = self.now();
        let leaving = Leaving { member: member.id, instance: self.instance() };
        let group = self.group();
        let input = Input::Leave { request: RequestId(0), group, members: vec![leaving] };
        // Whatever comes of it: its session ends, too.
        drop(self.ask(input, Duration::ZERO).await);
        self.forgets(invoked);
    }

    /// Its process is gone, and nobody says so.
    pub(super) fn vanish(&mut self) {
        reached!("a-member-vanishes");
        self.coordinator = None;
        let now = self.now();
        self.forgets(now);
    }
}

/// To its topic, in version 0 of what consumers write.
fn subscription(committer: &Committer) -> Bytes {
    let name = format!("o{}", committer.place);
    let mut bytes = vec![0, 0, 0, 0, 0, 1, 0, name.len() as u8];
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(&(-1_i32).to_be_bytes());
    Bytes::from(bytes)
}
