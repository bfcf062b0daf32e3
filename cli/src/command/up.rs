//! `quorate up` and `quorate serve`: one node, or a cluster on one machine, until it is told to
//! stop.

mod cluster;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_all, try_join_all};
use quorate_net::transport::os::OsNetwork;
use quorate_node::config::{ConfigError, NodeConfig};
use quorate_node::disk::Disk;
use quorate_node::disk::memory::MemoryDisk;
use quorate_node::disk::os::OsDisk;
use quorate_node::node::{self, NodeError, RunningNode};
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
    let mut config = NodeConfig::default();
    // On one machine, members do not start minutes apart: a group need not wait for others.
    config.group.initial_rebalance_delay = Duration::ZERO;
    config.set_from_environment(std::env::vars()).map_err(wrong_config)?;
    config.network.listen = args.listen;
    config.http.listen = args.http.or(config.http.listen);
    config.node.data = if args.ephemeral { MEMORY.into() } else { args.data.clone() };
    let configs = match args.nodes {
        1 => vec![config],
        nodes => cluster::configs(&config, nodes).await?,
    };
    let configs = each_its_own_monitors(configs);
    let memory = args.memory / u64::from(args.nodes);
    let mut starts = Vec::with_capacity(configs.len());
    for config in configs {
        config.check().map_err(wrong_config)?;
        let disk: Arc<dyn Disk> =
            if args.ephemeral { Arc::new(MemoryDisk::ephemeral(memory)) } else { os_disk()? };
        starts.push((config, disk));
    }
    let data = (!args.ephemeral).then_some(args.data.as_path());
    run(context, starts, data).await
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
    run(context, vec![(config, os_disk()?)], Some(&data)).await
}

/// Nodes on one machine listen at ports that count up.
fn each_its_own_monitors(mut configs: Vec<NodeConfig>) -> Vec<NodeConfig> {
    for (more, config) in (0..).zip(&mut configs) {
        if let Some(address) = &mut config.http.listen
            && address.port() > 0
        {
            address.set_port(address.port().saturating_add(more));
        }
    }
    configs
}

fn wrong_config(error: ConfigError) -> Failure {
    Failure::usage(error)
}

fn os_disk() -> Result<Arc<dyn Disk>, Failure> {
    let disk = OsDisk::start();
    let disk = disk.map_err(|error| Failure::new(format!("cannot start the disk: {error}")))?;
    Ok(Arc::new(disk))
}

/// Nodes of one cluster, until they are told to stop.
async fn run(
    context: &Context,
    starts: Vec<(NodeConfig, Arc<dyn Disk>)>,
    data: Option<&Path>,
) -> Result<(), Failure> {
    let stop = Stop::new()?;
    let advertised: Vec<Option<String>> =
        starts.iter().map(|(config, _)| config.network.advertise.clone()).collect();
    let began = context.clock.now().monotonic;
    let nodes = tokio::select! {
        biased;
        () = stop.asked() => {
            // It did what it was told.
            context.output.note("stopped before it served");
            return Ok(());
        }
        nodes = start(context, starts, data) => nodes?,
    };
    let took = context.clock.now().monotonic.saturating_since(began);
    let addresses = nodes.iter().zip(advertised);
    let addresses =
        addresses.map(|(node, told)| told.unwrap_or_else(|| node.address().to_string()));
    let ready = Ready {
        bootstrap: addresses.collect::<Vec<String>>().join(","),
        cluster: nodes[0].cluster().to_owned(),
        data,
        http: nodes.iter().filter_map(RunningNode::http_address).collect(),
    };
    ready.announce(context, took)?;
    let halted = select_all(nodes.iter().map(|node| Box::pin(node.halted())));
    tokio::select! {
        biased;
        (reason, at, _) = halted => {
            let failure = Failure::new(format!("node {} halted: {reason}", nodes[at].id()));
            return Err(failure.hint("nothing that was acknowledged is lost; look after the disk"));
        }
        () = stop.asked() => {}
    }
    context.output.note("stopping");
    let stopping = try_join_all(nodes.into_iter().map(RunningNode::shutdown));
    tokio::select! {
        biased;
        closed = stopping => closed.map(|_| ()).map_err(Failure::new),
        () = stop.asked() => Err(Failure::new("stopped before everything was closed")),
    }
}

/// All of them at once, since a cluster begins with more than half of its voters; each counts as
/// there in the end.
async fn start(
    context: &Context,
    starts: Vec<(NodeConfig, Arc<dyn Disk>)>,
    data: Option<&Path>,
) -> Result<Vec<RunningNode>, Failure> {
    let is_alone = starts.len() == 1;
    let mut starting = Vec::with_capacity(starts.len());
    for (config, disk) in starts {
        let (network, clock) = (Arc::new(OsNetwork), Arc::clone(&context.clock));
        starting.push(node::run(config, World { disk, network, clock, seed: seed()? }));
    }
    let nodes = try_join_all(starting).await.map_err(|error| not_started(&error, data))?;
    if !is_alone {
        join_all(nodes.iter().map(RunningNode::unfenced)).await;
    }
    Ok(nodes)
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
    /// Where monitors are answered.
    http: Vec<SocketAddr>,
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
        for address in &self.http {
            output.note(&output.notes.dim(&format!("metrics at http://{address}/metrics")));
        }
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
