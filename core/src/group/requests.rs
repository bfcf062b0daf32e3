//! The classic group requests: join, sync, heartbeat, leave. Kafka's `GroupMetadataManager`.

use super::classic::{Group, Phase};
use super::consumer::Consumer;
use super::consumer::classic::PROTOCOL_TYPE;
use super::desk::{Desk, TEXT_BYTES_MAX, Then, Waiter};
use super::interface::{Join, Joined, Leaving, MemberClaim, Outcome, Refusal, Sync};
use super::member::{Member, Waits, protocols_bytes};
use super::record::embedded::Subscription;
use crate::id::RequestId;
use crate::{mutant, reached};

impl Group {
    pub(super) fn on_join(&mut self, join: Join, desk: &mut Desk<'_>) {
        if self.has_consumers() {
            let name = self.name.clone();
            self.with_consumer(desk, |consumer, desk| consumer.on_join(&name, &join, desk));
            return;
        }
        let checked = self.check_join(&join, desk).and_then(|()| self.become_classic(desk));
        if let Err(refusal) = checked {
            return desk.refuse(join.request, refusal);
        }
        if self.members.is_empty() {
            self.protocol_type.clone_from(&join.protocol_type);
        }
        let replaced = join.instance.as_ref().and_then(|instance| self.instances.get(instance));
        match (join.member.is_empty(), replaced.cloned()) {
            (true, Some(old)) => self.replace_static(&old, join, desk),
            (true, None) if join.instance.is_none() && join.member_id_required => {
                let id = desk.draw_member_id(&join.client_id);
                self.reserve(&id, desk.now.monotonic + join.session_timeout);
                desk.refuse(join.request, Refusal::MemberIdRequired { member: id });
            }
            (true, None) => {
                let prefix = join.instance.as_ref().unwrap_or(&join.client_id);
                let id = desk.draw_member_id(prefix);
                self.add_member(id, &join, desk);
            }
            (false, _) if self.unreserve(&join.member) => {
                self.add_member(join.member.clone(), &join, desk);
            }
            (false, _) => self.on_rejoin(&join, desk),
        }
    }

    fn check_join(&self, join: &Join, desk: &Desk<'_>) -> Result<(), Refusal> {
        let limits = desk.limits;
        let sessions = limits.session_timeout_min..=limits.session_timeout_max;
        if !sessions.contains(&join.session_timeout) {
            return Err(Refusal::InvalidSessionTimeout);
        }
        let mut names = join.protocols.iter().map(|protocol| protocol.name.len());
        if join.protocol_type.is_empty()
            || join.protocols.is_empty()
            || names.any(|bytes| bytes > TEXT_BYTES_MAX)
            || join.protocol_type.len() > TEXT_BYTES_MAX
        {
            return Err(Refusal::InconsistentProtocol);
        }
        let instance_bytes = join.instance.as_ref().map_or(0, String::len);
        if join.client_id.len().max(join.client_host.len()).max(instance_bytes) > TEXT_BYTES_MAX {
            return Err(Refusal::InvalidGroup);
        }
        let reserved = join.instance.is_none() && self.reserved.contains_key(&join.member);
        if !join.member.is_empty() && !reserved {
            self.resolve(&join.member, join.instance.as_deref())?;
        }
        // The member itself may bring other protocols than before.
        let instance = join.instance.as_ref().and_then(|instance| self.instances.get(instance));
        let own = instance.unwrap_or(&join.member);
        let others = || self.members.values().filter(|member| member.id != *own);
        let shared = |name: &str| others().all(|member| member.supports(name));
        if !self.members.is_empty()
            && (join.protocol_type != self.protocol_type
                || !join.protocols.iter().any(|protocol| shared(&protocol.name)))
        {
            return Err(Refusal::InconsistentProtocol);
        }
        let known = self.members.contains_key(own) || self.reserved.contains_key(own);
        if !known && self.members.len() + self.reserved.len() >= limits.group_members_max {
            return Err(Refusal::Full);
        }
        let bytes: usize = others().map(|member| protocols_bytes(&member.protocols)).sum();
        if bytes + protocols_bytes(&join.protocols) > limits.metadata_bytes_max {
            return Err(Refusal::Full);
        }
        if desk.has_room() { Ok(()) } else { Err(Refusal::NotAvailable) }
    }

    /// Whether the claim holds: the member exists, and has the instance it speaks of.
    pub(super) fn resolve(&self, member: &str, instance: Option<&str>) -> Result<(), Refusal> {
        if let Some(instance) = instance {
            match self.instances.get(instance) {
                None => return Err(Refusal::UnknownMember),
                Some(id) if id != member => return Err(Refusal::FencedInstance),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member) { Ok(()) } else { Err(Refusal::UnknownMember) }
    }

    fn add_member(&mut self, id: String, join: &Join, desk: &mut Desk<'_>) {
        self.joins += 1;
        let mut member = Member::new(id.clone(), join, self.joins, desk.now.monotonic);
        member.waits = Waits::ForJoin(join.request);
        self.insert(member);
        self.hold_for(&id, join.request, desk);
        match self.phase {
            Phase::Preparing { .. } => {
                if self.is_gathering() {
                    reached!("rebalance-gathers");
                    self.gather_more(desk);
                }
                self.try_complete_join(desk);
            }
            _ => self.prepare_rebalance(desk),
        }
    }

    /// A member that the group has joins again.
    fn on_rejoin(&mut self, join: &Join, desk: &mut Desk<'_>) {
        let id = &join.member;
        let unchanged = self.members[id].protocols == join.protocols;
        let leads = self.leader.as_ref() == Some(id);
        match self.phase {
            Phase::Preparing { .. } => {
                self.wait_for_join(id, join, desk);
                self.try_complete_join(desk);
            }
            // The answer got lost on its way; the generation is still being assigned.
            Phase::Completing { .. } if unchanged => self.answer_joined(id, join.request, desk),
            // A follower that asks again changes nothing; a leader does so to share out anew.
            Phase::Stable if unchanged && !leads => self.answer_joined(id, join.request, desk),
            Phase::Completing { .. } | Phase::Stable => {
                self.wait_for_join(id, join, desk);
                self.prepare_rebalance(desk);
            }
            Phase::Empty => desk.refuse(join.request, Refusal::UnknownMember),
        }
    }

    fn answer_joined(&mut self, id: &str, request: RequestId, desk: &mut Desk<'_>) {
        let now = desk.now.monotonic;
        self.change(id, |member| member.heard = now);
        desk.reply(request, Outcome::Joined(self.joined(id)));
    }

    fn wait_for_join(&mut self, id: &str, join: &Join, desk: &mut Desk<'_>) {
        // Whoever asks twice at once gets its last question answered.
        self.stop_waiting(id, Outcome::Refused(Refusal::RebalanceInProgress), desk);
        self.change(id, |member| {
            member.update(join);
            member.waits = Waits::ForJoin(join.request);
        });
        self.hold_for(id, join.request, desk);
    }

    fn hold_for(&self, id: &str, request: RequestId, desk: &mut Desk<'_>) {
        desk.hold(request, Waiter::Member { group: self.name.clone(), member: id.to_owned() });
    }

    /// A static member is back without its id: it takes its own place, under a new id, and the
    /// old one is fenced. There is no rebalance unless its topics change, or what the group chooses
    /// to speak: what it had when it last joined is its past. KIP-345, KIP-814.
    fn replace_static(&mut self, old: &str, join: Join, desk: &mut Desk<'_>) {
        let prefix = join.instance.as_ref().unwrap_or(&join.client_id);
        // zoo L5: what the time of the group's state makes of it is not new.
        let id = if mutant!("state-timestamp-as-now") {
            format!("{prefix}-{}", self.since.0)
        } else {
            desk.draw_member_id(prefix)
        };
        let led = self.leader.as_deref() == Some(old);
        let mut member = self.remove(old, Refusal::FencedInstance, desk);
        let chosen = self.protocol.clone().unwrap_or_default();
        let metadata = member.metadata(&chosen);
        member.id.clone_from(&id);
        member.knows_id = true;
        member.heard = desk.now.monotonic;
        member.update(&join);
        let unchanged = self.protocol_type != PROTOCOL_TYPE
            || Subscription::wants_the_same(&metadata, &member.metadata(&chosen));
        self.insert(member);
        if led {
            self.leader = Some(id.clone());
        }
        if self.phase == Phase::Stable && unchanged && self.vote() == chosen {
            reached!("static-member-returns");
            let joined = self.rejoined(&id, old, join.skip_assignment);
            if mutant!("static-double-owner") {
                return desk.reply(join.request, Outcome::Joined(joined));
            }
            let then = Then::reply(join.request, Outcome::Joined(joined));
            return self.append_self(then, desk);
        }
        self.wait_for_join(&id, &join, desk);
        match self.phase {
            Phase::Preparing { .. } => self.try_complete_join(desk),
            _ => self.prepare_rebalance(desk),
        }
    }

    /// What a static member is told that returned into a stable group. If it led, it must not
    /// assign anew: a client that cannot be told so is told that its old self leads.
    fn rejoined(&self, id: &str, old: &str, skip_assignment: bool) -> Joined {
        let mut joined = self.joined(id);
        if joined.leader == id {
            if skip_assignment {
                joined.skip_assignment = true;
            } else {
                joined.leader = old.to_owned();
                joined.members = Vec::new();
            }
        }
        joined
    }

    pub(super) fn on_sync(&mut self, sync: Sync, desk: &mut Desk<'_>) {
        if self.has_consumers() {
            let name = self.name.clone();
            self.with_consumer(desk, |consumer, desk| consumer.on_sync(&name, &sync, desk));
            return;
        }
        if let Err(refusal) = self.check_sync(&sync, desk) {
            return desk.refuse(sync.request, refusal);
        }
        let id = sync.member.member;
        let now = desk.now.monotonic;
        match self.phase {
            Phase::Empty => desk.refuse(sync.request, Refusal::UnknownMember),
            Phase::Preparing { .. } => desk.refuse(sync.request, Refusal::RebalanceInProgress),
            Phase::Stable => {
                self.change(&id, |member| member.heard = now);
                desk.reply(sync.request, self.synced(&id));
            }
            Phase::Completing { since, assigning } => {
                self.stop_waiting(&id, Outcome::Refused(Refusal::RebalanceInProgress), desk);
                self.change(&id, |member| {
                    member.waits = Waits::ForSync(sync.request);
                    member.synced = true;
                });
                self.hold_for(&id, sync.request, desk);
                if self.leader.as_ref() == Some(&id) && !assigning {
                    self.phase = Phase::Completing { since, assigning: true };
                    self.assign(sync.assignments, desk);
                }
            }
        }
    }

    fn check_sync(&self, sync: &Sync, desk: &Desk<'_>) -> Result<(), Refusal> {
        let claim = &sync.member;
        self.resolve(&claim.member, claim.instance.as_deref())?;
        if claim.generation != self.generation {
            return Err(Refusal::IllegalGeneration);
        }
        let named = |name: &Option<String>, ours: Option<&String>| {
            name.as_ref().is_none_or(|name| Some(name) == ours)
        };
        if !named(&sync.protocol_type, Some(&self.protocol_type))
            || !named(&sync.protocol, self.protocol.as_ref())
        {
            return Err(Refusal::InconsistentProtocol);
        }
        let bytes: usize = sync.assignments.iter().map(|(_, assignment)| assignment.len()).sum();
        if bytes > desk.limits.metadata_bytes_max {
            return Err(Refusal::CommitTooLarge);
        }
        if desk.has_room() { Ok(()) } else { Err(Refusal::NotAvailable) }
    }

    /// Takes the leader's assignment, and writes it down before anybody learns of it.
    fn assign(&mut self, assignments: Vec<(String, bytes::Bytes)>, desk: &mut Desk<'_>) {
        let ids: Vec<_> = self.members.keys().cloned().collect();
        for id in ids {
            let given = assignments.iter().find(|(member, _)| *member == id);
            let given = given.map(|(_, assignment)| assignment.clone()).unwrap_or_default();
            self.change(&id, |member| member.assignment = given);
        }
        self.since = desk.now.wall;
        let appends = self.appends;
        let then = Then { assigned: Some(self.generation), ..Then::default() };
        self.append_self(then, desk);
        if self.appends == appends {
            // More than an append may hold.
            self.on_assignment_refused(self.generation, desk);
        }
    }

    pub(super) fn on_heartbeat(
        &mut self,
        claim: &MemberClaim,
        desk: &mut Desk<'_>,
    ) -> Result<(), Refusal> {
        let beat = |consumer: &mut Consumer, desk: &mut Desk<'_>| {
            consumer.on_classic_heartbeat(claim, desk)
        };
        if let Some(heard) = self.with_consumer(desk, beat) {
            return heard;
        }
        let MemberClaim { member, instance, generation, .. } = claim;
        self.resolve(member, instance.as_deref())?;
        if *generation != self.generation {
            return Err(Refusal::IllegalGeneration);
        }
        self.hear(member, desk);
        match self.phase {
            Phase::Empty => Err(Refusal::UnknownMember),
            Phase::Preparing { .. } => Err(Refusal::RebalanceInProgress),
            Phase::Completing { .. } | Phase::Stable => Ok(()),
        }
    }

    pub(super) fn hear(&mut self, member: &str, desk: &Desk<'_>) {
        let now = desk.now.monotonic;
        self.change(member, |member| (member.heard, member.knows_id) = (now, true));
    }

    pub(super) fn on_leave(
        &mut self,
        leaving: Vec<Leaving>,
        desk: &mut Desk<'_>,
    ) -> Vec<(Leaving, Option<Refusal>)> {
        if self.has_consumers() {
            let leave = |consumer: &mut Consumer, desk: &mut Desk<'_>| {
                consumer.on_classic_leave(leaving, desk)
            };
            return self.with_consumer(desk, leave).unwrap_or_default();
        }
        let mut departed = false;
        let mut released = false;
        let mut results = Vec::new();
        for leaving in leaving {
            let instance = leaving.instance.as_ref();
            let id = match instance.and_then(|instance| self.instances.get(instance)) {
                Some(id) if leaving.member.is_empty() => id.clone(),
                _ => leaving.member.clone(),
            };
            let refusal = if self.unreserve(&id) {
                released = true;
                None
            } else {
                match self.resolve(&id, leaving.instance.as_deref()) {
                    Ok(()) => {
                        self.remove(&id, Refusal::UnknownMember, desk);
                        departed = true;
                        None
                    }
                    Err(refusal) => Some(refusal),
                }
            };
            results.push((leaving, refusal));
        }
        if departed {
            // Those that say farewell are not the ones that come back.
            self.missed.forget();
            self.after_departure(desk);
        } else if released {
            self.try_complete_join(desk);
        }
        results
    }
}
