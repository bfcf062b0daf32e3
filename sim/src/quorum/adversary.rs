//! Who decides what happens next, and sees everything: which message comes, which write is done,
//! who loses power, what is cut. Most of it is chance; some of it waits for the moment in which a
//! failure would hurt, or helps somebody to an election who should not win one.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_core::id::NodeId;
use quorate_core::quorum::Quorum;
use quorate_core::quorum::interface::{Input, Member, Term};

use super::members::{Members, Moment};
use crate::chance::{Chance, Ratio};
use crate::plan::Quorum as Plan;

pub(super) struct Adversary {
    pub(super) members: Members,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) chance: Chance,
    plan: Plan,
    /// Disks that do nothing until the weather changes.
    stuck: BTreeSet<NodeId>,
    next_data: u64,
}

impl Adversary {
    pub(super) fn new(seed: u64, plan: Plan, members: Members) -> Self {
        Self {
            members,
            counts: BTreeMap::new(),
            chance: Chance::new(seed, "quorum adversary"),
            plan,
            stuck: BTreeSet::new(),
            next_data: 0,
        }
    }

    /// One storm. All logs are looked at every so many steps.
    pub(super) fn rage(&mut self, look_every: u64) {
        self.members.lag = self.plan.lag;
        self.members.slices = self.plan.slices;
        for step in 0..self.plan.steps {
            if self.chance.below(self.plan.spell) == 0 {
                self.turn();
            }
            self.disturb();
            self.act();
            if let Some((id, moment)) = self.members.moment.take()
                && self.chance.hit(self.plan.ambush)
            {
                self.ambush(id, moment);
            }
            if self.members.checks && step % look_every == 0 {
                self.members.check_logs();
            }
            if self.members.shadow.is_blamed() {
                return;
            }
        }
        self.members.shadow.check_once();
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// What goes on anyhow.
    fn act(&mut self) {
        match self.chance.below(100) {
            0..62 => self.deliver(),
            62..80 => {
                let id = self.members.any();
                let count = 1 + self.chance.below(4) as usize;
                if !self.stuck.contains(&id) {
                    self.members.complete(id, count);
                }
            }
            // Without a leader nothing happens but time.
            80 if self.members.leaders().is_empty() => {
                let id = self.members.any();
                self.members.hurry(id);
            }
            80..87 => {
                let micros = self.chance.below(self.plan.slowness.as_micros() as u64);
                self.members.pass(micros);
            }
            87..94 => {
                let id = self.someone();
                self.propose(id);
            }
            94..97 => {
                let id = self.someone();
                self.read(id);
            }
            _ => {
                let id = self.members.any();
                if self.members.nodes[&id].wants_snapshot || self.chance.one_in(10) {
                    self.members.take_snapshot(id);
                }
            }
        }
    }

    fn disturb(&mut self) {
        let Plan { crashes, wipes, changes, restores, transfers, .. } = self.plan;
        let id = self.members.any();
        let mut chance = self.chance.below(1000);
        let mut falls = |weight: u32| {
            let falls = chance < u64::from(weight);
            chance = chance.wrapping_sub(u64::from(weight));
            falls
        };
        if falls(crashes) {
            self.count("crash");
            self.members.crash(id);
        } else if falls(40) {
            if !self.members.is_up(id) {
                self.members.start(id);
            }
        } else if falls(wipes) {
            let gone = BTreeSet::from([self.members.nodes[&id].member]);
            if self.members.shadow.last().0 > 0 && self.members.survives(&gone) {
                self.count("wipe");
                self.members.wipe(id);
            }
        } else if falls(changes) {
            let id = self.someone();
            self.count("change");
            self.members.change(id);
        } else if falls(restores) {
            let id = self.someone();
            self.members.restore_votes(id);
        } else if falls(transfers) {
            let leader = self.someone();
            self.count("transfer");
            if self.chance.one_in(4) {
                self.members.step(leader, Input::Resign);
            } else {
                let to = self.chance.one_in(2).then_some(id);
                let request = self.members.request();
                self.members.step(leader, Input::Transfer { request, to });
            }
        }
    }

    /// Mostly one of those who take themselves for leaders, however old.
    fn someone(&mut self) -> NodeId {
        let leaders = self.members.leaders();
        if leaders.is_empty() || self.chance.one_in(8) {
            return self.members.any();
        }
        *self.chance.pick(&leaders)
    }

    fn deliver(&mut self) {
        let Plan { loss, doubling, .. } = self.plan;
        if let Some(packet) = self.members.links.next(doubling, &mut self.chance)
            && !self.chance.hit(loss)
        {
            self.members.deliver(packet);
        }
    }

    fn read(&mut self, id: NodeId) {
        let request = self.members.request();
        self.members.shadow.read(request);
        self.members.step(id, Input::Read { request });
    }

    fn propose(&mut self, id: NodeId) {
        let Some(term) = self.members.quorum(id).map(Quorum::term) else { return };
        self.next_data += 1;
        let mut data = self.next_data.to_le_bytes().to_vec();
        data.resize(8 + self.chance.below(60) as usize, 0);
        self.propose_to(id, term, data.into());
    }

    pub(super) fn propose_to(&mut self, id: NodeId, term: Term, data: Bytes) {
        let request = self.members.request();
        self.members.shadow.propose(request, data.clone());
        self.members.step(id, Input::Propose { request, term, data });
    }

    /// The weather changes: other links are cut, other disks are stuck.
    fn turn(&mut self) {
        self.members.links.mend();
        self.stuck.clear();
        self.wake();
        if self.chance.one_in(4) {
            self.members.links.release(&mut self.chance);
        }
        if self.chance.one_in(2) {
            let stuck = self.members.all().into_iter().filter(|_| self.chance.one_in(3));
            self.stuck = stuck.collect();
        }
        if !self.chance.hit(self.plan.cuts) {
            return;
        }
        self.count("cut");
        match self.chance.below(10) {
            0 => self.split(),
            1 => {
                let id = self.members.any();
                self.isolate(id, &[]);
            }
            2 => {
                let id = self.members.any();
                self.deafen(id);
            }
            3 => {
                let id = self.members.any();
                self.mute(id);
            }
            4 => self.tangle(),
            5 => {
                let id = self.someone();
                self.keep_few(id);
            }
            6 => {
                let id = self.someone();
                self.strand(id);
            }
            7 => {
                let id = self.members.any();
                self.members.asleep.insert(id);
            }
            _ => {
                let id = self.members.any();
                self.usurp(id);
            }
        }
    }

    /// Whoever slept finds requests that came meanwhile, before it looks at its clock.
    fn wake(&mut self) {
        for id in std::mem::take(&mut self.members.asleep) {
            match self.chance.below(3) {
                0 => self.read(id),
                1 => self.propose(id),
                _ => {}
            }
        }
    }

    fn split(&mut self) {
        let all = self.members.all();
        let group = all.iter().copied().filter(|_| self.chance.one_in(2)).collect();
        self.members.links.part(&group, &all);
    }

    fn isolate(&mut self, id: NodeId, with: &[NodeId]) {
        let group = with.iter().copied().chain([id]).collect();
        let all = self.members.all();
        self.members.links.part(&group, &all);
    }

    pub(super) fn deafen(&mut self, id: NodeId) {
        for other in self.members.all() {
            self.members.links.cut(other, id);
        }
    }

    fn mute(&mut self, id: NodeId) {
        for other in self.members.all() {
            self.members.links.cut(id, other);
        }
    }

    /// Any links, in any direction.
    fn tangle(&mut self) {
        let all = self.members.all();
        for one in &all {
            for other in &all {
                if self.chance.one_in(3) {
                    self.members.links.cut(*one, *other);
                }
            }
        }
    }

    /// The node hears few others, fewer than it takes.
    fn keep_few(&mut self, id: NodeId) {
        let mut others = self.members.shuffled();
        others.retain(|other| *other != id);
        let few = self.chance.below(others.len() as u64 / 2 + 1) as usize;
        self.isolate(id, &others[..few]);
    }

    /// The node writes and some of it comes through; then it hears few others, and writes on.
    fn strand(&mut self, id: NodeId) {
        for is_cut in [false, true] {
            for _ in 0..1 + self.chance.below(3) {
                self.propose(id);
            }
            if !is_cut {
                self.members.links.silence(id, &mut self.chance);
                for _ in 0..self.chance.below(8) {
                    self.deliver();
                }
                self.keep_few(id);
            }
        }
    }

    /// All that stands between this node and an election is taken away: it is left alone with the
    /// smallest majority that would vote for it, without those who lead; then its time is up. If
    /// nobody can win who should not, that harms nobody.
    fn usurp(&mut self, id: NodeId) {
        let node = &self.members.nodes[&id];
        let (member, last) = (node.member, node.state().log.last());
        let Some(voters) = node.state().log.configuration().cloned() else { return };
        let leaders = self.members.leaders();
        let mut others = self.members.shuffled();
        others.retain(|other| {
            let other = &self.members.nodes[other];
            voters.is_voter(other.member) && last.is_up_to_date_with(other.state().log.last())
        });
        others.retain(|other| *other != id);
        others.sort_by_key(|other| leaders.contains(other));
        let needed = voters.majority() - usize::from(voters.is_voter(member));
        if others.len() < needed {
            return self.split();
        }
        self.count("usurp");
        let with = others[..needed].to_vec();
        self.isolate(id, &with);
        if self.chance.one_in(2) {
            // They do not know yet that their time is up.
            self.members.asleep.extend(leaders.into_iter().filter(|leader| *leader != id));
        }
        for node in with.iter().chain([&id]) {
            self.stuck.remove(node);
            self.members.asleep.remove(node);
            if !self.members.is_up(*node) {
                self.members.start(*node);
            }
        }
        self.members.hurry(id);
    }

    /// Something has just happened: a failure right behind it.
    fn ambush(&mut self, id: NodeId, moment: Moment) {
        self.count(moment.name());
        match (moment, self.chance.below(12)) {
            // Who leads and has committed nothing yet must not be trusted with much.
            (Moment::Elected, 0..3) => self.members.change(id),
            (Moment::Elected, 3) => self.read(id),
            (_, 0 | 1) => self.members.crash(id),
            (_, 2 | 3) => self.keep_few(id),
            (_, 4) => self.strand(id),
            (_, 5) => {
                self.mute(id);
                self.members.links.silence(id, &mut self.chance);
            }
            (_, 6) => self.members.links.silence(id, &mut self.chance),
            (_, 7) => self.members.change(id),
            (_, 8) => {
                self.members.asleep.insert(id);
            }
            (_, 9) => {
                let other = self.members.any();
                self.members.crash(other);
            }
            _ => {
                let other = self.members.any();
                self.usurp(other);
            }
        }
    }

    /// Nodes, as many as can be missed, that are not `except`: they are a minority of all voters
    /// that anybody knows of, with those whose disks are gone and those of `gone`.
    pub(super) fn spared(
        &mut self,
        gone: &BTreeSet<Member>,
        except: Option<NodeId>,
    ) -> BTreeSet<NodeId> {
        let mut gone = gone.clone();
        let mut spared = BTreeSet::new();
        for id in self.members.shuffled() {
            let member = self.members.nodes[&id].member;
            if Some(id) == except || gone.contains(&member) || self.chance.one_in(4) {
                continue;
            }
            gone.insert(member);
            if self.members.survives(&gone) {
                spared.insert(id);
            } else {
                gone.remove(&member);
            }
        }
        spared
    }

    /// Nothing is cut any more, no disk is stuck, and what was held back comes.
    pub(super) fn mend(&mut self) {
        self.members.lag = Ratio::NEVER;
        self.members.slices = Ratio::NEVER;
        self.members.asleep.clear();
        self.members.links.mend();
        self.members.links.release(&mut self.chance);
        self.stuck.clear();
    }

    pub(super) fn one_in(&mut self, of: u32) -> bool {
        self.chance.hit(Ratio::new(1, of))
    }
}

impl Moment {
    const fn name(self) -> &'static str {
        match self {
            Self::Elected => "struck when elected",
            Self::Configured => "struck when voters change",
            Self::Committed => "struck when committed",
            Self::Cut => "struck when cut",
        }
    }
}
