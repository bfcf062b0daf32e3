//! A writer: rounds of batches with values of its own, sent at once, tried again in their order
//! until they are answered or given up. Retries and sequence numbers as Kafka's producer has them.

use std::collections::BTreeMap;

use quorate_core::batch::{Batch, Codec, sequence_plus};
use quorate_core::time::{Instant, Now, Timestamp};
use quorate_net::kafka::error::Code;

use super::values;
use crate::chance::Chance;
use crate::history::{Call, Complaint, End, History, OperationId, Partition, Producer};
use crate::plan::{Acks, AppendRead, Codecs, Plan};

pub struct Writer {
    pub client: u32,
    /// As its values tell it.
    name: u32,
    pub chance: Chance,
    workload: AppendRead,
    partitions: Vec<Partition>,
    /// The next round begins with this one.
    pub wanted: Option<Partition>,
    producer: Option<(i64, i16)>,
    sequences: BTreeMap<Partition, Sequences>,
    values: u64,
    /// The batches of this round, in the order of sending.
    pub round: Vec<Append>,
    /// Appends that were acknowledged, by partition.
    pub acknowledged: BTreeMap<Partition, u64>,
    /// The end of the last acknowledged append.
    known_end: BTreeMap<Partition, i64>,
}

#[derive(Clone, Copy, Debug)]
struct Sequences {
    next: i32,
    /// Everything before is acknowledged.
    acknowledged: i32,
}

impl Sequences {
    const fn from(first: i32) -> Self {
        Self { next: first, acknowledged: first }
    }
}

/// One batch of a round.
#[derive(Debug)]
pub struct Append {
    pub operation: OperationId,
    pub partition: Partition,
    pub batch: Batch,
    producer: Option<Producer>,
    /// An attempt ended without an answer that tells whether it happened.
    in_doubt: bool,
    pub settled: bool,
}

/// What one attempt to append came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Appended {
        base: i64,
        append_time: Option<i64>,
    },
    /// A code of Kafka's.
    Refused(i16),
    /// No answer, or none that says whether it happened.
    InDoubt,
}

impl Writer {
    pub fn new(plan: &Plan, client: u32) -> Self {
        Self {
            client,
            name: values::writer(plan, client),
            chance: Chance::new(plan.seed, &format!("writer {client}")),
            workload: plan.workload.clone(),
            partitions: partitions(plan),
            wanted: None,
            producer: None,
            sequences: BTreeMap::new(),
            values: 0,
            round: Vec::new(),
            acknowledged: BTreeMap::new(),
            known_end: BTreeMap::new(),
        }
    }

    /// There are more partitions by now.
    pub fn use_partitions(&mut self, new: &[Partition]) {
        self.partitions.extend(new);
    }

    /// Whether `begin` wants a producer id first.
    pub fn wants_producer(&self) -> bool {
        self.workload.idempotent && self.producer.is_none()
    }

    pub fn set_producer(&mut self, id: i64, epoch: i16) {
        self.producer = Some((id, epoch));
        self.sequences.clear();
    }

    pub const fn acks(&self) -> Acks {
        self.workload.acks
    }

    pub const fn attempts_max(&self) -> u32 {
        self.workload.attempts
    }

    /// The pause before the next round.
    pub fn pause(&mut self) -> std::time::Duration {
        self.chance.duration(self.workload.pause)
    }

    /// Begins a round.
    pub fn begin(&mut self, history: &mut History, now: Now) {
        assert!(self.round.is_empty(), "the last round has not ended");
        for _ in 0..1 + self.chance.below(u64::from(self.workload.in_flight)) {
            let wanted = self.wanted.take();
            let partition = wanted.unwrap_or_else(|| *self.chance.pick(&self.partitions));
            let append = self.draw(partition, history, now);
            self.round.push(append);
        }
    }

    fn draw(&mut self, partition: Partition, history: &mut History, now: Now) -> Append {
        let count = self.chance.between(self.workload.records);
        let values: Vec<u64> = (0..count)
            .map(|_| {
                self.values += 1;
                let bytes = self.chance.between(self.workload.value_bytes);
                values::value(self.name, bytes, self.values)
            })
            .collect();
        let producer = self.producer.map(|(id, epoch)| {
            let first = self.workload.first_sequence;
            let sequences =
                self.sequences.entry(partition).or_insert_with(|| Sequences::from(first));
            let sequence = sequences.next;
            sequences.next = sequence_plus(sequence, count as i32);
            Producer { id, epoch, sequence }
        });
        let codec = match self.workload.codec {
            Codecs::Mixed => *self.chance.pick(&Codec::ALL),
            Codecs::Plain => Codec::None,
            Codecs::Gzip => Codec::Gzip,
            Codecs::Snappy => Codec::Snappy,
            Codecs::Lz4 => Codec::Lz4,
            Codecs::Zstd => Codec::Zstd,
        };
        let undated = self.chance.hit(self.workload.undated);
        let timestamp = if undated { Timestamp::NONE } else { now.wall };
        let batch = values::batch(&values, codec, producer, timestamp);
        let acks = self.workload.acks;
        let call = Call::Append { partition, values, acks, producer, attempts: 0 };
        let operation = history.invoke(self.client, now.monotonic, call);
        Append { operation, partition, batch, producer, in_doubt: false, settled: false }
    }

    /// What an attempt at the `place`-th batch of the round came to.
    pub fn on_answer(&mut self, place: usize, answer: Answer, history: &mut History, now: Instant) {
        let append = &mut self.round[place];
        let count = i64::from(append.batch.header().record_count());
        match answer {
            Answer::Appended { base, append_time } => {
                append.settled = true;
                history.complete(
                    append.operation,
                    now,
                    End::Appended { base: Some(base), append_time },
                );
                self.known_end.insert(append.partition, base + count);
                self.on_acknowledged(place);
            }
            Answer::Refused(code) if code == Code::DuplicateSequenceNumber.code() => {
                append.settled = true;
                let end = End::Appended { base: None, append_time: None };
                history.complete(append.operation, now, end);
                self.on_acknowledged(place);
            }
            Answer::Refused(code) => self.on_refused(place, code, history, now),
            Answer::InDoubt => append.in_doubt = true,
        }
    }

    fn on_acknowledged(&mut self, place: usize) {
        let append = &self.round[place];
        *self.acknowledged.entry(append.partition).or_default() += 1;
        if let Some(producer) = append.producer {
            let first = Sequences::from(self.workload.first_sequence);
            let sequences = self.sequences.entry(append.partition).or_insert(first);
            let end = sequence_plus(producer.sequence, append.batch.header().record_count());
            if sequences.acknowledged == producer.sequence {
                sequences.acknowledged = end;
            }
        }
    }

    fn on_refused(&mut self, place: usize, code: i16, history: &mut History, now: Instant) {
        let append = &mut self.round[place];
        let name = Code::from_code(code).map_or("an unknown code", Code::name);
        history.refused(append.operation, now, name);
        match Code::from_code(code) {
            // Surely not appended by this attempt, and no reason to wonder.
            Some(
                Code::UnknownTopicOrPartition
                | Code::MessageTooLarge
                | Code::RecordListTooLarge
                | Code::NotEnoughReplicas
                // The node's clock is far from the client's.
                | Code::InvalidTimestamp
                | Code::ThrottlingQuotaExceeded,
            ) => {}
            Some(Code::OutOfOrderSequenceNumber) => {
                let expected = append.producer.map(|producer| producer.sequence);
                let first = Sequences::from(self.workload.first_sequence);
                let sequences = self.sequences.get(&append.partition).copied();
                let acknowledged = sequences.unwrap_or(first).acknowledged;
                if expected == Some(acknowledged) {
                    let sentence = format!(
                        "operation {} has the sequence number that follows the acknowledged ones, \
                         {acknowledged}, and was told {name}",
                        append.operation.0
                    );
                    history.complaints.push(Complaint {
                        property: "sequence",
                        partition: append.partition,
                        sentence,
                    });
                }
            }
            Some(
                Code::NotLeaderOrFollower
                | Code::LeaderNotAvailable
                | Code::RequestTimedOut
                | Code::NetworkException
                | Code::NotEnoughReplicasAfterAppend
                | Code::KafkaStorageError
                | Code::UnknownServerError,
            ) => append.in_doubt = true,
            _ => {
                append.in_doubt = true;
                let sentence = format!("operation {} was told {name} ({code})", append.operation.0);
                let (property, partition) = ("answer", append.partition);
                history.complaints.push(Complaint { property, partition, sentence });
            }
        }
    }

    /// The batches that were not settled yet, in order.
    pub fn open(&self) -> Vec<usize> {
        (0..self.round.len()).filter(|place| !self.round[*place].settled).collect()
    }

    /// Ends the round: what is not settled is given up. A gap in the sequence numbers wants a new
    /// producer id.
    pub fn end(&mut self, history: &mut History, now: Instant) {
        for append in std::mem::take(&mut self.round) {
            if !append.settled {
                if !append.in_doubt {
                    history.complete(append.operation, now, End::Failed);
                }
                self.producer = None;
            }
        }
    }

    /// Now and then a round deletes records instead: from which partition, and below what.
    pub fn draw_delete(&mut self) -> Option<(Partition, Option<i64>)> {
        if !self.chance.hit(self.workload.delete_records) {
            return None;
        }
        let partition = *self.chance.pick(&self.partitions);
        let end = self.known_end.get(&partition).copied()?;
        let before = self.chance.below(end as u64 + 1) as i64;
        Some((partition, if self.chance.one_in(8) { None } else { Some(before) }))
    }
}

/// All partitions of a plan.
pub fn partitions(plan: &Plan) -> Vec<Partition> {
    let topics = (0..).zip(&plan.topics);
    topics
        .flat_map(|(topic, spec)| (0..spec.partitions).map(move |index| Partition { topic, index }))
        .collect()
}
