//! Rebalance storms: a hundred members that fall silent at once cost their group one rebalance, and
//! a coordinator that was itself away for longer than every session costs it none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use quorate_core::group::Groups;
use quorate_core::group::interface::{
    Assignment, ConsumerHeartbeat, Effect, GroupLimits, Input, Join, MemberClaim, Outcome,
    Protocol, Refusal, Sync, TopicInfo, TopicsNews,
};
use quorate_core::id::{LeaderEpoch, RequestId, TopicId};
use quorate_core::machine::Machine;
use quorate_core::own_log;
use quorate_core::time::{Instant, Now, Timestamp};

const MEMBERS: usize = 100;
const SESSION: Duration = Duration::from_secs(10);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A coordinator whose log takes everything at once.
struct Stage {
    groups: Groups,
    now: Instant,
    requests: u64,
    outcomes: BTreeMap<u64, Outcome>,
}

impl Stage {
    fn new() -> Self {
        let limits = GroupLimits { consumer_session_timeout: SESSION, ..GroupLimits::default() };
        let groups = Groups::new(limits, 1);
        let mut stage = Self { groups, now: Instant::ZERO, requests: 0, outcomes: BTreeMap::new() };
        stage.step(Input::Log(own_log::Input::Elected { leader_epoch: LeaderEpoch(1) }));
        stage.step(Input::Log(own_log::Input::ReplayEnded));
        let info = TopicInfo { id: TopicId([7; 16]), partitions: 2 * MEMBERS as i32 };
        let topics = vec![("orders".to_owned(), Some(info))];
        stage.step(Input::Topics(TopicsNews { is_all: true, topics }));
        stage
    }

    fn step(&mut self, input: Input) {
        let wall = Timestamp(1_000_000 + self.now.as_duration().as_millis() as i64);
        let now = Now { monotonic: self.now, wall };
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut effects = Vec::new();
            self.groups.step(now, input, &mut effects);
            self.groups.check();
            for effect in effects {
                match effect {
                    Effect::Reply { request, outcome } => {
                        self.outcomes.insert(request.0, outcome);
                    }
                    Effect::Log(own_log::Effect::Append { append, .. })
                    | Effect::AppendTransactional { append, .. } => {
                        inputs.insert(0, Input::Log(own_log::Input::Appended { append }));
                    }
                    Effect::Log(own_log::Effect::Replay) => {}
                }
            }
        }
    }

    fn ask(&mut self, input: impl FnOnce(RequestId) -> Input) -> u64 {
        self.requests += 1;
        let request = self.requests;
        self.step(input(RequestId(request)));
        request
    }

    /// Time passes; whoever wants to be ticked meanwhile is.
    fn wait(&mut self, during: Duration) {
        let until = self.now + during;
        while let Some(deadline) = self.groups.deadline().filter(|deadline| *deadline <= until) {
            self.now = deadline.max(self.now);
            self.step(Input::Tick);
        }
        self.now = until;
    }

    /// The coordinator's own process stands still, and then goes on.
    fn pause(&mut self, during: Duration) {
        self.now = self.now + during;
        self.step(Input::Tick);
    }
}

/// The members of a classic group.
struct Classic {
    stage: Stage,
    ids: Vec<String>,
    generation: i32,
}

impl Classic {
    fn join(&mut self, member: &str) -> u64 {
        let member = member.to_owned();
        self.stage.ask(|request| {
            Input::Join(Join {
                request,
                group: "g".to_owned(),
                member,
                instance: None,
                client_id: "c".to_owned(),
                client_host: "/127.0.0.1".to_owned(),
                session_timeout: SESSION,
                rebalance_timeout: Duration::from_secs(60),
                protocol_type: "consumer".to_owned(),
                protocols: vec![Protocol { name: "range".to_owned(), metadata: Bytes::new() }],
                member_id_required: false,
                skip_assignment: false,
            })
        })
    }

    fn claim(&self, member: &str) -> MemberClaim {
        let (group, member) = ("g".to_owned(), member.to_owned());
        MemberClaim { group, member, instance: None, generation: self.generation }
    }

    /// Everybody who has joined syncs, the one that leads for all.
    fn sync(&mut self, joins: &[u64]) {
        self.ids.clear();
        for join in joins {
            let outcome = self.stage.outcomes.get(join);
            let Some(Outcome::Joined(joined)) = outcome else { panic!("{outcome:?}") };
            self.ids.push(joined.member.clone());
            self.generation = joined.generation;
        }
        let part = |id: &String| (id.clone(), Bytes::from_static(b"part"));
        let parts: Vec<(String, Bytes)> = self.ids.iter().map(part).collect();
        for id in self.ids.clone() {
            let member = self.claim(&id);
            let assignments = parts.clone();
            self.stage.ask(|request| {
                Input::Sync(Sync {
                    request,
                    member,
                    protocol_type: None,
                    protocol: None,
                    assignments,
                })
            });
        }
    }

    fn stable() -> Self {
        let mut group = Self { stage: Stage::new(), ids: Vec::new(), generation: 0 };
        let joins: Vec<u64> = (0..=MEMBERS).map(|_| group.join("")).collect();
        // A new group waits a little for more of them.
        group.stage.wait(Duration::from_secs(4));
        group.sync(&joins);
        assert_eq!((group.generation, group.ids.len()), (1, MEMBERS + 1));
        group
    }

    fn heartbeat(&mut self, place: usize) -> Outcome {
        let member = self.claim(&self.ids[place].clone());
        let asked = self.stage.ask(|request| Input::Heartbeat { request, member });
        self.stage.outcomes[&asked].clone()
    }
}

/// They were heard within one second, a few milliseconds from one another.
#[test]
fn a_hundred_classic_members_time_out_in_one_rebalance() {
    let mut group = Classic::stable();
    for place in 1..=MEMBERS {
        assert_eq!(group.heartbeat(place), Outcome::Alive);
        group.stage.wait(10 * MILLISECOND);
    }
    // The one that is left beats on.
    let mut generations = BTreeSet::from([group.generation]);
    for _ in 0..30 {
        group.stage.wait(Duration::from_secs(1));
        let told = group.heartbeat(0);
        if told == Outcome::Refused(Refusal::RebalanceInProgress) {
            let join = group.join(&group.ids[0].clone());
            group.stage.wait(Duration::from_secs(2));
            group.sync(&[join]);
            generations.insert(group.generation);
        } else {
            assert_eq!(told, Outcome::Alive);
        }
    }
    assert_eq!(generations, BTreeSet::from([1, 2]), "one rebalance");
    assert_eq!(group.ids.len(), 1);
}

/// Nobody is left: all come back, and the group does not wait for more than it misses.
#[test]
fn all_classic_members_time_out_and_are_back_in_one_generation() {
    let mut group = Classic::stable();
    group.stage.wait(2 * SESSION);
    let joins: Vec<u64> = (0..=MEMBERS)
        .map(|_| {
            group.stage.wait(MILLISECOND);
            group.join("")
        })
        .collect();
    group.sync(&joins);
    // One generation, and that in which nobody was left.
    assert_eq!((group.generation, group.ids.len()), (3, MEMBERS + 1));
    assert_eq!(group.heartbeat(MEMBERS), Outcome::Alive);
}

#[test]
fn a_coordinator_that_was_away_longer_than_every_session_moves_no_classic_member() {
    let mut group = Classic::stable();
    group.stage.pause(6 * SESSION);
    // They had been silent because it was: each has its session to be heard again.
    for place in 0..=MEMBERS {
        assert_eq!(group.heartbeat(place), Outcome::Alive);
        group.stage.wait(90 * MILLISECOND);
    }
    assert_eq!(group.generation, 1);
    // The silence that follows is theirs.
    group.stage.wait(2 * SESSION);
    assert_eq!(group.heartbeat(0), Outcome::Refused(Refusal::UnknownMember));
}

/// The members of a consumer group, KIP-848.
struct Consumers {
    stage: Stage,
    epochs: Vec<i32>,
    has: Vec<Assignment>,
}

impl Consumers {
    /// One heartbeat with all that the member has; it acts on what it is told at once.
    fn heartbeat(&mut self, place: usize) -> Result<(), Refusal> {
        let (epoch, owned) = (self.epochs[place], self.has[place].clone());
        let joins = epoch == 0;
        let asked = self.stage.ask(|request| {
            Input::ConsumerHeartbeat(ConsumerHeartbeat {
                request,
                group: "g".to_owned(),
                member: format!("m{place:03}"),
                epoch,
                rebalance_timeout: joins.then_some(Duration::from_secs(60)),
                topics: joins.then(|| vec!["orders".to_owned()]),
                owned: Some(owned),
                ..ConsumerHeartbeat::default()
            })
        });
        match self.stage.outcomes.get(&asked) {
            Some(Outcome::ConsumerAlive(alive)) => {
                self.epochs[place] = alive.epoch;
                if let Some(assignment) = &alive.assignment {
                    self.has[place] = assignment.clone();
                }
                Ok(())
            }
            Some(Outcome::Refused(refusal)) => Err(refusal.clone()),
            other => panic!("{other:?}"),
        }
    }

    /// All of them beat until nothing moves any more.
    fn stable() -> Self {
        let (epochs, has) = (vec![0; MEMBERS + 1], vec![Assignment::default(); MEMBERS + 1]);
        let mut group = Self { stage: Stage::new(), epochs, has };
        for _ in 0..10 {
            for place in 0..=MEMBERS {
                group.heartbeat(place).expect("it is a member");
            }
            group.stage.wait(Duration::from_secs(1));
        }
        let epochs: BTreeSet<i32> = group.epochs.iter().copied().collect();
        assert_eq!(epochs.len(), 1, "they have settled: {epochs:?}");
        let parts: usize = group.has.iter().map(Assignment::len).sum();
        assert_eq!(parts, 2 * MEMBERS, "every partition is somebody's");
        group
    }
}

#[test]
fn a_hundred_consumers_time_out_in_one_rebalance() {
    let mut group = Consumers::stable();
    for place in 1..=MEMBERS {
        group.heartbeat(place).expect("it is a member");
        group.stage.wait(5 * MILLISECOND);
    }
    let mut shares = BTreeSet::from([group.has[0].len()]);
    let mut changes = 0;
    for _ in 0..60 {
        group.stage.wait(Duration::from_millis(500));
        group.heartbeat(0).expect("it is a member");
        changes += i32::from(shares.insert(group.has[0].len()));
    }
    assert_eq!(group.has[0].len(), 2 * MEMBERS, "it has all of it");
    assert!(changes <= 1, "it was given more than once: {shares:?}");
}

#[test]
fn all_consumers_time_out_and_are_given_their_parts_once() {
    let mut group = Consumers::stable();
    group.stage.wait(120 * Duration::from_secs(1));
    group.epochs.fill(0);
    group.has.fill(Assignment::default());
    let mut parts = BTreeSet::new();
    for _ in 0..3 {
        for place in 0..=MEMBERS {
            group.heartbeat(place).expect("it is a member");
            group.stage.wait(MILLISECOND);
            parts.insert(group.has[place].len());
        }
    }
    assert_eq!(parts, BTreeSet::from([0, 1, 2]), "nobody had more than its part");
    assert_eq!(group.has.iter().map(Assignment::len).sum::<usize>(), 2 * MEMBERS);
}

#[test]
fn a_coordinator_that_was_away_longer_than_every_session_moves_no_consumer() {
    let mut group = Consumers::stable();
    let before = (group.epochs.clone(), group.has.clone());
    group.stage.pause(6 * SESSION);
    for place in 0..=MEMBERS {
        group.heartbeat(place).expect("it is a member still");
        group.stage.wait(90 * MILLISECOND);
    }
    assert_eq!((group.epochs.clone(), group.has.clone()), before);
    group.stage.wait(2 * SESSION);
    assert_eq!(group.heartbeat(0), Err(Refusal::UnknownMember), "the silence is theirs");
}
