//! The groups of one partition of `__consumer_offsets`: who is a member, and how far they have
//! come. Their truth is the partition's log; this machine folds it.
//!
//! A group is classic (`group/classic.rs`: who joins, which of them leads, what the leader shares
//! out) or a consumer group (`group/consumer.rs`: the coordinator itself does). What requests rest
//! on is written to the log, and is answered when the log has it.

pub mod assignment;
pub mod consumer;
pub mod interface;
pub mod lag;
pub mod placement;
pub mod record;

mod classic;
mod describe;
mod desk;
mod kinds;
mod member;
mod migrate;
mod missed;
mod offsets;
mod requests;
mod topics;
mod transactional;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::classic::Group;
use self::desk::{Desk, DeskState, Pending, TEXT_BYTES_MAX, Waiter};
use self::interface::{
    CommitOffsets, Effect, GroupLimits, Input, Join, MemberClaim, Outcome, Refusal,
};
use self::record::Entry;
use self::topics::Topics;
use crate::batch::control::{Ending, Marker};
use crate::batch::{Batch, Records};
use crate::id::{ProducerId, RequestId};
use crate::machine::Machine;
use crate::own_log::{self, AppendId};
use crate::time::{Instant, Now, Timestamp};
use crate::{mutant, reached};

/// A wall clock that moves so much more or less than the monotonic one has jumped.
const CLOCK_JUMP_MIN: Duration = Duration::from_secs(60);

/// A step that comes so long after a deadline shows that this node itself was paused. It blames
/// nobody for a silence that may have been its own.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The coordinator of the groups of one offsets partition.
#[derive(Clone, Debug)]
pub struct Groups {
    limits: GroupLimits,
    role: Role,
    groups: BTreeMap<String, Group>,
    desk: DeskState,
    /// When each group wants to be ticked: an index over `groups`.
    deadlines: BTreeSet<(Instant, String)>,
    /// Replays asked for whose end has not come. The last one counts: after two elections in
    /// quick succession an earlier one may still be on its way.
    replays: u32,
    /// Kept from one leadership to the next.
    topics: Topics,
    /// Topics that were deleted while the log was replayed.
    deleted_topics: Vec<String>,
    /// Markers that were committed while the log was replayed.
    ended: BTreeMap<ProducerId, Ending>,
    /// Records that a replay could not read. They are kept in the log and otherwise ignored.
    unread: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Another node leads the partition.
    Idle,
    /// The log is being replayed.
    Loading,
    Leading {
        since: Now,
        expiry: Instant,
    },
}

impl Groups {
    /// `seed` draws the ids of members; no two coordinators' lives may have the same.
    pub fn new(limits: GroupLimits, seed: u64) -> Self {
        Self {
            limits,
            role: Role::Idle,
            groups: BTreeMap::new(),
            desk: DeskState {
                next_append: AppendId(0),
                pending: BTreeMap::new(),
                waiting: BTreeMap::new(),
                offsets: 0,
                in_transactions: 0,
                transactions: BTreeMap::new(),
                order: 0,
                seed,
            },
            deadlines: BTreeSet::new(),
            replays: 0,
            topics: Topics::default(),
            deleted_topics: Vec::new(),
            ended: BTreeMap::new(),
            unread: 0,
        }
    }

    /// Records of the log that this build could not read since the election.
    pub fn unread_records(&self) -> u64 {
        self.unread
    }

    /// Whether it has consumer groups, and was never told of the topics.
    pub fn wants_topics(&self) -> bool {
        !self.topics.is_known && self.groups.values().any(|group| group.consumer.is_some())
    }

    /// Whether it is to be told of changes among the topics.
    pub fn knows_topics(&self) -> bool {
        self.topics.is_known
    }

    fn on_log(&mut self, now: Now, input: own_log::Input, effects: &mut Vec<Effect>) {
        use own_log::Input as Log;
        match input {
            Log::Elected { .. } => self.on_elected(effects),
            Log::Resigned => self.on_resigned(effects),
            Log::Replayed { batch } => self.on_replayed(now, &batch, effects),
            Log::ReplayEnded => self.on_replay_ended(now, effects),
            Log::Appended { append } => self.on_appended(now, append, effects),
            Log::AppendRefused { append } => self.on_append_refused(now, append, effects),
        }
    }

    fn on_elected(&mut self, effects: &mut Vec<Effect>) {
        self.forget_everything(effects);
        self.role = Role::Loading;
        self.replays += 1;
        effects.push(Effect::Log(own_log::Effect::Replay));
    }

    fn on_resigned(&mut self, effects: &mut Vec<Effect>) {
        self.forget_everything(effects);
        self.role = Role::Idle;
    }

    /// Whoever waits is refused; the successor knows what the log knows.
    fn forget_everything(&mut self, effects: &mut Vec<Effect>) {
        for request in std::mem::take(&mut self.desk.waiting).into_keys() {
            let outcome = Outcome::Refused(Refusal::NotCoordinator);
            effects.push(Effect::Reply { request, outcome });
        }
        self.desk.pending.clear();
        (self.desk.offsets, self.desk.in_transactions) = (0, 0);
        self.desk.transactions.clear();
        self.ended.clear();
        self.groups.clear();
        self.deadlines.clear();
        self.deleted_topics.clear();
        self.unread = 0;
    }

    fn on_replayed(&mut self, now: Now, batch: &Batch, effects: &mut Vec<Effect>) {
        if self.role != Role::Loading {
            return;
        }
        let header = batch.header();
        if let Some(marker) = Marker::of(batch) {
            return self.end_transaction(now, (header.producer_id(), marker.ending), effects);
        }
        if header.is_control() {
            return;
        }
        let producer = header.is_transactional().then(|| header.producer_id());
        // The coordinator's own appends are bounded; so are those of a predecessor.
        let Ok(bytes) = batch.uncompressed(4 * desk::APPEND_BYTES_MAX) else {
            self.unread += 1;
            return;
        };
        for record in Records::new(&bytes, batch.header().record_count()) {
            let entry = record.ok().and_then(|record| {
                let entry = Entry::decode(record.key?, record.value).ok()?;
                Some((entry, batch.timestamp_of(&record)))
            });
            match entry {
                Some((entry, at)) => self.fold(now, entry, producer, Some(at), effects),
                None => self.unread += 1,
            }
        }
    }

    fn on_replay_ended(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.replays = self.replays.saturating_sub(1);
        if self.role != Role::Loading || self.replays > 0 {
            return;
        }
        let expiry = now.monotonic + self.limits.offsets_check_interval;
        self.role = Role::Leading { since: now, expiry };
        self.end_transactions(now, effects);
        let names: Vec<_> = self.groups.keys().cloned().collect();
        for name in names {
            self.with_group(&name, now, effects, Group::on_loaded);
        }
        let deleted = std::mem::take(&mut self.deleted_topics);
        if !deleted.is_empty() {
            self.on_topics_deleted(now, deleted, effects);
        }
    }

    /// Makes true what a committed record says. While leading, the machine knows of groups what
    /// it has written of them; in a replay, of what was written then, it learns it here.
    /// What was written in the transaction of a `producer` waits for its marker.
    fn fold(
        &mut self,
        now: Now,
        entry: Entry,
        producer: Option<ProducerId>,
        replayed: Option<Timestamp>,
        effects: &mut Vec<Effect>,
    ) {
        let name = entry.group().to_owned();
        let replay = replayed.is_some();
        if replay && !self.groups.contains_key(&name) {
            self.groups.insert(name.clone(), Group::new(&name, now.wall));
        }
        self.with_group(&name, now, effects, |group, desk| match entry {
            Entry::Offset { partition, value, .. } => match producer {
                Some(producer) => group.fold_waiting(producer, partition, value, desk),
                None => group.fold_offset(partition, value, desk),
            },
            Entry::Consumer { entry, .. } => match replayed {
                Some(at) => group.fold_consumer(entry, at, desk),
                None => group.fold_consumer_forgotten(&entry),
            },
            // What it was before it became a consumer group.
            Entry::Group { value: None, .. } if replay && group.consumer.is_some() => {}
            Entry::Group { value, .. } if replay => group.fold_group(value, desk),
            Entry::Group { value: None, .. } => group.fold_forgotten(),
            Entry::Group { value: Some(_), .. } => {}
        });
    }

    fn on_appended(&mut self, now: Now, append: AppendId, effects: &mut Vec<Effect>) {
        let Some(pending) = self.desk.pending.remove(&append) else {
            // Of an earlier leadership: whoever waited has been refused.
            return;
        };
        let Pending { group, entries, producer, then } = pending;
        for entry in entries {
            self.fold(now, entry, producer, None, effects);
        }
        self.with_group(&group, now, effects, |group, desk| {
            group.appends -= 1;
            if let Some(generation) = then.assigned {
                group.on_assigned(generation, desk);
            }
            if let Some((request, outcome)) = then.reply {
                desk.reply(request, outcome);
            }
            if then.kept {
                group.on_kept(desk);
            }
        });
    }

    fn on_append_refused(&mut self, now: Now, append: AppendId, effects: &mut Vec<Effect>) {
        let Some(Pending { group, entries, then, .. }) = self.desk.pending.remove(&append) else {
            return;
        };
        reached!("group-append-refused");
        self.with_group(&group, now, effects, |group, desk| {
            group.appends -= 1;
            if let Some(generation) = then.assigned {
                group.on_assignment_refused(generation, desk);
            }
            if let Some((request, _)) = then.reply {
                desk.refuse(request, Refusal::NotAvailable);
            }
            group.on_not_kept(&entries, then.kept, desk);
        });
    }

    fn on_cancelled(&mut self, now: Now, request: RequestId, effects: &mut Vec<Effect>) {
        match self.desk.waiting.remove(&request) {
            None => {}
            Some(Waiter::Append(append)) => {
                if let Some(pending) = self.desk.pending.get_mut(&append) {
                    pending.then.reply = None;
                }
            }
            Some(Waiter::Group { group }) => {
                self.with_group(&group, now, effects, |group, _| {
                    if let Some(consumer) = &mut group.consumer {
                        consumer.on_cancelled(request);
                    }
                });
            }
            Some(Waiter::Member { group, member }) => {
                self.with_group(&group, now, effects, |group, desk| {
                    group.on_cancelled(&member, desk);
                });
            }
        }
    }

    /// Lets `act` change the group, if there is one; keeps the index of deadlines, and forgets
    /// the group if nothing is left of it.
    fn with_group<R>(
        &mut self,
        name: &str,
        now: Now,
        effects: &mut Vec<Effect>,
        act: impl FnOnce(&mut Group, &mut Desk<'_>) -> R,
    ) -> Option<R> {
        let group = self.groups.get_mut(name)?;
        let before = group.deadline(&self.limits);
        let (limits, topics) = (&self.limits, &self.topics);
        let mut desk = Desk { now, limits, topics, state: &mut self.desk, effects };
        let result = act(group, &mut desk);
        let is_void = group.is_void();
        let after = if is_void { None } else { group.deadline(&self.limits) };
        if before != after {
            if let Some(before) = before {
                self.deadlines.remove(&(before, name.to_owned()));
            }
            if let Some(after) = after {
                self.deadlines.insert((after, name.to_owned()));
            }
        }
        if is_void && self.role != Role::Loading {
            self.groups.remove(name);
        }
        Some(result)
    }

    /// Whether requests for this group are answered here and now. zoo G4: as if it were.
    fn admit(&self, group: &str, may_be_empty: bool) -> Result<(), Refusal> {
        match self.role {
            Role::Idle if mutant!("dead-group-resets-identity") => Err(Refusal::UnknownMember),
            Role::Idle => Err(Refusal::NotCoordinator),
            Role::Loading if !mutant!("serve-before-load") => Err(Refusal::Loading),
            Role::Loading | Role::Leading { .. } => {
                let named = may_be_empty || !group.is_empty();
                let short = group.len() <= TEXT_BYTES_MAX;
                if named && short { Ok(()) } else { Err(Refusal::InvalidGroup) }
            }
        }
    }

    /// Makes room for a group of this name, if there is none.
    fn ensure_group(&mut self, now: Now, name: &str) -> Result<(), Refusal> {
        if !self.groups.contains_key(name) {
            if self.groups.len() >= self.limits.groups_max {
                return Err(Refusal::Full);
            }
            self.groups.insert(name.to_owned(), Group::new(name, now.wall));
        }
        Ok(())
    }

    fn on_join(&mut self, now: Now, join: Join, effects: &mut Vec<Effect>) {
        let admitted = self.admit(&join.group, false).and_then(|()| {
            let is_new = join.member.is_empty();
            if !is_new && !self.groups.contains_key(&join.group) {
                return Err(Refusal::UnknownMember);
            }
            self.ensure_group(now, &join.group)
        });
        match admitted {
            Err(refusal) => refuse(effects, join.request, refusal),
            Ok(()) => {
                let name = join.group.clone();
                self.with_group(&name, now, effects, |group, desk| group.on_join(join, desk));
            }
        }
    }

    fn on_commit(&mut self, now: Now, commit: CommitOffsets, effects: &mut Vec<Effect>) {
        let name = commit.member.group.clone();
        let admitted = self.admit(&name, true).and_then(|()| {
            if commit.member.generation >= 0 && !self.groups.contains_key(&name) {
                return Err(Refusal::IllegalGeneration);
            }
            self.ensure_group(now, &name)
        });
        match admitted {
            Err(refusal) => refuse(effects, commit.request, refusal),
            Ok(()) => {
                self.with_group(&name, now, effects, |group, desk| group.on_commit(commit, desk));
            }
        }
    }

    /// Hands a request to its group; refuses it with `missing` if there is none.
    fn ask_group(
        &mut self,
        now: Now,
        (request, name): (RequestId, &str),
        missing: Refusal,
        effects: &mut Vec<Effect>,
        act: impl FnOnce(&mut Group, &mut Desk<'_>),
    ) {
        let found = self
            .admit(name, false)
            .and_then(|()| self.with_group(name, now, effects, act).ok_or(missing));
        if let Err(refusal) = found {
            refuse(effects, request, refusal);
        }
    }

    /// A group without a name can have offsets, and is deleted like any other.
    fn on_delete(&mut self, now: Now, request: RequestId, name: &str, effects: &mut Vec<Effect>) {
        let found = self.admit(name, true).and_then(|()| {
            let act = |group: &mut Group, desk: &mut Desk<'_>| group.on_delete(request, desk);
            self.with_group(name, now, effects, act).ok_or(Refusal::UnknownGroup)
        });
        if let Err(refusal) = found {
            refuse(effects, request, refusal);
        }
    }

    fn on_heartbeat(
        &mut self,
        now: Now,
        request: RequestId,
        claim: &MemberClaim,
        effects: &mut Vec<Effect>,
    ) {
        let to = (request, claim.group.as_str());
        self.ask_group(now, to, Refusal::UnknownMember, effects, |group, desk| {
            match group.on_heartbeat(claim, desk) {
                Ok(()) => desk.reply(request, Outcome::Alive),
                Err(refusal) => desk.refuse(request, refusal),
            }
        });
    }

    fn on_tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Role::Leading { since, expiry } = self.role else { return };
        while let Some((deadline, name)) = self.deadlines.first()
            && *deadline <= now.monotonic
        {
            let name = name.clone();
            self.with_group(&name, now, effects, Group::on_tick);
        }
        if expiry <= now.monotonic {
            let expiry = now.monotonic + self.limits.offsets_check_interval;
            self.role = Role::Leading { since, expiry };
            // A wall clock that jumps ahead, or is wrong at the start, must not make anything old.
            let mut clock = self.limits.wall_clock;
            clock.observe(now, CLOCK_JUMP_MIN);
            if !clock.is_trusted() {
                return;
            }
            let passed = now.monotonic.saturating_since(since.monotonic).as_millis();
            let passed = i64::try_from(passed).unwrap_or(i64::MAX);
            let today = now.wall.min(Timestamp(since.wall.0.saturating_add(passed)));
            self.on_every_group(now, effects, |group, desk| group.expire(today, desk));
        }
    }

    /// After a pause of this node everybody gets a whole session, counted from when it can hear
    /// again.
    fn forgive_after_pause(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let due = self.deadlines.first().map(|(deadline, _)| *deadline);
        let leads = matches!(self.role, Role::Leading { .. });
        let slept = due.is_some_and(|due| due + PAUSE_MIN < now.monotonic);
        // zoo G13: timers that have run out in its sleep are believed.
        if leads && slept && !mutant!("zombie-coordinator-expires-members") {
            reached!("coordinator-was-paused");
            self.on_every_group(now, effects, |group, desk| group.forgive(desk.now.monotonic));
        }
    }

    fn on_every_group(
        &mut self,
        now: Now,
        effects: &mut Vec<Effect>,
        mut act: impl FnMut(&mut Group, &mut Desk<'_>),
    ) {
        let names: Vec<_> = self.groups.keys().cloned().collect();
        for name in names {
            self.with_group(&name, now, effects, &mut act);
        }
    }
}

fn refuse(effects: &mut Vec<Effect>, request: RequestId, refusal: Refusal) {
    effects.push(Effect::Reply { request, outcome: Outcome::Refused(refusal) });
}

impl Machine for Groups {
    type Input = Input;
    type Effect = Effect;

    const TICK: Input = Input::Tick;

    fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        self.forgive_after_pause(now, effects);
        match input {
            Input::Log(input) => self.on_log(now, input, effects),
            Input::Join(join) => self.on_join(now, join, effects),
            Input::ConsumerHeartbeat(beat) => self.on_consumer_heartbeat(now, beat, effects),
            Input::Sync(sync) => {
                let (request, name) = (sync.request, sync.member.group.clone());
                let unknown = Refusal::UnknownMember;
                self.ask_group(now, (request, &name), unknown, effects, |group, desk| {
                    group.on_sync(sync, desk);
                });
            }
            Input::Heartbeat { request, member } => {
                self.on_heartbeat(now, request, &member, effects);
            }
            Input::Leave { request, group: name, members } => {
                let unknown = Refusal::UnknownMember;
                self.ask_group(now, (request, &name), unknown, effects, |group, desk| {
                    let members = group.on_leave(members, desk);
                    desk.reply(request, Outcome::Left { members });
                });
            }
            Input::CommitOffsets(commit) => self.on_commit(now, commit, effects),
            Input::CommitTransactional(it) => self.on_commit_transactional(now, it, effects),
            Input::TransactionEnded { producer, ending } => {
                self.on_transaction_ended(now, (producer, ending), effects);
            }
            Input::FetchOffsets(fetch) => self.on_fetch(fetch, effects),
            Input::List { request, states, types } => {
                self.on_list(request, &states, &types, effects);
            }
            Input::Survey { request, group } => {
                self.on_survey(request, group.as_deref(), effects);
            }
            Input::DescribeConsumer { request, group } => {
                self.on_describe_consumer(request, group, effects);
            }
            Input::Topics(news) => self.on_topics(now, news, effects),
            Input::Describe { request, group } => self.on_describe(request, group, effects),
            Input::Delete { request, group } => self.on_delete(now, request, &group, effects),
            Input::DeleteOffsets { request, group: name, partitions } => {
                let unknown = Refusal::UnknownGroup;
                self.ask_group(now, (request, &name), unknown, effects, |group, desk| {
                    group.on_delete_offsets(request, partitions, desk);
                });
            }
            Input::TopicsDeleted { topics } => self.on_topics_deleted(now, topics, effects),
            Input::Cancelled { request } => self.on_cancelled(now, request, effects),
            Input::Tick => self.on_tick(now, effects),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let Role::Leading { expiry, .. } = self.role else { return None };
        // Without groups there is nothing to forget, and an idle partition has no deadline.
        let expiry = (!self.groups.is_empty()).then_some(expiry);
        self.deadlines.first().map(|(deadline, _)| *deadline).into_iter().chain(expiry).min()
    }

    fn check(&self) {
        let mut deadlines = BTreeSet::new();
        let mut appends = BTreeMap::<&str, usize>::new();
        for pending in self.desk.pending.values() {
            *appends.entry(&pending.group).or_default() += 1;
        }
        for (name, group) in &self.groups {
            assert_eq!(*name, group.name);
            group.check(self.role == Role::Loading);
            deadlines.extend(group.deadline(&self.limits).map(|deadline| (deadline, name.clone())));
            let in_flight = appends.remove(name.as_str()).unwrap_or_default();
            assert_eq!(group.appends, in_flight, "appends in flight are counted");
            assert!(self.role == Role::Loading || !group.is_void(), "nothing is kept of nothing");
        }
        let offsets = self.groups.values().map(|group| group.offsets.len()).sum::<usize>();
        assert_eq!(self.desk.offsets, offsets, "offsets are counted");
        self.check_transactions();
        assert!(appends.is_empty(), "a group stays while the log has its records");
        assert_eq!(self.deadlines, deadlines, "deadlines are an index");
        let fits = self.groups.len() <= self.limits.groups_max || self.role == Role::Loading;
        assert!(fits, "more groups than may be:\n{}", self.status());
        for waiter in self.desk.waiting.values() {
            match waiter {
                Waiter::Append(append) => assert!(self.desk.pending.contains_key(append)),
                Waiter::Group { group } => assert!(self.groups[group].consumer.is_some()),
                Waiter::Member { group, member } => {
                    assert!(self.groups[group].members.contains_key(member));
                }
            }
        }
    }
}
