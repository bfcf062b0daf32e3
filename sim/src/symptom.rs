//! Which failure it is. Two runs fail alike if the same property does not hold of the same object:
//! so shrinking keeps to the failure that it began with, a replay says whether it is still the
//! same, and a campaign counts a bug once.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::run::Verdict;
use crate::told::Told;

/// One thing that is wrong, without what differs from run to run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Symptom {
    pub verdict: Verdict,
    /// Its name in `check`, or `panic`, `liveness`, `hang`.
    pub property: String,
    /// A partition or a node by its name in the plan, a place in the source, or what kind of thing
    /// it is where names differ from run to run.
    pub object: String,
    /// The sentence, without its numbers.
    pub reason: String,
}

impl Symptom {
    /// All that is wrong with a run, in the order in which it is told; the first counts most.
    pub fn all(told: &Told) -> Vec<Self> {
        let violations = told.violations.iter().map(|violation| Self {
            verdict: told.verdict,
            property: violation.property.clone(),
            object: object(&violation.place),
            reason: reason(&violation.sentence),
        });
        let stuck = told.stuck.iter().map(|stuck| Self {
            verdict: Verdict::Liveness,
            property: "liveness".to_owned(),
            object: String::new(),
            reason: reason(stuck),
        });
        violations.chain(stuck).collect()
    }

    /// What a run failed with; `None` if it passed.
    pub fn first(told: &Told) -> Option<Self> {
        Self::all(told).into_iter().next()
    }

    /// Whether a run fails so. Of what got stuck, only the reason says what it is.
    pub fn is_shown_by(&self, told: &Told) -> bool {
        told.verdict == self.verdict
            && Self::all(told).iter().any(|other| {
                self.property == other.property
                    && self.object == other.object
                    && (self.property != "liveness" || self.reason == other.reason)
            })
    }

    /// The same symptom on whichever object of that kind.
    #[must_use]
    pub fn anywhere(mut self) -> Self {
        self.object = self.kind();
        self
    }

    /// As `is_shown_by`, on whichever object of the same kind.
    pub fn is_shown_somewhere_by(&self, told: &Told) -> bool {
        told.verdict == self.verdict
            && Self::all(told).iter().any(|other| {
                self.property == other.property
                    && self.kind() == other.kind()
                    && (self.property != "liveness" || self.reason == other.reason)
            })
    }

    /// What kind of thing the object is.
    pub fn kind(&self) -> String {
        if is_partition(&self.object) {
            "a partition".to_owned()
        } else if is_node(&self.object) {
            "a node".to_owned()
        } else {
            self.object.clone()
        }
    }
}

impl fmt::Display for Symptom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.object.as_str() {
            "" => write!(f, "{}: {}", self.property, self.reason),
            object => write!(f, "{} on {object}", self.property),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `t0-1`
fn is_partition(place: &str) -> bool {
    let parts = place.strip_prefix('t').and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(topic, index)| is_number(topic) && is_number(index))
}

/// `n2`
fn is_node(place: &str) -> bool {
    place.strip_prefix('n').is_some_and(is_number)
}

/// The object that a violation's place names.
fn object(place: &str) -> String {
    // A panic's place ends in line and column: the line is enough.
    if let Some((place, column)) = place.rsplit_once(':')
        && is_number(column)
        && place.contains(".rs:")
    {
        return place.rsplit_once("/main/").map_or(place, |(_, place)| place).to_owned();
    }
    if is_partition(place) || is_node(place) { place.to_owned() } else { shape(place) }
}

/// The reason that a sentence gives. Values that are written out whole differ in their lengths.
fn reason(sentence: &str) -> String {
    let words = sentence.split(['{', '[']).next().unwrap_or(sentence);
    shape(words)
}

/// A sentence without what differs from run to run: numbers, and words that are numbers in base 16.
fn shape(sentence: &str) -> String {
    let mut shape = String::new();
    let mut word = String::new();
    for character in sentence.chars().chain([' ']) {
        if character.is_ascii_alphanumeric() {
            word.push(character);
            continue;
        }
        let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
        if has_digit && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            shape.push('#');
        } else {
            let mut digits = false;
            for letter in word.chars() {
                if !letter.is_ascii_digit() {
                    shape.push(letter);
                } else if !digits {
                    shape.push('#');
                }
                digits = letter.is_ascii_digit();
            }
        }
        word.clear();
        shape.push(character);
    }
    shape.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::told::ToldViolation;

    fn told(verdict: Verdict, wrong: &[(&str, &str, &str)]) -> Told {
        let mut told = Told::broken("", String::new());
        told.verdict = verdict;
        told.violations = wrong
            .iter()
            .map(|(property, place, sentence)| ToldViolation {
                property: (*property).to_owned(),
                place: (*place).to_owned(),
                sentence: (*sentence).to_owned(),
            })
            .collect();
        told
    }

    #[test]
    fn a_failure_is_the_same_on_the_same_object_only() {
        let lost = |place, sentence| told(Verdict::Safety, &[("lost-write", place, sentence)]);
        let symptom = Symptom::first(&lost("t0-1", "3 values from 7a on")).expect("it fails");
        assert!(symptom.is_shown_by(&lost("t0-1", "88 values from 4 on")));
        assert!(!symptom.is_shown_by(&lost("t0-2", "3 values from 7a on")));
        assert!(symptom.is_shown_somewhere_by(&lost("t0-2", "3 values from 7a on")));
        let other = told(Verdict::Safety, &[("duplicate", "t0-1", "3 values from 7a on")]);
        assert!(!symptom.is_shown_by(&other) && !symptom.is_shown_somewhere_by(&other));
        let both = [("duplicate", "t1-0", "x"), ("lost-write", "t0-1", "y")];
        assert!(symptom.is_shown_by(&told(Verdict::Safety, &both)), "behind another");
        assert_eq!(symptom.to_string(), "lost-write on t0-1");
    }

    #[test]
    fn what_is_stuck_is_known_by_its_reason() {
        let stuck = |sentence: &str| {
            let mut told = told(Verdict::Liveness, &[]);
            told.stuck = vec!["c0 waits".to_owned(), sentence.to_owned()];
            told
        };
        let mut symptom = Symptom::all(&stuck("c3 has no word on t0-1 since 17")).remove(1);
        assert!(symptom.is_shown_by(&stuck("c1 has no word on t1-0 since 4")));
        assert!(!symptom.is_shown_by(&stuck("c1 cannot connect")));
        symptom.verdict = Verdict::Safety;
        assert!(!symptom.is_shown_by(&stuck("c3 has no word on t0-1 since 17")));
    }

    #[test]
    fn numbers_are_no_part_of_a_reason() {
        assert_eq!(
            shape("offset 7 held 1f00a, n2 at t0-11: bad"),
            "offset # held #, n# at t#-#: bad"
        );
        assert_eq!(reason("n2 lacks Known { base: Offset(7) }: [1, 2]"), "n# lacks Known");
        assert_eq!(object("t3-0"), "t3-0");
        assert_eq!(object("core/src/x.rs:81:9"), "core/src/x.rs:81");
        assert_eq!(object("0f3a-11e2-3"), "#-#-#");
        assert_eq!(object("the controller"), "the controller");
    }
}
