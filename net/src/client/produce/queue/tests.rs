//! Which batch goes when, and what follows from an answer; and a walk of random answers, after
//! which the log must hold each record once, in order, and as its delivery said.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;

use super::*;
use crate::client::Receipt;
use crate::client::produce::part::size_of;

const ADDRESS: &str = "here:1";

fn at(millis: u64) -> Instant {
    Instant::from_micros(millis * 1000)
}

fn now(millis: u64) -> Now {
    Now { monotonic: at(millis), wall: Timestamp(1000) }
}

/// A producer's queues, and what a test needs to speak to them.
struct Bench {
    queues: Queues,
    topic: Arc<str>,
}

impl Bench {
    fn new(config: ProducerConfig) -> Self {
        let queues = Queues::new(&config, &ClientConfig::new(ADDRESS), false);
        Self { queues, topic: Arc::from("t") }
    }

    fn send(&mut self, millis: u64, value: &str) -> Delivery {
        let value = Some(Bytes::copy_from_slice(value.as_bytes()));
        let message = Message { topic: Arc::clone(&self.topic), value, ..Message::default() };
        let room = size_of(&message);
        self.queues.append(now(millis), message, 0, room).0
    }

    fn drain(&mut self, millis: u64) -> Drained {
        let leader = |_: &str, _: i32| Some((ADDRESS.to_owned(), TopicId([7; 16])));
        self.queues.drain(at(millis), &leader, &|_| true)
    }

    /// The one part of the one request that is due.
    fn take(&mut self, millis: u64) -> (Part, Batch) {
        let mut drained = self.drain(millis);
        assert_eq!(drained.requests.len(), 1, "one request is due");
        let mut parts = drained.requests.remove(0).1;
        let mut part = parts.remove(0);
        assert!(parts.is_empty());
        let batch = part.build();
        (part, batch)
    }

    fn identify(&mut self, millis: u64, id: i64) {
        assert!(self.drain(millis).identify);
        self.queues.identified(at(millis), Ok((ProducerId(id), ProducerEpoch(0))));
    }

    fn accept(&mut self, millis: u64, (part, batch): (Part, Batch), base: i64) {
        let answer = Answer { base: Some(Offset(base)), append_time: None };
        self.queues.answered(at(millis), &part, batch, Ok(answer));
    }

    fn refuse(&mut self, millis: u64, (part, batch): (Part, Batch), code: Code) {
        let error = Error::refused("t-0", code, None);
        self.queues.answered(at(millis), &part, batch, Err(error));
    }

    fn lose(&mut self, millis: u64, (part, batch): (Part, Batch)) {
        let (address, reason) = (ADDRESS.to_owned(), "gone".to_owned());
        let error = Error::Interrupted { address, reason };
        self.queues.answered(at(millis), &part, batch, Err(error));
    }
}

fn settled(delivery: &Delivery) -> Option<Result<Receipt, SendError>> {
    delivery.clone().now_or_never()
}

fn numbers(batch: &Batch) -> (i64, i32, i32) {
    let header = batch.header();
    (header.producer_id().0, header.base_sequence(), header.record_count())
}

#[test]
fn a_batch_lingers_or_fills() {
    let linger = Duration::from_millis(10);
    let config = ProducerConfig { linger, idempotent: false, ..ProducerConfig::default() };
    let mut bench = Bench::new(ProducerConfig { batch_records_max: 3, ..config });
    let first = bench.send(0, "a");
    let second = bench.send(5, "b");
    let drained = bench.drain(5);
    assert!(drained.requests.is_empty() && drained.wake == Some(at(10)));
    let sent = bench.take(10);
    assert_eq!(numbers(&sent.1), (-1, -1, 2));
    bench.accept(11, sent, 40);
    let place = |delivery| settled(delivery).unwrap().unwrap().offset;
    assert_eq!((place(&first), place(&second)), (Some(Offset(40)), Some(Offset(41))));

    for value in ["c", "d", "e", "f"] {
        bench.send(20, value);
    }
    assert_eq!(numbers(&bench.take(20).1).2, 3, "a full batch does not linger");
    assert!(bench.drain(20).requests.is_empty(), "the rest does");
    bench.queues.hurry();
    assert_eq!(numbers(&bench.take(20).1).2, 1);
}

#[test]
fn sequences_rise_and_the_first_batch_goes_alone() {
    let mut bench = Bench::new(ProducerConfig::default());
    bench.send(0, "a");
    bench.identify(0, 9);
    let first = bench.take(0);
    bench.send(0, "b");
    assert!(bench.drain(0).requests.is_empty(), "nothing beside the first batch");
    bench.accept(1, first, 0);
    let second = bench.take(1);
    bench.send(1, "c");
    let third = bench.take(1);
    assert_eq!((numbers(&second.1), numbers(&third.1)), ((9, 1, 1), (9, 2, 1)));
    bench.accept(2, second, 1);
    bench.accept(2, third, 2);
    let drained = bench.drain(3);
    assert!(drained.freed > 0 && bench.queues.is_empty());
}

/// Leaders refuse a transaction that begins in their partition with another number than 0.
#[test]
fn a_transactions_first_batches_go_together() {
    let mut bench = Bench::new(ProducerConfig::default());
    bench.queues = Queues::new(&ProducerConfig::default(), &ClientConfig::new(ADDRESS), true);
    for epoch in 0..2 {
        bench.queues.tell(ProducerId(9), ProducerEpoch(epoch));
        bench.send(0, "a");
        let first = bench.take(0);
        bench.send(0, "b");
        let second = bench.take(0);
        assert_eq!((numbers(&first.1), numbers(&second.1)), ((9, 0, 1), (9, 1, 1)));
        bench.refuse(1, first, Code::NotEnoughReplicas);
        bench.refuse(1, second, Code::OutOfOrderSequenceNumber);
        let first = bench.take(100);
        assert_eq!(numbers(&first.1), (9, 0, 1));
        assert!(bench.drain(200).requests.is_empty(), "the other one waits");
        bench.accept(201, first, 0);
        let second = bench.take(300);
        assert_eq!(numbers(&second.1), (9, 1, 1));
        bench.accept(301, second, 1);
        assert!(bench.queues.is_empty() && bench.queues.failure().is_none());
    }
}

#[test]
fn what_failed_goes_again_first_and_alone_with_its_numbers() {
    let mut bench = Bench::new(ProducerConfig::default());
    bench.send(0, "a");
    bench.identify(0, 9);
    let first = bench.take(0);
    bench.accept(0, first, 0);
    let failed = bench.send(0, "b");
    let second = bench.take(0);
    bench.send(0, "c");
    let third = bench.take(0);
    bench.refuse(1, second, Code::NotLeaderOrFollower);
    bench.refuse(1, third, Code::OutOfOrderSequenceNumber);
    let drained = bench.drain(1);
    assert!(drained.requests.is_empty() && drained.wake.is_some(), "a pause comes first");
    let again = bench.take(100);
    assert_eq!(numbers(&again.1), (9, 1, 1));
    assert!(bench.drain(200).requests.is_empty(), "the other one waits");
    bench.accept(201, again, 1);
    let third = bench.take(300);
    assert_eq!(numbers(&third.1), (9, 2, 1));
    assert_eq!(settled(&failed).unwrap().unwrap().offset, Some(Offset(1)));
}

#[test]
fn a_gap_is_closed_by_a_new_identity() {
    let mut bench = Bench::new(ProducerConfig::default());
    bench.send(0, "a");
    bench.identify(0, 9);
    let first = bench.take(0);
    bench.accept(0, first, 0);
    let large = bench.send(0, "too large");
    let second = bench.take(0);
    let fine = bench.send(0, "fine");
    let third = bench.take(0);
    bench.refuse(1, second, Code::MessageTooLarge);
    let error = settled(&large).unwrap().unwrap_err();
    assert_eq!((error.fate, error.error.code()), (Fate::NotDone, Some(Code::MessageTooLarge)));
    assert!(!bench.drain(1).identify, "the third is still under way");
    bench.refuse(2, third, Code::OutOfOrderSequenceNumber);
    bench.identify(3, 10);
    let third = bench.take(300);
    assert_eq!(numbers(&third.1), (10, 0, 1));
    assert_eq!(
        crate::client::records_of(&third.1, Offset(0)).unwrap()[0].value.as_deref(),
        Some(&b"fine"[..])
    );
    bench.accept(301, third, 1);
    assert_eq!(settled(&fine).unwrap().unwrap().offset, Some(Offset(1)));
}

#[test]
fn the_last_numbers_are_taken_back_without_a_new_identity() {
    let mut bench = Bench::new(ProducerConfig::default());
    bench.send(0, "too large");
    bench.identify(0, 9);
    let first = bench.take(0);
    bench.refuse(1, first, Code::MessageTooLarge);
    bench.send(1, "b");
    assert_eq!(numbers(&bench.take(1).1), (9, 0, 1));
}

#[test]
fn what_may_be_stored_is_never_sent_under_another_identity() {
    let timeout = Duration::from_secs(1);
    let config = ProducerConfig { delivery_timeout: timeout, ..ProducerConfig::default() };
    let mut bench = Bench::new(config);
    bench.send(0, "a");
    bench.identify(0, 9);
    let first = bench.take(0);
    bench.accept(0, first, 0);
    let lost = bench.send(0, "lost");
    let second = bench.take(0);
    bench.lose(1, second);
    let waiting = bench.send(900, "waiting");
    bench.drain(1000);
    let error = settled(&lost).unwrap().unwrap_err();
    assert_eq!(error.fate, Fate::Unknown);
    assert!(matches!(error.error, Error::Expired { .. }));
    // The void identity was renewed in the same look, since nothing was under way.
    bench.queues.identified(at(1000), Ok((ProducerId(10), ProducerEpoch(0))));
    let next = bench.take(1001);
    assert_eq!(numbers(&next.1), (10, 0, 1));
    bench.accept(1002, next, 2);
    assert!(settled(&waiting).unwrap().is_ok());
}

/// A node that lost what it had acknowledged, as it may where acknowledgements do not wait for the
/// disk, never takes the next number: trying on until the delivery's timeout held up everything.
#[test]
fn who_is_out_of_order_with_nothing_before_it_gets_a_new_identity() {
    let mut bench = Bench::new(ProducerConfig::default());
    bench.send(0, "a");
    bench.identify(0, 9);
    let first = bench.take(0);
    bench.accept(0, first, 0);
    let lost = bench.send(0, "lost");
    let second = bench.take(0);
    let waiting = bench.send(0, "waiting");
    bench.lose(1, second);
    let again = bench.take(100);
    assert_eq!(numbers(&again.1), (9, 1, 1));
    bench.refuse(101, again, Code::OutOfOrderSequenceNumber);
    bench.identify(102, 10);
    assert_eq!(settled(&lost).unwrap().unwrap_err().fate, Fate::Unknown);
    let next = bench.take(300);
    assert_eq!(numbers(&next.1), (10, 0, 1));
    bench.accept(301, next, 0);
    assert!(settled(&waiting).unwrap().is_ok());
}

#[test]
fn an_old_duplicate_is_a_success_without_a_place() {
    let mut bench = Bench::new(ProducerConfig::default());
    let delivery = bench.send(0, "a");
    bench.identify(0, 9);
    let first = bench.take(0);
    bench.lose(0, first);
    let again = bench.take(100);
    bench.refuse(101, again, Code::DuplicateSequenceNumber);
    assert_eq!(settled(&delivery).unwrap().unwrap().offset, None);
}

#[test]
fn one_attempt_is_one_attempt() {
    let once = ProducerConfig { attempts_max: Some(1), idempotent: false, ..Default::default() };
    let mut bench = Bench::new(once);
    let delivery = bench.send(0, "a");
    let sent = bench.take(0);
    bench.lose(1, sent);
    assert_eq!(settled(&delivery).unwrap().unwrap_err().fate, Fate::Unknown);
    let delivery = bench.send(2, "b");
    let sent = bench.take(2);
    bench.refuse(3, sent, Code::NotEnoughReplicas);
    assert_eq!(settled(&delivery).unwrap().unwrap_err().fate, Fate::NotDone);
    let freed = bench.drain(4).freed;
    assert!(freed > 0 && bench.queues.is_empty());
}

#[test]
fn closing_ends_what_was_not_sent() {
    let mut bench = Bench::new(ProducerConfig::default());
    let delivery = bench.send(0, "a");
    bench.queues.close();
    let drained = bench.drain(0);
    assert!(drained.over && drained.requests.is_empty());
    let error = settled(&delivery).unwrap().unwrap_err();
    assert_eq!((error.error, error.fate), (Error::Closed, Fate::NotDone));
}

/// A partition as Kafka keeps one: the last five batches of each producer, any first number from
/// a producer that it does not know.
#[derive(Default)]
struct Model {
    log: Vec<String>,
    producers: BTreeMap<i64, Vec<(i32, i32, i64)>>,
}

impl Model {
    fn append(&mut self, batch: &Batch) -> Result<i64, Code> {
        let (id, sequence, count) = numbers(batch);
        let remembered = self.producers.entry(id).or_default();
        if let Some((.., base)) = remembered.iter().find(|b| (b.0, b.1) == (sequence, count)) {
            return Ok(*base);
        }
        if let Some((last, records, _)) = remembered.last()
            && last + records != sequence
        {
            return Err(Code::OutOfOrderSequenceNumber);
        }
        let base = i64::try_from(self.log.len()).unwrap();
        remembered.push((sequence, count, base));
        if remembered.len() > 5 {
            remembered.remove(0);
        }
        for record in crate::client::records_of(batch, Offset(0)).unwrap() {
            self.log.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
        }
        Ok(base)
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn walk(seed: u64) {
    let mut chance = Chance(seed);
    let timeout = Duration::from_millis(500 + chance.below(2000));
    let config = ProducerConfig {
        delivery_timeout: timeout,
        batch_records_max: 1 + i32::try_from(chance.below(3)).unwrap(),
        linger: Duration::from_millis(chance.below(3) * 10),
        ..ProducerConfig::default()
    };
    let mut bench = Bench::new(config);
    let mut model = Model::default();
    let mut under_way: VecDeque<(Part, Batch)> = VecDeque::new();
    let mut deliveries: Vec<(String, Delivery)> = Vec::new();
    let (mut next_id, mut held) = (1, 0);
    let faulty = chance.below(4) > 0;
    for millis in (0..20_000).step_by(10) {
        let over = millis > 15_000;
        if !over && chance.below(3) == 0 {
            let value = format!("{:06}", deliveries.len());
            held += size_of(&Message { value: Some(value.clone().into()), ..Message::default() });
            let delivery = bench.send(millis, &value);
            deliveries.push((value, delivery));
        }
        let drained = bench.drain(millis);
        held -= drained.freed;
        if drained.identify {
            bench.queues.identified(at(millis), Ok((ProducerId(next_id), ProducerEpoch(0))));
            next_id += 1;
        }
        for mut part in drained.requests.into_iter().flat_map(|(_, parts)| parts) {
            let batch = part.build();
            under_way.push_back((part, batch));
        }
        assert!(under_way.len() <= 60, "the queue bounds nothing, requests do");
        while !under_way.is_empty() && (over || chance.below(3) > 0) {
            let sent = under_way.pop_front().unwrap();
            let luck = if faulty && !over { chance.below(20) } else { 19 };
            match luck {
                0 => bench.lose(millis, sent),
                1 => {
                    let _ = model.append(&sent.1);
                    bench.lose(millis, sent);
                }
                2 => bench.refuse(millis, sent, Code::NotLeaderOrFollower),
                3 => bench.refuse(millis, sent, Code::NotEnoughReplicas),
                4 if chance.below(3) == 0 => bench.refuse(millis, sent, Code::MessageTooLarge),
                _ => match model.append(&sent.1) {
                    Ok(base) => bench.accept(millis, sent, base),
                    Err(code) => bench.refuse(millis, sent, code),
                },
            }
        }
    }
    held -= bench.drain(30_000).freed;
    assert!(bench.queues.is_empty() && held == 0, "seed {seed}: {held} bytes of room are missing");
    compare(seed, &model.log, deliveries);
}

/// What the deliveries said is what the log has.
fn compare(seed: u64, log: &[String], deliveries: Vec<(String, Delivery)>) {
    let mut sorted = log.to_vec();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted, log, "seed {seed}: each record once and in order");
    for (value, delivery) in deliveries {
        let place = log.binary_search(&value).ok();
        match settled(&delivery).expect("everything settles") {
            Ok(receipt) => {
                let offset = receipt.offset.map(|offset| usize::try_from(offset.0).unwrap());
                assert_eq!(place, offset, "seed {seed}: {value}");
            }
            Err(error) if error.fate == Fate::NotDone => {
                assert_eq!(place, None, "seed {seed}: {value} is stored: {error}");
            }
            Err(_) => {}
        }
    }
}

#[test]
fn whatever_happens_each_record_is_stored_once_and_in_order() {
    (0..300).for_each(walk);
}
