//! How a member reads what it has: each partition from its leader, in turn. It does not wait long
//! for anybody: it has heartbeats to send.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use super::super::conversations::{Ask, Reply, Seeker};
use crate::chance::Chance;
use crate::history::Partition;
use crate::plan::Plan;
use crate::workload::members::{Found, ROUND, Reader};

/// Where there was nothing, it looks again after so much, at least.
const REST_MIN: Duration = Duration::from_millis(10);
/// Between what was found and what comes next, at most: it has to do with it what it does.
const WORK_MICROS: u64 = 5000;

pub(super) struct Reading {
    seeker: Seeker,
    /// Where it is in each.
    positions: BTreeMap<Partition, i64>,
    /// The one that it has asked for last.
    turn: Option<Partition>,
    bytes_max: usize,
    rest: Duration,
}

impl Reading {
    pub(super) fn new(seeker: &Seeker, plan: &Plan, chance: &mut Chance) -> Self {
        Self {
            seeker: seeker.beside(Chance::new(chance.number(), "reading"), ROUND),
            positions: BTreeMap::new(),
            turn: None,
            bytes_max: plan.workload.read_bytes as usize,
            rest: plan.workload.wait.clamp(REST_MIN, ROUND),
        }
    }

    fn next(&mut self) -> Option<(Partition, i64)> {
        let behind = self.turn.map_or(Bound::Unbounded, Bound::Excluded);
        let mut following = self.positions.range((behind, Bound::Unbounded));
        let next = following.next().or_else(|| self.positions.first_key_value());
        let (partition, from) = next.map(|(partition, from)| (*partition, *from))?;
        self.turn = Some(partition);
        Some((partition, from))
    }
}

impl Reader for Reading {
    fn assign(&mut self, partition: Partition, next: i64) {
        self.positions.insert(partition, next);
    }

    fn unassign(&mut self, partition: Partition) {
        self.positions.remove(&partition);
    }

    async fn poll(&mut self, most: Duration) -> Result<Option<Found>, String> {
        for _ in 0..self.positions.len() {
            let Some((partition, from)) = self.next() else { break };
            let Some(n) = self.seeker.leader_of(partition).await else { break };
            let ask = Ask::Fetch { partition, from, bytes_max: self.bytes_max };
            match self.seeker.at().ask_within(n, ask, ROUND).await {
                Some(Reply::Fetched(found)) => {
                    let next = found.behind.map_or(found.from, |behind| behind.next);
                    self.positions.insert(partition, next);
                    if found.behind.is_some() {
                        let work = Duration::from_micros(self.seeker.chance.below(WORK_MICROS));
                        self.seeker.pause(work).await;
                        return Ok(Some(found));
                    }
                }
                Some(_) => self.seeker.forget(),
                None => {
                    self.seeker.forget();
                    break;
                }
            }
        }
        self.seeker.pause(self.rest.min(most).max(Duration::from_micros(1))).await;
        Ok(None)
    }
}
