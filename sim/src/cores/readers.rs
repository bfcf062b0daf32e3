//! Readers of the world of cores: each follows all partitions from their starts, one after the
//! other; and the last reading of everything.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::id::Offset;
use quorate_core::partition::interface as core;

use super::Cores;
use super::clients::What;
use crate::chance::Chance;
use crate::history::{Call, End, OperationId, Partition};

/// An answer on its way to a reader.
pub(super) struct ReaderReply {
    pub(super) client: u32,
    pub(super) attempt: u64,
    pub(super) operation: OperationId,
    pub(super) partition: Partition,
    pub(super) end: End,
    pub(super) next: Option<i64>,
}

pub(super) struct ReaderActor {
    pub(super) chance: Chance,
    pub(super) attempt: u64,
    pub(super) token: u64,
    pub(super) turn: usize,
    pub(super) positions: BTreeMap<Partition, i64>,
}

impl Cores {
    pub(super) fn read_next(&mut self, client: u32) {
        let place = (client - self.actors.writers.len() as u32) as usize;
        let reader = &mut self.actors.readers[place];
        reader.turn = (reader.turn + 1) % self.actors.partitions.len();
        reader.attempt += 1;
        let attempt = reader.attempt;
        let partition = self.actors.partitions[reader.turn];
        let from = reader.positions[&partition];
        let now = self.client_now().monotonic;
        let operation = self.history.invoke(client, now, Call::Read { partition, from });
        self.send(client, attempt, What::Read { operation, partition, from });
        let most = self.plan.workload.timeout + self.plan.workload.wait;
        self.wake_after(client, most);
    }

    pub(super) fn on_reader_reply(&mut self, reply: ReaderReply) {
        let place = (reply.client - self.actors.writers.len() as u32) as usize;
        let now = self.client_now().monotonic;
        let reader = &mut self.actors.readers[place];
        if reply.attempt != reader.attempt {
            return;
        }
        self.history.complete(reply.operation, now, reply.end);
        if let Some(next) = reply.next {
            reader.positions.insert(reply.partition, next);
        }
        let pause = Duration::from_micros(500 + reader.chance.below(20_000));
        self.wake_after(reply.client, pause);
    }

    /// What a fetch finds in the log now, and where the next one begins.
    pub(super) fn read(
        &self,
        partition: Partition,
        from: i64,
        outcome: &core::Outcome,
    ) -> (End, Option<i64>) {
        let Some((log, view)) = self.node.log(self.places.of(partition)) else {
            return (End::Failed, None);
        };
        if matches!(outcome, core::Outcome::Refused(_)) {
            return (End::Failed, None);
        }
        let (start, end) = (view.log_start.0, view.high_watermark.0);
        if from < start || from > end {
            return (End::Failed, Some(start));
        }
        let bytes_max = self.plan.workload.read_bytes as usize;
        let (records, next) = log.read(Offset(from), view.high_watermark, bytes_max);
        (End::Read { records, high_watermark: end, log_start: start }, Some(next.0))
    }

    /// Reads every partition from its start to its end.
    pub(super) fn read_everything(&mut self) {
        let client = self.actors.count();
        for partition in self.actors.partitions.clone() {
            let Some((_, view)) = self.node.log(self.places.of(partition)) else {
                let sentence = format!("{partition} is not served at the end");
                self.observed.stuck.push(sentence);
                continue;
            };
            let mut from = view.log_start.0;
            loop {
                let now = self.client_now().monotonic;
                let call = Call::Read { partition, from };
                let operation = self.history.invoke(client, now, call);
                let (end, next) = self.read(partition, from, &core::Outcome::Advanced);
                self.history.complete(operation, now, end);
                match next {
                    Some(next) if next > from => from = next,
                    _ => break,
                }
            }
        }
    }
}
