//! Many seeds at once, in worker processes, and what they came to: the corpus first, then a planted
//! bug that must be noticed, then seeds until there are no more or time is over.
#![allow(clippy::print_stdout)]
// The campaign measures real time; no simulated world sees it.
#![allow(clippy::disallowed_methods)]

mod leave;
mod progress;

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::single::{corpus_files, never_passed, read_plan};
use super::worker::Workers;
use super::{HARNESS_BROKE, flags};
use crate::campaign::report::{Around, Canary, Kept, Report};
use crate::campaign::{Setting, Sum};
use crate::chance::Chance;
use crate::run::{Verdict, World};
use crate::told::Told;

/// Real time after which a seed counts as hung; on a busy machine a long one takes a minute.
const HUNG: Duration = Duration::from_secs(300);
/// Failures that are printed one by one; the rest is counted.
const PRINTED_MAX: u64 = 100;
/// Of the seeds that pass, one in so many is run twice.
const TWICE: u32 = 100;
/// Seeds in which the canary must be caught.
const CANARY_SEEDS: u64 = 20;

struct Campaign<'a> {
    flags: &'a flags::Campaign,
    setting: Setting,
    workers: Workers,
    begun: Instant,
    sum: Mutex<Sum>,
    running: Mutex<BTreeMap<u64, Instant>>,
}

pub(super) fn run(flags: &flags::Campaign) -> u8 {
    let mut campaign = Campaign {
        flags,
        setting: Setting {
            world: flags.how.world(),
            nodes: flags.how.nodes,
            only: flags.how.only,
            mutant: flags.how.mutant.clone(),
        },
        workers: Workers::new(HUNG),
        begun: Instant::now(),
        sum: Mutex::default(),
        running: Mutex::default(),
    };
    campaign.workers.spec = flags.spec;
    let corpus = match campaign.corpus() {
        Ok(corpus) => corpus,
        Err(error) => {
            println!("{error}");
            return HARNESS_BROKE;
        }
    };
    let canary = campaign.canary();
    let seeds = flags.seeds();
    campaign.seeds(seeds.clone());
    let seconds = campaign.begun.elapsed().as_secs_f64();
    let around = Around {
        commit: commit(),
        seeds: [seeds.start, seeds.end],
        shard: [flags.shard.part, flags.shard.of],
        seconds,
        corpus,
        canary,
        gates: flags.require.clone(),
    };
    let sum = campaign.sum.lock().expect("a lock").clone();
    let report = Report::new(&campaign.setting, &sum, around);
    print(&report);
    if flags.spec {
        super::specs::print(&sum.shapes);
    }
    if let Some(folder) = &flags.json
        && let Err(error) = leave::all(&report, folder, &flags.how, flags.shrink, &campaign.workers)
    {
        println!("{}: {error}", folder.display());
        return HARNESS_BROKE;
    }
    report.exit_code
}

impl Campaign<'_> {
    fn mutant(&self) -> Option<&str> {
        self.setting.mutant.as_deref()
    }

    /// Plans that once found a bug; they are not hunted by a mutant.
    fn corpus(&self) -> Result<Vec<Kept>, String> {
        if self.flags.no_corpus || self.setting.mutant.is_some() {
            return Ok(Vec::new());
        }
        let mut corpus = Vec::new();
        for file in corpus_files()? {
            let plan = read_plan(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            // What says something of a quorum alone says nothing elsewhere.
            if plan.quorum.is_some() != (self.setting.world == World::Quorum) {
                continue;
            }
            let told = self.workers.run(&plan, self.setting.world, None);
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let sentence = told.sentences().into_iter().next().unwrap_or_default();
            if told.verdict != Verdict::Passed {
                println!("corpus: {name}: {}: {sentence}", told.verdict);
            }
            corpus.push(Kept { plan: name, verdict: told.verdict, sentence });
        }
        Ok(corpus)
    }

    /// A campaign that does not notice a planted bug says nothing about others.
    fn canary(&self) -> Option<Canary> {
        let alone = self.setting.nodes == 1 && self.setting.world != World::Quorum;
        let usual = if alone { "answer-before-written" } else { "unsorted-quorum-scan" };
        let mutant = self.flags.canary.as_deref().unwrap_or(usual);
        if mutant == "none" || self.setting.mutant.is_some() {
            return None;
        }
        let told =
            |sentence: String, seeds| Some(Canary { mutant: mutant.to_owned(), seeds, sentence });
        for seed in 0..CANARY_SEEDS {
            let plan = self.flags.how.plan(seed);
            let ran = self.workers.run(&plan, self.setting.world, Some(mutant));
            if let Some(sentence) = ran.sentences().into_iter().next() {
                return told(sentence, seed + 1);
            }
        }
        told(String::new(), CANARY_SEEDS)
    }

    fn seeds(&self, seeds: Range<u64>) {
        let jobs = self
            .flags
            .jobs
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        let next = AtomicU64::new(seeds.start);
        let over = AtomicBool::new(false);
        let begun = Instant::now();
        let work = || {
            while !self.flags.time.is_some_and(|time| begun.elapsed() >= time) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    break;
                }
                if self.flags.shard.has(seed) {
                    self.seed(seed);
                }
            }
        };
        let all = (seeds.end - seeds.start) / self.flags.shard.of;
        thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
            scope.spawn(|| self.watch(&over, begun, all));
            for worker in workers {
                worker.join().expect("a worker");
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    fn seed(&self, seed: u64) {
        self.running.lock().expect("a lock").insert(seed, Instant::now());
        let plan = self.flags.how.plan(seed);
        let mut told = self.workers.run(&plan, self.setting.world, self.mutant());
        let again = told.verdict == Verdict::Passed && Chance::new(seed, "twice").one_in(TWICE);
        if again {
            let other = self.workers.run(&plan, self.setting.world, self.mutant());
            if other.hash != told.hash {
                let (one, two) = (told.hash, other.hash);
                told = Told::broken(
                    "nondeterminism",
                    format!("one run gave {one:016x}, another {two:016x}"),
                );
                told.verdict = Verdict::Nondeterministic;
            }
        }
        self.running.lock().expect("a lock").remove(&seed);
        let mut sum = self.sum.lock().expect("a lock");
        sum.twice += u64::from(again);
        sum.add(seed, &told);
        if told.verdict != Verdict::Passed && sum.failed() <= PRINTED_MAX {
            progress::clear();
            let sentence = told.sentences().into_iter().next().unwrap_or_default();
            println!("seed {seed}: {}: {sentence}", told.verdict);
            println!("  {}", self.setting.replay(seed));
            println!("  {}", self.setting.shrink(seed));
        }
    }

    /// Says how far it is, until it is over.
    fn watch(&self, over: &AtomicBool, begun: Instant, seeds: u64) {
        let mut said = Instant::now();
        while !over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
            if said.elapsed() < progress::every() {
                continue;
            }
            said = Instant::now();
            let part = match self.flags.time {
                Some(time) => begun.elapsed().as_secs_f64() / time.as_secs_f64(),
                None => self.sum.lock().expect("a lock").seeds as f64 / seeds.max(1) as f64,
            };
            progress::say(&self.sum.lock().expect("a lock"), begun.elapsed(), part);
        }
        progress::clear();
    }
}

/// Of the source, as git has it.
fn commit() -> Option<String> {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned())
}

fn print(report: &Report) {
    let per_second = |count: f64| count / report.seconds;
    println!(
        "{} seeds in {} in {:.1} s: {:.1} seeds/s, {:.0} simulated s/s, {:.0} events/s, \
         {:.0} steps/s",
        report.runs,
        report.world.name(),
        report.seconds,
        per_second(report.runs as f64),
        per_second(report.simulated_seconds),
        per_second(report.events as f64),
        per_second(report.steps as f64),
    );
    let (acknowledged, read) = (report.operations_acknowledged, report.records_read);
    println!("{acknowledged} operations acknowledged, {read} records read");
    let list = |counts: &BTreeMap<String, u64>| {
        let words: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        words.join(", ")
    };
    println!("faults: {}", list(&report.faults));
    println!("marks: {}", list(&report.marks));
    let cells: usize = report.after.values().map(BTreeMap::len).sum();
    println!("marks after faults: {cells} cells; {} seeds run twice", report.twice);
    if !report.corpus.is_empty() {
        let passed = report.corpus.iter().filter(|kept| kept.verdict == Verdict::Passed);
        println!("corpus: {} of {} plans pass", passed.count(), report.corpus.len());
    }
    match &report.canary {
        Some(canary) if canary.sentence.is_empty() => {
            println!("canary {}: NOT caught in {} seeds", canary.mutant, canary.seeds);
        }
        Some(canary) => {
            let (mutant, seeds) = (&canary.mutant, canary.seeds);
            println!("canary {mutant}: caught, {seeds} seeds: {}", canary.sentence);
        }
        None => {}
    }
    if let Some(mutant) = report.mutant.as_deref().filter(|_| report.mutant_asked == 0) {
        println!("{}", never_passed(mutant));
    }
    for goal in report.gates.iter().filter(|goal| !goal.is_met) {
        println!("goal {}: NOT met, seen {} times", goal.wanted, goal.count);
    }
    for failure in &report.failures {
        println!(
            "{} on {} in {} seeds, first {}: {}",
            failure.property, failure.kind, failure.seeds, failure.first_seed, failure.sentence
        );
    }
    println!("{}", list(&report.verdicts));
}
