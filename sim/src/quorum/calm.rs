//! What is left when a storm is over: a majority works, everything arrives at once and in order,
//! and then a leader must be there in a bounded time, commit, and stay.

use std::collections::BTreeSet;

use quorate_core::id::NodeId;
use quorate_core::machine::Machine;
use quorate_core::quorum::interface::{Effect, Input, Member, Term};

use super::adversary::Adversary;

/// Election timeouts until a leader must be there, whatever was before.
const UNTIL_LED: u64 = 12;
/// Until another is there when the last one has died in a calm: one timeout passes until it is
/// missed, and another until everybody stands.
const UNTIL_NEXT: u64 = 5;
/// During which a leader must stay though some hear nothing.
const STAYS: u64 = 6;

/// What does not go on, in a sentence.
type Stuck = Result<(), String>;

impl Adversary {
    /// Everything works but for some nodes that a majority does not need, which stay down.
    pub(super) fn calm(&mut self, is_last: bool) -> Stuck {
        self.mend();
        if !self.members.survives(&BTreeSet::new()) {
            return Ok(());
        }
        // A cluster is founded by all or not at all.
        let is_founded = self.members.shadow.last().0 > 0;
        let dead = if is_founded && self.one_in(2) {
            self.spared(&BTreeSet::new(), None)
        } else {
            BTreeSet::new()
        };
        for id in self.members.all() {
            match (dead.contains(&id), self.members.is_up(id)) {
                (true, true) => self.members.crash(id),
                (false, false) => self.members.start(id),
                _ => {}
            }
        }
        self.recovers()?;
        self.stays(&dead)?;
        if self.one_in(2) {
            self.survives_its_leader(&dead)?;
        }
        for id in self.members.all() {
            if !self.members.is_up(id) {
                self.members.start(id);
            }
        }
        self.recovers()?;
        if is_last {
            self.give_votes_back()?;
            self.fail();
        }
        self.members.check_logs();
        Ok(())
    }

    fn leader_within(&mut self, timeouts: u64) -> Result<(NodeId, Term), String> {
        self.quiet(timeouts)?;
        let leads = |id| self.members.quorum(id).is_some_and(|own| own.leader() == Some(id));
        let leader = self.members.leader().filter(|(id, _)| leads(*id));
        leader.ok_or_else(|| {
            format!("no leader after {timeouts} election timeouts{}", self.members.status())
        })
    }

    /// A leader is found soon, commits, and everybody follows.
    fn recovers(&mut self) -> Stuck {
        let before = self.members.shadow.last();
        let (leader, term) = self.leader_within(UNTIL_LED)?;
        self.propose_to(leader, term, self.members.time.to_be_bytes().to_vec().into());
        self.quiet(4)?;
        let status = self.members.status();
        let end = self.members.shadow.last();
        if end <= before {
            return Err(format!("nothing is committed any more{status}"));
        }
        if self.members.leader() != Some((leader, term)) {
            return Err(format!("n{leader} of term {term} is deposed for nothing{status}"));
        }
        let voters = self.members.shadow.configuration().cloned().unwrap_or_default();
        let behind = self.members.nodes.values().find(|node| {
            let is_behind = node.quorum.is_some() && node.app.applied != end;
            is_behind && voters.is_voter(node.member)
        });
        match behind {
            Some(node) => Err(format!("{} is left behind {end}{status}", node.member)),
            None => Ok(()),
        }
    }

    /// Nobody deposes a leader whom a majority hears: not who hears nobody, or not the leader, or
    /// now and then.
    fn stays(&mut self, dead: &BTreeSet<NodeId>) -> Stuck {
        let Some((leader, term)) = self.members.leader() else { return Ok(()) };
        let gone: BTreeSet<Member> = dead.iter().map(|id| self.members.nodes[id].member).collect();
        let mut troubled = self.spared(&gone, Some(leader));
        troubled.retain(|id| !dead.contains(id));
        let (is_flapping, only_leader) = (self.one_in(3), self.one_in(3));
        for timeout in 0..STAYS {
            if is_flapping && timeout % 2 == 1 {
                self.members.links.mend();
            } else {
                for id in &troubled {
                    if only_leader {
                        self.members.links.cut(leader, *id);
                    } else {
                        self.deafen(*id);
                    }
                }
            }
            self.quiet(1)?;
        }
        self.members.links.mend();
        self.quiet(3)?;
        if self.members.leader() != Some((leader, term)) {
            let status = self.members.status();
            return Err(format!(
                "n{leader} of term {term} is deposed by who does not hear it, {troubled:?}{status}"
            ));
        }
        Ok(())
    }

    /// The leader dies, if it can be missed: another is there soon.
    fn survives_its_leader(&mut self, dead: &BTreeSet<NodeId>) -> Stuck {
        let Some((leader, term)) = self.members.leader() else { return Ok(()) };
        let gone = dead.iter().chain([&leader]);
        let gone = gone.map(|id| self.members.nodes[id].member).collect();
        if !self.members.survives(&gone) {
            return Ok(());
        }
        self.members.crash(leader);
        let (next, then) = self.leader_within(UNTIL_NEXT)?;
        if next == leader || then <= term {
            return Err(format!("n{next} leads in term {then} after n{leader} in {term}"));
        }
        Ok(())
    }

    /// Whoever lost its disk votes again in the end.
    fn give_votes_back(&mut self) -> Stuck {
        for _ in 0..20 {
            let Some((leader, _)) = self.members.leader() else { break };
            if !self.members.restore_votes(leader) {
                break;
            }
            self.quiet(1)?;
        }
        match self.members.missing_vote() {
            Some(node) => Err(format!("n{node} has no vote{}", self.members.status())),
            None => Ok(()),
        }
    }

    /// A failed write: whoever waits is refused, and nothing is done any more.
    fn fail(&mut self) {
        let Some((leader, term)) = self.members.leader() else { return };
        self.propose_to(leader, term, b"the last word".as_slice().into());
        let node = self.members.node(leader);
        let (Some(quorum), Some(write)) = (&mut node.quorum, node.disk.next_write()) else {
            return;
        };
        let mut effects = Vec::new();
        quorum.step(Default::default(), Input::PersistFailed { write }, &mut effects);
        let halts = matches!(effects.last(), Some(Effect::Halt { .. }));
        if !halts || quorum.deadline().is_some() || quorum.leader().is_some() {
            let sentence = format!("{quorum} goes on though its disk failed");
            self.members.shadow.blame("goes-on-without-disk", sentence);
        }
    }

    /// Election timeouts during which everything that is not cut arrives at once and in order.
    fn quiet(&mut self, timeouts: u64) -> Stuck {
        let timeout = self.members.limits.election_timeout.as_micros() as u64;
        let until = self.members.time + timeout * timeouts;
        while self.members.time < until {
            self.settle()?;
            let Some(next) = self.members.next_deadline() else { break };
            let next = next.max(self.members.time);
            self.members.pass((next.min(until) - self.members.time).max(1000));
        }
        self.settle()
    }

    fn settle(&mut self) -> Stuck {
        for _ in 0..10_000 {
            if self.members.shadow.is_blamed() {
                return Err("something went wrong before".to_owned());
            }
            let mut is_quiet = self.members.links.is_empty();
            if let Some(packet) = self.members.links.first() {
                self.members.deliver(packet);
            }
            for id in self.members.all() {
                let in_flight = self.members.nodes[&id].disk.in_flight();
                is_quiet &= in_flight == 0 || !self.members.is_up(id);
                self.members.complete(id, in_flight);
            }
            if is_quiet {
                return Ok(());
            }
        }
        Err(format!("messages go round for ever{}", self.members.status()))
    }
}
