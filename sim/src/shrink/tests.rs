//! The search against oracles that are functions: it gets to the smallest plan, keeps to the
//! failure, does the same with any number of jobs, and goes on after an interruption.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::kept::Kept;
use super::{Oracle, Shrunk, shrink};
use crate::plan::Plan;
use crate::plan::draw::{draw, draw_cluster};
use crate::symptom::Symptom;
use crate::told::Told;

/// Fails if the plan has all of these lines.
struct Needs {
    lines: Vec<String>,
    asked: AtomicUsize,
    /// Asks at most; then time is over.
    budget: usize,
    seen: Mutex<BTreeSet<String>>,
}

impl Needs {
    fn new(lines: Vec<String>) -> Self {
        let (asked, seen) = (AtomicUsize::new(0), Mutex::default());
        Self { lines, asked, budget: usize::MAX, seen }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Oracle for Needs {
    fn fails(&self, plan: &Plan) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let text = plan.print();
        assert!(self.seen.lock().expect("a lock").insert(text.clone()), "asked twice\n{text}");
        self.lines.iter().all(|line| text.contains(line.as_str()))
    }

    fn is_over(&self) -> bool {
        self.asked() >= self.budget
    }
}

/// A plan with many faults, and lines of some of them.
fn subject() -> (Plan, Vec<String>) {
    let mut plan = (0..).map(|seed| draw_cluster(seed, 3)).find(|plan| plan.faults.len() > 20);
    let plan = plan.take().expect("some seed has many faults");
    let text = plan.print();
    let faults: Vec<&str> = text.lines().filter(|line| line.starts_with("fault ")).collect();
    let named = |place: usize| {
        // Without its times, which become short.
        let words = faults[place].split(' ').take(2);
        words.collect::<Vec<_>>().join(" ")
    };
    (plan.clone(), vec![named(3), named(faults.len() - 2), "writers=".to_owned()])
}

/// No plan that is one step simpler fails.
fn assert_minimal(shrunk: &Shrunk, lines: &[String]) {
    let fails = |plan: &Plan| {
        let text = plan.print();
        lines.iter().all(|line| text.contains(line.as_str()))
    };
    let plan = &shrunk.plan;
    assert!(fails(plan), "the failure is lost");
    for place in 0..plan.faults.len() {
        assert!(
            !fails(&super::moves::without(plan, place..place + 1)),
            "fault {place} is too much"
        );
    }
    let moves = [super::moves::clients(plan), super::moves::places(plan), super::moves::time(plan)];
    for simpler in moves.concat() {
        assert!(!fails(&simpler), "simpler, and fails:\n{}", simpler.print());
    }
    assert_eq!(super::settings::unplain(plan), []);
}

#[test]
fn a_plan_becomes_the_smallest_that_fails() {
    let (plan, lines) = subject();
    let oracle = Needs::new(lines.clone());
    let shrunk = shrink(&plan, &oracle, 1, &mut Kept::new());
    assert!(shrunk.is_minimal);
    assert_minimal(&shrunk, &lines);
    assert!(shrunk.plan.faults.len() <= 2, "{}", shrunk.plan.print());
    assert_eq!(shrunk.tried, oracle.asked());
    assert!(shrunk.tried < 400, "{} plans were tried", shrunk.tried);
}

#[test]
fn what_does_not_get_simpler_stays() {
    let plan = draw(3);
    let oracle = Needs::new(vec![plan.print()]);
    let shrunk = shrink(&plan, &oracle, 2, &mut Kept::new());
    assert_eq!((shrunk.plan, shrunk.is_minimal), (plan, true));
}

#[test]
fn jobs_do_not_change_what_comes_out() {
    let (plan, lines) = subject();
    let one = shrink(&plan, &Needs::new(lines.clone()), 1, &mut Kept::new());
    let two = shrink(&plan, &Needs::new(lines), 4, &mut Kept::new());
    assert_eq!(one.plan, two.plan);
}

#[test]
fn it_goes_on_after_an_interruption() {
    let (plan, lines) = subject();
    let whole = shrink(&plan, &Needs::new(lines.clone()), 1, &mut Kept::new());
    let path = std::env::temp_dir().join(format!("shrink-goes-on-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let (mut rounds, mut tried) = (0, 0);
    let last = loop {
        let mut kept = Kept::open(&path, "it").expect("a folder for what passes");
        assert_eq!(kept.len(), tried);
        let mut oracle = Needs::new(lines.clone());
        oracle.budget = 25;
        let shrunk = shrink(&plan, &oracle, 1, &mut kept);
        tried += shrunk.tried;
        rounds += 1;
        if shrunk.is_minimal {
            break shrunk;
        }
    };
    let _ = std::fs::remove_file(&path);
    assert_eq!((last.plan, tried), (whole.plan, whole.tried));
    assert!(rounds > 2, "{rounds}");
}

/// Two faults that fail in different ways: whichever goes, the first failure must stay.
#[test]
fn another_failure_is_not_taken_for_it() {
    struct Two(Symptom);
    impl Oracle for Two {
        fn fails(&self, plan: &Plan) -> bool {
            self.0.is_shown_by(&told(plan))
        }
    }
    fn told(plan: &Plan) -> Told {
        let text = plan.print();
        let property = if text.contains("fault crash") { "lost-write" } else { "duplicate" };
        Told::broken(property, "as it is".to_owned())
    }
    let plan = (0..).map(draw).find(|plan| plan.print().contains("fault crash"));
    let plan = plan.expect("some seed has a crash");
    let oracle = Two(Symptom::first(&told(&plan)).expect("it fails"));
    let shrunk = shrink(&plan, &oracle, 2, &mut Kept::new());
    assert_eq!(shrunk.plan.faults.len(), 1);
    assert_eq!(shrunk.plan.faults[0].kind.name(), "crash");
}

/// A fault that strikes in vain with the plan's own seed, and not with the next one.
#[test]
fn a_simpler_plan_may_need_another_seed() {
    struct Seeds(u64);
    impl Oracle for Seeds {
        fn fails(&self, plan: &Plan) -> bool {
            plan.faults.len() >= if plan.seed == self.0 { 2 } else { 1 }
        }
    }
    let plan = (0..).map(draw).find(|plan| plan.faults.len() > 4).expect("some seed has many");
    let shrunk = shrink(&plan, &Seeds(plan.seed), 2, &mut Kept::new());
    assert_eq!((shrunk.plan.faults.len(), shrunk.plan.seed), (1, plan.seed + 1));
}
