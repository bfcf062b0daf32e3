//! Marks: a branch that some test must pass says so, and tests and the simulator count it.
//!
//! Counted per thread wherever debug assertions are on (`cargo test`, the `sim` profile); nothing
//! at all in a release build.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// Counts that this branch was passed. The name stands at one place in the source.
#[macro_export]
macro_rules! reached {
    ($name:literal) => {
        if cfg!(debug_assertions) {
            $crate::mark::count($name);
        }
    };
}

thread_local! {
    static COUNTS: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

#[doc(hidden)]
pub fn count(name: &'static str) {
    COUNTS.with_borrow_mut(|counts| *counts.entry(name).or_default() += 1);
}

/// How often this thread passed each mark since the last `take`.
pub fn take() -> BTreeMap<&'static str, u64> {
    COUNTS.take()
}

#[cfg(test)]
mod tests {
    #[test]
    fn marks_are_counted_until_they_are_taken() {
        super::take();
        for _ in 0..2 {
            crate::reached!("mark-test");
        }
        assert_eq!(super::take().get("mark-test"), Some(&2));
        assert!(super::take().is_empty());
    }
}
