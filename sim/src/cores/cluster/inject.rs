//! Carries a plan's faults out on several nodes of the world of cores. What needs bytes on a disk
//! (a flipped bit) is left to the world of nodes, and noted; a full disk is a failed write here.

use std::collections::BTreeSet;
use std::time::Duration;

use quorate_core::id::PartitionId;
use quorate_core::partition::interface::Input as ForReplica;
use quorate_core::quorum::interface::Input as ForQuorum;
use quorate_core::shard::interface::Input;

use super::member::SESSION;
use super::node::Waiting;
use super::{Cluster, Event, NAMES, Roll};
use crate::fault::Kind;
use crate::fault::disk_full::DiskFull;
use crate::fault::power_loss::Unsynced;
use crate::fault::sync_fails::SyncFails;
use crate::fault::write_fails::WriteFails;
use crate::trace::{self, Mark};

/// How long a node may take to stop in good order before it is killed.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long others are given to take over what it leads.
const RETIRING: Duration = Duration::from_secs(10);
/// How long another node is given to take over the quorum's leadership.
const TRANSFERRING: Duration = Duration::from_secs(1);
/// Until a node that stopped by itself is started again, unless a fault says otherwise.
const RESTART: Duration = Duration::from_millis(300);

/// What a stop in good order does when its time for something is over.
mod stage {
    /// Goes on without those who were to take over.
    pub(super) const RETIRED: u8 = 0;
    pub(super) const TRANSFERRED: u8 = 1;
    pub(super) const CLOSED: u8 = 2;
    pub(super) const KILLED: u8 = 3;
}

/// A stop in good order.
pub(super) struct Stop {
    down: Duration,
    roll: Option<Roll>,
    /// The controller has to answer until then.
    heard_until: Duration,
    until: Duration,
    /// Leadership of the quorum is being handed over.
    is_handing_over: bool,
    /// Logs that are not closed yet.
    pub(super) closing: Option<usize>,
    /// Logs that the keeper has opened since: it goes on to the end, here as in a node, and nobody
    /// asks these to close.
    pub(super) late: BTreeSet<PartitionId>,
}

impl Cluster {
    pub(super) fn strike(&mut self, place: usize) {
        if self.healed {
            return;
        }
        let fault = self.plan.faults[place].clone();
        if fault.kind.is_operators() && !self.operators.may_begin {
            // Whoever sets a cluster up makes its topics first.
            self.agenda.after(Duration::from_millis(50), Event::Fault(place));
            return;
        }
        let (n, kind) = (fault.node as usize - 1, fault.kind);
        let numbers = [place as u64, 0, 0];
        trace::event(self.agenda.now, Mark::Fault, NAMES[n], numbers, || format!("{kind:?}"));
        *self.observed.faults.entry(kind.name()).or_default() += 1;
        crate::coverage::strikes(kind.name());
        match kind {
            Kind::Crash(fault) => self.crash_for(n, fault.down),
            Kind::PowerLoss(fault) => {
                if self.lose_power(n, fault.unsynced) {
                    self.start_after(n, fault.down);
                }
            }
            Kind::Blackout(fault) => {
                for n in 0..self.nodes.len() {
                    if self.lose_power(n, fault.unsynced) {
                        self.start_after(n, fault.down);
                    }
                }
            }
            Kind::Wipe(fault) => {
                if self.lose_power(n, Unsynced::Lost) {
                    self.nodes[n].wipe();
                    let (at_us, id) = (self.agenda.now.as_micros() as u64, self.nodes[n].id);
                    crate::spec::on_replicas(|watch| watch.vanishes(at_us, id, None));
                    self.shadow.on_wipe(n);
                    self.start_after(n, fault.down);
                }
            }
            Kind::Restart(fault) => self.stop_for(n, fault.down, None),
            Kind::RollingRestart(fault) => {
                self.stop(n, Some(Roll { first: n, done: 0, down: fault.down }));
            }
            Kind::Pause(fault) => self.pause(n, fault.during),
            Kind::ClockJump(fault) => self.nodes[n].wall_jumps += fault.by,
            Kind::DiskSlow(_)
            | Kind::DiskStuck(_)
            | Kind::SyncFails(_)
            | Kind::WriteFails(_)
            | Kind::DiskFull(_)
            | Kind::ReadFails(_) => self.on_disk(n, kind),
            Kind::Cut(_) | Kind::SlowLink(_) | Kind::Reset(_) | Kind::LoseReplies(_) => {
                self.on_links(n, kind);
            }
            Kind::CutPeers(_) | Kind::SlowPeers(_) | Kind::ResetPeers(_) => {
                self.between_nodes(n, kind);
            }
            other => {
                if !self.act(n, &other) {
                    // Here are no bytes on a disk.
                    self.note(n, Mark::Fault, 0, &format!("{} means nothing here", other.name()));
                }
            }
        }
    }

    fn on_disk(&mut self, n: usize, kind: Kind) {
        let now = self.agenda.now;
        let node = &mut self.nodes[n];
        match kind {
            Kind::DiskSlow(fault) => {
                node.disk.slow = fault.times;
                node.disk.slow_until = now + fault.during;
            }
            Kind::DiskStuck(fault) => node.disk.stuck_until = now + fault.during,
            Kind::ReadFails(fault) => node.disk.reads_fail = fault.reads,
            Kind::SyncFails(SyncFails { down })
            | Kind::WriteFails(WriteFails { down })
            | Kind::DiskFull(DiskFull { down, .. }) => {
                node.disk.sync_fails = Some(down);
            }
            _ => {}
        }
    }

    fn on_links(&mut self, n: usize, kind: Kind) {
        let now = self.agenda.now;
        match kind {
            Kind::Cut(fault) => {
                let until = now + fault.during;
                self.wires.cut_clients(fault.client, n, fault.direction, until);
            }
            Kind::SlowLink(fault) => {
                let until = now + fault.during;
                self.wires.slow_clients(fault.client, n, fault.latency, until);
            }
            Kind::Reset(fault) => self.break_links(fault.client, n, Duration::ZERO),
            Kind::LoseReplies(fault) => {
                self.wires.lose_replies(fault.client, n, now + fault.during);
                self.break_links(fault.client, n, fault.during);
            }
            _ => {}
        }
    }

    /// The connections of a client, or of all, to a node break after a time.
    fn break_links(&mut self, client: Option<u32>, n: usize, after: Duration) {
        self.wires.reset_clients(client, n, self.agenda.now + after);
        let others = self.clients.numbers().into_iter().chain(self.conversations.numbers());
        for other in others {
            if client.is_none_or(|client| client == other) {
                self.agenda.after(after, Event::Broken { client: other, n, attempt: u64::MAX });
            }
        }
    }

    /// The other nodes, or one of them.
    fn others(&self, n: usize, other: Option<u32>) -> Vec<usize> {
        let all = (0..self.nodes.len()).filter(|place| *place != n);
        all.filter(|place| other.is_none_or(|other| other as usize == place + 1)).collect()
    }

    fn between_nodes(&mut self, n: usize, kind: Kind) {
        let now = self.agenda.now;
        match kind {
            Kind::CutPeers(fault) => {
                for other in self.others(n, fault.other) {
                    self.wires.cut(n, other, fault.direction, now + fault.during);
                    // Connections may have been given up meanwhile, and are made anew.
                    self.reconnect(n, other, fault.during);
                }
            }
            Kind::SlowPeers(fault) => {
                for other in self.others(n, fault.other) {
                    self.wires.slow(n, other, fault.latency, now + fault.during);
                }
            }
            Kind::ResetPeers(fault) => {
                for other in self.others(n, fault.other) {
                    self.reconnect(n, other, Duration::ZERO);
                }
            }
            _ => {}
        }
    }

    fn reconnect(&mut self, n: usize, other: usize, after: Duration) {
        for (n, peer) in [(n, other), (other, n)] {
            let delay = after + self.wires.latency();
            let life = self.nodes[n].life;
            if self.nodes[peer].is_up() {
                self.agenda.after(delay, Event::Connected { n, life, peer });
            }
        }
    }

    fn pause(&mut self, n: usize, during: Duration) {
        if self.nodes[n].is_up() {
            let until = self.agenda.now + during;
            let before = self.nodes[n].paused_until;
            self.nodes[n].paused_until = before.max(Some(until));
            self.agenda.after(during, Event::Resumes { n });
        }
    }

    fn start_after(&mut self, n: usize, down: Duration) {
        let life = self.nodes[n].life;
        self.agenda.after(down, Event::Starts { n, life });
    }

    /// The process dies; what was being written may be there or not. `false` if it was down.
    fn crash(&mut self, n: usize) -> bool {
        let died = self.die(n, false, |chance, at_risk| chance.below(at_risk as u64 + 1) as usize);
        if died {
            self.break_links(None, n, self.plan.link.latency.low);
        }
        died
    }

    fn crash_for(&mut self, n: usize, down: Duration) {
        if self.crash(n) {
            self.start_after(n, down);
        }
    }

    pub(super) fn lose_power(&mut self, n: usize, unsynced: Unsynced) -> bool {
        let died = self.die(n, true, |chance, at_risk| match unsynced {
            Unsynced::Lost => at_risk,
            Unsynced::Kept => 0,
            Unsynced::Torn | Unsynced::Prefix => chance.below(at_risk as u64 + 1) as usize,
        });
        if died && unsynced != Unsynced::Kept {
            self.observed.struck.power_lost = true;
        }
        died
    }

    /// The node stops by itself, because a write failed; it is started again. What it had not
    /// synced may be gone: the pages count as clean after the failure.
    pub(super) fn on_halt(&mut self, n: usize, reason: &str) {
        self.note(n, Mark::Node, 0, reason);
        let Some(down) = self.nodes[n].may_halt.take() else {
            let name = self.nodes[n].name;
            self.shadow.blame("halted", name, format!("{reason}, and nothing failed it"));
            self.crash_for(n, RESTART);
            return;
        };
        if self.die(n, true, |chance, at_risk| chance.below(at_risk as u64 + 1) as usize) {
            self.nodes[n].host_is_up = true;
            self.bury(n);
            self.break_links(None, n, self.plan.link.latency.low);
            self.start_after(n, down);
        }
    }

    /// The node is to stop in good order, and the next ones after it.
    pub(super) fn stop(&mut self, n: usize, roll: Option<Roll>) {
        let Some(roll) = roll.filter(|_| !self.healed) else { return };
        if self.nodes[n].is_up() && self.nodes[n].stopping.is_none() {
            self.stop_for(n, roll.down, Some(roll));
        } else {
            self.roll_on(n, roll);
        }
    }

    fn roll_on(&mut self, n: usize, roll: Roll) {
        let roll = Roll { done: roll.done + 1, ..roll };
        if roll.done < self.nodes.len() {
            let next = (roll.first + roll.done) % self.nodes.len();
            debug_assert_ne!(next, n);
            self.agenda.after(roll.down * 2, Event::Stops { n: next, roll: Some(roll) });
        }
    }

    fn stop_for(&mut self, n: usize, down: Duration, roll: Option<Roll>) {
        let now = self.agenda.now;
        let node = &mut self.nodes[n];
        if !node.is_up() || node.stopping.is_some() {
            return;
        }
        if !node.member.is_ready {
            // A node that does not serve yet is killed.
            self.crash_for(n, down);
            return;
        }
        let (heard_until, until) = (now + SESSION * 2, now + RETIRING);
        node.stopping = Some(Stop {
            down,
            roll,
            heard_until,
            until,
            is_handing_over: false,
            closing: None,
            late: BTreeSet::new(),
        });
        node.member.wish = quorate_core::metadata::Wish::Stop;
        let life = node.life;
        self.note(n, Mark::Node, u64::from(life), "is asked to stop");
        self.beat_now(n);
        self.agenda.at(heard_until, Event::Stopping { n, life, stage: stage::RETIRED });
        self.agenda.after(PATIENCE, Event::Stopping { n, life, stage: stage::KILLED });
    }

    /// A heartbeat of a node that is stopping was answered.
    pub(super) fn on_stop_standing(&mut self, n: usize, may_stop: bool) {
        let now = self.agenda.now;
        let Some(stop) = &mut self.nodes[n].stopping else { return };
        stop.heard_until = now + SESSION * 2;
        if may_stop {
            self.hand_over(n);
        }
    }

    /// If this node leads the quorum, another one may at once.
    fn hand_over(&mut self, n: usize) {
        let Some(stop) = &mut self.nodes[n].stopping else { return };
        if std::mem::replace(&mut stop.is_handing_over, true) {
            return;
        }
        self.nodes[n].member.is_over = true;
        if self.nodes[n].leader() != Some(self.nodes[n].id) {
            self.close_logs(n);
            return;
        }
        let request = self.nodes[n].next_request(Waiting::Transfer);
        self.tell(n, Input::Quorum(ForQuorum::Transfer { request, to: None }));
        let life = self.nodes[n].life;
        let stage = stage::TRANSFERRED;
        self.agenda.after(TRANSFERRING, Event::Stopping { n, life, stage });
    }

    pub(super) fn on_stopping(&mut self, n: usize, stage: u8) {
        let now = self.agenda.now;
        let Some(stop) = &mut self.nodes[n].stopping else { return };
        match stage {
            stage::RETIRED => {
                let at = stop.heard_until.min(stop.until);
                if now < at {
                    let life = self.nodes[n].life;
                    self.agenda.at(at, Event::Stopping { n, life, stage });
                } else {
                    self.hand_over(n);
                }
            }
            stage::TRANSFERRED => self.close_logs(n),
            _ => {
                let (down, roll) = (stop.down, stop.roll);
                let late = std::mem::take(&mut stop.late);
                let in_order = stage == stage::CLOSED;
                // What is under way in late logs has been answered to nobody. A node's storage
                // completes it as it closes; here it ends as in a crash, which is worse.
                if in_order && !self.nodes[n].disk.replicas_are_quiet(&late) {
                    let wrong = "the node has stopped and not all is written".to_owned();
                    self.shadow.blame("closed-early", NAMES[n], wrong);
                }
                self.note(n, Mark::Node, u64::from(in_order), "has stopped");
                self.crash_for(n, down);
                self.nodes[n].was_clean = in_order;
                if let Some(roll) = roll {
                    self.roll_on(n, roll);
                }
            }
        }
    }

    /// Each log writes down what a fast start needs.
    pub(super) fn close_logs(&mut self, n: usize) {
        let partitions: Vec<PartitionId> = self.nodes[n].keeper.open_partitions().collect();
        let Some(stop) = self.nodes[n].stopping.as_mut().filter(|stop| stop.closing.is_none())
        else {
            return;
        };
        stop.closing = Some(partitions.len());
        for &partition in &partitions {
            self.close_log(n, partition);
        }
        if partitions.is_empty() {
            self.close_log(n, PartitionId::METADATA);
            self.nodes[n].stopping.as_mut().expect("just looked").closing = Some(0);
        }
    }

    fn close_log(&mut self, n: usize, partition: PartitionId) {
        let request = self.nodes[n].next_request(Waiting::Closing);
        self.tell(n, Input::Partition { partition, input: ForReplica::Close { request } });
    }

    /// A log is closed; behind the last one goes the metadata log, and behind that the process
    /// ends.
    pub(super) fn on_log_closed(&mut self, n: usize) {
        let life = self.nodes[n].life;
        let Some(stop) = &mut self.nodes[n].stopping else { return };
        match stop.closing {
            Some(0) | None => {
                let stage = stage::CLOSED;
                self.agenda.after(Duration::ZERO, Event::Stopping { n, life, stage });
            }
            Some(left) => {
                stop.closing = Some(left - 1);
                if left == 1 {
                    self.close_log(n, PartitionId::METADATA);
                }
            }
        }
    }

    /// Ends all faults, but for pauses, which end in their time: what waits for that would be
    /// overtaken by what comes next on the same connection.
    pub(super) fn heal(&mut self) {
        self.healed = true;
        self.wires.heal();
        for n in 0..self.nodes.len() {
            let node = &mut self.nodes[n];
            node.disk.slow_until = Duration::ZERO;
            node.disk.stuck_until = Duration::ZERO;
            node.disk.sync_fails = None;
            node.disk.reads_fail = 0;
            node.wall_jumps = 0;
            self.start(n);
        }
        for n in 0..self.nodes.len() {
            self.connect_all(n);
        }
        self.clients.heal();
        trace::event(self.agenda.now, Mark::Run, "all", [0; 3], || "healed");
    }
}
