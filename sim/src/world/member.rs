//! One node of the cluster under test with its disk, clock and place in the network: starting it,
//! the ways in which it goes down, and what it is seen to do by itself.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use madsim::plugin::simulator;
use madsim::runtime::Handle;
use madsim::task::NodeId;
use madsim::time::TimeHandle;
use quorate_core::id::{LeaderEpoch, Offset, PartitionId};
use quorate_node::config::NodeConfig;
use quorate_node::node::{self, NodeError};
use quorate_node::storage::{LogError, StorageError};
use quorate_node::witness::Witness;
use quorate_node::world::World;
use tokio::sync::Notify;

use super::Surroundings;
use super::clock::{SimClock, WallClock, until};
use super::disk::{Death, NodeDisk};
use super::gate::Gate;
use super::network::{HostId, SimNetwork};
use super::witness::{Ledger, Onlooker};
use crate::chance::Chance;
use crate::check::{Struck, Violation};
use crate::fault::bit_flip::Files;
use crate::fault::power_loss::Unsynced;
use crate::plan::{self, Nodes, Plan};
use crate::run::Observed;
use crate::trace::{self, Mark};
use crate::workload::members;

/// The nodes' names in the network.
const NAMES: [&str; Nodes::MAX as usize] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7"];

/// Where nodes listen for each other.
const PEER_PORT: u16 = 9192;

/// Until a node that went down by itself is started again, unless a fault says otherwise.
const RESTART: Duration = Duration::from_millis(300);

/// How often nodes look for old segments; runs are short.
const RETENTION_CHECK: Duration = Duration::from_millis(100);

/// How often coordinators look for offsets that have had their time, where plans have any.
const OFFSETS_CHECK: Duration = Duration::from_millis(200);

/// Within which a node whose disk has failed it has halted. No fault holds it up then.
const HALTED: Duration = Duration::from_secs(1);

pub struct Member {
    pub name: &'static str,
    pub time: TimeHandle,
    handle: Handle,
    node: NodeId,
    pub network: Arc<SimNetwork>,
    pub host: HostId,
    pub disk: Arc<NodeDisk>,
    pub wall: Arc<WallClock>,
    wall_offset: i64,
    onlooker: Arc<Onlooker>,
    shared: Arc<Shared>,
}

/// What the node's own task tells and is told.
struct Shared {
    state: Mutex<State>,
    /// The node went down by itself.
    down: Notify,
    /// The life that is to shut down.
    stop: Gate,
    /// The last life that has.
    stopped: Gate,
}

#[derive(Debug, Default)]
struct State {
    /// The process exists.
    up: bool,
    lives: u64,
    /// Until it is started again after it went down by itself.
    restart: Option<Duration>,
    /// Why it last went down by itself, unless it has been ready since.
    reason: Option<String>,
    /// A fault that excuses a halt has struck.
    may_halt: bool,
    observed: Noted,
}

#[derive(Debug, Default)]
struct Noted {
    struck: Struck,
    violations: Vec<Violation>,
    faults: BTreeMap<&'static str, u64>,
}

impl Member {
    /// The node with this number, from 1 on; it is down.
    pub fn new(plan: &Plan, number: u32, ledger: &Arc<Ledger>) -> Arc<Self> {
        let name = NAMES[number as usize - 1];
        let (time, handle) = (TimeHandle::current(), Handle::current());
        let network = Arc::clone(&simulator::<Surroundings>().network);
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            down: Notify::new(),
            stop: Gate::default(),
            stopped: Gate::default(),
        });
        let clock = clock_of(plan, number);
        let wall_offset = clock.wall_offset;
        let wall = Arc::new(WallClock::new(wall_offset));
        let chance = Chance::new(plan.seed, &format!("disk {name}"));
        let disk = simulator::<Surroundings>().disks.add(name, plan.disk.clone(), chance);
        let host = network.add(name);
        let id = quorate_core::id::NodeId(number as i32);
        let onlooker = Arc::new(Onlooker::new(name, id, Arc::clone(ledger)));
        let life = Life {
            name,
            number,
            clock,
            onlooker: Arc::clone(&onlooker),
            plan: Arc::new(plan.clone()),
            time: time.clone(),
            network: Arc::clone(&network),
            host,
            disk: Arc::clone(&disk),
            wall: Arc::clone(&wall),
            shared: Arc::clone(&shared),
        };
        let life = Arc::new(life);
        let init = move || Arc::clone(&life).live();
        let node = handle.create_node().name(name).init(init).build().id();
        simulator::<Surroundings>().disks.attach(node, &disk);
        network.attach(node, host);
        let (told, watching) = (Arc::clone(&shared), Arc::clone(&onlooker));
        disk.on_rot(move |path| {
            rot(&told, &watching, path);
            // What is not journaled stood nowhere else, and nothing tells that it was written. All
            // else is in the journal, which tells of its own rot, or follows from the segments.
            let is_data = Files::Segment.include(path) && !Files::Metadata.include(path);
            told.state.lock().expect("one thread").observed.struck.power_lost |= is_data;
        });
        // It is started by `start`, not by being made.
        handle.kill(node);
        Arc::new(Self {
            name,
            time,
            handle,
            node,
            network,
            host,
            disk,
            wall,
            wall_offset,
            onlooker,
            shared,
        })
    }

    /// The run is over. A task that sleeps is held by the timer that will wake it, and holds the
    /// timers itself: what the node has in memory and on its disk would never be freed.
    pub async fn discard(&self) {
        self.handle.kill(self.node);
        until(&self.time, self.time.elapsed() + Duration::from_millis(1)).await;
        self.disk.medium().discard();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("one thread")
    }

    fn note(&self, mark: Mark, text: &str) {
        trace::event(self.time.elapsed(), mark, self.name, [text.len() as u64, 0, 0], || {
            text.to_owned()
        });
    }

    /// Starts the node if it is down.
    pub fn start(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.up, true) {
            return;
        }
        state.lives += 1;
        state.restart = None;
        drop(state);
        self.network.power_on(self.host);
        self.note(Mark::Node, "starts");
        self.handle.restart(self.node);
    }

    fn kill(&self, death: Death) -> bool {
        let mut state = self.state();
        if !std::mem::replace(&mut state.up, false) {
            return false;
        }
        drop(state);
        self.disk.set_death(death);
        self.network.set_loses_power(self.host, death != Death::Crash);
        self.handle.kill(self.node);
        true
    }

    /// The process dies. `false` if it was down already.
    pub fn crash(&self) -> bool {
        self.kill(Death::Crash)
    }

    pub fn lose_power(&self, unsynced: Unsynced) -> bool {
        let lost = self.kill(Death::PowerLoss(unsynced));
        if lost && unsynced != Unsynced::Kept {
            self.state().observed.struck.power_lost = true;
            self.onlooker.power_was_lost();
        }
        lost
    }

    pub fn pause(&self) {
        self.handle.pause(self.node);
    }

    pub fn resume(&self) {
        self.handle.resume(self.node);
    }

    /// The node loses power, and its disk is gone. `false` if it was down already.
    pub fn wipe(&self) -> bool {
        if !self.kill(Death::PowerLoss(Unsynced::Lost)) {
            return false;
        }
        self.disk.medium().wipe();
        self.onlooker.wiped();
        true
    }

    /// Shuts the node down in good order; a node that does not come to an end is killed.
    pub async fn stop(&self) {
        let life = {
            let state = self.state();
            if !state.up {
                return;
            }
            state.lives
        };
        self.note(Mark::Node, "is asked to stop");
        self.shared.stop.raise(life);
        let patience = self.time.elapsed() + Duration::from_secs(40);
        tokio::select! {
            biased;
            () = self.shared.stopped.reaches(life) => {}
            () = until(&self.time, patience) => {}
        }
        if self.state().lives == life {
            self.crash();
        }
    }

    /// Where the node's copy begins, as far as it was seen.
    pub fn log_start(&self, partition: PartitionId) -> Offset {
        self.onlooker.log_start(partition)
    }

    /// Batches that were cut off its logs, and how many bytes the frame of each had.
    pub fn cut(&self) -> BTreeMap<(PartitionId, Offset, LeaderEpoch), u64> {
        self.onlooker.cut()
    }

    /// Durable bytes of its disk were changed.
    pub fn has_rotted(&self) -> bool {
        self.onlooker.has_rotted()
    }

    /// A human has partitions led by whoever is there.
    pub fn is_led_uncleanly(&self) {
        self.state().observed.struck.led_uncleanly = true;
    }

    /// From now on a halt is no wonder; the node is started again after `down`.
    pub fn expect_halt(&self, down: Duration) {
        let mut state = self.state();
        state.may_halt = true;
        state.restart = Some(down);
    }

    pub fn struck(&self) -> Struck {
        self.state().observed.struck
    }

    /// Durable bytes of a file have changed.
    pub fn rot(&self, path: &Path) {
        rot(&self.shared, &self.onlooker, path);
    }

    /// The journal's files are gone, if there was a journal for certain. The node is down.
    pub fn lose_journal(&self) {
        if self.disk.medium().lose_journal() {
            self.state().observed.struck.rot = true;
            self.note(Mark::Fault, "has no journal any more");
        }
    }

    pub fn fail_reads(&self, reads: u32) {
        self.state().observed.struck.reads_failed = true;
        self.disk.medium().reads_fail = reads;
    }

    /// After a write or a sync has failed, the node must go down by itself: what its disk holds is
    /// not known. Not where there was no room for what nobody counts on (`Medium::has_failed`).
    pub async fn must_have_halted(&self) {
        if !self.disk.medium().has_failed() {
            return;
        }
        until(&self.time, self.time.elapsed() + HALTED).await;
        if self.disk.medium().has_failed() {
            let (property, place) = ("goes-on", self.name.to_owned());
            let sentence = "a write or a sync failed, and the node goes on".to_owned();
            let violation = Violation { property, place, sentence };
            self.state().observed.violations.push(violation);
        }
    }

    /// A fault of this kind was carried out.
    pub fn count(&self, kind: &'static str) {
        *self.state().observed.faults.entry(kind).or_default() += 1;
    }

    /// Starts the node again whenever it goes down by itself.
    pub async fn supervise(self: Arc<Self>) {
        loop {
            self.shared.down.notified().await;
            let (restart, lives) = {
                let state = self.state();
                (state.restart.unwrap_or(RESTART), state.lives)
            };
            self.crash();
            until(&self.time, self.time.elapsed() + restart).await;
            // A fault may have killed and started it meanwhile.
            if self.state().lives == lives {
                self.start();
            }
        }
    }

    /// Ends what strikes it, and starts it if it is down.
    pub fn heal(&self) {
        self.disk.heal();
        self.wall.set(self.wall_offset);
        self.resume();
        self.start();
    }

    /// What was seen from outside.
    pub fn observed(&self) -> Observed {
        let mut state = self.state();
        let mut noted = std::mem::take(&mut state.observed);
        let (violations, compared) = self.onlooker.take();
        noted.violations.extend(violations);
        noted.struck.began_anew = self.onlooker.began_anew();
        if compared > 0 {
            noted.faults.insert("states-compared", compared);
        }
        let mut stuck = Vec::new();
        if let Some(reason) = state.reason.take() {
            stuck.push(format!("{} last went down by itself: {reason}", self.name));
        }
        Observed {
            struck: noted.struck,
            violations: noted.violations,
            faults: noted.faults,
            stuck,
            ..Observed::default()
        }
    }
}

/// Durable bytes of a file have changed.
fn rot(shared: &Shared, onlooker: &Onlooker, path: &Path) {
    let struck = &mut shared.state.lock().expect("one thread").observed.struck;
    struck.rot = true;
    struck.journal_rot |= Files::Journal.include(path);
    onlooker.rot();
}

/// What a node needs to live once more.
struct Life {
    name: &'static str,
    number: u32,
    clock: plan::Clock,
    plan: Arc<Plan>,
    time: TimeHandle,
    network: Arc<SimNetwork>,
    host: HostId,
    disk: Arc<NodeDisk>,
    wall: Arc<WallClock>,
    onlooker: Arc<Onlooker>,
    shared: Arc<Shared>,
}

impl Life {
    /// From start to end; a crash ends it anywhere.
    fn live(self: Arc<Self>) -> impl Future<Output = ()> {
        let clock =
            SimClock::new(self.name, self.time.clone(), &self.clock, Arc::clone(&self.wall));
        let lives = self.shared.state.lock().expect("one thread").lives;
        let seed = Chance::new(self.plan.seed, &format!("node {} {lives}", self.name)).number();
        let world = World {
            disk: self.disk.handle(),
            network: self.network.of(self.host),
            clock: Arc::new(clock),
            seed,
        };
        async move {
            let witness = Arc::clone(&self.onlooker) as Arc<dyn Witness>;
            let ended =
                match node::run_watched(config(&self.plan, self.number), world, witness).await {
                    Err(error) => {
                        if tells_of_rot(&error) {
                            self.blame_for_rot(&error.to_string());
                        }
                        format!("does not start: {error}")
                    }
                    Ok(running) => {
                        // What it has come back from explains no wait (seed 1483 of three nodes).
                        self.shared.state.lock().expect("one thread").reason = None;
                        self.note("is ready");
                        for rot in &running.report().rot {
                            self.blame_for_rot(&rot.to_string());
                        }
                        tokio::select! {
                            biased;
                            reason = running.halted() => format!("halts: {reason}"),
                            () = self.shared.stop.reaches(lives) => {
                                match running.shutdown().await {
                                    Ok(()) => self.note("has stopped"),
                                    Err(error) => self.note(&format!("stops badly: {error}")),
                                }
                                self.shared.stopped.raise(lives);
                                return;
                            }
                        }
                    }
                };
            self.note(&ended);
            let mut state = self.shared.state.lock().expect("one thread");
            let excused = state.may_halt || state.observed.struck.rot;
            if !excused {
                let (property, place) = ("halted", self.name.to_owned());
                let sentence = format!("the node {ended}, and nothing failed it");
                state.observed.violations.push(Violation { property, place, sentence });
            }
            state.reason = Some(ended);
            drop(state);
            self.shared.down.notify_one();
        }
    }

    /// A disk that kept its promises is accused.
    fn blame_for_rot(&self, sentence: &str) {
        let mut state = self.shared.state.lock().expect("one thread");
        if !state.observed.struck.rot {
            let (property, place) = ("rot", self.name.to_owned());
            let sentence = format!("nothing has rotted, and the node says: {sentence}");
            state.observed.violations.push(Violation { property, place, sentence });
        }
    }

    fn note(&self, text: &str) {
        let numbers = [text.len() as u64, 0, 0];
        trace::event(self.time.elapsed(), Mark::Node, self.name, numbers, || text.to_owned());
    }
}

/// Whether the node blames the disk for what it finds there.
const fn tells_of_rot(error: &NodeError) -> bool {
    matches!(
        error,
        NodeError::Metadata(LogError::Rot(_))
            | NodeError::Storage(
                StorageError::JournalRot { .. }
                    | StorageError::Damaged { .. }
                    | StorageError::NotOurs { .. }
                    | StorageError::Newer { .. }
            )
    )
}

/// The first node's clock is the plan's; the others are as wrong as that, each in its own way.
fn clock_of(plan: &Plan, number: u32) -> plan::Clock {
    let mut clock = plan.clock.clone();
    if number > 1 {
        let mut chance = Chance::new(plan.seed, &format!("clock n{number}"));
        let mut within = |most: i64| chance.below(2 * most.unsigned_abs() + 1) as i64 - most.abs();
        clock.wall_offset = within(clock.wall_offset);
        clock.drift = within(i64::from(clock.drift)) as i32;
    }
    clock
}

fn config(plan: &Plan, number: u32) -> NodeConfig {
    let mut config = NodeConfig::default();
    let knobs = &plan.node;
    config.node.data = "/data".into();
    config.node.shards = knobs.shards as usize;
    config.node.shard_batch_max = knobs.shard_batch as usize;
    config.network.listen = ([0, 0, 0, 0], 9092).into();
    config.network.advertise = Some(format!("n{number}:9092"));
    config.node.id = number as i32;
    let Nodes { nodes, voters, racks, .. } = plan.cluster;
    if nodes > 1 {
        config.network.peer_listen = Some(([0, 0, 0, 0], PEER_PORT).into());
        config.network.peer_advertise = Some(format!("n{number}:{PEER_PORT}"));
        let voters = (1..=voters).map(|voter| format!("{voter}@n{voter}:{PEER_PORT}"));
        let voters = voters.collect::<Vec<_>>().join(",");
        config.set("quorum.voters", &voters).expect("the names of voters");
        config.replace.after = plan.cluster.replace_after;
    }
    if racks > 1 {
        config.node.rack = Some(format!("region/{}", number % racks));
    }
    config.network.in_flight_max = knobs.in_flight as usize;
    config.request.memory_max = knobs.request_memory as usize;
    config.request.bytes_max = (knobs.request_memory as usize / 2).min(config.request.bytes_max);
    config.topic.retention_check_interval = RETENTION_CHECK;
    // Often enough that every life meets some.
    config.quorum.snapshot_bytes = 4096;
    config.quorum.entries_kept = plan.cluster.entries_kept;
    config.peer.lag_time_max = plan.cluster.lag_time;
    config.storage.journal_file_bytes = knobs.journal_file_bytes;
    config.storage.journal_files_max = knobs.journal_files as usize;
    config.storage.checkpoint_bytes = knobs.checkpoint_bytes;
    config.storage.ahead_bytes = (knobs.checkpoint_bytes / 4).max(4 << 10);
    config.storage.group_bytes_max = knobs.group_bytes;
    config.storage.open_files_max = knobs.open_files as usize;
    config.storage.queue_max = knobs.queue as usize;
    // What happens on a disk without any room is what is looked for.
    config.storage.min_free = 0;
    if let Some(transactions) = &plan.transactions {
        config.transaction.state_partitions = 2;
        config.transaction.marker_patience = transactions.marker_patience;
    }
    // Whoever copies in transactions is in a group too.
    if plan.has_groups() || plan.transactions.is_some() {
        config.group.session_timeout_min = Duration::from_millis(500);
        config.group.initial_rebalance_delay = knobs.rebalance_delay;
        config.group.consumer_session_timeout = members::SESSION;
        config.group.consumer_heartbeat_interval = members::SESSION / 4;
        config.group.offsets_partitions = 2;
    }
    if let Some(retention) = plan.committers.as_ref().and_then(|it| it.retention) {
        config.group.offsets_retention = retention;
        config.group.offsets_check_interval = OFFSETS_CHECK;
    }
    if plan.topics.iter().any(|topic| topic.compact) {
        config.storage.clean_check_interval = Duration::from_millis(100);
        // Some keys fit, and not all of them.
        config.storage.clean_key_bytes_max = 1 << 10;
    }
    config
}
