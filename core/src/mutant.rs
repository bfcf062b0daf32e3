//! Planted bugs: a mutant is a line that does the wrong thing when the simulator chooses it, to
//! show that the checkers would notice. Product builds cannot choose any.

/// Whether the planted bug of this name is to show itself. The constant `false` in product builds.
///
/// ```
/// # let sync = || {};
/// if !quorate_core::mutant!("answer-before-sync") {
///     sync();
/// }
/// ```
#[macro_export]
macro_rules! mutant {
    ($slug:literal) => {
        $crate::mutant::shows($slug)
    };
}

#[cfg(not(mutants))]
#[doc(hidden)]
#[inline(always)]
pub const fn shows(_slug: &str) -> bool {
    false
}

#[cfg(mutants)]
pub use chosen::{asked, choose, shows};

#[cfg(mutants)]
mod chosen {
    use std::cell::{Cell, RefCell};

    thread_local! {
        static CHOSEN: RefCell<Option<String>> = const { RefCell::new(None) };
        static ASKED: Cell<u64> = const { Cell::new(0) };
    }

    /// From here on, this thread has the mutant `slug`, or none. A seed runs on one thread.
    pub fn choose(slug: Option<&str>) {
        CHOSEN.set(slug.map(str::to_owned));
        ASKED.set(0);
    }

    /// How often the chosen mutant's line was passed since `choose`: 0 means that the run says
    /// nothing about it, or that there is no mutant of that name.
    pub fn asked() -> u64 {
        ASKED.get()
    }

    #[doc(hidden)]
    pub fn shows(slug: &str) -> bool {
        let shows = CHOSEN.with_borrow(|chosen| chosen.as_deref() == Some(slug));
        if shows {
            ASKED.set(ASKED.get() + 1);
        }
        shows
    }
}
