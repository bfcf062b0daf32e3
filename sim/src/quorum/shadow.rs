//! What must hold of the quorum whatever happens: one leader a term, elected by votes that are on
//! disks; one history; nothing said that the disk does not have; reads that miss nothing; nobody
//! who could be elected without what is committed. Raft's theorems, watched from outside.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_core::id::RequestId;
use quorate_core::quorum::Quorum;
use quorate_core::quorum::interface::{
    Body, Configuration, Entry, Index, Member, Message, Payload, Position, Recovered, Snapshot,
    Term,
};

use super::usurper::{self, Holding};
use crate::check::Violation;

/// The one history, as it became known.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    committed: Vec<Known>,
    leaders: BTreeMap<Term, Member>,
    /// The last entry that a leader took for committed.
    decided: Position,
    /// The last entry whose commit somebody was told of.
    answered: Index,
    proposals: BTreeMap<RequestId, Bytes>,
    reads: BTreeMap<RequestId, Index>,
    violations: Vec<Violation>,
    /// Somebody else judges.
    pub(super) is_off: bool,
}

#[derive(Debug)]
struct Known {
    entry: Entry,
    /// A term in which it was known to be committed.
    known_in: Term,
    /// Of everything up to here.
    hash: u64,
}

/// The application: it knows how far it is, and what all that amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct App {
    pub(super) applied: Index,
    hash: u64,
}

impl App {
    /// Some bytes, more than one piece of them.
    pub(super) fn snapshot(&self) -> Bytes {
        [self.applied.0.to_le_bytes(), self.hash.to_le_bytes(), [0; 8], [0; 8]].concat().into()
    }

    fn restore(data: &Bytes) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?));
        Some(Self { applied: Index(number(0)?), hash: number(8)? })
    }
}

fn mix(hash: u64, entry: &Entry) -> u64 {
    let kind = match &entry.payload {
        Payload::Data(data) => crate::chance::fnv(1, data),
        Payload::Configuration(configuration) => {
            2 + configuration.voters.len() as u64 + configuration.kept.len() as u64 * 100
        }
        Payload::LeaderChange => 3,
    };
    let sum = hash.wrapping_mul(0x0100_0000_01b3) ^ kind;
    sum.wrapping_mul(0x0100_0000_01b3) ^ (entry.index.0 << 32) ^ entry.term.0
}

impl Shadow {
    /// The first is enough: one wrong decision leads to many.
    pub(super) fn blame(&mut self, property: &'static str, sentence: String) {
        if self.violations.is_empty() && !self.is_off {
            self.violations.push(Violation { property, place: "quorum".to_owned(), sentence });
        }
    }

    pub(super) fn is_blamed(&self) -> bool {
        !self.violations.is_empty()
    }

    pub(super) fn take(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    /// How far the history is known.
    pub(super) fn last(&self) -> Index {
        Index(self.committed.len() as u64)
    }

    fn known(&self, index: Index) -> Option<&Known> {
        self.committed.get(index.0.checked_sub(1)? as usize)
    }

    /// The voters by the last committed word.
    pub(super) fn configuration(&self) -> Option<&Configuration> {
        self.configuration_at(self.last())
    }

    fn configuration_at(&self, index: Index) -> Option<&Configuration> {
        let until = self.committed.get(..index.0 as usize)?;
        until.iter().rev().find_map(|known| match &known.entry.payload {
            Payload::Configuration(configuration) => Some(configuration),
            _ => None,
        })
    }

    /// State machine safety: nobody is given another entry than anybody else.
    pub(super) fn on_committed(&mut self, app: &mut App, term: Term, entries: &[Entry]) {
        for entry in entries {
            let position = entry.position();
            if entry.index != app.applied.next() {
                let sentence = format!("{position} is given to who has applied {}", app.applied);
                return self.blame("applied-out-of-order", sentence);
            }
            app.applied = entry.index;
            app.hash = mix(app.hash, entry);
            match self.known(entry.index) {
                Some(known) if known.entry != *entry => {
                    let sentence = format!("{position} is committed, and {:?} was", known.entry);
                    return self.blame("two-histories", sentence);
                }
                Some(known) if known.hash != app.hash => {
                    return self.blame("two-states", format!("two states behind {position}"));
                }
                Some(_) => {}
                None => {
                    let (entry, hash) = (entry.clone(), app.hash);
                    self.committed.push(Known { entry, known_in: term, hash });
                }
            }
        }
    }

    pub(super) fn on_restore(&mut self, app: &mut App, snapshot: &Snapshot) {
        let position = snapshot.position;
        if position.index < app.applied {
            let sentence = format!("who has applied {} is given {position}", app.applied);
            return self.blame("applied-out-of-order", sentence);
        }
        let Some(known) = self.known(position.index) else {
            let sentence = format!("a snapshot of {position}, which is not committed");
            return self.blame("two-histories", sentence);
        };
        if known.entry.position() != position {
            let sentence = format!("a snapshot of {position}, and {:?} was there", known.entry);
            return self.blame("two-histories", sentence);
        }
        *app = App::restore(&snapshot.data).unwrap_or_default();
        if (app.applied, app.hash) != (position.index, known.hash) {
            let sentence = format!("the snapshot of {position} holds {}", app.applied);
            return self.blame("two-states", sentence);
        }
        if self.configuration_at(position.index) != Some(&snapshot.configuration) {
            let sentence = format!("the snapshot of {position} has other voters");
            self.blame("two-states", sentence);
        }
    }

    /// Election safety and leader completeness. `disks` hold what is durable; a disk that is gone
    /// may have had the vote.
    pub(super) fn on_leader(
        &mut self,
        leader: Member,
        quorum: &Quorum,
        disks: &BTreeMap<Member, &Recovered>,
    ) {
        let term = quorum.term();
        let first = *self.leaders.entry(term).or_insert(leader);
        if first != leader {
            let sentence = format!("{first} and {leader} lead in term {term}");
            return self.blame("two-leaders", sentence);
        }
        let voted = |voter: Member| {
            disks.get(&voter).is_none_or(|disk| {
                disk.hard.term > term || disk.hard.term == term && disk.hard.vote == Some(leader)
            })
        };
        // Who is alone leads at once: what it writes comes behind its vote.
        if let Some(voters) = quorum.configuration()
            && voters.voters.len() > 1
            && !voters.has_majority(voted)
        {
            let sentence = format!("{quorum} leads without the votes of a majority");
            return self.blame("elected-without-votes", sentence);
        }
        let base = quorum.log().base().index;
        let before = self.committed.iter().filter(|known| known.known_in < term);
        let mut positions = before.map(|known| known.entry.position());
        let lacks = |position: &Position| position.index > base && !quorum.log().has(*position);
        if let Some(position) = positions.find(lacks) {
            let sentence = format!("the leader of term {term} lacks {position}: {quorum}");
            self.blame("leader-lacks-committed", sentence);
        }
    }

    /// Nothing is said that a crash could take back.
    pub(super) fn on_sent(&mut self, message: &Message, to: Option<Member>, disk: &Recovered) {
        let hard = disk.hard;
        let keeps = |vote| hard.term > message.term || hard.vote == vote;
        let is_kept = match &message.body {
            Body::VoteReply { granted: true } => keeps(to),
            Body::Vote { .. } => keeps(Some(message.from)),
            _ => true,
        };
        if hard.term < message.term || !is_kept {
            let sentence = format!("{message:?} is said, and {hard:?} is on the disk");
            self.blame("said-before-durable", sentence);
        }
    }

    /// What is acknowledged, or applied, is on the disk, and is what is in memory.
    pub(super) fn on_acknowledged(&mut self, through: Index, quorum: &Quorum, disk: &Recovered) {
        let (own, log) = (&disk.log, quorum.log());
        let is_there = through <= own.base().index
            || own.term(through).is_some() && own.term(through) == log.term(through)
            || through <= log.base().index && through <= own.last().index;
        if !is_there {
            let sentence = format!("{through} is acknowledged before it is durable: {quorum}");
            self.blame("said-before-durable", sentence);
        }
    }

    /// A leader commits what a majority has on its disks, counted anew; a voter whose disk was
    /// wiped may have had it.
    pub(super) fn on_leader_committed(
        &mut self,
        quorum: &Quorum,
        disks: &BTreeMap<Member, &Recovered>,
    ) {
        let index = quorum.committed();
        let Some(term) = quorum.log().term(index) else { return };
        let position = Position::new(index, term);
        if position.index > self.decided.index {
            self.decided = position;
        }
        let has = |member: Member| {
            disks.get(&member).is_none_or(|disk| {
                disk.log.has(position) || disk.snapshot.position.index >= position.index
            })
        };
        // A step that commits may go on to change the voters.
        let voters = [quorum.configuration(), quorum.log().configuration_at(index)];
        if !voters.into_iter().flatten().any(|voters| voters.has_majority(has)) {
            let sentence = format!("{position} is committed, and no majority has it: {quorum}");
            self.blame("committed-without-majority", sentence);
        }
    }

    /// Leader completeness, before it comes to an election.
    pub(super) fn check_usurpers(&mut self, holdings: &[Holding<'_>]) {
        if self.decided.index > Index::ZERO
            && let Some(member) = usurper::find(holdings, self.decided)
        {
            let position = self.decided;
            let sentence = format!("{member} lacks {position}, and a majority would elect it");
            self.blame("committed-not-safe", sentence);
        }
    }

    pub(super) fn propose(&mut self, request: RequestId, data: Bytes) {
        self.proposals.insert(request, data);
    }

    pub(super) fn on_answered(&mut self, request: RequestId, position: Position) {
        self.answered = self.answered.max(position.index);
        let proposed = self.proposals.remove(&request);
        let Some(known) = self.known(position.index) else {
            let sentence = format!("{position} is answered before anybody was given it");
            return self.blame("early-answer", sentence);
        };
        let is_wrong = known.entry.position() != position
            || proposed.is_some_and(|data| known.entry.payload != Payload::Data(data));
        if is_wrong {
            let sentence = format!("{position} is answered, and {:?} is there", known.entry);
            self.blame("early-answer", sentence);
        }
    }

    pub(super) fn read(&mut self, request: RequestId) {
        self.reads.insert(request, self.answered);
    }

    /// A read sees everything that was answered before it was asked.
    pub(super) fn on_readable(&mut self, request: RequestId, through: Index, app: &App) {
        let answered = self.reads.remove(&request).unwrap_or_default();
        if through < answered || app.applied < through {
            let applied = app.applied;
            let sentence =
                format!("a read of {through} where {applied} is applied misses {answered}");
            self.blame("stale-read", sentence);
        }
    }

    /// Log matching, over all that is held in memory.
    pub(super) fn check_logs(&mut self, quorums: &[&Quorum]) {
        for (place, one) in quorums.iter().enumerate() {
            for other in &quorums[place + 1..] {
                let mut agree = false;
                let entries: Vec<&Entry> = one.log().entries().collect();
                for entry in entries.into_iter().rev() {
                    let Some(twin) = other.log().entry(entry.index) else { continue };
                    agree |= twin.term == entry.term;
                    if agree && twin != entry {
                        let sentence = format!("logs differ below a match: {one}; {other}");
                        return self.blame("log-matching", sentence);
                    }
                }
            }
        }
    }

    /// Each proposal stands in the history once at most.
    pub(super) fn check_once(&mut self) {
        let mut seen = BTreeSet::new();
        let data = self.committed.iter().filter_map(|known| match &known.entry.payload {
            Payload::Data(data) => Some(data),
            _ => None,
        });
        if let Some(twice) = data.into_iter().find(|data| !seen.insert(*data)) {
            let sentence = format!("{twice:?} was committed twice");
            self.blame("duplicate", sentence);
        }
    }
}
