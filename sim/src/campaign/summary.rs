//! `summary.md`: a campaign on one page, for people: what failed and how to see it again, then what
//! was seen at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::report::Report;
use crate::coverage::QUIET;
use crate::run::Verdict;

/// Build servers show so much and no more; the rest is in the report.
const ROWS_MAX: usize = 200;

pub fn print(report: &Report) -> String {
    let mut text = String::new();
    let (world, nodes) = (report.world.name(), report.nodes);
    let verdict = report.verdict;
    let _ = writeln!(text, "# Campaign: {verdict}\n");
    let _ = writeln!(
        text,
        "{} seeds ({}..{}, shard {}/{}) of {nodes} {world} in {:.0} s: {:.1} simulated hours, {} \
         events, {} operations acknowledged, {} records read.\n",
        report.runs,
        report.seeds[0],
        report.seeds[1],
        report.shard[0],
        report.shard[1],
        report.seconds,
        report.simulated_seconds / 3600.0,
        report.events,
        report.operations_acknowledged,
        report.records_read,
    );
    if let Some(commit) = &report.commit {
        let _ = writeln!(text, "Commit {commit}.\n");
    }
    failures(&mut text, report);
    checks(&mut text, report);
    let _ = writeln!(text, "## Faults\n\n{}\n", list(&report.faults));
    coverage(&mut text, report);
    text
}

fn failures(text: &mut String, report: &Report) {
    if report.failures.is_empty() {
        return;
    }
    let _ = writeln!(text, "## {} distinct failures\n", report.failures.len());
    for failure in report.failures.iter().take(ROWS_MAX) {
        let _ = writeln!(
            text,
            "### {} on {}\n\n{}\n\nIn {} seeds, first {}. What is known of it: `{}`.\n\n\
             ```\n{}\n```\n",
            failure.property,
            failure.kind,
            failure.sentence.replace('<', "&lt;"),
            failure.seeds,
            failure.first_seed,
            failure.folder,
            failure.replay,
        );
    }
}

fn checks(text: &mut String, report: &Report) {
    text.push_str("## Checks of the campaign itself\n\n");
    let passed = report.corpus.iter().filter(|kept| kept.verdict == Verdict::Passed).count();
    let _ = writeln!(text, "- corpus: {passed} of {} plans pass", report.corpus.len());
    for kept in report.corpus.iter().filter(|kept| kept.verdict != Verdict::Passed) {
        let _ = writeln!(text, "  - {}: {}, {}", kept.plan, kept.verdict, kept.sentence);
    }
    match &report.canary {
        None => text.push_str("- canary: none\n"),
        Some(canary) if canary.sentence.is_empty() => {
            let _ = writeln!(
                text,
                "- canary: `{}` was **not caught** in {} seeds",
                canary.mutant, canary.seeds
            );
        }
        Some(canary) => {
            let (mutant, seeds) = (&canary.mutant, canary.seeds);
            let _ =
                writeln!(text, "- canary: `{mutant}` caught, {seeds} seeds: {}", canary.sentence);
        }
    }
    let _ = writeln!(text, "- {} seeds were run twice, and gave the same trace", report.twice);
    for goal in &report.gates {
        let met = if goal.is_met { "met" } else { "**not met**" };
        let _ = writeln!(text, "- goal `{}`: {met}, seen {} times", goal.wanted, goal.count);
    }
    text.push('\n');
}

fn list(counts: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// Fault × phase, a row a mark; the faults stand above by number.
fn coverage(text: &mut String, report: &Report) {
    let faults: Vec<&String> = report.after.keys().filter(|fault| *fault != QUIET).collect();
    let marks: BTreeSet<&String> = report.after.values().flat_map(BTreeMap::keys).collect();
    text.push_str("## Marks after faults\n\n| mark | in all |");
    let numbers = 1..=faults.len();
    for number in numbers.clone() {
        let _ = write!(text, " {number} |");
    }
    let _ = writeln!(text, "\n|---|---|{}", "---|".repeat(faults.len()));
    for mark in marks.into_iter().take(ROWS_MAX) {
        let all = report.marks.get(mark).copied().unwrap_or(0);
        let _ = write!(text, "| {mark} | {all} |");
        for fault in &faults {
            match report.after.get(*fault).and_then(|marks| marks.get(mark)) {
                Some(count) => drop(write!(text, " {count} |")),
                None => text.push_str(" |"),
            }
        }
        text.push('\n');
    }
    let names: Vec<String> =
        numbers.zip(&faults).map(|(number, fault)| format!("{number} {fault}")).collect();
    let _ = writeln!(text, "\n{}", names.join(", "));
}

#[cfg(test)]
mod tests {
    use super::super::report::Around;
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn failures_stand_first_with_their_command() {
        let text = print(&report(&[("lost-write", "t0-1", "3 values")], Around::default()));
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}\n{text}"));
        assert!(at("# Campaign: safety violated") < at("### lost-write on a partition"));
        assert!(at("### lost-write") < at("cargo sim run --seed 7"));
        assert!(at("cargo sim run --seed 7") < at("## Faults"));
    }

    #[test]
    fn the_table_has_a_column_for_each_fault() {
        let mut report = report(&[], Around::default());
        let marks = |count| BTreeMap::from([("rolls".to_owned(), count)]);
        report.marks = marks(12);
        report.after = BTreeMap::from([
            (QUIET.to_owned(), marks(5)),
            ("crash".to_owned(), marks(7)),
            ("cut".to_owned(), BTreeMap::new()),
        ]);
        let text = print(&report);
        assert!(text.contains("| rolls | 12 | 7 | |"), "{text}");
        assert!(text.contains("1 crash, 2 cut"), "{text}");
    }
}
