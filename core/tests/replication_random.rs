//! Random walks of up to five replicas under a controller that sees everything: messages are lost,
//! repeated, delayed and reordered, nodes crash, lose disks and their sessions, leaders change. No
//! step may lose what is committed; and when the faults stop, all is well again.

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/cut_log.rs"]
mod cut_log;
#[path = "support/toy_controller.rs"]
mod toy_controller;
#[path = "replication_random/transactions.rs"]
mod transactions;

use std::time::Duration;

use cluster::{Asked, Cluster, is_lawful};
use quorate_core::batch::{Batch, BatchBuilder, Codec, Levels};
use quorate_core::id::{NodeId, Offset, ProducerEpoch, ProducerId, RequestId};
use quorate_core::machine::Machine;
use quorate_core::partition::interface::{
    Acks, Input, Isolation, Limits, Outcome, PartitionConfig, Produce, ReplicationLimits, Wait,
};
use quorate_core::rng::Rng;
use quorate_core::time::{Instant, Now, Timestamp};
use transactions::Writers;

const STEPS_A_WALK: u64 = 1500;

#[test]
fn nothing_committed_is_lost_and_all_is_well_in_the_end() {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let seeds = match number("WALK") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WALKS").unwrap_or(150),
    };
    for seed in seeds {
        let result = std::panic::catch_unwind(|| Walk::new(seed).run());
        assert!(result.is_ok(), "seed {seed}");
    }
}

/// A walk that notices nothing would be worthless: each planted bug of replication must show.
#[cfg(mutants)]
#[test]
fn planted_bugs_are_noticed() {
    let mut missed = Vec::new();
    for slug in [
        "hw-truncate-then-elect",
        "two-lineages-after-power-loss",
        "epoch-answer-skips-gap",
        "missed-epoch-no-truncate",
        "epoch-zero-forgotten",
        "isr-join-before-epoch-start",
        "hw-bump-before-truncate",
        "diverging-fetch-counts-as-ack",
        "ack-by-term-not-by-commit",
        "hw-under-min-isr",
        "isr-shrink-wakes-nobody",
        "zombie-controller-verdict-believed",
        "stale-incarnation-joins-isr",
        "replicas-stamp-own-offsets",
        "catchup-declared-done",
        "unsynced-backup-acks",
        "expansion-not-awaited",
        "lso-inclusive",
    ] {
        quorate_core::mutant::choose(Some(slug));
        let noticed =
            (0..1000).find(|seed| std::panic::catch_unwind(|| Walk::new(*seed).run()).is_err());
        quorate_core::mutant::choose(None);
        match noticed {
            Some(seed) => tell(slug, seed + 1),
            None => missed.push(slug),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

#[cfg(mutants)]
#[expect(clippy::print_stderr, reason = "how many seeds each took is what the table says")]
fn tell(slug: &str, seeds: u64) {
    eprintln!("{slug}: {seeds} seeds");
}

struct Walk {
    rng: Rng,
    writers: Writers,
    cluster: Cluster,
    next_request: u64,
    next_name: i64,
    /// Pairs of nodes that do not hear one another; the first does not reach the second.
    cuts: Vec<(NodeId, NodeId)>,
    /// The idempotent producer's next sequence number, and the batch that it has to repeat.
    sequence: i32,
    repeated: Option<(Batch, i64)>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let replicas = usize::try_from(1 + rng.below(5)).expect("few");
        let small = |rng: &mut Rng, from: u64, span: u64| {
            usize::try_from(from + rng.below(span)).expect("small")
        };
        let config = PartitionConfig {
            retention_time: None,
            segment_bytes_max: 200 + rng.below(3000),
            in_sync_min: u16::try_from(1 + rng.below(3)).expect("small"),
            ..PartitionConfig::default()
        };
        let replication = ReplicationLimits {
            follow_retry: Duration::from_millis(50),
            lag_time_max: Duration::from_millis(300 + rng.below(1000)),
            window_bytes: small(&mut rng, 100, 2000),
            message_bytes_max: small(&mut rng, 80, 600),
            tail_bytes_max: small(&mut rng, 0, 600),
            ask_after: Duration::from_millis(80),
            watermark_delay: Duration::from_millis(1 + rng.below(20)),
            proposal_retry: Duration::from_millis(50),
            epochs_max: small(&mut rng, 1, 4),
        };
        let snapshot_bytes_min = 300 + rng.below(3000);
        let limits = Limits { replication, snapshot_bytes_min, ..Limits::default() };
        let now = Now { monotonic: Instant::ZERO, wall: Timestamp(1_000_000) };
        Self {
            rng,
            writers: Writers::default(),
            cluster: Cluster::new(now, replicas, config, limits),
            next_request: 0,
            next_name: 0,
            cuts: Vec::new(),
            sequence: 0,
            repeated: None,
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS_A_WALK {
            self.act();
            self.read_answers();
        }
        self.heal();
    }

    fn act(&mut self) {
        match self.rng.below(1000) {
            0..390 => self.deliver(),
            390..470 => self.produce(),
            470..510 => self.transact(),
            510..690 => self.write(),
            690..750 => self.read(),
            750..810 => {
                let millis = self.rng.below(40);
                self.pass(millis);
            }
            810..870 => self.tell_assigned(),
            870..920 => self.decide(),
            920..925 => self.wait(),
            925..931 => self.crash(),
            931..955 => self.start(),
            955..958 => self.fence(),
            958..990 => self.unfence(),
            990..993 => self.wipe(),
            993..996 => self.cut_network(),
            996..998 => self.delete(),
            _ => self.elect(),
        }
    }

    fn any(&mut self, nodes: &[NodeId]) -> Option<NodeId> {
        let place = self.rng.below(nodes.len().max(1) as u64);
        nodes.get(usize::try_from(place).expect("small")).copied()
    }

    fn any_up(&mut self) -> Option<NodeId> {
        let up = self.cluster.up();
        self.any(&up)
    }

    fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.rng.below(len as u64)).expect("small")
    }

    fn deliver(&mut self) {
        let len = self.cluster.packets.len();
        if len == 0 {
            return;
        }
        // Mostly in order, sometimes far out of it.
        let reach = if self.rng.below(8) == 0 { len } else { len.min(3) };
        let place = self.place(reach);
        let packet = match self.rng.below(20) {
            0 => self.cluster.packets[place].clone(),
            _ => self.cluster.packets.remove(place),
        };
        let is_cut = self.cuts.contains(&(packet.from, packet.to));
        if !is_cut && self.rng.below(25) > 0 {
            self.cluster.deliver(packet);
        }
        if self.cluster.packets.len() > 300 {
            self.cluster.packets.drain(..100);
        }
    }

    fn batch(&mut self, producer: Option<i32>) -> (Batch, i64) {
        self.next_name += 1;
        let mut builder = BatchBuilder::new(Codec::None);
        if let Some(sequence) = producer {
            builder = builder.producer(ProducerId(7), ProducerEpoch(0), sequence);
        }
        let count = if producer.is_some() { 1 } else { 1 + self.rng.below(3) };
        let value = vec![0; self.place(60)];
        for _ in 0..count {
            builder.append(Timestamp(self.next_name), None, Some(&value), []);
        }
        (builder.build(), self.next_name)
    }

    fn produce(&mut self) {
        let leader = self.cluster.leader();
        let node = if self.rng.below(10) == 0 { self.any_up() } else { leader };
        let Some(node) = node else { return };
        let mut sequence = None;
        let (batch, name) = if self.rng.below(3) == 0 {
            sequence = Some(self.sequence);
            match self.repeated.clone() {
                Some(again) => again,
                None => self.batch(Some(self.sequence)),
            }
        } else {
            self.batch(None)
        };
        if sequence.is_some() {
            let busy = self.cluster.asked.values().any(|asked| asked.sequence.is_some());
            self.repeated = Some((batch.clone(), name));
            if busy {
                return;
            }
        }
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let acks = match (sequence, self.rng.below(4)) {
            (None, 0) => Acks::Leader,
            (None, 1) => Acks::AtLeast(2),
            _ => Acks::All,
        };
        let until = self.cluster.now.monotonic + Duration::from_millis(500 + self.rng.below(3000));
        let name = Some(name);
        self.cluster.asked.insert(request, Asked { node, acks, name, sequence });
        let produce = Produce { request, batch, levels: Levels::DEFAULT, acks, until, guard: None };
        self.cluster.step(node, Input::Produce(produce));
    }

    fn wait(&mut self) {
        let Some(node) = self.any_up() else { return };
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let asked = Asked { node, acks: Acks::None, name: None, sequence: None };
        self.cluster.asked.insert(request, asked);
        let until = self.cluster.now.monotonic + Duration::from_millis(self.rng.below(2000));
        let beyond = self.cluster.committed_end;
        let isolation = match self.rng.below(2) {
            0 => Isolation::ReadUncommitted,
            _ => Isolation::ReadCommitted,
        };
        let wait = Wait { request, beyond, bytes_min: 1, isolation, until };
        self.cluster.step(node, Input::Wait(wait));
    }

    fn read_answers(&mut self) {
        for (request, asked, outcome) in std::mem::take(&mut self.cluster.answers) {
            if self.transaction_answered(request, &outcome) {
                continue;
            }
            match (&outcome, asked.name) {
                (Outcome::Produced { base, .. }, Some(name)) if asked.acks != Acks::Leader => {
                    let is_true = self.cluster.is_committed(*base, name);
                    assert!(is_true, "{request} was told of a commit at {base} that is none");
                    if asked.sequence.is_some() {
                        assert_eq!(self.cluster.commits_of(name), 1, "{request} stands twice");
                        self.sequence += 1;
                        self.repeated = None;
                    }
                }
                (Outcome::RecordsDeleted { log_start }, _) => {
                    self.cluster.deleted = self.cluster.deleted.max(*log_start);
                }
                (Outcome::Refused(refusal), _) => {
                    // A log that was begun anew knows no producer of what was deleted.
                    let is_in_order = self.cluster.deletable == Offset::ZERO;
                    assert!(is_lawful(refusal, is_in_order), "{request}: {refusal:?}");
                }
                _ => {}
            }
        }
    }

    fn write(&mut self) {
        let Some(node) = self.any_up() else { return };
        let in_flight = self.cluster.nodes[&node].log.in_flight();
        if in_flight > 0 {
            let count = 1 + self.place(in_flight);
            self.cluster.written(node, count);
        }
    }

    fn read(&mut self) {
        if let Some(node) = self.any_up() {
            let fails = self.rng.below(20) == 0;
            self.cluster.answer_read(node, fails);
        }
    }

    fn pass(&mut self, millis: u64) {
        let end = self.cluster.now.monotonic + Duration::from_millis(millis);
        loop {
            let due = |id: &NodeId| {
                let replica = self.cluster.nodes[id].replica.as_ref();
                replica.and_then(Machine::deadline).map(|at| (at, *id))
            };
            let up = self.cluster.up();
            let Some((at, node)) = up.iter().filter_map(due).min().filter(|due| due.0 <= end)
            else {
                break;
            };
            let now = &mut self.cluster.now;
            now.monotonic = now.monotonic.max(at);
            self.cluster.step(node, Input::Tick);
            let replica = self.cluster.nodes[&node].replica.as_ref();
            let after = replica.and_then(Machine::deadline);
            let now = self.cluster.now.monotonic;
            assert!(after.is_none_or(|after| after > now), "n{node} would spin");
        }
        let passed = end.saturating_since(Instant::ZERO).as_millis();
        self.cluster.now.monotonic = end;
        self.cluster.now.wall = Timestamp(1_000_000 + i64::try_from(passed).expect("short"));
    }

    /// A node hears of an assignment, perhaps of the newest only.
    fn tell_assigned(&mut self) {
        let Some(node) = self.any_up() else { return };
        let (from, len) = (self.cluster.nodes[&node].place, self.cluster.controller.history.len());
        if from + 1 < len {
            let place = from + 1 + self.place(len - from - 1);
            self.cluster.tell_assigned(node, place);
        } else if self.rng.below(10) == 0 {
            let old = self.place(len);
            self.cluster.tell_assigned(node, old);
        }
    }

    fn decide(&mut self) {
        if !self.cluster.proposals.is_empty() && self.rng.below(2) == 0 {
            let place = self.place(self.cluster.proposals.len());
            let (knows_less, again) = (self.rng.below(6) == 0, self.rng.below(6) == 0);
            self.cluster.decide(place, knows_less, again);
        }
        if !self.cluster.refusals.is_empty() {
            let place = self.place(self.cluster.refusals.len());
            if self.rng.below(10) == 0 {
                self.cluster.refusals.remove(place);
            } else {
                self.cluster.refuse(place);
            }
        }
    }

    fn crash(&mut self) {
        let Some(node) = self.any_up() else { return };
        let in_flight = self.cluster.nodes[&node].log.in_flight();
        let written = self.place(in_flight + 1);
        self.cluster.crash(node, written);
        if self.rng.below(2) == 0 {
            self.cluster.controller.fence(node, false);
        }
    }

    fn down(&self) -> Vec<NodeId> {
        let nodes = self.cluster.nodes.values();
        nodes.filter(|node| node.replica.is_none()).map(|node| node.id).collect()
    }

    fn start(&mut self) {
        let down = self.down();
        if let Some(node) = self.any(&down) {
            self.cluster.open(node);
            self.cluster.controller.register(node);
        }
    }

    /// A node loses its session, whether it lives or not; it registers again.
    fn fence(&mut self) {
        let Some(node) = self.any_up() else { return };
        self.cluster.controller.fence(node, false);
        if self.rng.below(2) == 0 {
            self.cluster.controller.register(node);
            if let Some(node) = self.cluster.nodes.get_mut(&node) {
                node.is_registered = false;
            }
        }
    }

    fn unfence(&mut self) {
        let Some(node) = self.any_up() else { return };
        let known = self.cluster.controller.nodes[&node];
        if !self.cluster.nodes[&node].is_registered {
            self.cluster.tell_registered(node);
        } else if known.is_fenced && self.cluster.nodes[&node].place >= known.place {
            self.cluster.controller.unfence(node);
        }
    }

    /// A disk is lost; never one that has the only copy of what is committed.
    fn wipe(&mut self) {
        let nodes = self.cluster.nodes.keys().copied().collect::<Vec<_>>();
        let Some(node) = self.any(&nodes) else { return };
        let mut others = self.cluster.controller.electable();
        others.retain(|other| *other != node);
        if others.is_empty() || nodes.len() == 1 {
            return;
        }
        self.cluster.crash(node, 0);
        self.cluster.controller.fence(node, true);
        if let Some(node) = self.cluster.nodes.get_mut(&node) {
            node.log = cut_log::CutLog::default();
        }
    }

    fn cut_network(&mut self) {
        if self.cuts.len() > 3 || self.rng.below(2) == 0 {
            self.cuts.clear();
            return;
        }
        let nodes = self.cluster.nodes.keys().copied().collect::<Vec<_>>();
        let (Some(one), Some(other)) = (self.any(&nodes), self.any(&nodes)) else { return };
        self.cuts.push((one, other));
        if self.rng.below(2) == 0 {
            self.cuts.push((other, one));
        }
    }

    fn delete(&mut self) {
        let Some(node) = self.cluster.leader() else { return };
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let high = self.cluster.committed_end;
        let back = i64::try_from(self.rng.below(12)).expect("small");
        let before = Offset((high.0 - back).max(0));
        let replica = self.cluster.nodes[&node].replica.as_ref();
        if replica.is_some_and(|replica| replica.view().high_watermark >= before) {
            self.cluster.deletable = self.cluster.deletable.max(before);
            let until = self.cluster.now.monotonic + Duration::from_millis(self.rng.below(2000));
            let asked = Asked { node, acks: Acks::None, name: None, sequence: None };
            self.cluster.asked.insert(request, asked);
            let input = Input::DeleteRecords { request, before: Some(before), until };
            self.cluster.step(node, input);
        }
    }

    fn elect(&mut self) {
        let candidates = self.cluster.controller.candidates();
        if let Some(node) = self.any(&candidates) {
            self.cluster.controller.elect(node);
        }
    }

    /// The faults stop. Nothing may be left that only another fault or another record would move.
    fn heal(&mut self) {
        self.cuts.clear();
        for node in self.down() {
            self.cluster.open(node);
            self.cluster.controller.register(node);
        }
        let mut unwell = None;
        for _ in 0..3000 {
            self.settle();
            self.pass(10);
            self.read_answers();
            let is_open = self.end_transactions();
            unwell = self.cluster.unwell();
            if unwell.is_none() && !is_open {
                self.check_nothing_hangs();
                return;
            }
        }
        panic!("not well after 30 s: {unwell:?}\n{}", self.cluster);
    }

    /// All that is under way arrives.
    fn settle(&mut self) {
        for id in self.cluster.nodes.keys().copied().collect::<Vec<_>>() {
            if !self.cluster.nodes[&id].is_registered {
                self.cluster.tell_registered(id);
            }
            let last = self.cluster.controller.history.len() - 1;
            if self.cluster.nodes[&id].place < last {
                self.cluster.tell_assigned(id, last);
            }
            if self.cluster.controller.nodes[&id].is_fenced {
                self.cluster.controller.unfence(id);
            }
            while self.cluster.nodes[&id].log.in_flight() > 0 {
                self.cluster.written(id, usize::MAX);
            }
            while !self.cluster.nodes[&id].reads.is_empty() {
                self.cluster.answer_read(id, false);
            }
        }
        for packet in std::mem::take(&mut self.cluster.packets) {
            self.cluster.deliver(packet);
        }
        while !self.cluster.proposals.is_empty() {
            self.cluster.decide(0, false, false);
        }
        while !self.cluster.refusals.is_empty() {
            self.cluster.refuse(0);
        }
    }
}
