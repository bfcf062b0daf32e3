//! libFuzzer's way into the target `state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorate_fuzz::targets::state(bytes));
