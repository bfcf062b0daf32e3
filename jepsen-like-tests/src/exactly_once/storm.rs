//! What strikes in a run of `exactly-once`: one fault after another, some at once, each on whoever
//! has the part that it is aimed at.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use quorate_sim::chance::{Between, Chance};

use super::crew::{Crew, Part};
use super::{GROUP, PARTITIONS, TOPICS};
use crate::trio::Trio;
use crate::wire::Connection;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// SIGKILL, and started again.
    Kill,
    /// SIGSTOP for a while. Of a client's id somebody else may take possession meanwhile.
    Pause,
    /// Nothing passes between it and the others.
    Cut,
    /// Nothing of what it says passes, or nothing of what the others say to it.
    HalfCut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Leader,
    TransactionCoordinator,
    GroupCoordinator,
    Controller,
    /// Every node at once.
    AllNodes,
    Producer,
    Copier,
    Reader,
}

/// Of each stroke, how many draws in so many lead to it.
const TARGETS: [Target; 16] = [
    Target::Leader,
    Target::Leader,
    Target::TransactionCoordinator,
    Target::TransactionCoordinator,
    Target::TransactionCoordinator,
    Target::TransactionCoordinator,
    Target::GroupCoordinator,
    Target::GroupCoordinator,
    Target::Controller,
    Target::AllNodes,
    Target::Producer,
    Target::Producer,
    Target::Copier,
    Target::Copier,
    Target::Copier,
    Target::Reader,
];
const OF_NODES: [Kind; 5] = [Kind::Kill, Kind::Kill, Kind::Pause, Kind::Cut, Kind::HalfCut];
const OF_CLIENTS: [Kind; 5] = [Kind::Kill, Kind::Pause, Kind::Pause, Kind::Cut, Kind::HalfCut];

const fn milliseconds(low: u64, high: u64) -> Between<Duration> {
    Between { low: Duration::from_millis(low), high: Duration::from_millis(high) }
}

/// Of a client that is killed, or of all nodes.
const SHORT: Between<Duration> = milliseconds(200, 3000);
/// Around a session of six seconds, and around a transaction of eight.
const LONG: Between<Duration> = milliseconds(400, 10_000);
const BETWEEN: Between<Duration> = milliseconds(200, 6000);

/// Whom a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Node(i32),
    /// By slot.
    Client(usize),
}

#[derive(Debug)]
struct Strike {
    kind: Kind,
    victim: Victim,
    until: Duration,
    ways: Vec<(i32, i32)>,
}

#[derive(Debug)]
pub(super) struct Storm {
    chance: Chance,
    active: Vec<Strike>,
    next: Duration,
    /// How often each way is cut now.
    cuts: BTreeMap<(i32, i32), usize>,
    pub(super) counts: BTreeMap<(Target, Kind), usize>,
}

impl fmt::Display for Strike {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} {:?} until {:?} {:?}", self.kind, self.victim, self.until, self.ways)
    }
}

impl Storm {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            chance: Chance::new(seed, "storm"),
            active: Vec::new(),
            next: Duration::from_secs(3),
            cuts: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Ends what is over, and strikes when it is time to. Says what was done.
    ///
    /// # Errors
    /// If processes or networks do not obey.
    pub(super) fn blow(
        &mut self,
        now: Duration,
        trio: &mut Trio,
        crew: &mut Crew,
    ) -> io::Result<Vec<String>> {
        let mut said = Vec::new();
        let (over, active): (Vec<Strike>, Vec<Strike>) =
            self.active.drain(..).partition(|strike| strike.until <= now);
        self.active = active;
        for strike in over {
            said.push(format!("ends {strike}"));
            self.end(&strike, trio, crew)?;
        }
        if now < self.next {
            return Ok(said);
        }
        self.next = now + self.chance.duration(BETWEEN);
        let target = *self.chance.pick(&TARGETS);
        for (kind, victim) in self.aim(target, trio, crew) {
            let strike = self.strike(kind, victim, now, trio, crew)?;
            said.push(format!("{target:?} {strike}"));
            *self.counts.entry((target, kind)).or_default() += 1;
            self.active.push(strike);
        }
        Ok(said)
    }

    /// Ends everything.
    ///
    /// # Errors
    /// If processes or networks do not obey.
    pub(super) fn calm(&mut self, trio: &mut Trio, crew: &mut Crew) -> io::Result<()> {
        for strike in std::mem::take(&mut self.active) {
            self.end(&strike, trio, crew)?;
        }
        crew.hurry();
        Ok(())
    }

    pub(super) fn struck_nodes(&self) -> Vec<i32> {
        let node = |strike: &Strike| match strike.victim {
            Victim::Node(id) => Some(id),
            Victim::Client(_) => None,
        };
        self.active.iter().filter_map(node).collect()
    }

    /// Who has the part just now, if faults may strike there.
    fn aim(&mut self, target: Target, trio: &Trio, crew: &Crew) -> Vec<(Kind, Victim)> {
        let struck = self.struck_nodes();
        let part = match target {
            Target::Producer => Some(Part::Produces),
            Target::Copier => Some(Part::Copies),
            Target::Reader => Some(Part::Reads),
            _ => None,
        };
        if let Some(part) = part {
            let free = |slot: &usize| {
                let victim = Victim::Client(*slot);
                crew.slots[*slot].part == part && self.active.iter().all(|it| it.victim != victim)
            };
            let slots: Vec<usize> = (0..crew.slots.len()).filter(free).collect();
            if slots.is_empty() {
                return Vec::new();
            }
            let slot = *self.chance.pick(&slots);
            return vec![(*self.chance.pick(&OF_CLIENTS), Victim::Client(slot))];
        }
        if target == Target::AllNodes {
            let all = if struck.is_empty() { trio.ids() } else { Vec::new() };
            return all.into_iter().map(|id| (Kind::Kill, Victim::Node(id))).collect();
        }
        // One of three may be missed; sometimes two are, and nothing can be committed for a while.
        let most = if self.chance.one_in(6) { 2 } else { 1 };
        let node = self.who_has(target, trio, crew, &struck);
        match node.filter(|node| struck.len() < most && !struck.contains(node)) {
            Some(node) => vec![(*self.chance.pick(&OF_NODES), Victim::Node(node))],
            None => Vec::new(),
        }
    }

    fn who_has(&mut self, target: Target, trio: &Trio, crew: &Crew, struck: &[i32]) -> Option<i32> {
        let topic = *self.chance.pick(&TOPICS);
        let index = self.chance.below(u64::from(PARTITIONS.unsigned_abs())) as usize;
        let ids: Vec<&str> = crew
            .slots
            .iter()
            .filter(|slot| slot.part != Part::Reads)
            .map(|slot| slot.id.as_str())
            .collect();
        let id = *self.chance.pick(&ids);
        ask(trio, struck, |connection| match target {
            Target::TransactionCoordinator => connection.coordinator(id, 1),
            Target::GroupCoordinator => connection.coordinator(GROUP, 0),
            Target::Controller => Ok(connection.describe(topic)?.controller),
            _ => Ok(connection.describe(topic)?.partitions.get(index).map_or(-1, |it| it.leader)),
        })
        .filter(|node| trio.ids().contains(node))
    }

    fn strike(
        &mut self,
        kind: Kind,
        victim: Victim,
        now: Duration,
        trio: &mut Trio,
        crew: &mut Crew,
    ) -> io::Result<Strike> {
        let lasts = match (kind, victim) {
            (Kind::Kill, Victim::Client(_)) => SHORT,
            _ => LONG,
        };
        let until = now + self.chance.duration(lasts);
        let mut strike = Strike { kind, victim, until, ways: Vec::new() };
        match (kind, victim) {
            (Kind::Kill, Victim::Node(id)) => trio.kill(id)?,
            (Kind::Kill, Victim::Client(slot)) => crew.kill(slot, until)?,
            (Kind::Pause, Victim::Node(id)) => trio.signal(id, "-STOP")?,
            (Kind::Pause, Victim::Client(slot)) => {
                crew.pause(slot)?;
                if let (true, Some(network)) = (self.chance.one_in(2), trio.network()) {
                    crew.start(network, slot)?;
                }
            }
            (Kind::Cut | Kind::HalfCut, _) => {
                strike.ways = self.ways(kind, victim, trio, crew);
                for way in &strike.ways {
                    self.cut(*way, trio)?;
                }
            }
        }
        Ok(strike)
    }

    /// What is cut: between a node and the other nodes, or all; between a client and one node, or
    /// all nodes.
    fn ways(&mut self, kind: Kind, victim: Victim, trio: &Trio, crew: &Crew) -> Vec<(i32, i32)> {
        let (own, mut others) = match victim {
            Victim::Node(id) => {
                let mut others = trio.ids();
                if self.chance.one_in(2) {
                    others.extend(crew.slots.iter().map(|slot| slot.place));
                }
                (id, others)
            }
            Victim::Client(slot) => (crew.slots[slot].place, trio.ids()),
        };
        others.retain(|other| *other != own);
        if matches!(victim, Victim::Client(_)) && self.chance.one_in(2) {
            others = vec![*self.chance.pick(&others)];
        }
        let out = others.iter().map(|other| (own, *other));
        let back = others.iter().map(|other| (*other, own));
        match kind {
            Kind::HalfCut if self.chance.one_in(2) => out.collect(),
            Kind::HalfCut => back.collect(),
            _ => out.chain(back).collect(),
        }
    }

    fn cut(&mut self, way: (i32, i32), trio: &Trio) -> io::Result<()> {
        let Some(network) = trio.network() else { return Ok(()) };
        let cuts = self.cuts.entry(way).or_default();
        *cuts += 1;
        if *cuts == 1 { network.cut(way.0, way.1) } else { Ok(()) }
    }

    fn heal(&mut self, way: (i32, i32), trio: &Trio) -> io::Result<()> {
        let Some(network) = trio.network() else { return Ok(()) };
        let cuts = self.cuts.entry(way).or_default();
        *cuts -= 1;
        if *cuts == 0 { network.heal(way.0, way.1) } else { Ok(()) }
    }

    fn end(&mut self, strike: &Strike, trio: &mut Trio, crew: &mut Crew) -> io::Result<()> {
        match (strike.kind, strike.victim) {
            (Kind::Kill, Victim::Node(id)) => trio.start(id),
            (Kind::Pause, Victim::Node(id)) => trio.signal(id, "-CONT"),
            (Kind::Pause, Victim::Client(slot)) => crew.resume(slot),
            // The crew itself starts another one.
            (Kind::Kill, Victim::Client(_)) => Ok(()),
            (Kind::Cut | Kind::HalfCut, _) => {
                strike.ways.iter().try_for_each(|way| self.heal(*way, trio))
            }
        }
    }
}

/// The first answer of a node that nothing has struck.
pub(super) fn ask<T>(
    trio: &Trio,
    struck: &[i32],
    question: impl Fn(&mut Connection) -> io::Result<T>,
) -> Option<T> {
    let sound = trio.ids().into_iter().zip(trio.addresses());
    let mut answers = sound.filter(|(id, _)| !struck.contains(id)).filter_map(|(_, address)| {
        let mut connection = Connection::brief(address).ok()?;
        question(&mut connection).ok()
    });
    answers.next()
}
