//! Rules about the repository as a whole: which crate may lean on which, and that scripts, plans
//! and decision records tell their story.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Complaints;
use crate::source::files;

/// One crate's manifest: its folder, the crates of ours it may name, and those it may name under
/// `cfg(madsim)` only.
struct Arrow {
    folder: &'static str,
    always: &'static [&'static str],
    simulated: &'static [&'static str],
}

const ARROWS: &[Arrow] = &[
    Arrow { folder: "core", always: &[], simulated: &[] },
    Arrow { folder: "net", always: &["core"], simulated: &[] },
    Arrow { folder: "node", always: &["core", "net"], simulated: &[] },
    Arrow { folder: "cli", always: &["core", "net", "node"], simulated: &[] },
    Arrow { folder: "sim", always: &["core", "net"], simulated: &["node"] },
    Arrow { folder: "jepsen-like-tests", always: &["core", "net", "sim"], simulated: &[] },
    Arrow { folder: "fuzz", always: &["core", "net"], simulated: &[] },
];

/// What `core` may lean on: bytes, derives and pure functions. Nothing that runs.
const CORE_FOREIGN: &[&str] =
    &["bincode", "bytes", "crc32c", "flate2", "lz4_flex", "regex", "serde", "snap", "zstd"];

pub(crate) fn arrows(root: &Path) -> Complaints {
    let mut complaints = Vec::new();
    let mut manifests = 0;
    for path in files(root, root).iter().filter(|path| path.ends_with("/Cargo.toml")) {
        let folder = path.trim_end_matches("/Cargo.toml");
        let text = fs::read_to_string(root.join(path)).expect("a manifest is readable");
        manifests += 1;
        match ARROWS.iter().find(|arrow| arrow.folder == folder) {
            Some(arrow) => complaints.extend(arrows_of(arrow, &text)),
            None => complaints.push(format!("{path}: a crate that the table of arrows lacks")),
        }
    }
    assert!(manifests >= 6, "found only {manifests} manifests");
    complaints
}

fn arrows_of(arrow: &Arrow, text: &str) -> Complaints {
    let manifest: toml::Table = text.parse().expect("a manifest is TOML");
    let folder = arrow.folder;
    let mut complaints = Vec::new();
    if folder != "fuzz" && !text.contains("[lints]\nworkspace = true") {
        complaints.push(format!("{folder}: the workspace's lints are not on"));
    }
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        for name in names(manifest.get(section)) {
            // A crate may name itself among its dev-dependencies: its tests want a feature.
            let itself = section == "dev-dependencies" && ours(&name) == Some(folder);
            if !itself && ours(&name).is_some_and(|name| !arrow.always.contains(&name)) {
                complaints.push(format!("{folder} must not name {name}"));
            }
            let foreign = ours(&name).is_none() && section != "dev-dependencies";
            if folder == "core" && foreign && !CORE_FOREIGN.contains(&name.as_str()) {
                complaints.push(format!("core must not lean on {name}"));
            }
        }
    }
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    for (target, sections) in targets.into_iter().flatten() {
        for name in names(sections.get("dependencies")) {
            let allowed = target == "cfg(madsim)" && folder == "sim";
            let known = ours(&name).is_none_or(|name| arrow.simulated.contains(&name));
            if !(allowed && known) {
                complaints.push(format!("{folder} must not name {name} for {target}"));
            }
        }
    }
    complaints
}

fn names(section: Option<&toml::Value>) -> Vec<String> {
    let table = section.and_then(toml::Value::as_table);
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

/// The folder of a crate of this repository.
fn ours(package: &str) -> Option<&str> {
    match package {
        "quorate" => Some("cli"),
        "jepsen-like-tests" => Some(package),
        _ => package.strip_prefix("quorate-"),
    }
}

pub(crate) fn stories(root: &Path) -> Complaints {
    let folders = ["core/tests/scripts", "sim/tests/plans"];
    let told = folders.iter().flat_map(|folder| files(root, &root.join(folder)));
    told.filter_map(|path| {
        let text = fs::read_to_string(root.join(&path)).expect("a script is text");
        story(&path, &text)
    })
    .collect()
}

fn story(path: &str, text: &str) -> Option<String> {
    let first = text.lines().next().unwrap_or_default();
    let told = first.strip_prefix("# ").is_some_and(|story| story.split(' ').count() >= 3);
    (!told).then(|| format!("{path}:1: begins with its story, as a comment"))
}

pub(crate) fn decisions(root: &Path) -> Complaints {
    let folder = root.join("docs/decisions");
    let records: Vec<(String, String)> = files(root, &folder)
        .into_iter()
        .filter(|path| !path.ends_with("/README.md"))
        .map(|path| {
            let text = fs::read_to_string(root.join(&path)).expect("a record is text");
            (path.rsplit('/').next().expect("a name").to_owned(), text)
        })
        .collect();
    assert!(records.len() >= 2, "found only {} decision records", records.len());
    complaints_about(&records)
}

fn complaints_about(records: &[(String, String)]) -> Complaints {
    let mut complaints = Vec::new();
    let mut numbers = BTreeMap::new();
    for (name, text) in records {
        let number = name.split('-').next().unwrap_or_default();
        if number.len() != 4 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            complaints.push(format!("{name}: begins with a number of four digits"));
        }
        if let Some(other) = numbers.insert(number, name) {
            complaints.push(format!("{name}: has the number of {other}"));
        }
        if !text.starts_with(&format!("# {number} ")) {
            complaints.push(format!("{name}: the first line is `# {number} ` and the title"));
        }
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        if headings != ["## Context", "## Choice", "## Alternatives", "## Price"] {
            complaints.push(format!("{name}: context, choice, alternatives, price; in this order"));
        }
        if text.lines().count() > 40 {
            complaints.push(format!("{name}: forty lines at most"));
        }
    }
    complaints
}

#[test]
fn an_arrow_against_the_table_is_refused() {
    let lints = "[lints]\nworkspace = true\n";
    let check = |folder: &str, text: &str| {
        let arrow = ARROWS.iter().find(|arrow| arrow.folder == folder).expect("in the table");
        arrows_of(arrow, &format!("{lints}{text}")).len()
    };
    assert_eq!(check("core", "[dependencies]\nbytes = \"1\"\n"), 0);
    assert_eq!(check("core", "[dependencies]\ntokio = \"1\"\n"), 1);
    assert_eq!(check("core", "[dev-dependencies]\nquorate-net = \"1\"\n"), 1);
    assert_eq!(check("net", "[dependencies]\nquorate-core.workspace = true\n"), 0);
    assert_eq!(check("net", "[dependencies]\nquorate-node.workspace = true\n"), 1);
    assert_eq!(check("jepsen-like-tests", "[dependencies]\nquorate-node = \"1\"\n"), 1);
    assert_eq!(check("sim", "[dependencies]\nquorate-node = \"1\"\n"), 1);
    let simulated = "[target.'cfg(madsim)'.dependencies]\nquorate-node = \"1\"\n";
    assert_eq!((check("sim", simulated), check("node", simulated)), (0, 1));
    assert_eq!(arrows_of(&ARROWS[0], "").len(), 1, "lints are off");
}

#[test]
fn a_script_without_a_story_is_refused() {
    assert_eq!(story("a", "# A deposed leader truncates its tail.\nproduce a\n"), None);
    assert!(story("a", "produce a\n# A story that comes late.\n").is_some());
    assert!(story("a", "#\n").is_some());
}

#[test]
fn a_record_that_is_not_whole_is_refused() {
    let whole = "# 0001 Title\n\n## Context\n\n## Choice\n\n## Alternatives\n\n## Price\n";
    let check =
        |name: &str, text: &str| complaints_about(&[(name.to_owned(), text.to_owned())]).len();
    assert_eq!(check("0001-title.md", whole), 0);
    assert_eq!(check("1-title.md", whole), 2);
    assert_eq!(check("0001-title.md", &whole.replace("## Price\n", "")), 1);
    assert_eq!(check("0001-title.md", &whole.replace("# 0001", "# 0002")), 1);
    assert_eq!(check("0001-title.md", &format!("{whole}{}", "x\n".repeat(40))), 1);
    let twice =
        [("0001-a.md".to_owned(), whole.to_owned()), ("0001-b.md".to_owned(), whole.to_owned())];
    assert_eq!(complaints_about(&twice).len(), 1);
}
