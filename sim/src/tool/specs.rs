//! The specifications by themselves: how many small states they have, and how many of these were
//! passed; and the traces of a run as files.
#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use crate::run::Verdict;
use crate::spec::Seen;
use crate::spec::visited::spaces;

/// Explores them all. The exit code is 1 if a rule of a specification breaks on the way.
pub(super) fn run() -> u8 {
    if explore(&BTreeSet::new()) { 0 } else { Verdict::Safety.exit_code() }
}

/// What a campaign's seeds passed of them.
pub(super) fn print(passed: &BTreeSet<u64>) {
    println!("specifications: {} small shapes passed", passed.len());
    explore(passed);
}

/// Prints a line a space; whether no rule breaks.
fn explore(passed: &BTreeSet<u64>) -> bool {
    let mut holds = true;
    let mut small = BTreeSet::new();
    for space in spaces() {
        println!("  {}", space.line(passed));
        holds &= space.explored.broken.is_none();
        small.extend(space.explored.shapes);
    }
    println!(
        "  {} small shapes passed that are in none of these",
        passed.difference(&small).count()
    );
    holds
}

/// A file each for the quorum and each partition.
///
/// # Errors
///
/// The folder cannot be written.
pub(super) fn write(seen: &Seen, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    for (name, line) in &seen.lines {
        let text = files.entry(name).or_default();
        text.push_str(line);
        text.push('\n');
    }
    for (name, text) in &files {
        fs::write(folder.join(format!("{name}.jsonl")), text)?;
    }
    println!(
        "  {} steps of specifications, {} files in {}",
        seen.steps,
        files.len(),
        folder.display()
    );
    Ok(())
}
