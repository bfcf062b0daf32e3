//! How results reach people and programs: tables in a terminal, JSON with `--json`, and no third
//! way. Sentences go to standard error, results to standard output.

pub(crate) mod human;
pub(crate) mod table;

use std::io::{self, BufRead, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    color: bool,
}

impl Style {
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { color: false };

    fn of(terminal: bool) -> Self {
        // https://no-color.org
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { color: terminal && !refused && !dumb }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }
}

/// Where a command writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub json: bool,
    /// For standard output.
    pub style: Style,
    /// For standard error.
    pub notes: Style,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let style = Style::of(io::stdout().is_terminal());
        Self { json, style, notes: Style::of(io::stderr().is_terminal()) }
    }

    /// A result for programs.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
        writeln!(out)?;
        Ok(())
    }

    pub(crate) fn line(&self, line: &str) -> Result<(), Failure> {
        writeln!(io::stdout().lock(), "{line}")?;
        Ok(())
    }

    pub(crate) fn table(&self, table: &table::Table) -> Result<(), Failure> {
        Ok(table.write(&mut io::stdout().lock(), self.style)?)
    }

    /// A sentence beside the result; whether anybody reads it is not our concern.
    pub(crate) fn note(&self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    pub(crate) fn warn(&self, text: &str) {
        self.note(&format!("{} {text}", self.notes.yellow("warning:")));
    }

    /// A line that replaces itself, on a terminal only.
    pub(crate) fn progress(&self, text: &str) {
        if io::stderr().is_terminal() {
            let _ = write!(io::stderr().lock(), "\r\x1b[2K{text}");
        }
    }

    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json {
            #[derive(Serialize)]
            struct Told<'a> {
                error: &'a str,
                #[serde(skip_serializing_if = "Option::is_none")]
                hint: Option<&'a str>,
            }
            let told = Told { error: &failure.what, hint: failure.hint.as_deref() };
            self.note(&serde_json::to_string(&told).unwrap_or_default());
            return;
        }
        self.note(&format!("{} {}", self.notes.red("error:"), failure.what));
        if let Some(hint) = &failure.hint {
            self.note(&format!("  {} {hint}", self.notes.green("help:")));
        }
    }

    /// Asks before something that cannot be undone. Without a terminal to ask on, `--yes` must
    /// have said it.
    pub(crate) fn confirm(&self, yes: bool, question: &str) -> Result<(), Failure> {
        if yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            let failure = Failure::usage(format!("{question} Nobody can be asked here"));
            return Err(failure.hint("--yes says so beforehand"));
        }
        let mut err = io::stderr().lock();
        let _ = write!(err, "{} {question} [y/N] ", self.notes.bold("?"));
        let _ = err.flush();
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        match (read, answer.trim()) {
            (Ok(_), "y" | "Y" | "yes") => Ok(()),
            _ => Err(Failure::new("nothing was done")),
        }
    }
}
