//! The simulator as a command: `cargo sim`, or any plain `cargo run -p quorate-sim`.

use std::process::ExitCode;

fn main() -> ExitCode {
    quorate_sim::main()
}
