//! The list of historic bugs as a page, and what became of each.
#![allow(clippy::print_stdout)]

use super::{Hunt, Score, summary};
use crate::zoo::entries::ENTRIES;
use crate::zoo::{MUTANTS, Mutant};

pub(super) fn print(scores: &[Score], hunt: &Hunt) {
    println!("# The zoo: historic bugs, planted\n");
    println!(
        "Made by `cargo sim zoo --keep FILE --markdown`, from hunts with `--keep FILE`. `3 nodes` \
         is the\nworld of nodes with three of them. Seeds are the median over the campaigns; \
         behind them stands\nwhich checker spoke first. A seed counts only if it passes without \
         the planted bug.\n"
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
