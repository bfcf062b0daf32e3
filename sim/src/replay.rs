//! What a kept plan is worth today: whether it still fails as it did, fails otherwise, or passes;
//! and where its trace leaves the one that was kept.

use std::fmt;

use crate::symptom::Symptom;
use crate::told::Told;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The same property on the same object.
    Same,
    /// It fails, with this first.
    Other(Symptom),
    Passes,
}

/// Compares a run with what the plan was kept for.
pub fn answer(kept: &Symptom, told: &Told) -> Answer {
    match Symptom::first(told) {
        _ if kept.is_shown_by(told) => Answer::Same,
        Some(other) => Answer::Other(other),
        None => Answer::Passes,
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("same failure"),
            Self::Other(symptom) => write!(f, "another failure: {symptom}"),
            Self::Passes => f.write_str("passes now"),
        }
    }
}

/// Where two traces part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parting {
    /// The line, from 1 on: its event's ordinal.
    pub line: usize,
    /// `None` if it has ended before.
    pub kept: Option<String>,
    pub now: Option<String>,
}

/// The first line that differs.
pub fn parting(kept: &str, now: &[String]) -> Option<Parting> {
    let mut kept = kept.lines();
    let mut now = now.iter().map(String::as_str);
    let mut line = 0;
    loop {
        line += 1;
        match (kept.next(), now.next()) {
            (None, None) => return None,
            (kept, now) if kept == now => {}
            (kept, now) => {
                let (kept, now) = (kept.map(str::to_owned), now.map(str::to_owned));
                return Some(Parting { line, kept, now });
            }
        }
    }
}

impl fmt::Display for Parting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_end = |line: &Option<String>| line.clone().unwrap_or_else(|| "(ends)".to_owned());
        let (line, kept, now) = (self.line, or_end(&self.kept), or_end(&self.now));
        write!(f, "diverged at step {line}\n    kept {kept}\n    now  {now}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Verdict;

    #[test]
    fn a_plan_has_one_of_three_answers() {
        let told = |property: &str| Told::broken(property, "it is so".to_owned());
        let kept = Symptom::first(&told("lost-write")).expect("it fails");
        assert_eq!(answer(&kept, &told("lost-write")), Answer::Same);
        let other = answer(&kept, &told("duplicate"));
        assert!(matches!(&other, Answer::Other(symptom) if symptom.property == "duplicate"));
        let mut passed = told("");
        passed.violations.clear();
        passed.verdict = Verdict::Passed;
        assert_eq!(answer(&kept, &passed), Answer::Passes);
    }

    #[test]
    fn traces_part_at_the_first_line_that_differs() {
        let now: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(parting("a\nb\nc\n", &now), None);
        let differs = parting("a\nx\nc\n", &now).expect("the second");
        assert_eq!((differs.line, differs.kept.as_deref()), (2, Some("x")));
        let ends = parting("a\nb\n", &now).expect("the third");
        assert_eq!((ends.line, ends.kept, ends.now.as_deref()), (3, None, Some("c")));
        assert!(parting("a\nb\nc\nd\n", &now).is_some());
    }
}
