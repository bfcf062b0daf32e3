//! Simulated clocks: each node's monotonic and wall clock may be wrong in its own way, and all of
//! them follow the one true time of the simulation.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use madsim::time::TimeHandle;
use quorate_core::time::{Instant, Now, Timestamp};
use quorate_net::clock::{Clock, Sleep};

use crate::plan;
use crate::trace::{self, Mark};

/// The wall-clock time at which every simulation starts, in milliseconds: 2026-01-01.
pub const WALL_START: i64 = 1_767_225_600_000;

/// Waits for points of true time, to the nanosecond, with one timer at a time.
///
/// The runtime's own `sleep` waits for a millisecond at least, and adds a timer at each poll.
pub struct Alarm {
    time: TimeHandle,
    sleep: Option<Pin<Box<madsim::time::Sleep>>>,
    /// What the pending timer will wake, and when.
    armed: Option<(Duration, Waker)>,
}

impl Alarm {
    pub fn new(time: TimeHandle) -> Self {
        Self { time, sleep: None, armed: None }
    }

    /// Ready once the true time has reached `at`.
    pub fn poll_until(&mut self, at: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.time.elapsed();
        if now >= at {
            self.armed = None;
            return Poll::Ready(());
        }
        if let Some((armed, waker)) = &self.armed
            && *armed == at
            && waker.will_wake(cx.waker())
        {
            return Poll::Pending;
        }
        self.armed = Some((at, cx.waker().clone()));
        let deadline = self.time.now_instant() + (at - now);
        let time = &self.time;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(time.sleep(Duration::ZERO)));
        sleep.as_mut().reset(deadline);
        sleep.as_mut().poll(cx)
    }

    pub async fn until(&mut self, at: Duration) {
        poll_fn(|cx| self.poll_until(at, cx)).await;
    }
}

/// Waits for a point of true time.
pub async fn until(time: &TimeHandle, at: Duration) {
    Alarm::new(time.clone()).until(at).await;
}

/// A node's (or a client's) clock. A new one for each start: monotonic time begins at zero.
pub struct SimClock {
    who: &'static str,
    time: TimeHandle,
    /// True time at the start.
    boot: Duration,
    /// Parts per million that the monotonic clock runs fast.
    drift: i32,
    wall: Arc<WallClock>,
}

/// What is wrong with a wall clock; it outlives restarts.
#[derive(Debug, Default)]
pub struct WallClock(Mutex<i64>);

impl WallClock {
    pub fn new(offset: i64) -> Self {
        Self(Mutex::new(offset))
    }

    /// Moves the clock by so many milliseconds.
    pub fn jump(&self, by: i64) {
        *self.0.lock().expect("one thread") += by;
    }

    /// Sets how far the clock is ahead, in milliseconds.
    pub fn set(&self, offset: i64) {
        *self.0.lock().expect("one thread") = offset;
    }

    fn offset(&self) -> i64 {
        *self.0.lock().expect("one thread")
    }
}

impl SimClock {
    pub fn new(
        who: &'static str,
        time: TimeHandle,
        model: &plan::Clock,
        wall: Arc<WallClock>,
    ) -> Self {
        let boot = time.elapsed();
        Self { who, time, boot, drift: model.drift, wall }
    }

    /// A clock that is right.
    pub fn exact(who: &'static str, time: TimeHandle) -> Self {
        Self { who, time, boot: Duration::ZERO, drift: 0, wall: Arc::default() }
    }

    fn monotonic(&self) -> Instant {
        let true_nanos = self.time.elapsed().saturating_sub(self.boot).as_nanos();
        let nanos = true_nanos * u128::from(self.rate()) / 1_000_000;
        Instant::since_start(Duration::from_nanos(nanos as u64))
    }

    fn rate(&self) -> u64 {
        (1_000_000 + i64::from(self.drift)) as u64
    }

    /// The true time at which the monotonic clock reaches `at`; `None` if that is beyond counting.
    fn true_time(&self, at: Instant) -> Option<Duration> {
        let nanos = at.as_duration().as_nanos().checked_mul(1_000_000)?;
        let nanos = u64::try_from(nanos.div_ceil(u128::from(self.rate()))).ok()?;
        self.boot.checked_add(Duration::from_nanos(nanos))
    }
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        let wall = WALL_START + self.time.elapsed().as_millis() as i64 + self.wall.offset();
        Now { monotonic: self.monotonic(), wall: Timestamp(wall) }
    }

    fn sleep_until(&self, at: Instant) -> Sleep {
        let (who, time) = (self.who, self.time.clone());
        match self.true_time(at) {
            Some(true_time) if true_time < Duration::from_secs(1 << 40) => Box::pin(async move {
                if time.elapsed() < true_time {
                    until(&time, true_time).await;
                    let numbers = [at.as_duration().as_nanos() as u64, 0, 0];
                    trace::event(time.elapsed(), Mark::Timer, who, numbers, || {
                        format!("timer of {at}")
                    });
                }
            }),
            _ => Box::pin(std::future::pending()),
        }
    }
}
