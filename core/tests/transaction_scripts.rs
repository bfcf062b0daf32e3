//! Runs the recorded stories of the transaction coordinator: `scripts/transaction/*`.
//!
//! A script is a story in comments, then blocks: commands, `---`, and what they led to, up to an
//! empty line. A command in parentheses is carried out without being reported.
//! `UPDATE_GOLDENFILES=1` writes the reports anew; the review of the diff is the assertion.
//!
//! ```text
//! elected [N] | replay | resign | crash     the log survives a crash; appends in flight do not
//! init X [timeout=60s] [as=PID/EPOCH] [fresh=PID]
//! add X PID/EPOCH T-P ... [v=2] | verify X PID/EPOCH T-P ...
//! end X PID/EPOCH commit|abort [v=2] [fresh=PID]
//! done|gone|failed|fenced T-P [mN[@EPOCH]]  the answer to the last marker of the partition, or mN
//! list [PHASE ...] [producer=PID] [longer=10s] [like=REGEX] | describe X | status
//! log [refuse] [one]                        the log takes (or refuses) what waits for it
//! wait 10s | cancel rN                      pause 60s: the coordinator itself is away
//! exhaust X                                 its epoch is the last one that a producer gets
//! clock 60s                                 the wall clock jumps ahead
//! ```

#[path = "transaction_scripts/coordinator.rs"]
mod coordinator;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use coordinator::Coordinator;

/// The scripts and where they stand.
fn stories() -> Vec<(PathBuf, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/transaction");
    let mut paths: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 5, "the stories are found");
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn every_story_ends_as_it_was_recorded() {
    for (path, recorded) in stories() {
        assert!(recorded.starts_with("# "), "{} begins with its story", path.display());
        let played = play(&recorded);
        if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
            fs::write(&path, played).unwrap();
        } else {
            assert_eq!(recorded, played, "{} ends otherwise", path.display());
        }
    }
}

/// `cargo planted`.
#[cfg(mutants)]
#[test]
fn every_planted_bug_changes_a_story() {
    for slug in [
        "completion-written-twice",
        "endtxn-accepts-newer-epoch",
        "epoch-exhaustion",
        "expiry-leaves-pending-state",
        "late-endtxn-ends-next-txn",
        "partition-add-in-memory",
        "pending-map-aba",
        "retry-commit-lied-to",
        "timeout-abort-keeps-epoch",
        "transaction-answer-before-log",
    ] {
        quorate_core::mutant::choose(Some(slug));
        let ends_alike = |(_, recorded): &(PathBuf, String)| {
            let played = std::panic::catch_unwind(|| play(recorded));
            played.is_ok_and(|played| played == *recorded)
        };
        assert!(!stories().iter().all(ends_alike), "nobody notices {slug}");
        quorate_core::mutant::choose(None);
    }
}

fn play(script: &str) -> String {
    let mut coordinator = Coordinator::new();
    let mut played = String::new();
    for block in script.trim_end().split("\n\n") {
        let commands = block.split("\n---").next().unwrap_or_default();
        let mut report = String::new();
        let mut reports = false;
        for line in commands.lines() {
            let _ = writeln!(played, "{line}");
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let quiet = line.strip_prefix('(').and_then(|line| line.strip_suffix(')'));
            let lines = coordinator.run(quiet.unwrap_or(line));
            if quiet.is_none() {
                reports = true;
                lines.iter().for_each(|line| {
                    let _ = writeln!(report, "{line}");
                });
            }
        }
        if reports {
            let _ = write!(played, "---\n{report}");
        }
        played.push('\n');
    }
    let end = played.trim_end().len();
    played.truncate(end + 1);
    played
}
