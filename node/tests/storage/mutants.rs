//! The bugs planted in the storage engine, and that the tests beside this one would notice each.
//! `RUSTFLAGS="--cfg mutants" cargo test -p quorate-node --test storage mutants`

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

use crate::{cleaning, cuts, faults, lives};

type Scenario = fn(u64) -> Pin<Box<dyn Future<Output = ()>>>;

const SEEDS: u64 = 400;
/// Stories that must go well without a planted bug, or a mistake of theirs would count as a catch.
const HEALTHY_SEEDS: u64 = 10;

fn story(seed: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(lives::story(seed))
}

fn cut(seed: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(cuts::story(seed))
}

fn clean(seed: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(cleaning::story(seed))
}

fn failure(_: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(faults::fail_everything_behind())
}

fn rot(_: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(faults::tell_rot())
}

fn no_journal(_: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(faults::miss_the_journal())
}

/// The first seed whose story goes wrong with the mutant.
fn caught(slug: Option<&'static str>, scenario: Scenario) -> Option<u64> {
    let seeds = if slug.is_some() { SEEDS } else { HEALTHY_SEEDS };
    (0..seeds).find(|&seed| {
        let run = move || {
            quorate_core::mutant::choose(slug);
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
    let planted: [(&str, Scenario); 14] = [
        ("answer-before-sync", story),
        ("ignore-torn-tail", story),
        ("clean-marker-survives-crash-in-recovery", story),
        ("new-file-dir-not-synced", story),
        ("side-file-not-forced", story),
        ("recovery-point-ahead", story),
        ("cut-before-orphan-synced", cut),
        ("cut-snapshot-survives", cut),
        ("journal-resurrects-cut", cut),
        ("rewrite-not-synced", clean),
        ("swap-file-recovery", clean),
        ("append-after-write-error", failure),
        ("checksum-mismatch-means-truncate", rot),
        ("empty-journal-means-new-node", no_journal),
    ];
    for scenario in [story, cut, clean, failure, rot, no_journal] {
        assert_eq!(caught(None, scenario), None, "without a planted bug all goes well");
    }
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = planted.map(|(slug, scenario)| (slug, caught(Some(slug), scenario)));
    std::panic::set_hook(quiet);
    let missed: Vec<_> = found.iter().filter(|(_, seed)| seed.is_none()).collect();
    assert!(missed.is_empty(), "{found:#?}");
}
