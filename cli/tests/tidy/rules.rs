//! Rules about single Rust files. Each is a function from a source to complaints, and each has a
//! test with a snippet that it must refuse beside one that it must accept.

use crate::Complaints;
use crate::source::{Source, has_word};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_LENGTH_MAX: usize = 100;

/// Where `cfg(madsim)` may stand: the simulator, and where an OS part of the world is switched off.
const SIMULATOR_CFG: &[&str] = &["sim/", "cli/", "net/src/transport.rs", "node/src/disk.rs"];
/// Who may touch files: the OS disk, and programs that read what a user names.
const FILES: &[&str] =
    &["node/src/disk/os.rs", "node/src/disk/os/", "cli/", "sim/", "jepsen-like-tests/"];
const SOCKETS: &[&str] = &["net/src/transport/os.rs", "jepsen-like-tests/"];
/// Who may silence clippy's list of forbidden calls, beside tests.
const WORLD_PARTS: &[&str] = &["node/src/clock.rs", "node/src/disk/os.rs", "jepsen-like-tests/"];
/// Who may write `unsafe`. An entry needs a measurement and a decision record.
const UNSAFE: &[&str] = &[];

/// Complains about each of `words` in `source`'s code.
fn refuse(source: &Source, words: &[&str], why: &str) -> Complaints {
    let found = words.iter().flat_map(|word| {
        let lines = source.lines_with(word).into_iter();
        lines.map(move |line| source.at(line, &format!("`{word}`: {why}")))
    });
    found.collect()
}

pub(crate) fn file_lengths(source: &Source) -> Complaints {
    let lines = source.text.lines().count();
    if lines <= FILE_LINES_MAX {
        return Vec::new();
    }
    vec![source.at(lines - 1, &format!("{lines} lines; split it, {FILE_LINES_MAX} is the most"))]
}

/// A link cannot be broken; everything else can.
pub(crate) fn line_lengths(source: &Source) -> Complaints {
    let long = source
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.chars().count() > LINE_LENGTH_MAX && !line.contains("://"));
    long.map(|(number, _)| source.at(number, "more than 100 characters")).collect()
}

/// Counts what stands between the braces of each function, comments included.
pub(crate) fn function_lengths(source: &Source) -> Complaints {
    let mut complaints = Vec::new();
    let code: Vec<char> = source.code.chars().collect();
    let ends: Vec<usize> = (0..code.len()).filter(|&at| code[at] == '\n').collect();
    let line_of = |at: usize| ends.partition_point(|&end| end < at);
    for (start, name) in functions(&code) {
        let Some((open, close)) = body(&code, start) else { continue };
        let lines = (line_of(close) - line_of(open)).saturating_sub(1);
        if lines > FUNCTION_LINES_MAX {
            let what = format!("`{name}` has {lines} lines; {FUNCTION_LINES_MAX} is the most");
            complaints.push(source.at(line_of(start), &what));
        }
    }
    complaints
}

/// Where each `fn name` begins; function pointers have no name.
fn functions(code: &[char]) -> Vec<(usize, String)> {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for at in 0..code.len().saturating_sub(3) {
        let starts = code[at..].starts_with(&['f', 'n', ' ']);
        if !starts || (at > 0 && inside(code[at - 1])) {
            continue;
        }
        let name: String = code[at + 3..].iter().take_while(|&&c| inside(c)).collect();
        if !name.is_empty() {
            found.push((at, name));
        }
    }
    found
}

/// The braces of the function that begins at `start`; `None` if it has no body.
fn body(code: &[char], start: usize) -> Option<(usize, usize)> {
    let mut depth = 0;
    let mut open = None;
    for (at, &c) in code.iter().enumerate().skip(start) {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' => {
                if depth == 0 && open.is_none() {
                    open = Some(at);
                }
                depth += 1;
            }
            '}' => {
                depth -= 1;
                if let Some(open) = open.filter(|_| depth == 0) {
                    return Some((open, at));
                }
            }
            _ => {}
        }
    }
    None
}

pub(crate) fn file_names(source: &Source) -> Complaints {
    let drawers = ["mod", "util", "utils", "helper", "helpers", "common", "types", "impls", "misc"];
    let name = source.path.rsplit('/').next().unwrap_or_default();
    let stem = name.strip_suffix(".rs").unwrap_or(name);
    if drawers.contains(&stem) {
        return vec![source.at(0, "a drawer without a label; name the concept")];
    }
    Vec::new()
}

pub(crate) fn first_lines(source: &Source) -> Complaints {
    let first = source.text.lines().next().unwrap_or_default();
    if first.strip_prefix("//! ").is_some_and(|story| story.len() >= 10) {
        return Vec::new();
    }
    vec![source.at(0, "the first line says, after `//! `, which concept the file owns")]
}

pub(crate) fn unfinished_work(source: &Source) -> Complaints {
    let why = "nothing unfinished is kept";
    let mut complaints = refuse(source, &["todo!", "unimplemented!", "dbg!", "#[ignore"], why);
    let notes = ["TODO", "FIXME", "XXX"];
    for (number, line) in source.text.lines().enumerate() {
        if !source.is_in(&["cli/tests/tidy/"]) && notes.iter().any(|note| has_word(line, note)) {
            complaints.push(source.at(number, why));
        }
    }
    complaints
}

pub(crate) fn biased_select(source: &Source) -> Complaints {
    let code = &source.code;
    let calls = code.match_indices("select!").filter(|(at, _)| {
        let rest = code[at + "select!".len()..].trim_start();
        !rest.starts_with(['{', '(']) || !rest[1..].trim_start().starts_with("biased;")
    });
    calls
        .map(|(at, _)| {
            let line = code[..at].matches('\n').count();
            source.at(line, "`select!` begins with `biased;`, or tokio draws outside the seed")
        })
        .collect()
}

pub(crate) fn simulator_cfg(source: &Source) -> Complaints {
    if source.is_in(SIMULATOR_CFG) {
        return Vec::new();
    }
    refuse(source, &["cfg(madsim)", "not(madsim)", "cfg(all(madsim"], "only where tidy lists it")
}

pub(crate) fn simulator_names(source: &Source) -> Complaints {
    if source.is_in(SIMULATOR_CFG) || source.is_in(&["jepsen-like-tests/"]) {
        return Vec::new();
    }
    let names = ["madsim::", "use madsim", "extern crate madsim"];
    refuse(source, &names, "the product does not know its simulator")
}

/// A file that implements the clock may use the runtime's timers; clock faults reach all others.
pub(crate) fn time_only_from_the_clock(source: &Source) -> Complaints {
    let implements = source.code.contains("Clock for ");
    let real = source.is_test() || source.is_in(&["jepsen-like-tests/", "sim/src/world/"]);
    if implements || real {
        return Vec::new();
    }
    let mut complaints = refuse(source, &["tokio::time"], "time comes from `Clock`");
    if !source.is_in(&["cli/", "sim/"]) {
        let asked = ["Instant::now", "SystemTime::now"];
        complaints.extend(refuse(source, &asked, "time comes from `Clock`"));
    }
    complaints
}

pub(crate) fn files_only_in_their_places(source: &Source) -> Complaints {
    if source.is_in(FILES) || source.is_test() {
        return Vec::new();
    }
    let words = ["std::fs", "tokio::fs", "fs::File", "OpenOptions"];
    refuse(source, &words, "files are reached through `Disk`")
}

pub(crate) fn sockets_only_in_their_place(source: &Source) -> Complaints {
    if source.is_in(SOCKETS) || source.is_test() {
        return Vec::new();
    }
    let words = ["TcpListener", "TcpStream", "UdpSocket", "tokio::net"];
    refuse(source, &words, "sockets are reached through `Network`")
}

pub(crate) fn pure_core(source: &Source) -> Complaints {
    if !source.is_in(&["core/src/"]) {
        return Vec::new();
    }
    let shared = ["Arc", "Mutex", "RwLock", "HashMap", "HashSet", "std::thread", "thread::spawn"];
    let asked = ["std::time::Instant", "Instant::now", "SystemTime", "std::fs", "std::net"];
    let vague = ["f32", "f64", "async", "tokio", "rand::rng"];
    let why = "a machine is a function of its inputs";
    [&shared[..], &asked, &vague].into_iter().flat_map(|list| refuse(source, list, why)).collect()
}

/// What the simulated runtime lacks or cannot replay.
pub(crate) fn simulable_async(source: &Source) -> Complaints {
    if !source.is_in(&["core/", "net/src/", "node/src/", "sim/src/"]) {
        return Vec::new();
    }
    let missing = ["JoinSet", "into_split", "timeout_at", "thread_rng", "fastrand", "DelayQueue"];
    let mut complaints = refuse(source, &missing, "the simulated runtime does not have it");
    let draws = "tokio draws whom it wakes first outside the seed; sim/src/world/gate.rs says more";
    complaints.extend(refuse(source, &["watch::"], draws));
    if !source.is_in(WORLD_PARTS) && !source.is_in(&["sim/"]) && !source.is_test() {
        let threads = ["spawn_blocking", "thread::spawn", "thread::Builder", "thread::scope"];
        complaints.extend(refuse(source, &threads, "only node/src/disk/os.rs owns threads"));
    }
    complaints
}

pub(crate) fn no_unsafe(source: &Source) -> Complaints {
    if source.is_in(UNSAFE) {
        return Vec::new();
    }
    refuse(source, &["unsafe"], "a measurement and a decision record come first")
}

/// The lints that hold a house rule are silenced nowhere.
pub(crate) fn lints_stay_on(source: &Source) -> Complaints {
    let mut complaints = Vec::new();
    for (number, line) in source.code.lines().enumerate() {
        if !(line.contains("allow(") || line.contains("expect(clippy")) {
            continue;
        }
        if has_word(line, "clippy::too_many_lines") || has_word(line, "unsafe_code") {
            complaints.push(source.at(number, "this rule has no exceptions"));
        }
        let free = source.is_in(WORLD_PARTS) || source.is_in(&["sim/", "cli/"]) || source.is_test();
        if has_word(line, "clippy::disallowed_methods") && !free {
            complaints.push(source.at(number, "only a part of the world may call these"));
        }
    }
    complaints
}

#[cfg(test)]
mod both_ways {
    use super::*;

    /// The rule refuses `bad` and accepts `good`, in a file at `path`.
    fn check(rule: fn(&Source) -> Complaints, path: &str, bad: &str, good: &str) {
        assert_ne!(rule(&Source::new(path, bad)), Complaints::new(), "accepted: {bad}");
        assert_eq!(rule(&Source::new(path, good)), Complaints::new(), "refused: {good}");
    }

    #[test]
    fn lengths() {
        check(file_lengths, "core/src/a.rs", &"x\n".repeat(601), &"x\n".repeat(600));
        let link = format!("// see https://example.org/{}", "x".repeat(100));
        check(line_lengths, "core/src/a.rs", &"é".repeat(101), &"é".repeat(100));
        check(line_lengths, "core/src/a.rs", &"x".repeat(101), &link);
        let function =
            |lines| format!("fn long(a: [u8; 2]) {{\n{}}}\n", "    f();\n".repeat(lines));
        check(function_lengths, "core/src/a.rs", &function(71), &function(70));
        let nested = format!("fn out() {{\n    if x {{\n{}    }}\n}}\n", "f(\"}\");\n".repeat(69));
        check(function_lengths, "core/src/a.rs", &nested, "trait T { fn a(&self); }\n");
        let item = format!("type F = fn (u8);\nstruct S {{\n{}}}\n", "    a: u8,\n".repeat(90));
        check(function_lengths, "core/src/a.rs", &function(90), &item);
    }

    #[test]
    fn names_and_first_lines() {
        check(first_lines, "core/src/a.rs", "use x;\n//! Late story.\n", "//! Owns a concept.\n");
        check(first_lines, "core/src/a.rs", "//!\n", "//! Owns a concept.\n");
        for drawer in ["core/src/utils.rs", "net/src/kafka/mod.rs", "cli/tests/common.rs"] {
            assert_eq!(file_names(&Source::new(drawer, "")).len(), 1, "{drawer}");
        }
        assert!(file_names(&Source::new("core/src/model.rs", "")).is_empty());
    }

    #[test]
    fn unfinished() {
        let good = "fn f() { g(\"todo!()\") } // todo!() is not allowed\n";
        for bad in ["fn f() { todo!() }", "#[ignore]\nfn f() {}", "fn f() { unimplemented!() }"] {
            check(unfinished_work, "core/src/a.rs", bad, good);
        }
        check(unfinished_work, "core/src/a.rs", "// TODO: the rest\n", good);
        check(unfinished_work, "core/src/a.rs", "#[ignore = \"slow\"]\nfn f() {}", good);
    }

    #[test]
    fn select() {
        let good = "tokio::select! {\n    biased;\n    () = a => {}\n}";
        check(biased_select, "node/src/a.rs", "tokio::select! {\n    () = a => {}\n}", good);
        let commented = "select! {\n    // biased;\n    () = a => {}\n}";
        check(biased_select, "node/src/a.rs", commented, "fn selected() {}");
    }

    #[test]
    fn simulator() {
        let cfg = "#[cfg(madsim)]\nmod a;";
        check(simulator_cfg, "net/src/client.rs", cfg, "#[cfg(test)]\nmod a;");
        check(simulator_cfg, "net/src/client.rs", "#[cfg(not(madsim))]\nmod a;", "mod a;");
        assert!(simulator_cfg(&Source::new("net/src/transport.rs", cfg)).is_empty());
        assert!(simulator_cfg(&Source::new("sim/src/world.rs", cfg)).is_empty());
        check(simulator_names, "node/src/a.rs", "use madsim::rand;", "use tokio::io; // madsim's");
    }

    #[test]
    fn world() {
        let sleep = "async fn f() { tokio::time::sleep(x).await }";
        check(time_only_from_the_clock, "node/src/driver.rs", sleep, "clock.sleep(x).await");
        let clock = format!("impl Clock for OsClock {{}}\n{sleep}");
        assert!(time_only_from_the_clock(&Source::new("node/src/clock.rs", &clock)).is_empty());
        let asks = "let t = Instant::now();";
        check(time_only_from_the_clock, "net/src/a.rs", asks, "let t = clock.now();");

        let file = "use std::fs;";
        check(files_only_in_their_places, "node/src/storage.rs", file, "use std::path::Path;");
        assert!(files_only_in_their_places(&Source::new("node/src/disk/os.rs", file)).is_empty());
        assert!(files_only_in_their_places(&Source::new("core/tests/scripts.rs", file)).is_empty());

        let socket = "use tokio::net::TcpStream;";
        check(
            sockets_only_in_their_place,
            "net/src/client.rs",
            socket,
            "use std::net::SocketAddr;",
        );
        assert!(
            sockets_only_in_their_place(&Source::new("net/src/transport/os.rs", socket)).is_empty()
        );
    }

    #[test]
    fn core() {
        let good = "use std::collections::BTreeMap;\nuse crate::time::Instant; // no Arc\n";
        let bad = ["HashMap", "std::sync::Arc", "std::time::Instant", "std::sync::Mutex"];
        for name in bad {
            check(pure_core, "core/src/a.rs", &format!("use {name};"), good);
        }
        check(pure_core, "core/src/a.rs", "let x: f64 = 1.0;", good);
        check(pure_core, "core/src/a.rs", "async fn f() {}", good);
        assert!(pure_core(&Source::new("core/tests/random.rs", "use HashMap;")).is_empty());
    }

    #[test]
    fn runtime_and_lints() {
        check(simulable_async, "node/src/a.rs", "JoinSet::new()", "FuturesUnordered::new()");
        check(simulable_async, "sim/src/a.rs", "watch::channel(0)", "Notify::new()");
        check(simulable_async, "net/src/a.rs", "stream.into_split()", "tokio::io::split(stream)");
        check(simulable_async, "node/src/a.rs", "spawn_blocking(f)", "tokio::spawn(f)");
        check(no_unsafe, "core/src/a.rs", "unsafe { f() }", "// unsafe is not needed\nf()");
        let allow = "#[allow(clippy::too_many_lines)]\nfn f() {}";
        check(
            lints_stay_on,
            "core/src/a.rs",
            allow,
            "#[allow(clippy::large_enum_variant)]\nenum E {}",
        );
        let clock = "#[allow(clippy::disallowed_methods)]\nfn f() {}";
        check(lints_stay_on, "net/src/a.rs", clock, "fn f() {}");
        assert!(lints_stay_on(&Source::new("node/src/clock.rs", clock)).is_empty());
    }
}
