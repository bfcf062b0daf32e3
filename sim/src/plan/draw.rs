//! From a seed to a plan, by swarm testing: the seed first draws which options and kinds of fault
//! exist in this run at all, then how often. A run with everything on meets fewer corners.

mod clusters;
mod committers;
mod families;
mod groups;
mod quorums;
mod scenarios;
mod storms;
mod transactions;

use std::time::Duration;

pub use self::clusters::{draw_cluster, draw_cluster_only};
pub use self::committers::AFTERMATH;
pub use self::quorums::{draw_quorum, with_quorum};
use super::{
    Acks, AppendRead, Clock, Codecs, Disk, Flush, Link, Mode, Node, Nodes, Plan, Run, Topic,
};
use crate::chance::{Between, Chance, Ratio};
use crate::fault::{Fault, Kind};

/// Faults in one run, at most, of the kinds that share a stream of chance.
const FAULTS_MAX: u64 = 24;

/// How many kinds share that stream. A younger kind has one of its own, so that with it a seed
/// keeps the faults that it had.
const KINDS_TOGETHER: usize = 14;

/// A part of what plans have, where hunts want to see that only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Only {
    /// Every seed has transactions, no groups but that of their copiers, and few other clients.
    Transactions,
    /// Every seed has groups that consume, no transactions, and few other clients.
    Groups,
}

impl Only {
    pub const ALL: &[Self] = &[Self::Transactions, Self::Groups];

    /// As `--only` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transactions => "transactions",
            Self::Groups => "groups",
        }
    }
}

/// The plan of `seed`.
pub fn draw(seed: u64) -> Plan {
    draw_only(seed, None)
}

/// The plan of `seed`, of which a part is wanted only.
pub fn draw_only(seed: u64, only: Option<Only>) -> Plan {
    let mut plan = draw_one(seed, only);
    transactions::falls(seed, &mut plan, only == Some(Only::Groups));
    plan
}

/// What a seed has on one node and on several.
fn draw_one(seed: u64, only: Option<Only>) -> Plan {
    let narrowed = only.is_some();
    let chance = |source: &str| Chance::new(seed, source);
    let mut plan = Plan {
        story: Vec::new(),
        seed,
        mode: if chance("mode").one_in(8) { Mode::Unbudgeted } else { Mode::Budgeted },
        run: draw_run(&mut chance("run")),
        cluster: Nodes::ONE,
        node: draw_node(&mut chance("node")),
        disk: draw_disk(&mut chance("disk")),
        link: draw_link(&mut chance("link")),
        clock: draw_clock(&mut chance("clock")),
        topics: draw_topics(&mut chance("topics")),
        workload: draw_workload(&mut chance("workload")),
        groups: Vec::new(),
        transactions: None,
        committers: None,
        faults: Vec::new(),
        quorum: None,
        found: None,
        trace: None,
    };
    draw_library_clients(&mut chance("library"), &mut plan.workload);
    if narrowed {
        transactions::narrow(&mut plan);
    }
    plan.faults = draw_faults(&mut chance("faults"), &plan);
    for (name, unbudgeted) in &Kind::ALL[KINDS_TOGETHER..] {
        let among_nodes = Kind::AMONG_NODES.contains(&(name, true));
        if !among_nodes && (!unbudgeted || plan.mode == Mode::Unbudgeted) {
            let faults = draw_faults_of(name, &mut chance(&format!("fault {name}")), &plan);
            plan.faults.extend(faults);
        }
    }
    plan.faults.sort_by_key(|fault| fault.at);
    if !narrowed {
        families::add(seed, &mut plan);
    }
    match only {
        None => {
            groups::add(seed, &mut plan, false);
            transactions::add(seed, &mut plan, false);
            committers::add(seed, &mut plan);
        }
        Some(Only::Transactions) => transactions::add(seed, &mut plan, true),
        Some(Only::Groups) => groups::add(seed, &mut plan, true),
    }
    let waits = plan.has_groups() || plan.transactions.is_some();
    if plan.workload.acks != Acks::All && waits {
        plan.run.liveness = AFTER_A_FLOOD;
    }
    plan
}

/// Whoever asks for no answer, or repeats what was not answered at once, may send a hundred times
/// what the slowest disk takes, and what it has sent before the healing is written before anything
/// that a group or a transaction asks for.
const AFTER_A_FLOOD: Duration = Duration::from_secs(240);

fn draw_run(chance: &mut Chance) -> Run {
    let seconds = *chance.pick(&[2, 5, 10, 20]);
    Run { safety: Duration::from_secs(seconds), liveness: Duration::from_secs(60) }
}

fn draw_node(chance: &mut Chance) -> Node {
    Node {
        shards: *chance.pick(&[1, 1, 2, 4]),
        shard_batch: *chance.pick(&[1, 4, 256]),
        in_flight: *chance.pick(&[1, 5, 64]),
        request_memory: *chance.pick(&[256 << 10, 1 << 20, 64 << 20]),
        journal_file_bytes: *chance.pick(&[64 << 10, 64 << 10, 256 << 10, 1 << 20]),
        journal_files: *chance.pick(&[2, 3, 8]),
        checkpoint_bytes: *chance.pick(&[16 << 10, 64 << 10, 1 << 20, 96 << 20]),
        group_bytes: *chance.pick(&[4 << 10, 16 << 20]),
        open_files: *chance.pick(&[4, 16, 2048]),
        queue: *chance.pick(&[16, 64, 4096]),
        rebalance_delay: super::REBALANCE_DELAY,
    }
}

fn draw_disk(chance: &mut Chance) -> Disk {
    let micros = Duration::from_micros;
    let sync = *chance.pick(&[(50, 200), (300, 3000), (1000, 20_000)]);
    let write = *chance.pick(&[(0, 0), (5, 30), (5, 500)]);
    Disk {
        read: Between { low: micros(0), high: micros(*chance.pick(&[0, 100])) },
        write: Between { low: micros(write.0), high: micros(write.1) },
        sync: Between { low: micros(sync.0), high: micros(sync.1) },
        capacity: 1 << 30,
    }
}

fn draw_link(chance: &mut Chance) -> Link {
    let micros = Duration::from_micros;
    let latency = *chance.pick(&[(50, 100), (50, 1000), (1000, 20_000)]);
    Link {
        latency: Between { low: micros(latency.0), high: micros(latency.1) },
        bandwidth: *chance.pick(&[0, 0, 10_000_000, 200_000]),
        window: *chance.pick(&[256 << 10, 64 << 10, 4096]),
        fragment: *chance.pick(&[Ratio::NEVER, Ratio::NEVER, Ratio::new(1, 8), Ratio::new(1, 2)]),
    }
}

fn draw_clock(chance: &mut Chance) -> Clock {
    // Kafka refuses timestamps an hour ahead of the node.
    let offset = *chance.pick(&[0, 500, 1_800_000]);
    let sign = if chance.one_in(2) { -1 } else { 1 };
    Clock {
        wall_offset: sign * chance.below(offset + 1) as i64,
        drift: if chance.one_in(2) { 0 } else { chance.below(2001) as i32 - 1000 },
    }
}

fn draw_topics(chance: &mut Chance) -> Vec<Topic> {
    let replicated = chance.one_in(4);
    let topic = |chance: &mut Chance| Topic {
        partitions: 1 + chance.below(3) as u32,
        segment_bytes: *chance.pick(&[1024, 4096, 16 << 10, 1 << 20]),
        segment_time: Duration::from_secs(*chance.pick(&[1, 60, 604_800])),
        flush: if replicated && chance.one_in(2) { Flush::Replicated } else { Flush::Durable },
        log_append_time: chance.one_in(4),
        retention_bytes: None,
        retention_time: None,
        compact: false,
        cleanable: Ratio::NEVER,
    };
    (0..1 + chance.below(3)).map(|_| topic(chance)).collect()
}

fn draw_workload(chance: &mut Chance) -> AppendRead {
    let millis = Duration::from_millis;
    let pause = *chance.pick(&[1, 10, 50]);
    AppendRead {
        writers: 1 + chance.below(4) as u32,
        readers: 1 + chance.below(3) as u32,
        acks: *chance.pick(&[Acks::All, Acks::All, Acks::All, Acks::Leader, Acks::None]),
        idempotent: chance.one_in(2),
        in_flight: *chance.pick(&[1, 2, 5]),
        records: Between { low: 1, high: *chance.pick(&[1, 5, 20]) },
        value_bytes: Between { low: 8, high: *chance.pick(&[8, 100, 1000]) },
        codec: *chance.pick(&[
            Codecs::Plain,
            Codecs::Plain,
            Codecs::Gzip,
            Codecs::Snappy,
            Codecs::Lz4,
            Codecs::Zstd,
            Codecs::Mixed,
        ]),
        pause: Between { low: millis(1), high: millis(pause) },
        timeout: millis(*chance.pick(&[200, 1000, 5000])),
        attempts: *chance.pick(&[1, 3, 10]),
        delete_records: *chance.pick(&[Ratio::NEVER, Ratio::NEVER, Ratio::new(1, 50)]),
        wait: millis(*chance.pick(&[0, 20, 500])),
        read_bytes: *chance.pick(&[1, 1024, 64 << 10]),
        undated: Ratio::NEVER,
        first_sequence: 0,
        library_writers: 0,
        library_readers: 0,
    }
}

/// From a stream of their own, so that a seed keeps its other clients.
fn draw_library_clients(chance: &mut Chance, workload: &mut AppendRead) {
    workload.library_writers = *chance.pick(&[0, 0, 1, 1, 2]);
    workload.library_readers = *chance.pick(&[0, 0, 1]);
}

fn draw_faults(chance: &mut Chance, plan: &Plan) -> Vec<Fault> {
    let mut kinds: Vec<&str> = Vec::new();
    for (name, unbudgeted) in &Kind::ALL[..KINDS_TOGETHER] {
        // Each kind exists or not by its own coin, drawn whether or not it may be used.
        let exists = chance.one_in(3);
        if exists && (!unbudgeted || plan.mode == Mode::Unbudgeted) {
            kinds.push(*name);
        }
    }
    if kinds.is_empty() {
        return Vec::new();
    }
    let most = *chance.pick(&[3, 8, FAULTS_MAX]);
    let count = 1 + chance.below(most);
    let mut faults: Vec<Fault> = (0..count)
        .filter_map(|_| {
            let at = draw_time(chance, plan);
            let name = *chance.pick(&kinds);
            Some(Fault { at, node: 1, kind: Kind::draw(name, chance, plan)? })
        })
        .collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// The faults of one younger kind, if the seed has any.
fn draw_faults_of(name: &str, chance: &mut Chance, plan: &Plan) -> Vec<Fault> {
    if !chance.one_in(4) {
        return Vec::new();
    }
    let count = 1 + chance.below(4);
    let draw = |_| {
        let at = draw_time(chance, plan);
        Some(Fault { at, node: 1, kind: Kind::draw(name, chance, plan)? })
    };
    (0..count).filter_map(draw).collect()
}

fn draw_time(chance: &mut Chance, plan: &Plan) -> Duration {
    Duration::from_millis(chance.below(plan.run.safety.as_millis() as u64))
}
