//! ARCHITECTURE.md is the map: what it names must be there, and no heading stands twice.

use std::collections::BTreeSet;

use crate::Complaints;
use crate::source::{Source, has_word};

/// The sections that walk through the code, naming functions and types.
const WALKS: &[&str] = &["One produce", "One fetch"];

pub(crate) fn complaints(text: &str, sources: &[Source]) -> Complaints {
    let mut complaints = Vec::new();
    let mut headings = BTreeSet::new();
    let mut section = "";
    for (number, line) in text.lines().enumerate() {
        let at = |what: String| format!("ARCHITECTURE.md:{}: {what}", number + 1);
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
            if !headings.insert(heading) {
                complaints.push(at(format!("{heading} stands twice")));
            }
        }
        if !WALKS.contains(&section) {
            continue;
        }
        let named = line.split('`').skip(1).step_by(2);
        let missing = named.filter(|name| is_name(name) && !is_there(name, sources));
        complaints.extend(missing.map(|name| at(format!("{name} is nowhere in the code"))));
        let files = line.split(['(', ')', ' ', ',', ';', ':']).filter(|word| word.ends_with(".rs"));
        let missing = files.filter(|file| {
            !sources.iter().any(|source| format!("/{}", source.path).ends_with(&format!("/{file}")))
        });
        complaints.extend(missing.map(|file| at(format!("there is no file {file}"))));
    }
    for walk in WALKS.iter().filter(|walk| !headings.contains(**walk)) {
        complaints.push(format!("ARCHITECTURE.md: has no section {walk}"));
    }
    complaints
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':')
}

/// A function, with its type or module if that is said; or a type, or a variant of one.
fn is_there(name: &str, sources: &[Source]) -> bool {
    let (of, name) = name.rsplit_once("::").unwrap_or(("", name));
    let is_function = name.starts_with(|c: char| c.is_lowercase());
    let wanted = if is_function { format!("fn {name}") } else { name.to_owned() };
    sources.iter().filter(|source| !source.is_test()).any(|source| {
        let module = format!("/{of}.rs");
        let belongs = of.is_empty() || source.path.ends_with(&module) || has_word(&source.code, of);
        belongs && has_word(&source.code, &wanted)
    })
}

#[test]
fn what_is_nowhere_is_told() {
    let code = "impl Writer { fn on_append(&mut self) {} }\nenum Effect { Write }\n";
    let sources = [Source::new("node/src/storage/writer.rs", code)];
    let check =
        |walk: &str| complaints(&format!("## One produce\n{walk}\n## One fetch\n"), &sources).len();
    assert_eq!(check("`Writer::on_append` (storage/writer.rs), `writer::on_append`"), 0);
    assert_eq!(check("emits `Effect::Write`, short of `min.bytes`"), 0);
    assert_eq!(check("`Writer::on_appended`"), 1);
    assert_eq!(check("`Reader::on_append`"), 1);
    assert_eq!(check("(storage/reader.rs)"), 1);
    assert_eq!(check("## One produce"), 1);
    assert_eq!(complaints("## One produce\n", &sources).len(), 1);
}
