//! The clock as a part of the world: the one way to know the time and to wait for it.
//! The implementations live in `node/src/clock.rs` and in the simulator, where each node's clock
//! may drift, jump or freeze.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use quorate_core::time::{Instant, Now};

/// A wait for an instant.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Now;

    /// Completes once `now().monotonic` has reached `at`; at once if it already has.
    fn sleep_until(&self, at: Instant) -> Sleep;

    fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now().monotonic + duration)
    }
}

#[cfg(test)]
pub(crate) mod running;
