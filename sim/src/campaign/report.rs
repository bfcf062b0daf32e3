//! `report.json`: what a campaign came to, for machines. A field keeps its meaning as long as
//! `version` is the same; new ones may come. `docs/simulation.md` has the list.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::gates::Gate;
use super::{Failure, Setting, Sum};
use crate::run::{Verdict, World};

/// Of the form. A reader refuses others.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub version: u32,
    /// Of the source, if git knows it.
    pub commit: Option<String>,
    pub world: World,
    pub nodes: u32,
    pub mutant: Option<String>,
    /// How often the mutant's line was passed. If never, the campaign says nothing about it.
    #[serde(default)]
    pub mutant_asked: u64,
    /// From the first to the one behind the last.
    pub seeds: [u64; 2],
    /// Which part of how many, from 1 on.
    pub shard: [u64; 2],
    pub verdict: Verdict,
    pub exit_code: u8,
    /// Seeds that were run.
    pub runs: u64,
    pub seconds: f64,
    pub simulated_seconds: f64,
    pub events: u64,
    pub steps: u64,
    pub operations_acknowledged: u64,
    pub records_read: u64,
    /// Runs by verdict.
    pub verdicts: BTreeMap<String, u64>,
    pub faults: BTreeMap<String, u64>,
    pub marks: BTreeMap<String, u64>,
    /// Marks by the kind of the last fault before.
    pub after: BTreeMap<String, BTreeMap<String, u64>>,
    pub corpus: Vec<Kept>,
    pub canary: Option<Canary>,
    /// Seeds that passed and were run once more.
    pub twice: u64,
    pub gates: Vec<Goal>,
    pub failures: Vec<Distinct>,
}

/// A plan of the corpus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub plan: String,
    pub verdict: Verdict,
    /// What was wrong, if anything was.
    pub sentence: String,
}

/// A planted bug that the campaign must notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    pub mutant: String,
    pub seeds: u64,
    /// Empty if it was not caught.
    pub sentence: String,
}

/// Something that must have been seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goal {
    pub wanted: String,
    pub count: u64,
    pub is_met: bool,
}

/// A failure, counted once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distinct {
    pub property: String,
    /// A partition, a node, a place in the source.
    pub kind: String,
    /// Of the first seed.
    pub object: String,
    pub reason: String,
    pub verdict: Verdict,
    pub seeds: u64,
    pub first_seed: u64,
    pub sentence: String,
    pub replay: String,
    /// The folder of what is known of it, beside the report.
    pub folder: String,
}

/// What the runs do not know of themselves.
#[derive(Clone, Debug, Default)]
pub struct Around {
    pub commit: Option<String>,
    pub seeds: [u64; 2],
    pub shard: [u64; 2],
    pub seconds: f64,
    pub corpus: Vec<Kept>,
    pub canary: Option<Canary>,
    pub gates: Vec<Gate>,
}

impl Report {
    pub fn new(setting: &Setting, sum: &Sum, around: Around) -> Self {
        let goal = |gate: &Gate| Goal {
            wanted: gate.to_string(),
            count: gate.count(sum),
            is_met: gate.is_met(sum),
        };
        let gates: Vec<Goal> = around.gates.iter().map(goal).collect();
        let mut verdict = verdict(sum, &around, &gates);
        // Of that name nothing is planted, or not where any seed came to.
        if verdict == Verdict::Passed && setting.mutant.is_some() && sum.mutant_asked == 0 {
            verdict = Verdict::Inconclusive;
        }
        let word = |(verdict, count): (&Verdict, &u64)| (verdict.word().to_owned(), *count);
        let failures = sum.failures().enumerate();
        Self {
            version: VERSION,
            commit: around.commit,
            world: setting.world,
            nodes: setting.nodes,
            mutant: setting.mutant.clone(),
            mutant_asked: sum.mutant_asked,
            seeds: around.seeds,
            shard: around.shard,
            verdict,
            exit_code: verdict.exit_code(),
            runs: sum.seeds,
            seconds: around.seconds,
            simulated_seconds: sum.simulated.as_secs_f64(),
            events: sum.events,
            steps: sum.steps,
            operations_acknowledged: sum.acknowledged as u64,
            records_read: sum.read as u64,
            verdicts: sum.verdicts.iter().map(word).collect(),
            faults: sum.faults.clone(),
            marks: sum.marks.clone(),
            after: sum.after.clone(),
            corpus: around.corpus,
            canary: around.canary,
            twice: sum.twice,
            gates,
            failures: failures
                .map(|(place, failure)| Distinct::new(setting, place, failure))
                .collect(),
        }
    }
}

impl Distinct {
    fn new(setting: &Setting, place: usize, failure: &Failure) -> Self {
        let Failure { symptom, seeds, first_seed, sentence } = failure.clone();
        let folder = format!("failures/{:02}-{}", place + 1, file_name(&symptom.property));
        Self {
            kind: symptom.kind(),
            property: symptom.property,
            object: symptom.object,
            reason: symptom.reason,
            verdict: symptom.verdict,
            seeds,
            first_seed,
            sentence,
            replay: setting.replay(first_seed),
            folder,
        }
    }
}

/// Letters, digits and `-`.
fn file_name(text: &str) -> String {
    text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

/// A failure comes first; then a corpus that fails, a canary that lives, a goal that is not met.
fn verdict(sum: &Sum, around: &Around, gates: &[Goal]) -> Verdict {
    let corpus = around.corpus.iter().map(|kept| kept.verdict);
    let corpus = corpus.filter(|verdict| *verdict != Verdict::Passed).min();
    let verdict = sum.verdict();
    let canary_lives = around.canary.as_ref().is_some_and(|canary| canary.sentence.is_empty());
    if verdict == Verdict::Passed || (verdict == Verdict::Inconclusive && corpus.is_some()) {
        if let Some(verdict) = corpus {
            return verdict;
        }
        if canary_lives || gates.iter().any(|goal| !goal.is_met) {
            return Verdict::Inconclusive;
        }
    }
    verdict
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::told;
    use super::*;
    use crate::told::Told;

    pub(in super::super) fn report(wrong: &[(&str, &str, &str)], around: Around) -> Report {
        report_of(1, wrong, around)
    }

    fn report_of(asked: u64, wrong: &[(&str, &str, &str)], around: Around) -> Report {
        let mut sum = Sum::default();
        sum.add(3, &Told { mutant_asked: asked, ..told(&[]) });
        if !wrong.is_empty() {
            sum.add(7, &told(wrong));
        }
        let mutant = Some("a-bug".to_owned());
        let setting = Setting { world: World::Cores, nodes: 3, only: None, mutant };
        Report::new(&setting, &sum, around)
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let gates = vec![Gate::parse("rolls").expect("a gate")];
        let around =
            Around { seeds: [0, 8], shard: [1, 1], seconds: 1.5, gates, ..Around::default() };
        let report = report(&[("lost-write", "t0-1", "3 <values> & more")], around);
        let text = serde_json::to_string_pretty(&report).expect("plain data");
        let again: Report = serde_json::from_str(&text).expect("as it was written");
        assert_eq!(again, report);
        let failure = &report.failures[0];
        assert_eq!(failure.folder, "failures/01-lost-write");
        assert_eq!(
            failure.replay,
            "cargo sim run --seed 7 --world cores --nodes 3 --mutant a-bug --trace"
        );
        assert_eq!((report.verdict, report.exit_code), (Verdict::Safety, 1));
    }

    #[test]
    fn what_passes_may_still_prove_nothing() {
        let passed = report(&[], Around::default());
        assert_eq!(passed.verdict, Verdict::Passed);
        let void = report_of(0, &[], Around::default());
        assert_eq!((void.verdict, void.mutant_asked), (Verdict::Inconclusive, 0), "never planted");
        let gates = vec![Gate::parse("rolls").expect("a gate")];
        let unmet = report(&[], Around { gates, ..Around::default() });
        assert_eq!(unmet.verdict, Verdict::Inconclusive);
        let canary = |sentence: &str| {
            let (mutant, sentence) = ("a-bug".to_owned(), sentence.to_owned());
            Around { canary: Some(Canary { mutant, seeds: 1, sentence }), ..Around::default() }
        };
        assert_eq!(report(&[], canary("")).verdict, Verdict::Inconclusive);
        assert_eq!(report(&[], canary("lost-write t0-0: x")).verdict, Verdict::Passed);
        let kept = Kept {
            plan: "an_old_bug".to_owned(),
            verdict: Verdict::Liveness,
            sentence: "c0 waits".to_owned(),
        };
        let corpus = Around { corpus: vec![kept], ..canary("") };
        assert_eq!(report(&[], corpus).verdict, Verdict::Liveness);
    }
}
