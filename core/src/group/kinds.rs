//! A group is classic or a consumer group, and may change from the one to the other. Here requests
//! find the right one; offsets belong to both.

use super::classic::{Group, Phase};
use super::consumer::keep::Key;
use super::consumer::{Consumer, heartbeat};
use super::desk::{Desk, Then};
use super::interface::{ConsumerHeartbeat, Effect, Outcome, Refusal, TopicsNews};
use super::record::{ConsumerEntry, Entry, StoredGroup};
use super::{Groups, Role, refuse};
use crate::time::{Now, Timestamp};
use crate::{mutant, reached};

/// The epoch by which a member of a consumer group joins.
const JOIN: i32 = 0;

impl Groups {
    pub(super) fn on_consumer_heartbeat(
        &mut self,
        now: Now,
        beat: ConsumerHeartbeat,
        effects: &mut Vec<Effect>,
    ) {
        let name = beat.group.clone();
        let admitted = self.admit(&name, true).and_then(|()| {
            if name.is_empty() {
                return Err(Refusal::InvalidHeartbeat { why: "the group id is empty" });
            }
            if !self.topics.is_known {
                return Err(Refusal::Loading);
            }
            if beat.epoch != 0 && !self.groups.contains_key(&name) {
                // What is wrong in itself is so in every group.
                heartbeat::check(&beat)?;
                return Err(Refusal::UnknownMember);
            }
            self.ensure_group(now, &name)
        });
        match admitted {
            Err(refusal) => refuse(effects, beat.request, refusal),
            Ok(()) => {
                self.with_group(&name, now, effects, |group, desk| {
                    group.on_consumer_heartbeat(beat, desk);
                });
            }
        }
    }

    pub(super) fn on_topics(&mut self, now: Now, news: TopicsNews, effects: &mut Vec<Effect>) {
        let is_all = news.is_all;
        let changed = self.topics.take(news);
        if matches!(self.role, Role::Leading { .. }) {
            self.on_every_group(now, effects, |group, desk| {
                group.with_consumer(desk, |consumer, desk| {
                    consumer.on_topics((!is_all).then_some(&changed), desk);
                });
            });
        }
    }

    pub(super) fn on_topics_deleted(
        &mut self,
        now: Now,
        topics: Vec<String>,
        effects: &mut Vec<Effect>,
    ) {
        match self.role {
            Role::Idle => {}
            Role::Loading => self.deleted_topics.extend(topics),
            Role::Leading { .. } => self.on_every_group(now, effects, |group, desk| {
                group.on_topics_deleted(&topics, desk);
            }),
        }
    }
}

impl Group {
    /// Kafka's name of the group's state.
    pub(super) fn state(&self) -> &'static str {
        self.consumer.as_ref().map_or_else(|| self.phase.name(), |consumer| consumer.phase())
    }

    /// Kafka's name of its type.
    pub(super) fn kind(&self) -> &'static str {
        if self.consumer.is_some() { "consumer" } else { "classic" }
    }

    /// No members, and nobody on the way to become one.
    pub(super) fn has_nobody(&self) -> bool {
        self.phase == Phase::Empty
            && self.reserved.is_empty()
            && self.consumer.as_ref().is_none_or(|consumer| consumer.is_empty())
    }

    /// Lets `act` change the consumer group, if it is one, and writes what has changed.
    pub(super) fn with_consumer<R>(
        &mut self,
        desk: &mut Desk<'_>,
        act: impl FnOnce(&mut Consumer, &mut Desk<'_>) -> R,
    ) -> Option<R> {
        let mut consumer = self.consumer.take()?;
        let was_empty = consumer.is_empty();
        let result = act(&mut consumer, desk);
        self.keep(consumer, was_empty, desk);
        Some(result)
    }

    fn keep(&mut self, mut consumer: Box<Consumer>, was_empty: bool, desk: &mut Desk<'_>) {
        consumer.answer_joins(&self.name, desk);
        self.appends += usize::from(consumer.flush(&self.name, desk));
        if consumer.is_empty() && !was_empty {
            self.since = desk.now.wall;
        }
        let is_settled = !consumer.keeping.is_busy() && desk.topics.is_known;
        if is_settled && consumer.becomes_classic(desk.limits) {
            return self.downgrade(consumer, desk);
        }
        self.consumer = Some(consumer);
    }

    /// Whether it is a consumer group that has members; one without may become classic.
    pub(super) fn has_consumers(&self) -> bool {
        self.consumer.as_ref().is_some_and(|consumer| !consumer.is_empty())
    }

    pub(super) fn on_consumer_heartbeat(&mut self, beat: ConsumerHeartbeat, desk: &mut Desk<'_>) {
        let request = beat.request;
        if let Err(refusal) = heartbeat::check(&beat) {
            return desk.refuse(request, refusal);
        }
        if !desk.has_room() {
            return desk.refuse(request, Refusal::NotAvailable);
        }
        let mut consumer = match self.consumer.take() {
            Some(consumer) => consumer,
            None if beat.epoch != JOIN => return desk.refuse(request, Refusal::UnknownMember),
            None if !self.has_nobody() => match self.upgraded(desk) {
                Ok(consumer) => consumer,
                Err(refusal) => return desk.refuse(request, refusal),
            },
            None => self.as_consumer(),
        };
        let (was_empty, was_blank) = (consumer.is_empty(), consumer.is_blank());
        let is_new = was_blank || consumer.keeping.is_new;
        match consumer.on_heartbeat(beat, desk) {
            Ok(alive) => {
                consumer.keeping.is_new = false;
                self.leave_classic(desk);
                let who = (request, alive.member.clone());
                consumer.keeping.answer(&self.name, who, Outcome::ConsumerAlive(alive), desk);
            }
            Err(refusal) => {
                desk.refuse(request, refusal);
                if is_new {
                    // It stays what it was.
                    return;
                }
            }
        }
        self.keep(consumer, was_empty, desk);
    }

    /// What a classic group without members is as a consumer group. Its epochs go on.
    pub(super) fn as_consumer(&self) -> Box<Consumer> {
        let mut consumer = Box::new(Consumer::new(self.generation));
        if self.generation > 0 {
            reached!("classic-group-becomes-consumer");
            consumer.keeping.soil(Key::Classic);
            consumer.keeping.soil(Key::Epoch);
            consumer.keeping.soil(Key::TargetEpoch);
        }
        consumer.keeping.is_new = true;
        consumer
    }

    /// A consumer group without members becomes a classic one, whose generations go on.
    ///
    /// # Errors
    ///
    /// While it has members, or its last change is on its way to the log.
    pub(super) fn become_classic(&mut self, desk: &mut Desk<'_>) -> Result<(), Refusal> {
        let Some(consumer) = &self.consumer else { return Ok(()) };
        if !consumer.is_empty() {
            return Err(Refusal::InconsistentProtocol);
        }
        if consumer.keeping.is_busy() || consumer.keeping.is_ending {
            return Err(Refusal::NotAvailable);
        }
        reached!("consumer-group-becomes-classic");
        let generation = consumer.state.epoch;
        let mut entries = Consumer::forgotten(&self.name);
        // Last, and in the same append: generations go on from there whoever comes next.
        if !mutant!("empty-group-starts-over") {
            let value = StoredGroup { generation, since: desk.now.wall, ..StoredGroup::default() };
            entries.push(Entry::Group { group: self.name.clone(), value: Some(value) });
        }
        desk.append(&self.name, entries, Then::default())?;
        self.appends += 1;
        self.consumer = None;
        self.generation = generation;
        Ok(())
    }

    /// Takes over what a replayed record, of `at`, says of the consumer group.
    pub(super) fn fold_consumer(&mut self, entry: ConsumerEntry, at: Timestamp, desk: &Desk<'_>) {
        if self.consumer.is_none() {
            // Whatever it was before, it is a consumer group from here on.
            self.fold_group(None, desk);
        }
        // An epoch begins when somebody comes or goes: if nobody is left, then the last one went.
        if matches!(entry, ConsumerEntry::Epoch(_)) {
            self.since = at.min(desk.now.wall);
        }
        self.consumer.get_or_insert_with(|| Box::new(Consumer::new(0))).fold(entry);
    }

    /// The log was replayed.
    pub(super) fn on_loaded(&mut self, desk: &mut Desk<'_>) {
        self.hear_everybody(desk.now.monotonic);
        // Written when it turned classic: its members have what they had of the consumer group, and
        // what the others had is nobody's until they have joined.
        let is_half = self.leader.is_none() && !self.members.is_empty();
        if is_half && !mutant!("downgraded-group-stays") {
            reached!("a-group-that-turned-classic-is-called-again");
            self.prepare_rebalance(desk);
        }
        if self.consumer.as_ref().is_some_and(|consumer| consumer.is_blank()) {
            self.consumer = None;
        }
        self.with_consumer(desk, |consumer, desk| consumer.on_loaded(desk));
    }

    /// The log has an append of the consumer group.
    pub(super) fn on_kept(&mut self, desk: &mut Desk<'_>) {
        self.with_consumer(desk, Consumer::on_kept);
    }

    /// The log did not take an append. What it would have ended goes on.
    pub(super) fn on_not_kept(&mut self, entries: &[Entry], was_kept: bool, desk: &mut Desk<'_>) {
        let Some(consumer) = &mut self.consumer else { return };
        if was_kept {
            consumer.on_keep_refused(desk);
        }
        let ends = |entry: &Entry| {
            matches!(entry, Entry::Consumer { entry: ConsumerEntry::Epoch(None), .. })
        };
        if entries.iter().any(ends) {
            self.end_not();
        }
    }

    /// It was to be forgotten, and is not.
    pub(super) fn end_not(&mut self) {
        if let Some(consumer) = &mut self.consumer {
            consumer.keeping.is_ending = false;
        }
    }

    /// The records that forget the group, if there are any of it.
    pub(super) fn forget_group(&mut self) -> Vec<Entry> {
        match &mut self.consumer {
            Some(consumer) => {
                consumer.keeping.is_ending = true;
                Consumer::forgotten(&self.name)
            }
            None => vec![Entry::Group { group: self.name.clone(), value: None }],
        }
    }

    /// The log has forgotten the consumer group.
    pub(super) fn fold_consumer_forgotten(&mut self, entry: &ConsumerEntry) {
        let ends = self.consumer.as_ref().is_some_and(|consumer| consumer.keeping.is_ending);
        if ends && *entry == ConsumerEntry::Epoch(None) {
            self.consumer = None;
        }
    }
}
