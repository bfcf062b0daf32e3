//! libFuzzer's way into the target `batch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorate_fuzz::targets::batch(bytes));
