//! A table of text: columns as wide as their contents, numbers to the right, nothing else.

use std::io::{self, Write};

use super::Style;

#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new(), indent: 0 }
    }

    #[must_use]
    pub(crate) fn indented(mut self, spaces: usize) -> Self {
        self.indent = spaces;
        self
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(N, self.headings.len(), "a row has a cell for each heading");
        self.rows.push(cells.into());
    }

    pub(crate) fn write(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        let columns = self.headings.len();
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.headings[column].chars().count()]).max().unwrap_or(0)
        };
        let right = |column: usize| {
            let mut cells = self.rows.iter().map(|row| row[column].as_str());
            !self.rows.is_empty() && cells.all(is_number)
        };
        let layout: Vec<(usize, bool)> =
            (0..columns).map(|column| (width(column), right(column))).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = " ".repeat(self.indent);
            for (cell, (width, right)) in cells.zip(&layout) {
                let padding = " ".repeat(width - cell.chars().count());
                let (before, after) =
                    if *right { (padding, String::new()) } else { (String::new(), padding) };
                line.push_str(&format!("{before}{cell}{after}  "));
            }
            line.trim_end().to_owned()
        };
        let heading = line(&mut self.headings.iter().copied());
        writeln!(out, "{}", style.dim(&heading))?;
        for row in &self.rows {
            writeln!(out, "{}", line(&mut row.iter().map(String::as_str)))?;
        }
        Ok(())
    }
}

/// A number, with or without a unit, or the dash that stands for none.
fn is_number(cell: &str) -> bool {
    cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit()) && cell.len() < 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_and_numbers_stand_right() {
        let mut table = Table::new(&["TOPIC", "RECORDS"]).indented(2);
        table.row(["orders".to_owned(), "7".to_owned()]);
        table.row(["é".to_owned(), "12345".to_owned()]);
        let mut out = Vec::new();
        table.write(&mut out, Style::PLAIN).unwrap();
        let expected = "  TOPIC   RECORDS\n  orders        7\n  é         12345\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
