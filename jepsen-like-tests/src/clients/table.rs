//! The outcome: one row a client, one column a scenario, and the failures in words below.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    Passed(String),
    Failed(String),
    /// The client has no such thing; the reason.
    NotApplicable(String),
}

#[derive(Debug, Default)]
pub struct Table {
    columns: Vec<String>,
    rows: BTreeMap<String, BTreeMap<String, Cell>>,
}

impl Table {
    pub fn set(&mut self, client: &str, scenario: &str, cell: Cell) {
        if !self.columns.iter().any(|column| column == scenario) {
            self.columns.push(scenario.to_owned());
        }
        self.rows.entry(client.to_owned()).or_default().insert(scenario.to_owned(), cell);
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.rows.values().flat_map(BTreeMap::values)
    }

    /// (passed, failed, not applicable).
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |wanted: fn(&Cell) -> bool| self.cells().filter(|cell| wanted(cell)).count();
        (
            count(|cell| matches!(cell, Cell::Passed(_))),
            count(|cell| matches!(cell, Cell::Failed(_))),
            count(|cell| matches!(cell, Cell::NotApplicable(_))),
        )
    }
}

/// A table in Markdown, with the words below it.
impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "| client | {} |", self.columns.join(" | "))?;
        writeln!(out, "|---|{}", "---|".repeat(self.columns.len()))?;
        let mut failures = String::new();
        let mut reasons: Vec<String> = Vec::new();
        for (client, cells) in &self.rows {
            write!(out, "| {client} |")?;
            for column in &self.columns {
                let word = match cells.get(column) {
                    Some(Cell::Passed(note)) if note.is_empty() => "ok",
                    Some(Cell::Passed(note)) => note,
                    Some(Cell::Failed(why)) => {
                        let why: String = why.chars().take(500).collect();
                        failures += &format!("- **{client}, {column}**: {why}\n");
                        "FAILED"
                    }
                    Some(Cell::NotApplicable(why)) => {
                        let reason = format!("- {client}, {column}: {why}\n");
                        if !reasons.contains(&reason) {
                            reasons.push(reason);
                        }
                        "n/a"
                    }
                    None => "",
                };
                write!(out, " {word} |")?;
            }
            writeln!(out)?;
        }
        if !failures.is_empty() {
            writeln!(out, "\nFailed:\n\n{failures}")?;
        }
        if !reasons.is_empty() {
            writeln!(out, "\nNot applicable:\n\n{}", reasons.concat())?;
        }
        let (passed, failed, absent) = self.counts();
        writeln!(out, "\n{passed} passed, {failed} failed, {absent} not applicable.")
    }
}
