//! Shrinking: a plan that fails becomes the simplest one that fails alike. Faults go first, then
//! clients and what they do, nodes and partitions, time, and settings that are not plain.
//!
//! The search is a function of the plan and of what the oracle says, whatever the number of jobs:
//! of several simpler plans the first in their order counts. So what was once found out is found in
//! a file (`kept.rs`), and a search that was interrupted goes on where it was.

pub mod kept;
pub mod moves;
pub mod settings;

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use self::kept::Kept;
use crate::plan::Plan;
use crate::plan::text::Value as _;

/// Seeds that are tried beside the plan's own once nothing gets simpler with that: what a fault
/// meets depends on its seed.
const OTHER_SEEDS: u64 = 3;

/// Says whether a plan fails as the first one did. Asked by several threads at once.
pub trait Oracle: Sync {
    fn fails(&self, plan: &Plan) -> bool;

    /// No more is to be tried.
    fn is_over(&self) -> bool {
        false
    }

    /// A plan was tried, and this is the simplest by now.
    fn tell(&self, best: &Plan, tried: usize) {
        let _ = (best, tried);
    }
}

/// How far it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    pub plan: Plan,
    /// Plans that were run for it; those that were known before do not count.
    pub tried: usize,
    /// Nothing simpler fails, as far as this search knows simpler. Otherwise time was over.
    pub is_minimal: bool,
}

/// Time is over.
struct Over;

struct Search<'a, O> {
    oracle: &'a O,
    kept: Mutex<&'a mut Kept>,
    jobs: usize,
    tried: AtomicUsize,
    over: AtomicBool,
    best: Plan,
}

/// The simplest plan that fails as this one does. `kept` knows what was tried before.
pub fn shrink<O: Oracle>(plan: &Plan, oracle: &O, jobs: usize, kept: &mut Kept) -> Shrunk {
    let mut best = plan.clone();
    best.found = None;
    best.trace = None;
    let mut search = Search {
        oracle,
        kept: Mutex::new(kept),
        jobs: jobs.max(1),
        tried: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        best,
    };
    let is_minimal = search.all().is_ok();
    Shrunk { plan: search.best, tried: search.tried.into_inner(), is_minimal }
}

impl<O: Oracle> Search<'_, O> {
    fn all(&mut self) -> Result<(), Over> {
        loop {
            let before = self.best.clone();
            self.moves(moves::quorum)?;
            self.faults()?;
            self.moves(moves::clients)?;
            self.moves(moves::places)?;
            self.moves(moves::time)?;
            self.settings()?;
            if self.best == before && !self.other_seeds()? {
                return Ok(());
            }
        }
    }

    /// Takes faults away in ever smaller groups, until none can go alone.
    fn faults(&mut self) -> Result<(), Over> {
        let count = |plan: &Plan| plan.faults.len();
        self.reduce(count, |plan, range| Some(moves::without(plan, range)))
    }

    fn settings(&mut self) -> Result<(), Over> {
        let count = |plan: &Plan| settings::unplain(plan).len();
        self.reduce(count, settings::make_plain)
    }

    /// Delta debugging over a list that belongs to the plan.
    fn reduce(
        &mut self,
        count: impl Fn(&Plan) -> usize,
        without: impl Fn(&Plan, Range<usize>) -> Option<Plan>,
    ) -> Result<(), Over> {
        let mut size = count(&self.best);
        while size > 0 {
            let (mut from, mut is_any_gone) = (0, false);
            while from < count(&self.best) {
                let all = count(&self.best);
                let starts: Vec<usize> = (from..all).step_by(size).collect();
                let simpler = |start: &usize| {
                    let plan = without(&self.best, *start..(start + size).min(all))?;
                    Some((*start, plan))
                };
                let simpler: Vec<(usize, Plan)> = starts.iter().filter_map(simpler).collect();
                let plans: Vec<Plan> = simpler.iter().map(|(_, plan)| plan.clone()).collect();
                let Some(place) = self.first(&plans)? else { break };
                let (start, plan) = simpler.into_iter().nth(place).expect("it was tried");
                self.best = plan;
                is_any_gone = true;
                from = start;
            }
            // What could not go before may be able to go now.
            let again = is_any_gone && size == 1 && count(&self.best) > 0;
            size = if again { 1 } else { size / 2 };
        }
        Ok(())
    }

    /// Goes to a simpler plan as long as one fails; the boldest stand first.
    fn moves(&mut self, simpler: impl Fn(&Plan) -> Vec<Plan>) -> Result<(), Over> {
        loop {
            let plans = simpler(&self.best);
            let Some(place) = self.first(&plans)? else { return Ok(()) };
            self.best = plans.into_iter().nth(place).expect("it was tried");
        }
    }

    /// A simpler plan may fail with another seed.
    fn other_seeds(&mut self) -> Result<bool, Over> {
        let faults = 0..self.best.faults.len();
        let mut plans: Vec<Plan> =
            faults.map(|place| moves::without(&self.best, place..place + 1)).collect();
        plans.extend(moves::places(&self.best));
        plans.extend(moves::quorum(&self.best));
        let seeded = |plan: &Plan, by: u64| {
            let mut plan = plan.clone();
            plan.seed = plan.seed.wrapping_add(by);
            plan
        };
        let plans: Vec<Plan> = plans
            .iter()
            .flat_map(|plan| (1..=OTHER_SEEDS).map(move |by| seeded(plan, by)))
            .collect();
        let Some(place) = self.first(&plans)? else { return Ok(false) };
        self.best = plans.into_iter().nth(place).expect("it was tried");
        Ok(true)
    }

    /// The first of these plans that fails. All before it were tried and do not.
    fn first(&self, plans: &[Plan]) -> Result<Option<usize>, Over> {
        let next = AtomicUsize::new(0);
        let found = AtomicUsize::new(usize::MAX);
        let work = || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(plan) = plans.get(place) else { break };
                if place > found.load(Ordering::Relaxed) {
                    break;
                }
                if plans[..place].contains(plan) {
                    continue;
                }
                match self.fails(plan) {
                    Ok(true) => drop(found.fetch_min(place, Ordering::Relaxed)),
                    Ok(false) => {}
                    Err(Over) => break,
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.jobs.min(plans.len()) {
                scope.spawn(work);
            }
            work();
        });
        if self.over.load(Ordering::Relaxed) {
            return Err(Over);
        }
        Ok(Some(found.into_inner()).filter(|place| *place < plans.len()))
    }

    fn fails(&self, plan: &Plan) -> Result<bool, Over> {
        if let Some(known) = self.kept.lock().expect("a lock").known(plan) {
            return Ok(known);
        }
        if self.over.load(Ordering::Relaxed) || self.oracle.is_over() {
            self.over.store(true, Ordering::Relaxed);
            return Err(Over);
        }
        let fails = self.oracle.fails(plan);
        self.kept.lock().expect("a lock").keep(plan, fails);
        let tried = self.tried.fetch_add(1, Ordering::Relaxed) + 1;
        self.oracle.tell(if fails { plan } else { &self.best }, tried);
        Ok(fails)
    }
}

/// How large a plan is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size<'a>(pub &'a Plan);

impl fmt::Display for Size<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.0;
        if let Some(quorum) = &plan.quorum {
            let crate::plan::Quorum { voters, others, storms, steps, .. } = quorum;
            return write!(f, "{voters}+{others} members, {storms} storms of {steps} steps");
        }
        let workload = &plan.workload;
        let clients = workload.writers
            + workload.readers
            + workload.library_writers
            + workload.library_readers;
        let count = |f: &mut fmt::Formatter<'_>, count: u32, what: &str| {
            write!(f, "{count} {what}{}, ", if count == 1 { "" } else { "s" })
        };
        count(f, plan.faults.len() as u32, "fault")?;
        count(f, clients, "client")?;
        count(f, plan.cluster.nodes, "node")?;
        count(f, plan.partitions(), "partition")?;
        let unplain = settings::unplain(plan).len() as u32;
        count(f, unplain, "setting")?;
        write!(f, "{}", plan.run.safety.print())
    }
}

#[cfg(test)]
mod tests;
