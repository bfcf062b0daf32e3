//! The command itself, so that a plain `cargo test` simulates a few lives in both worlds, and goes
//! all the way from a planted bug to the page that explains it.
#![cfg(not(madsim))]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// What it printed to standard output and to standard error.
fn prints(arguments: &[&str]) -> (String, String) {
    ends(arguments, 0)
}

/// The same, of a run that says something else than that all is well.
fn ends(arguments: &[&str], code: i32) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_quorate-sim")).args(arguments).output();
    let output = output.expect("the simulator runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{text}\n{errors}");
    (text.into_owned(), errors.into_owned())
}

fn passes(arguments: &[&str]) -> String {
    prints(arguments).1
}

#[test]
fn a_few_lives_in_both_worlds() {
    passes(&["campaign", "--seeds", "0..20", "--world", "cores"]);
    let (said, _) = prints(&["campaign", "--seeds", "0..20"]);
    // Our own client library is among those who write and read.
    for mark in ["the-library-appends", "the-library-reads", "the-library-does-not-know"] {
        assert!(said.contains(mark), "{mark}\n{said}");
    }
    passes(&["run", "--seed", "7", "--twice"]);
    passes(&["corpus"]);
    let said = passes(&["run", "--seed", "7", "-vv"]);
    let line = said.lines().find(|line| line.contains("n1  INFO  node::node::start: the node"));
    assert!(line.is_some_and(|line| line.starts_with("[  ")), "{said}");
    assert_eq!(said, passes(&["run", "--seed", "7", "-vv"]), "the node says the same twice");
}

/// Without what each of these plans is for, its group shares out too often.
#[test]
fn a_storm_is_seen() {
    for (name, mutant) in [
        ("a_hundred_members_are_back_at_once", "missed-are-not-awaited"),
        ("a_coordinator_stands_still_for_longer_than_every_session", "G13"),
    ] {
        let plan = format!("{}/tests/plans/{name}.plan", env!("CARGO_MANIFEST_DIR"));
        let (said, _) = ends(&["replay", &plan, "--mutant", mutant], 1);
        assert!(said.contains("group-storm"), "{said}");
    }
}

#[test]
fn nobody_who_reads_is_no_panic() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate-sim"));
    command.args(["plan", "--seed", "7"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut simulator = command.spawn().expect("the simulator runs");
    drop(simulator.stdout.take());
    let output = simulator.wait_with_output().expect("the simulator ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(141), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
}

/// A slip of the pen plants nothing, and all passes: that says nothing.
#[test]
fn what_is_planted_nowhere_is_not_passed() {
    for arguments in [&["run", "--seed", "7"][..], &["campaign", "--seeds", "0..1"]] {
        let world = ["--world", "cores", "--mutant", "no-such-bug"];
        let (said, _) = ends(&[arguments, &world].concat(), 4);
        assert!(said.contains("the line of no-such-bug was never passed"), "{said}");
    }
    // What was asked for besides is left all the same.
    let page = std::env::temp_dir().join(format!("quorate-void-{}.html", std::process::id()));
    let path = page.display().to_string();
    let asked = ["run", "--seed", "7", "--world", "cores", "--mutant", "no-such-bug"];
    ends(&[&asked[..], &["--timeline", &path]].concat(), 4);
    assert!(fs::remove_file(&page).is_ok(), "there is a page");
    // Two stand for B4, one for A22.
    let (_, said) = ends(&["run", "--seed", "7", "--mutant", "B4"], 64);
    assert!(said.contains("B4 is planted as one of"), "{said}");
    ends(&["run", "--seed", "4", "--nodes", "3", "--world", "cores", "--mutant", "A22"], 1);
}

/// A planted bug, from a campaign to a shrunk plan, a page, and a replay that fails alike.
#[test]
fn a_planted_bug_is_shrunk_shown_and_replayed() {
    const BUG: [&str; 6] = ["--world", "cores", "--nodes", "3", "--mutant", "unsynced-backup-acks"];
    let folder = std::env::temp_dir().join(format!("quorate-smoke-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let at = |file: &str| folder.join(file).display().to_string();
    let report = ["--json", &folder.display().to_string(), "--shrink", "20s"].map(str::to_owned);
    let report: Vec<&str> = report.iter().map(String::as_str).collect();
    let campaign = ["campaign", "--seeds", "0..4"];
    ends(&[&campaign[..], &BUG, &report].concat(), 1);
    let json = fs::read_to_string(at("report.json")).expect("a report");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["version"], &json["verdict"]), (&1.into(), &"safety".into()));
    for file in ["junit.xml", "summary.md"] {
        let text = fs::read_to_string(at(file)).expect("another form of it");
        assert!(text.contains("shadow-watermark"), "{text}");
    }
    let failures = json["failures"].as_array().expect("a list");
    let failure = failures.iter().find(|failure| failure["property"] == "shadow-watermark");
    let failure = failure.expect("the bug is caught");
    let place = folder.join(failure["folder"].as_str().expect("a folder"));
    for file in ["README.md", "failure.plan", "failure.trace", "failure.jsonl", "timeline.html"] {
        assert!(place.join(file).exists(), "{file}");
    }
    let page = fs::read_to_string(place.join("timeline.html")).expect("a page");
    assert!(page.contains("\"shadow-watermark\"") && page.ends_with("</html>\n"));
    for plan in ["failure.plan", "shrunk.plan"] {
        let plan = place.join(plan).display().to_string();
        let (said, _) = ends(&["replay", &plan], 1);
        assert!(said.contains("  same failure\n  the trace is the one it was kept with"), "{said}");
    }
    let faults = |plan: &str| {
        let text = fs::read_to_string(place.join(plan)).expect("a plan");
        text.lines().filter(|line| line.starts_with("fault ")).count()
    };
    assert!(faults("failure.plan") > 5 && faults("shrunk.plan") <= 1);
    answers_of_a_replay(&place);
    let _ = fs::remove_dir_all(&folder);
}

/// The other answers: it passes, it fails otherwise, it runs otherwise, it is no plan any more.
fn answers_of_a_replay(folder: &Path) {
    let text = fs::read_to_string(folder.join("shrunk.plan")).expect("a plan");
    let other = folder.join("other.plan").display().to_string();
    let write = |text: String| fs::write(&other, text).expect("writes");
    write(text.replace("mutant=unsynced-backup-acks ", ""));
    let (said, _) = ends(&["replay", &other], 0);
    assert!(said.contains("passes now"), "{said}");
    write(text.replace("property=shadow-watermark", "property=lost-write"));
    let (said, _) = ends(&["replay", &other], 1);
    assert!(said.contains("another failure: shadow-watermark"), "{said}");
    let trace = fs::read_to_string(folder.join("shrunk.trace")).expect("a trace");
    fs::write(folder.join("other.trace"), trace.replacen("starts", "begins", 1)).expect("writes");
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("trace ")).collect();
    lines.push("trace 0000000000000007");
    write(lines.join("\n"));
    let (said, _) = ends(&["replay", &other], 1);
    assert!(said.contains("same failure") && said.contains("diverged at step "), "{said}");
    write(text.replace("fragment", "fragments"));
    let (said, _) = ends(&["replay", &other], 64);
    assert!(said.contains("the plan no longer applies: line "), "{said}");
}

#[test]
fn what_depends_on_the_order_of_hashes_is_named_by_its_first_step() {
    let world = ["run", "--seed", "7", "--world", "quorum", "--twice"];
    passes(&world);
    let (said, _) = ends(&[&world[..], &["--mutant", "hash-order"]].concat(), 3);
    let lines: Vec<&str> = said.lines().collect();
    // Of two runs, the first line that differs, as both have it.
    let place = lines.iter().position(|line| line.starts_with("line ")).expect("it says so");
    assert!(lines[place + 1].contains("s #") && lines[place + 2].contains("s #"), "{said}");
    assert_ne!(lines[place + 1], lines[place + 2], "{said}");
}

/// What Kafka's older protocol of transactions loses, as was published, and the present one keeps.
#[test]
fn a_late_end_is_no_end_of_another_transaction() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/");
    let older = format!("{folder}published/a_late_end_commits_the_next_transaction.plan");
    let (said, _) = ends(&["replay", &older], 1);
    assert!(said.contains("outcome-reversed x0-0") && said.contains("G1a x0-0"), "{said}");
    let present = format!("{folder}plans/a_late_end_ends_nothing_else.plan");
    passes(&["replay", &present]);
    // They are one plan but for the protocol.
    let told = |file: &str| {
        let text = fs::read_to_string(file).expect("a plan");
        let drawn = text
            .lines()
            .filter(|line| !["#", "found ", "trace "].iter().any(|other| line.starts_with(other)));
        let drawn: Vec<&str> = drawn.collect();
        drawn.join("\n").replace("old_speakers=2 ", "").replace(" old_ends_echo=yes", "")
    };
    assert_eq!(told(&older), told(&present));
}
