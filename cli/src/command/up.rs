//! `quorate up` and `quorate serve`: a node until it is told to stop.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quorate_net::transport::os::OsNetwork;
use quorate_node::config::{ConfigError, NodeConfig};
use quorate_node::disk::Disk;
use quorate_node::disk::memory::MemoryDisk;
use quorate_node::disk::os::OsDisk;
use quorate_node::node::{self, NodeError};
use quorate_node::world::World;
use rand::TryRngCore;
use rand::rngs::OsRng;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::Context;
use crate::args::{ServeArgs, UpArgs};
use crate::failure::{Failure, USAGE};
use crate::output::human;

/// What an ephemeral node calls its data directory (`log.dirs`).
pub(crate) const MEMORY: &str = "(memory)";

pub(crate) async fn up(context: &Context, args: UpArgs) -> Result<(), Failure> {
    if args.nodes != 1 {
        let what =
            format!("{} nodes: this version runs one; clusters come with a later one", args.nodes);
        return Err(Failure::usage(what).hint("`quorate up` without --nodes starts a node"));
    }
    let mut config = NodeConfig::default();
    // On one machine, members do not start minutes apart: a group need not wait for others.
    config.group.initial_rebalance_delay = Duration::ZERO;
    config.set_from_environment(std::env::vars()).map_err(wrong_config)?;
    config.network.listen = args.listen;
    config.node.data = if args.ephemeral { MEMORY.into() } else { args.data.clone() };
    config.check().map_err(wrong_config)?;
    let disk: Arc<dyn Disk> =
        if args.ephemeral { Arc::new(MemoryDisk::ephemeral(args.memory)) } else { os_disk()? };
    let data = (!args.ephemeral).then_some(args.data.as_path());
    run(context, config, disk, data).await
}

pub(crate) async fn serve(context: &Context, args: ServeArgs) -> Result<(), Failure> {
    let shown = args.config.display();
    let text = std::fs::read_to_string(&args.config)
        .map_err(|error| Failure::new(format!("{shown} cannot be read: {error}")))?;
    let in_file = |error: ConfigError| Failure::usage(format!("{shown}: {error}"));
    let mut config = NodeConfig::from_toml(&text).map_err(in_file)?;
    config.set_from_environment(std::env::vars()).map_err(wrong_config)?;
    config.check().map_err(in_file)?;
    if args.check {
        if context.output.json {
            return context.output.json(&serde_json::json!({ "valid": true }));
        }
        return context.output.line(&format!("{shown} is valid"));
    }
    let data = config.node.data.clone();
    run(context, config, os_disk()?, Some(&data)).await
}

fn wrong_config(error: ConfigError) -> Failure {
    Failure::usage(error)
}

fn os_disk() -> Result<Arc<dyn Disk>, Failure> {
    let disk = OsDisk::start();
    let disk = disk.map_err(|error| Failure::new(format!("cannot start the disk: {error}")))?;
    Ok(Arc::new(disk))
}

async fn run(
    context: &Context,
    config: NodeConfig,
    disk: Arc<dyn Disk>,
    data: Option<&Path>,
) -> Result<(), Failure> {
    let world = World {
        disk,
        network: Arc::new(OsNetwork),
        clock: Arc::clone(&context.clock),
        seed: seed()?,
    };
    let stop = Stop::new()?;
    let advertised = config.network.advertise.clone();
    let start = context.clock.now().monotonic;
    let running = node::run(config, world).await.map_err(|error| not_started(&error, data))?;
    let took = context.clock.now().monotonic.saturating_since(start);
    let ready = Ready {
        bootstrap: advertised.unwrap_or_else(|| running.address().to_string()),
        cluster: running.cluster().to_owned(),
        data,
    };
    ready.announce(context, took)?;
    tokio::select! {
        biased;
        reason = running.halted() => {
            let failure = Failure::new(format!("the node halted: {reason}"));
            return Err(failure.hint("nothing that was acknowledged is lost; look after the disk"));
        }
        () = stop.asked() => {}
    }
    context.output.note("stopping");
    tokio::select! {
        biased;
        closed = running.shutdown() => closed.map_err(Failure::new),
        () = stop.asked() => Err(Failure::new("stopped before everything was closed")),
    }
}

fn not_started(error: &NodeError, data: Option<&Path>) -> Failure {
    let failure = Failure::new(error);
    match (error, data) {
        (NodeError::Listen { .. }, _) => {
            failure.hint("another program listens there; --listen 127.0.0.1:0 takes a free port")
        }
        (NodeError::Config(_), _) => Failure { exit: USAGE, ..failure },
        _ => failure,
    }
}

/// What a client needs to know of a node that serves.
#[derive(Serialize)]
struct Ready<'a> {
    bootstrap: String,
    cluster: String,
    /// `None`: in memory.
    data: Option<&'a Path>,
}

impl Ready<'_> {
    /// One line on standard output, for pasting; the rest beside it.
    fn announce(&self, context: &Context, took: Duration) -> Result<(), Failure> {
        let output = context.output;
        if output.json {
            let line = serde_json::to_string(self).map_err(std::io::Error::from)?;
            return output.line(&line);
        }
        let data = match self.data {
            Some(data) => format!("data in {}", data.display()),
            None => "nothing is kept".to_owned(),
        };
        let took = human::duration(took);
        output.note(&output.notes.dim(&format!("ready in {took}, {data}; Ctrl-C stops")));
        output.line(&format!("bootstrap.servers={}", self.bootstrap))
    }
}

/// SIGINT and SIGTERM.
struct Stop {
    asked: Arc<Notify>,
}

impl Stop {
    fn new() -> Result<Self, Failure> {
        let heard = |error| Failure::new(format!("cannot listen for signals: {error}"));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(heard)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(heard)?;
        let asked = Arc::new(Notify::new());
        let told = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                told.notify_one();
            }
        });
        Ok(Self { asked })
    }

    async fn asked(&self) {
        self.asked.notified().await;
    }
}

fn seed() -> Result<u64, Failure> {
    let drawn = OsRng.try_next_u64();
    drawn.map_err(|error| Failure::new(format!("the system has no random numbers: {error}")))
}
