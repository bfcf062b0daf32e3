//! A member of the classic protocol: JoinGroup, SyncGroup, heartbeats. Eager ones give everything
//! up before they join again, cooperative ones only what they are not given any more (KIP-429).

use std::collections::BTreeMap;
use std::time::Duration;

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

use super::protocol::{
    Partitions, Subscription, cooperative, decode_assignment, encode_assignment, in_turn,
};
use super::work::Work;
use super::{AGAIN, Environment, Fate, Member, Next, code_of, group_name};
use crate::history::groups::{Claim, GroupCall, GroupEnd};
use crate::plan::groups::Protocol;

const LEAVE: i16 = 5;

/// Whether there are partitions that were not there when these were shared out.
fn has_grown<W: Environment>(member: &Member<W>, shared: &Partitions) -> bool {
    *shared != member.subscribed()
}

/// A member in one of its lives.
struct Classic<W: Environment> {
    /// Empty until the coordinator has given one.
    id: String,
    /// Of which it was told its part; -1 for none.
    generation: i32,
    /// What it has shared out, if it leads.
    shared: Option<Partitions>,
    /// It has joined since the run was healed, so that whoever leads has seen all that has grown.
    is_renewed: bool,
    work: Work<W::Reader>,
    versions: Versions,
}

/// What the life's requests are written in.
struct Versions {
    join: i16,
    sync: i16,
    heartbeat: i16,
}

pub(super) async fn live<W: Environment>(member: &mut Member<W>) {
    // Those that speak of static members.
    let join = *member.chance.pick(&[5, 6, 8, 9]);
    let versions = Versions {
        join,
        sync: if join >= 6 { 5 } else { 3 },
        heartbeat: *member.chance.pick(&[3, 4]),
    };
    let work = Work::new(member);
    let mut classic: Classic<W> = Classic {
        id: String::new(),
        generation: -1,
        shared: None,
        is_renewed: false,
        work,
        versions,
    };
    while !member.is_over() {
        let (is_healed, had_id) = (member.world.is_healed(), !classic.id.is_empty());
        let next = match classic.enter(member).await {
            Ok(()) => {
                // Who came without an id may have got its old place back, in a generation that was
                // shared out before the healing, and was not told that it leads: the join that
                // counts is then the next one, under the id that it has now.
                classic.is_renewed = is_healed && (had_id || classic.shared.is_some());
                classic.stay(member).await
            }
            Err(next) => next,
        };
        if next == Next::Ends {
            return;
        }
    }
}

impl<W: Environment> Classic<W> {
    fn claim(&self, member: &Member<W>) -> Claim {
        member.claim(&self.id, self.generation)
    }

    /// Others may have all of it already.
    fn lose_everything(&mut self, member: &Member<W>) {
        let owned = self.work.owned();
        self.work.give_up(member, &owned);
        self.generation = -1;
    }

    /// What a refusal on the way into a generation, or in it, means.
    async fn heed(&mut self, member: &mut Member<W>, code: Code) -> Next {
        member.heed(code);
        match code {
            Code::UnknownMemberId => {
                self.lose_everything(member);
                self.id.clear();
            }
            Code::IllegalGeneration => self.lose_everything(member),
            Code::FencedInstanceId => return Next::Ends,
            Code::RebalanceInProgress | Code::MemberIdRequired => {}
            _ => member.pause(AGAIN).await,
        }
        Next::Rejoin
    }

    /// Gets into a generation, with its part of it.
    async fn enter(&mut self, member: &mut Member<W>) -> Result<(), Next> {
        if member.protocol == Protocol::Eager && self.generation >= 0 {
            let owned = self.work.owned();
            let who = self.claim(member);
            member.commit(&who, self.work.positions(&owned)).await;
            self.work.give_up(member, &owned);
        }
        let joined = self.join(member).await?;
        let leads = joined.leader.as_str() == self.id && !joined.skip_assignment;
        let partitions = self.sync(member, &joined, leads).await?;
        // What it said, when it joined, that it has, and was not given: whoever leads keeps that
        // from everyone until this member joins again. So it does, also where it loses all of it
        // below; or else that is nobody's for good.
        let owned = self.work.owned();
        let revoked: Partitions = owned.difference(&partitions).copied().collect();
        // Where a coordinator shares out (KIP-848), epochs go on without it, and it has what it had
        // until it is told to give it up: so Java's consumer does, which commits it then, too.
        let is_shared_out = joined.leader.is_empty();
        if is_shared_out {
            reached!("a-classic-member-is-in-a-consumer-group");
        }
        if joined.generation_id != self.generation + 1 && !is_shared_out {
            // Others may have had, in the generation that it missed, what it had.
            self.lose_everything(member);
        }
        self.generation = joined.generation_id;
        let who = self.claim(member);
        if !revoked.is_empty() {
            reached!("a-member-gives-partitions-up");
            member.commit(&who, self.work.positions(&revoked)).await;
        }
        self.work.give_up(member, &revoked);
        while !self.work.take(member, &who, &partitions).await {
            if self.beat(member).await.is_some() || member.is_over() {
                return Err(Next::Rejoin);
            }
        }
        member.haunt().await;
        // What was given up is another's in the next generation.
        if revoked.is_empty() { Ok(()) } else { Err(Next::Rejoin) }
    }

    async fn join(&mut self, member: &mut Member<W>) -> Result<JoinGroupResponse, Next> {
        let millis = |time: Duration| time.as_millis() as i32;
        let (session, rebalance) = (member.spec.session, member.spec.session * 2);
        let topics = member.spec.topics.clone();
        let said = Subscription { topics, owned: self.work.owned(), generation: self.generation };
        let request = JoinGroupRequest {
            group_id: group_name(member.group),
            session_timeout_ms: millis(session),
            rebalance_timeout_ms: millis(rebalance),
            member_id: Text::from(self.id.as_str()),
            group_instance_id: member.instance.as_deref().map(Text::from),
            protocol_type: Text::from_static("consumer"),
            protocols: vec![JoinGroupRequestProtocol {
                name: Text::from_static(member.protocol.word()),
                metadata: said.encode(),
            }],
            reason: None,
        };
        let who = self.claim(member);
        let id = member.invoke(who.clone(), GroupCall::Join);
        member.note(format!("joins g{} as {:?}", member.group, self.id));
        let asking = (self.versions.join, rebalance);
        let answer = member.world.ask(&who, asking, &request).await;
        let Some(response) = answer else {
            member.pause(AGAIN).await;
            return Err(Next::Rejoin);
        };
        if let Some(code) = code_of(response.error_code) {
            member.complete(id, GroupEnd::Refused(code));
            if code == Code::MemberIdRequired {
                self.id = response.member_id.to_string();
            }
            return Err(self.heed(member, code).await);
        }
        self.id = response.member_id.to_string();
        let (name, generation) = (self.id.clone(), response.generation_id);
        let end = GroupEnd::Joined { member: name, generation };
        member.complete(id, end);
        Ok(response)
    }

    fn shares(
        member: &Member<W>,
        joined: &JoinGroupResponse,
        partitions: &Partitions,
    ) -> Option<BTreeMap<String, Partitions>> {
        let members = joined.members.iter().map(|row| {
            let said = Subscription::decode(row.metadata.clone())?;
            Some((row.member_id.to_string(), said))
        });
        let members: BTreeMap<String, Subscription> = members.collect::<Option<_>>()?;
        Some(match member.protocol {
            Protocol::Cooperative => cooperative(&members, partitions),
            _ => in_turn(&members, partitions),
        })
    }

    /// Hands in the shares, if it leads, and learns its own.
    async fn sync(
        &mut self,
        member: &mut Member<W>,
        joined: &JoinGroupResponse,
        leads: bool,
    ) -> Result<Partitions, Next> {
        self.shared = leads.then(|| member.subscribed());
        let shares = match &self.shared {
            Some(partitions) => Self::shares(member, joined, partitions),
            None => Some(BTreeMap::new()),
        };
        let shares = shares.expect("members wrote what members read");
        let assignments = shares.iter().map(|(id, share)| SyncGroupRequestAssignment {
            member_id: Text::from(id.as_str()),
            assignment: encode_assignment(share),
        });
        let request = SyncGroupRequest {
            group_id: group_name(member.group),
            generation_id: joined.generation_id,
            member_id: Text::from(self.id.as_str()),
            group_instance_id: member.instance.as_deref().map(Text::from),
            protocol_type: Some(Text::from_static("consumer")),
            protocol_name: Some(Text::from_static(member.protocol.word())),
            assignments: assignments.collect(),
        };
        let who = member.claim(&self.id, joined.generation_id);
        let given =
            |(id, share): (&String, &Partitions)| (id.clone(), Vec::from_iter(share.clone()));
        let call = GroupCall::Assign { shares: shares.iter().map(given).collect() };
        let id = member.invoke(who.clone(), call);
        let asking = (self.versions.sync, member.spec.session * 2);
        let answer = member.world.ask(&who, asking, &request).await;
        let Some(response) = answer else { return Err(Next::Rejoin) };
        if let Some(code) = code_of(response.error_code) {
            member.complete(id, GroupEnd::Refused(code));
            return Err(self.heed(member, code).await);
        }
        let partitions = decode_assignment(response.assignment);
        let partitions = partitions.expect("members wrote what members read");
        if leads && shares.get(&self.id) != Some(&partitions) {
            // An earlier sync of its own came late, and counts. What has grown since is nobody's
            // until it shares out once more (seed 10 of groups in three cores).
            self.shared = Some(Partitions::new());
        }
        let end = GroupEnd::Assigned {
            generation: joined.generation_id,
            partitions: partitions.iter().copied().collect(),
        };
        member.complete(id, end);
        Ok(partitions)
    }

    /// One heartbeat; what it is told, if that is anything else than to go on.
    async fn beat(&mut self, member: &mut Member<W>) -> Option<Code> {
        let request = HeartbeatRequest {
            group_id: group_name(member.group),
            generation_id: self.generation,
            member_id: Text::from(self.id.as_str()),
            group_instance_id: member.instance.as_deref().map(Text::from),
        };
        let who = self.claim(member);
        let id = member.invoke(who.clone(), GroupCall::Heartbeat);
        let asking = (self.versions.heartbeat, Duration::ZERO);
        let answer = member.world.ask(&who, asking, &request).await;
        let response = answer?;
        let code = code_of(response.error_code);
        let end = code.map_or(GroupEnd::Done, GroupEnd::Refused);
        member.complete(id, end);
        code
    }

    /// Works in its generation until that is over.
    async fn stay(&mut self, member: &mut Member<W>) -> Next {
        let now = |member: &Member<W>| member.world.now();
        let mut heartbeat = now(member) + member.heartbeat();
        let mut commit = now(member) + member.chance.duration(member.spec.commit);
        while !member.is_over() {
            self.work.round(member).await;
            match member.draw_fate() {
                Fate::Works => {}
                Fate::Dies => return Next::Ends,
                Fate::Leaves => {
                    self.leave(member).await;
                    return Next::Ends;
                }
                Fate::Pauses => {
                    member.rest().await;
                    // It does not know yet what it has missed.
                    commit = Instant::ZERO;
                }
            }
            if now(member) >= commit {
                let (who, owned) = (self.claim(member), self.work.owned());
                member.commit(&who, self.work.positions(&owned)).await;
                commit = now(member) + member.chance.duration(member.spec.commit);
            }
            if now(member) >= heartbeat {
                if let Some(code) = self.beat(member).await {
                    member.note(format!("is alive, and is told {code}"));
                    if code == Code::RebalanceInProgress
                        || self.heed(member, code).await == Next::Ends
                        || self.generation < 0
                    {
                        let ends = code == Code::FencedInstanceId;
                        return if ends { Next::Ends } else { Next::Rejoin };
                    }
                }
                heartbeat = now(member) + member.heartbeat();
            }
            if self.shared.as_ref().is_some_and(|shared| has_grown(member, shared)) {
                reached!("a-leading-member-sees-growth");
                return Next::Rejoin;
            }
            // A leader that came back as the static member it was is not told that it leads, and
            // nobody sees what has grown meanwhile: here as with Kafka (KIP-345).
            if member.instance.is_some() && member.world.is_healed() && !self.is_renewed {
                return Next::Rejoin;
            }
        }
        Next::Ends
    }

    /// Says good-bye. A static member comes back within its session, and does not.
    async fn leave(&mut self, member: &mut Member<W>) {
        let (who, owned) = (self.claim(member), self.work.owned());
        member.commit(&who, self.work.positions(&owned)).await;
        if member.instance.is_some() {
            return;
        }
        let request = LeaveGroupRequest {
            group_id: group_name(member.group),
            members: vec![MemberIdentity {
                member_id: Text::from(self.id.as_str()),
                ..Default::default()
            }],
            ..Default::default()
        };
        let id = member.invoke(who.clone(), GroupCall::Leave);
        let asking = (LEAVE, Duration::ZERO);
        let answer = member.world.ask(&who, asking, &request).await;
        if let Some(response) = answer {
            let code = response.members.first().map_or(response.error_code, |row| row.error_code);
            let end = code_of(code).map_or(GroupEnd::Done, GroupEnd::Refused);
            member.complete(id, end);
        }
    }
}
