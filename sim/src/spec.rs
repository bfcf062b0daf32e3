//! The protocols as executable specifications, each written for reading, and what holds the product
//! to them: a run's trace carries the specification's variables only, and each of its steps must be
//! one that the specification allows (`quorum/witness.rs`, `partition/witness.rs`). Small states
//! are explored to the last one, so that a campaign can say how many of them its traces passed
//! (`visited.rs`).
//!
//! The specification has no checker of histories and knows no fault by name: what it forbids is a
//! decision that no member may take in its state.

pub mod explore;
pub mod partition;
pub mod quorum;
pub mod runs;
pub mod visited;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::check::Violation;
use crate::trace::{self, Aside};

/// What a watcher hands back when a run is over.
#[derive(Debug, Default)]
pub struct Seen {
    pub violations: Vec<Violation>,
    /// Lines of JSON by the name of the file they belong to, if somebody wants them.
    pub lines: Vec<(String, String)>,
    /// Shapes of small states that were passed.
    pub shapes: BTreeSet<u64>,
    /// Steps that were held against the specification.
    pub steps: u64,
}

/// What a run does about the specifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Each step is held against them.
    pub refine: bool,
    /// The trace is kept as lines.
    pub export: bool,
    /// Which small states are passed is noted.
    pub shapes: bool,
}

impl Wanted {
    /// Each step is held against the specifications, and nothing is kept.
    pub const REFINE: Self = Self { refine: true, export: false, shapes: false };
}

#[derive(Default)]
struct Watch {
    quorum: quorum::witness::Watch,
    partitions: partition::witness::Watch,
}

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Begins to watch this thread's run, if that is wanted.
pub fn begin(wanted: Wanted) {
    let watch = || Watch {
        quorum: quorum::witness::Watch::new(wanted),
        partitions: partition::witness::Watch::new(wanted),
    };
    WATCH.set(wanted.refine.then(watch));
}

/// The run is over.
pub fn end() -> Seen {
    let Some(watch) = WATCH.take() else { return Seen::default() };
    let (mut seen, partitions) = (watch.quorum.end(), watch.partitions.end());
    seen.violations.extend(partitions.violations);
    seen.lines.extend(partitions.lines);
    seen.shapes.extend(partitions.shapes);
    seen.steps += partitions.steps;
    seen
}

/// Whether somebody watches.
pub(crate) fn is_on() -> bool {
    WATCH.with_borrow(Option::is_some)
}

/// A member of the quorum has made a step.
pub(crate) fn on_member(look: &quorum::witness::Look<'_>) {
    WATCH.with_borrow_mut(|watch| {
        if let Some(watch) = watch {
            watch.quorum.look(look);
        }
    });
}

/// Something happens to replicas.
pub(crate) fn on_replicas(what: impl FnOnce(&mut partition::witness::Watch)) {
    WATCH.with_borrow_mut(|watch| {
        if let Some(watch) = watch {
            what(&mut watch.partitions);
        }
    });
}

/// A step, at a time, that the specification does not allow. The sentence tells the last event
/// before it: a completion of the disk is none, so a step may have none of its own.
fn rejected(
    property: &'static str,
    place: &str,
    (node, at_us): (u8, u64),
    step: &str,
    broken: &str,
) -> Violation {
    let blames = || Aside::Blames { property };
    trace::aside_at(Duration::from_micros(at_us), node_name(node), blames);
    let sentence = format!("{step}, behind #{}: {broken}", trace::ordinal());
    Violation { property, place: place.to_owned(), sentence }
}

/// As the trace names it; 0 is the controller.
const fn node_name(node: u8) -> &'static str {
    const NAMES: [&str; 10] = ["all", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"];
    if (node as usize) < NAMES.len() { NAMES[node as usize] } else { "all" }
}
