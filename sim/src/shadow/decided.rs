//! The metadata quorum, watched from outside: one leader a term, elected by votes that are on
//! disks; one history, committed by entries that are on a majority's disks; one state behind each
//! entry. Raft's theorems, counted naively.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_core::batch::checksum::checksum;
use quorate_core::batch::{Batch, Records};
use quorate_core::id::{DirectoryId, NodeId, WriteId};
use quorate_core::metadata::payload;
use quorate_core::partition::interface::LogOp;
use quorate_core::quorum::Quorum;
use quorate_core::quorum::interface::{
    Entry, Index, LogOp as Operation, Member, Position, Recovered, Term,
};
use quorate_core::shard::seat::Seat;
use quorate_core::time::Timestamp;

use super::{Blamed, node_name};
use crate::quorum::usurper::{self, Holding};
use crate::trace::{self, Aside};

/// Larger than any batch of the metadata in a simulated life.
const BATCH_BYTES_MAX: usize = 1 << 30;

#[derive(Debug, Default)]
pub(super) struct Decided {
    seats: BTreeMap<NodeId, Watched>,
    /// Those whose disks are gone: what they had said may still be on its way.
    gone: Vec<Watched>,
    /// The one history, as it became known.
    committed: BTreeMap<Index, Known>,
    /// How far that is. An entry may have gone into a snapshot in the step that committed it, and
    /// then stands in no log when the step is looked at.
    known_through: Index,
    leaders: BTreeMap<Term, NodeId>,
    /// What all entries up to one amount to.
    images: BTreeMap<Index, u32>,
    doubted: BTreeSet<NodeId>,
    /// What was committed is gone, since it was known only on disks whose bytes were changed.
    is_forked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    position: Position,
    content: u32,
    /// The term in which somebody first said that it is committed.
    known_in: Term,
}

/// One node's place in the quorum.
#[derive(Debug, Default)]
struct Watched {
    me: Option<Member>,
    /// What is on its disk for certain.
    disk: Recovered,
    /// What it has asked for, all in all.
    asked: Recovered,
    in_flight: VecDeque<(WriteId, Vec<Operation>)>,
    /// Another life begins: what it found on its disk is seen at its next step.
    begins: bool,
    committed: Index,
    applied: Index,
    led: Option<Term>,
}

impl Watched {
    /// Whether the entry there is on its disk, itself or in a snapshot.
    fn has(&self, position: Position) -> bool {
        self.disk.log.has(position) || self.disk.snapshot.position.index >= position.index
    }
}

fn place() -> String {
    "quorum".to_owned()
}

impl Decided {
    pub(super) fn opened(&mut self, node: NodeId) {
        let watched = self.seats.entry(node).or_default();
        watched.begins = true;
        watched.in_flight.clear();
    }

    /// Which disk that was. One of which no step was seen has told nobody of itself.
    pub(super) fn wiped(&mut self, node: NodeId) -> Option<DirectoryId> {
        let watched = self.seats.remove(&node)?;
        let lost = watched.me.map(|me| DirectoryId(me.directory.0));
        self.gone.push(watched);
        lost
    }

    /// Everybody who is, or was, this member.
    fn known_as(&self, member: Member) -> impl Iterator<Item = &Watched> {
        let all = self.seats.values().chain(&self.gone);
        all.filter(move |watched| watched.me == Some(member))
    }

    pub(super) fn doubt(&mut self, node: NodeId) {
        self.doubted.insert(node);
    }

    pub(super) fn wants(&mut self, node: NodeId, write: WriteId, op: &LogOp, blamed: &mut Blamed) {
        let LogOp::Append { batch, .. } = op else { return };
        let Some(watched) = self.seats.get_mut(&node) else { return };
        if watched.begins {
            // What it adds up to is seen at the end of the round.
            return;
        }
        let operations = operations(batch);
        for operation in &operations {
            if let Operation::Truncate { after } = operation {
                let cut = watched.asked.log.entries().filter(|entry| entry.index > *after);
                let committed = cut.map(Entry::position).find(|position| {
                    let known = self.committed.get(&position.index);
                    known.is_some_and(|known| known.position == *position)
                });
                if let Some(position) = committed {
                    let sentence = format!("n{node} cuts {position}, which is committed");
                    blamed.blame("cuts-committed", place(), sentence);
                }
            }
            watched.asked.apply(operation);
        }
        watched.in_flight.push_back((write, operations));
    }

    pub(super) fn written(&mut self, node: NodeId, through: WriteId) {
        let Some(watched) = self.seats.get_mut(&node) else { return };
        while watched.in_flight.front().is_some_and(|(write, _)| *write <= through) {
            let Some((_, operations)) = watched.in_flight.pop_front() else { break };
            operations.iter().for_each(|operation| watched.disk.apply(operation));
        }
    }

    pub(super) fn stepped(&mut self, node: NodeId, seat: &Seat, blamed: &mut Blamed) {
        let is_doubted = self.doubted.contains(&node);
        let watched = self.seats.entry(node).or_default();
        watched.me = Some(seat.quorum().me());
        if std::mem::take(&mut watched.begins) {
            let sum = seat.log().sum();
            if !is_doubted && let Some(sentence) = forgotten(node, watched, sum) {
                blamed.blame("forgets", place(), sentence);
            }
            (watched.disk, watched.asked) = (sum.clone(), sum.clone());
            (watched.committed, watched.applied, watched.led) = Default::default();
        }
        let quorum = seat.quorum();
        if quorum.is_leader() && watched.led != Some(quorum.term()) {
            watched.led = Some(quorum.term());
            self.elected(node, quorum, blamed);
        }
        self.commits(node, quorum, blamed);
        self.applies(node, seat, blamed);
    }

    /// A leader has the votes of a majority on its disks, is the only one in its term, and has all
    /// that was committed before.
    fn elected(&mut self, node: NodeId, quorum: &Quorum, blamed: &mut Blamed) {
        let term = quorum.term();
        trace::aside(node_name(node), || Aside::Controls { term: term.0 });
        let first = *self.leaders.entry(term).or_insert(node);
        if first != node {
            let sentence = format!("n{first} and n{node} lead in term {term}");
            blamed.blame("two-leaders", place(), sentence);
        }
        let voted = |voter: Member| {
            self.known_as(voter).any(|watched| {
                let hard = watched.disk.hard;
                hard.term > term || hard.term == term && hard.vote == Some(quorum.me())
            })
        };
        // Who is alone leads at once: what it writes comes behind its vote.
        if let Some(voters) = quorum.configuration()
            && voters.voters.len() > 1
            && !voters.has_majority(voted)
        {
            let sentence = format!("n{node} leads in term {term} without a majority of the votes");
            blamed.blame("elected-without-votes", place(), sentence);
        }
        let (log, base) = (quorum.log(), quorum.log().base().index);
        let missing = self.committed.values().find(|known| {
            known.known_in < term && known.position.index > base && !log.has(known.position)
        });
        if let Some(known) = missing {
            // A majority of disks that nobody has touched meets every other in one of them, and
            // whoever has the entry there does not vote for who lacks it. With fewer it may be
            // gone: the end of a journal that has rotted looks like one that was torn.
            let is_sound = |voter: Member| !self.doubted.contains(&voter.node) && voted(voter);
            let is_alone = quorum.configuration().is_some_and(|voters| voters.voters.len() == 1);
            let is_founded = match is_alone {
                true => !self.doubted.contains(&node),
                false => quorum.configuration().is_some_and(|voters| voters.has_majority(is_sound)),
            };
            if !is_founded {
                self.is_forked = true;
                return;
            }
            let position = known.position;
            let sentence = format!("n{node} leads in term {term} and lacks {position}");
            blamed.blame("leader-lacks-committed", place(), sentence);
        }
    }

    /// What a node takes for committed is what others do, and was on a majority's disks when its
    /// leader said so.
    fn commits(&mut self, node: NodeId, quorum: &Quorum, blamed: &mut Blamed) {
        let Some(watched) = self.seats.get_mut(&node) else { return };
        let (before, now) = (watched.committed, quorum.committed());
        watched.committed = now;
        if now <= before {
            return;
        }
        if quorum.is_leader() && now > self.known_through {
            self.is_founded(node, quorum, now, blamed);
        }
        self.known_through = self.known_through.max(now);
        for entry in quorum.log().slice(before.next(), now, u64::MAX) {
            let content = checksum(format!("{:?}", entry.payload).as_bytes());
            let (position, known_in) = (entry.position(), quorum.term());
            let fresh = Known { position, content, known_in };
            let known = self.committed.entry(entry.index).or_insert(fresh);
            if (known.position, known.content) != (position, content) && !self.is_forked {
                let sentence = format!(
                    "n{node} takes {position} for committed, and {} is known to be",
                    known.position
                );
                blamed.blame("two-histories", place(), sentence);
            }
        }
    }

    /// Whether a leader may say that everything up to `through` is committed.
    fn is_founded(&self, node: NodeId, quorum: &Quorum, through: Index, blamed: &mut Blamed) {
        let Some(term) = quorum.log().term(through) else { return };
        if term != quorum.term() {
            let sentence = format!(
                "n{node}, which leads in term {}, commits {through} of term {term} by counting",
                quorum.term()
            );
            blamed.blame("old-term-counted", place(), sentence);
        }
        let position = Position::new(through, term);
        let has = |voter: Member| self.known_as(voter).any(|watched| watched.has(position));
        // A step that commits may go on to change the voters.
        let voters = [quorum.configuration(), quorum.log().configuration_at(through)];
        if !voters.into_iter().flatten().any(|voters| voters.has_majority(has)) {
            let sentence =
                format!("n{node} commits {position}, and a majority's disks do not have it");
            blamed.blame("committed-without-majority", place(), sentence);
        }
        self.is_safe(position, blamed);
    }

    /// Nobody could be elected who lacks what is committed.
    fn is_safe(&self, position: Position, blamed: &mut Blamed) {
        let known = self.seats.iter().filter(|(node, _)| !self.doubted.contains(node));
        let holdings = known.filter_map(|(_, watched)| {
            let asked = if watched.begins { &watched.disk } else { &watched.asked };
            Some(Holding { member: watched.me?, states: [&watched.disk, asked] })
        });
        if let Some(member) = usurper::find(&holdings.collect::<Vec<_>>(), position) {
            let sentence = format!("{member} lacks {position}, and a majority would elect it");
            blamed.blame("committed-not-safe", place(), sentence);
        }
    }

    /// The same entries make the same state.
    fn applies(&mut self, node: NodeId, seat: &Seat, blamed: &mut Blamed) {
        let (image, applied) = seat.image();
        let Some(watched) = self.seats.get_mut(&node) else { return };
        if std::mem::replace(&mut watched.applied, applied) == applied {
            return;
        }
        let state = checksum(&payload::snapshot_data(&image.to_records(), Timestamp(0)));
        let known = *self.images.entry(applied).or_insert(state);
        if known != state && !self.is_forked {
            let sentence = format!("n{node} has made another state of the entries up to {applied}");
            blamed.blame("two-states", place(), sentence);
        }
    }
}

/// What was on the disk for certain and was not found there. What was cut since is in flight.
fn forgotten(node: NodeId, watched: &Watched, found: &Recovered) -> Option<String> {
    let before = &watched.disk;
    let end = found.log.last().index;
    if end < watched.applied {
        let applied = watched.applied;
        return Some(format!("n{node} has applied {applied}, and its log ends at {end}"));
    }
    if found.hard.term < before.hard.term {
        return Some(format!("n{node} has forgotten term {}", before.hard.term));
    }
    if found.hard.term == before.hard.term
        && before.hard.vote.is_some()
        && found.hard.vote != before.hard.vote
    {
        return Some(format!("n{node} has forgotten its vote in term {}", before.hard.term));
    }
    None
}

/// What a batch of the quorum's log asks for. What cannot be read the node reports itself.
fn operations(batch: &Batch) -> Vec<Operation> {
    let Ok(bytes) = batch.uncompressed(BATCH_BYTES_MAX) else { return Vec::new() };
    let records = Records::new(&bytes, batch.header().record_count());
    let operation =
        |record: quorate_core::batch::Record<'_>| Operation::from_bytes(record.value?).ok();
    records.filter_map(Result::ok).filter_map(operation).collect()
}
