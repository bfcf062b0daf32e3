//! Which marks of the product a run passed, and after which kind of fault: the cells of the table
//! fault × phase. A mark counts for the last fault that struck before it.
//!
//! One run lives on one thread, so this is the thread's, like its trace.

use std::cell::RefCell;
use std::collections::BTreeMap;

use quorate_core::mark;

/// Counts by mark.
pub type Marks = BTreeMap<&'static str, u64>;
/// Counts by kind of fault and mark.
pub type After = BTreeMap<(&'static str, &'static str), u64>;

/// What is passed before anything strikes.
pub const QUIET: &str = "quiet";

#[derive(Default)]
struct Seen {
    marks: Marks,
    after: After,
    last: Option<&'static str>,
}

thread_local! {
    static SEEN: RefCell<Seen> = RefCell::default();
}

impl Seen {
    fn gather(&mut self) {
        let fault = self.last.unwrap_or(QUIET);
        for (mark, count) in mark::take() {
            *self.marks.entry(mark).or_default() += count;
            *self.after.entry((fault, mark)).or_default() += count;
        }
    }
}

/// Begins anew: what this thread did before does not count.
pub fn begin() {
    drop(mark::take());
    SEEN.take();
}

/// A fault strikes.
pub fn strikes(kind: &'static str) {
    SEEN.with_borrow_mut(|seen| {
        seen.gather();
        seen.last = Some(kind);
    });
}

/// What was passed since `begin`.
pub fn end() -> (Marks, After) {
    let mut seen = SEEN.take();
    seen.gather();
    (seen.marks, seen.after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_for_the_fault_before_it() {
        mark::count("before");
        begin();
        mark::count("one");
        strikes("crash");
        mark::count("one");
        mark::count("two");
        strikes("cut");
        strikes("crash");
        mark::count("two");
        let (marks, after) = end();
        assert_eq!(marks, Marks::from([("one", 2), ("two", 2)]));
        let cells = [((QUIET, "one"), 1), (("crash", "one"), 1), (("crash", "two"), 2)];
        assert_eq!(after, After::from(cells));
        assert_eq!(end(), (Marks::new(), After::new()));
    }
}
