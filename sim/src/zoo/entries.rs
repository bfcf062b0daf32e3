//! Every entry of the list of historic bugs, and whether it applies to what is built so far; if
//! not, why. Ruling of the project: scores count applicable entries only.

/// A bug that some system had.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub id: &'static str,
    pub slug: &'static str,
    /// Why it is not hunted; empty if it is.
    pub not_yet: &'static str,
}

const fn entry(id: &'static str, slug: &'static str, not_yet: &'static str) -> Entry {
    Entry { id, slug, not_yet }
}

const PLANTED: &str = "";
const COMPACTION: &str = "planted, and caught outside of the simulator: `cargo planted` walks over \
                          compacted logs and over lives of their storage";
const REPLAYED: &str = "planted; a test of the node has a coordinator read a compacted log";
pub(super) const LONG: &str = "planted, and caught outside of the simulator: core's tests of \
                               transactions see it; no run is long enough";
pub(super) const REMEMBERED: &str = "planted, and caught outside of the simulator: a script of \
                                     core sees it; no run is as long as producers are remembered";
pub(super) const GROUPS: &str = "planted, and caught outside of the simulator: core's tests of \
                                 groups see it; hardly a member asks while a log is read";
pub(super) const EXPIRY: &str = "planted, and caught outside of the simulator: core's tests of \
                                 groups see it; no run is as long as offsets are kept";
pub(super) const DELETION: &str = "planted, and caught outside of the simulator: core's tests of \
                                   groups see it; no plan deletes a topic";
const UNPLANTED: &str = "not planted yet";
const CLIENT: &str = "a mistake of clients; the workload has a thin one of its own";
const SHARE: &str = "there are no share groups yet";

/// In the order of the list.
pub const ENTRIES: &[Entry] = &[
    entry("A1", "hw-truncate-then-elect", PLANTED),
    entry("A2", "two-lineages-after-power-loss", PLANTED),
    entry("A3", "epoch-answer-skips-gap", PLANTED),
    entry("A4", "missed-epoch-no-truncate", PLANTED),
    entry("A6", "noop-truncate-leaves-epochs", PLANTED),
    entry("A7", "epoch-zero-forgotten", PLANTED),
    entry("A8", "isr-join-before-epoch-start", PLANTED),
    entry("A9", "hw-bump-before-truncate", PLANTED),
    entry("A10", "diverging-fetch-counts-as-ack", PLANTED),
    entry("A11", "ack-by-term-not-by-commit", PLANTED),
    entry(
        "A12",
        "hw-metadata-stale-on-roll",
        "the high watermark is an offset here: no place in a file is kept with it",
    ),
    entry("A13", "hw-under-min-isr", PLANTED),
    entry("A14", "isr-shrink-wakes-nobody", PLANTED),
    entry("A16", "zombie-controller-verdict-believed", PLANTED),
    entry("A17", "stale-incarnation-joins-isr", PLANTED),
    entry("A18", "fenced-replica-joins-isr", PLANTED),
    entry("A19", "last-replica-standing", PLANTED),
    entry("A21", "replicas-stamp-own-offsets", PLANTED),
    entry("A22", "catchup-declared-done", PLANTED),
    entry("A23", "unsynced-backup-acks", PLANTED),
    entry("B1", "old-term-commit-by-count", PLANTED),
    entry("B3", "same-epoch-leader-after-restart", PLANTED),
    entry("B4", "ack-before-fsync", PLANTED),
    entry("B5", "leader-counts-unflushed-noop", PLANTED),
    entry("B6", "observer-does-not-flush", PLANTED),
    entry("B8", "read-index-before-first-commit", PLANTED),
    entry("B9", "read-index-ctx-reused", PLANTED),
    entry(
        "B10",
        "reads-during-transfer",
        "a read is confirmed by a majority each time: there is no lease that a transfer \
         could leave behind",
    ),
    entry("B11", "follower-applies-past-verified", PLANTED),
    entry("B12", "stale-match-index", PLANTED),
    entry("B13", "unsorted-quorum-scan", PLANTED),
    entry("B14", "prevote-has-side-effects", PLANTED),
    entry("B15", "prevote-deadlock-on-terms", PLANTED),
    entry("B16", "adopt-vote-from-rejection", PLANTED),
    entry("B18", "reformatted-voter-votes", PLANTED),
    entry("B19", "unsynced-minority-rejoins", PLANTED),
    entry("B20", "snapshot-keeps-conflicting-log", PLANTED),
    entry("B21", "snapshot-id-off-by-one", PLANTED),
    entry("B23", "snapshot-load-adds-only", PLANTED),
    entry("B24", "applied-index-not-atomic", PLANTED),
    entry("B25", "truncate-committed", PLANTED),
    entry("B26", "sync-ack-before-persist", PLANTED),
    entry("B29", "uncommitted-image-exposed", PLANTED),
    entry("B30", "app-resigns-raft-does-not", PLANTED),
    entry("B31", "concurrent-expiry-lost-update", PLANTED),
    entry("C1", "single-server-change-across-terms", PLANTED),
    entry("C2", "removed-leader-counts-itself", PLANTED),
    entry("C3", "campaign-with-unapplied-config", PLANTED),
    entry("C4", "learner-refuses-vote", PLANTED),
    entry("C6", "joint-config-lost-in-snapshot", PLANTED),
    entry(
        "C7",
        "replayed-add-shrinks-quorum",
        "an entry holds all voters, and not one more or less of them",
    ),
    entry("C8", "removed-node-disrupts", PLANTED),
    entry("C9", "reassignment-completes-early", PLANTED),
    entry("C11", "stray-deletion-inverted", PLANTED),
    entry(
        "C12",
        "acked-into-dead-incarnation",
        "a batch goes to a log by its topic's id, which is never used again",
    ),
    entry("C13", "failed-dir-recreates-empty", PLANTED),
    entry("C14", "config-not-reverted-on-truncate", PLANTED),
    entry("D1", "clean-marker-survives-crash-in-recovery", PLANTED),
    entry("D2", "new-file-dir-not-synced", PLANTED),
    entry("D3", "side-file-not-forced", PLANTED),
    entry("D4", "recovery-point-ahead", PLANTED),
    entry("D6", "append-after-write-error", PLANTED),
    entry("D7", "checksum-mismatch-means-truncate", PLANTED),
    entry("D8", "corrupt-meta-means-orphan", PLANTED),
    entry("D9", "rewrite-not-synced", COMPACTION),
    entry("D11", "swap-file-recovery", COMPACTION),
    entry("D12", "gap-tracking-lost", "a log's end is read from segments and journal together"),
    entry(
        "D13",
        "wrong-header-then-gc",
        "marks say what is free, no summary does: `recovery-point-ahead`",
    ),
    entry("D14", "empty-journal-means-new-node", PLANTED),
    entry("D16", "misdirected-write", PLANTED),
    entry(
        "D18",
        "duplicate-offset-after-index-error",
        "the log's end moves before any I/O; a failed side file halts the node",
    ),
    entry(
        "D19",
        "fresh-handle-fsync",
        "the simulated disk tells every handle of a failed write-back",
    ),
    entry("E2", "dedup-window-too-small", PLANTED),
    entry("E3", "cached-wrong-offset", PLANTED),
    entry("E4", "state-before-append", PLANTED),
    entry("E5", "sequence-wrap", PLANTED),
    entry("E7", "state-dies-with-log", PLANTED),
    entry("E8", "cleaner-forgets-last-sequence", COMPACTION),
    entry("E9", "pid-block-issued-twice", PLANTED),
    entry("E10", "dedup-across-transactions", PLANTED),
    entry("F1", "late-produce-joins-next-txn", PLANTED),
    entry("F2", "late-endtxn-ends-next-txn", PLANTED),
    entry("F3", "verified-then-raced", PLANTED),
    entry("F4", "group-check-then-write", PLANTED),
    entry("F5", "timeout-abort-keeps-epoch", PLANTED),
    entry("F6", "endtxn-accepts-newer-epoch", PLANTED),
    entry("F7", "completion-written-twice", PLANTED),
    entry("F8", "pending-map-aba", PLANTED),
    entry(
        "F9",
        "completion-missed-by-trylock",
        "no lock is tried: a coordinator takes one input after the other",
    ),
    entry("F11", "lso-inclusive", PLANTED),
    entry("F12", "partition-add-in-memory", PLANTED),
    entry("F13", "coordinator-epoch-goes-back", REMEMBERED),
    entry("F14", "epoch-exhaustion", LONG),
    entry("F16", "retry-commit-lied-to", PLANTED),
    entry("F17", "expiry-leaves-pending-state", PLANTED),
    entry("F18", "timestamp-lookup-past-lso", PLANTED),
    entry("F19", "group-txn-state-wrong-after-replay", PLANTED),
    entry("G1", "partition-epoch-lost", PLANTED),
    entry("G2", "owner-twice-in-one-epoch", PLANTED),
    entry("G3", "static-double-owner", PLANTED),
    entry("G4", "dead-group-resets-identity", UNPLANTED),
    entry("G6", "new-member-timer", UNPLANTED),
    entry("G7", "stale-reply-resets-generation", CLIENT),
    entry("G8", "old-owner-claims-win", CLIENT),
    entry("G9", "partial-heartbeat-reply", PLANTED),
    entry("G11", "serve-before-load", GROUPS),
    entry("G12", "load-loops-on-gap", REPLAYED),
    entry("G13", "zombie-coordinator-expires-members", UNPLANTED),
    entry("G14", "partial-metadata-drops-partitions", CLIENT),
    entry("H1", "offsets-expire-in-use", EXPIRY),
    entry("H2", "commit-epoch-forgotten", PLANTED),
    entry("H3", "listoffsets-current-epoch", PLANTED),
    entry(
        "H4",
        "consumer-blind-to-truncation",
        "only an unclean election takes from readers what they have seen; no plan asks for one",
    ),
    entry("H6", "offsets-outlive-topic", DELETION),
    entry("H7", "spurious-zero-offset", PLANTED),
    entry("H8", "flush-returns-before-split-batches", CLIENT),
    entry("I1", "compact-past-hw", COMPACTION),
    entry("I2", "marker-dropped-by-key", COMPACTION),
    entry("I3", "aborted-index-of-uncleaned-tail-lost", COMPACTION),
    entry("I4", "txn-state-reset-between-groups", COMPACTION),
    entry("I5", "cleaner-loses-end-offset", COMPACTION),
    entry("I6", "retention-past-hw", PLANTED),
    entry("I8", "policy-change-races-cleaner", COMPACTION),
    entry("I9", "cleaner-livelock-on-gap", COMPACTION),
    entry("I10", "delete-then-advance-start", PLANTED),
    entry("J1", "lock-timer-beats-ack", SHARE),
    entry("J3", "acquired-with-no-timer", SHARE),
    entry("J4", "gap-after-reload", SHARE),
    entry("J5", "read-state-older-than-published", SHARE),
    entry("J6", "stale-share-leader-writes", SHARE),
    entry("J8", "initialising-for-ever", SHARE),
    entry("J9", "delivered-before-quorum", SHARE),
    entry("J10", "ack-floor-stuck", SHARE),
    entry("J11", "orphan-inflight-after-failover", SHARE),
    entry("K2", "throttle-kills-session", "there are no quotas"),
    entry("K3", "lost-wakeup-in-purgatory", PLANTED),
    entry(
        "K4",
        "buffer-reused-in-flight",
        "a batch owns its bytes; the compiler refuses the mistake",
    ),
    entry("K5", "empty-success", PLANTED),
    entry(
        "K7",
        "transfer-timer-reset-by-ignored-traffic",
        "what has come of a snapshot is forgotten with the term of its sender",
    ),
    entry(
        "K8",
        "idle-wait-starves-hw",
        "whoever has applied its own registration is current: nothing is asked of the log's end",
    ),
    entry(
        "K9",
        "heartbeat-success-from-stranger",
        "not planted yet: who answers for an observer in the count of those a leader hears",
    ),
    entry(
        "K10",
        "cross-core-notice-reorder",
        "one task tells a shard of leaderships, in their order",
    ),
    entry(
        "K12",
        "laggard-never-catches-up",
        "not planted yet: a copy that is behind leaves the in-sync set, and the liveness \
         phase waits for it",
    ),
    entry(
        "K13",
        "old-version-reply-unserialisable",
        "tests of every version encode every response; the workload joins no group",
    ),
    entry("L1", "wall-clock-lease", "nothing is leased"),
    entry("L2", "lease-without-check-quorum", "nothing is leased"),
    entry("L4", "unknown-timestamp-is-old", PLANTED),
    entry("L5", "state-timestamp-as-now", UNPLANTED),
    entry(
        "L6",
        "max-timestamp-offset-wrong",
        "the workload looks up no timestamp; core and node have tests",
    ),
];
