//! How fast batches are checked, read and built: `cargo bench -p quorate-core`. A line a case, the
//! best of several rounds, so that a busy machine disturbs little.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quorate_core::batch::{
    Batch, BatchBuilder, Codec, RecordHeader, Records, Rules, checksum, validate,
};
use quorate_core::id::PartitionId;
use quorate_core::segment::frame::{Frame, frame_chunks};
use quorate_core::time::Timestamp;

const ROUNDS: u32 = 7;

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn time(work: &mut impl FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[expect(clippy::print_stdout, reason = "a bench reports")]
fn report(line: &str) {
    println!("{line}");
}

/// Prints bytes and records a second of `work`, which handles `batch` once.
fn measure(name: &str, batch: &Batch, mut work: impl FnMut()) {
    let once = time(&mut work).max(Duration::from_nanos(50));
    let turns = (Duration::from_millis(40).as_nanos() / once.as_nanos()).clamp(1, 1_000_000);
    let mut round = || (0..turns).for_each(|_| work());
    let best = (0..ROUNDS).map(|_| time(&mut round)).min().expect("there are rounds");
    let nanos = best.as_nanos() / turns;
    let megabytes = (batch.len() as u128 * 1000) / nanos.max(1);
    let records = batch.header().record_count().max(1).cast_unsigned();
    let each = nanos * 10 / u128::from(records);
    report(&format!("{name:<44} {megabytes:>7} MB/s {:>6}.{} ns/record", each / 10, each % 10));
}

fn batch(codec: Codec, records: usize, value_bytes: usize, headers: usize) -> Batch {
    let mut builder = BatchBuilder::new(codec);
    let header = RecordHeader { key: b"trace-id", value: Some(b"0123456789abcdef") };
    for record in 0..records {
        // Half of each value repeats, as text does.
        let value: Vec<u8> = (0..value_bytes)
            .map(|place| if place % 2 == 0 { b'a' } else { (record * 31 + place * 7) as u8 })
            .collect();
        let key = record.to_be_bytes();
        let time = Timestamp(1_700_000_000_000 + record as i64);
        builder.append(time, Some(&key), Some(&value), vec![header; headers]);
    }
    builder.build()
}

fn main() {
    // `cargo test --benches` runs this too, and wants to know only that it compiles.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let rules = Rules {
        now: Timestamp(1_700_000_000_000),
        batch_bytes_max: usize::MAX,
        uncompressed_bytes_max: 1 << 30,
        compact: false,
        log_append_time: false,
        timestamp_before_max: None,
        timestamp_after_max: Some(Duration::from_secs(3600)),
        zstd: true,
    };
    for (name, value_bytes, headers) in [
        ("100 B", 100, 0),
        ("100 B, two headers", 100, 2),
        ("1 KiB", 1024, 0),
        ("10 KiB", 10 * 1024, 0),
    ] {
        let whole = batch(Codec::None, (256 << 10) / value_bytes, value_bytes, headers);
        measure(&format!("validate {name}"), &whole, || {
            let mut batch = whole.clone();
            black_box(validate(&mut batch, &rules)).expect("the batch is valid");
        });
        measure(&format!("iterate {name}"), &whole, || {
            let count = whole.header().record_count();
            black_box(Records::new(whole.records(), count).filter(Result::is_ok).count());
        });
    }
    let single = batch(Codec::None, 1, 1024, 0);
    measure("validate one record of 1 KiB", &single, || {
        black_box(validate(&mut single.clone(), &rules)).expect("the batch is valid");
    });
    let whole = batch(Codec::None, 256, 1024, 0);
    measure("CRC-32C of 1 KiB records", &whole, || {
        black_box(checksum::checksum(whole.records()));
    });
    measure("build 1 KiB", &whole, || {
        black_box(batch(Codec::None, 256, 1024, 0));
    });
    measure("log append time", &whole, || {
        whole.clone().set_log_append_time(black_box(Timestamp(5)));
    });
    let frame = Bytes::from(
        frame_chunks(PartitionId::METADATA, &whole, quorate_core::batch::Levels::DEFAULT).concat(),
    );
    measure("decode frame of 1 KiB records", &whole, || {
        black_box(Frame::decode(&frame)).expect("the frame is whole");
    });
    for codec in Codec::ALL.into_iter().skip(1) {
        let packed = batch(codec, 256, 1024, 0);
        measure(&format!("validate 1 KiB {codec} (per compressed byte)"), &packed, || {
            black_box(validate(&mut packed.clone(), &rules)).expect("the batch is valid");
        });
    }
}
