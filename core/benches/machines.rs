//! What a step of a shard costs, over few and over many partitions:
//! `cargo bench -p quorate-core --bench machines`. The best of several rounds.

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use quorate_core::batch::{Batch, BatchBuilder, Codec, Levels};
use quorate_core::id::{
    LeaderEpoch, NodeId, Offset, PartitionId, ProducerEpoch, ProducerId, RequestId, TopicId,
    WriteId,
};
use quorate_core::machine::Machine;
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::{
    Acks, Assignment, Input as PartitionInput, Isolation, PartitionConfig, Produce, Wait,
};
use quorate_core::shard::Shard;
use quorate_core::shard::interface::{Effect, Input, Limits, Open, Role};
use quorate_core::time::{Instant, Now, Timestamp};

const ROUNDS: usize = 5;
const TURNS: u64 = 100_000;

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn time(work: &mut impl FnMut()) -> Duration {
    let start = Clock::now();
    work();
    start.elapsed()
}

#[expect(clippy::print_stdout, reason = "a bench reports")]
fn report(line: &str) {
    println!("{line}");
}

struct Bench {
    shard: Shard,
    now: Now,
    partitions: u64,
    turn: u64,
    effects: Vec<Effect>,
}

fn partition(index: u64) -> PartitionId {
    PartitionId { topic: TopicId([1; 16]), index: i32::try_from(index).expect("small") }
}

impl Bench {
    fn new(partitions: u64) -> Self {
        let mut bench = Self {
            shard: Shard::new(NodeId(1), Limits::default(), 1),
            now: Now { monotonic: Instant::ZERO, wall: Timestamp(1_700_000_000_000) },
            partitions,
            turn: 0,
            effects: Vec::new(),
        };
        for index in 0..partitions {
            bench.step(Input::Open(Box::new(Open {
                partition: partition(index),
                role: Role::Data,
                recovered: Recovered::default(),
                config: PartitionConfig::default(),
                assignment: Assignment {
                    leader_epoch: LeaderEpoch(0),
                    leader: Some(NodeId(1)),
                    replicas: vec![NodeId(1)],
                    in_sync: vec![NodeId(1)],
                    ..Assignment::default()
                },
            })));
        }
        bench
    }

    fn step(&mut self, input: Input) {
        self.effects.clear();
        self.shard.step(self.now, input, &mut self.effects);
        black_box(&self.effects);
    }

    /// A batch comes, is written and answered: two steps.
    fn produce(&mut self, batch: &Batch) {
        self.turn += 1;
        self.now.monotonic = Instant::from_micros(self.turn);
        let partition = partition(self.turn % self.partitions);
        let until = self.now.monotonic + Duration::from_secs(30);
        let (request, levels) = (RequestId(self.turn), Levels::DEFAULT);
        let produce =
            Produce { request, batch: batch.clone(), levels, acks: Acks::All, until, guard: None };
        self.step(Input::Partition { partition, input: PartitionInput::Produce(produce) });
        let through = WriteId(u64::MAX);
        self.step(Input::Partition { partition, input: PartitionInput::Written { through } });
    }

    /// A reader waits, and is woken by a batch: three steps.
    fn wait(&mut self, batch: &Batch) {
        let partition = partition((self.turn + 1) % self.partitions);
        let end = self.shard.replica(partition).expect("it is open").log().end;
        let wait = Wait {
            request: RequestId((1 << 40) + self.turn),
            beyond: end,
            bytes_min: 1,
            isolation: Isolation::ReadUncommitted,
            until: self.now.monotonic + Duration::from_millis(500),
        };
        self.step(Input::Partition { partition, input: PartitionInput::Wait(wait) });
        self.produce(batch);
    }
}

fn batch(producer: Option<i32>) -> Batch {
    let mut builder = BatchBuilder::new(Codec::None);
    if let Some(sequence) = producer {
        builder = builder.producer(ProducerId(7), ProducerEpoch(0), sequence);
    }
    builder.append(Timestamp(1_700_000_000_000), None, Some(&[0; 100]), []);
    builder.build()
}

fn measure(name: &str, mut work: impl FnMut()) {
    let mut round = || (0..TURNS).for_each(|_| work());
    let best = (0..ROUNDS).map(|_| time(&mut round)).min().expect("there are rounds");
    report(&format!("{name:<52} {:>6} ns", best.as_nanos() / u128::from(TURNS)));
}

fn main() {
    for partitions in [1, 100, 10_000] {
        let mut bench = Bench::new(partitions);
        let plain = batch(None);
        measure(&format!("produce and written, {partitions} partitions"), || bench.produce(&plain));
        measure(&format!("wait, produce and written, {partitions} partitions"), || {
            bench.wait(&plain);
        });
    }
    let batches = (0..100_000).map(|sequence| batch(Some(sequence))).collect::<Vec<_>>();
    let (mut bench, mut sent) = (Bench::new(1), 0);
    measure("produce and written, idempotent", || {
        if sent == batches.len() {
            let end = bench.shard.replica(partition(0)).expect("it is open").log().end;
            assert_eq!(end, Offset(100_000), "every batch was appended");
            (bench, sent) = (Bench::new(1), 0);
        }
        bench.produce(&batches[sent]);
        sent += 1;
    });
}
