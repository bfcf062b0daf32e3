//! Fuzzing with libFuzzer: `cargo +nightly fuzz run messages`. The targets are plain functions,
//! which `net/tests/corpus.rs` runs over the corpus in each `cargo test`.

pub mod targets;
