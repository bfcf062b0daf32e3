//! What many runs came to: counts, and each distinct failure once. How it is written down for
//! machines and people is in the files beneath; `tool/campaign.rs` runs the seeds.

pub mod gates;
pub mod junit;
pub mod report;
pub mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::plan::draw::Only;
use crate::run::{Verdict, World};
use crate::symptom::Symptom;
use crate::told::Told;

/// What all its runs have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub world: World,
    /// As `--nodes`.
    pub nodes: u32,
    /// As `--only`.
    pub only: Option<Only>,
    pub mutant: Option<String>,
}

/// A failure that was seen at least once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub symptom: Symptom,
    pub seeds: u64,
    /// The smallest seed that was seen to fail so.
    pub first_seed: u64,
    /// What that one said, word by word.
    pub sentence: String,
}

/// The runs so far.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    pub seeds: u64,
    pub simulated: Duration,
    pub events: u64,
    pub steps: u64,
    pub acknowledged: usize,
    pub read: usize,
    pub faults: BTreeMap<String, u64>,
    pub marks: BTreeMap<String, u64>,
    /// Fault × phase: marks passed between a fault and the next one.
    pub after: BTreeMap<String, BTreeMap<String, u64>>,
    pub verdicts: BTreeMap<Verdict, u64>,
    /// By property, kind of object and reason.
    failures: BTreeMap<(String, String, String), Failure>,
    /// Seeds that were run twice.
    pub twice: u64,
    /// How often the planted bug's line was passed.
    pub mutant_asked: u64,
    /// Small states of the specifications that were passed, if that was wanted.
    pub shapes: BTreeSet<u64>,
}

impl Setting {
    /// The command that runs one of its seeds.
    pub fn replay(&self, seed: u64) -> String {
        format!("cargo sim run {} --trace", self.which(seed))
    }

    /// The command that makes the simplest plan of a failure of it.
    pub fn shrink(&self, seed: u64) -> String {
        format!("cargo sim shrink {}", self.which(seed))
    }

    fn which(&self, seed: u64) -> String {
        let (world, nodes) = (self.world.name(), self.nodes);
        let mutant = self.mutant.as_ref().map(|slug| format!(" --mutant {slug}"));
        let mutant = mutant.unwrap_or_default();
        let only = self.only.map(|only| format!(" --only {}", only.name())).unwrap_or_default();
        format!("--seed {seed} --world {world} --nodes {nodes}{only}{mutant}")
    }
}

impl Sum {
    /// Counts a run; `true` if it failed in a way that no seed before did.
    pub fn add(&mut self, seed: u64, told: &Told) -> bool {
        self.seeds += 1;
        self.simulated += Duration::from_micros(told.simulated_micros);
        self.events += told.events;
        self.steps += told.steps;
        self.acknowledged += told.acknowledged;
        self.read += told.read;
        self.mutant_asked += told.mutant_asked;
        add(&mut self.faults, &told.faults);
        add(&mut self.marks, &told.marks);
        self.shapes.extend(&told.shapes);
        for (fault, marks) in &told.after {
            add(self.after.entry(fault.clone()).or_default(), marks);
        }
        *self.verdicts.entry(told.verdict).or_default() += 1;
        if told.verdict == Verdict::Passed {
            return false;
        }
        let Some(symptom) = Symptom::first(told) else { return false };
        let key = (symptom.property.clone(), symptom.kind(), symptom.reason.clone());
        let sentence = told.sentences().into_iter().next().unwrap_or_default();
        let is_new = !self.failures.contains_key(&key);
        let failure = self.failures.entry(key).or_insert_with(|| Failure {
            symptom: symptom.clone(),
            seeds: 0,
            first_seed: seed,
            sentence: sentence.clone(),
        });
        failure.seeds += 1;
        // Seeds end in any order, and a report does not depend on it.
        if seed < failure.first_seed {
            (failure.symptom, failure.first_seed, failure.sentence) = (symptom, seed, sentence);
        }
        is_new
    }

    /// Distinct failures.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.failures.values()
    }

    /// Runs that failed.
    pub fn failed(&self) -> u64 {
        self.failures.values().map(|failure| failure.seeds).sum()
    }

    /// The worst that a run said; nothing at all is inconclusive.
    pub fn verdict(&self) -> Verdict {
        let worst =
            [Verdict::Nondeterministic, Verdict::Safety, Verdict::Liveness, Verdict::Inconclusive];
        let worst = worst.into_iter().find(|verdict| self.verdicts.contains_key(verdict));
        let none = if self.seeds == 0 { Verdict::Inconclusive } else { Verdict::Passed };
        worst.unwrap_or(none)
    }
}

fn add(counts: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (name, count) in more {
        match counts.get_mut(name) {
            Some(sum) => *sum += count,
            None => drop(counts.insert(name.clone(), *count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::told::ToldViolation;

    pub(super) fn told(wrong: &[(&str, &str, &str)]) -> Told {
        let mut told = Told::broken("", String::new());
        told.verdict = if wrong.is_empty() { Verdict::Passed } else { Verdict::Safety };
        told.violations = wrong
            .iter()
            .map(|(property, place, sentence)| ToldViolation {
                property: (*property).to_owned(),
                place: (*place).to_owned(),
                sentence: (*sentence).to_owned(),
            })
            .collect();
        told
    }

    #[test]
    fn a_failure_counts_once_whichever_seeds_and_partitions_have_it() {
        let mut sum = Sum::default();
        assert_eq!(sum.verdict(), Verdict::Inconclusive);
        assert!(!sum.add(1, &told(&[])));
        assert_eq!(sum.verdict(), Verdict::Passed);
        assert!(sum.add(9, &told(&[("lost-write", "t0-1", "3 values, first 7a")])));
        assert!(!sum.add(4, &told(&[("lost-write", "t2-0", "8 values, first 11")])));
        assert!(sum.add(5, &told(&[("lost-write", "t2-0", "no value")])), "another reason");
        assert!(sum.add(6, &told(&[("duplicate", "t2-0", "no value")])), "another property");
        assert!(sum.add(7, &told(&[("panic", "core/src/a.rs:7:1", "x")])));
        assert!(sum.add(8, &told(&[("panic", "core/src/a.rs:8:1", "x")])), "another place");
        assert_eq!((sum.failures().count(), sum.failed()), (5, 6));
        let first = sum.failures().find(|failure| failure.seeds == 2).expect("one came twice");
        assert_eq!((first.first_seed, first.symptom.object.as_str()), (4, "t2-0"));
        assert_eq!(first.sentence, "lost-write t2-0: 8 values, first 11");
        assert_eq!(sum.verdict(), Verdict::Safety);
    }
}
