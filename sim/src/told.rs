//! What a run came to, in a form that one process can tell another: a line of JSON. The trace and
//! the history stay where they are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::check::Violation;
use crate::history::Counts;
use crate::run::{Report, Verdict};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub verdict: Verdict,
    pub violations: Vec<ToldViolation>,
    pub stuck: Vec<String>,
    pub operations: usize,
    #[serde(default)]
    pub transactions: usize,
    /// Operations of members of groups.
    #[serde(default)]
    pub groups: usize,
    pub acknowledged: usize,
    pub failed: usize,
    pub unknown: usize,
    /// Records.
    pub read: usize,
    /// Faults carried out, by kind.
    pub faults: BTreeMap<String, u64>,
    pub marks: BTreeMap<String, u64>,
    /// Marks passed between a fault and the next one, by the fault's kind.
    pub after: BTreeMap<String, BTreeMap<String, u64>>,
    /// Of the trace.
    pub hash: u64,
    pub events: u64,
    pub steps: u64,
    pub simulated_micros: u64,
    /// How often the planted bug's line was passed.
    #[serde(default)]
    pub mutant_asked: u64,
    /// Small states of the specifications that were passed, if that was wanted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<u64>,
}

/// A [`Violation`], with a property that need not be known to this build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldViolation {
    pub property: String,
    pub place: String,
    pub sentence: String,
}

impl From<&Violation> for ToldViolation {
    fn from(violation: &Violation) -> Self {
        let Violation { property, place, sentence } = violation.clone();
        Self { property: property.to_owned(), place, sentence }
    }
}

impl From<&Report> for Told {
    fn from(report: &Report) -> Self {
        let names = |counts: &BTreeMap<&'static str, u64>| {
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let mut after: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for ((fault, mark), count) in &report.after {
            after.entry((*fault).to_owned()).or_default().insert((*mark).to_owned(), *count);
        }
        Self {
            verdict: report.verdict,
            violations: report.violations.iter().map(ToldViolation::from).collect(),
            stuck: report.stuck.clone(),
            operations: report.tally.operations,
            transactions: report.tally.transactions,
            groups: report.tally.groups,
            acknowledged: report.tally.acknowledged,
            failed: report.tally.failed,
            unknown: report.tally.unknown,
            read: report.tally.read,
            faults: names(&report.faults),
            marks: names(&report.marks),
            after,
            hash: report.trace.hash,
            events: report.trace.events,
            steps: report.steps,
            simulated_micros: report.simulated.as_micros() as u64,
            mutant_asked: report.mutant_asked,
            shapes: report.spec.shapes.iter().copied().collect(),
        }
    }
}

impl Told {
    /// A run that nobody could finish: it hung, or took its process with it.
    pub fn broken(property: &str, sentence: String) -> Self {
        let verdict = if property == "hang" { Verdict::Liveness } else { Verdict::Safety };
        let (property, place) = (property.to_owned(), String::new());
        Self {
            verdict,
            violations: vec![ToldViolation { property, place, sentence }],
            stuck: Vec::new(),
            operations: 0,
            transactions: 0,
            groups: 0,
            acknowledged: 0,
            failed: 0,
            unknown: 0,
            read: 0,
            faults: BTreeMap::new(),
            marks: BTreeMap::new(),
            after: BTreeMap::new(),
            hash: 0,
            events: 0,
            steps: 0,
            simulated_micros: 0,
            mutant_asked: 0,
            shapes: Vec::new(),
        }
    }

    /// How much was done.
    pub const fn counts(&self) -> Counts {
        let Self { operations, transactions, groups, .. } = *self;
        Counts { operations, transactions, groups }
    }

    /// What went wrong, one sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let violations = self.violations.iter();
        let mut sentences: Vec<String> = violations
            .map(|wrong| format!("{} {}: {}", wrong.property, wrong.place, wrong.sentence))
            .collect();
        sentences.extend(self.stuck.iter().map(|stuck| format!("liveness: {stuck}")));
        sentences
    }
}
