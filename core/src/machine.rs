//! What every state machine of the core looks like from outside.

use std::fmt::Debug;

use crate::time::{Instant, Now};

/// A pure state machine: the same seed and the same inputs at the same instants give the same
/// effects, in the same order.
pub trait Machine {
    type Input: Debug;
    type Effect: Debug;

    /// The input that says: the deadline has come.
    const TICK: Self::Input;

    /// Takes one input and appends what must now be done, in order.
    fn step(&mut self, now: Now, input: Self::Input, effects: &mut Vec<Self::Effect>);

    /// When `TICK` is wanted. Derived from the state at each call, so there is no timer to cancel;
    /// O(log n) at worst. A step with `TICK` at or past the deadline moves it beyond `now`, or the
    /// driver would spin; drivers assert it.
    fn deadline(&self) -> Option<Instant>;

    /// Panics if the state is impossible. Too slow for production; called after each step in
    /// tests and in simulation.
    fn check(&self);
}
