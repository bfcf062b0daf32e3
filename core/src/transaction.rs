//! The transactions of one partition of `__transaction_state`: which producer has which
//! transactional id, which partitions its transaction has, and how it ends. Their truth is the
//! partition's log; this machine folds it. Kafka's `TransactionCoordinator`, KIP-98 and KIP-890.
//!
//! Nothing is answered, and no marker is sent, before the log has the record that says so: the
//! outcome that a client is told is the outcome in the log. What becomes of a marker at its
//! partition is the partition's (`partition/`); what of a group's offsets, the group's.

pub mod interface;
pub mod record;

mod identity;
mod markers;
mod report;
mod rules;
pub mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::identity::{Ask, Counters, Desk, Identity};
use self::interface::{Effect, Input, Outcome, Refusal, TransactionLimits};
use self::record::ID_BYTES_MAX;
use self::state::State;
use crate::batch::{Batch, Records};
use crate::id::{LeaderEpoch, RequestId};
use crate::machine::Machine;
use crate::own_log::{self, AppendId};
use crate::reached;
use crate::time::{Instant, Now, Timestamp};

/// How often ids are looked through for those whose time has passed. Kafka's
/// `transaction.remove.expired.transaction.cleanup.interval.ms`.
pub const EXPIRY_INTERVAL: Duration = Duration::from_secs(3600);

/// A wall clock that moves so much more or less than the monotonic one has jumped.
const CLOCK_JUMP_MIN: Duration = Duration::from_secs(60);

/// A step that comes so long after a deadline shows that this node itself was paused.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Uncompressed bytes of one batch of the log, at most: the coordinator's own hold one record.
const BATCH_BYTES_MAX: usize = 32 << 20;

/// The coordinator of the transactional ids of one partition of `__transaction_state`.
#[derive(Clone, Debug)]
pub struct Transactions {
    limits: TransactionLimits,
    role: Role,
    identities: BTreeMap<String, Identity>,
    counters: Counters,
    /// Whose record an append is.
    appends: BTreeMap<AppendId, String>,
    /// When each transactional id wants to be ticked: an index over `identities`.
    deadlines: BTreeSet<(Instant, String)>,
    /// Replays asked for whose end has not come; the last one counts.
    replays: u32,
    /// Records that a replay could not read. They are kept in the log and otherwise ignored.
    unread: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Another node leads the partition.
    Idle,
    /// The log is being replayed.
    Loading {
        leader_epoch: LeaderEpoch,
    },
    Leading {
        leader_epoch: LeaderEpoch,
        since: Now,
        expiry: Instant,
    },
}

impl Transactions {
    /// Panics on limits that no coordinator can keep to.
    pub fn new(limits: TransactionLimits) -> Self {
        limits.check();
        Self {
            limits,
            role: Role::Idle,
            identities: BTreeMap::new(),
            counters: Counters::default(),
            appends: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            replays: 0,
            unread: 0,
        }
    }

    /// Records of the log that this build could not read since the election.
    pub fn unread_records(&self) -> u64 {
        self.unread
    }

    /// What is held true of each transactional id, for whoever compares it with the log; `None`
    /// while nobody is answered here.
    pub fn held(&self) -> Option<impl Iterator<Item = (&str, &State)>> {
        let answers = matches!(self.role, Role::Leading { .. });
        answers.then(|| {
            let all = self.identities.iter();
            all.filter_map(|(name, it)| it.state.as_ref().map(|state| (name.as_str(), state)))
        })
    }

    fn on_log(&mut self, now: Now, input: own_log::Input, effects: &mut Vec<Effect>) {
        use own_log::Input as Log;
        match input {
            Log::Elected { leader_epoch } => {
                self.forget_everything(effects);
                self.role = Role::Loading { leader_epoch };
                self.replays += 1;
                effects.push(Effect::Log(own_log::Effect::Replay));
            }
            Log::Resigned => {
                self.forget_everything(effects);
                self.role = Role::Idle;
            }
            Log::Replayed { batch } => self.on_replayed(&batch),
            Log::ReplayEnded => self.on_replay_ended(now, effects),
            Log::Appended { append } => {
                self.on_fate(now, append, effects, Identity::on_appended);
            }
            Log::AppendRefused { append } => {
                self.on_fate(now, append, effects, Identity::on_append_refused);
            }
        }
    }

    /// Whoever waits is refused; the successor knows what the log knows.
    fn forget_everything(&mut self, effects: &mut Vec<Effect>) {
        for identity in self.identities.values_mut() {
            identity.refuse_all(effects);
        }
        self.identities.clear();
        self.appends.clear();
        self.deadlines.clear();
        self.counters.waiting.clear();
        self.unread = 0;
    }

    fn on_replayed(&mut self, batch: &Batch) {
        if !matches!(self.role, Role::Loading { .. }) || batch.header().is_control() {
            return;
        }
        let Ok(bytes) = batch.uncompressed(BATCH_BYTES_MAX) else {
            self.unread += 1;
            return;
        };
        for record in Records::new(&bytes, batch.header().record_count()) {
            let read = record.ok().and_then(|record| {
                let name = record::read_key(record.key?).ok()?;
                let state = record.value.map(record::read_value).transpose().ok()?;
                Some((name, state))
            });
            match read {
                Some((name, None)) => {
                    self.identities.remove(&name);
                }
                Some((name, state)) => {
                    let new = || Identity::new(&name);
                    self.identities.entry(name.clone()).or_insert_with(new).fold(state);
                }
                None => self.unread += 1,
            }
        }
    }

    fn on_replay_ended(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.replays = self.replays.saturating_sub(1);
        let Role::Loading { leader_epoch } = self.role else { return };
        if self.replays > 0 {
            return;
        }
        let expiry = now.monotonic + EXPIRY_INTERVAL;
        self.role = Role::Leading { leader_epoch, since: now, expiry };
        self.on_every_identity(now, effects, Identity::on_loaded);
    }

    /// `act` for whose record this append is. Of an earlier leadership it is nobody's: who waited
    /// was refused, and the log was read since.
    fn on_fate(
        &mut self,
        now: Now,
        append: AppendId,
        effects: &mut Vec<Effect>,
        act: impl FnOnce(&mut Identity, &mut Desk<'_>),
    ) {
        if let Some(name) = self.appends.remove(&append) {
            self.with_identity(&name, now, effects, act);
        }
    }

    /// Lets `act` change what is known of the transactional id, if anything is; keeps the indexes,
    /// and forgets the id if nothing is left of it.
    fn with_identity<R>(
        &mut self,
        name: &str,
        now: Now,
        effects: &mut Vec<Effect>,
        act: impl FnOnce(&mut Identity, &mut Desk<'_>) -> R,
    ) -> Option<R> {
        let leader_epoch = match self.role {
            Role::Leading { leader_epoch, .. } | Role::Loading { leader_epoch } => leader_epoch,
            Role::Idle => return None,
        };
        let identity = self.identities.get_mut(name)?;
        let before = identity.deadline();
        let (limits, counters) = (&self.limits, &mut self.counters);
        let result = act(identity, &mut Desk { now, limits, leader_epoch, counters, effects });
        let after = identity.deadline();
        if let Some(writing) = &identity.writing {
            self.appends.insert(writing.append, name.to_owned());
        }
        if before != after {
            if let Some(before) = before {
                self.deadlines.remove(&(before, name.to_owned()));
            }
            if let Some(after) = after {
                self.deadlines.insert((after, name.to_owned()));
            }
        }
        if identity.is_void() {
            self.identities.remove(name);
        }
        Some(result)
    }

    fn on_every_identity(
        &mut self,
        now: Now,
        effects: &mut Vec<Effect>,
        mut act: impl FnMut(&mut Identity, &mut Desk<'_>),
    ) {
        let names: Vec<_> = self.identities.keys().cloned().collect();
        for name in names {
            self.with_identity(&name, now, effects, &mut act);
        }
    }

    /// Whether requests are answered here and now.
    fn admit(&self) -> Result<(), Refusal> {
        match self.role {
            Role::Idle => Err(Refusal::NotCoordinator),
            Role::Loading { .. } => Err(Refusal::Loading),
            Role::Leading { .. } => Ok(()),
        }
    }

    fn on_ask(&mut self, now: Now, name: &str, ask: Ask, effects: &mut Vec<Effect>) {
        if let Err(refusal) = self.check_ask(name, &ask) {
            return refuse(effects, ask.request(), refusal);
        }
        if !self.identities.contains_key(name) {
            if !matches!(ask, Ask::Init(_)) {
                return refuse(effects, ask.request(), Refusal::InvalidProducerIdMapping);
            }
            if self.identities.len() >= self.limits.ids_max {
                reached!("transactional-ids-full");
                return refuse(effects, ask.request(), Refusal::Full);
            }
            self.identities.insert(name.to_owned(), Identity::new(name));
        }
        self.with_identity(name, now, effects, |identity, desk| identity.on_ask(ask, desk));
    }

    fn check_ask(&self, name: &str, ask: &Ask) -> Result<(), Refusal> {
        self.admit()?;
        if name.is_empty() || name.len() > ID_BYTES_MAX {
            return Err(Refusal::InvalidRequest);
        }
        match ask {
            Ask::Init(init) => {
                let millis = init.timeout.as_millis();
                let allowed = 1..=self.limits.timeout_max.as_millis();
                // The record has 31 bits for it.
                let fits = i32::try_from(millis).is_ok();
                if fits && allowed.contains(&millis) {
                    Ok(())
                } else {
                    Err(Refusal::InvalidTimeout)
                }
            }
            Ask::Add(_) | Ask::End(_) => Ok(()),
        }
    }

    fn on_tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Role::Leading { leader_epoch, since, expiry } = self.role else { return };
        while let Some((deadline, name)) = self.deadlines.first()
            && *deadline <= now.monotonic
        {
            let name = name.clone();
            self.with_identity(&name, now, effects, Identity::on_tick);
        }
        if expiry <= now.monotonic {
            let expiry = now.monotonic + EXPIRY_INTERVAL;
            self.role = Role::Leading { leader_epoch, since, expiry };
            // A wall clock that jumps ahead, or is wrong at the start, must not make anything old.
            let mut clock = self.limits.wall_clock;
            clock.observe(now, CLOCK_JUMP_MIN);
            if !clock.is_trusted() {
                return;
            }
            let passed = now.monotonic.saturating_since(since.monotonic).as_millis();
            let passed = i64::try_from(passed).unwrap_or(i64::MAX);
            let today = now.wall.min(Timestamp(since.wall.0.saturating_add(passed)));
            self.on_every_identity(now, effects, |identity, desk| identity.expire(today, desk));
        }
    }

    /// After a pause of this node every transaction gets its whole time, counted from when its
    /// producer can be heard again.
    fn forgive_after_pause(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let due = self.deadlines.first().map(|(deadline, _)| *deadline);
        let leads = matches!(self.role, Role::Leading { .. });
        if leads && due.is_some_and(|due| due + PAUSE_MIN < now.monotonic) {
            reached!("transaction-coordinator-was-paused");
            self.on_every_identity(now, effects, |identity, desk| identity.forgive(desk));
        }
    }

    fn on_cancelled(&mut self, now: Now, request: RequestId, effects: &mut Vec<Effect>) {
        if let Some(name) = self.counters.waiting.remove(&request) {
            self.with_identity(&name, now, effects, |identity, _| identity.on_cancelled(request));
        }
    }
}

fn refuse(effects: &mut Vec<Effect>, request: RequestId, refusal: Refusal) {
    effects.push(Effect::Reply { request, outcome: Outcome::Refused(refusal) });
}

impl Machine for Transactions {
    type Input = Input;
    type Effect = Effect;

    const TICK: Input = Input::Tick;

    fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        self.forgive_after_pause(now, effects);
        match input {
            Input::Log(input) => self.on_log(now, input, effects),
            Input::InitProducer(init) => {
                let name = init.transactional_id.clone();
                self.on_ask(now, &name, Ask::Init(init), effects);
            }
            Input::AddPartitions(add) => {
                let name = add.claim.transactional_id.clone();
                self.on_ask(now, &name, Ask::Add(add), effects);
            }
            Input::End(end) => {
                let name = end.claim.transactional_id.clone();
                self.on_ask(now, &name, Ask::End(end), effects);
            }
            Input::Verify { request, claim, partitions } => {
                self.on_verify(request, &claim, &partitions, effects);
            }
            Input::MarkerAnswered { marker, result } => {
                self.with_identity(&marker.transactional_id, now, effects, |identity, desk| {
                    identity.on_marker_answered(&marker, result, desk);
                });
            }
            Input::List(list) => self.on_list(now, &list, effects),
            Input::Describe { request, transactional_id } => {
                self.on_describe(request, &transactional_id, effects);
            }
            Input::Cancelled { request } => self.on_cancelled(now, request, effects),
            Input::Tick => self.on_tick(now, effects),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let Role::Leading { expiry, .. } = self.role else { return None };
        // Without ids there is nothing to forget, and an idle partition has no deadline.
        let expiry = (!self.identities.is_empty()).then_some(expiry);
        self.deadlines.first().map(|(deadline, _)| *deadline).into_iter().chain(expiry).min()
    }

    fn check(&self) {
        let mut deadlines = BTreeSet::new();
        let mut appends = BTreeMap::new();
        let loading = matches!(self.role, Role::Loading { .. });
        for (name, identity) in &self.identities {
            assert_eq!(*name, identity.name);
            if !loading {
                identity.check();
                deadlines.extend(identity.deadline().map(|deadline| (deadline, name.clone())));
            }
            appends.extend(identity.writing.as_ref().map(|found| (found.append, name.clone())));
            assert!(!identity.is_void(), "nothing is kept of nothing");
        }
        let waiting = self.identities.values().flat_map(|identity| {
            identity.waiting().into_iter().map(|request| (request, identity.name.clone()))
        });
        assert_eq!(self.counters.waiting, waiting.collect(), "who waits is an index");
        assert_eq!(self.appends, appends, "appends are an index");
        assert_eq!(self.deadlines, deadlines, "deadlines are an index");
    }
}
