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
