//! What a campaign must have seen to be worth anything: marks of the product, faults, and marks
//! after faults. One that was never seen makes the campaign inconclusive.

use std::fmt;

use super::Sum;

/// One goal, as the command line has it: `MARK`, `FAULT` or `FAULT/MARK`, and `=COUNT` for more
/// than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    pub fault: Option<String>,
    pub mark: String,
    pub least: u64,
}

impl Gate {
    /// # Errors
    ///
    /// A sentence about what cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, least) = match text.split_once('=') {
            None => (text, 1),
            Some((name, count)) => {
                let count =
                    count.parse().map_err(|_| format!("{text:?}: {count:?} is no count"))?;
                (name, count)
            }
        };
        let (fault, mark) = match name.split_once('/') {
            None => (None, name),
            Some((fault, mark)) => (Some(fault.to_owned()), mark),
        };
        if mark.is_empty() || fault.as_ref().is_some_and(String::is_empty) {
            return Err(format!("{text:?} is not MARK, FAULT or FAULT/MARK, with =COUNT or not"));
        }
        Ok(Self { fault, mark: mark.to_owned(), least })
    }

    /// How often it was seen.
    pub fn count(&self, sum: &Sum) -> u64 {
        let count = match &self.fault {
            Some(fault) => sum.after.get(fault).and_then(|marks| marks.get(&self.mark)),
            None => sum.marks.get(&self.mark).or_else(|| sum.faults.get(&self.mark)),
        };
        count.copied().unwrap_or(0)
    }

    pub fn is_met(&self, sum: &Sum) -> bool {
        self.count(sum) >= self.least
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(fault) = &self.fault {
            write!(f, "{fault}/")?;
        }
        f.write_str(&self.mark)?;
        if self.least == 1 { Ok(()) } else { write!(f, "={}", self.least) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_gate_opens_for_what_was_seen_often_enough() {
        let counts = |name: &str, count| BTreeMap::from([(name.to_owned(), count)]);
        let sum = Sum {
            marks: counts("rolls", 2),
            faults: counts("crash", 1),
            after: BTreeMap::from([("crash".to_owned(), counts("rolls", 1))]),
            ..Sum::default()
        };
        for (text, is_met) in [
            ("rolls", true),
            ("rolls=2", true),
            ("rolls=3", false),
            ("crash", true),
            ("crash/rolls", true),
            ("crash/rolls=2", false),
            ("cut/rolls", false),
            ("shrinks", false),
        ] {
            let gate = Gate::parse(text).expect("a gate");
            assert_eq!(gate.is_met(&sum), is_met, "{text}");
            assert_eq!(gate.to_string(), text);
        }
        for text in ["", "/rolls", "crash/", "rolls=many"] {
            assert!(Gate::parse(text).is_err(), "{text:?}");
        }
    }
}
