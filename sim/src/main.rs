//! The simulator as a command: `cargo sim`, or any plain `cargo run -p quorate-sim`.

use std::process::ExitCode;

/// A simulated life is one thread that allocates all the time and is then gone (0141).
#[cfg(madsim)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    quorate_sim::main()
}
