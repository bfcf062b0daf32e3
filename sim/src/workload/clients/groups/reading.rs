//! How a member reads what it has, by our client library.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::Offset;
use quorate_net::client::{Consumer, ConsumerConfig, FetchOptions, OnReset, Position};

use super::super::library::library;
use super::super::{Scene, topic_name};
use crate::chance::Chance;
use crate::history::Partition;
use crate::workload::members::{Found, ROUND, Reader};

/// A member has time to spare.
const WAIT_MIN: Duration = Duration::from_millis(10);

pub(super) struct Reading(Consumer);

impl Reading {
    pub(super) fn new(scene: &Scene, chance: &mut Chance) -> Self {
        let client = library(scene, chance);
        let fetch = FetchOptions {
            wait_max: scene.plan.workload.wait.clamp(WAIT_MIN, ROUND),
            partition_bytes_max: scene.plan.workload.read_bytes as i32,
            ..FetchOptions::default()
        };
        let ready_max = *chance.pick(&[1, 4]);
        Self(Consumer::new(
            client,
            ConsumerConfig { fetch, on_reset: OnReset::Beginning, ready_max },
        ))
    }
}

impl Reader for Reading {
    fn assign(&mut self, partition: Partition, next: i64) {
        let topic = Arc::from(topic_name(partition).as_str());
        self.0.assign(&topic, partition.index as i32, Position::Offset(Offset(next)));
    }

    fn unassign(&mut self, partition: Partition) {
        let topic = Arc::from(topic_name(partition).as_str());
        self.0.unassign(&topic, partition.index as i32);
    }

    async fn poll(&mut self, most: Duration) -> Result<Option<Found>, String> {
        let Some(read) = self.0.poll(most).await.map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let topic = read.topic.trim_start_matches('t').parse().expect("our topic");
        let partition = Partition { topic, index: read.partition as u32 };
        let (log_start, from) = (read.log_start.0, read.from.0);
        let found = Found { partition, log_start, from, behind: None };
        Ok(Some(match read.batches.last() {
            None => found,
            Some(last) => {
                found.up_to(last.header().next_offset().0, last.header().leader_epoch().0)
            }
        }))
    }
}
