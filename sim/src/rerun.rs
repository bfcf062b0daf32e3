//! In a build without the simulated world, the command builds itself with it and runs that. So
//! every plain cargo command simulates; docs/decisions/0002 says why the flags are spelled so.

use std::env;
use std::process::{Command, ExitCode};

use crate::tool::HARNESS_BROKE;

const FLAGS: &str = "target.'cfg(all())'.rustflags=['--cfg','madsim','--cfg','mutants']";

pub fn main() -> ExitCode {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let mut command = Command::new(cargo);
    command.args(["run", "-q", "--profile", "sim", "--bin", "quorate-sim"]);
    command.args(["--manifest-path", manifest]);
    match env::var("RUSTFLAGS") {
        // The variable would win over the configuration.
        Ok(flags) => drop(command.env("RUSTFLAGS", flags + " --cfg madsim --cfg mutants")),
        Err(_) => drop(command.args(["--config", FLAGS])),
    }
    command.arg("--").args(env::args_os().skip(1));
    match command.status().map(|status| status.code()) {
        Ok(Some(code)) => ExitCode::from(u8::try_from(code).unwrap_or(HARNESS_BROKE)),
        Ok(None) | Err(_) => ExitCode::from(HARNESS_BROKE),
    }
}
