//! Members of the classic protocol in a consumer group: they join, sync and heartbeat as ever, and
//! take a step towards their targets at each join. Kafka's
//! `GroupMetadataManager.classicGroupJoinToConsumerGroup` and what stands beside it.
//!
//! A member's generation is its epoch. A join is answered once targets are those of the group's
//! epoch, so that nobody has to join again for what was known when it did.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::super::assignment::Assignment;
use super::super::desk::{Desk, TEXT_BYTES_MAX, Waiter};
use super::super::interface::{Join, Joined, Leaving, MemberClaim, Outcome, Refusal, Sync};
use super::super::member::protocols_bytes;
use super::super::record::ClassicMember;
use super::super::record::embedded::{self, Subscription};
use super::keep::Key;
use super::reconcile::Progress;
use super::{Consumer, ConsumerMember};
use crate::id::RequestId;
use crate::{mutant, reached};

/// What classic members that are consumers call what they speak.
pub(in super::super) const PROTOCOL_TYPE: &str = "consumer";

/// A join that is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Joining {
    request: RequestId,
    /// What the member has not given up.
    owned: Assignment,
}

impl Joining {
    pub(super) const fn request(&self) -> RequestId {
        self.request
    }
}

impl Consumer {
    pub(in super::super) fn on_join(&mut self, group: &str, join: &Join, desk: &mut Desk<'_>) {
        match self.join_classic(join, desk) {
            Err(refusal) => desk.refuse(join.request, refusal),
            Ok((id, owned)) => {
                let (request, group) = (join.request, group.to_owned());
                desk.hold(request, Waiter::Group { group });
                // Whoever asks twice at once gets its last question answered.
                if let Some(before) = self.joining.insert(id, Joining { request, owned }) {
                    desk.refuse(before.request, Refusal::RebalanceInProgress);
                }
                self.assign_if_due(desk);
            }
        }
    }

    /// Takes the member in, or what it says of itself anew; its id, and what it still has.
    fn join_classic(
        &mut self,
        join: &Join,
        desk: &mut Desk<'_>,
    ) -> Result<(String, Assignment), Refusal> {
        if self.keeping.is_ending {
            return Err(Refusal::NotAvailable);
        }
        if !desk.topics.is_known {
            return Err(Refusal::Loading);
        }
        let subscription = self.check_join(join, desk)?;
        let holder =
            join.instance.as_ref().and_then(|instance| self.instances.get(instance)).cloned();
        let is_unknown = join.member.is_empty();
        if is_unknown && join.instance.is_none() && join.member_id_required {
            let member = desk.draw_member_id(&join.client_id);
            return Err(Refusal::MemberIdRequired { member });
        }
        let id = if is_unknown {
            desk.draw_member_id(join.instance.as_ref().unwrap_or(&join.client_id))
        } else {
            join.member.clone()
        };
        let owned = embedded::resolve(&subscription.owned, desk.topics);
        let mut shares_anew = false;
        match holder {
            Some(old) if is_unknown => self.replace_static(&old, &id, desk),
            _ if self.state.members.contains_key(&id) => {}
            // Whoever was never told to give up what it has was a member once: as one of now it
            // would commit that, on its way to give it up, in the epoch of who has it.
            _ if !is_unknown && !owned.is_empty() && !mutant!("expelled-joins-with-partitions") => {
                reached!("an-expelled-member-claims-partitions");
                return Err(Refusal::UnknownMember);
            }
            _ => {
                if self.state.members.len() >= desk.limits.group_members_max {
                    return Err(Refusal::Full);
                }
                self.enlist(&id, join.instance.clone(), desk);
                shares_anew = true;
            }
        }
        shares_anew |= self.describe_itself(&id, join, &subscription);
        shares_anew |= self.refresh(desk.topics);
        if shares_anew {
            self.bump();
        }
        let (now, session_timeout) = (desk.now.monotonic, join.session_timeout);
        self.change_presence(&id, |presence| {
            (presence.heard, presence.rejoin_by) = (now, None);
            presence.session_timeout = session_timeout;
        });
        Ok((id, owned))
    }

    /// What would refuse a join, before anything has changed.
    fn check_join(&self, join: &Join, desk: &Desk<'_>) -> Result<Subscription, Refusal> {
        let limits = desk.limits;
        let sessions = limits.session_timeout_min..=limits.session_timeout_max;
        if !sessions.contains(&join.session_timeout) {
            return Err(Refusal::InvalidSessionTimeout);
        }
        let instance_bytes = join.instance.as_ref().map_or(0, String::len);
        if join.client_id.len().max(join.client_host.len()).max(instance_bytes) > TEXT_BYTES_MAX {
            return Err(Refusal::InvalidGroup);
        }
        if join.member.len() > TEXT_BYTES_MAX {
            return Err(Refusal::UnknownMember);
        }
        if !join.member.is_empty() {
            self.check_identity(join)?;
        }
        // The member itself may bring other protocols than before.
        let holder = join.instance.as_ref().and_then(|instance| self.instances.get(instance));
        let own = holder.unwrap_or(&join.member);
        let others = || self.state.members.iter().filter(|(id, _)| *id != own);
        let classics = || others().filter_map(|(_, member)| member.classic.as_ref());
        let is_shared = |name: &str| {
            classics().all(|other| other.protocols.iter().any(|theirs| theirs.name == name))
        };
        let mut names = join.protocols.iter().map(|protocol| &protocol.name);
        if join.protocol_type != PROTOCOL_TYPE
            || join.protocols.iter().any(|protocol| protocol.name.len() > TEXT_BYTES_MAX)
            || !names.any(|name| is_shared(name))
        {
            return Err(Refusal::InconsistentProtocol);
        }
        let bytes: usize = classics().map(|other| protocols_bytes(&other.protocols)).sum();
        if bytes + protocols_bytes(&join.protocols) > limits.metadata_bytes_max {
            return Err(Refusal::Full);
        }
        if !desk.has_room() {
            return Err(Refusal::NotAvailable);
        }
        let subscription = Subscription::decode(&join.protocols[0].metadata);
        subscription
            .ok()
            .filter(|it| it.topics.iter().all(|topic| topic.len() <= TEXT_BYTES_MAX))
            .ok_or(Refusal::InconsistentProtocol)
    }

    /// Who says its id must have the instance that it speaks of. One that nobody knows joins under
    /// it: it was told so by `MemberIdRequired`, or its session is over and it has nothing.
    fn check_identity(&self, join: &Join) -> Result<(), Refusal> {
        if let Some(instance) = &join.instance {
            return match self.instances.get(instance) {
                None => Err(Refusal::UnknownMember),
                Some(id) if *id != join.member => Err(Refusal::FencedInstance),
                Some(_) => Ok(()),
            };
        }
        let is_static = |member: &ConsumerMember| member.instance.is_some();
        match self.state.members.get(&join.member).is_some_and(is_static) {
            true => Err(Refusal::FencedInstance),
            false => Ok(()),
        }
    }

    /// Whether that changes the targets.
    fn describe_itself(&mut self, id: &str, join: &Join, subscription: &Subscription) -> bool {
        let before = &self.state.members[id];
        let topics: BTreeSet<&String> = subscription.topics.iter().collect();
        let member = ConsumerMember {
            instance: before.instance.clone(),
            rack: subscription.rack.clone(),
            client_id: join.client_id.clone(),
            client_host: join.client_host.clone(),
            topics: topics.into_iter().cloned().collect(),
            regex: None,
            rebalance_timeout: join.rebalance_timeout,
            assignor: None,
            classic: Some(ClassicMember {
                session_timeout: join.session_timeout,
                protocols: join.protocols.clone(),
            }),
        };
        if member == *before {
            return false;
        }
        let shares_anew = (&member.topics, &member.regex, &member.assignor)
            != (&before.topics, &before.regex, &before.assignor);
        self.state.members.insert(id.to_owned(), member);
        self.keeping.soil(Key::Member(id.to_owned()));
        shares_anew
    }

    /// Answers the joins that wait, if targets are those of the group's epoch: each is a step of
    /// its member.
    pub(in super::super) fn answer_joins(&mut self, group: &str, desk: &mut Desk<'_>) {
        if self.state.epoch > self.state.target_epoch {
            return;
        }
        let now = desk.now.monotonic;
        for (id, Joining { request, owned }) in std::mem::take(&mut self.joining) {
            self.step(&id, Some(&owned), now);
            self.change_presence(&id, |presence| presence.heard = now);
            let joined = Joined {
                generation: self.state.currents[&id].epoch,
                protocol_type: PROTOCOL_TYPE.to_owned(),
                protocol: self.protocol_of(&id),
                // None of them shares out.
                leader: String::new(),
                member: id.clone(),
                skip_assignment: false,
                members: Vec::new(),
            };
            self.keeping.answer(group, (request, id), Outcome::Joined(joined), desk);
        }
    }

    /// Whoever waits is to join another group.
    pub(in super::super) fn refuse_joins(&mut self, desk: &mut Desk<'_>) {
        for joining in std::mem::take(&mut self.joining).into_values() {
            desk.refuse(joining.request, Refusal::RebalanceInProgress);
        }
    }

    /// The first one that it named, which is the one whose subscription was read.
    fn protocol_of(&self, id: &str) -> String {
        let classic = self.state.members[id].classic.as_ref();
        let first = classic.and_then(|classic| classic.protocols.first());
        first.map(|protocol| protocol.name.clone()).unwrap_or_default()
    }

    /// The member of the classic protocol that it claims to be, in its generation.
    fn check_claim(&self, claim: &MemberClaim) -> Result<(), Refusal> {
        if let Some(instance) = &claim.instance {
            match self.instances.get(instance) {
                None => return Err(Refusal::UnknownMember),
                Some(id) if *id != claim.member => return Err(Refusal::FencedInstance),
                Some(_) => {}
            }
        }
        let member = self.state.members.get(&claim.member);
        if member.is_none_or(|member| member.classic.is_none()) {
            return Err(Refusal::UnknownMember);
        }
        self.check_epoch(&claim.member, claim.generation)
    }

    pub(in super::super) fn on_sync(&mut self, group: &str, sync: &Sync, desk: &mut Desk<'_>) {
        match self.sync(sync, desk) {
            Err(refusal) => desk.refuse(sync.request, refusal),
            Ok(synced) => {
                let who = (sync.request, sync.member.member.clone());
                self.keeping.answer(group, who, synced, desk);
            }
        }
    }

    fn sync(&mut self, sync: &Sync, desk: &Desk<'_>) -> Result<Outcome, Refusal> {
        self.check_claim(&sync.member)?;
        let id = &sync.member.member;
        let protocol = self.protocol_of(id);
        let is_ours =
            |name: &Option<String>, ours: &str| name.as_ref().is_none_or(|name| name == ours);
        if !is_ours(&sync.protocol_type, PROTOCOL_TYPE) || !is_ours(&sync.protocol, &protocol) {
            return Err(Refusal::InconsistentProtocol);
        }
        if !desk.has_room() {
            return Err(Refusal::NotAvailable);
        }
        // Without names it would be told that it has nothing.
        if !desk.topics.is_known {
            return Err(Refusal::Loading);
        }
        let current = &self.state.currents[id];
        // Who is to give something up learns by the answer what it keeps.
        if current.epoch < self.state.target_epoch && current.progress != Progress::Unrevoked {
            self.expect_join(id, desk);
            return Err(Refusal::RebalanceInProgress);
        }
        let classic = self.state.members[id].classic.as_ref();
        let metadata = classic.and_then(|classic| classic.protocols.first());
        let version = metadata.and_then(|it| Subscription::decode(&it.metadata).ok());
        let version = version.map_or(0, |subscription| subscription.version);
        let assignment = embedded::encode_assignment(&current.assigned, version, desk.topics);
        let now = desk.now.monotonic;
        self.change_presence(id, |presence| presence.heard = now);
        let (protocol_type, assignment) = (PROTOCOL_TYPE.to_owned(), Bytes::from(assignment));
        Ok(Outcome::Synced { protocol_type, protocol, assignment })
    }

    /// # Errors
    ///
    /// `RebalanceInProgress` if the member is to join again: its target is another, it has
    /// something to give up, or all that it waits for is free.
    pub(in super::super) fn on_classic_heartbeat(
        &mut self,
        claim: &MemberClaim,
        desk: &Desk<'_>,
    ) -> Result<(), Refusal> {
        self.check_claim(claim)?;
        let (id, now) = (&claim.member, desk.now.monotonic);
        self.change_presence(id, |presence| presence.heard = now);
        let current = &self.state.currents[id];
        let is_free = |place: (_, _)| self.owners.get(&place).is_none_or(|owner| owner == id);
        let must_join = current.epoch < self.state.target_epoch
            || match current.progress {
                Progress::Stable => false,
                Progress::Unrevoked => true,
                Progress::Unreleased => self.state.targets[id].iter().all(is_free),
            };
        if must_join && !self.joining.contains_key(id) {
            reached!("classic-member-is-called-to-join");
            self.expect_join(id, desk);
            return Err(Refusal::RebalanceInProgress);
        }
        Ok(())
    }

    /// From here on it has its rebalance timeout to join again.
    fn expect_join(&mut self, id: &str, desk: &Desk<'_>) {
        let by = desk.now.monotonic + self.state.members[id].rebalance_timeout;
        self.change_presence(id, |presence| {
            presence.rejoin_by.get_or_insert(by);
        });
    }

    /// Members leave, or an administrator takes static ones out by their instances.
    pub(in super::super) fn on_classic_leave(
        &mut self,
        leaving: Vec<Leaving>,
        desk: &mut Desk<'_>,
    ) -> Vec<(Leaving, Option<Refusal>)> {
        let mut departed = false;
        let mut results = Vec::new();
        for leaving in leaving {
            let refusal = match self.leaver(&leaving) {
                Ok(id) => {
                    self.remove(&id, Refusal::UnknownMember, desk);
                    departed = true;
                    None
                }
                Err(refusal) => Some(refusal),
            };
            results.push((leaving, refusal));
        }
        if departed {
            self.missed.forget();
            self.after_departure(desk);
        }
        results
    }

    fn leaver(&self, leaving: &Leaving) -> Result<String, Refusal> {
        if let Some(instance) = &leaving.instance {
            return match self.instances.get(instance) {
                None => Err(Refusal::UnknownMember),
                Some(id) if leaving.member.is_empty() || *id == leaving.member => Ok(id.clone()),
                Some(_) => Err(Refusal::FencedInstance),
            };
        }
        let member = self.state.members.get(&leaving.member);
        match member.is_some_and(|member| member.classic.is_some()) {
            true => Ok(leaving.member.clone()),
            false => Err(Refusal::UnknownMember),
        }
    }
}
