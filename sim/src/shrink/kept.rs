//! What a search has found out, in a file: a line a plan. A search that was interrupted reads it
//! and goes on where it was, because it asks the same questions in the same order.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use crate::chance::fnv;
use crate::plan::Plan;

/// The plans that were tried, and whether each fails.
#[derive(Debug, Default)]
pub struct Kept {
    known: BTreeMap<u64, bool>,
    file: Option<File>,
}

impl Kept {
    /// In memory only.
    pub fn new() -> Self {
        Self::default()
    }

    /// As the file has it, if it was begun for the same `subject` (the plan, the build, the
    /// failure); or else a new one.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written.
    pub fn open(path: &Path, subject: &str) -> io::Result<Self> {
        let first = format!("quorate-shrink 1 {:016x}", hash(subject));
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let mut lines = text.lines();
        if lines.next() == Some(first.as_str()) {
            // A line that was cut short by whatever ended the last search is not one.
            let known = lines.filter_map(parse).collect();
            let mut file = OpenOptions::new().append(true).open(path)?;
            if !text.ends_with('\n') {
                writeln!(file)?;
            }
            return Ok(Self { known, file: Some(file) });
        }
        let mut file = File::create(path)?;
        writeln!(file, "{first}")?;
        Ok(Self { known: BTreeMap::new(), file: Some(file) })
    }

    /// How many plans were tried.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(super) fn known(&self, plan: &Plan) -> Option<bool> {
        self.known.get(&fingerprint(plan)).copied()
    }

    /// What cannot be written is only asked again.
    pub(super) fn keep(&mut self, plan: &Plan, fails: bool) {
        let fingerprint = fingerprint(plan);
        self.known.insert(fingerprint, fails);
        if let Some(file) = &mut self.file {
            let word = if fails { "fails" } else { "passes" };
            let _ = file.write_all(format!("{fingerprint:016x} {word}\n").as_bytes());
        }
    }
}

fn parse(line: &str) -> Option<(u64, bool)> {
    let (fingerprint, word) = line.split_once(' ')?;
    let fails = match word {
        "fails" => true,
        "passes" => false,
        _ => return None,
    };
    Some((u64::from_str_radix(fingerprint, 16).ok()?, fails))
}

fn hash(text: &str) -> u64 {
    fnv(0xcbf2_9ce4_8422_2325, text.as_bytes())
}

fn fingerprint(plan: &Plan) -> u64 {
    hash(&plan.print())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::draw::draw;

    #[test]
    fn it_knows_what_it_knew_for_the_same_subject_only() {
        let path = std::env::temp_dir().join(format!("shrink-kept-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let mut kept = Kept::open(&path, "one").expect("a folder for what passes");
        kept.keep(&draw(1), true);
        kept.keep(&draw(2), false);
        drop(kept);
        let mut file = OpenOptions::new().append(true).open(&path).expect("it is there");
        file.write_all(b"0000000000000007 fai").expect("writes");
        let kept = Kept::open(&path, "one").expect("it is there");
        assert_eq!((kept.known(&draw(1)), kept.known(&draw(2))), (Some(true), Some(false)));
        assert_eq!((kept.known(&draw(3)), kept.len()), (None, 2));
        assert!(Kept::open(&path, "other").expect("it is there").is_empty());
        let _ = fs::remove_file(&path);
    }
}
