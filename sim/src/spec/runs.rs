//! A log as a specification sees it: who wrote each place, and nothing of what stands there.
//! Within a term, or a leader epoch, one leader writes one sequence, so two logs with the same
//! writers hold the same records.

use std::rc::Rc;

/// Writers, each with the length of the log behind its last place. Shared: what a memory, a disk
/// and what is on its way there have of one log is mostly the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Runs(Rc<Vec<(u64, u64)>>);

impl Runs {
    pub fn len(&self) -> u64 {
        self.0.last().map_or(0, |&(_, end)| end)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who wrote the last place, and the length: by this pair two candidates' logs are compared.
    pub fn last(&self) -> (u64, u64) {
        self.0.last().copied().unwrap_or_default()
    }

    /// Who wrote the last of the first `length` places; `None` for no place, or beyond the end.
    pub fn writer(&self, length: u64) -> Option<u64> {
        let place = self.0.partition_point(|&(_, end)| end < length);
        self.0.get(place).filter(|_| length > 0).map(|&(writer, _)| writer)
    }

    pub fn push(&mut self, writer: u64, count: u64) {
        if count == 0 {
            return;
        }
        let end = self.len() + count;
        let runs = Rc::make_mut(&mut self.0);
        match runs.last_mut() {
            Some(last) if last.0 == writer => last.1 = end,
            _ => runs.push((writer, end)),
        }
    }

    pub fn truncate(&mut self, length: u64) {
        if self.len() <= length {
            return;
        }
        let kept = self.0.partition_point(|&(_, end)| end < length);
        let runs = Rc::make_mut(&mut self.0);
        runs.truncate(if length == 0 { 0 } else { kept + 1 });
        if let Some(last) = runs.last_mut() {
            last.1 = last.1.min(length);
        }
    }

    #[must_use]
    pub fn prefix(&self, length: u64) -> Self {
        let mut prefix = self.clone();
        prefix.truncate(length);
        prefix
    }

    /// The length of what both begin with.
    pub fn common(&self, other: &Self) -> u64 {
        let mut common = 0;
        for (one, two) in self.0.iter().zip(other.0.iter()) {
            if one.0 != two.0 {
                break;
            }
            common = one.1.min(two.1);
            if one.1 != two.1 {
                break;
            }
        }
        common
    }

    pub fn is_prefix_of(&self, other: &Self) -> bool {
        self.common(other) == self.len()
    }

    /// Each writer with the number of its places.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let starts = std::iter::once(0).chain(self.0.iter().map(|&(_, end)| end));
        self.0.iter().zip(starts).map(|(&(writer, end), start)| (writer, end - start))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn runs(writers: &[u64]) -> Runs {
        let mut runs = Runs::default();
        writers.iter().for_each(|writer| runs.push(*writer, 1));
        runs
    }

    proptest! {
        /// The slow twin: a list of writers.
        #[test]
        fn runs_are_lists_of_writers(
            mut one in vec(0..4_u64, 0..8),
            mut two in vec(0..4_u64, 0..8),
            cut in 0..10_usize,
        ) {
            one.sort_unstable();
            two.sort_unstable();
            let equal = one.iter().zip(&two).take_while(|(one, two)| one == two).count();
            prop_assert_eq!(runs(&one).common(&runs(&two)), equal as u64);
            prop_assert_eq!(runs(&one).prefix(cut as u64), runs(&one[..cut.min(one.len())]));
            prop_assert_eq!(runs(&one).len(), one.len() as u64);
            for length in 0..10_usize {
                let writer = length.checked_sub(1).and_then(|place| one.get(place));
                prop_assert_eq!(runs(&one).writer(length as u64), writer.copied());
            }
        }
    }
}
