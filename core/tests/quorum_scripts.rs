//! The recorded stories of the quorum: `scripts/quorum/<story>`.

#[path = "quorum/disk.rs"]
mod disk;
#[path = "support/script.rs"]
mod script;
#[path = "quorum/stage.rs"]
mod stage;

use script::run_all;
use stage::QuorumStage;

#[test]
fn the_quorum() {
    run_all("quorum", || Box::new(QuorumStage::new()));
}

/// A branch that is worth a mark is worth a story.
#[cfg(debug_assertions)]
#[test]
fn every_mark_is_passed_by_a_story() {
    quorate_core::mark::take();
    the_quorum();
    let passed = quorate_core::mark::take();
    let missing: Vec<String> = script::marks("quorum")
        .into_iter()
        .filter(|mark| !passed.contains_key(mark.as_str()))
        .collect();
    assert!(missing.is_empty(), "no story passes {missing:?}");
}

/// What a random walk hardly ever meets, a story does: each of these must change one.
#[cfg(mutants)]
#[test]
fn planted_bugs_change_a_story() {
    let told = |slug: Option<&str>| {
        quorate_core::mutant::choose(slug);
        let told = std::panic::catch_unwind(the_quorum).is_ok();
        quorate_core::mutant::choose(None);
        told
    };
    assert!(told(None), "the stories hold without a bug");
    std::panic::set_hook(Box::new(|_| {}));
    let missed = PLANTED.iter().filter(|slug| told(Some(slug))).collect::<Vec<_>>();
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "no story changes with {missed:?}");
}

#[cfg(mutants)]
const PLANTED: &[&str] = &[
    "follower-applies-past-verified",
    "old-term-commit-by-count",
    "read-index-ctx-reused",
    "removed-node-disrupts",
    "single-server-change-across-terms",
    "stale-match-index",
];
