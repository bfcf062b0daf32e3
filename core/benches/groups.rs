//! What 10,000 members in 1,000 groups cost one coordinator, in simulated time:
//! `cargo bench -p quorate-core --bench groups`.
//!
//! Members are as small as can be, and do what they are told at once; the log takes everything at
//! once, too, and is kept, so that a successor can be timed that reads all of it. Only the steps of
//! the coordinator are counted: what its node does beside them (requests, the log's disk) is not.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use quorate_core::batch::Batch;
use quorate_core::group::Groups;
use quorate_core::group::interface::{
    Assignment, ConsumerHeartbeat, Effect, GroupLimits, Input, Join, MemberClaim, Outcome,
    Protocol, Refusal, Sync, TopicInfo, TopicsNews,
};
use quorate_core::id::{LeaderEpoch, RequestId, TopicId};
use quorate_core::machine::Machine;
use quorate_core::own_log;
use quorate_core::time::{Instant, Now, Timestamp};

const GROUPS: usize = 1_000;
const MEMBERS: usize = 10;
const PARTITIONS: i32 = 40;
/// Of classic members, as those of Kafka's clients; the coordinator tells others theirs.
const HEARTBEAT: Duration = Duration::from_secs(3);
const SESSION: Duration = Duration::from_secs(45);
const MILLISECOND: Duration = Duration::from_millis(1);

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn timed<R>(work: impl FnOnce() -> R) -> (Duration, R) {
    let start = Clock::now();
    let result = work();
    (start.elapsed(), result)
}

#[expect(clippy::print_stdout, reason = "a bench reports")]
fn report(line: &str) {
    println!("{line}");
}

/// What this process has in memory, in bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = pages.split_whitespace().nth(1).expect("the second number");
    pages.parse::<u64>().expect("a number") * 4096
}

/// What a coordinator has cost.
#[derive(Clone, Copy, Default)]
struct Cost {
    steps: u64,
    busy: Duration,
    slowest: Duration,
    log_bytes: usize,
}

struct Coordinator {
    groups: Groups,
    cost: Cost,
    log: Vec<Batch>,
}

impl Coordinator {
    /// One that has read all of `log`.
    fn after(log: &[Batch], now: Instant) -> Self {
        let limits = GroupLimits { consumer_session_timeout: SESSION, ..GroupLimits::default() };
        let (groups, cost) = (Groups::new(limits, 1), Cost::default());
        let mut coordinator = Self { groups, cost, log: Vec::new() };
        let mut outcomes = Vec::new();
        let info = TopicInfo { id: TopicId([7; 16]), partitions: PARTITIONS };
        let topics = vec![("orders".to_owned(), Some(info))];
        coordinator.step(now, Input::Topics(TopicsNews { is_all: true, topics }), &mut outcomes);
        let elected = own_log::Input::Elected { leader_epoch: LeaderEpoch(1) };
        coordinator.step(now, Input::Log(elected), &mut outcomes);
        for batch in log {
            let replayed = own_log::Input::Replayed { batch: batch.clone() };
            coordinator.step(now, Input::Log(replayed), &mut outcomes);
        }
        coordinator.step(now, Input::Log(own_log::Input::ReplayEnded), &mut outcomes);
        coordinator
    }

    fn step(&mut self, at: Instant, input: Input, outcomes: &mut Vec<(RequestId, Outcome)>) {
        let wall = Timestamp(1_700_000_000_000 + at.as_duration().as_millis() as i64);
        let now = Now { monotonic: at, wall };
        let mut inputs = vec![input];
        let mut effects = Vec::new();
        while let Some(input) = inputs.pop() {
            let (took, ()) = timed(|| self.groups.step(now, input, &mut effects));
            self.cost.steps += 1;
            self.cost.busy += took;
            self.cost.slowest = self.cost.slowest.max(took);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Reply { request, outcome } => outcomes.push((request, outcome)),
                    Effect::Log(own_log::Effect::Append { append, batch })
                    | Effect::AppendTransactional { append, batch, .. } => {
                        self.cost.log_bytes += batch.len();
                        self.log.push(batch);
                        inputs.insert(0, Input::Log(own_log::Input::Appended { append }));
                    }
                    Effect::Log(own_log::Effect::Replay) => {}
                }
            }
        }
    }
}

#[derive(Clone, Default)]
struct Member {
    by_epoch: bool,
    id: String,
    /// Generation, or epoch.
    generation: i32,
    has: Assignment,
    /// It says nothing until it is called back.
    is_away: bool,
    /// Counts its lives, so that nothing of an old one goes on.
    life: u32,
}

struct Stage {
    coordinator: Coordinator,
    now: Instant,
    members: Vec<Member>,
    /// When whose next word is due.
    due: BinaryHeap<Reverse<(Instant, usize, u32)>>,
    /// Who waits for an answer.
    asked: BTreeMap<RequestId, usize>,
    requests: u64,
    outcomes: Vec<(RequestId, Outcome)>,
}

fn group_of(place: usize) -> String {
    format!("group-{:04}", place / MEMBERS)
}

impl Stage {
    fn new(by_epoch: bool) -> Self {
        let member = Member { by_epoch, ..Member::default() };
        Self {
            coordinator: Coordinator::after(&[], Instant::ZERO),
            now: Instant::ZERO,
            members: vec![member; GROUPS * MEMBERS],
            due: BinaryHeap::new(),
            asked: BTreeMap::new(),
            requests: 0,
            outcomes: Vec::new(),
        }
    }

    fn ask(&mut self, place: usize, input: impl FnOnce(RequestId) -> Input) {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.asked.insert(request, place);
        self.coordinator.step(self.now, input(request), &mut self.outcomes);
        self.hear();
    }

    fn hear(&mut self) {
        while let Some((request, outcome)) = self.outcomes.pop() {
            let place = self.asked.remove(&request).expect("somebody asked");
            if !self.members[place].is_away {
                self.answered(place, outcome);
            }
        }
    }

    fn speak_in(&mut self, place: usize, wait: Duration) {
        self.due.push(Reverse((self.now + wait, place, self.members[place].life)));
    }

    fn answered(&mut self, place: usize, outcome: Outcome) {
        let member = &mut self.members[place];
        match outcome {
            Outcome::ConsumerAlive(alive) => {
                member.generation = alive.epoch;
                let told = alive.assignment.filter(|told| *told != member.has);
                let wait = if told.is_some() { MILLISECOND } else { alive.interval };
                member.has = told.unwrap_or_else(|| member.has.clone());
                self.speak_in(place, wait);
            }
            Outcome::Joined(joined) => {
                (member.id, member.generation) = (joined.member.clone(), joined.generation);
                let part = Bytes::from_static(&[0; 64]);
                let assignments =
                    joined.members.iter().map(|it| (it.member.clone(), part.clone())).collect();
                let member = self.claim(place);
                self.ask(place, |request| {
                    let (protocol_type, protocol) = (None, None);
                    Input::Sync(Sync { request, member, protocol_type, protocol, assignments })
                });
            }
            Outcome::Synced { .. } | Outcome::Alive => self.speak_in(place, HEARTBEAT),
            Outcome::Refused(refusal) => self.refused(place, refusal),
            other => panic!("{other:?}"),
        }
    }

    fn refused(&mut self, place: usize, refusal: Refusal) {
        let member = &mut self.members[place];
        match refusal {
            Refusal::MemberIdRequired { member: id } => member.id = id,
            Refusal::RebalanceInProgress => {}
            Refusal::UnknownMember | Refusal::FencedMemberEpoch if member.by_epoch => {
                (member.generation, member.has) = (0, Assignment::default());
                return self.speak_in(place, MILLISECOND);
            }
            Refusal::UnknownMember => member.id.clear(),
            other => panic!("{other:?}"),
        }
        self.join(place);
    }

    fn claim(&self, place: usize) -> MemberClaim {
        let Member { id, generation, .. } = &self.members[place];
        let (group, member) = (group_of(place), id.clone());
        MemberClaim { group, member, instance: None, generation: *generation }
    }

    fn join(&mut self, place: usize) {
        let (group, member) = (group_of(place), self.members[place].id.clone());
        let metadata = Bytes::from_static(&[0; 64]);
        self.ask(place, |request| {
            Input::Join(Join {
                request,
                group,
                member,
                instance: None,
                client_id: "consumer-1".to_owned(),
                client_host: "/127.0.0.1".to_owned(),
                session_timeout: SESSION,
                rebalance_timeout: Duration::from_secs(60),
                protocol_type: "consumer".to_owned(),
                protocols: vec![Protocol { name: "range".to_owned(), metadata }],
                member_id_required: true,
                skip_assignment: true,
            })
        });
    }

    fn speak(&mut self, place: usize) {
        let it = &self.members[place];
        let (joins, has) = (it.generation == 0, it.has.clone());
        if it.by_epoch {
            let beat = ConsumerHeartbeat {
                group: group_of(place),
                member: format!("member-{place:05}-{}", it.life),
                epoch: it.generation,
                client_id: "consumer-1".to_owned(),
                client_host: "/127.0.0.1".to_owned(),
                rebalance_timeout: joins.then_some(Duration::from_secs(60)),
                topics: joins.then(|| vec!["orders".to_owned()]),
                owned: Some(has),
                ..ConsumerHeartbeat::default()
            };
            self.ask(place, |request| {
                Input::ConsumerHeartbeat(ConsumerHeartbeat { request, ..beat })
            });
        } else if it.id.is_empty() {
            self.join(place);
        } else {
            let member = self.claim(place);
            self.ask(place, |request| Input::Heartbeat { request, member });
        }
    }

    /// Whoever is away comes, one after the other within `during`.
    fn come(&mut self, during: Duration) {
        let every = during / (GROUPS * MEMBERS) as u32;
        for place in 0..self.members.len() {
            let life = self.members[place].life + 1;
            let by_epoch = self.members[place].by_epoch;
            self.members[place] = Member { by_epoch, life, ..Member::default() };
            // Members of a group are not neighbours in time.
            let turn = (place % MEMBERS) * GROUPS + place / MEMBERS;
            self.speak_in(place, every * turn as u32);
        }
    }

    /// What `during` costs.
    fn live(&mut self, during: Duration) -> Cost {
        self.coordinator.cost = Cost::default();
        let until = self.now + during;
        loop {
            let tick = self.coordinator.groups.deadline();
            let due = self.due.peek().map(|Reverse((at, ..))| *at);
            let Some(next) = tick.into_iter().chain(due).min().filter(|at| *at <= until) else {
                self.now = until;
                return self.coordinator.cost;
            };
            self.now = self.now.max(next);
            if due == Some(next) {
                let Reverse((_, place, life)) = self.due.pop().expect("it was seen");
                let member = &self.members[place];
                if !member.is_away && member.life == life {
                    self.speak(place);
                }
            } else {
                self.coordinator.step(self.now, Input::Tick, &mut self.outcomes);
                self.hear();
            }
        }
    }

    fn leave(&mut self, place: usize) {
        self.members[place].is_away = true;
    }
}

fn phase(name: &str, during: Duration, cost: Cost) {
    let Cost { steps, busy, slowest, log_bytes } = cost;
    let share = 100.0 * busy.as_secs_f64() / during.as_secs_f64();
    report(&format!(
        "  {name:34} {:>6.0} s  {steps:>8} steps  {:>8.1} ms  {share:>6.3} % of a core  slowest \
         step {:>6.2} ms  log {:>7} KiB",
        during.as_secs_f64(),
        busy.as_secs_f64() * 1e3,
        slowest.as_secs_f64() * 1e3,
        log_bytes / 1024,
    ));
}

fn run(by_epoch: bool) {
    let name = if by_epoch { "KIP-848" } else { "classic" };
    report(&format!("{name}: {GROUPS} groups of {MEMBERS} members, {PARTITIONS} partitions each"));
    let seconds = Duration::from_secs;
    let mut stage = Stage::new(by_epoch);
    stage.come(seconds(10));
    let mut measure = |name: &str, during: u64, act: &dyn Fn(&mut Stage)| {
        act(&mut stage);
        let cost = stage.live(seconds(during));
        phase(name, seconds(during), cost);
    };
    measure("all join within 10 s", 30, &|_| {});
    measure("nothing happens", 60, &|_| {});
    measure("one in each group falls silent", 60, &|stage| {
        (0..GROUPS).for_each(|group| stage.leave(group * MEMBERS));
    });
    measure("all fall silent", 120, &|stage| {
        (0..GROUPS * MEMBERS).for_each(|place| stage.leave(place));
    });
    measure("all are back at once", 30, &|stage| stage.come(MILLISECOND));
    successor(&stage);
}

fn successor(stage: &Stage) {
    let log = &stage.coordinator.log;
    let bytes: usize = log.iter().map(|batch| batch.len()).sum();
    let before = resident();
    let (took, coordinator) = timed(|| Coordinator::after(log, stage.now));
    let memory = resident().saturating_sub(before);
    report(&format!(
        "  a successor reads {} batches, {} KiB, in {:.1} ms; {} KiB in memory, {} bytes a member",
        log.len(),
        bytes / 1024,
        took.as_secs_f64() * 1e3,
        memory / 1024,
        memory / (GROUPS * MEMBERS) as u64,
    ));
    assert!(coordinator.groups.deadline().is_some(), "it has members whose sessions may end");
}

fn main() {
    for by_epoch in [false, true] {
        run(by_epoch);
    }
}
