//! What is forgotten and read again arrives as it would have.

use std::future::poll_fn;
use std::task::Waker;

use quorate_core::rng::Rng;
use tokio::io::AsyncReadExt;

use super::*;

/// Batches of a log: batch `n` holds offset `n` and begins with its number.
struct Log {
    batches: Vec<Bytes>,
    pools: AnswerPools,
}

impl Again for Arc<Log> {
    fn read(&self, from: Offset, bytes: usize) -> Reading {
        let log = Self::clone(self);
        Box::pin(async move {
            let mut loan = log.pools.take_whole(bytes.min(300)).await;
            let (mut chunks, mut read, mut next) = (Vec::new(), 0, from.0 as usize);
            while let Some(batch) = log.batches.get(next)
                && (chunks.is_empty() || read + batch.len() <= loan.bytes().min(bytes))
            {
                read += batch.len();
                chunks.push(batch.clone());
                next += 1;
            }
            loan.shrink(read);
            Ok(Part { chunks, next: Offset(next as i64), loan })
        })
    }
}

fn log(rng: &mut Rng, pools: &AnswerPools) -> Arc<Log> {
    let batch = |number: usize| {
        let len = 1 + rng.below(400) as usize;
        Bytes::from(vec![number as u8; len])
    };
    Arc::new(Log { batches: (0..30).map(batch).collect(), pools: pools.clone() })
}

/// An answer of some plain bytes, the batches `range`, and plain bytes again.
fn answer(log: &Arc<Log>, range: std::ops::Range<usize>, loan: Loan) -> (Encoded, Lent) {
    let mut chunks = vec![Bytes::from_static(b"head of the answer")];
    let start = chunks[0].len();
    let (mut steps, mut bytes) = (Vec::new(), 0);
    for number in range {
        if number % 3 == 0 || steps.is_empty() {
            steps.push((bytes, Offset(number as i64)));
        }
        bytes += log.batches[number].len();
        chunks.push(log.batches[number].clone());
    }
    chunks.push(Bytes::from_static(b"tail"));
    let records = std::iter::once(start..start + bytes).collect();
    let source = Source { again: Arc::new(Arc::clone(log)), steps };
    (Encoded { chunks, records }, Lent { loan, sources: vec![source] })
}

/// The client takes a little now and then; in between, others need the memory.
async fn arrives_whole(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let pools = AnswerPools::new(4 << 20);
    let log = log(&mut rng, &pools);
    let (near, mut far) = tokio::io::duplex(1 + rng.below(600) as usize);
    let mut stream: Box<dyn Stream> = Box::new(near);
    let mut output = Output::default();
    let mut expected = Vec::new();
    for first in [0, 7, 20] {
        let range = first..first + 1 + rng.below(10) as usize;
        let bytes = range.clone().map(|number| log.batches[number].len()).sum();
        let (encoded, lent) = answer(&log, range, pools.take_whole(bytes).await);
        expected.extend(encoded.chunks.concat());
        output.push(encoded, Some(lent));
    }
    let (mut received, mut forgotten) = (Vec::new(), 0);
    while received.len() < expected.len() {
        // A task that never lets others run is held up by tokio, and would look like a full stream.
        tokio::task::yield_now().await;
        // As far as the client's buffer goes.
        while let Poll::Ready(sent) =
            poll_fn(|context| Poll::Ready(output.poll_send(&mut *stream, context))).await
        {
            sent.unwrap();
        }
        if rng.below(2) == 0 {
            output.give_back();
            forgotten += output.later;
            assert_eq!(pools.taken(), 0, "all memory is back");
            let kept = output.pieces.iter().map(|piece| match piece {
                Piece::Bytes(bytes) => bytes.len(),
                Piece::Later(_) => 0,
            });
            assert!(kept.sum::<usize>() <= BAIT_BYTES + 100);
        }
        let mut some = [0; 100];
        let read = far.read(&mut some[..1 + rng.below(100) as usize]).await.unwrap();
        received.extend_from_slice(&some[..read]);
    }
    assert!(received == expected, "seed {seed}");
    assert_eq!((output.pending(), output.later, pools.taken()), (0, 0, 0));
    forgotten
}

#[tokio::test]
async fn what_was_forgotten_arrives_as_it_would_have() {
    let mut forgotten = 0;
    for seed in 0..300 {
        forgotten += arrives_whole(seed).await;
    }
    assert!(forgotten > 10_000, "{forgotten}");
}

/// A log whose disk never answers.
struct Stuck;

impl Again for Stuck {
    fn read(&self, _: Offset, _: usize) -> Reading {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn who_waits_for_the_log_keeps_nothing_that_is_answered_meanwhile() {
    let pools = AnswerPools::new(4 << 20);
    let (near, _far) = tokio::io::duplex(1 << 20);
    let mut stream: Box<dyn Stream> = Box::new(near);
    let mut output = Output::default();
    for _ in 0..2 {
        let chunks = vec![Bytes::from(vec![7; 10 * BAIT_BYTES])];
        let records = std::iter::once(0..chunks[0].len()).collect();
        let source = Source { again: Arc::new(Stuck), steps: vec![(0, Offset::ZERO)] };
        let loan = pools.take_whole(10 * BAIT_BYTES).await;
        output.push(Encoded { chunks, records }, Some(Lent { loan, sources: vec![source] }));
        output.give_back();
        let context = &mut Context::from_waker(Waker::noop());
        while output.poll_send(&mut *stream, context).is_ready() {}
        assert!(output.is_reading());
        let loan = pools.take_whole(10 * BAIT_BYTES).await;
        let plain = Encoded { chunks: vec![Bytes::from(vec![7; 99])], records: Vec::new() };
        output.push(plain, Some(Lent { loan, sources: Vec::new() }));
        assert!(output.poll_send(&mut *stream, context).is_pending());
        assert_eq!(pools.taken(), 0);
    }
}

#[tokio::test]
async fn who_rests_longest_is_asked_first_and_memory_comes_back() {
    let pools = AnswerPools::new(4 << 20);
    let context = Context::from_waker(Waker::noop());
    let mut rng = Rng::new(1);
    let log = log(&mut rng, &pools);
    let mut outputs: Vec<Output> = Vec::new();
    // The large pool has 3 MiB and gives a quarter at most.
    for _ in 0..5 {
        let loan = pools.take(768 << 10).await;
        let (encoded, lent) = answer(&log, 0..10, loan);
        let mut output = Output::default();
        output.push(encoded, Some(lent));
        outputs.push(output);
    }
    for (age, output) in outputs.iter_mut().enumerate() {
        let now = Instant::ZERO + std::time::Duration::from_millis(age as u64);
        output.rest(now, &pools, &context).unwrap();
    }
    let forgotten = |outputs: &[Output]| outputs.iter().filter(|output| output.later > 0).count();
    let large = pools.take(768 << 10).await;
    assert!(large.is_small(), "nobody waits for the large pool");
    for output in &mut outputs {
        output.rest(Instant::ZERO, &pools, &context).unwrap();
    }
    assert_eq!(forgotten(&outputs), 1, "no more than what was needed");
    assert!(outputs[0].later > 0, "and from the one that has rested longest");
    assert!(!pools.take(700 << 10).await.is_small());
}

#[tokio::test]
async fn chunks_arrive_in_order_and_memory_returns() {
    let pools = AnswerPools::new(16 << 20);
    let (near, mut far) = tokio::io::duplex(3);
    let mut stream: Box<dyn Stream> = Box::new(near);
    let mut output = Output::default();
    let encoded = |chunks: &[&'static [u8]]| Encoded {
        chunks: chunks.iter().map(|chunk| Bytes::from_static(chunk)).collect(),
        records: Vec::new(),
    };
    let loan = pools.take(4).await;
    output.push(encoded(&[b"ab", b"cdef"]), Some(Lent { loan, sources: Vec::new() }));
    output.push(encoded(&[b"g"]), None);
    let mut received = Vec::new();
    while output.pending() > 0 {
        poll_fn(|context| output.poll_send(&mut *stream, context)).await.unwrap();
        let mut some = [0; 3];
        let read = far.read(&mut some).await.unwrap();
        received.extend_from_slice(&some[..read]);
        assert_eq!(pools.taken(), if output.sent < 6 { 4 } else { 0 });
    }
    assert_eq!(received, b"abcdefg");
}
