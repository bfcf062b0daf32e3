//! The time of a world of cores, and what is to come: events at their times; ties go by order of
//! making.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use quorate_core::time::Instant;

/// An event in its place in time.
struct Due<E> {
    at: Duration,
    order: u64,
    event: E,
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<E> Eq for Due<E> {}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

pub(super) struct Agenda<E> {
    pub(super) now: Duration,
    heap: BinaryHeap<Reverse<Due<E>>>,
    made: u64,
}

impl<E> Agenda<E> {
    pub(super) fn new() -> Self {
        Self { now: Duration::ZERO, heap: BinaryHeap::new(), made: 0 }
    }

    pub(super) fn at(&mut self, at: Duration, event: E) {
        self.made += 1;
        self.heap.push(Reverse(Due { at: at.max(self.now), order: self.made, event }));
    }

    pub(super) fn after(&mut self, delay: Duration, event: E) {
        self.at(self.now + delay, event);
    }

    pub(super) fn instant(&self) -> Instant {
        Instant::since_start(self.now)
    }

    /// When the next event is due.
    pub(super) fn next_at(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse(due)| due.at)
    }

    /// The next event, whose time it is now.
    pub(super) fn pop(&mut self) -> Option<E> {
        let Reverse(due) = self.heap.pop()?;
        self.now = due.at;
        Some(due.event)
    }
}
