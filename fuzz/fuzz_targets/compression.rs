//! libFuzzer's way into the target `compression`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorate_fuzz::targets::compression(bytes));
