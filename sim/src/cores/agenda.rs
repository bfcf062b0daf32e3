//! The time of a world of cores, and what is to come: events at their times; ties go by order of
//! making.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use quorate_core::time::Instant;

/// When an event is due: nanoseconds, and how many were made before it; and where it is kept.
/// Small, since the heap moves it about.
type Due = (u64, u64, u32);

pub(super) struct Agenda<E> {
    pub(super) now: Duration,
    heap: BinaryHeap<Reverse<Due>>,
    /// What is to come, in places that are used again.
    events: Vec<Option<E>>,
    free: Vec<u32>,
    made: u64,
}

impl<E> Agenda<E> {
    pub(super) const fn new() -> Self {
        Self {
            now: Duration::ZERO,
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            made: 0,
        }
    }

    pub(super) fn at(&mut self, at: Duration, event: E) {
        self.made += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            u32::try_from(self.events.len() - 1).expect("no run plans so much")
        });
        self.events[place as usize] = Some(event);
        let at = u64::try_from(at.max(self.now).as_nanos()).unwrap_or(u64::MAX);
        self.heap.push(Reverse((at, self.made, place)));
    }

    pub(super) fn after(&mut self, delay: Duration, event: E) {
        self.at(self.now + delay, event);
    }

    pub(super) fn instant(&self) -> Instant {
        Instant::since_start(self.now)
    }

    /// When the next event is due.
    pub(super) fn next_at(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse((at, ..))| Duration::from_nanos(*at))
    }

    /// The next event, whose time it is now.
    pub(super) fn pop(&mut self) -> Option<E> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.now = Duration::from_nanos(at);
        self.free.push(place);
        self.events[place as usize].take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_first_comes_first_and_of_two_the_older() {
        let mut agenda = Agenda::new();
        let millis = Duration::from_millis;
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            agenda.at(millis(at), event);
        }
        assert_eq!((agenda.pop(), agenda.pop()), (Some('a'), Some('b')));
        // What was due before now is due now, behind what is.
        agenda.after(millis(3), 'e');
        agenda.at(Duration::ZERO, 'B');
        assert_eq!((agenda.pop(), agenda.now), (Some('B'), millis(2)));
        let rest: Vec<char> = std::iter::from_fn(|| agenda.pop()).collect();
        assert_eq!(rest, ['c', 'd', 'e']);
        assert_eq!((agenda.now, agenda.next_at()), (millis(5), None));
        assert_eq!(agenda.events.len(), 4, "places are used again");
    }
}
