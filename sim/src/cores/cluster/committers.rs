//! Clients that commit offsets and read them back (`plan/committers.rs`), each with a group and a
//! topic of its own, in the world of cores. What they do and are told is judged by `check/offsets`.
//! No topic gives its name to another here: whose an offset is is found out by the node, not by its
//! machines.

mod member;

use std::time::Duration;

use quorate_core::controller::interface::NewTopic;
use quorate_core::group::interface::{
    CommitOffsets, CommittedOffset, FetchOffsets, Input, Outcome, TopicPartition,
};
use quorate_core::id::{LeaderEpoch, Offset, RequestId, TopicId};
use quorate_core::reached;
use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;

use self::member::Membership;
use super::conversations::{Ask, Conversation, Reply, Seeker};
use super::transactions::plain;
use crate::chance::Ratio;
use crate::history::offsets::{Event, Fate, Found, Number};
use crate::plan::Plan;
use crate::plan::committers::Committers;
use crate::workload::clients::committers::is_verdict;

/// How often it is looked whether all works.
const LOOK: Duration = Duration::from_millis(100);
/// Before a client that was refused tries again.
const AGAIN: Duration = Duration::from_millis(20);

/// One of these clients.
struct Committer {
    seeker: Seeker,
    spec: Committers,
    /// Which of them it is: names its topic and its group.
    place: u32,
    /// The group's coordinator, as far as it knows.
    coordinator: Option<usize>,
    commits: Number,
    member: Option<Membership>,
    /// Whether it is a static member when it is one.
    is_static: bool,
    /// Whether it can be said when an offset has had its time.
    is_timed: bool,
}

pub(super) fn conversation(plan: &Plan, client: u32) -> Option<Conversation> {
    let spec = plan.committers.clone()?;
    let mut seeker = Seeker::new(plan, client, "committer");
    let desk = seeker.desk();
    let is_static = seeker.chance.one_in(2);
    let committer = Committer {
        seeker,
        spec,
        place: client - plan.committing().start,
        coordinator: None,
        commits: 0,
        member: None,
        is_static,
        is_timed: plan.dates_offsets_by_one_clock(),
    };
    Some(Conversation::new(desk, Box::pin(live(committer))))
}

/// Their topics.
pub(super) fn topics(plan: &Plan) -> impl Iterator<Item = NewTopic> {
    let spec = plan.committers.as_ref();
    let count = spec.map_or(0, |spec| spec.clients);
    let partitions = spec.map_or(0, |spec| spec.partitions);
    (0..count).map(move |place| plain(plan, &format!("o{place}"), partitions))
}

async fn live(mut committer: Committer) {
    let mut has_proven = false;
    loop {
        if committer.seeker.is_healed() && !has_proven {
            committer.prove().await;
            has_proven = true;
        }
        committer.act().await;
        let pause = committer.spec.pause;
        let pause = committer.seeker.chance.duration(pause);
        committer.pause(pause).await;
    }
}

/// What a refusal is to Kafka's clients; `None` for an answer that is none.
fn refusal_of(reply: Option<&Reply>) -> Option<Code> {
    match reply? {
        Reply::Refused(code) => Some(*code),
        Reply::Group(Outcome::Refused(refusal)) => Some(Code::from(refusal)),
        _ => None,
    }
}

impl Committer {
    fn group(&self) -> String {
        format!("og{}", self.place)
    }

    fn now(&self) -> Instant {
        self.seeker.at().now().monotonic
    }

    fn tell(&self, invoked: Instant, event: Event) {
        let (now, client) = (self.now(), self.seeker.client);
        self.seeker.at().with_history(|it| it.tell_of_offsets(client, (invoked, now), event));
    }

    /// Its heartbeats go on meanwhile.
    async fn pause(&mut self, during: Duration) {
        let until = self.now() + during;
        loop {
            self.beat_if_due().await;
            let left = until.saturating_since(self.now());
            if left.is_zero() {
                return;
            }
            let next = self.member.as_ref().map_or(left, |_| left.min(self.spec.session / 5));
            self.seeker.pause(next.max(Duration::from_micros(1))).await;
        }
    }

    fn hits(&mut self, habit: Ratio) -> bool {
        self.seeker.chance.hit(habit)
    }

    async fn act(&mut self) {
        let Committers { join, vanish, rest, partitions, away, .. } = self.spec;
        if self.hits(join) {
            if self.member.is_none() {
                self.join().await;
            } else if self.hits(vanish) {
                self.vanish();
            } else {
                self.leave().await;
            }
        } else if self.hits(rest) {
            let away = self.seeker.chance.duration(away);
            let healed = self.seeker.is_healed();
            self.pause(if healed { away.min(LOOK) } else { away }).await;
        } else if self.seeker.chance.one_in(3) {
            let partition = self.seeker.chance.below(partitions.into()) as u32;
            self.commit(partition).await;
        } else if self.seeker.chance.one_in(2) {
            let _ = self.read().await;
        } else {
            self.read_anywhere().await;
        }
    }

    /// Asks the coordinator; without an answer it is looked for again.
    async fn ask(&mut self, input: Input, patience: Duration) -> Option<Reply> {
        let group = self.group();
        let n = match self.coordinator.take() {
            Some(n) => n,
            None => match self.seeker.group_coordinator(&group).await {
                Some(n) => n,
                None => {
                    self.seeker.forget();
                    return None;
                }
            },
        };
        let ask = Ask::Group { group, input: Box::new(input) };
        let reply = self.seeker.at().ask_for(n, ask, patience).await;
        if reply.is_some() {
            self.coordinator = Some(n);
        } else {
            self.seeker.forget();
        }
        reply
    }

    /// Heeds that the coordinator is elsewhere.
    fn heed(&mut self, code: Code) {
        if matches!(code, Code::NotCoordinator | Code::CoordinatorNotAvailable) {
            self.coordinator = None;
            self.seeker.forget();
        }
    }

    /// The number of the commit, if it was accepted.
    async fn commit(&mut self, partition: u32) -> Option<Number> {
        self.commits += 1;
        let number = self.commits;
        let committed = CommittedOffset {
            offset: Offset(number),
            leader_epoch: LeaderEpoch(-1),
            metadata: format!("0:{number}"),
            topic: TopicId::NONE,
        };
        let member = self.claim();
        let generation = member.generation;
        let input = Input::CommitOffsets(CommitOffsets {
            request: RequestId(0),
            member,
            knows_epochs: true,
            offsets: vec![(self.partition(partition), committed)],
        });
        let invoked = self.now();
        let reply = self.ask(input, Duration::ZERO).await;
        let code = match &reply {
            Some(Reply::Group(Outcome::OffsetsCommitted { partitions })) => {
                let refusal = partitions.iter().find_map(|(_, refusal)| refusal.as_ref());
                Some(refusal.map(Code::from))
            }
            reply => refusal_of(reply.as_ref()).map(Some),
        };
        let fate = match code {
            Some(None) => Fate::Accepted,
            Some(Some(code)) if is_verdict(code) => Fate::Refused,
            Some(Some(_)) | None => Fate::Unknown,
        };
        self.tell(invoked, Event::Commit { partition, number, by_name: false, fate });
        if let Some(Some(code)) = code {
            self.heed(code);
            self.learn(invoked, code);
        } else if fate == Fate::Accepted && generation >= 0 {
            self.heard(invoked, true);
        }
        (fate == Fate::Accepted).then_some(number)
    }

    fn partition(&self, index: u32) -> TopicPartition {
        TopicPartition { topic: format!("o{}", self.place), partition: index as i32 }
    }

    fn question(&self) -> Input {
        let partitions = (0..self.spec.partitions).map(|index| self.partition(index));
        Input::FetchOffsets(FetchOffsets {
            request: RequestId(0),
            group: self.group(),
            member: None,
            partitions: Some(partitions.collect()),
            require_stable: false,
        })
    }

    /// What is committed in the first partition, if that is told.
    async fn read(&mut self) -> Option<Option<Found>> {
        let invoked = self.now();
        let reply = self.ask(self.question(), Duration::ZERO).await;
        self.take(invoked, reply)
    }

    /// Asks any node, as one that was told of a coordinator a while ago, or just now.
    async fn read_anywhere(&mut self) {
        let n = self.seeker.any_node();
        for _ in 0..1 + self.seeker.chance.below(4) {
            let invoked = self.now();
            let ask = Ask::Group { group: self.group(), input: Box::new(self.question()) };
            let Some(reply) = self.seeker.at().ask(n, ask).await else { return };
            if self.take(invoked, Some(reply)).is_some() {
                reached!("offsets-are-read-at-a-node-that-nobody-named");
            }
            self.pause(Duration::from_millis(1)).await;
        }
    }

    /// Takes down what is told; what it is of the first partition.
    fn take(&mut self, invoked: Instant, reply: Option<Reply>) -> Option<Option<Found>> {
        let partitions = match reply {
            Some(Reply::Group(Outcome::OffsetsFetched { partitions })) => partitions,
            other => {
                if let Some(code) = refusal_of(other.as_ref()) {
                    self.heed(code);
                }
                return None;
            }
        };
        let mut first = None;
        for (name, found) in partitions {
            let partition = name.partition as u32;
            match found {
                Err(refusal) => self.heed(Code::from(&refusal)),
                Ok(committed) => match committed.as_ref().map(said).transpose() {
                    Ok(found) => {
                        self.tell(invoked, Event::Read { partition, found });
                        if partition == 0 {
                            first = Some(found);
                        }
                    }
                    Err(what) => self.tell(invoked, Event::Garbled { partition, what }),
                },
            }
        }
        first
    }

    /// Once the run is healed: a commit is accepted and read, a member that has vanished is given
    /// up, and what was committed stays as long as there is a member, and goes in its time.
    async fn prove(&mut self) {
        self.sees_a_commit().await;
        self.joins().await;
        if self.is_static {
            self.leave().await;
        } else {
            self.vanish();
        }
        // A new member, which is not heard of again.
        self.joins().await;
        self.vanish();
        self.sees_a_commit().await;
        if let Some(retention) = self.spec.retention
            && self.is_timed
        {
            self.joins().await;
            self.pause(retention + Duration::from_millis(500)).await;
            let _ = self.read().await;
            self.leave().await;
            while self.read().await != Some(None) {
                self.pause(LOOK).await;
            }
            reached!("offsets-are-forgotten-in-their-time");
        }
        self.seeker.at().prove();
    }

    /// As a member, or as nobody, which is heard only where there is no member.
    async fn sees_a_commit(&mut self) {
        loop {
            if let Some(number) = self.commit(0).await {
                let found = Found { topic: 0, number };
                if self.read().await == Some(Some(found)) {
                    return;
                }
            }
            self.pause(AGAIN).await;
        }
    }

    async fn joins(&mut self) {
        while self.member.is_none() {
            self.join().await;
            self.seeker.pause(AGAIN).await;
        }
    }
}

/// The commit that an offset tells of.
fn said(committed: &CommittedOffset) -> Result<Found, String> {
    let CommittedOffset { offset, metadata, .. } = committed;
    let said = metadata.split_once(':').and_then(|(topic, number)| {
        Some(Found { topic: topic.parse().ok()?, number: number.parse().ok()? })
    });
    let said = said.filter(|said| said.number == offset.0);
    said.ok_or_else(|| format!("{offset} with {metadata:?}"))
}
