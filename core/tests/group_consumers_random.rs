//! Random walks of a consumer group, KIP-848, with its members: requests and answers are lost,
//! members fall silent, come and go, topics change, the log refuses, the coordinator moves. Over
//! all time a partition has one owner in one epoch, nobody's late commit is taken, and a successor
//! knows what was known. Some speak the classic protocol, so that the group changes its kind under
//! its members. Once all is well, everybody has its part and nothing is left over.

#[path = "group_consumers_random/classic.rs"]
mod classic;
#[path = "group_scripts/embedded.rs"]
mod embedded;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::batch::{Batch, Records};
use quorate_core::group::Groups;
use quorate_core::group::interface::{
    Assignment, CommitOffsets, CommittedOffset, ConsumerAlive, ConsumerDescribed,
    ConsumerHeartbeat, Effect, GroupLimits, Input, MemberClaim, Outcome, Refusal, TopicInfo,
    TopicPartition, TopicsNews,
};
use quorate_core::group::record::{ConsumerEntry, Entry};
use quorate_core::id::{LeaderEpoch, Offset, RequestId, TopicId};
use quorate_core::machine::Machine;
use quorate_core::own_log::{self, AppendId};
use quorate_core::time::{Instant, Now, Timestamp};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CLIENTS: usize = 4;

#[derive(Clone, Default)]
struct Client {
    member: String,
    instance: Option<String>,
    epoch: i32,
    /// What it works on, and what it was told to: it takes its time.
    has: Assignment,
    told: Assignment,
    /// It must say everything anew: an answer was lost, or it is new.
    is_unsure: bool,
    /// It subscribes to the second topic too, or by pattern.
    wishes: u8,
    beat_at: Instant,
    /// Where it speaks the classic protocol.
    classic: Option<classic::Classic>,
}

struct Walk {
    rng: ChaCha8Rng,
    groups: Groups,
    now: Instant,
    requests: u64,
    clients: Vec<Client>,
    /// Whose request it was, and under which id; who is not here does not wait any more.
    asked: BTreeMap<RequestId, (usize, String)>,
    topics: BTreeMap<String, TopicInfo>,
    log: Vec<Batch>,
    in_flight: Vec<(AppendId, Batch)>,
    /// Who was ever told to have a partition in an epoch. A static member is its instance.
    owners: BTreeMap<(TopicId, i32, i32), String>,
    born: u64,
    losses: bool,
    /// For so many turns nobody of the new protocol is there.
    classic_only: u32,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let topic = |id| TopicInfo { id: TopicId([id; 16]), partitions: 3 };
        let mut walk = Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            groups: Groups::new(GroupLimits::default(), seed),
            now: Instant::ZERO,
            requests: 0,
            clients: vec![Client::default(); CLIENTS],
            asked: BTreeMap::new(),
            topics: [("a".to_owned(), topic(1)), ("b".to_owned(), topic(2))].into(),
            log: Vec::new(),
            in_flight: Vec::new(),
            owners: BTreeMap::new(),
            born: 0,
            losses: true,
            classic_only: 0,
        };
        (0..CLIENTS).for_each(|client| walk.rebirth(client));
        walk.elect();
        walk
    }

    fn elect(&mut self) {
        self.step(Input::Log(own_log::Input::Elected { leader_epoch: LeaderEpoch(1) }));
        for batch in self.log.clone() {
            self.step(Input::Log(own_log::Input::Replayed { batch }));
        }
        self.step(Input::Log(own_log::Input::ReplayEnded));
        assert_eq!(self.groups.unread_records(), 0);
        let all = self.topics.iter().map(|(name, topic)| (name.clone(), Some(*topic)));
        let news = TopicsNews { is_all: true, topics: all.collect() };
        self.step(Input::Topics(news));
    }

    /// The process behind it is another one now.
    fn rebirth(&mut self, client: usize) {
        self.born += 1;
        let is_static = client == 0;
        self.clients[client] = Client {
            member: format!("m{}", self.born),
            instance: is_static.then(|| "i".to_owned()),
            is_unsure: true,
            wishes: self.rng.random_range(0..3),
            ..Client::default()
        };
        if client >= 2 && self.rng.random_ratio(1, 2) {
            let is_eager = self.rng.random_ratio(1, 2);
            let state = &mut self.clients[client];
            state.member.clear();
            state.classic = Some(classic::Classic::new(is_eager));
        }
    }

    fn step(&mut self, input: Input) {
        let wall = i64::try_from(self.now.as_duration().as_millis()).unwrap();
        let now = Now { monotonic: self.now, wall: Timestamp(wall) };
        let mut effects = Vec::new();
        self.groups.step(now, input, &mut effects);
        self.groups.check();
        for effect in effects {
            match effect {
                Effect::Log(own_log::Effect::Replay) => {}
                Effect::Log(own_log::Effect::Append { append, batch })
                | Effect::AppendTransactional { append, batch, .. } => {
                    self.in_flight.push((append, batch));
                }
                Effect::Reply { request, outcome } => self.on_reply(request, outcome),
            }
        }
    }

    fn on_reply(&mut self, request: RequestId, outcome: Outcome) {
        let Some((client, member)) = self.asked.remove(&request) else { return };
        if self.clients[client].classic.is_some() {
            return self.on_classic_reply(client, &member, outcome);
        }
        let identity = self.clients[client].instance.clone().unwrap_or_else(|| member.clone());
        if let Outcome::ConsumerAlive(ConsumerAlive { epoch, assignment: Some(told), .. }) =
            &outcome
        {
            self.note(told, *epoch, &identity);
        }
        let is_lost = self.losses && self.rng.random_ratio(1, 10);
        let state = &mut self.clients[client];
        if state.member != member {
            return;
        }
        if is_lost {
            state.is_unsure = true;
            return;
        }
        match outcome {
            Outcome::ConsumerAlive(alive) if alive.epoch >= 0 => {
                state.epoch = alive.epoch;
                state.is_unsure = false;
                state.told = alive.assignment.unwrap_or_else(|| state.told.clone());
                state.beat_at = self.now + alive.interval;
                // What it has, it has in this epoch: its commits would be taken.
                let has = state.has.clone();
                self.note(&has, alive.epoch, &identity);
            }
            Outcome::Refused(
                Refusal::UnknownMember | Refusal::FencedMemberEpoch | Refusal::FencedInstance,
            ) => {
                (state.epoch, state.is_unsure) = (0, true);
                (state.has, state.told) = (Assignment::default(), Assignment::default());
            }
            Outcome::Refused(_) => state.is_unsure = true,
            _ => {}
        }
    }

    fn note(&mut self, assignment: &Assignment, epoch: i32, identity: &str) {
        for (topic, partition) in assignment.iter() {
            let place = (topic, partition, epoch);
            let owner = self.owners.entry(place).or_insert_with(|| identity.to_owned());
            assert_eq!(*owner, identity, "{place:?} has two owners");
        }
    }

    fn ask(&mut self, client: usize) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.asked.insert(request, (client, self.clients[client].member.clone()));
        request
    }

    fn beat(&mut self, client: usize) {
        if self.clients[client].classic.is_some() {
            return self.classic_turn(client);
        }
        if self.losses && self.classic_only > 0 {
            return;
        }
        // One heartbeat at a time: who asks again has given up the answer to the last.
        let asked = self.asked.len();
        self.asked.retain(|_, (other, _)| *other != client);
        let gave_up = self.asked.len() < asked;
        let acts = !self.losses || self.rng.random_ratio(1, 2);
        let state = &mut self.clients[client];
        state.is_unsure |= gave_up;
        if acts {
            state.has = state.told.clone();
        }
        let request = self.ask(client);
        let state = self.clients[client].clone();
        let is_full = state.is_unsure || state.epoch == 0;
        let names = match state.wishes {
            0 => vec!["a".to_owned()],
            1 => vec!["a".to_owned(), "b".to_owned()],
            _ => Vec::new(),
        };
        let says_all = is_full || self.rng.random_ratio(1, 2);
        self.step(Input::ConsumerHeartbeat(ConsumerHeartbeat {
            request,
            group: "g".to_owned(),
            member: state.member,
            epoch: state.epoch,
            instance: state.instance,
            rebalance_timeout: is_full.then_some(Duration::from_secs(20)),
            topics: is_full.then_some(names),
            regex: is_full.then(|| if state.wishes == 2 { ".*" } else { "" }.to_owned()),
            owned: if state.epoch == 0 {
                Some(Assignment::default())
            } else {
                says_all.then_some(state.has)
            },
            ..ConsumerHeartbeat::default()
        }));
    }

    fn leave(&mut self, client: usize, epoch: i32) {
        if self.clients[client].classic.is_some() {
            self.classic_leave(client);
            return self.rebirth(client);
        }
        let request = self.ask(client);
        let Client { member, instance, .. } = self.clients[client].clone();
        self.step(Input::ConsumerHeartbeat(ConsumerHeartbeat {
            request,
            group: "g".to_owned(),
            member,
            epoch,
            instance,
            ..ConsumerHeartbeat::default()
        }));
        self.rebirth(client);
    }

    /// Whoever works on a partition commits; it is taken only while nobody else was ever told to
    /// have the partition in a later epoch.
    fn commit(&mut self, client: usize) {
        let state = self.clients[client].clone();
        let Some((topic, partition)) = state.has.iter().next() else { return };
        let request = self.ask(client);
        let member = MemberClaim {
            group: "g".to_owned(),
            member: state.member.clone(),
            instance: None,
            generation: state.epoch,
        };
        let name = if topic == TopicId([1; 16]) { "a" } else { "b" };
        let place = TopicPartition { topic: name.to_owned(), partition };
        let metadata = String::new();
        let committed =
            CommittedOffset { offset: Offset(1), leader_epoch: LeaderEpoch(0), metadata, topic };
        let before = self.in_flight.len();
        let offsets = vec![(place, committed)];
        self.step(Input::CommitOffsets(CommitOffsets {
            request,
            member,
            knows_epochs: true,
            offsets,
        }));
        if self.in_flight.len() > before {
            let later = (topic, partition, state.epoch + 1)..=(topic, partition, i32::MAX);
            let identity = state.instance.unwrap_or(state.member);
            let other = self.owners.range(later).find(|(_, owner)| **owner != identity);
            assert_eq!(other, None, "a late commit of {identity} is taken");
        }
    }

    fn change_topics(&mut self) {
        let topic = self.topics.get_mut("b").unwrap();
        topic.partitions = self.rng.random_range(1..6).max(topic.partitions);
        let topics = vec![("b".to_owned(), Some(*topic))];
        self.step(Input::Topics(TopicsNews { is_all: false, topics }));
    }

    fn turn(&mut self) {
        self.classic_only = self.classic_only.saturating_sub(1);
        let client = self.rng.random_range(0..CLIENTS);
        match self.rng.random_range(0..100) {
            0 if self.rng.random_ratio(1, 3) => self.leave_to_classics(),
            0..45 => self.beat(client),
            45..50 => self.commit(client),
            50..52 => self.leave(client, -1),
            52..54 if client == 0 => self.leave(client, -2),
            54..55 => self.rebirth(client),
            55..56 => {
                self.clients[client].wishes = self.rng.random_range(0..3);
                self.join_again(client);
            }
            56..57 => self.change_topics(),
            57..58 => {
                let first = self.asked.first_key_value().map(|(request, _)| *request);
                if let Some(request) = first {
                    let (client, _) = self.asked.remove(&request).unwrap();
                    self.clients[client].is_unsure = true;
                    self.join_again(client);
                    self.step(Input::Cancelled { request });
                }
            }
            58..80 => self.answer_log(),
            80..99 => {
                let millis = self.rng.random_range(0..3000);
                self.wait(Duration::from_millis(millis));
            }
            _ => self.succeed(),
        }
    }

    /// All of the new protocol leave, and stay away for a while.
    fn leave_to_classics(&mut self) {
        self.classic_only = 80;
        for client in 0..CLIENTS {
            if self.clients[client].classic.is_none() {
                self.leave(client, -1);
            }
        }
    }

    fn answer_log(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let (append, batch) = self.in_flight.remove(0);
        if self.losses && self.rng.random_ratio(1, 8) {
            return self.step(Input::Log(own_log::Input::AppendRefused { append }));
        }
        let records = Records::new(batch.records(), batch.header().record_count());
        let (mut forgets, mut goes_on) = (false, false);
        for record in records.map(Result::unwrap) {
            let entry = Entry::decode(record.key.unwrap(), record.value).unwrap();
            forgets |= matches!(entry, Entry::Consumer { entry: ConsumerEntry::Epoch(None), .. });
            goes_on |= matches!(entry, Entry::Group { value: Some(_), .. });
        }
        if forgets && !goes_on {
            // The epochs of a group that is forgotten begin anew.
            self.owners.clear();
        }
        self.log.push(batch);
        self.step(Input::Log(own_log::Input::Appended { append }));
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(deadline) = self.groups.deadline()
            && deadline <= until
        {
            self.now = self.now.max(deadline);
            self.step(Input::Tick);
            let after = self.groups.deadline();
            assert!(after.is_none_or(|after| after > self.now), "the driver would spin");
        }
        self.now = until;
    }

    fn succeed(&mut self) {
        // What is in flight may yet be committed, or not.
        while !self.in_flight.is_empty() && self.rng.random_ratio(1, 2) {
            self.answer_log();
        }
        self.step(Input::Log(own_log::Input::Resigned));
        assert!(self.asked.is_empty(), "nobody is left without an answer");
        self.in_flight.clear();
        self.groups = Groups::new(GroupLimits::default(), self.rng.random());
        self.elect();
    }

    fn described(&mut self) -> Option<ConsumerDescribed> {
        let request = RequestId(0);
        let mut effects = Vec::new();
        let now = Now { monotonic: self.now, wall: Timestamp(0) };
        let describe = Input::DescribeConsumer { request, group: "g".to_owned() };
        self.groups.clone().step(now, describe, &mut effects);
        effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { outcome: Outcome::ConsumerDescribed(described), .. } => Some(described),
            _ => None,
        })
    }

    /// No more faults: everybody beats when it was told to.
    fn settle(&mut self) {
        self.losses = false;
        for _ in 0..1200 {
            while !self.in_flight.is_empty() {
                self.answer_log();
            }
            for client in 0..CLIENTS {
                let state = &self.clients[client];
                let joins = state.classic.as_ref().is_some_and(classic::Classic::is_joining);
                if state.is_unsure || joins || state.beat_at <= self.now {
                    self.beat(client);
                }
            }
            while !self.in_flight.is_empty() {
                self.answer_log();
            }
            self.wait(Duration::from_millis(100));
        }
        let described = self.described().expect("there is a group");
        assert_eq!(described.state, "Stable", "{described:?}");
        assert_eq!(described.members.len(), CLIENTS, "{described:?}");
        let mut owned = BTreeSet::new();
        for client in &self.clients {
            assert_eq!(client.epoch, described.epoch, "{described:?}");
            assert!(client.has.iter().all(|place| owned.insert(place)), "two have one");
        }
        let wished = |topic: &str| self.clients.iter().any(|it| topic == "a" || it.wishes > 0);
        for (name, topic) in self.topics.iter().filter(|(name, _)| wished(name)) {
            let all = (0..topic.partitions).all(|at| owned.contains(&(topic.id, at)));
            assert!(all, "nobody has some of {name}");
        }
        // All is written: a successor knows just that.
        self.step(Input::Log(own_log::Input::Resigned));
        self.groups = Groups::new(GroupLimits::default(), 1);
        self.elect();
        assert_eq!(self.described(), Some(described), "rebuilt from the log");
    }
}

/// How a life ends is an assertion.
fn live(seed: u64) {
    let mut walk = Walk::new(seed);
    for _ in 0..600 {
        walk.turn();
    }
    walk.settle();
}

#[test]
fn a_partition_has_one_owner_in_an_epoch_whatever_happens() {
    (0..60).for_each(live);
    let marks = quorate_core::mark::take();
    for mark in [
        "classic-group-is-upgraded",
        "consumer-group-is-downgraded",
        "classic-member-is-called-to-join",
        "consumer-append-refused",
    ] {
        assert!(marks.contains_key(mark), "no life has shown {mark}");
    }
}

/// `RUSTFLAGS='--cfg mutants' cargo test -p quorate-core --test group_consumers_random`.
#[cfg(mutants)]
#[test]
fn every_planted_bug_ends_a_life() {
    for slug in [
        "group-answer-before-log",
        "owner-twice-in-one-epoch",
        "partial-heartbeat-reply",
        "partition-epoch-lost",
    ] {
        quorate_core::mutant::choose(Some(slug));
        let survives = |seed| std::panic::catch_unwind(|| live(seed)).is_ok();
        let caught = (0..60).find(|seed| !survives(*seed));
        quorate_core::mutant::choose(None);
        assert!(caught.is_some(), "nobody notices {slug}");
    }
}
