//! The list of planted bugs and the product hold together: each mutant has a row or a reason to
//! wait, each row has a mutant, and each hunted entry of the list of historic bugs has a mutant.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use quorate_sim::zoo::MUTANTS;
use quorate_sim::zoo::entries::ENTRIES;

/// The slugs of all `mutant!("...")` under a folder.
fn planted(folder: &Path, slugs: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            planted(&path, slugs);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            // An example in a comment is none.
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                for part in line.split("mutant!(\"").skip(1) {
                    slugs.extend(part.split('"').next().map(str::to_owned));
                }
            }
        }
    }
}

/// The text of all sources under a folder.
fn read(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            read(&path, text);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            text.push_str(&fs::read_to_string(&path).expect("a source file"));
        }
    }
}

#[test]
fn every_mutant_has_a_row_and_every_row_a_mutant() {
    let mut slugs = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for part in ["core/src", "net/src", "node/src"] {
        planted(&root.join(part), &mut slugs);
    }
    let listed: BTreeSet<&str> = MUTANTS.iter().map(|mutant| mutant.slug).collect();
    assert_eq!(listed.len(), MUTANTS.len(), "no slug stands twice");
    for slug in &listed {
        assert!(slugs.contains(*slug), "{slug} is planted nowhere");
    }
    // What is planted ahead of the worlds that can run it is an entry of the list, or some other
    // test names and hunts it.
    let mut sources = String::new();
    for part in ["core/src", "core/tests", "node/tests"] {
        read(&root.join(part), &mut sources);
    }
    let tests = sources.replace("mutant!(\"", "");
    let is_entry = |slug: &str| ENTRIES.iter().any(|entry| entry.slug == slug);
    for slug in &slugs {
        let is_named = tests.contains(&format!("\"{slug}\""));
        assert!(listed.contains(slug.as_str()) || is_entry(slug) || is_named, "{slug} has no row");
    }
}

#[test]
fn every_entry_has_a_mutant_or_a_reason() {
    for entry in ENTRIES {
        let mut mutants = MUTANTS.iter().filter(|mutant| mutant.entry == entry.id);
        let is_hunted = mutants.any(|mutant| mutant.not_yet.is_empty());
        assert_eq!(is_hunted, entry.not_yet.is_empty(), "{} {}", entry.id, entry.slug);
    }
    let known = |id| id == "-" || ENTRIES.iter().any(|entry| entry.id == id);
    assert!(MUTANTS.iter().all(|mutant| known(mutant.entry)));
}
