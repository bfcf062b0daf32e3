//! Compacts the logs of a node, one pass beside everything else. A thin version of the node's own.

use std::time::Duration;

use quorate_core::id::PartitionId;
use quorate_core::partition::interface::{Clean, CleanProblem, Input as ForReplica};
use quorate_core::segment::cleaned::Cleaned;
use quorate_core::shard::interface::Input;

use super::{Cluster, Event};
use crate::chance::Chance;
use crate::plan::Plan;

/// What a pass takes, at most; and now and then.
const PASS: Duration = Duration::from_millis(5);
const SLOW_PASS: Duration = Duration::from_millis(400);

/// A pass that has read all it wants, and is not told to the log's machine yet.
pub(super) struct Passed {
    partition: PartitionId,
    pass: u64,
    /// Which log it looked at, and how often that had been cut.
    born: u64,
    cuts: u64,
    made: Option<Box<Cleaned>>,
}

/// A node's cleaner.
pub(super) struct Cleaner {
    chance: Chance,
    key_bytes_max: usize,
}

impl Cleaner {
    pub(super) fn new(plan: &Plan, name: &str) -> Self {
        let mut chance = Chance::new(plan.seed, &format!("cleaner {name}"));
        let key_bytes_max = *chance.pick(&[1 << 10, 1 << 20]);
        Self { chance, key_bytes_max }
    }
}

impl Cluster {
    pub(super) fn clean(&mut self, n: usize, partition: PartitionId, clean: &Clean) {
        let node = &mut self.nodes[n];
        let fails = node.disk.reads_fail > 0;
        node.disk.reads_fail = node.disk.reads_fail.saturating_sub(1);
        let key_bytes_max = node.cleaner.key_bytes_max;
        let log = node.disk.log_mut(partition).filter(|_| !fails);
        let Some(log) = log else {
            return self.tell_of_pass(n, partition, clean.pass, Err(CleanProblem::Failed));
        };
        let (born, cuts, pass) = (log.born, log.cuts, clean.pass);
        let made = log.clean(clean, key_bytes_max);
        let slow = node.cleaner.chance.one_in(16);
        let most = if slow { SLOW_PASS } else { PASS };
        let takes = Duration::from_nanos(node.cleaner.chance.below(most.as_nanos() as u64));
        let life = node.life;
        let passed = Box::new(Passed { partition, pass, born, cuts, made });
        self.agenda.after(takes, Event::Passed { n, life, passed });
    }

    pub(super) fn on_passed(&mut self, n: usize, passed: Passed) {
        let Passed { partition, pass, born, cuts, made } = passed;
        let log = self.nodes[n].disk.log_mut(partition).filter(|log| log.born == born);
        let result = match (made, log) {
            (Some(made), Some(log)) if log.cuts == cuts => Ok(made),
            (Some(made), Some(log)) => {
                log.discard(&made);
                Err(CleanProblem::Failed)
            }
            _ => Err(CleanProblem::Failed),
        };
        self.tell_of_pass(n, partition, pass, result);
    }

    pub(super) fn discard(&mut self, n: usize, partition: PartitionId, cleaned: &Cleaned) {
        if let Some(log) = self.nodes[n].disk.log_mut(partition) {
            log.discard(cleaned);
        }
    }

    fn tell_of_pass(
        &mut self,
        n: usize,
        partition: PartitionId,
        pass: u64,
        result: Result<Box<Cleaned>, CleanProblem>,
    ) {
        let input = ForReplica::Cleaned { pass, result };
        self.tell(n, Input::Partition { partition, input });
    }
}
