//! What must hold of the quorum whatever happens: one leader a term, one history, nothing said
//! that the disk does not have, reads that miss nothing. Raft's theorems, watched from outside.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_core::id::RequestId;
use quorate_core::quorum::Quorum;
use quorate_core::quorum::interface::{
    Body, Configuration, Entry, Index, Member, Message, Payload, Position, Recovered, Snapshot,
    Term,
};

/// The one history, as it became known.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    committed: Vec<Known>,
    leaders: BTreeMap<Term, Member>,
    /// The last entry whose commit somebody was told of.
    answered: Index,
    proposals: BTreeMap<RequestId, Bytes>,
    reads: BTreeMap<RequestId, Index>,
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
pub(crate) struct App {
    pub(crate) applied: Index,
    hash: u64,
}

impl App {
    fn apply(&mut self, entry: &Entry) {
        assert_eq!(entry.index, self.applied.next(), "entries come in order");
        self.applied = entry.index;
        self.hash = mix(self.hash, entry);
    }

    /// Some bytes, more than one piece of them.
    pub(crate) fn snapshot(&self) -> Bytes {
        [self.applied.0.to_le_bytes(), self.hash.to_le_bytes(), [0; 8], [0; 8]].concat().into()
    }

    fn restore(data: &Bytes) -> Self {
        let number = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().expect("8 bytes"));
        Self { applied: Index(number(0)), hash: number(8) }
    }
}

fn mix(hash: u64, entry: &Entry) -> u64 {
    let kind = match &entry.payload {
        Payload::Data(data) => {
            data.iter().fold(1, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(*byte))
        }
        Payload::Configuration(configuration) => {
            2 + configuration.voters.len() as u64 + configuration.kept.len() as u64 * 100
        }
        Payload::LeaderChange => 3,
    };
    let sum = hash.wrapping_mul(0x0100_0000_01b3) ^ kind;
    sum.wrapping_mul(0x0100_0000_01b3) ^ (entry.index.0 << 32) ^ entry.term.0
}

impl Shadow {
    pub(crate) fn last(&self) -> Index {
        Index(self.committed.len() as u64)
    }

    fn known(&self, index: Index) -> Option<&Known> {
        self.committed.get(usize::try_from(index.0.checked_sub(1)?).expect("small"))
    }

    /// The voters by the last committed word.
    pub(crate) fn configuration(&self) -> Option<&Configuration> {
        self.configuration_at(self.last())
    }

    fn configuration_at(&self, index: Index) -> Option<&Configuration> {
        let until = usize::try_from(index.0).expect("small");
        self.committed[..until].iter().rev().find_map(|known| match &known.entry.payload {
            Payload::Configuration(configuration) => Some(configuration),
            _ => None,
        })
    }

    /// State machine safety: nobody is given another entry than anybody else.
    pub(crate) fn on_committed(&mut self, app: &mut App, term: Term, entries: &[Entry]) {
        assert!(!entries.is_empty(), "nothing is no news");
        for entry in entries {
            app.apply(entry);
            match self.known(entry.index) {
                Some(known) => {
                    assert_eq!(known.entry, *entry, "two histories");
                    assert_eq!(known.hash, app.hash, "two states behind {}", entry.index);
                }
                None => {
                    assert_eq!(entry.index, self.last().next());
                    let (entry, hash) = (entry.clone(), app.hash);
                    self.committed.push(Known { entry, known_in: term, hash });
                }
            }
        }
    }

    pub(crate) fn on_restore(&self, app: &mut App, snapshot: &Snapshot) {
        let index = snapshot.position.index;
        assert!(index >= app.applied, "the application goes back");
        let known = self.known(index).expect("only what is committed is in a snapshot");
        assert_eq!(known.entry.position(), snapshot.position, "a snapshot of another history");
        *app = App::restore(&snapshot.data);
        assert_eq!((app.applied, app.hash), (index, known.hash), "the state of another entry");
        assert_eq!(self.configuration_at(index), Some(&snapshot.configuration));
    }

    /// Election safety and leader completeness.
    pub(crate) fn on_leader(&mut self, leader: Member, quorum: &Quorum) {
        let term = quorum.term();
        if let Some(first) = self.leaders.insert(term, leader) {
            assert_eq!(first, leader, "two leaders in term {term}");
            return;
        }
        for known in self.committed.iter().filter(|known| known.known_in < term) {
            let position = known.entry.position();
            let is_there =
                position.index <= quorum.log().base().index || quorum.log().has(position);
            assert!(is_there, "the leader of term {term} lacks {position}: {quorum}");
        }
    }

    /// Nothing is said that a crash could take back.
    pub(crate) fn on_sent(&self, message: &Message, to: Option<Member>, disk: &Recovered) {
        assert!(disk.hard.term >= message.term, "a term is told before it is durable");
        match &message.body {
            Body::VoteReply { granted: true } => {
                let is_kept = disk.hard.term > message.term || disk.hard.vote == to;
                assert!(is_kept, "a vote is given before it is durable");
            }
            Body::Vote { .. } => {
                let is_kept = disk.hard.term > message.term || disk.hard.vote == Some(message.from);
                assert!(is_kept, "a vote is asked for before one's own is durable");
            }
            _ => {}
        }
    }

    /// What is acknowledged is on the disk, and is what is in memory.
    pub(crate) fn on_acknowledged(&self, through: Index, quorum: &Quorum, disk: &Recovered) {
        let is_there = through <= disk.log.base().index
            || (disk.log.term(through).is_some()
                && disk.log.term(through) == quorum.log().term(through))
            || through <= quorum.log().base().index && through <= disk.log.last().index;
        assert!(is_there, "{through} is acknowledged before it is durable: {quorum}");
    }

    /// A leader commits what a majority has on its disks, counted anew; a voter whose disk was
    /// wiped may have had it.
    pub(crate) fn on_leader_committed(
        &self,
        quorum: &Quorum,
        disks: &BTreeMap<Member, &Recovered>,
    ) {
        let index = quorum.committed();
        let position = Position::new(index, quorum.log().term(index).expect("it is here"));
        let voters = quorum.configuration().expect("a leader has voters");
        let has = |member: Member| match disks.get(&member) {
            Some(disk) => disk.log.has(position) || disk.snapshot.position.index >= position.index,
            None => true,
        };
        let count = voters.voters.iter().filter(|voter| has(**voter)).count();
        assert!(count * 2 > voters.voters.len(), "{position} is committed by {count}: {quorum}");
    }

    pub(crate) fn propose(&mut self, request: RequestId, data: Bytes) {
        self.proposals.insert(request, data);
    }

    pub(crate) fn on_answered(&mut self, request: RequestId, position: Position) {
        self.answered = self.answered.max(position.index);
        let proposed = self.proposals.remove(&request);
        let known = self.known(position.index).expect("an answer before the entry");
        assert_eq!(known.entry.position(), position);
        if let Some(data) = proposed {
            assert_eq!(known.entry.payload, Payload::Data(data), "somebody else's entry");
        }
    }

    pub(crate) fn read(&mut self, request: RequestId) {
        self.reads.insert(request, self.answered);
    }

    /// A read sees everything that was answered before it was asked.
    pub(crate) fn on_readable(&mut self, request: RequestId, through: Index, app: &App) {
        let answered = self.reads.remove(&request).expect("somebody reads");
        assert!(through >= answered, "a read of {through} misses {answered}");
        assert!(app.applied >= through, "read before it can be");
    }

    /// Log matching, over all that is held in memory.
    pub(crate) fn check_logs(&self, quorums: &[&Quorum]) {
        for (place, one) in quorums.iter().enumerate() {
            for other in &quorums[place + 1..] {
                let mut agree = false;
                let entries: Vec<&Entry> = one.log().entries().collect();
                for entry in entries.into_iter().rev() {
                    let Some(twin) = other.log().entry(entry.index) else { continue };
                    agree |= twin.term == entry.term;
                    assert!(!agree || twin == entry, "logs differ below a match: {one}; {other}");
                }
            }
        }
    }

    /// Each proposal stands in the history once at most.
    pub(crate) fn check_once(&self) {
        let mut seen = BTreeSet::new();
        for known in &self.committed {
            if let Payload::Data(data) = &known.entry.payload {
                assert!(seen.insert(data.clone()), "a proposal was committed twice");
            }
        }
    }
}
