//! Readers of several nodes: each follows all partitions from their starts, one after the other,
//! mostly at the leader, sometimes wherever there is a copy; and the last reading of everything.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::id::{Offset, PartitionId};
use quorate_core::partition::interface as core;

use super::Cluster;
use super::clients::{Answer, Told, What};
use crate::chance::Chance;
use crate::history::{Call, End, Partition};
use crate::plan::Plan;

pub(super) struct ReaderActor {
    pub(super) chance: Chance,
    attempt: u64,
    pub(super) token: u64,
    turn: usize,
    pub(super) positions: BTreeMap<Partition, i64>,
    leaders: BTreeMap<Partition, usize>,
    asked: usize,
}

impl ReaderActor {
    pub(super) fn new(plan: &Plan, client: u32, partitions: &[Partition]) -> Self {
        Self {
            chance: Chance::new(plan.seed, &format!("reader {client}")),
            attempt: 0,
            token: 0,
            turn: 0,
            positions: partitions.iter().map(|partition| (*partition, 0)).collect(),
            leaders: BTreeMap::new(),
            asked: 0,
        }
    }
}

impl Cluster {
    fn reader(&mut self, client: u32) -> &mut ReaderActor {
        self.clients.readers.get_mut(&client).expect("a reader")
    }

    pub(super) fn read_next(&mut self, client: u32) {
        let partitions = self.clients.partitions.len();
        let anywhere = self.some_node(client);
        let timeout = self.timeout();
        let reader = self.reader(client);
        reader.attempt += 1;
        let attempt = reader.attempt;
        if reader.leaders.is_empty() {
            reader.asked = anywhere;
            self.send_request(client, anywhere, attempt, What::Metadata);
            self.wake_after(client, timeout);
            return;
        }
        reader.turn = (reader.turn + 1) % partitions;
        let turn = reader.turn;
        let follows = reader.chance.one_in(6);
        let partition = self.clients.partitions[turn];
        let reader = self.reader(client);
        let leader = reader.leaders.get(&partition).copied();
        let Some(n) = (if follows { Some(anywhere) } else { leader }) else {
            reader.leaders.clear();
            self.wake_after(client, Duration::from_millis(20));
            return;
        };
        reader.asked = n;
        let from = reader.positions[&partition];
        let now = self.client_now().monotonic;
        let operation = self.history.invoke(client, now, Call::Read { partition, from });
        self.send_request(client, n, attempt, What::Read { operation, partition, from });
        self.wake_after(client, timeout + self.plan.workload.wait);
    }

    pub(super) fn on_reader_answer(&mut self, answer: Answer) {
        let Answer { client, n, attempt, told } = answer;
        let now = self.client_now().monotonic;
        let reader = self.clients.readers.get_mut(&client).expect("a reader");
        if attempt != reader.attempt {
            return;
        }
        match told {
            Told::Metadata(leaders) => reader.leaders = leaders,
            Told::Read { operation, partition, end, next } => {
                if end == End::Failed && reader.leaders.get(&partition) == Some(&n) {
                    reader.leaders.clear();
                }
                self.history.complete(operation, now, end);
                if let Some(next) = next {
                    reader.positions.insert(partition, next);
                }
            }
            _ => {}
        }
        let pause = Duration::from_micros(500 + reader.chance.below(20_000));
        self.wake_after(client, pause);
    }

    pub(super) fn on_reader_broken(&mut self, client: u32, n: usize, attempt: u64) {
        let reader = self.reader(client);
        if attempt < reader.attempt || reader.asked != n {
            return;
        }
        reader.attempt += 1;
        reader.leaders.clear();
        self.wake_after(client, Duration::from_millis(5));
    }

    /// What a fetch finds in a log now, and where the next one begins.
    pub(super) fn read(
        &self,
        n: usize,
        partition: PartitionId,
        from: i64,
        outcome: &core::Outcome,
    ) -> (End, Option<i64>) {
        let node = &self.nodes[n];
        let (Some(view), Some(log)) = (node.views.get(&partition), node.disk.log(partition)) else {
            return (End::Failed, None);
        };
        if matches!(outcome, core::Outcome::Refused(_)) || view.is_settling {
            return (End::Failed, None);
        }
        // Storage may have deleted what the machine does not know to be gone yet.
        let start = view.log_start.max(log.state().log_start).0;
        let high = view.high_watermark.0;
        if from < start || from > view.end.0 {
            // A follower may lack what was read elsewhere.
            return (End::Failed, view.is_leader.then_some(start));
        }
        if from > high {
            return (End::Failed, None);
        }
        let bytes_max = self.plan.workload.read_bytes as usize;
        let (records, next) = log.read(Offset(from), view.high_watermark, bytes_max);
        (End::Read { records, high_watermark: high, log_start: start }, Some(next.0))
    }

    /// Reads every partition from its start to its end, at its leader.
    pub(super) fn read_everything(&mut self) {
        let client = self.plan.last_client();
        for partition in self.clients.partitions.clone() {
            let Some((n, id)) = self.leader_of(partition) else {
                let sentence = format!("{partition} is not served at the end");
                self.observed.stuck.push(sentence);
                continue;
            };
            let start = self.nodes[n].views.get(&id).map_or(0, |view| view.log_start.0);
            let mut from = start;
            loop {
                let now = self.client_now().monotonic;
                let call = Call::Read { partition, from };
                let operation = self.history.invoke(client, now, call);
                let (end, next) = self.read(n, id, from, &core::Outcome::Advanced);
                self.history.complete(operation, now, end);
                match next {
                    Some(next) if next > from => from = next,
                    _ => break,
                }
            }
        }
    }
}
