//! Maps whose keys are nearly all of 0, 1, 2 and so on: offsets, and the values of one writer.
//! What a broken system makes of them may be any number, and takes no more room for it.

use std::collections::BTreeMap;

use crate::history::Value;

/// Keys below this stand in a row.
const NEAR: i64 = 1 << 24;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dense<T> {
    near: Vec<Option<T>>,
    far: BTreeMap<i64, T>,
}

impl<T> Default for Dense<T> {
    fn default() -> Self {
        Self { near: Vec::new(), far: BTreeMap::new() }
    }
}

impl<T> Dense<T> {
    pub fn get(&self, key: i64) -> Option<&T> {
        match usize::try_from(key) {
            Ok(place) if key < NEAR => self.near.get(place)?.as_ref(),
            _ => self.far.get(&key),
        }
    }

    pub fn get_mut(&mut self, key: i64) -> Option<&mut T> {
        match usize::try_from(key) {
            Ok(place) if key < NEAR => self.near.get_mut(place)?.as_mut(),
            _ => self.far.get_mut(&key),
        }
    }

    /// What stands at `key`; put there by `value` if nothing does.
    pub fn or_insert(&mut self, key: i64, value: T) -> &mut T {
        match usize::try_from(key) {
            Ok(place) if key < NEAR => {
                if self.near.len() <= place {
                    self.near.resize_with(place + 1, || None);
                }
                self.near[place].get_or_insert(value)
            }
            _ => self.far.entry(key).or_insert(value),
        }
    }

    pub fn insert(&mut self, key: i64, value: T) {
        match usize::try_from(key) {
            Ok(place) if key < NEAR => {
                if self.near.len() <= place {
                    self.near.resize_with(place + 1, || None);
                }
                self.near[place] = Some(value);
            }
            _ => drop(self.far.insert(key, value)),
        }
    }

    /// Ascending, but for negative keys, which come last.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &T)> {
        let near = (0..).zip(&self.near).filter_map(|(key, value)| Some((key, value.as_ref()?)));
        near.chain(self.far.iter().map(|(key, value)| (*key, value)))
    }

    /// The largest key.
    pub fn last(&self) -> Option<i64> {
        let far = self.far.last_key_value().map(|(key, _)| *key);
        let near = self.near.iter().rposition(Option::is_some).map(|place| place as i64);
        far.max(near)
    }
}

/// Something for each value that was written. A value names its writer and its number.
#[derive(Clone, Debug)]
pub struct ByValue<T>(Vec<Dense<(Value, T)>>);

impl<T> Default for ByValue<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// How many values each writer has: room for them is made once.
#[derive(Clone, Debug, Default)]
pub struct Numbers(Vec<usize>);

impl Numbers {
    pub fn count(&mut self, value: Value) {
        let (writer, number) = ByValue::<()>::key(value);
        if number < NEAR {
            self.0.resize(self.0.len().max(writer + 1), 0);
            self.0[writer] = self.0[writer].max(number as usize + 1);
        }
    }
}

impl<T> ByValue<T> {
    pub fn with_room(numbers: &Numbers) -> Self {
        let rows = numbers.0.iter().map(|most| Vec::with_capacity(*most));
        Self(rows.map(|near| Dense { near, far: BTreeMap::new() }).collect())
    }

    const fn key(value: Value) -> (usize, i64) {
        ((value >> 56) as usize, (value & ((1 << 40) - 1)) as i64)
    }

    pub fn get(&self, value: Value) -> Option<&T> {
        let (writer, number) = Self::key(value);
        let (found, what) = self.0.get(writer)?.get(number)?;
        (*found == value).then_some(what)
    }

    pub fn get_mut(&mut self, value: Value) -> Option<&mut T> {
        let (writer, number) = Self::key(value);
        let (found, what) = self.0.get_mut(writer)?.get_mut(number)?;
        (*found == value).then_some(what)
    }

    /// What stands at `value`; put there by `what` if nothing does. `None` if another value has
    /// the same writer and number.
    pub fn or_insert(&mut self, value: Value, what: T) -> Option<&mut T> {
        let (writer, number) = Self::key(value);
        if self.0.len() <= writer {
            self.0.resize_with(writer + 1, Dense::default);
        }
        let (found, what) = self.0[writer].or_insert(number, (value, what));
        (*found == value).then_some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_and_far_keys_are_kept_alike() {
        let mut map = Dense::default();
        for key in [5, 0, i64::MAX, -3, NEAR, NEAR - 1] {
            assert_eq!(*map.or_insert(key, key), key);
            assert_eq!(*map.or_insert(key, 0), key, "the first stays");
            assert_eq!(map.get(key), Some(&key));
        }
        assert_eq!(map.get(1), None);
        assert_eq!(map.last(), Some(i64::MAX));
        let keys: Vec<i64> = map.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [0, 5, NEAR - 1, -3, NEAR, i64::MAX]);
        map.insert(5, 6);
        assert_eq!(map.get(5), Some(&6));
    }

    #[test]
    fn a_value_with_anothers_number_is_not_it() {
        let mut map = ByValue::default();
        let value = crate::workload::values::value(3, 8, 7);
        let other = crate::workload::values::value(3, 9, 7);
        assert_eq!(map.or_insert(value, 'a').copied(), Some('a'));
        assert_eq!(map.or_insert(other, 'b'), None);
        assert_eq!((map.get(value), map.get(other)), (Some(&'a'), None));
    }

    #[test]
    fn room_is_made_for_what_was_counted_and_no_more() {
        let mut numbers = Numbers::default();
        let values = [(3, 7), (1, 0), (3, 2), (2, (1 << 40) - 1)];
        let values = values.map(|(writer, count)| crate::workload::values::value(writer, 8, count));
        values.iter().for_each(|value| numbers.count(*value));
        assert_eq!(numbers.0, [0, 1, 0, 8]);
        let mut map = ByValue::with_room(&numbers);
        for value in values {
            assert_eq!(map.get(value), None);
            assert_eq!(map.or_insert(value, value).copied(), Some(value));
        }
    }
}
