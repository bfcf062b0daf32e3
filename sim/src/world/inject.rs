//! Carries a plan's faults out, each at its time, on the node under test and what it stands on.

use std::sync::Arc;
use std::time::Duration;

use super::clock::until;
use super::cluster::Cluster;
use crate::chance::{Between, Chance, Ratio};
use crate::fault::Kind;
use crate::fault::cut::Direction;
use crate::plan::Plan;
use crate::trace::{self, Mark};

/// How often a crash waits for a moment at which it tells most.
const BIASED: Ratio = Ratio::new(9, 10);

/// How long it waits at most, and how often it looks.
const PATIENCE: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_micros(50);

/// All faults of the plan. Aborting it leaves what has begun to end by itself.
pub async fn all(cluster: Arc<Cluster>, plan: Arc<Plan>) {
    let mut moments = Chance::new(plan.seed, "moments");
    for fault in &plan.faults {
        let moment = draw_moment(&mut moments, &plan);
        until(&cluster.time, fault.at).await;
        let number = fault.kind.name().len() as u64;
        trace::event(cluster.time.elapsed(), Mark::Fault, "n1", [number, 0, 0], || {
            format!("{:?}", fault.kind)
        });
        cluster.count(fault.kind.name());
        let (cluster, kind) = (Arc::clone(&cluster), fault.kind.clone());
        madsim::task::spawn(one(cluster, kind, moment));
    }
}

/// For how long a sync is to be under way when a crash strikes; `None`: no matter.
pub(super) fn draw_moment(chance: &mut Chance, plan: &Plan) -> Option<Duration> {
    let during_sync = Between { low: Duration::ZERO, high: plan.disk.sync.high };
    let moment = chance.duration(during_sync);
    chance.hit(BIASED).then_some(moment)
}

/// Waits until something is on its way to the disk, and then for the drawn part of a sync.
pub(super) async fn wait_for_moment(cluster: &Cluster, moment: Option<Duration>) {
    let Some(moment) = moment else { return };
    let patience = cluster.time.elapsed() + PATIENCE;
    while !cluster.disk.medium().is_syncing() && cluster.time.elapsed() < patience {
        pass(cluster, LOOK).await;
    }
    pass(cluster, moment).await;
}

async fn one(cluster: Arc<Cluster>, kind: Kind, moment: Option<Duration>) {
    match kind {
        Kind::Crash(fault) => {
            wait_for_moment(&cluster, moment).await;
            if cluster.crash() {
                pass(&cluster, fault.down).await;
                cluster.start();
            }
        }
        Kind::PowerLoss(fault) => {
            wait_for_moment(&cluster, moment).await;
            if cluster.lose_power(fault.unsynced) {
                pass(&cluster, fault.down).await;
                cluster.start();
            }
        }
        Kind::Restart(fault) => {
            cluster.stop().await;
            pass(&cluster, fault.down).await;
            cluster.start();
        }
        Kind::Pause(fault) => {
            cluster.pause();
            pass(&cluster, fault.during).await;
            cluster.resume();
        }
        Kind::ClockJump(fault) => cluster.wall.jump(fault.by),
        Kind::DiskSlow(fault) => {
            cluster.disk.set_slow(fault.times);
            pass(&cluster, fault.during).await;
            cluster.disk.set_slow(1);
        }
        Kind::DiskStuck(fault) => {
            cluster.disk.set_stuck(cluster.time.elapsed() + fault.during);
        }
        Kind::SyncFails(fault) => {
            cluster.expect_halt(fault.down);
            cluster.disk.medium().sync_fails = true;
        }
        Kind::WriteFails(fault) => {
            cluster.expect_halt(fault.down);
            cluster.disk.medium().write_fails = true;
        }
        Kind::ReadFails(fault) => {
            cluster.expect_halt(fault.down);
            cluster.fail_reads(fault.reads);
        }
        Kind::DiskFull(fault) => {
            cluster.expect_halt(fault.down);
            cluster.disk.medium().full = true;
            pass(&cluster, fault.during).await;
            cluster.disk.medium().full = false;
        }
        Kind::BitFlip(fault) => {
            if let Some((path, at)) = cluster.disk.medium().flip_bit(fault.files) {
                cluster.rot(&path);
                trace::event(cluster.time.elapsed(), Mark::Fault, "n1", [at, 0, 0], || {
                    format!("a bit flips in {} at {at}", path.display())
                });
            }
        }
        Kind::Cut(_) | Kind::SlowLink(_) | Kind::Reset(_) | Kind::LoseReplies(_) => {
            on_links(&cluster, kind).await;
        }
    }
}

async fn on_links(cluster: &Cluster, kind: Kind) {
    let (network, host) = (&cluster.network, cluster.host);
    match kind {
        Kind::Cut(fault) => {
            let clients = cluster.client_hosts(fault.client);
            let to_node = fault.direction != Direction::FromNode;
            let from_node = fault.direction != Direction::ToNode;
            for client in &clients {
                if to_node {
                    network.cut(*client, host);
                }
                if from_node {
                    network.cut(host, *client);
                }
            }
            pass(cluster, fault.during).await;
            for client in clients {
                if to_node {
                    network.heal(client, host);
                }
                if from_node {
                    network.heal(host, client);
                }
            }
        }
        Kind::SlowLink(fault) => {
            let clients = cluster.client_hosts(fault.client);
            let set = |extra| {
                for client in &clients {
                    network.set_extra(*client, host, extra);
                    network.set_extra(host, *client, extra);
                }
            };
            set(fault.latency);
            pass(cluster, fault.during).await;
            set(Duration::ZERO);
        }
        Kind::Reset(fault) => {
            for client in cluster.client_hosts(fault.client) {
                network.reset(client, host);
            }
        }
        Kind::LoseReplies(fault) => {
            let clients = cluster.client_hosts(fault.client);
            for client in &clients {
                network.cut(host, *client);
            }
            pass(cluster, fault.during).await;
            for client in clients {
                network.reset(client, host);
                network.heal(host, client);
            }
        }
        _ => {}
    }
}

async fn pass(cluster: &Cluster, during: Duration) {
    until(&cluster.time, cluster.time.elapsed() + during).await;
}
