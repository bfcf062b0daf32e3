//! Random walks of a group coordinator: whatever comes in whatever order, no request is answered
//! twice or never, no state is impossible, and the log tells a successor what was known.

#[path = "group_random/transactions.rs"]
mod transactions;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use quorate_core::batch::Batch;
use quorate_core::group::Groups;
use quorate_core::group::interface::{
    CommitOffsets, CommittedOffset, Effect, FetchOffsets, GroupLimits, Input, Join, Joined,
    Leaving, MemberClaim, Outcome, Protocol, Refusal, Sync, TopicPartition,
};
use quorate_core::id::{LeaderEpoch, Offset, RequestId, TopicId};
use quorate_core::machine::Machine;
use quorate_core::own_log::{self, AppendId};
use quorate_core::time::{Instant, Now, Timestamp};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Added to the index of a partition whose offset is not stable.
const UNSTABLE: i32 = 100;

struct Walk {
    rng: ChaCha8Rng,
    groups: Groups,
    now: Instant,
    requests: u64,
    open: BTreeSet<RequestId>,
    log: Vec<Batch>,
    in_flight: Vec<(AppendId, Batch)>,
    /// Ids and generations that clients were told, newest last.
    told: Vec<(String, i32)>,
    /// Commits asked for, until they are answered.
    commits: BTreeMap<RequestId, (String, TopicPartition, Offset)>,
    /// What was answered as committed.
    committed: BTreeMap<(String, TopicPartition), Offset>,
}

fn limits() -> GroupLimits {
    GroupLimits {
        group_members_max: 4,
        groups_max: 3,
        group_offsets_max: 5,
        offsets_max: 8,
        waiting_max: 12,
        initial_rebalance_delay: Duration::from_secs(1),
        ..GroupLimits::default()
    }
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            groups: Groups::new(limits(), seed),
            now: Instant::ZERO,
            requests: 0,
            open: BTreeSet::new(),
            log: Vec::new(),
            in_flight: Vec::new(),
            told: vec![(String::new(), -1), ("stranger".to_owned(), 1)],
            commits: BTreeMap::new(),
            committed: BTreeMap::new(),
        }
    }

    fn now(&self) -> Now {
        let wall = i64::try_from(self.now.as_duration().as_millis()).unwrap();
        Now { monotonic: self.now, wall: Timestamp(wall) }
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.groups.step(self.now(), input, &mut effects);
        self.groups.check();
        for effect in effects {
            match effect {
                Effect::Log(own_log::Effect::Replay) => {}
                Effect::Log(own_log::Effect::Append { append, batch })
                | Effect::AppendTransactional { append, batch, .. } => {
                    self.in_flight.push((append, batch))
                }
                Effect::Reply { request, outcome } => self.on_reply(request, outcome),
            }
        }
    }

    fn on_reply(&mut self, request: RequestId, outcome: Outcome) {
        assert!(self.open.remove(&request), "{request} is answered twice: {outcome:?}");
        match outcome {
            Outcome::Joined(Joined { member, generation, .. }) => {
                self.told.push((member, generation));
            }
            Outcome::Refused(Refusal::MemberIdRequired { member }) => self.told.push((member, -1)),
            Outcome::OffsetsCommitted { partitions } if partitions[0].1.is_none() => {
                if let Some((group, partition, offset)) = self.commits.remove(&request) {
                    self.committed.insert((group, partition), offset);
                }
            }
            _ => {}
        }
    }

    fn request(&mut self) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.open.insert(request);
        request
    }

    fn group(&mut self) -> String {
        let names = ["g", "g", "g", "g", "g", "g", "h", "h", "", "i", "j"];
        (*names.choose(&mut self.rng).unwrap()).to_owned()
    }

    fn claim(&mut self) -> MemberClaim {
        let recent = self.told.len().saturating_sub(4);
        let (member, generation) = self.told[recent..].choose(&mut self.rng).unwrap().clone();
        MemberClaim { group: self.group(), member, instance: self.instance(), generation }
    }

    fn instance(&mut self) -> Option<String> {
        let names = [None, None, None, None, None, None, Some("i1"), Some("i2")];
        names.choose(&mut self.rng).unwrap().map(str::to_owned)
    }

    fn join(&mut self) -> Input {
        let claim = self.claim();
        let names: &[&str] = [&["range"][..], &["sticky", "range"], &["sticky"], &[]]
            [self.rng.random_range(0..12_usize).min(3)];
        Input::Join(Join {
            request: self.request(),
            group: claim.group,
            member: if self.rng.random_ratio(1, 3) { String::new() } else { claim.member },
            instance: claim.instance,
            client_id: "c".to_owned(),
            client_host: "h".to_owned(),
            session_timeout: Duration::from_secs(self.rng.random_range(5..12)),
            rebalance_timeout: Duration::from_secs(self.rng.random_range(0..20)),
            protocol_type: "consumer".to_owned(),
            protocols: names
                .iter()
                .map(|name| Protocol { name: (*name).to_owned(), metadata: Bytes::new() })
                .collect(),
            member_id_required: self.rng.random_ratio(1, 3),
            skip_assignment: self.rng.random_ratio(1, 3),
        })
    }

    fn commit(&mut self) -> Input {
        let member = self.claim();
        let request = self.request();
        let topic = if self.rng.random_ratio(1, 2) { "orders" } else { "payments" };
        let partition = self.rng.random_range(0..4);
        let partition = TopicPartition { topic: topic.to_owned(), partition };
        let offset = Offset(self.rng.random_range(0..100));
        let claim = (member.group.clone(), partition.clone(), offset);
        self.commits.insert(request, claim);
        let metadata = String::new();
        let topic = TopicId::NONE;
        let committed = CommittedOffset { offset, leader_epoch: LeaderEpoch(0), metadata, topic };
        Input::CommitOffsets(CommitOffsets {
            request,
            member,
            knows_epochs: true,
            offsets: vec![(partition, committed)],
        })
    }

    fn turn(&mut self) {
        let input = match self.rng.random_range(0..100) {
            0..25 => self.join(),
            25..45 => {
                let member = self.claim();
                let mut assignments = Vec::new();
                for (member, _) in &self.told {
                    assignments.push((member.clone(), Bytes::from(member.clone())));
                }
                let request = self.request();
                Input::Sync(Sync {
                    request,
                    member,
                    protocol_type: None,
                    protocol: None,
                    assignments,
                })
            }
            45..50 => Input::Heartbeat { member: self.claim(), request: self.request() },
            50..54 => {
                let MemberClaim { group, member, instance, .. } = self.claim();
                let members = vec![Leaving { member, instance }];
                Input::Leave { request: self.request(), group, members }
            }
            54..62 => self.commit(),
            62..65 => {
                let commit = self.commit();
                self.in_transaction(commit)
            }
            65..67 => {
                let group = self.group();
                Input::FetchOffsets(FetchOffsets {
                    request: self.request(),
                    group,
                    member: None,
                    partitions: None,
                    require_stable: false,
                })
            }
            67..69 => Input::Delete { group: self.group(), request: self.request() },
            69..70 => Input::Describe { group: self.group(), request: self.request() },
            70..72 => match self.open.first() {
                Some(&request) => {
                    self.open.remove(&request);
                    Input::Cancelled { request }
                }
                None => Input::Tick,
            },
            72..87 => return self.answer_log(),
            87 => return self.end_transaction(),
            88..99 => return self.wait(),
            _ => return self.succeed(),
        };
        self.step(input);
    }

    fn answer_log(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let (append, batch) = self.in_flight.remove(0);
        if self.rng.random_ratio(1, 8) {
            self.step(Input::Log(own_log::Input::AppendRefused { append }));
        } else {
            self.log.push(batch);
            self.step(Input::Log(own_log::Input::Appended { append }));
        }
    }

    fn wait(&mut self) {
        let until = self.now + Duration::from_millis(self.rng.random_range(0..4000));
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

    /// The coordinator resigns, and another takes over from the log.
    fn succeed(&mut self) {
        while !self.in_flight.is_empty() {
            self.answer_log();
        }
        let before = self.known();
        self.step(Input::Log(own_log::Input::Resigned));
        assert!(self.open.is_empty(), "nobody is left without an answer: {:?}", self.open);
        self.commits.clear();
        self.groups = Groups::new(limits(), self.rng.random());
        self.step(Input::Log(own_log::Input::Elected { leader_epoch: LeaderEpoch(1) }));
        for batch in self.log.clone() {
            self.step(Input::Log(own_log::Input::Replayed { batch }));
        }
        self.step(Input::Log(own_log::Input::ReplayEnded));
        assert_eq!(self.groups.unread_records(), 0);
        let after = self.known();
        for (group, (stable, offsets)) in &before {
            let mut known = offsets.clone();
            known.retain(|partition, _| partition.partition < UNSTABLE);
            assert_eq!(known, self.twin(group), "{group:?} by the log");
            let (restored, restored_offsets) = &after[group];
            assert_eq!(offsets, restored_offsets, "offsets of {group:?}");
            if let Some(stable) = stable {
                assert_eq!(Some(stable), restored.as_ref(), "members of {group:?}");
            }
        }
        for ((group, partition), offset) in &self.committed {
            let found = after[group].1.get(partition);
            assert!(
                found == Some(offset) || found.is_some() || self.was_deleted(group),
                "{group:?} {partition:?} was answered as committed"
            );
        }
    }

    /// Deletion is the only way in which an answered commit may be gone.
    fn was_deleted(&self, group: &str) -> bool {
        use quorate_core::batch::Records;
        use quorate_core::group::record::Entry;
        self.log.iter().filter(|batch| !batch.header().is_control()).any(|batch| {
            Records::new(batch.records(), batch.header().record_count()).any(|record| {
                let record = record.unwrap();
                let entry = Entry::decode(record.key.unwrap(), record.value).unwrap();
                matches!(&entry, Entry::Group { group: name, value: None } if name == group)
            })
        })
    }

    /// Of each group: what is stable in it, and its offsets.
    fn known(&self) -> BTreeMap<String, (Option<String>, BTreeMap<TopicPartition, Offset>)> {
        let mut known = BTreeMap::new();
        for group in ["g", "h", "", "i", "j"] {
            let request = RequestId(0);
            let (mut groups, mut effects) = (self.groups.clone(), Vec::new());
            let describe = Input::Describe { request, group: group.to_owned() };
            groups.step(self.now(), describe, &mut effects);
            for require_stable in [false, true] {
                let (group, member, partitions) = (group.to_owned(), None, None);
                let fetch = FetchOffsets { request, group, member, partitions, require_stable };
                groups.step(self.now(), Input::FetchOffsets(fetch), &mut effects);
            }
            let (mut stable, mut offsets) = (None, BTreeMap::new());
            for effect in effects {
                match effect {
                    Effect::Reply { outcome: Outcome::Described(described), .. }
                        if described.state == "Stable" =>
                    {
                        stable = Some(format!("{described:?}"));
                    }
                    Effect::Reply { outcome: Outcome::OffsetsFetched { partitions }, .. } => {
                        for (mut partition, found) in partitions {
                            let offset = match found {
                                Ok(committed) => committed.unwrap().offset,
                                Err(_) => {
                                    partition.partition += UNSTABLE;
                                    Offset(0)
                                }
                            };
                            offsets.insert(partition, offset);
                        }
                    }
                    _ => {}
                }
            }
            known.insert(group.to_owned(), (stable, offsets));
        }
        known
    }
}

#[test]
fn no_order_of_events_is_too_odd() {
    for seed in 0..300 {
        let mut walk = Walk::new(seed);
        walk.step(Input::Log(own_log::Input::Elected { leader_epoch: LeaderEpoch(0) }));
        walk.step(Input::Log(own_log::Input::ReplayEnded));
        for _ in 0..400 {
            walk.turn();
        }
        walk.succeed();
    }
    let reached = quorate_core::mark::take();
    for mark in [
        "assignment-overtaken",
        "group-append-refused",
        "join-times-out",
        "offsets-of-an-aborted-transaction",
        "rebalance-gathers",
        "session-ends",
        "static-member-returns",
        "waiting-offset-overtaken",
        "sync-times-out",
    ] {
        assert!(reached.contains_key(mark), "the walks never reach {mark}: {reached:?}");
    }
}
