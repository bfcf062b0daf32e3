//! The node of the world of cores: one shard, the completions of its writes, and its lives.

use std::time::Duration;

use quorate_core::id::{LeaderEpoch, NodeId, Offset, RequestId, WriteId};
use quorate_core::machine::Machine as _;
use quorate_core::partition::interface::{
    self as partition, Assignment, LogOp, PartitionConfig, ReadView,
};
use quorate_core::shard::Shard;
use quorate_core::shard::interface::{Effect, Input, Limits, Open, Outcome, Role};
use quorate_core::time::{Instant, Now, Timestamp};

use super::log::{SimLog, same};
use super::shadow::{self, Asks, Shadow, Wrong};
use super::{Agenda, Event, Places};
use crate::chance::{Between, Chance};
use crate::check::Violation;
use crate::history::Partition;
use crate::plan::{Flush, Plan, Topic};

const NODE: NodeId = NodeId(1);

/// Wall-clock time at the start, as in the world of nodes.
const WALL_START: i64 = 1_767_225_600_000;

/// Steps between two checks of all invariants, unless the seed asks for one at each step.
const CHECK_EVERY: u64 = 256;

/// Snapshots at an offset that this divides are compared with the fold of the log, unless the seed
/// asks for all.
const COMPARE_EVERY: i64 = 16;

/// An answer of the shard, to be carried to whoever asked.
pub(super) struct Reply {
    pub(super) request: RequestId,
    pub(super) outcome: partition::Outcome,
}

/// A write under way, by its log's place.
struct Pending {
    place: usize,
    write: WriteId,
}

/// One partition: its log, and what is known beside its machine.
struct Slot {
    config: PartitionConfig,
    log: SimLog,
    /// What readers see; `None` while the node is down.
    view: Option<ReadView>,
    shadow: Shadow,
}

pub(super) struct CoreNode {
    shard: Option<Shard>,
    pub(super) life: u32,
    booted: Duration,
    places: Places,
    slots: Vec<Slot>,
    /// Durable writes that no sync has taken yet, and those that the running one has.
    queued: Vec<Pending>,
    syncing: Vec<Pending>,
    cached: Vec<Pending>,
    armed: Option<Instant>,
    effects: Vec<Effect>,
    pub(super) replies: Vec<Reply>,
    pub(super) halted: Option<String>,
    pub(super) steps: u64,
    pub(super) violations: Vec<Violation>,
    pub(super) paused_until: Option<Duration>,
    pub(super) wall_offset: i64,
    sync: Between<Duration>,
    /// Syncs take so many times longer until then.
    pub(super) slow: u32,
    pub(super) slow_until: Duration,
    pub(super) stuck_until: Duration,
    pub(super) sync_fails: bool,
    chance: Chance,
    /// Steps between two checks of all invariants; `None` for never.
    check_every: Option<u64>,
    limits: Limits,
    seed: u64,
}

impl CoreNode {
    pub(super) fn new(plan: &Plan, places: Places, checks: bool) -> Self {
        let mut chance = Chance::new(plan.seed, "disk n1");
        let always = chance.one_in(16);
        let check_every = if always { 1 } else { CHECK_EVERY };
        let compare_every = checks.then_some(if always { 1 } else { COMPARE_EVERY });
        let slot = |partition: Partition| Slot {
            config: config(&plan.topics[partition.topic as usize]),
            log: SimLog::new(places.id(partition), compare_every),
            view: None,
            shadow: Shadow::default(),
        };
        let slots = places.partitions().map(slot).collect();
        Self {
            shard: None,
            life: 0,
            booted: Duration::ZERO,
            places,
            slots,
            queued: Vec::new(),
            syncing: Vec::new(),
            cached: Vec::new(),
            armed: None,
            effects: Vec::new(),
            replies: Vec::new(),
            halted: None,
            steps: 0,
            violations: Vec::new(),
            paused_until: None,
            wall_offset: plan.clock.wall_offset,
            sync: plan.disk.sync,
            slow: 1,
            slow_until: Duration::ZERO,
            stuck_until: Duration::ZERO,
            sync_fails: false,
            chance,
            check_every: checks.then_some(check_every),
            limits: limits(),
            seed: plan.seed,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.shard.is_some()
    }

    pub(super) fn now(&self, agenda: &Agenda) -> Now {
        let wall = WALL_START + agenda.now.as_millis() as i64 + self.wall_offset;
        let monotonic = Instant::since_start(agenda.now.saturating_sub(self.booted));
        Now { monotonic, wall: Timestamp(wall) }
    }

    pub(super) fn start(&mut self, agenda: &mut Agenda) {
        if self.is_up() {
            return;
        }
        self.booted = agenda.now;
        self.armed = None;
        let seed = Chance::new(self.seed, &format!("node n1 {}", self.life)).number();
        self.shard = Some(Shard::new(NODE, self.limits.clone(), seed));
        for place in 0..self.slots.len() {
            let slot = &self.slots[place];
            let (partition, recovered) = (slot.log.partition(), slot.log.recover());
            let config = slot.config.clone();
            let assignment = Assignment {
                leader_epoch: LeaderEpoch(0),
                leader: Some(NODE),
                replicas: vec![NODE],
                in_sync: vec![NODE],
                ..Assignment::default()
            };
            let open = Open { partition, role: Role::Data, recovered, config, assignment };
            self.step(agenda, Input::Open(Box::new(open)));
        }
    }

    /// One input of a partition's machine; what comes of it is compared with what should.
    pub(super) fn ask(&mut self, agenda: &mut Agenda, place: usize, input: partition::Input) {
        let partition = self.slots[place].log.partition();
        let asks = Asks::of(&input);
        self.slots[place].shadow.begins(asks);
        self.run(agenda, Input::Partition { partition, input }, Some(place), asks);
        let slot = &self.slots[place];
        if let Some(view) = &slot.view
            && let Some(wrong) = slot.shadow.ends(view, slot.log.reported())
        {
            self.blame(place, wrong);
        }
    }

    fn step(&mut self, agenda: &mut Agenda, input: Input) {
        self.run(agenda, input, None, Asks::Nobody);
    }

    /// One input, of the partition at `place` or of all; its effects are carried out.
    fn run(&mut self, agenda: &mut Agenda, input: Input, place: Option<usize>, asks: Asks) {
        let now = self.now(agenda);
        let Some(shard) = &mut self.shard else { return };
        let mut effects = std::mem::take(&mut self.effects);
        shard.step(now, input, &mut effects);
        self.steps += 1;
        if self.check_every.is_some_and(|every| self.steps.is_multiple_of(every)) {
            shard.check_stepped();
        }
        for effect in effects.drain(..) {
            self.perform(agenda, effect, place, asks);
        }
        self.effects = effects;
        self.arm(agenda);
    }

    fn blame(&mut self, place: usize, (property, sentence): Wrong) {
        // The first of its kind says enough.
        if self.violations.iter().all(|known| known.property != property) {
            let place = self.places.partition(place).to_string();
            self.violations.push(Violation { property, place, sentence });
        }
    }

    fn perform(&mut self, agenda: &mut Agenda, effect: Effect, place: Option<usize>, asks: Asks) {
        let now = self.now(agenda);
        match effect {
            Effect::Write { partition, write, op, flush } => {
                let place = self.places.place(partition);
                let slot = &mut self.slots[place];
                if let LogOp::Append { batch, .. } = &op {
                    slot.shadow.appends(asks, batch.header().next_offset());
                }
                if let LogOp::DeleteBefore { offset } = op
                    && !matches!(asks, Asks::Delete)
                {
                    let (state, reported) = (slot.log.recover(), slot.log.reported());
                    let wrong = shadow::retention(&slot.config, &state, offset, reported, now.wall);
                    if let Some(wrong) = wrong {
                        self.blame(place, wrong);
                    }
                }
                let slot = &mut self.slots[place];
                if let Some(wrong) = slot.log.issue(write, op) {
                    self.blame(place, ("sequences", wrong));
                }
                let pending = Pending { place, write };
                match flush {
                    partition::Flush::Replicated if !self.waits_for_sync(place) => {
                        self.cached.push(pending);
                        let delay = Duration::from_micros(self.chance.below(30));
                        agenda.after(delay, Event::Cached { life: self.life });
                    }
                    // Writes of one log complete in their order.
                    partition::Flush::Durable | partition::Flush::Replicated => {
                        self.queued.push(pending);
                        self.begin_sync(agenda);
                    }
                }
            }
            Effect::Reply { request, outcome: Outcome::Partition(outcome) } => {
                let places = place.map_or_else(|| self.places(), |place| place..place + 1);
                for place in places {
                    let slot = &mut self.slots[place];
                    let reported = slot.log.reported();
                    if let Some(wrong) = slot.shadow.answers(request, &outcome, reported) {
                        self.blame(place, wrong);
                    }
                }
                self.replies.push(Reply { request, outcome });
            }
            Effect::Publish { partition, view } => {
                let place = self.places.place(partition);
                self.slots[place].view = Some(view);
            }
            Effect::Halt { reason, .. } => self.halted = Some(format!("{reason:?}")),
            // Each partition has one replica here.
            Effect::Send { .. }
            | Effect::ReadLog { .. }
            | Effect::Propose { .. }
            | Effect::SendQuorum { .. } => {
                unreachable!("one node, and it speaks to another: {effect:?}")
            }
            Effect::Clean { .. } | Effect::Discard { .. } | Effect::SendMarker { .. } => {
                unreachable!("no topic here is compacted, or holds transactions: {effect:?}")
            }
            Effect::Reply { .. }
            | Effect::Committed(_)
            | Effect::Restored(_)
            | Effect::QuorumRole { .. }
            | Effect::Replay { .. } => {}
        }
    }

    fn waits_for_sync(&self, place: usize) -> bool {
        let mut waiting = self.queued.iter().chain(&self.syncing);
        waiting.any(|pending| pending.place == place)
    }

    fn begin_sync(&mut self, agenda: &mut Agenda) {
        if !self.syncing.is_empty() || self.queued.is_empty() {
            return;
        }
        std::mem::swap(&mut self.syncing, &mut self.queued);
        for pending in &self.syncing {
            self.slots[pending.place].log.on_written(pending.write);
        }
        let times = if agenda.now < self.slow_until { self.slow } else { 1 };
        let took = self.chance.duration(self.sync) * times;
        let at = (agenda.now + took).max(self.stuck_until);
        let failed = std::mem::take(&mut self.sync_fails);
        agenda.at(at, Event::Synced { life: self.life, failed });
    }

    pub(super) fn on_synced(&mut self, agenda: &mut Agenda, failed: bool) {
        let mut group = std::mem::take(&mut self.syncing);
        // One report a log, for the last of its writes.
        group.sort_by_key(|pending| pending.place);
        for (at, Pending { place, write }) in group.iter().enumerate() {
            if group.get(at + 1).is_some_and(|next| next.place == *place) {
                continue;
            }
            let input = if failed {
                partition::Input::WriteFailed { write: *write }
            } else {
                let log = &mut self.slots[*place].log;
                log.on_reported(*write);
                log.on_durable(*write);
                partition::Input::Written { through: *write }
            };
            self.ask(agenda, *place, input);
        }
        if self.syncing.is_empty() {
            group.clear();
            self.syncing = group;
        }
        self.begin_sync(agenda);
    }

    pub(super) fn on_cached(&mut self, agenda: &mut Agenda) {
        for Pending { place, write } in std::mem::take(&mut self.cached) {
            let log = &mut self.slots[place].log;
            log.on_written(write);
            log.on_reported(write);
            self.ask(agenda, place, partition::Input::Written { through: write });
        }
    }

    pub(super) fn on_tick(&mut self, agenda: &mut Agenda, timer: Instant) {
        if self.armed != Some(timer) {
            return;
        }
        self.armed = None;
        let due = self.shard.as_ref().and_then(Shard::deadline);
        if due.is_some_and(|due| due <= self.now(agenda).monotonic) {
            self.step(agenda, Input::Tick);
        }
        self.arm(agenda);
    }

    /// One timer at a time: armed anew when the deadline comes closer.
    fn arm(&mut self, agenda: &mut Agenda) {
        let Some(due) = self.shard.as_ref().and_then(Shard::deadline) else { return };
        if self.armed.is_none_or(|armed| due < armed) {
            self.armed = Some(due);
            let at = self.booted + due.as_duration();
            agenda.at(at, Event::Tick { life: self.life, due });
        }
    }

    /// The batches that a reader gets, and how far it may see; `None` while the node is down.
    pub(super) fn log(&self, place: usize) -> Option<(&SimLog, ReadView)> {
        let slot = &self.slots[place];
        Some((&slot.log, slot.view?))
    }

    pub(super) fn places(&self) -> std::ops::Range<usize> {
        0..self.slots.len()
    }

    /// Whether everything that the machines asked for is written.
    pub(super) fn has_written_all(&self) -> bool {
        self.slots.iter().all(|slot| slot.log.at_risk().0 == 0)
    }

    /// Rebuilt state = live state, of every log: a recovery now would find what the machine has.
    pub(super) fn compare(&self) {
        let Some(shard) = &self.shard else { return };
        for slot in &self.slots {
            if let Some(replica) = shard.replica(slot.log.partition()) {
                same(&slot.log.recover(), replica.log(), "the end of a life");
            }
        }
    }

    /// The process dies. With `lose`, each log keeps a prefix of what was not durable, drawn by it.
    pub(super) fn die(&mut self, power: bool, mut lose: impl FnMut(&mut Chance, usize) -> usize) {
        self.compare();
        self.life += 1;
        self.shard = None;
        self.queued.clear();
        self.syncing.clear();
        self.cached.clear();
        self.replies.clear();
        self.paused_until = None;
        for slot in &mut self.slots {
            slot.view = None;
            slot.shadow.clear();
            let (unwritten, unsynced) = slot.log.at_risk();
            let lost = lose(&mut self.chance, if power { unsynced } else { unwritten });
            slot.log.lose(lost);
        }
    }

    /// The highest offset of a partition that may be read.
    pub(super) fn end(&self, place: usize) -> Offset {
        self.slots[place].view.map_or(Offset::ZERO, |view| view.high_watermark)
    }
}

/// Retention looks often enough for a short run.
fn limits() -> Limits {
    let retention_check_interval = Duration::from_millis(100);
    let partition = partition::Limits { retention_check_interval, ..Default::default() };
    Limits { partition, ..Limits::default() }
}

fn config(topic: &Topic) -> PartitionConfig {
    PartitionConfig {
        segment_bytes_max: topic.segment_bytes,
        segment_time_max: topic.segment_time,
        log_append_time: topic.log_append_time,
        flush: match topic.flush {
            Flush::Durable => partition::Flush::Durable,
            Flush::Replicated => partition::Flush::Replicated,
        },
        retention_time: topic.retention_time,
        retention_bytes: topic.retention_bytes,
        in_sync_min: 1,
        delete: true,
        compact: false,
        ..PartitionConfig::default()
    }
}
