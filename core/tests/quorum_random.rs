//! Random walks of a quorum: members that crash, lose their disks, join and leave, on a network
//! that does what it likes. Every step is watched; in the end everything is healed, and a leader
//! must be there and commit.

#[path = "quorum/disk.rs"]
mod disk;
#[path = "quorum/shadow.rs"]
mod shadow;
#[path = "quorum/world.rs"]
mod world;

use std::time::Duration;

use bytes::Bytes;
use quorate_core::id::NodeId;
use quorate_core::machine::Machine;
use quorate_core::quorum::interface::{Effect, Input, Term};
use quorate_core::rng::{Ratio, Rng};
use quorate_core::time::Now;
use world::World;

const STEPS_A_WALK: u64 = 6000;

#[test]
fn a_quorum_keeps_its_promises() {
    let walks = if cfg!(debug_assertions) { 60 } else { 1500 };
    let (mut alive, mut committed) = (0, 0);
    for seed in 0..walks {
        let result = std::panic::catch_unwind(|| Walk::new(seed).run());
        let end = result.unwrap_or_else(|_| panic!("seed {seed}"));
        alive += u64::from(end.is_alive);
        committed += end.committed;
    }
    assert!(alive * 10 > walks * 8, "only {alive} of {walks} walks came to the end");
    assert!(committed > walks * 40, "only {committed} entries in {walks} walks");
}

/// A walk that notices nothing would be worthless: each planted bug of the quorum must show, but
/// for those that need more luck than a walk has, which `quorum_scripts` plants.
#[cfg(mutants)]
#[test]
fn planted_bugs_are_noticed() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut table = String::new();
    let mut missed: Vec<&str> = Vec::new();
    for slug in PLANTED {
        quorate_core::mutant::choose(Some(slug));
        let noticed = (0..SEEDS_MAX)
            .find(|seed| std::panic::catch_unwind(|| Walk::new(*seed).run().committed).is_err());
        quorate_core::mutant::choose(None);
        let seeds = noticed.map_or_else(|| "-".to_owned(), |seed| (seed + 1).to_string());
        table += &format!("{slug} {seeds}\n");
        missed.extend(noticed.is_none().then_some(slug));
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not noticed: {missed:?}\n{table}");
}

#[cfg(mutants)]
const SEEDS_MAX: u64 = 1000;

#[cfg(mutants)]
const PLANTED: &[&str] = &[
    "ack-before-fsync",
    "adopt-vote-from-rejection",
    "app-resigns-raft-does-not",
    "applied-index-not-atomic",
    "campaign-with-unapplied-config",
    "config-not-reverted-on-truncate",
    "joint-config-lost-in-snapshot",
    "leader-counts-unflushed-noop",
    "learner-refuses-vote",
    "observer-does-not-flush",
    "prevote-deadlock-on-terms",
    "prevote-has-side-effects",
    "read-index-before-first-commit",
    "reformatted-voter-votes",
    "removed-leader-counts-itself",
    "same-epoch-leader-after-restart",
    "snapshot-id-off-by-one",
    "snapshot-keeps-conflicting-log",
    "stale-write-counts",
    "sync-ack-before-persist",
    "truncate-committed",
    "unsorted-quorum-scan",
    "unsynced-minority-rejoins",
    "vote-before-fsync",
];

struct End {
    is_alive: bool,
    committed: u64,
}

/// How much of what happens in this walk, so that no two storms are alike.
struct Weather {
    /// A message of a hundred is lost, or comes twice.
    loss: Ratio,
    doubling: Ratio,
    /// Of a thousand steps.
    crashes: u64,
    wipes: u64,
    changes: u64,
    restores: u64,
    cuts: u64,
    transfers: u64,
    /// How long a step lasts at most, in microseconds.
    slowness: u64,
}

impl Weather {
    fn draw(rng: &mut Rng) -> Self {
        let mut some = |max: u64| if rng.below(3) == 0 { 0 } else { rng.below(max + 1) };
        let percent = |value: u64| Ratio::new(u32::try_from(value).expect("small"), 100);
        Self {
            loss: percent(some(20)),
            doubling: percent(some(10)),
            crashes: some(20),
            wipes: some(4),
            changes: some(30),
            cuts: some(12),
            transfers: some(8),
            restores: some(40),
            slowness: 0,
        }
        .with_slowness(rng)
    }

    fn with_slowness(mut self, rng: &mut Rng) -> Self {
        self.slowness = [5_000, 20_000, 60_000][usize::try_from(rng.below(3)).expect("small")];
        self
    }
}

struct Walk {
    world: World,
    weather: Weather,
    next_data: u64,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let voters = [1, 2, 3, 3, 3, 4, 5, 5][usize::try_from(rng.below(8)).expect("small")];
        let others = i32::try_from(rng.below(3)).expect("small");
        let weather = Weather::draw(&mut rng);
        Self { world: World::new(seed, voters, others), weather, next_data: 0 }
    }

    /// The storm, and what is left when it is over.
    fn run(mut self) -> End {
        for step in 0..STEPS_A_WALK {
            self.disturb();
            self.act();
            if step % 50 == 0 {
                self.check_logs();
            }
        }
        self.world.shadow.check_once();
        self.heal();
        let is_alive = self.is_whole() && self.live();
        self.check_logs();
        self.world.shadow.check_once();
        self.fail();
        End { is_alive, committed: self.world.shadow.last().0 }
    }

    fn check_logs(&self) {
        let quorums = self.world.nodes.values().filter_map(|node| node.quorum.as_ref());
        self.world.shadow.check_logs(&quorums.collect::<Vec<_>>());
    }

    fn act(&mut self) {
        let world = &mut self.world;
        match world.rng.below(100) {
            0..62 => self.deliver(),
            62..80 => {
                let id = world.any_node();
                let count = usize::try_from(1 + world.rng.below(4)).expect("small");
                world.complete(id, count);
            }
            80..88 => {
                let micros = world.rng.below(self.weather.slowness);
                world.pass(Duration::from_micros(micros));
            }
            88..94 => self.propose(),
            94..97 => {
                let id = self.someone();
                let request = self.world.request();
                self.world.shadow.read(request);
                self.world.step(id, Input::Read { request });
            }
            _ => {
                let id = world.any_node();
                let node = &world.nodes[&id];
                if node.wants_snapshot || world.rng.below(10) == 0 {
                    world.take_snapshot(id);
                }
            }
        }
    }

    fn disturb(&mut self) {
        let world = &mut self.world;
        let Weather { crashes, wipes, changes, restores, cuts, transfers, .. } = self.weather;
        let id = world.any_node();
        match world.rng.below(1000) {
            chance if chance < crashes => world.crash(id),
            20..60 if !world.is_up(id) => world.start(id),
            chance if (60..60 + wipes).contains(&chance) => {
                let is_founded = world.shadow.last().0 > 0;
                let member = world.nodes[&id].member;
                if is_founded && world.survives(Some(member)) {
                    world.wipe(id);
                }
            }
            chance if (100..100 + changes).contains(&chance) => {
                let id = self.someone();
                self.world.change(id);
            }
            chance if (150..150 + restores).contains(&chance) => {
                let id = self.someone();
                self.world.restore_votes(id);
            }
            chance if (200..200 + cuts).contains(&chance) => self.cut(id),
            chance if (300..300 + transfers).contains(&chance) => {
                let to = (world.rng.below(2) == 0).then_some(id);
                let request = world.request();
                let leader = self.someone();
                self.world.step(leader, Input::Transfer { request, to });
            }
            chance if (400..400 + transfers / 4).contains(&chance) => {
                let leader = self.someone();
                self.world.step(leader, Input::Resign);
            }
            _ => {}
        }
    }

    /// The leader, mostly.
    fn someone(&mut self) -> NodeId {
        match self.world.leading() {
            Some((leader, _)) if self.world.rng.below(8) > 0 => leader,
            _ => self.world.any_node(),
        }
    }

    fn cut(&mut self, id: NodeId) {
        let world = &mut self.world;
        if world.rng.below(2) == 0 {
            world.cuts.clear();
            return;
        }
        let is_one_way = world.rng.below(3) == 0;
        for other in world.nodes.keys().copied().filter(|other| *other != id).collect::<Vec<_>>() {
            if world.rng.below(3) > 0 {
                world.cuts.insert((id, other));
                if !is_one_way {
                    world.cuts.insert((other, id));
                }
            }
        }
    }

    fn deliver(&mut self) {
        let world = &mut self.world;
        let waiting = world.messages.len() as u64;
        if waiting == 0 {
            return;
        }
        // Mostly in order, sometimes not at all.
        let span = if world.rng.below(4) == 0 { waiting } else { waiting.min(4) };
        let place = usize::try_from(world.rng.below(span)).expect("small");
        if world.rng.happens(self.weather.loss) {
            world.messages.remove(place);
            return;
        }
        if world.rng.happens(self.weather.doubling) {
            let again = world.messages[place].clone();
            world.messages.push(again);
        }
        world.deliver(place);
    }

    fn propose(&mut self) {
        let id = self.someone();
        let Some(quorum) = &self.world.nodes[&id].quorum else { return };
        let term = quorum.term();
        self.next_data += 1;
        let mut data = self.next_data.to_le_bytes().to_vec();
        data.resize(8 + usize::try_from(self.world.rng.below(60)).expect("small"), 0);
        let (request, data) = (self.world.request(), Bytes::from(data));
        self.world.shadow.propose(request, data.clone());
        self.world.step(id, Input::Propose { request, term, data });
    }

    fn heal(&mut self) {
        let world = &mut self.world;
        world.cuts.clear();
        for id in world.nodes.keys().copied().collect::<Vec<_>>() {
            if !world.is_up(id) {
                world.start(id);
            }
        }
    }

    /// Whether the budget of wiped disks was kept, so that the rest must be able to go on.
    fn is_whole(&self) -> bool {
        self.world.survives(None)
    }

    /// A quiet network: a leader is found soon, commits, and stays.
    fn live(&mut self) -> bool {
        let before = self.world.shadow.last();
        self.quiet(12);
        let Some((leader, term)) = self.world.leading() else {
            panic!("no leader is found:{}", self.world.status());
        };
        self.propose_to(leader, term);
        self.quiet(4);
        let status = self.world.status();
        assert!(self.world.shadow.last() > before, "nothing is committed any more:{status}");
        let again = self.world.leading();
        assert_eq!(again, Some((leader, term)), "a leader is deposed for nothing:{status}");
        let end = self.world.shadow.last();
        for node in self.world.nodes.values() {
            let quorum = node.quorum.as_ref().expect("all are up");
            let is_voter =
                self.world.shadow.configuration().is_some_and(|all| all.is_voter(node.member));
            assert!(!is_voter || node.app.applied == end, "{quorum} is left behind {end}");
        }
        self.give_votes_back();
        true
    }

    /// Whoever lost its disk votes again in the end.
    fn give_votes_back(&mut self) {
        for _ in 0..20 {
            let Some((leader, _)) = self.world.leading() else { break };
            if !self.world.restore_votes(leader) {
                break;
            }
            self.quiet(1);
        }
        let missing = self.world.missing_vote();
        assert_eq!(missing, None, "no vote:{}", self.world.status());
    }

    /// A failed write: whoever waits is refused, and nothing is done any more.
    fn fail(&mut self) {
        let Some((leader, term)) = self.world.leading() else { return };
        self.propose_to(leader, term);
        let node = self.world.nodes.get_mut(&leader).expect("a node");
        let (Some(quorum), Some(write)) = (&mut node.quorum, node.disk.next_write()) else {
            return;
        };
        let mut effects = Vec::new();
        quorum.step(Now::default(), Input::PersistFailed { write }, &mut effects);
        quorum.check();
        assert!(matches!(effects.last(), Some(Effect::Halt { .. })), "{effects:?}");
        assert!(quorum.deadline().is_none() && quorum.leader().is_none(), "{quorum}");
    }

    fn propose_to(&mut self, leader: NodeId, term: Term) {
        let request = self.world.request();
        let data = Bytes::from_static(b"the last word");
        self.world.shadow.propose(request, data.clone());
        self.world.step(leader, Input::Propose { request, term, data });
    }

    /// Election timeouts during which everything arrives at once and in order.
    fn quiet(&mut self, timeouts: u32) {
        let until = self.world.time
            + u64::try_from((self.world.limits.election_timeout * timeouts).as_micros())
                .expect("short");
        while self.world.time < until {
            self.settle();
            let next = self.world.next_deadline().expect("somebody waits").max(self.world.time);
            let wait = next.min(until) - self.world.time;
            self.world.pass(Duration::from_micros(wait.max(1000)));
        }
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..10_000 {
            let world = &mut self.world;
            let mut is_quiet = world.messages.is_empty();
            if !is_quiet {
                let (to, message) = world.messages.remove(0);
                world.step(to, Input::Received(message));
            }
            for id in world.nodes.keys().copied().collect::<Vec<_>>() {
                let in_flight = world.nodes[&id].disk.in_flight();
                is_quiet &= in_flight == 0;
                world.complete(id, in_flight);
            }
            if is_quiet {
                return;
            }
        }
        panic!("messages go round for ever");
    }
}
