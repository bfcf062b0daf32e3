//! The bugs planted in the storage engine, and that the tests beside this one would notice each.
//! `RUSTFLAGS="--cfg mutants" cargo test -p quorate-node --test storage mutants`

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

use crate::{faults, lives};

type Scenario = fn(u64) -> Pin<Box<dyn Future<Output = ()>>>;

const SEEDS: u64 = 400;

fn story(seed: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(lives::story(seed))
}

fn failure(_: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(faults::fail_everything_behind())
}

fn rot(_: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(faults::tell_rot())
}

/// The first seed whose story goes wrong with the mutant, and how often its line was passed.
fn caught(slug: &'static str, scenario: Scenario) -> Option<u64> {
    (0..SEEDS).find(|&seed| {
        let run = move || {
            quorate_core::mutant::choose(Some(slug));
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.expect("a runtime").block_on(scenario(seed));
        };
        // A thread of its own, since the choice is the thread's.
        let thread =
            std::thread::Builder::new().spawn(move || catch_unwind(AssertUnwindSafe(run)).is_err());
        thread.expect("a thread").join().expect("caught")
    })
}

#[test]
fn every_planted_bug_is_noticed() {
    let planted: [(&str, Scenario); 8] = [
        ("answer-before-sync", story),
        ("ignore-torn-tail", story),
        ("clean-marker-survives-crash-in-recovery", story),
        ("new-file-dir-not-synced", story),
        ("side-file-not-forced", story),
        ("recovery-point-ahead", story),
        ("append-after-write-error", failure),
        ("checksum-mismatch-means-truncate", rot),
    ];
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = planted.map(|(slug, scenario)| (slug, caught(slug, scenario)));
    std::panic::set_hook(quiet);
    let missed: Vec<_> = found.iter().filter(|(_, seed)| seed.is_none()).collect();
    assert!(missed.is_empty(), "{found:#?}");
}
