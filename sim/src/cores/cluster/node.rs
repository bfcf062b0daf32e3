//! One of several nodes in the world of cores: its shard, its disk, its lives, and how what the
//! shard asks for is carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::controller::interface::Input as Command;
use quorate_core::id::{NodeId, PartitionId, RequestId};
use quorate_core::machine::Machine as _;
use quorate_core::partition::interface::{Input as ForReplica, LogOp, ReadView};
use quorate_core::quorum::interface::{
    ClusterId, DirectoryId, Index, Input as ForQuorum, Limits as QuorumLimits, Member as Voter,
    Role, Setup, Term,
};
use quorate_core::shard::Shard;
use quorate_core::shard::interface::{Effect, Input, OpenSeat, Outcome};
use quorate_core::time::{Instant, Now, Timestamp};

use super::asks::Ask;
use super::cleaner::Cleaner;
use super::clients::Client;
use super::disk::{Disk, Report};
use super::inject::Stop;
use super::keeper::Keeper;
use super::log::Done;
use super::member::Member;
use super::transactions::{Duty, Errands};
use super::{Cluster, Event, NAMES, Packet, Payload, Wanted, refine};
use crate::chance::Chance;
use crate::plan::{Clock, Plan};
use crate::spec;
use crate::trace::{self, Mark};

mod knobs;
mod recovery;

use self::knobs::Knobs;

/// Wall-clock time at the start, as in the world of nodes.
pub(super) const WALL_START: i64 = 1_767_225_600_000;

/// Who waits for an answer of the shard.
pub(super) enum Waiting {
    Client(Client),
    /// A request to the controller of this node, at this turn.
    Ask {
        ask: u64,
        turn: u64,
    },
    /// The same of another node, in its life.
    Peer {
        peer: usize,
        life: u32,
        ask: u64,
        turn: u64,
    },
    /// An operator who wants a vote given or taken.
    Vote {
        act: u64,
        turn: u64,
    },
    /// The stop of the node.
    Closing,
    Transfer,
    Duty(Duty),
}

pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) name: &'static str,
    pub(super) shard: Option<Shard>,
    /// Counts the ends of its lives.
    pub(super) life: u32,
    /// Whether the host answers that nobody listens, while the node is down.
    pub(super) host_is_up: bool,
    booted: Duration,
    clock: Clock,
    pub(super) wall_jumps: i64,
    /// How often its disk was lost.
    wipes: u8,
    pub(super) disk: Disk,
    pub(super) cleaner: Cleaner,
    /// The last life ended in good order.
    pub(super) was_clean: bool,
    armed: Option<Instant>,
    pub(super) paused_until: Option<Duration>,
    pub(super) role: Role,
    pub(super) cluster: Option<ClusterId>,
    pub(super) keeper: Keeper,
    pub(super) member: Member,
    pub(super) asks: BTreeMap<u64, Ask>,
    pub(super) errands: Errands,
    /// The number of each coordinator's last replay.
    pub(super) replays: BTreeMap<PartitionId, u64>,
    pub(super) waiting: BTreeMap<RequestId, Waiting>,
    next_request: u64,
    /// What readers see.
    pub(super) views: BTreeMap<PartitionId, ReadView>,
    /// How far the observer has followed what this life commits of the metadata and applies.
    pub(super) committed: Index,
    pub(super) applied: Index,
    /// Lives of other nodes whose processes are gone.
    pub(super) gone: BTreeMap<usize, quorate_core::id::NodeEpoch>,
    /// The node is being stopped in good order.
    pub(super) stopping: Option<Stop>,
    /// Why it must not go on.
    halted: Option<String>,
    /// A sync has failed, which excuses a halt, and until it is started again then.
    pub(super) may_halt: Option<Duration>,
    knobs: Knobs,
    seed: u64,
    founders: BTreeSet<NodeId>,
    pub(super) rack: Option<String>,
    /// Its seat in the quorum has not made a step yet.
    pub(super) is_new_member: bool,
}

impl Node {
    pub(super) fn new(plan: &Plan, n: usize) -> Self {
        let id = NodeId(n as i32 + 1);
        let racks = plan.cluster.racks;
        Self {
            id,
            name: NAMES[n],
            shard: None,
            life: 0,
            host_is_up: false,
            booted: Duration::ZERO,
            clock: clock_of(plan, n),
            wall_jumps: 0,
            wipes: 0,
            disk: Disk::new(plan, NAMES[n]),
            cleaner: Cleaner::new(plan, NAMES[n]),
            was_clean: false,
            armed: None,
            paused_until: None,
            role: Role::Following { term: Term::ZERO, leader: None },
            cluster: None,
            keeper: Keeper::default(),
            member: Member::default(),
            asks: BTreeMap::new(),
            errands: Errands::default(),
            replays: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_request: 0,
            views: BTreeMap::new(),
            committed: Index::ZERO,
            applied: Index::ZERO,
            gone: BTreeMap::new(),
            stopping: None,
            halted: None,
            may_halt: None,
            knobs: Knobs::draw(plan),
            seed: plan.seed,
            founders: (1..=plan.cluster.voters as i32).map(NodeId).collect(),
            is_new_member: true,
            rack: (racks > 1).then(|| format!("region/{}", (n as u32 + 1) % racks)),
        }
    }

    pub(super) fn quorum_limits(&self) -> &QuorumLimits {
        &self.knobs.quorum
    }

    pub(super) fn is_up(&self) -> bool {
        self.shard.is_some()
    }

    /// Whether it serves clients.
    pub(super) fn serves(&self) -> bool {
        let is_open = self.stopping.as_ref().is_none_or(|stop| stop.closing.is_none());
        self.is_up() && self.member.is_ready && is_open
    }

    /// Of its data directory, as the quorum and as the metadata name it.
    pub(super) fn directory(&self) -> [u8; 16] {
        let mut directory = [0x51; 16];
        (directory[0], directory[1]) = (self.id.0 as u8, self.wipes);
        directory
    }

    pub(super) fn voter(&self) -> Voter {
        Voter { node: self.id, directory: DirectoryId(self.directory()) }
    }

    /// Whoever leads the quorum, as this node knows.
    pub(super) fn leader(&self) -> Option<NodeId> {
        match self.role {
            Role::Leading { .. } => Some(self.id),
            Role::Following { leader, .. } => leader,
        }
    }

    pub(super) fn now(&self, at: Duration) -> Now {
        let since = at.saturating_sub(self.booted);
        let drift = i64::from(self.clock.drift) * (since.as_micros() as i64) / 1_000_000;
        let micros = since.as_micros() as i64 + drift;
        let wall = WALL_START + at.as_millis() as i64 + self.clock.wall_offset + self.wall_jumps;
        let monotonic = Instant::from_micros(micros.max(0) as u64);
        Now { monotonic, wall: Timestamp(wall) }
    }

    /// When the node's clock says `due`, or a moment later.
    fn time_of(&self, due: Instant) -> Duration {
        let micros = due.as_duration().as_micros() as i64 + 1;
        let true_micros = micros * 1_000_000 / (1_000_000 + i64::from(self.clock.drift)) + 1;
        self.booted + Duration::from_micros(true_micros.max(0) as u64)
    }

    pub(super) fn next_request(&mut self, waiting: Waiting) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.waiting.insert(request, waiting);
        request
    }

    /// What the process had in memory is gone.
    fn forget(&mut self) {
        self.life += 1;
        self.shard = None;
        self.armed = None;
        self.paused_until = None;
        self.role = Role::Following { term: Term::ZERO, leader: None };
        self.keeper = Keeper::default();
        self.member = Member::default();
        self.asks.clear();
        self.errands = Errands::default();
        self.replays.clear();
        self.waiting.clear();
        self.views.clear();
        (self.committed, self.applied) = (Index::ZERO, Index::ZERO);
        self.is_new_member = true;
        self.gone.clear();
        self.stopping = None;
        self.halted = None;
        self.may_halt = None;
    }

    pub(super) fn wipe(&mut self) {
        self.disk.wipe();
        self.cluster = None;
        self.wipes += 1;
        self.was_clean = false;
    }
}

/// The first node's clock is the plan's; the others are as wrong as that, each in its own way.
fn clock_of(plan: &Plan, n: usize) -> Clock {
    let mut clock = plan.clock.clone();
    if n > 0 {
        let mut chance = Chance::new(plan.seed, &format!("clock {}", NAMES[n]));
        let mut within = |most: i64| chance.below(2 * most.unsigned_abs() + 1) as i64 - most.abs();
        clock.wall_offset = within(clock.wall_offset);
        clock.drift = within(i64::from(clock.drift)) as i32;
    }
    clock
}

impl Cluster {
    /// Starts the node if it is down.
    pub(super) fn start(&mut self, n: usize) {
        if self.nodes[n].is_up() {
            return;
        }
        let log = self.recover(n, PartitionId::METADATA);
        let node = &mut self.nodes[n];
        let life = u64::from(node.life);
        (node.booted, node.host_is_up) = (self.agenda.now, true);
        let mut chance = Chance::new(node.seed, &format!("node {} {life}", node.name));
        node.member.incarnation = chance.number();
        node.shard = Some(Shard::new(node.id, node.knobs.limits.clone(), chance.number()));
        let recovered = node.disk.open(PartitionId::METADATA).remember();
        let recovered = match recovered {
            Ok(recovered) => recovered,
            Err(error) => panic!("the metadata log cannot be read: {error}"),
        };
        let open = OpenSeat {
            setup: Setup { me: node.voter(), founders: node.founders.clone() },
            log,
            recovered,
            limits: node.knobs.quorum.clone(),
            segment_bytes_max: node.knobs.segment_bytes_max,
        };
        self.note(n, Mark::Node, life, "starts");
        self.tell(n, Input::OpenSeat(Box::new(open)));
        self.connect_all(n);
        self.settle();
    }

    /// The node's life ends. `power`: what was not synced may be lost, and nobody hears of it;
    /// each log keeps a prefix, as `lose` draws. `false` if it was down.
    pub(super) fn die(
        &mut self,
        n: usize,
        power: bool,
        lose: impl FnMut(&mut Chance, usize) -> usize,
    ) -> bool {
        if !self.nodes[n].is_up() {
            return false;
        }
        self.compare(n);
        self.nodes[n].disk.die(power, lose);
        self.nodes[n].host_is_up = !power;
        self.nodes[n].was_clean = false;
        self.take_wrong(n);
        self.nodes[n].forget();
        if !power {
            self.bury(n);
        }
        true
    }

    pub(super) fn step(&mut self, n: usize, input: Input) {
        let now = self.nodes[n].now(self.agenda.now);
        let Some(shard) = &mut self.nodes[n].shard else { return };
        let mut effects = std::mem::take(&mut self.effects);
        let (told, is_seats) = (refine::name_of(&input), refine::is_seats(&input));
        shard.step(now, input, &mut effects);
        self.steps += 1;
        if self.check_every.is_some_and(|every| self.steps.is_multiple_of(every)) {
            shard.check_stepped();
        }
        let is_watched = spec::is_on();
        for effect in effects.drain(..) {
            if is_watched {
                self.note_effect(&effect);
            }
            self.perform(n, effect);
        }
        self.effects = effects;
        if is_watched {
            self.refine(n, told, is_seats);
        }
        if is_seats {
            self.shadow.look_at_seat(&mut self.nodes, n, self.agenda.now);
        }
        if !self.nodes[n].member.wishes.is_empty() {
            self.propose(n);
        }
        if let Some(reason) = self.nodes[n].halted.take() {
            self.on_halt(n, &reason);
            return;
        }
        self.begin_sync(n);
        self.arm(n);
    }

    fn perform(&mut self, n: usize, effect: Effect) {
        match effect {
            Effect::Write { partition, write, op, .. } => {
                self.observed.struck.began_anew |= matches!(op, LogOp::ResetTo { .. });
                self.nodes[n].disk.write(partition, write, op);
            }
            Effect::Reply { request, outcome } => self.on_reply(n, request, outcome),
            Effect::Publish { partition, view } => {
                let before = self.nodes[n].views.insert(partition, view);
                if self.check_every.is_some() {
                    self.shadow.on_publish(&self.nodes, n, partition, before, view);
                }
            }
            Effect::Committed(records) => self.news(n, false, records),
            Effect::Restored(records) => self.news(n, true, records),
            Effect::QuorumRole { role, cluster } => self.on_role(n, role, cluster),
            Effect::SendQuorum { to, message } => {
                self.send(n, place_of(to), Payload::Quorum(message));
            }
            Effect::Send { partition, to, message } => {
                self.send(n, place_of(to), Payload::Replica(partition, message));
            }
            Effect::Propose { partition, change } => {
                self.nodes[n].member.wishes.push((partition, change));
            }
            Effect::ReadLog { partition, to, from, up_to, bytes_max } => {
                let wanted = Box::new(Wanted { partition, to, from, up_to, bytes_max });
                let delay = Duration::from_micros(self.inbox.below(1000));
                let life = self.nodes[n].life;
                self.agenda.after(delay, Event::LogRead { n, life, wanted });
            }
            Effect::Halt { partition, reason } => {
                self.nodes[n].halted = Some(format!("{partition}: {reason:?}"));
            }
            Effect::Replay { partition } => self.replay(n, partition),
            Effect::SendMarker { coordinator, marker } => self.carry(n, coordinator, marker),
            Effect::Clean { partition, clean } => self.clean(n, partition, &clean),
            Effect::Discard { partition, cleaned } => self.discard(n, partition, &cleaned),
        }
    }

    fn on_reply(&mut self, n: usize, request: RequestId, outcome: Outcome) {
        let Some(waiting) = self.nodes[n].waiting.remove(&request) else { return };
        match (waiting, outcome) {
            (Waiting::Client(client), Outcome::Partition(outcome)) => {
                self.answer_client(n, client, &outcome);
            }
            (Waiting::Ask { ask, turn }, Outcome::Controller(outcome)) => {
                self.on_told(n, ask, turn, Some(outcome));
            }
            (Waiting::Peer { peer, life, ask, turn }, Outcome::Controller(outcome))
                if life == self.nodes[peer].life =>
            {
                self.send(n, peer, Payload::Told { ask, turn, outcome: Some(outcome) });
            }
            (Waiting::Vote { act, turn }, Outcome::Quorum(outcome)) => {
                self.on_voted(act, turn, &outcome);
            }
            (Waiting::Closing, _) => self.on_log_closed(n),
            (Waiting::Transfer, _) => self.close_logs(n),
            (Waiting::Duty(duty), outcome) => self.on_duty(n, duty, outcome),
            _ => {}
        }
    }

    /// Sends a message to another node. May be lost.
    pub(super) fn send(&mut self, n: usize, to: usize, payload: Payload) {
        let [first, again] = self.wires.send(self.agenda.now, n, to);
        let life = self.nodes[n].life;
        if let Some(at) = again {
            let payload = payload.clone();
            self.agenda.at(at, Event::Packet(Box::new(Packet { from: n, to, life, payload })));
        }
        if let Some(at) = first {
            self.agenda.at(at, Event::Packet(Box::new(Packet { from: n, to, life, payload })));
        }
    }

    pub(super) fn on_packet(&mut self, packet: Box<Packet>) {
        let n = packet.to;
        if let Some(until) = self.nodes[n].paused_until {
            self.agenda.at(until, Event::Packet(packet));
            return;
        }
        if !self.nodes[n].is_up() {
            return;
        }
        let Packet { from, life, payload, .. } = *packet;
        let sender = self.nodes[from].id;
        trace::event(
            self.agenda.now,
            Mark::Segment,
            NAMES[n],
            [from as u64, u64::from(life), 0],
            || payload.told_by(NAMES[from]),
        );
        match payload {
            Payload::Quorum(message) => {
                self.tell(n, Input::Quorum(ForQuorum::Received(message)));
            }
            Payload::Replica(partition, message) => {
                let input = ForReplica::Message { from: sender, message };
                self.tell(n, Input::Partition { partition, input });
            }
            // A connection ends with the process that had it.
            Payload::Ask { ask, ref input, .. }
                if matches!(input, Command::SetDuty(_))
                    && !self.nodes[from].asks.contains_key(&ask) =>
            {
                // What an operator has given up would undo what he asked for since.
            }
            Payload::Ask { .. } | Payload::Told { .. }
                if life != self.nodes[from].life && self.nodes[from].is_up() => {}
            Payload::Ask { ask, turn, input } => self.on_asked(n, from, life, ask, turn, input),
            Payload::Told { ask, turn, outcome } => self.on_told(n, ask, turn, outcome),
            // So does what goes by one epoch for all transactions: no machine could tell it from
            // another.
            Payload::Errand { errand, ref what }
                if !what.is_one_of_its_kind() && !self.nodes[from].errands.await_done(errand) => {}
            Payload::Errand { errand, what } => self.do_errand(n, from, life, errand, what),
            Payload::Done { errand, done } => self.on_errand_done(n, errand, done),
        }
    }

    pub(super) fn on_log_read(&mut self, n: usize, wanted: &Wanted) {
        let Wanted { partition, to, from, up_to, bytes_max } = *wanted;
        let disk = &mut self.nodes[n].disk;
        let fails = disk.reads_fail > 0;
        disk.reads_fail = disk.reads_fail.saturating_sub(1);
        let log = disk.log(partition).filter(|_| !fails);
        let entries = log.map(|log| log.read_for(from, up_to, bytes_max)).unwrap_or_default();
        let input = ForReplica::LogRead { to, from, entries };
        self.tell(n, Input::Partition { partition, input });
    }

    fn begin_sync(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if let Some(sync) = node.disk.begin_sync(self.agenda.now) {
            let life = node.life;
            self.agenda.at(sync.at, Event::Synced { n, life, failed: sync.failed });
        }
    }

    /// The disk works on while the process is paused, which hears of it later.
    pub(super) fn on_synced(&mut self, n: usize, life: u32, failed: Option<Duration>) {
        if life != self.nodes[n].life {
            return;
        }
        self.nodes[n].may_halt = self.nodes[n].may_halt.or(failed);
        let reports = self.nodes[n].disk.end_sync(failed.is_some());
        self.take_wrong(n);
        self.begin_sync(n);
        if self.nodes[n].paused_until.is_some() {
            self.agenda.after(Duration::ZERO, Event::Reported { n, life, reports });
        } else {
            self.on_reported(n, reports);
        }
    }

    pub(super) fn on_reported(&mut self, n: usize, reports: Vec<Report>) {
        for report in reports {
            let (partition, input) = match report {
                Report::Failed(partition, write) => (partition, ForReplica::WriteFailed { write }),
                Report::Done(partition, Done::Written(through)) => {
                    (partition, ForReplica::Written { through })
                }
                Report::Done(partition, Done::Truncated(write, recovered)) => {
                    self.shadow.on_cut(&self.nodes, n, partition);
                    (partition, ForReplica::Truncated { write, recovered })
                }
            };
            self.tell(n, Input::Partition { partition, input });
        }
    }

    pub(super) fn on_tick(&mut self, n: usize, timer: Instant) {
        let now = self.nodes[n].now(self.agenda.now).monotonic;
        let node = &mut self.nodes[n];
        if node.armed != Some(timer) {
            return;
        }
        node.armed = None;
        let due = node.shard.as_ref().and_then(Shard::deadline);
        if due.is_some_and(|due| due <= now) {
            self.step(n, Input::Tick);
        } else {
            self.arm(n);
        }
    }

    /// One timer at a time: armed anew when the deadline comes closer.
    fn arm(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let Some(due) = node.shard.as_ref().and_then(Shard::deadline) else { return };
        if node.armed.is_none_or(|armed| due < armed) {
            node.armed = Some(due);
            // Never at once: the clocks' fractions differ.
            let at = node.time_of(due).max(self.agenda.now + Duration::from_micros(1));
            let life = node.life;
            self.agenda.at(at, Event::Tick { n, life, due });
        }
    }
}

/// A node's place among the nodes.
pub(super) fn place_of(node: NodeId) -> usize {
    usize::try_from(node.0 - 1).expect("nodes count from 1")
}
