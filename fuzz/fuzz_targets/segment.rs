//! libFuzzer's way into the target `segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorate_fuzz::targets::segment(bytes));
