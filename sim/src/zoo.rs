//! The zoo as a list: which of the product's planted bugs stand for which historic ones, and where
//! they can be passed. `tool/zoo.rs` hunts them; `tests/zoo.rs` holds list and product together.

pub mod entries;

use std::fmt;

use crate::plan::draw::Only;
use crate::run::World;

/// A planted bug.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub slug: &'static str,
    /// The entry of the list of historic bugs that it translates; `-` for one of our own.
    pub entry: &'static str,
    /// Where its line is compiled in and can be passed.
    pub places: &'static [Place],
    /// Why no plan can show it yet; empty if some can.
    pub not_yet: &'static str,
}

/// The slug of an entry (A1) that is planted in one way; any other name is taken for a slug, since
/// what somebody plants for himself has no row.
///
/// # Errors
///
/// The entry is planted in several ways, or in none.
pub fn named(name: &str) -> Result<String, String> {
    if entries::ENTRIES.iter().all(|entry| entry.id != name) {
        return Ok(name.to_owned());
    }
    let of_entry = MUTANTS.iter().filter(|mutant| mutant.entry == name);
    let of_entry: Vec<_> = of_entry.map(|mutant| mutant.slug).collect();
    match &of_entry[..] {
        [slug] => Ok((*slug).to_owned()),
        [] => Err(format!("{name} is not planted; `cargo sim zoo --markdown` says why")),
        several => Err(format!("{name} is planted as one of {}", several.join(", "))),
    }
}

/// Where a planted bug is hunted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub world: World,
    /// As `--nodes`.
    pub nodes: u32,
    /// As `--only`: a life without what the bug is about cannot show it.
    pub only: Option<Only>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nodes {
            1 => f.write_str(self.world.name())?,
            nodes => write!(f, "{nodes} {}", self.world.name())?,
        }
        self.only.map_or(Ok(()), |only| write!(f, " with {}", only.name()))
    }
}

const fn cores(nodes: u32) -> Place {
    Place { world: World::Cores, nodes, only: None }
}

const fn nodes(nodes: u32) -> Place {
    Place { world: World::Nodes, nodes, only: None }
}

const fn core_transactions(nodes: u32) -> Place {
    Place { world: World::Cores, nodes, only: Some(Only::Transactions) }
}

const fn core_groups(nodes: u32) -> Place {
    Place { world: World::Cores, nodes, only: Some(Only::Groups) }
}

const fn groups(nodes: u32) -> Place {
    Place { world: World::Nodes, nodes, only: Some(Only::Groups) }
}

const fn transactions(nodes: u32) -> Place {
    Place { world: World::Nodes, nodes, only: Some(Only::Transactions) }
}

/// Each seed draws how many members there are.
const QUORUM: Place = Place { world: World::Quorum, nodes: 1, only: None };

const CORES: &[Place] = &[cores(1)];
const NODES: &[Place] = &[nodes(1)];
const BOTH: &[Place] = &[cores(1), nodes(1)];
/// What needs several nodes, three of them mostly; votes that change, five.
const THREE: &[Place] = &[cores(3), nodes(3)];
/// What the quorum decides by itself: the cheapest world first.
const VOTES: &[Place] = &[QUORUM, cores(3), nodes(3)];
const CHANGES: &[Place] = &[QUORUM, cores(5), nodes(5)];
const QUORUMS: &[Place] = &[QUORUM];
const THREE_AND_FIVE: &[Place] = &[cores(3), cores(5), nodes(5)];
const THREE_NODES: &[Place] = &[nodes(3)];
const ONE_AND_THREE: &[Place] = &[nodes(1), nodes(3)];
/// With five nodes, some may be away while all others go on.
const TRANSACTIONS: &[Place] = &[transactions(1), transactions(3), transactions(5)];
const THREE_TRANSACTIONS: &[Place] = &[transactions(3), transactions(5)];
/// What the machines decide, where several nodes have them: in the world of cores first.
const CORE_TRANSACTIONS: &[Place] =
    &[core_transactions(3), transactions(1), transactions(3), transactions(5)];
const THREE_CORE_TRANSACTIONS: &[Place] = &[core_transactions(3), transactions(3), transactions(5)];

/// What coordinators of groups decide, where groups have several: in the world of cores first.
const CORE_GROUPS: &[Place] = &[core_groups(3), nodes(1), nodes(3)];
/// What lies between a replica of a whole node and the coordinator beside it.
const THREE_GROUPS: &[Place] = &[groups(3), groups(5)];

/// What lies between a node's start and the coordinators on it.
const NODE_GROUPS: &[Place] = &[groups(1)];

const fn mutant(entry: &'static str, slug: &'static str, places: &'static [Place]) -> Mutant {
    Mutant { slug, entry, places, not_yet: "" }
}

const fn not_yet(entry: &'static str, slug: &'static str, why: &'static str) -> Mutant {
    Mutant { slug, entry, places: &[], not_yet: why }
}

/// What the simulator lacks to see those that survived.
const SURVIVORS: &[(&str, &str)] = &[
    (
        "missed-epoch-no-truncate",
        "a link is cut for one epoch, but the node behind it has no tail that the others lack",
    ),
    ("deposed-verifies", "a script of core sees it"),
    (
        "upgrade-forgets-claims",
        "a group seldom turns between a rebalance and what it asks for; a script of core sees it",
    ),
    (
        "empty-group-starts-over",
        "a coordinator seldom dies between the two; seed 4638 and a script of core see it",
    ),
    ("cut-snapshot-survives", "power seldom fails within a cut; node/tests/storage catches it"),
];

impl Mutant {
    /// Why it is not caught, if that is known.
    pub fn lacks(&self) -> &'static str {
        let known = SURVIVORS.iter().find(|(slug, _)| *slug == self.slug);
        known.map_or("", |(_, why)| why)
    }
}

/// All mutants of the product.
pub const MUTANTS: &[Mutant] = &[
    mutant("A1", "hw-truncate-then-elect", THREE),
    mutant("A2", "two-lineages-after-power-loss", THREE),
    mutant("A3", "epoch-answer-skips-gap", THREE),
    mutant("A4", "missed-epoch-no-truncate", THREE),
    mutant("A6", "noop-truncate-leaves-epochs", THREE),
    mutant("A7", "epoch-zero-forgotten", CORES),
    mutant("A8", "isr-join-before-epoch-start", THREE),
    mutant("A9", "hw-bump-before-truncate", THREE),
    mutant("A10", "diverging-fetch-counts-as-ack", THREE),
    mutant("A11", "ack-by-term-not-by-commit", THREE),
    mutant("A13", "hw-under-min-isr", THREE),
    mutant("A14", "isr-shrink-wakes-nobody", THREE),
    mutant("A16", "zombie-controller-verdict-believed", THREE),
    mutant("A17", "stale-incarnation-joins-isr", THREE),
    mutant("A18", "fenced-replica-joins-isr", THREE),
    mutant("A19", "last-replica-standing", THREE),
    mutant("A21", "replicas-stamp-own-offsets", THREE),
    mutant("A22", "catchup-declared-done", THREE),
    mutant("A23", "unsynced-backup-acks", THREE),
    mutant("B1", "old-term-commit-by-count", VOTES),
    mutant("B3", "same-epoch-leader-after-restart", VOTES),
    mutant("B4", "answer-before-sync", NODES),
    mutant("B4", "answer-before-written", BOTH),
    mutant("B4", "ack-before-fsync", VOTES),
    mutant("B5", "leader-counts-unflushed-noop", VOTES),
    mutant("B6", "observer-does-not-flush", CHANGES),
    mutant("B8", "read-index-before-first-commit", QUORUMS),
    mutant("B9", "read-index-ctx-reused", QUORUMS),
    mutant("B11", "follower-applies-past-verified", VOTES),
    mutant("B12", "stale-match-index", VOTES),
    mutant("B12", "stale-write-counts", VOTES),
    mutant("B13", "unsorted-quorum-scan", VOTES),
    mutant("B14", "prevote-has-side-effects", VOTES),
    mutant("B15", "prevote-deadlock-on-terms", VOTES),
    mutant("B16", "adopt-vote-from-rejection", VOTES),
    mutant("B18", "reformatted-voter-votes", VOTES),
    mutant("B19", "unsynced-minority-rejoins", VOTES),
    mutant("B20", "snapshot-keeps-conflicting-log", VOTES),
    mutant("B21", "snapshot-id-off-by-one", VOTES),
    mutant("B23", "snapshot-load-adds-only", THREE),
    mutant("B24", "applied-index-not-atomic", VOTES),
    mutant("B25", "truncate-committed", VOTES),
    mutant("B26", "sync-ack-before-persist", VOTES),
    mutant("B29", "uncommitted-image-exposed", THREE),
    mutant("B30", "app-resigns-raft-does-not", VOTES),
    mutant("B31", "concurrent-expiry-lost-update", THREE),
    mutant("C1", "single-server-change-across-terms", CHANGES),
    mutant("C2", "removed-leader-counts-itself", CHANGES),
    mutant("C3", "campaign-with-unapplied-config", CHANGES),
    mutant("C4", "learner-refuses-vote", CHANGES),
    mutant("C6", "joint-config-lost-in-snapshot", CHANGES),
    mutant("C8", "removed-node-disrupts", CHANGES),
    mutant("C9", "reassignment-completes-early", THREE_AND_FIVE),
    mutant("C11", "stray-deletion-inverted", ONE_AND_THREE),
    mutant("C13", "failed-dir-recreates-empty", ONE_AND_THREE),
    mutant("C14", "config-not-reverted-on-truncate", CHANGES),
    mutant("D1", "clean-marker-survives-crash-in-recovery", NODES),
    mutant("D2", "new-file-dir-not-synced", NODES),
    mutant("D3", "side-file-not-forced", NODES),
    mutant("D4", "recovery-point-ahead", NODES),
    mutant("D6", "append-after-write-error", NODES),
    mutant("D7", "checksum-mismatch-means-truncate", NODES),
    mutant("D8", "corrupt-meta-means-orphan", NODES),
    mutant("-", "ignore-torn-tail", NODES),
    mutant("-", "journal-resurrects-cut", THREE_NODES),
    mutant("-", "cut-before-orphan-synced", THREE_NODES),
    mutant("-", "cut-snapshot-survives", THREE_NODES),
    mutant("D14", "empty-journal-means-new-node", NODES),
    mutant("D16", "misdirected-write", NODES),
    mutant("E2", "dedup-window-too-small", BOTH),
    mutant("E3", "cached-wrong-offset", BOTH),
    mutant("E4", "state-before-append", BOTH),
    mutant("E5", "sequence-wrap", BOTH),
    mutant("E7", "state-dies-with-log", BOTH),
    mutant("E9", "pid-block-issued-twice", ONE_AND_THREE),
    mutant("E10", "dedup-across-transactions", CORE_TRANSACTIONS),
    mutant("F1", "late-produce-joins-next-txn", TRANSACTIONS),
    mutant("F2", "late-endtxn-ends-next-txn", CORE_TRANSACTIONS),
    mutant("F3", "verified-then-raced", THREE_TRANSACTIONS),
    mutant("F4", "group-check-then-write", THREE_TRANSACTIONS),
    mutant("F5", "timeout-abort-keeps-epoch", CORE_TRANSACTIONS),
    mutant("F6", "endtxn-accepts-newer-epoch", CORE_TRANSACTIONS),
    mutant("F7", "completion-written-twice", THREE_CORE_TRANSACTIONS),
    mutant("F8", "pending-map-aba", THREE_CORE_TRANSACTIONS),
    mutant("F11", "lso-inclusive", CORE_TRANSACTIONS),
    mutant("F12", "partition-add-in-memory", CORE_TRANSACTIONS),
    mutant("F16", "retry-commit-lied-to", CORE_TRANSACTIONS),
    mutant("F19", "group-txn-state-wrong-after-replay", CORE_TRANSACTIONS),
    not_yet("F13", "coordinator-epoch-goes-back", entries::REMEMBERED),
    not_yet("F14", "epoch-exhaustion", entries::LONG),
    mutant("F17", "expiry-leaves-pending-state", THREE_TRANSACTIONS),
    mutant("F18", "timestamp-lookup-past-lso", TRANSACTIONS),
    mutant("G1", "partition-epoch-lost", CORE_GROUPS),
    mutant("G2", "owner-twice-in-one-epoch", CORE_GROUPS),
    mutant("G3", "static-double-owner", ONE_AND_THREE),
    mutant("G4", "dead-group-resets-identity", CORE_GROUPS),
    mutant("G6", "new-member-timer", ONE_AND_THREE),
    mutant("G9", "partial-heartbeat-reply", CORE_GROUPS),
    mutant("G11", "serve-before-load", CORE_GROUPS),
    mutant("G13", "zombie-coordinator-expires-members", ONE_AND_THREE),
    mutant("-", "group-answer-before-log", CORE_GROUPS),
    mutant("-", "upgrade-forgets-owners", CORE_GROUPS),
    mutant("-", "upgrade-forgets-claims", CORE_GROUPS),
    mutant("-", "expelled-joins-with-partitions", CORE_GROUPS),
    mutant("-", "downgrade-starts-over", CORE_GROUPS),
    mutant("-", "downgraded-group-stays", NODES),
    mutant("-", "empty-group-starts-over", THREE_NODES),
    mutant("-", "offsets-go-by-name", ONE_AND_THREE),
    mutant("-", "deposed-tells-offsets", THREE),
    mutant("-", "deposed-verifies", THREE_TRANSACTIONS),
    mutant("H1", "offsets-expire-in-use", ONE_AND_THREE),
    mutant("H2", "commit-epoch-forgotten", CORE_GROUPS),
    mutant("H3", "listoffsets-current-epoch", THREE_NODES),
    mutant("H6", "offsets-outlive-topic", ONE_AND_THREE),
    mutant("H7", "spurious-zero-offset", NODES),
    mutant("I1", "compact-past-hw", THREE),
    mutant("I5", "cleaner-loses-end-offset", THREE),
    mutant("I6", "retention-past-hw", BOTH),
    mutant("I10", "delete-then-advance-start", NODES),
    mutant("K3", "lost-wakeup-in-purgatory", BOTH),
    mutant("K5", "empty-success", CORES),
    mutant("L4", "unknown-timestamp-is-old", BOTH),
    mutant("L5", "state-timestamp-as-now", ONE_AND_THREE),
    mutant("-", "vote-before-fsync", VOTES),
    mutant("-", "expansion-not-awaited", THREE),
    mutant("-", "append-time-falls", BOTH),
    mutant("-", "client-renumbers-retries", NODES),
    mutant("-", "client-passes-over-a-lost-answer", NODES),
    mutant("-", "client-aborts-a-producer-for-good", TRANSACTIONS),
    mutant("-", "late-marker-ends-next-transaction", CORE_TRANSACTIONS),
    mutant("-", "transaction-answer-before-log", CORE_TRANSACTIONS),
    mutant("-", "transaction-told-before-committed", THREE_TRANSACTIONS),
    mutant("-", "append-of-another-leadership", THREE_GROUPS),
    mutant("-", "topics-told-to-who-knows-some", NODE_GROUPS),
];
