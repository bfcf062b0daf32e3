//! The list of historic bugs as a page, and what became of each.
#![allow(clippy::print_stdout)]

use serde_json::json;

use super::{Hunt, Score, summary};
use crate::zoo::entries::ENTRIES;
use crate::zoo::{MUTANTS, Mutant};

pub(super) fn print(scores: &[Score], hunt: &Hunt) {
    if hunt.json {
        return print_json(scores);
    }
    println!("# The zoo: historic bugs, planted\n");
    println!(
        "Made by `cargo sim zoo --keep FILE --markdown`, from hunts with `--keep FILE`. `quorum` \
         is the\nworld of quorums, `3 nodes` that of nodes with three. Seeds are the median \
         over the\ncampaigns; behind them stands which checker spoke first. A seed counts only if \
         it passes without\nthe planted bug. With `--anywhere`, a bug is hunted in one world after \
         the other, until one has\ncaught it.\n"
    );
    println!("| entry | planted as | caught | or why not |\n|---|---|---|---|");
    for entry in ENTRIES {
        if entry.not_yet.is_empty() {
            print_rows(scores, entry.id, entry.slug, hunt);
        } else {
            let planted = MUTANTS.iter().filter(|mutant| mutant.entry == entry.id);
            let slugs: Vec<String> = planted.map(|mutant| format!("`{}`", mutant.slug)).collect();
            let (id, slug, why) = (entry.id, entry.slug, entry.not_yet);
            println!("| {id} `{slug}` | {} | | {why} |", slugs.join(", "));
        }
    }
    print_rows(scores, "-", "our own", hunt);
    let all: Vec<&Mutant> = MUTANTS.iter().collect();
    println!("\n{}.", summary(&all, scores).2);
}

/// A row for each mutant and place, and for each mutant that is not hunted.
fn print_json(scores: &[Score]) {
    let mut rows = Vec::new();
    for mutant in MUTANTS {
        let Mutant { entry, slug, not_yet, .. } = mutant;
        if !not_yet.is_empty() {
            rows.push(json!({"entry": entry, "slug": slug, "not_yet": not_yet}));
        }
        for score in scores.iter().filter(|score| score.mutant.slug == *slug) {
            rows.push(json!({
                "entry": entry, "slug": slug, "world": score.place.world.name(),
                "nodes": score.place.nodes, "seeds": score.median(), "in_vain": score.in_vain,
                "sentence": score.sentence,
            }));
        }
    }
    let all: Vec<&Mutant> = MUTANTS.iter().collect();
    let (caught, hunted, _) = summary(&all, scores);
    println!("{:#}", json!({"caught": caught, "hunted": hunted, "rows": rows}));
}

fn print_rows(scores: &[Score], id: &str, slug: &str, hunt: &Hunt) {
    for mutant in MUTANTS.iter().filter(|mutant| mutant.entry == id && hunt.wants(mutant)) {
        let of: Vec<&Score> =
            scores.iter().filter(|score| score.mutant.slug == mutant.slug).collect();
        let cells: Vec<String> = of
            .iter()
            .map(|score| match score.median() {
                Some(seeds) => {
                    format!("{}: {seeds} seeds, {}", score.place, score.checker())
                }
                None => format!("{}: not in {} seeds", score.place, score.in_vain),
            })
            .collect();
        let survives = of.iter().all(|score| score.median().is_none());
        let why = match mutant.not_yet {
            "" if survives => mutant.lacks(),
            why => why,
        };
        println!("| {id} `{slug}` | `{}` | {} | {why} |", mutant.slug, cells.join("; "));
    }
}
