//! What nodes of one cluster say to one another: a greeting by which each knows whom it talks to,
//! then frames. What is in the frames is the machines'.
//!
//! Each node dials each other node, and sends on the connections that it dialled; it reads from
//! those that were dialled to it. So nobody has to agree on who dials, and a cut in one direction
//! is a cut in one direction. There are two connections a direction: what decides (votes,
//! heartbeats, requests to the controller) never waits behind records.
//!
//! The network may lose what is sent here: when a connection breaks, or when a queue is full. It
//! does not reorder within one connection; across connections it may.

pub mod frame;
pub mod hello;
pub mod inbound;
pub mod link;
mod outbox;

#[cfg(test)]
mod tests;

use std::time::Duration;

/// Bounds of what peers cost; see `Limits::check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest frame, its length not counted. At least `hello::BYTES_MAX`, and enough for the
    /// largest batch and its head.
    pub frame_bytes_max: usize,
    /// Bytes that wait for one connection; what does not fit is dropped and counted. At least
    /// `frame_bytes_max`.
    pub queue_bytes_max: usize,
    /// Frames that wait for one connection.
    pub queue_frames_max: usize,
    /// From dialling to the end of the greeting.
    pub connect_timeout: Duration,
    /// The wait before dialling again doubles from here,
    pub backoff_min: Duration,
    /// to here.
    pub backoff_max: Duration,
    /// Something is sent at least so often: an empty frame if there is nothing else.
    pub pulse_interval: Duration,
    /// A peer that is silent for so long is gone. At least twice `pulse_interval`.
    pub silence_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 64 << 20,
            queue_bytes_max: 128 << 20,
            queue_frames_max: 16 * 1024,
            connect_timeout: Duration::from_secs(3),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(1),
            pulse_interval: Duration::from_millis(500),
            silence_max: Duration::from_secs(3),
        }
    }
}

impl Limits {
    /// # Errors
    ///
    /// Which of the bounds cannot be kept, in a sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.frame_bytes_max < hello::BYTES_MAX {
            return Err(format!(
                "frames of {} bytes are too short for a greeting, which may take {}",
                self.frame_bytes_max,
                hello::BYTES_MAX
            ));
        }
        if self.queue_bytes_max < self.frame_bytes_max || self.queue_frames_max == 0 {
            return Err(format!(
                "a queue of {} bytes and {} frames does not hold one frame of {} bytes",
                self.queue_bytes_max, self.queue_frames_max, self.frame_bytes_max
            ));
        }
        if self.pulse_interval.is_zero() || self.silence_max < self.pulse_interval * 2 {
            return Err(format!(
                "silence of {:?} cannot be told from pulses every {:?}",
                self.silence_max, self.pulse_interval
            ));
        }
        if self.backoff_min.is_zero() || self.backoff_max < self.backoff_min {
            return Err(format!(
                "a back-off cannot grow from {:?} to {:?}",
                self.backoff_min, self.backoff_max
            ));
        }
        Ok(())
    }
}

/// Which of the two connections.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Channel {
    /// What decides: votes, heartbeats, requests to the controller.
    Control,
    /// Records.
    Data,
}
