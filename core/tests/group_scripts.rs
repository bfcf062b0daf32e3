//! Runs the recorded stories of the group coordinator: `scripts/group/*`.
//!
//! A script is a story in comments, then blocks: commands, `---`, and what they led to, up to an
//! empty line. A command in parentheses is carried out without being reported.
//! `UPDATE_GOLDENFILES=1` writes the reports anew; the review of the diff is the assertion.
//!
//! ```text
//! elected | replay | resign | crash         the log survives a crash; appends in flight do not
//! join G C [v=5] [new] [instance=I] [protocols=p,q] [topics=t,u] [session=10s] [rebalance=60s]
//!   [owned=-|T-P,...]                       what it says it still has: so it may migrate
//! sync G C [gen=N] [C=text|C=@T-P,... ...]  the leader's assignments; @: as consumers write them
//! heartbeat G C [gen=N] [member=C#2] | leave G C ...
//! commit G C|- [gen=N] [meta=text] [in=PID@EPOCH] [guard=N] T-P=O ...
//! fetch G [T-P ...] [stable=yes]            marker commit|abort PID@EPOCH [unread]
//! describe G | survey [G] | list [state ...] | delete G | delete-offsets G T-P ...
//! topics-deleted T ...
//! topics [all] T=N ...                      what there is of topics; N=0: gone
//! beat G C [join|leave|away|full] [epoch=N] [topics=t,u] [regex=R] [instance=I] [has[=T-P,...]]
//! describe-consumer G                       [assignor=A]; a client acts on what it is told: `has`
//! log [refuse] [one]                        the log takes (or refuses) what waits for it
//! wait 10s | cancel rN | status             pause 60s: the coordinator itself is away
//! ```

#[path = "group_scripts/consumers.rs"]
mod consumers;
#[path = "group_scripts/coordinator.rs"]
mod coordinator;
#[path = "group_scripts/embedded.rs"]
mod embedded;
#[path = "group_scripts/transactions.rs"]
mod transactions;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use coordinator::Coordinator;

/// The scripts and where they stand.
fn stories() -> Vec<(PathBuf, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/group");
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

/// `RUSTFLAGS='--cfg mutants' cargo test -p quorate-core --test group_scripts`.
#[cfg(mutants)]
#[test]
fn every_planted_bug_changes_a_story() {
    for slug in [
        "commit-epoch-forgotten",
        "dead-group-resets-identity",
        "expelled-joins-with-partitions",
        "group-answer-before-log",
        "group-check-then-write",
        "group-txn-state-wrong-after-replay",
        "missed-are-not-awaited",
        "new-member-timer",
        "offsets-expire-in-use",
        "offsets-outlive-topic",
        "owner-twice-in-one-epoch",
        "partial-heartbeat-reply",
        "partition-epoch-lost",
        "serve-before-load",
        "state-timestamp-as-now",
        "static-double-owner",
        "upgrade-forgets-claims",
        "upgrade-forgets-owners",
        "zombie-coordinator-expires-members",
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
