//! The zoo as a list: which of the product's planted bugs stand for which historic ones, and where
//! they can be passed. `tool/zoo.rs` hunts them; `tests/zoo.rs` holds list and product together.

pub mod entries;

use crate::run::World;

/// A planted bug.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub slug: &'static str,
    /// The entry of the list of historic bugs that it translates; `-` for one of our own.
    pub entry: &'static str,
    /// Where its line is compiled in and can be passed.
    pub worlds: &'static [World],
    /// Why no plan can show it yet; empty if some can.
    pub not_yet: &'static str,
}

const CORES: &[World] = &[World::Cores];
const NODES: &[World] = &[World::Nodes];
const BOTH: &[World] = &[World::Cores, World::Nodes];

const fn mutant(entry: &'static str, slug: &'static str, worlds: &'static [World]) -> Mutant {
    Mutant { slug, entry, worlds, not_yet: "" }
}

const fn not_yet(entry: &'static str, slug: &'static str, why: &'static str) -> Mutant {
    Mutant { slug, entry, worlds: &[], not_yet: why }
}

/// All mutants of the product.
pub const MUTANTS: &[Mutant] = &[
    mutant("A7", "epoch-zero-forgotten", CORES),
    mutant("B4", "answer-before-sync", NODES),
    mutant("B4", "answer-before-written", BOTH),
    not_yet("B29", "uncommitted-image-exposed", entries::ASKED),
    mutant("D1", "clean-marker-survives-crash-in-recovery", NODES),
    mutant("D2", "new-file-dir-not-synced", NODES),
    mutant("D3", "side-file-not-forced", NODES),
    mutant("D4", "recovery-point-ahead", NODES),
    mutant("D6", "append-after-write-error", NODES),
    mutant("D7", "checksum-mismatch-means-truncate", NODES),
    not_yet("D8", "corrupt-meta-means-orphan", entries::MARKS),
    mutant("-", "ignore-torn-tail", NODES),
    not_yet("D16", "misdirected-write", "no fault writes to a wrong place yet"),
    mutant("E2", "dedup-window-too-small", BOTH),
    mutant("E3", "cached-wrong-offset", BOTH),
    mutant("E4", "state-before-append", BOTH),
    mutant("E5", "sequence-wrap", BOTH),
    mutant("E7", "state-dies-with-log", BOTH),
    mutant("E9", "pid-block-issued-twice", NODES),
    not_yet("G3", "static-double-owner", entries::GROUPS),
    not_yet("G11", "serve-before-load", entries::GROUPS),
    not_yet("-", "group-answer-before-log", entries::GROUPS),
    not_yet("H1", "offsets-expire-in-use", entries::GROUPS),
    not_yet("H2", "commit-epoch-forgotten", entries::GROUPS),
    not_yet("H6", "offsets-outlive-topic", entries::GROUPS),
    mutant("H7", "spurious-zero-offset", NODES),
    mutant("I6", "retention-past-hw", BOTH),
    mutant("I10", "delete-then-advance-start", NODES),
    mutant("K3", "lost-wakeup-in-purgatory", BOTH),
    mutant("K5", "empty-success", BOTH),
    mutant("L4", "unknown-timestamp-is-old", BOTH),
    not_yet("-", "stale-write-counts", entries::QUORUM),
    not_yet("-", "vote-before-fsync", entries::QUORUM),
    mutant("-", "append-time-falls", BOTH),
];
