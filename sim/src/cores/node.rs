//! The node of the world of cores: one shard, the completions of its writes, and its lives.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::id::{LeaderEpoch, NodeId, Offset, PartitionId, RequestId, WriteId};
use quorate_core::machine::Machine as _;
use quorate_core::partition::interface::{
    self as partition, Assignment, PartitionConfig, ReadView,
};
use quorate_core::shard::Shard;
use quorate_core::shard::interface::{Effect, Input, Limits, Open, Outcome, Role};
use quorate_core::time::{Instant, Now, Timestamp};

use super::log::{SimLog, same};
use super::{Agenda, Event, partition_id};
use crate::chance::{Between, Chance};
use crate::check::Violation;
use crate::plan::{Flush, Plan, Topic};
use crate::workload::writer::partitions;

const NODE: NodeId = NodeId(1);

/// Wall-clock time at the start, as in the world of nodes.
const WALL_START: i64 = 1_767_225_600_000;

/// Steps between two checks of all invariants, unless the seed asks for one at each step.
const CHECK_EVERY: u64 = 256;

/// An answer of the shard, to be carried to whoever asked.
pub(super) struct Reply {
    pub(super) request: RequestId,
    pub(super) outcome: partition::Outcome,
}

struct Pending {
    partition: PartitionId,
    write: WriteId,
}

pub(super) struct CoreNode {
    shard: Option<Shard>,
    pub(super) life: u32,
    booted: Duration,
    logs: BTreeMap<PartitionId, SimLog>,
    configs: Vec<(PartitionId, PartitionConfig)>,
    pub(super) views: BTreeMap<PartitionId, ReadView>,
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
    check_every: u64,
    seed: u64,
}

impl CoreNode {
    pub(super) fn new(plan: &Plan) -> Self {
        let configs: Vec<_> = partitions(plan)
            .into_iter()
            .map(|found| (partition_id(found), config(&plan.topics[found.topic as usize])))
            .collect();
        let mut chance = Chance::new(plan.seed, "disk n1");
        let check_every = if chance.one_in(16) { 1 } else { CHECK_EVERY };
        Self {
            shard: None,
            life: 0,
            booted: Duration::ZERO,
            logs: configs.iter().map(|(id, _)| (*id, SimLog::new(*id))).collect(),
            configs,
            views: BTreeMap::new(),
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
            check_every,
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
        self.shard = Some(Shard::new(NODE, Limits::default(), seed));
        for (id, config) in self.configs.clone() {
            let recovered = self.logs[&id].recover();
            let assignment = Assignment {
                leader_epoch: LeaderEpoch(0),
                leader: Some(NODE),
                replicas: vec![NODE],
                in_sync: vec![NODE],
                ..Assignment::default()
            };
            let open = Open { partition: id, role: Role::Data, recovered, config, assignment };
            self.step(agenda, Input::Open(Box::new(open)));
        }
    }

    /// One input; its effects are carried out.
    pub(super) fn step(&mut self, agenda: &mut Agenda, input: Input) {
        let now = self.now(agenda);
        let Some(shard) = &mut self.shard else { return };
        let mut effects = std::mem::take(&mut self.effects);
        shard.step(now, input, &mut effects);
        self.steps += 1;
        if self.steps.is_multiple_of(self.check_every) {
            shard.check();
        }
        for effect in effects.drain(..) {
            self.perform(agenda, effect);
        }
        self.effects = effects;
        self.arm(agenda);
    }

    fn perform(&mut self, agenda: &mut Agenda, effect: Effect) {
        match effect {
            Effect::Write { partition, write, op, flush } => {
                if let Some(log) = self.logs.get_mut(&partition) {
                    log.issue(write, op);
                }
                let pending = Pending { partition, write };
                match flush {
                    partition::Flush::Replicated if !self.waits_for_sync(partition) => {
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
                self.replies.push(Reply { request, outcome });
            }
            Effect::Publish { partition, view } => drop(self.views.insert(partition, view)),
            Effect::Halt { reason, .. } => self.halted = Some(format!("{reason:?}")),
            Effect::Reply { .. } | Effect::Committed(_) | Effect::Replay { .. } => {}
        }
    }

    fn waits_for_sync(&self, partition: PartitionId) -> bool {
        let mut waiting = self.queued.iter().chain(&self.syncing);
        waiting.any(|pending| pending.partition == partition)
    }

    fn begin_sync(&mut self, agenda: &mut Agenda) {
        if !self.syncing.is_empty() || self.queued.is_empty() {
            return;
        }
        self.syncing = std::mem::take(&mut self.queued);
        for pending in &self.syncing {
            if let Some(log) = self.logs.get_mut(&pending.partition) {
                log.on_written(pending.write);
            }
        }
        let times = if agenda.now < self.slow_until { self.slow } else { 1 };
        let took = self.chance.duration(self.sync) * times;
        let at = (agenda.now + took).max(self.stuck_until);
        let failed = std::mem::take(&mut self.sync_fails);
        agenda.at(at, Event::Synced { life: self.life, failed });
    }

    pub(super) fn on_synced(&mut self, agenda: &mut Agenda, failed: bool) {
        let group = std::mem::take(&mut self.syncing);
        let mut through: BTreeMap<PartitionId, WriteId> = BTreeMap::new();
        for pending in group {
            through.insert(pending.partition, pending.write);
        }
        for (partition, write) in through {
            let input = if failed {
                partition::Input::WriteFailed { write }
            } else {
                if let Some(log) = self.logs.get_mut(&partition) {
                    log.on_durable(write);
                }
                partition::Input::Written { through: write }
            };
            self.step(agenda, Input::Partition { partition, input });
        }
        self.begin_sync(agenda);
    }

    pub(super) fn on_cached(&mut self, agenda: &mut Agenda) {
        for Pending { partition, write } in std::mem::take(&mut self.cached) {
            if let Some(log) = self.logs.get_mut(&partition) {
                log.on_written(write);
            }
            let input = partition::Input::Written { through: write };
            self.step(agenda, Input::Partition { partition, input });
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

    /// The batches that a reader gets, and how far it may see.
    pub(super) fn log(&self, partition: PartitionId) -> Option<(&SimLog, ReadView)> {
        Some((self.logs.get(&partition)?, *self.views.get(&partition)?))
    }

    /// Rebuilt state = live state, of every log: a recovery now would find what the machine has.
    pub(super) fn compare(&self) {
        let Some(shard) = &self.shard else { return };
        for (id, log) in &self.logs {
            if let Some(replica) = shard.replica(*id) {
                same(&log.recover(), replica.log(), "a crash");
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
        self.views.clear();
        self.replies.clear();
        self.paused_until = None;
        for log in self.logs.values_mut() {
            let (unwritten, unsynced) = log.at_risk();
            let lost = lose(&mut self.chance, if power { unsynced } else { unwritten });
            log.lose(lost);
        }
    }

    /// The highest offset of a partition that may be read.
    pub(super) fn end(&self, partition: PartitionId) -> Offset {
        self.views.get(&partition).map_or(Offset::ZERO, |view| view.high_watermark)
    }
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
        retention_time: None,
        retention_bytes: None,
        in_sync_min: 1,
        delete: true,
        compact: false,
    }
}
