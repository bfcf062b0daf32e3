//! Recorded stories: a file of commands and of what they answered. Blocks of commands, `---`, the
//! output up to an empty line. `UPDATE_GOLDENFILES=1` writes the output anew; the review of the
//! difference is the assertion.

use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr;

/// What a script talks to.
pub(crate) trait Stage {
    /// Carries out one command and says what came of it, a line an effect.
    fn run(&mut self, command: &Command<'_>) -> String;
}

/// `name word key=value`.
#[derive(Clone, Debug)]
pub(crate) struct Command<'a> {
    pub(crate) name: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Command<'a> {
    fn parse(line: &'a str) -> Self {
        let mut words = line.split_whitespace();
        Self { name: words.next().unwrap_or_default(), words: words.collect() }
    }

    /// The value of `key=value`.
    pub(crate) fn value(&self, key: &str) -> Option<&'a str> {
        self.words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// The value of `key=value`, read; panics if it cannot be read.
    pub(crate) fn read<T: FromStr>(&self, key: &str) -> Option<T> {
        let value = self.value(key)?;
        Some(value.parse().unwrap_or_else(|_| panic!("{key}={value}")))
    }

    /// Words without `=`, in order.
    pub(crate) fn words(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.words.iter().copied().filter(|word| !word.contains('='))
    }

    /// Words with `=`, in order.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        self.words.iter().filter_map(|word| word.split_once('='))
    }
}

/// Milliseconds from `5ms`, `5s`, `5m`, `5h`, `5d`.
pub(crate) fn millis(text: &str) -> i64 {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
    let number: i64 = text[..text.len() - unit.len()].parse().expect("a number and a unit");
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        unit => panic!("no unit of time: {unit}"),
    };
    number * factor
}

/// Runs every script of `directory`, each on a stage of its own.
pub(crate) fn run_all(directory: &str, mut stage: impl FnMut() -> Box<dyn Stage>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(directory);
    let entries = std::fs::read_dir(&path).expect("a directory of scripts");
    let mut scripts = entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>();
    scripts.sort();
    let update = std::env::var_os("UPDATE_GOLDENFILES").is_some();
    let mut wrong = Vec::new();
    for script in scripts {
        let text = std::fs::read_to_string(&script).expect("a script");
        let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
        assert!(text.starts_with("# "), "{name}: a script begins with its story");
        let played = play(&name, &text, &mut *stage());
        if played != text {
            if update {
                std::fs::write(&script, &played).expect("the script can be written");
            } else {
                wrong.push(format!("{directory}/{name}:\n{}", difference(&text, &played)));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nUPDATE_GOLDENFILES=1 writes them anew; review the difference",
        wrong.join("\n")
    );
}

/// The script with the output that its commands have now.
fn play(name: &str, text: &str, stage: &mut dyn Stage) -> String {
    let mut out = String::new();
    let mut output = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == "---" {
            lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
            let shown = if output.is_empty() { "nothing\n" } else { &output };
            let _ = write!(out, "---\n{shown}\n");
            output.clear();
            continue;
        }
        let _ = writeln!(out, "{line}");
        let command = if line.starts_with('#') { "" } else { line.trim() };
        if let Some(silent) = command.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            stage.run(&Command::parse(silent));
        } else if !command.is_empty() {
            output.push_str(&stage.run(&Command::parse(command)));
        }
    }
    assert!(output.is_empty(), "{name}: the last commands have no --- behind them");
    format!("{}\n", out.trim_end())
}

fn difference(expected: &str, found: &str) -> String {
    let mut expected = expected.lines();
    let mut found = found.lines();
    let mut context = Vec::new();
    loop {
        match (expected.next(), found.next()) {
            (Some(one), Some(other)) if one == other => context.push(one),
            (None, None) => return String::new(),
            (one, other) => {
                let around = context[context.len().saturating_sub(6)..].join("\n  ");
                let show = |line: Option<&str>| line.unwrap_or("(end)").to_owned();
                return format!("  {around}\n- {}\n+ {}", show(one), show(other));
            }
        }
    }
}

/// The names in `reached!("…")` in the source of `machine`.
#[cfg(debug_assertions)]
pub(crate) fn marks(machine: &str) -> Vec<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let parts = std::fs::read_dir(source.join(machine)).expect("the machine's parts");
    let parts = parts.map(|entry| entry.expect("an entry").path());
    let parts = parts.filter(|part| part.is_file());
    let mut marks = Vec::new();
    for file in parts.chain([source.join(format!("{machine}.rs"))]) {
        let text = std::fs::read_to_string(file).expect("a source file");
        let named = text.split("reached!(\"").skip(1).filter_map(|rest| rest.split('"').next());
        marks.extend(named.map(str::to_owned));
    }
    marks
}
