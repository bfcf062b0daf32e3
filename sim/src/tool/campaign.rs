//! Many seeds at once, and what they came to: failures with the command that replays each, faults
//! and marks by count, speed.
#![allow(clippy::print_stdout)]
// The campaign measures real time; no simulated world sees it.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::How;
use crate::run::{self, Options, Report, Verdict, World};

/// Real time after which a seed counts as hung; on a busy machine a long one takes a minute.
const HUNG: Duration = Duration::from_secs(300);
/// Failures that are printed one by one; the rest is counted.
const PRINTED_MAX: u64 = 100;

#[derive(Default)]
struct Sum {
    seeds: u64,
    simulated: Duration,
    events: u64,
    steps: u64,
    acknowledged: usize,
    read: usize,
    faults: BTreeMap<&'static str, u64>,
    marks: BTreeMap<&'static str, u64>,
    verdicts: BTreeMap<Verdict, u64>,
    /// By property and place: the first seed, how many, and the first sentence.
    failures: BTreeMap<(String, String), (u64, u64, String)>,
    running: BTreeMap<u64, Instant>,
}

pub(super) fn run(seeds: Range<u64>, time: Option<Duration>, jobs: Option<usize>, how: &How) -> u8 {
    let jobs = jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let begun = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let over = AtomicBool::new(false);
    let sum = Mutex::new(Sum::default());
    let worker = || {
        while !time.is_some_and(|time| begun.elapsed() >= time) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            sum.lock().expect("a lock").running.insert(seed, Instant::now());
            let options = Options { mutant: how.mutant.clone(), ..Options::default() };
            let report = run::run(&how.plan(seed), how.world.into(), options);
            sum.lock().expect("a lock").add(seed, &report, how);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(worker)).collect();
        scope.spawn(|| watch(&sum, &over, begun, seeds.end - seeds.start));
        for worker in workers {
            worker.join().expect("a worker");
        }
        over.store(true, Ordering::Relaxed);
    });
    let sum = sum.into_inner().expect("a lock");
    sum.print(begun.elapsed(), how.world.into())
}

/// A line every ten seconds; a seed that hangs ends the campaign, by name.
fn watch(sum: &Mutex<Sum>, over: &AtomicBool, begun: Instant, seeds: u64) {
    let mut said = Instant::now();
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20));
        let sum = sum.lock().expect("a lock");
        if let Some((seed, _)) = sum.running.iter().find(|(_, since)| since.elapsed() > HUNG) {
            println!("seed {seed} hangs: no end after {} s", HUNG.as_secs());
            std::process::exit(i32::from(Verdict::Liveness.exit_code()));
        }
        if said.elapsed() >= Duration::from_secs(10) {
            said = Instant::now();
            let seconds = begun.elapsed().as_secs_f64();
            let failed: u64 = sum.failures.values().map(|failure| failure.1).sum();
            println!(
                "{}/{seeds} seeds, {:.1}/s, {:.0} simulated s/s, {failed} failed",
                sum.seeds,
                sum.seeds as f64 / seconds,
                sum.simulated.as_secs_f64() / seconds,
            );
        }
    }
}

impl Sum {
    fn add(&mut self, seed: u64, report: &Report, how: &How) {
        self.running.remove(&seed);
        self.seeds += 1;
        self.simulated += report.simulated;
        self.events += report.trace.events;
        self.steps += report.steps;
        self.acknowledged += report.tally.acknowledged;
        self.read += report.tally.read;
        for (kind, count) in &report.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (mark, count) in &report.marks {
            *self.marks.entry(mark).or_default() += count;
        }
        *self.verdicts.entry(report.verdict).or_default() += 1;
        if report.verdict == Verdict::Passed {
            return;
        }
        let place = report.violations.first().map_or("", |violation| violation.place.as_str());
        // Which partition it was does not make a failure another one; where it panicked does.
        let place = if report.property() == "panic" { place } else { "" };
        let key = (report.property().to_owned(), place.to_owned());
        let sentence = report.sentences().into_iter().next().unwrap_or_default();
        let seen: u64 = self.failures.values().map(|failure| failure.1).sum();
        self.failures.entry(key).or_insert_with(|| (seed, 0, sentence.clone())).1 += 1;
        if seen < PRINTED_MAX {
            let world = World::from(how.world).name();
            println!("seed {seed}: {}: {sentence}", report.verdict);
            let nodes = how.nodes;
            println!("  cargo sim run --seed {seed} --world {world} --nodes {nodes} --trace");
        }
    }

    fn print(&self, took: Duration, world: World) -> u8 {
        let seconds = took.as_secs_f64();
        println!(
            "{} seeds in {} in {seconds:.1} s: {:.1} seeds/s, {:.0} simulated s/s, \
             {:.0} events/s, {:.0} steps/s",
            self.seeds,
            world.name(),
            self.seeds as f64 / seconds,
            self.simulated.as_secs_f64() / seconds,
            self.events as f64 / seconds,
            self.steps as f64 / seconds,
        );
        println!("{} operations acknowledged, {} records read", self.acknowledged, self.read);
        let list = |counts: &BTreeMap<&'static str, u64>| {
            let words: Vec<String> =
                counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            words.join(", ")
        };
        println!("faults: {}", list(&self.faults));
        println!("marks: {}", list(&self.marks));
        for ((property, place), (seed, count, sentence)) in &self.failures {
            println!("{property} {place} in {count} seeds, first {seed}: {sentence}");
        }
        let verdicts: Vec<String> =
            self.verdicts.iter().map(|(verdict, count)| format!("{verdict} {count}")).collect();
        println!("{}", verdicts.join(", "));
        let worst = [Verdict::Safety, Verdict::Liveness, Verdict::Inconclusive];
        let worst = worst.into_iter().find(|verdict| self.verdicts.contains_key(verdict));
        match worst {
            Some(verdict) => verdict.exit_code(),
            None if self.seeds == 0 => Verdict::Inconclusive.exit_code(),
            None => 0,
        }
    }
}
