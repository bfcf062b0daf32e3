//! The `quorate` command: one binary that is a node, a client and a set of tools.

mod args;
mod command;
mod failure;
mod nearest;
mod output;
mod record_format;
mod record_json;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::command::Context;
use crate::failure::Failure;
use crate::output::Output;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(cli.global.json);
    match start(cli, output) {
        Ok(()) => ExitCode::SUCCESS,
        // `quorate consume orders | head` is no failure.
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.exit)
        }
    }
}

fn start(cli: Cli, output: Output) -> Result<(), Failure> {
    let usual = match cli.command {
        Command::Serve(_) => "info",
        Command::Up(_) => "warn",
        _ => "off",
    };
    trace::start(&cli.global, usual)?;
    // One core is left to the threads of the disk. Fewer workers also wake one another less: on two
    // cores, one of them takes a quarter less processor time a message than two (measured).
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers.max(1))
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
    let outcome = runtime.block_on(run(cli, output));
    // A read of standard input may never end, and nobody waits for it any more.
    runtime.shutdown_background();
    outcome
}

async fn run(cli: Cli, output: Output) -> Result<(), Failure> {
    let context = Context::new(&cli.global, output);
    match cli.command {
        Command::Up(args) => command::up::up(&context, args).await,
        Command::Serve(args) => command::up::serve(&context, args).await,
        Command::Topic(topic) => command::topic::run(&context, topic).await,
        Command::Produce(args) => command::produce::run(&context, args).await,
        Command::Consume(args) => command::consume::run(&context, args).await,
        Command::Group(group) => command::group::run(&context, group).await,
        Command::Txn(txn) => command::txn::run(&context, txn).await,
        Command::Cluster(cluster) => command::cluster::run(&context, cluster).await,
        Command::Check(args) => command::check::run(&context, args.form).await,
        Command::Log(log) => command::log::run(&context, log).await,
        Command::Bench(bench) => command::bench::run(&context, bench).await,
        Command::Generate(generate) => command::generate::run(&context, generate),
    }
}
