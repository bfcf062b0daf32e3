//! What a replica does for its log's sake, when nobody asks: forget silent producers, delete what
//! is too old or too much. Retention is the leader's; its followers are told the log start.

use std::time::Duration;

use super::interface::Effect;
use super::{Replica, retention};
use crate::reached;
use crate::time::{Now, Timestamp};

impl Replica {
    /// Forgets producers that were silent for `expiration`, unless the wall clock has jumped.
    pub(super) fn expire_producers(&mut self, now: Now, expiration: Duration) {
        if !self.wall_clock.is_trusted() {
            return;
        }
        self.log.producers.date(now.wall);
        if self.log.producers.expire(now.wall, expiration, &self.log.open) > 0 {
            reached!("producer-expired");
            self.is_dirty = true;
        }
    }

    /// Looks for old producers when the first can be old, and not too often.
    pub(super) fn plan_expiry(&mut self, now: Now) {
        let wait = |seen: Timestamp| {
            let silent = u64::try_from(now.wall.0.saturating_sub(seen.0)).unwrap_or(0);
            let left =
                self.limits.producer_expiration.saturating_sub(Duration::from_millis(silent));
            now.monotonic + left.max(self.limits.producer_check_interval)
        };
        self.expiry_at = self.log.producers.seen_first().map(wait);
    }

    /// Looks for old segments when the first can be old, and not before `wait_min`.
    pub(super) fn plan_retention(&mut self, now: Now, wait_min: Duration) {
        let wait = retention::wait_by_time(&self.log, &self.config, now.wall);
        self.retention_at = wait.map(|wait| now.monotonic + wait.max(wait_min));
    }

    pub(super) fn delete_by_time(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.is_leader() {
            return;
        }
        if !self.wall_clock.is_trusted() {
            reached!("retention-suspended");
            return;
        }
        let high = self.high_watermark;
        if let Some(start) = retention::start_by_time(&self.log, &self.config, high, now.wall) {
            reached!("retention-by-time");
            self.delete_before(start, effects);
        }
    }

    pub(super) fn delete_by_size(&mut self, effects: &mut Vec<Effect>) {
        let (Some(retention), Some(oldest)) =
            (self.config.retention_bytes, self.log.segments.first())
        else {
            return;
        };
        if !self.is_leader() || self.log_bytes - oldest.bytes < retention {
            return;
        }
        let (high, bytes) = (self.high_watermark, self.log_bytes);
        if let Some(start) = retention::start_by_size(&self.log, &self.config, high, bytes) {
            reached!("retention-by-size");
            self.delete_before(start, effects);
        }
    }
}
