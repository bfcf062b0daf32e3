//! Carries a plan's faults out in the world of cores. What needs bytes on a disk (a flipped bit)
//! is left to the world of nodes; a full disk is a failed write here.

use std::collections::BTreeSet;
use std::time::Duration;

use quorate_core::id::RequestId;
use quorate_core::partition::interface::Input;

use super::{Cores, Event};
use crate::chance::Chance;
use crate::check::Violation;
use crate::fault::Kind;
use crate::fault::cut::Direction;
use crate::fault::disk_full::DiskFull;
use crate::fault::power_loss::Unsynced;
use crate::fault::sync_fails::SyncFails;
use crate::fault::write_fails::WriteFails;
use crate::plan::{Link, Plan};
use crate::trace::{self, Mark};

/// How long a node may take to stop in good order.
const PATIENCE: Duration = Duration::from_secs(40);

/// A stop in good order.
pub(super) struct Closing {
    /// The partitions that are not closed yet, by their requests.
    waits_for: BTreeSet<RequestId>,
    down: Duration,
}

/// What lies between each client and the node.
pub(super) struct Links {
    model: Link,
    chance: Chance,
    clients: Vec<ClientLink>,
}

#[derive(Clone, Copy, Default)]
struct ClientLink {
    /// Nothing passes before these times.
    to_node: Duration,
    from_node: Duration,
    /// Answers sent before this time are lost.
    replies_lost: Duration,
    slow_until: Duration,
    extra: Duration,
    /// When something was sent last, and when it arrives.
    sent: Duration,
    arrives: Duration,
}

impl Links {
    pub(super) fn new(plan: &Plan) -> Self {
        // A fault may name one of the clients that only the world of nodes has.
        let clients = plan.library_clients().1.end;
        Self {
            model: plan.link.clone(),
            chance: Chance::new(plan.seed, "links"),
            clients: vec![ClientLink::default(); clients as usize],
        }
    }

    fn latency(&mut self, client: u32, now: Duration) -> Duration {
        let link = self.clients[client as usize];
        let extra = if now < link.slow_until { link.extra } else { Duration::ZERO };
        self.chance.duration(self.model.latency) + extra
    }

    /// When what a client sends now reaches the node: not before what it sent at the same time.
    pub(super) fn request_arrives(&mut self, client: u32, now: Duration) -> Duration {
        let at = self.clients[client as usize].to_node.max(now) + self.latency(client, now);
        let link = &mut self.clients[client as usize];
        let at = if link.sent == now { at.max(link.arrives) } else { at };
        (link.sent, link.arrives) = (now, at);
        at
    }

    /// When what the node sends now reaches the client; `None` for never.
    pub(super) fn reply_arrives(&mut self, client: u32, now: Duration) -> Option<Duration> {
        let link = self.clients[client as usize];
        if now < link.replies_lost {
            return None;
        }
        Some(link.from_node.max(now) + self.latency(client, now))
    }

    /// Whether a request that is under way while its connection is reset still arrives.
    pub(super) fn survives_reset(&mut self) -> bool {
        self.chance.one_in(2)
    }

    fn of(&mut self, client: Option<u32>) -> impl Iterator<Item = &mut ClientLink> {
        let wanted = client.map(|client| client as usize);
        let clients = self.clients.iter_mut().enumerate();
        clients
            .filter(move |(place, _)| wanted.is_none_or(|wanted| wanted == *place))
            .map(|(_, link)| link)
    }

    fn heal(&mut self) {
        self.clients.fill(ClientLink::default());
    }
}

impl Cores {
    fn start_again(&mut self, died: bool, down: Duration) {
        if died {
            self.start_after(down);
        }
    }

    pub(super) fn strike(&mut self, place: usize) {
        if self.healed {
            return;
        }
        let kind = self.plan.faults[place].kind.clone();
        let name = kind.name();
        trace::event(self.agenda.now, Mark::Fault, "n1", [place as u64, 0, 0], || {
            format!("{kind:?}")
        });
        *self.observed.faults.entry(name).or_default() += 1;
        crate::coverage::strikes(name);
        let now = self.agenda.now;
        match kind {
            Kind::Crash(fault) => {
                let died = self.crash();
                self.start_again(died, fault.down);
            }
            Kind::PowerLoss(fault) => {
                let died = self.lose_power(fault.unsynced);
                self.start_again(died, fault.down);
            }
            Kind::Restart(fault) => self.stop(fault.down),
            Kind::Pause(fault) => {
                self.node.paused_until = Some(now + fault.during);
                self.agenda.after(fault.during, Event::Resumes);
            }
            Kind::Cut(fault) => {
                for link in self.links.of(fault.client) {
                    if fault.direction != Direction::FromNode {
                        link.to_node = now + fault.during;
                    }
                    if fault.direction != Direction::ToNode {
                        link.from_node = now + fault.during;
                    }
                }
            }
            Kind::SlowLink(fault) => {
                for link in self.links.of(fault.client) {
                    link.slow_until = now + fault.during;
                    link.extra = fault.latency;
                }
            }
            Kind::Reset(fault) => self.break_links(fault.client, Duration::ZERO),
            Kind::LoseReplies(fault) => {
                for link in self.links.of(fault.client) {
                    link.replies_lost = now + fault.during;
                }
                self.break_links(fault.client, fault.during);
            }
            Kind::DiskSlow(fault) => {
                self.node.slow = fault.times;
                self.node.slow_until = now + fault.during;
            }
            Kind::DiskStuck(fault) => self.node.stuck_until = now + fault.during,
            Kind::SyncFails(SyncFails { down })
            | Kind::WriteFails(WriteFails { down })
            | Kind::DiskFull(DiskFull { down, .. }) => {
                self.node.sync_fails = true;
                self.actors.restart = down;
            }
            // Bytes on a disk and reading them are the other world's.
            Kind::ClockJump(fault) => self.node.wall_offset += fault.by,
            // Here are neither bytes on a disk nor other nodes.
            _ => {}
        }
    }

    /// The node is to stop in good order: each partition refuses what comes from now on, and writes
    /// down what a fast start needs.
    fn stop(&mut self, down: Duration) {
        if !self.node.is_up() || self.closing.is_some() {
            return;
        }
        let requests: Vec<RequestId> =
            self.node.places().map(|_| self.actors.next_request()).collect();
        let waits_for = requests.iter().copied().collect();
        self.closing = Some(Closing { waits_for, down });
        for (place, request) in requests.into_iter().enumerate() {
            self.node.ask(&mut self.agenda, place, Input::Close { request });
        }
        self.agenda.after(PATIENCE, Event::Patience { life: self.node.life });
    }

    /// A partition is closed; behind the last one, the process ends.
    pub(super) fn on_closed(&mut self, request: RequestId) {
        let Some(closing) = &mut self.closing else { return };
        closing.waits_for.remove(&request);
        if !closing.waits_for.is_empty() {
            return;
        }
        let down = closing.down;
        if !self.node.has_written_all() {
            let sentence = "the node has stopped and not all is written".to_owned();
            let (property, place) = ("closed-early", "n1".to_owned());
            self.node.violations.push(Violation { property, place, sentence });
        }
        self.note(Mark::Node, u64::from(self.node.life), "has stopped");
        if self.crash() {
            self.start_after(down);
        }
    }

    /// A node that does not come to an end is killed.
    pub(super) fn lose_patience(&mut self) {
        if let Some(closing) = &self.closing {
            let down = closing.down;
            if self.crash() {
                self.start_after(down);
            }
        }
    }

    fn start_after(&mut self, down: Duration) {
        let life = self.node.life;
        self.agenda.after(down, Event::Starts { life });
    }

    /// The process dies; what was being written may be there or not. `false` if it was down.
    fn crash(&mut self) -> bool {
        if !self.node.is_up() {
            return false;
        }
        let life = self.node.life;
        self.closing = None;
        self.node.die(false, |chance, at_risk| chance.below(at_risk as u64 + 1) as usize);
        self.actors.requests.clear();
        for client in 0..self.actors.count() {
            if let Some(at) = self.links.reply_arrives(client, self.agenda.now) {
                self.agenda.at(at, Event::Broken { client, life });
            }
        }
        true
    }

    pub(super) fn lose_power(&mut self, unsynced: Unsynced) -> bool {
        if !self.node.is_up() {
            return false;
        }
        self.closing = None;
        self.node.die(true, |chance, at_risk| match unsynced {
            Unsynced::Lost => at_risk,
            Unsynced::Kept => 0,
            Unsynced::Torn | Unsynced::Prefix => chance.below(at_risk as u64 + 1) as usize,
        });
        if unsynced != Unsynced::Kept {
            self.observed.struck.power_lost = true;
        }
        self.actors.requests.clear();
        true
    }

    /// The node stops by itself, because a write failed; it is started again.
    pub(super) fn on_halt(&mut self, reason: &str) {
        self.note(Mark::Node, 0, reason);
        self.crash();
        let down = self.actors.restart;
        self.start_after(down);
    }

    /// The connections of a client, or of all, break after a time.
    fn break_links(&mut self, client: Option<u32>, after: Duration) {
        let life = self.node.life;
        for other in 0..self.actors.count() {
            if client.is_none_or(|client| client == other) {
                self.agenda.after(after, Event::Broken { client: other, life });
            }
        }
    }

    /// Ends all faults, but for pauses, which end in their time: what waits for that would be
    /// overtaken by what comes next on the same connection.
    pub(super) fn heal(&mut self) {
        self.healed = true;
        self.links.heal();
        self.node.slow_until = Duration::ZERO;
        self.node.stuck_until = Duration::ZERO;
        self.node.sync_fails = false;
        self.node.wall_offset = self.plan.clock.wall_offset;
        if !self.node.is_up() {
            self.start();
        }
        self.actors.heal();
        self.note(Mark::Run, 0, "healed");
    }
}
