//! Round trips, bounds and bombs of each codec.

use std::io::Write;

use super::*;

const COMPRESSING: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn sample(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place % 251) as u8 ^ (place / 1024) as u8).collect()
}

#[test]
fn what_goes_in_comes_out() {
    for codec in Codec::ALL {
        for bytes in [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 300_000] {
            let plain = sample(bytes);
            let packed = compress(codec, &plain);
            let out = decompress(codec, &packed, plain.len()).unwrap();
            assert_eq!(out, plain, "{codec} of {bytes} bytes");
        }
    }
}

/// A producer that reads its own batch again to give it another number knows no bound.
#[test]
fn there_need_be_no_bound() {
    for codec in Codec::ALL {
        let plain = sample(1000);
        let out = decompress(codec, &compress(codec, &plain), usize::MAX).unwrap();
        assert_eq!(out, plain, "{codec}");
    }
}

#[test]
fn the_bound_is_exact() {
    for codec in Codec::ALL {
        let plain = sample(100_000);
        let packed = compress(codec, &plain);
        assert!(decompress(codec, &packed, plain.len()).is_ok());
        let error = decompress(codec, &packed, plain.len() - 1);
        assert_eq!(error, Err(CompressionError::TooLarge { bytes_max: plain.len() - 1 }));
    }
}

/// A bound of `usize::MAX` is none: one more than that was nothing, in builds that do not check.
#[test]
fn without_a_bound_all_of_it_comes_out() {
    for codec in Codec::ALL {
        let plain = sample(100_000);
        let out = decompress(codec, &compress(codec, &plain), usize::MAX).unwrap();
        assert_eq!(out, plain, "{codec}");
    }
}

#[test]
fn a_bomb_is_refused() {
    let plain = vec![0; 64 << 20];
    for codec in COMPRESSING {
        let packed = compress(codec, &plain);
        assert!(packed.len() < plain.len() / 15, "{codec} makes no bomb");
        let error = decompress(codec, &packed, 1 << 20);
        assert_eq!(error, Err(CompressionError::TooLarge { bytes_max: 1 << 20 }), "{codec}");
    }
}

#[test]
fn bytes_cut_short_or_changed_are_no_panic() {
    for codec in COMPRESSING {
        let plain = sample(5000);
        let packed = compress(codec, &plain);
        for end in 1..packed.len() {
            if let Ok(out) = decompress(codec, &packed.slice(..end), 10_000) {
                assert!(plain.starts_with(&out), "{codec} cut at {end} gives something else");
            }
        }
        for place in 0..packed.len() {
            let mut changed = packed.to_vec();
            changed[place] ^= 0x55;
            let _ = decompress(codec, &Bytes::from(changed), 10_000);
        }
    }
}

#[test]
fn snappy_without_framing_is_read() {
    let plain = sample(70_000);
    let packed = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
    assert_eq!(decompress(Codec::Snappy, &packed.into(), 70_000).unwrap(), plain);
}

#[test]
fn snappy_streams_one_after_another_are_read() {
    let plain = sample(40_000);
    let packed = compress(Codec::Snappy, &plain);
    let twice = [&packed[..], &packed[..]].concat();
    let out = decompress(Codec::Snappy, &twice.into(), 80_000).unwrap();
    assert_eq!(out, [&plain[..], &plain[..]].concat());
}

#[test]
fn a_snappy_block_that_claims_what_it_cannot_hold_is_refused_before_allocating() {
    // A bare block: varint 2^30, then nothing.
    let claim = Bytes::from_static(&[0x80, 0x80, 0x80, 0x80, 0x04, 0]);
    let error = decompress(Codec::Snappy, &claim, 2 << 30).unwrap_err();
    assert!(matches!(error, CompressionError::Corrupt { codec: Codec::Snappy, .. }), "{error}");
}

#[test]
fn lz4_with_linked_blocks_of_another_client_is_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let plain = sample(400_000);
    for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
        let info = FrameInfo::new()
            .block_mode(BlockMode::Linked)
            .block_size(size)
            .content_checksum(true)
            .content_size(Some(plain.len() as u64));
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&plain).unwrap();
        let packed = Bytes::from(encoder.finish().unwrap());
        assert_eq!(decompress(Codec::Lz4, &packed, plain.len()).unwrap(), plain);
    }
}

#[test]
fn zstd_frames_that_want_a_window_beyond_the_limit_are_refused() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(28).unwrap();
    encoder.write_all(&sample(1000)).unwrap();
    encoder.flush().unwrap();
    let packed = Bytes::from(encoder.finish().unwrap());
    let error = decompress(Codec::Zstd, &packed, 10_000).unwrap_err();
    assert!(matches!(error, CompressionError::Corrupt { codec: Codec::Zstd, .. }), "{error}");
}

#[test]
fn names_are_kafkas() {
    for codec in Codec::ALL {
        assert_eq!(Codec::from_name(codec.name()), Some(codec));
        assert_eq!(Codec::from_bits(codec.bits()), Some(codec));
    }
    assert_eq!((Codec::from_name("brotli"), Codec::from_bits(5)), (None, None));
}
