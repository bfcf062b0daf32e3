//! A request may name a thing many times; its answer has it once. Otherwise a short request could
//! ask for an answer of any size.

use std::collections::BTreeSet;

/// The first item of each key, in their order.
pub(crate) fn once<T, K: Ord>(items: Vec<T>, key: impl Fn(&T) -> K) -> impl Iterator<Item = T> {
    let mut seen = BTreeSet::new();
    items.into_iter().filter(move |item| seen.insert(key(item)))
}
