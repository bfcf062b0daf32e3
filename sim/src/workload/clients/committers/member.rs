//! Such a client as the one member of its group, in the classic protocol: it joins, is heard,
//! leaves, or is not heard of any more.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use quorate_core::reached;
use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::join_group::JoinGroupRequestProtocol;
use quorate_net::kafka::messages::leave_group::MemberIdentity;
use quorate_net::kafka::messages::sync_group::SyncGroupRequestAssignment;
use quorate_net::kafka::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest,
};
use quorate_net::wire::Text;

use super::super::groups::code_of;
use super::{AGAIN, Committer};
use crate::history::offsets::Event;

const LEAVE: i16 = 3;
const HEARTBEAT: i16 = 3;
const SYNC: i16 = 3;
/// Of joins: by two of them a new member has its id at once, by others it comes again with it.
const JOINS: &[i16] = &[2, 3, 4, 5, 9];
/// Of those of static members.
const STATIC_JOINS: &[i16] = &[5, 9];
/// Attempts at one join.
const ATTEMPTS: u32 = 4;

/// Its place in the group.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    id: String,
    instance: Option<Text>,
    generation: i32,
    /// When it is to be heard next.
    due: Instant,
}

impl Committer {
    /// Who it says it is when it commits.
    pub(super) fn claim(&self) -> (Text, Option<Text>, i32) {
        self.member.as_ref().map_or((Text::default(), None, -1), |member| {
            (Text::from(member.id.as_str()), member.instance.clone(), member.generation)
        })
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
        let version = *self.chance.pick(if self.is_static { STATIC_JOINS } else { JOINS });
        let instance = self.is_static.then(|| Text::from(format!("og{}-i", self.place)));
        let mut id = String::new();
        for _ in 0..ATTEMPTS {
            let came_without = id.is_empty();
            let Some((invoked, joined)) = self.ask_to_join(version, &id, instance.as_ref()).await
            else {
                // Who does not know whether it has joined joins again, as another.
                reached!("a-join-is-lost");
                id.clear();
                self.scene.clock.sleep(AGAIN).await;
                continue;
            };
            let code = code_of(joined.error_code);
            let is_given = matches!(code, None | Some(Code::MemberIdRequired));
            if came_without && is_given {
                let member = joined.member_id.to_string();
                self.tell(invoked, Event::Given { member });
            }
            match code {
                None => {
                    self.sync(&joined, instance.clone()).await;
                    return;
                }
                Some(Code::MemberIdRequired) => id = joined.member_id.to_string(),
                Some(code) => {
                    self.heed(code);
                    id.clear();
                    self.scene.clock.sleep(AGAIN).await;
                }
            }
        }
    }

    async fn ask_to_join(
        &mut self,
        version: i16,
        id: &str,
        instance: Option<&Text>,
    ) -> Option<(Instant, JoinGroupResponse)> {
        let millis = self.spec.session.as_millis() as i32;
        let request = JoinGroupRequest {
            group_id: self.group(),
            session_timeout_ms: millis,
            rebalance_timeout_ms: millis,
            member_id: Text::from(id),
            group_instance_id: instance.cloned(),
            protocol_type: Text::from_static("consumer"),
            protocols: vec![JoinGroupRequestProtocol {
                name: Text::from_static("eager"),
                metadata: self.subscription(),
            }],
            reason: None,
        };
        let invoked = self.now();
        let patience = self.spec.session * 2;
        let answer = self.ask((version, patience), &request).await.ok()?;
        Some((invoked, answer))
    }

    /// To its topic, in version 0 of what consumers write.
    fn subscription(&self) -> Bytes {
        let name = self.topic_name();
        let mut bytes = BytesMut::new();
        bytes.put_i16(0);
        bytes.put_i32(1);
        bytes.put_i16(name.as_str().len() as i16);
        bytes.put_slice(name.as_str().as_bytes());
        bytes.put_i32(-1);
        bytes.freeze()
    }

    /// It is the only member, so it leads, unless one that it was before does.
    async fn sync(&mut self, joined: &JoinGroupResponse, instance: Option<Text>) {
        let id = joined.member_id.to_string();
        let assignment = SyncGroupRequestAssignment {
            member_id: joined.member_id.clone(),
            assignment: Bytes::from_static(b"all"),
        };
        let leads = joined.leader == joined.member_id && !joined.skip_assignment;
        let request = SyncGroupRequest {
            group_id: self.group(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            group_instance_id: instance.clone(),
            assignments: if leads { vec![assignment] } else { Vec::new() },
            ..Default::default()
        };
        let (invoked, patience) = (self.now(), self.spec.session * 2);
        let Ok(answer) = self.ask((SYNC, patience), &request).await else { return };
        if let Some(code) = code_of(answer.error_code) {
            self.heed(code);
            return;
        }
        let generation = joined.generation_id;
        let due = self.now() + self.spec.session / 4;
        self.member = Some(Membership { id, instance, generation, due });
        // Whoever does not lead may be told what it was assigned before.
        self.heard(invoked, leads);
    }

    pub(super) async fn beat_if_due(&mut self) {
        let now = self.now();
        let Some(member) = &mut self.member else { return };
        if member.due > now {
            return;
        }
        member.due = now + self.spec.session / 4;
        let member = member.clone();
        let request = HeartbeatRequest {
            group_id: self.group(),
            generation_id: member.generation,
            member_id: Text::from(member.id.as_str()),
            group_instance_id: member.instance,
        };
        let Ok(answer) = self.ask((HEARTBEAT, Duration::ZERO), &request).await else { return };
        match code_of(answer.error_code) {
            None => self.heard(now, false),
            Some(code) => {
                self.heed(code);
                self.learn(now, code);
            }
        }
    }

    pub(super) async fn leave(&mut self) {
        let Some(member) = self.member.clone() else { return };
        let invoked = self.now();
        let request = LeaveGroupRequest {
            group_id: self.group(),
            members: vec![MemberIdentity {
                member_id: Text::from(member.id.as_str()),
                group_instance_id: member.instance,
                ..Default::default()
            }],
            ..Default::default()
        };
        // Whatever comes of it: its session ends, too.
        drop(self.ask((LEAVE, Duration::ZERO), &request).await);
        self.forgets(invoked);
    }

    /// Its process is gone, and nobody says so.
    pub(super) fn vanish(&mut self) {
        reached!("a-member-vanishes");
        self.link = None;
        let now = self.now();
        self.forgets(now);
    }
}
