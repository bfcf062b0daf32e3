//! A group with members changes its protocol under them, KIP-848: a classic group takes in its
//! first member of the consumer protocol, and a consumer group loses its last one. Kafka's
//! `ConsumerGroup.fromClassicGroup` and `ClassicGroup.fromConsumerGroup`.
//!
//! Epochs go on as generations and the other way round, so that a commit is known by them across
//! the change.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::assignment::Assignment;
use super::classic::{Group, Phase};
use super::consumer::Consumer;
use super::consumer::classic::PROTOCOL_TYPE;
use super::consumer::keep::Key;
use super::consumer::reconcile::{Current, Progress};
use super::desk::{Desk, Then};
use super::interface::{Outcome, Refusal};
use super::member::{Member, Waits};
use super::record::embedded::{self, Subscription};
use super::record::{ClassicMember, ConsumerEntry, ConsumerMember, Entry};
use crate::{mutant, reached};

impl Group {
    /// What a classic group with members is as a consumer group. It stays what it is until
    /// `leave_classic`.
    ///
    /// # Errors
    ///
    /// `InconsistentProtocol` if it may not become one: by configuration, or since its members are
    /// no consumers or say what cannot be read.
    pub(super) fn upgraded(&self, desk: &Desk<'_>) -> Result<Box<Consumer>, Refusal> {
        let is_allowed = desk.limits.migration.upgrades();
        if !is_allowed || (!self.members.is_empty() && self.protocol_type != PROTOCOL_TYPE) {
            return Err(Refusal::InconsistentProtocol);
        }
        let mut consumer = self.as_consumer();
        let mut taken = Assignment::default();
        let mut members = Vec::new();
        for member in self.members.values() {
            let (described, assigned, claimed) = self.as_consumer_member(member, desk)?;
            // A leader may have given a partition to two; who comes first has it.
            let mut assigned = assigned.minus(&taken);
            if mutant!("upgrade-forgets-owners") {
                assigned = Assignment::default();
            }
            taken.extend(assigned.iter());
            members.push((member.id.clone(), described, assigned, claimed));
        }
        for (id, described, assigned, claimed) in members {
            // Whoever was not told yet, or has not given up what it was told to, still has that.
            let mut held = assigned.clone();
            if !mutant!("upgrade-forgets-claims") {
                let claimed = claimed.minus(&taken);
                taken.extend(claimed.iter());
                held.extend(claimed.iter());
            }
            let current = Current {
                epoch: self.generation,
                previous_epoch: self.generation,
                progress: Progress::Stable,
                assigned: held,
                revoking: Assignment::default(),
            };
            consumer.state.members.insert(id.clone(), described);
            consumer.state.targets.insert(id.clone(), assigned);
            consumer.state.currents.insert(id.clone(), current);
            for key in [Key::Member(id.clone()), Key::Target(id.clone()), Key::Current(id)] {
                consumer.keeping.soil(key);
            }
        }
        consumer.index(desk);
        Ok(consumer)
    }

    /// The member, what the newest assignment gives it, and what it said that it still had when it
    /// joined last: a cooperative member goes on with that until it hears what to give up.
    fn as_consumer_member(
        &self,
        member: &Member,
        desk: &Desk<'_>,
    ) -> Result<(ConsumerMember, Assignment, Assignment), Refusal> {
        let chosen = self.protocol.as_ref().unwrap_or(&member.protocols[0].name);
        let subscription = Subscription::decode(&member.metadata(chosen))
            .map_err(|_| Refusal::InconsistentProtocol)?;
        let assigned = embedded::decode_assignment(&member.assignment, desk.topics)
            .map_err(|_| Refusal::InconsistentProtocol)?;
        let claimed = embedded::resolve(&subscription.owned, desk.topics);
        let topics: BTreeSet<String> = subscription.topics.into_iter().collect();
        let described = ConsumerMember {
            instance: member.instance.clone(),
            rack: subscription.rack,
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            topics: topics.into_iter().collect(),
            regex: None,
            rebalance_timeout: member.rebalance_timeout,
            assignor: None,
            classic: Some(ClassicMember {
                session_timeout: member.session_timeout,
                protocols: member.protocols.clone(),
            }),
        };
        Ok((described, assigned, claimed))
    }

    /// It is a consumer group from here on: who waits is asked to join that.
    pub(super) fn leave_classic(&mut self, desk: &mut Desk<'_>) {
        let ids: Vec<_> = self.members.keys().cloned().collect();
        if !ids.is_empty() {
            reached!("classic-group-is-upgraded");
        }
        for id in ids {
            self.stop_waiting(&id, Outcome::Refused(Refusal::RebalanceInProgress), desk);
            self.remove(&id, Refusal::RebalanceInProgress, desk);
        }
        let reserved: Vec<_> = self.reserved.keys().cloned().collect();
        for id in reserved {
            self.unreserve(&id);
        }
        self.phase = Phase::Empty;
        (self.protocol, self.leader) = (None, None);
    }

    /// Its members, all of the classic protocol, get their own group again, and are asked to join
    /// it. If that is more than an append may hold, it stays a consumer group, which serves them.
    pub(super) fn downgrade(&mut self, mut consumer: Box<Consumer>, desk: &mut Desk<'_>) {
        let mut classic = Self::new(&self.name, desk.now.wall);
        classic.generation =
            if mutant!("downgrade-starts-over") { 0 } else { consumer.state.epoch };
        PROTOCOL_TYPE.clone_into(&mut classic.protocol_type);
        for id in consumer.state.members.keys() {
            classic.joins += 1;
            let member = as_classic_member(&consumer, id, classic.joins, desk);
            classic.insert(member);
        }
        classic.protocol = Some(classic.vote());
        let mut entries = Vec::new();
        for id in consumer.state.members.keys() {
            let gone = [
                ConsumerEntry::Current(id.clone(), None),
                ConsumerEntry::Target(id.clone(), None),
                ConsumerEntry::Member(id.clone(), None),
            ];
            let group = || self.name.clone();
            entries.extend(gone.map(|entry| Entry::Consumer { group: group(), entry }));
        }
        entries.extend(Consumer::forgotten(&self.name));
        // Last, so that whoever replays the log is left with it.
        entries.push(classic.stored());
        if desk.append(&self.name, entries, Then::default()).is_err() {
            self.consumer = Some(consumer);
            return;
        }
        reached!("consumer-group-is-downgraded");
        consumer.refuse_joins(desk);
        classic.appends = self.appends + 1;
        classic.offsets = std::mem::take(&mut self.offsets);
        classic.in_transactions = std::mem::take(&mut self.in_transactions);
        classic.phase = Phase::Stable;
        *self = classic;
        self.prepare_rebalance(desk);
    }
}

fn as_classic_member(consumer: &Consumer, id: &str, order: u64, desk: &Desk<'_>) -> Member {
    let member = &consumer.state.members[id];
    let ClassicMember { session_timeout, protocols } = member.classic.clone().unwrap_or_default();
    let version = protocols.first().and_then(|it| Subscription::decode(&it.metadata).ok());
    let version = version.map_or(0, |subscription| subscription.version);
    let assigned = &consumer.state.currents[id].assigned;
    Member {
        id: id.to_owned(),
        instance: member.instance.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        session_timeout,
        rebalance_timeout: member.rebalance_timeout,
        protocols,
        assignment: Bytes::from(embedded::encode_assignment(assigned, version, desk.topics)),
        waits: Waits::Not,
        synced: true,
        knows_id: true,
        heard: desk.now.monotonic,
        order,
    }
}
