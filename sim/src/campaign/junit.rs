//! `junit.xml`: a campaign as the test reports that build servers show: the corpus, the canary, the
//! goals, and the seeds as one test for each distinct failure and one for the rest.

use std::fmt::Write as _;

use super::report::Report;
use crate::run::Verdict;

/// A test, and what was wrong with it.
struct Case {
    class: &'static str,
    name: String,
    wrong: Option<(String, String)>,
}

pub fn print(report: &Report) -> String {
    let cases = cases(report);
    let failed = cases.iter().filter(|case| case.wrong.is_some()).count();
    let suite = format!("cargo sim campaign, {} {}", report.nodes, report.world.name());
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        text,
        "<testsuites tests=\"{tests}\" failures=\"{failed}\">\n  <testsuite name=\"{}\" \
         tests=\"{tests}\" failures=\"{failed}\" errors=\"0\" skipped=\"0\" time=\"{:.3}\">",
        escape(&suite),
        report.seconds,
        tests = cases.len(),
    );
    for Case { class, name, wrong } in cases {
        let _ = write!(text, "    <testcase classname=\"sim.{class}\" name=\"{}\"", escape(&name));
        match wrong {
            None => text.push_str("/>\n"),
            Some((kind, words)) => {
                let first = words.lines().next().unwrap_or_default();
                let _ = writeln!(
                    text,
                    ">\n      <failure type=\"{}\" message=\"{}\">{}</failure>\n    </testcase>",
                    escape(&kind),
                    escape(first),
                    escape(&words),
                );
            }
        }
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

fn cases(report: &Report) -> Vec<Case> {
    let mut cases = Vec::new();
    for kept in &report.corpus {
        let wrong = (kept.verdict != Verdict::Passed)
            .then(|| (kept.verdict.word().to_owned(), kept.sentence.clone()));
        cases.push(Case { class: "corpus", name: kept.plan.clone(), wrong });
    }
    if let Some(canary) = &report.canary {
        let wrong = canary.sentence.is_empty().then(|| {
            let words = format!("{} was not caught in {} seeds", canary.mutant, canary.seeds);
            ("inconclusive".to_owned(), words)
        });
        cases.push(Case { class: "canary", name: canary.mutant.clone(), wrong });
    }
    for goal in &report.gates {
        let words = || format!("{} was seen {} times", goal.wanted, goal.count);
        let wrong = (!goal.is_met).then(|| ("inconclusive".to_owned(), words()));
        cases.push(Case { class: "goal", name: goal.wanted.clone(), wrong });
    }
    for failure in &report.failures {
        let words = format!(
            "{}\nin {} of {} seeds, first {}\n{}\n{}",
            failure.sentence,
            failure.seeds,
            report.runs,
            failure.first_seed,
            failure.replay,
            failure.folder,
        );
        let name = format!("{} on {}: {}", failure.property, failure.kind, failure.reason);
        let wrong = Some((failure.verdict.word().to_owned(), words));
        cases.push(Case { class: "seeds", name, wrong });
    }
    let passed = report.verdicts.get(Verdict::Passed.word()).copied().unwrap_or(0);
    let name = format!("{passed} seeds hold all properties");
    let wrong = (report.runs == 0).then(|| ("inconclusive".to_owned(), "nothing ran".to_owned()));
    cases.push(Case { class: "seeds", name, wrong });
    cases
}

/// As text or an attribute of XML. What XML cannot hold at all becomes `?`.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(letter),
            letter if letter.is_control() => escaped.push('?'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::super::report::{Around, Canary};
    use super::*;

    #[test]
    fn each_distinct_failure_is_a_test_that_failed() {
        let wrong = [("lost-write", "t0-1", "3 <values> & \"more\"\u{1}")];
        let canary = Some(Canary { mutant: "b".to_owned(), seeds: 20, sentence: String::new() });
        let text = print(&report(&wrong, Around { canary, ..Around::default() }));
        assert!(text.contains("tests=\"3\" failures=\"2\""), "{text}");
        assert!(text.contains("&lt;values&gt; &amp; &quot;more&quot;?"), "{text}");
        assert!(text.contains("b was not caught in 20 seeds"), "{text}");
        assert!(text.contains("name=\"1 seeds hold all properties\"/>"), "{text}");
        assert_eq!(text.matches("<testcase").count(), 3);
        assert_eq!(text.matches("</testcase>").count(), 2);
    }

    #[test]
    fn a_campaign_that_passes_has_no_failures() {
        let text = print(&report(&[], Around::default()));
        assert!(text.contains("failures=\"0\""), "{text}");
        assert!(!text.contains("<failure"), "{text}");
    }
}
