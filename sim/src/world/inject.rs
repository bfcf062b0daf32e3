//! Carries a plan's faults out, each at its time, on the nodes under test and what they stand
//! on.

use std::sync::Arc;
use std::time::Duration;

use super::clock::until;
use super::cluster::Cluster;
use super::member::Member;
use super::network::HostId;
use crate::chance::{Between, Chance, Ratio};
use crate::coverage;
use crate::fault::cut::Direction;
use crate::fault::power_loss::Unsynced;
use crate::fault::{Fault, Kind};
use crate::plan::Plan;
use crate::trace::{self, Mark};

/// How often a crash waits for a moment at which it tells most.
const BIASED: Ratio = Ratio::new(9, 10);

/// How long it waits at most, and how often it looks.
const PATIENCE: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_micros(50);

/// All faults of the plan; `act` has operators do what they do. Aborting it leaves what has begun
/// to end by itself.
pub async fn all(cluster: Arc<Cluster>, plan: Arc<Plan>, act: impl Fn(Fault)) {
    let mut moments = Chance::new(plan.seed, "moments");
    for fault in &plan.faults {
        let moment = draw_moment(&mut moments, &plan);
        until(&cluster.time, fault.at).await;
        let number = fault.kind.name().len() as u64;
        let member = Arc::clone(cluster.member(fault.node));
        trace::event(cluster.time.elapsed(), Mark::Fault, member.name, [number, 0, 0], || {
            format!("{:?}", fault.kind)
        });
        member.count(fault.kind.name());
        coverage::strikes(fault.kind.name());
        if let Kind::ElectUnclean(_) = fault.kind {
            member.is_led_uncleanly();
        }
        if fault.kind.is_operators() {
            act(fault.clone());
            continue;
        }
        let (cluster, node, kind) = (Arc::clone(&cluster), fault.node, fault.kind.clone());
        madsim::task::spawn(one(cluster, node, kind, moment));
    }
}

/// For how long a sync is to be under way when a crash strikes; `None`: no matter.
pub(super) fn draw_moment(chance: &mut Chance, plan: &Plan) -> Option<Duration> {
    let during_sync = Between { low: Duration::ZERO, high: plan.disk.sync.high };
    let moment = chance.duration(during_sync);
    chance.hit(BIASED).then_some(moment)
}

/// Waits until something is on its way to the disk, and then for the drawn part of a sync.
pub(super) async fn wait_for_moment(member: &Member, moment: Option<Duration>) {
    let Some(moment) = moment else { return };
    let patience = member.time.elapsed() + PATIENCE;
    while !member.disk.medium().is_syncing() && member.time.elapsed() < patience {
        pass(member, LOOK).await;
    }
    pass(member, moment).await;
}

async fn one(cluster: Arc<Cluster>, node: u32, kind: Kind, moment: Option<Duration>) {
    let member = Arc::clone(cluster.member(node));
    match kind {
        Kind::Crash(fault) => {
            wait_for_moment(&member, moment).await;
            if member.crash() {
                pass(&member, fault.down).await;
                member.start();
            }
        }
        Kind::PowerLoss(fault) => {
            wait_for_moment(&member, moment).await;
            if member.lose_power(fault.unsynced) {
                pass(&member, fault.down).await;
                member.start();
            }
        }
        Kind::Restart(fault) => {
            member.stop().await;
            pass(&member, fault.down).await;
            member.start();
        }
        Kind::Pause(fault) => {
            member.pause();
            pass(&member, fault.during).await;
            member.resume();
        }
        Kind::ClockJump(fault) => member.wall.jump(fault.by),
        Kind::DiskSlow(_)
        | Kind::DiskStuck(_)
        | Kind::SyncFails(_)
        | Kind::WriteFails(_)
        | Kind::ReadFails(_)
        | Kind::DiskFull(_)
        | Kind::BitFlip(_)
        | Kind::MisdirectedWrite(_) => on_disk(&member, kind).await,
        Kind::Wipe(fault) => {
            if member.wipe() {
                pass(&member, fault.down).await;
                member.start();
            }
        }
        Kind::JournalGone(fault) => lose_journal(&member, fault.down, moment).await,
        Kind::RollingRestart(fault) => roll(&cluster, node, fault.down).await,
        Kind::Blackout(fault) => {
            wait_for_moment(&member, moment).await;
            let lost = cluster.members.iter().filter(|member| member.lose_power(fault.unsynced));
            if lost.count() > 0 {
                pass(&member, fault.down).await;
                cluster.start();
            }
        }
        Kind::Cut(_) | Kind::SlowLink(_) | Kind::Reset(_) | Kind::LoseReplies(_) => {
            on_links(&cluster, &member, kind).await;
        }
        Kind::CutPeers(_) | Kind::SlowPeers(_) | Kind::ResetPeers(_) => {
            between_nodes(&cluster, &member, node, kind).await;
        }
        Kind::Reassign(_)
        | Kind::Decommission(_)
        | Kind::Maintenance(_)
        | Kind::RemoveVoter(_)
        | Kind::AddVoter(_)
        | Kind::ElectPreferred(_)
        | Kind::ElectUnclean(_)
        | Kind::AddPartitions(_) => unreachable!("an operator does {kind:?}"),
    }
}

async fn lose_journal(member: &Member, down: Duration, moment: Option<Duration>) {
    wait_for_moment(member, moment).await;
    if member.lose_power(Unsynced::Lost) {
        member.lose_journal();
        pass(member, down).await;
        member.start();
    }
}

async fn on_disk(member: &Member, kind: Kind) {
    match kind {
        Kind::DiskSlow(fault) => {
            member.disk.set_slow(fault.times);
            pass(member, fault.during).await;
            member.disk.set_slow(1);
        }
        Kind::DiskStuck(fault) => {
            member.disk.set_stuck(member.time.elapsed() + fault.during);
        }
        Kind::SyncFails(fault) => {
            member.expect_halt(fault.down);
            member.disk.medium().sync_fails = true;
        }
        Kind::WriteFails(fault) => {
            member.expect_halt(fault.down);
            member.disk.medium().write_fails = true;
        }
        Kind::ReadFails(fault) => {
            member.expect_halt(fault.down);
            member.fail_reads(fault.reads);
        }
        Kind::DiskFull(fault) => {
            member.expect_halt(fault.down);
            member.disk.medium().full = true;
            pass(member, fault.during).await;
            member.disk.medium().full = false;
        }
        Kind::MisdirectedWrite(fault) => member.disk.medium().misdirects = Some(fault),
        Kind::BitFlip(fault) => {
            if let Some((path, at)) = member.disk.medium().flip_bit(fault.files) {
                member.rot(&path);
                trace::event(member.time.elapsed(), Mark::Fault, member.name, [at, 0, 0], || {
                    format!("a bit flips in {} at {at}", path.display())
                });
            }
        }
        _ => {}
    }
}

/// All nodes in turn, beginning with this one.
async fn roll(cluster: &Cluster, first: u32, down: Duration) {
    let count = cluster.members.len();
    for place in 0..count {
        let member = &cluster.members[(first as usize - 1 + place) % count];
        member.stop().await;
        pass(member, down).await;
        member.start();
        pass(member, down).await;
    }
}

async fn between_nodes(cluster: &Cluster, member: &Member, node: u32, kind: Kind) {
    let (network, host) = (&cluster.network, member.host);
    match kind {
        Kind::CutPeers(fault) => {
            let others = cluster.others(node, fault.other);
            cut(cluster, member, &others, fault.direction, fault.during).await;
        }
        Kind::SlowPeers(fault) => {
            let others = cluster.others(node, fault.other);
            slow(cluster, member, &others, fault.latency, fault.during).await;
        }
        Kind::ResetPeers(fault) => {
            for other in cluster.others(node, fault.other) {
                network.reset(other, host);
            }
        }
        _ => {}
    }
}

/// Nothing passes between the node and the others.
async fn cut(
    cluster: &Cluster,
    member: &Member,
    others: &[HostId],
    direction: Direction,
    during: Duration,
) {
    let (network, host) = (&cluster.network, member.host);
    let to_node = direction != Direction::FromNode;
    let from_node = direction != Direction::ToNode;
    for other in others {
        if to_node {
            network.cut(*other, host);
        }
        if from_node {
            network.cut(host, *other);
        }
    }
    pass(member, during).await;
    for other in others {
        if to_node {
            network.heal(*other, host);
        }
        if from_node {
            network.heal(host, *other);
        }
    }
}

async fn slow(
    cluster: &Cluster,
    member: &Member,
    others: &[HostId],
    latency: Duration,
    during: Duration,
) {
    let set = |extra| {
        for other in others {
            cluster.network.set_extra(*other, member.host, extra);
            cluster.network.set_extra(member.host, *other, extra);
        }
    };
    set(latency);
    pass(member, during).await;
    set(Duration::ZERO);
}

async fn on_links(cluster: &Cluster, member: &Member, kind: Kind) {
    let (network, host) = (&cluster.network, member.host);
    match kind {
        Kind::Cut(fault) => {
            let clients = cluster.client_hosts(fault.client);
            cut(cluster, member, &clients, fault.direction, fault.during).await;
        }
        Kind::SlowLink(fault) => {
            let clients = cluster.client_hosts(fault.client);
            slow(cluster, member, &clients, fault.latency, fault.during).await;
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
            pass(member, fault.during).await;
            for client in clients {
                network.reset(client, host);
                network.heal(host, client);
            }
        }
        _ => {}
    }
}

async fn pass(member: &Member, during: Duration) {
    until(&member.time, member.time.elapsed() + during).await;
}
