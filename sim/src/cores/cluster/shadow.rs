//! The omniscient observer of several nodes: what no client can see. Of the metadata: one leader a
//! term, one history, nothing committed that no majority has on its disks, one image at each entry,
//! nobody in sync who is fenced. Of each partition (`shadow/partitions.rs`): one leader an epoch,
//! nothing committed that not every member in sync has on its disk, copies that agree.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use quorate_core::id::{PartitionId, ProducerId};
use quorate_core::metadata::Image;
use quorate_core::quorum::Quorum;
use quorate_core::quorum::interface::{
    Entry, Index, Member as Voter, Payload, Position, Role, Term,
};

use super::NAMES;
use super::node::{Node, place_of};
use crate::check::Violation;
use crate::plan::Plan;
use crate::quorum::usurper::{self, Holding};
use crate::trace::{self, Aside, Mark};

mod partitions;

use self::partitions::Committed;

/// Images that are kept for nodes that are a little behind.
const IMAGES_KEPT: usize = 64;

/// An entry of the metadata log, as it was first known to be committed.
struct Known {
    term: Term,
    content: u64,
    /// In this term it was known to be committed.
    known_in: Term,
}

pub(super) struct Shadow {
    pub(super) violations: Vec<Violation>,
    /// The metadata behind the last entry that anybody has applied.
    pub(super) truth: Rc<Image>,
    applied: Index,
    images: BTreeMap<Index, Rc<Image>>,
    /// By index. One that was forgotten in the step that committed it is not here.
    entries: BTreeMap<Index, Known>,
    leaders: BTreeMap<Term, usize>,
    partitions: BTreeMap<PartitionId, Committed>,
    /// A disk was lost.
    pub(super) wiped: bool,
    /// A log was dropped, since its partition went elsewhere.
    pub(super) is_dropped: bool,
    /// A human had partitions led by whoever was there: what was committed may be lost.
    pub(super) is_unclean: bool,
    /// Blocks that were given to nodes: the first id, and that behind the last.
    producer_ids: BTreeMap<ProducerId, ProducerId>,
}

impl Shadow {
    pub(super) fn new(_: &Plan) -> Self {
        Self {
            violations: Vec::new(),
            truth: Rc::default(),
            applied: Index::ZERO,
            images: BTreeMap::new(),
            entries: BTreeMap::new(),
            leaders: BTreeMap::new(),
            partitions: BTreeMap::new(),
            wiped: false,
            is_dropped: false,
            is_unclean: false,
            producer_ids: BTreeMap::new(),
        }
    }

    /// The first of its kind says enough.
    pub(super) fn blame(&mut self, property: &'static str, place: &str, sentence: String) {
        if self.violations.iter().all(|known| known.property != property) {
            trace::aside("all", || Aside::Blames { property });
            self.violations.push(Violation { property, place: place.to_owned(), sentence });
        }
    }

    /// The name of a partition as plans have it.
    fn name(&self, id: PartitionId) -> String {
        let topic = self.truth.topic(id.topic);
        topic.map_or_else(|| id.to_string(), |topic| format!("{}-{}", topic.name, id.index))
    }

    pub(super) fn on_wipe(&mut self, _: usize) {
        self.wiped = true;
    }

    /// A node was given these ids: nobody had them before.
    pub(super) fn on_producer_ids(&mut self, first: ProducerId, end: ProducerId) {
        let before = self.producer_ids.range(..end).next_back();
        if let Some((&from, &to)) = before.filter(|(_, to)| **to > first) {
            let sentence = format!("ids {first}..{end} are given, and {from}..{to} were");
            self.blame("producer-ids", "the controller", sentence);
        }
        self.producer_ids.insert(first, end);
    }

    /// After a step of a node: what its seat knows.
    pub(super) fn look_at_seat(&mut self, nodes: &mut [Node], n: usize, now: Duration) {
        let Some(seat) = nodes[n].shard.as_ref().and_then(|shard| shard.seat()) else { return };
        let quorum = seat.quorum();
        if let Role::Leading { term } = quorum.role()
            && self.leaders.get(&term) != Some(&n)
        {
            self.on_leader(n, term, quorum);
        }
        let (committed, (image, applied)) = (quorum.committed(), seat.image());
        let (was_committed, was_applied) = (nodes[n].committed, nodes[n].applied);
        if committed > was_committed {
            self.on_committed(nodes, n, was_committed, quorum);
        }
        if applied > was_applied {
            self.on_applied(nodes, n, applied, image, now);
        }
        nodes[n].committed = nodes[n].committed.max(committed);
        nodes[n].applied = applied;
    }

    /// Election safety and leader completeness.
    fn on_leader(&mut self, n: usize, term: Term, quorum: &Quorum) {
        if let Some(&first) = self.leaders.get(&term) {
            let sentence = format!("{} and {} lead in term {term}", NAMES[first], NAMES[n]);
            self.blame("one-controller", "the quorum", sentence);
            return;
        }
        self.leaders.insert(term, n);
        trace::aside(NAMES[n], || Aside::Controls { term: term.0 });
        let base = quorum.log().base().index;
        let known = self.entries.iter();
        let lacks = known.filter(|(index, known)| known.known_in < term && **index > base);
        let positions = lacks.map(|(index, known)| Position::new(*index, known.term));
        let missing = positions.into_iter().find(|position| !quorum.log().has(*position));
        if let Some(position) = missing {
            let sentence = format!("{} leads term {term} and lacks {position}", NAMES[n]);
            self.blame("leader-completeness", "the quorum", sentence);
        }
    }

    /// State machine safety: nobody commits another entry than anybody else; and nothing is
    /// committed that no majority has on its disks.
    fn on_committed(&mut self, nodes: &[Node], n: usize, from: Index, quorum: &Quorum) {
        for index in (from.0 + 1..=quorum.committed().0).map(Index) {
            let Some(entry) = quorum.log().entry(index) else { continue };
            let content = content(entry);
            match self.entries.get(&index) {
                Some(known) if (known.term, known.content) == (entry.term, content) => {}
                Some(known) => {
                    let sentence = format!(
                        "{} commits {}, and {index}@{} was committed",
                        NAMES[n],
                        entry.position(),
                        known.term
                    );
                    self.blame("log-matching", "the quorum", sentence);
                }
                None => {
                    let (term, known_in) = (entry.term, quorum.term());
                    self.entries.insert(index, Known { term, content, known_in });
                    self.is_held_by_majority(nodes, entry.position(), quorum);
                }
            }
        }
    }

    /// Counted anew, on the disks. A voter whose disk was lost may have had it.
    fn is_held_by_majority(&mut self, nodes: &[Node], position: Position, quorum: &Quorum) {
        // The newest in the log counts, whether it is committed or not; but a step that commits may
        // go on to change the voters (seed 237 of three nodes).
        let voters = [quorum.configuration(), quorum.log().configuration_at(position.index)];
        let has = |voter: Voter| {
            let node = &nodes[place_of(voter.node)];
            let disk = node.disk.log(PartitionId::METADATA).map(|log| log.memory());
            node.voter() != voter
                || disk.is_some_and(|disk| {
                    disk.log.has(position) || disk.snapshot.position.index >= position.index
                })
        };
        if !voters.into_iter().flatten().any(|voters| voters.has_majority(has)) {
            let sentence = format!("{position} is committed, and no majority has it: {quorum}");
            self.blame("shadow-quorum", "the quorum", sentence);
        }
        let holdings = nodes.iter().filter_map(|node| {
            let disk = node.disk.log(PartitionId::METADATA)?.memory();
            let seat = node.shard.as_ref().and_then(|shard| shard.seat());
            let asked = seat.map_or(disk, |seat| seat.log().sum());
            Some(Holding { member: node.voter(), states: [disk, asked] })
        });
        if let Some(member) = usurper::find(&holdings.collect::<Vec<_>>(), position) {
            let sentence = format!("{member} lacks {position}, and a majority would elect it");
            self.blame("committed-not-safe", "the quorum", sentence);
        }
    }

    /// One image at each entry.
    fn on_applied(
        &mut self,
        nodes: &[Node],
        n: usize,
        applied: Index,
        image: &Image,
        now: Duration,
    ) {
        if let Some(known) = self.images.get(&applied) {
            if **known != *image {
                let sentence = format!("{} has another image behind entry {applied}", NAMES[n]);
                self.blame("state-agreement", "the metadata", sentence);
            }
            return;
        }
        if applied <= self.applied {
            return;
        }
        let image = Rc::new(image.clone());
        self.images.insert(applied, Rc::clone(&image));
        if self.images.len() > IMAGES_KEPT {
            self.images.pop_first();
        }
        self.applied = applied;
        let before = std::mem::replace(&mut self.truth, image);
        trace::event(now, Mark::Step, "all", [applied.0, 0, 0], || {
            format!("the metadata is that of entry {applied}")
        });
        self.on_truth(nodes, &before);
    }
}

/// What tells an entry from others of its term.
fn content(entry: &Entry) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ entry.index.0;
    match &entry.payload {
        Payload::Data(data) => crate::chance::fnv(start, data),
        Payload::Configuration(configuration) => {
            crate::chance::fnv(start, format!("{configuration:?}").as_bytes())
        }
        Payload::LeaderChange => start,
    }
}
