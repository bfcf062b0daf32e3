//! Named families of plans of several nodes: faults that follow one another in a way that the
//! independent draws hardly ever hit. Each has its share of the seeds and a stream of its own.

use std::time::Duration;

use super::super::{Acks, Mode, Plan};
use crate::chance::{Between, Chance};
use crate::fault::bit_flip::{BitFlip, Files};
use crate::fault::crash::Crash;
use crate::fault::cut::Direction;
use crate::fault::cut_peers::CutPeers;
use crate::fault::disk_stuck::DiskStuck;
use crate::fault::elect_preferred::ElectPreferred;
use crate::fault::maintenance::Maintenance;
use crate::fault::pause::Pause;
use crate::fault::power_loss::{PowerLoss, Unsynced};
use crate::fault::restart::Restart;
use crate::fault::slow_peers::SlowPeers;
use crate::fault::wipe::Wipe;
use crate::fault::{Fault, Kind};

/// A family and its share: one seed in so many.
type Family = (&'static str, u32, fn(&mut Storm<'_>));

const FAMILIES: &[Family] = &[
    ("leaders come and go", 8, leaders_go),
    ("two nodes die within a moment, and the third is behind", 10, two_die),
    ("power fails in a node that is cut off", 12, cut_then_dark),
    ("a slow copy, and then a crash", 12, slow_then_crash),
    ("started twice within a moment", 12, twice),
    ("a node hears less than the others", 10, half_deaf),
    ("fewer in sync than it takes, and readers", 12, below_minimum),
    ("two nodes take turns", 10, take_turns),
    ("elections while nobody writes", 16, idle_elections),
    ("long away, and the log has gone on", 12, long_away),
    ("another disk while words are on their way", 12, wiped_in_between),
    ("an end of a log is cut, and then power fails", 8, cut_end_then_dark),
    ("leaderships go and come back while a node hears nothing", 10, there_and_back),
    ("one copy of several rots", 12, one_rots),
];

pub(super) fn add(seed: u64, plan: &mut Plan) {
    for (name, share, family) in FAMILIES {
        let mut chance = Chance::new(seed, &format!("storm {name}"));
        if chance.one_in(*share) {
            plan.story.push(format!("family: {name}"));
            plan.run.safety = plan.run.safety.max(Duration::from_secs(5));
            family(&mut Storm { chance, plan });
        }
    }
}

/// A plan and what a family draws from.
struct Storm<'a> {
    chance: Chance,
    plan: &'a mut Plan,
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Storm<'_> {
    fn put(&mut self, at: Duration, node: u32, kind: Kind) {
        // The faults of the safety phase end with it.
        if at < self.plan.run.safety {
            self.plan.faults.push(Fault { at, node, kind });
        }
    }

    fn between(&mut self, low: u64, high: u64) -> Duration {
        millis(self.chance.between(Between { low, high }))
    }

    /// A moment that leaves room for what follows.
    fn moment(&mut self) -> Duration {
        let most = self.plan.run.safety.as_millis() as u64;
        self.between(500, most.saturating_sub(2500).max(600))
    }

    /// The nodes in a random order.
    fn shuffled(&mut self) -> Vec<u32> {
        let mut nodes: Vec<u32> = (1..=self.plan.cluster.nodes).collect();
        for place in (1..nodes.len()).rev() {
            nodes.swap(place, self.chance.below(place as u64 + 1) as usize);
        }
        nodes
    }

    fn unsynced(&mut self) -> Unsynced {
        *self.chance.pick(&[Unsynced::Lost, Unsynced::Lost, Unsynced::Prefix, Unsynced::Torn])
    }

    fn crash(&mut self, at: Duration, node: u32, down: Duration) {
        self.put(at, node, Kind::Crash(Crash { down }));
    }

    fn dark(&mut self, at: Duration, node: u32, down: Duration) {
        let unsynced = self.unsynced();
        self.put(at, node, Kind::PowerLoss(PowerLoss { unsynced, down }));
    }

    /// The node is out of reach, in one way or another, for a while.
    fn away(&mut self, at: Duration, node: u32, during: Duration) {
        let cut = |direction| Kind::CutPeers(CutPeers { other: None, direction, during });
        let kind = match self.chance.below(5) {
            0 => Kind::Pause(Pause { during }),
            1 => Kind::Crash(Crash { down: during }),
            2 => cut(Direction::ToNode),
            3 => cut(Direction::FromNode),
            _ => cut(Direction::Both),
        };
        self.put(at, node, kind);
    }
}

/// One election after another, sometimes before the last leader has begun.
fn leaders_go(storm: &mut Storm<'_>) {
    let end = storm.plan.run.safety;
    let gaps = *storm.chance.pick(&[(50, 400), (300, 900), (500, 2000)]);
    let mut at = storm.between(100, 1000);
    while at < end {
        let node = storm.shuffled()[0];
        let during = storm.between(100, 1800);
        if storm.chance.one_in(3) {
            let down = storm.between(0, 400);
            storm.dark(at, node, down);
        } else {
            storm.away(at, node, during);
        }
        at += storm.between(gaps.0, gaps.1);
    }
}

fn two_die(storm: &mut Storm<'_>) {
    for _ in 0..1 + storm.chance.below(3) {
        let order = storm.shuffled();
        let at = storm.moment();
        if let Some(behind) = order.get(2) {
            let early = storm.between(20, 1500);
            let until = storm.between(0, 30);
            storm.away(at.saturating_sub(early), *behind, early + until);
        }
        for node in &order[..2] {
            let at = at + storm.between(0, 60);
            let down = storm.between(0, 2500);
            if storm.chance.one_in(2) {
                storm.dark(at, *node, down);
            } else {
                storm.crash(at, *node, down);
            }
        }
    }
}

fn cut_then_dark(storm: &mut Storm<'_>) {
    for _ in 0..1 + storm.chance.below(2) {
        let node = storm.shuffled()[0];
        let at = storm.moment();
        let during = storm.between(500, 3000);
        let direction = *storm.chance.pick(Direction::ALL);
        storm.put(at, node, Kind::CutPeers(CutPeers { other: None, direction, during }));
        let dark = at + storm.between(0, during.as_millis() as u64);
        let down = storm.between(0, 300);
        storm.dark(dark, node, down);
    }
}

fn slow_then_crash(storm: &mut Storm<'_>) {
    if storm.plan.workload.acks == Acks::All {
        storm.plan.cluster.lag_time = *storm.chance.pick(&[millis(300), millis(1000)]);
    }
    for _ in 0..1 + storm.chance.below(3) {
        let order = storm.shuffled();
        let at = storm.moment();
        let during = storm.between(300, 2500);
        let kind = if storm.chance.one_in(2) {
            let latency = *storm.chance.pick(&[millis(50), millis(300)]);
            Kind::SlowPeers(SlowPeers { other: None, latency, during })
        } else {
            Kind::DiskStuck(DiskStuck { during })
        };
        storm.put(at, order[0], kind);
        let crash = at + storm.between(50, during.as_millis() as u64 + 100);
        let down = storm.between(0, 2500);
        storm.crash(crash, order[1], down);
    }
}

fn twice(storm: &mut Storm<'_>) {
    for _ in 0..1 + storm.chance.below(4) {
        let node = storm.shuffled()[0];
        let mut at = storm.moment();
        for _ in 0..2 + storm.chance.below(2) {
            let down = storm.between(0, 30);
            if storm.chance.one_in(2) {
                storm.dark(at, node, down);
            } else {
                storm.crash(at, node, down);
            }
            at += storm.between(5, 400);
        }
    }
}

/// One link is cut, and meanwhile leaderships move to and fro on the other side of it.
fn half_deaf(storm: &mut Storm<'_>) {
    for _ in 0..1 + storm.chance.below(3) {
        let order = storm.shuffled();
        let at = storm.moment();
        let during = storm.between(1000, 4000);
        let other = Some(order[1]);
        let direction = *storm.chance.pick(Direction::ALL);
        storm.put(at, order[0], Kind::CutPeers(CutPeers { other, direction, during }));
        let third = order.get(2).copied().unwrap_or(order[1]);
        let first = at + storm.between(0, 500);
        let down = storm.between(0, 1500);
        storm.crash(first, third, down);
        if storm.chance.one_in(2) {
            let then = first + down + storm.between(100, 1500);
            let down = storm.between(0, 500);
            storm.crash(then, order[1], down);
        }
    }
}

/// What the last one in sync shows to readers, whoever leads next has too.
fn below_minimum(storm: &mut Storm<'_>) {
    let cluster = &mut storm.plan.cluster;
    cluster.replication = cluster.nodes.min(3);
    cluster.in_sync_min = cluster.replication.min(2);
    storm.plan.workload.acks = Acks::Leader;
    storm.plan.workload.library_readers = storm.plan.workload.library_readers.max(2);
    for _ in 0..1 + storm.chance.below(2) {
        let order = storm.shuffled();
        let at = storm.moment();
        let during = storm.between(1600, 3000);
        for node in &order[1..] {
            let at = at + storm.between(0, 200);
            storm.away(at, *node, during);
        }
        let last = at + during.saturating_sub(storm.between(0, 300));
        let down = storm.between(500, 3000);
        if storm.chance.one_in(3) {
            storm.put(last, order[0], Kind::Wipe(Wipe { down }));
        } else {
            storm.dark(last, order[0], down);
        }
    }
}

/// One node comes back as another goes, time and again: each leads with an end of its own that
/// nobody has, and neither has time to follow.
fn take_turns(storm: &mut Storm<'_>) {
    let cluster = &mut storm.plan.cluster;
    cluster.replication = 2;
    cluster.in_sync_min = *storm.chance.pick(&[2, 2, 1]);
    storm.plan.workload.acks = *storm.chance.pick(&[Acks::Leader, Acks::Leader, Acks::All]);
    storm.plan.run.safety = storm.plan.run.safety.max(Duration::from_secs(10));
    let order = storm.shuffled();
    let mut at = storm.between(500, 2000);
    for turn in 0..3 + storm.chance.below(5) as usize {
        let down = storm.between(700, 2200);
        if storm.chance.one_in(3) {
            storm.dark(at, order[turn % 2], down);
        } else {
            storm.crash(at, order[turn % 2], down);
        }
        at += down;
        at = (at + storm.between(0, 150)).saturating_sub(millis(50));
    }
}

fn idle_elections(storm: &mut Storm<'_>) {
    let low = *storm.chance.pick(&[200, 1000]);
    storm.plan.workload.pause = Between { low: millis(low), high: millis(2 * low) };
    leaders_go(storm);
}

/// Who comes back finds a log that does not reach back to where it was.
fn long_away(storm: &mut Storm<'_>) {
    storm.plan.cluster.entries_kept = storm.chance.below(3);
    storm.plan.run.safety = storm.plan.run.safety.max(Duration::from_secs(10));
    let order = storm.shuffled();
    let at = storm.between(300, 2000);
    let during = storm.between(3000, 7000);
    storm.away(at, order[0], during);
    for _ in 0..2 + storm.chance.below(6) {
        let at = at + storm.between(0, during.as_millis() as u64);
        let node = *storm.chance.pick(&order[1..]);
        let down = storm.between(0, 300);
        storm.crash(at, node, down);
    }
    let (then, down) = (at + during + storm.between(0, 300), storm.between(0, 300));
    storm.dark(then, order[0], down);
}

/// A node comes back empty while what it said before is still on its way.
fn wiped_in_between(storm: &mut Storm<'_>) {
    let order = storm.shuffled();
    let at = storm.moment();
    let latency = *storm.chance.pick(&[millis(50), millis(300)]);
    let during = storm.between(500, 2500);
    storm.put(at, order[1], Kind::SlowPeers(SlowPeers { other: None, latency, during }));
    let wiped = at + storm.between(0, 500);
    let down = storm.between(0, 100);
    storm.put(wiped, order[0], Kind::Wipe(Wipe { down }));
    let crash = wiped + storm.between(100, 2500);
    let down = storm.between(0, 2500);
    storm.crash(crash, order[1], down);
}

/// A leader that is cut off writes what nobody else has; back again, it loses that end of its log,
/// and its power while it does so or soon after.
fn cut_end_then_dark(storm: &mut Storm<'_>) {
    storm.plan.workload.acks = Acks::Leader;
    storm.plan.run.safety = storm.plan.run.safety.max(Duration::from_secs(10));
    // Segments are closed often, so that several files go; the journal still has all of it.
    let bytes = *storm.chance.pick(&[1024, 4096, 16 << 10]);
    for topic in &mut storm.plan.topics {
        topic.segment_bytes = topic.segment_bytes.min(bytes);
    }
    storm.plan.node.checkpoint_bytes = *storm.chance.pick(&[64 << 10, 1 << 20, 96 << 20]);
    let mut at = storm.between(500, 2000);
    for _ in 0..2 + storm.chance.below(3) {
        let node = storm.shuffled()[0];
        let during = storm.between(1600, 2600);
        let direction = Direction::Both;
        storm.put(at, node, Kind::CutPeers(CutPeers { other: None, direction, during }));
        let soon = *storm.chance.pick(&[30, 300, 1500]);
        let dark = at + during + storm.between(0, soon);
        let down = storm.between(0, 300);
        storm.dark(dark, node, down);
        at = dark + down + storm.between(300, 1500);
    }
}

/// Who hears nothing meanwhile finds the leader that it knew, and other records behind it.
fn there_and_back(storm: &mut Storm<'_>) {
    storm.plan.run.safety = storm.plan.run.safety.max(Duration::from_secs(10));
    let voters = storm.plan.cluster.voters;
    for _ in 0..1 + storm.chance.below(3) {
        let mut order = storm.shuffled();
        // Without its vote the others go on more often.
        order.sort_by_key(|node| *node <= voters);
        let (deaf, others) = (order[0], &order[1..]);
        let at = storm.moment();
        let during = storm.between(1500, 4500);
        let direction = *storm.chance.pick(&[Direction::Both, Direction::ToNode]);
        storm.put(at, deaf, Kind::CutPeers(CutPeers { other: None, direction, during }));
        let mut then = at;
        for _ in 0..1 + storm.chance.below(3) {
            let node = *storm.chance.pick(others);
            then += storm.between(50, 600);
            let down = storm.between(0, 300);
            match storm.chance.below(3) {
                0 => storm.crash(then, node, down),
                1 => storm.put(then, node, Kind::Restart(Restart { down })),
                _ => storm.put(then, node, Kind::Maintenance(Maintenance { during: down })),
            }
            then += down + storm.between(200, 1200);
            storm.put(then, node, Kind::ElectPreferred(ElectPreferred {}));
        }
    }
}

/// Durable bytes of one copy change, and the node has to read them soon. The others have them, and
/// go away in turn.
fn one_rots(storm: &mut Storm<'_>) {
    storm.plan.mode = Mode::Unbudgeted;
    storm.plan.node.checkpoint_bytes = 16 << 10;
    let order = storm.shuffled();
    for _ in 0..1 + storm.chance.below(2) {
        let at = storm.moment();
        let files = *storm.chance.pick(&[Files::Newest, Files::Newest, Files::Segment]);
        storm.put(at, order[0], Kind::BitFlip(BitFlip { files }));
        let then = at + storm.between(1, 50);
        let down = storm.between(0, 100);
        if storm.chance.one_in(2) {
            storm.crash(then, order[0], down);
        } else {
            storm.put(then, order[0], Kind::Restart(Restart { down }));
        }
        for node in &order[1..] {
            let at = then + storm.between(0, 1500);
            let down = storm.between(0, 500);
            storm.crash(at, *node, down);
        }
    }
}
