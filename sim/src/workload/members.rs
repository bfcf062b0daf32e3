//! Members of consumer groups, in every world: they join, have partitions, read them, commit, and
//! die, leave, or fall silent as the plan has it. What they do and are told is recorded;
//! `check/groups` judges it.
//!
//! `classic.rs` and `consumer.rs` are two protocols with a thin client, so that nothing is hidden.
//! How a question reaches a coordinator, and how records are read, is each world's
//! (`Environment`): over a network (`clients/groups.rs`), or by a conversation with cores
//! (`cores/cluster/members.rs`).

mod classic;
mod consumer;
mod offsets;
mod protocol;
mod question;
mod roster;
mod work;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::TopicId;
use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;
use quorate_net::wire::Text;

pub(crate) use self::offsets::last as last_offsets;
pub(crate) use self::protocol::Partitions;
pub(crate) use self::question::Question;
pub use self::roster::Roster;
pub(crate) use self::work::{ROUND, Standing};
use crate::chance::Chance;
use crate::history::groups::{Claim, Committed, GroupCall, GroupEnd, GroupOperationId};
use crate::history::{History, Partition};
use crate::plan::Plan;
use crate::plan::groups::{Group, Protocol};

/// The session of the members of consumer groups, KIP-848; their nodes have it.
pub const SESSION: Duration = Duration::from_secs(2);

/// How often a member that rests looks around.
const LOOK: Duration = Duration::from_millis(100);
/// Before a member that was refused asks again.
pub(crate) const AGAIN: Duration = Duration::from_millis(30);

pub(crate) fn group_name(group: u32) -> Text {
    Text::from(format!("g{group}"))
}

/// The code of an answer; an unknown number is an unknown error.
pub(crate) fn code_of(number: i16) -> Option<Code> {
    (number != 0).then(|| Code::from_code(number).unwrap_or(Code::UnknownServerError))
}

/// What a member has around it: its world's way of asking, waiting and reading.
pub(crate) trait Environment: Send + Sync + Sized {
    type Reader: Reader;

    /// By the clients' clock, the one true time.
    fn now(&self) -> Instant;

    /// No fault strikes any more.
    fn is_healed(&self) -> bool;

    /// Members are to stop.
    fn is_over(&self) -> bool;

    /// What the client waits for, in words.
    fn note(&self, client: u32, what: String);

    fn with_history<T>(&self, tell: impl FnOnce(&mut History) -> T) -> T;

    /// All partitions of the plan's topics that there are by now.
    fn partitions(&self) -> Vec<Partition>;

    fn sleep(&self, during: Duration) -> impl Future<Output = ()> + Send;

    /// Asks the coordinator of the member's group, in a version, and waits for the answer so much
    /// longer than usual. Without one the next question finds the coordinator anew.
    fn ask<R: Question>(
        &mut self,
        who: &Claim,
        asking: (i16, Duration),
        request: &R,
    ) -> impl Future<Output = Option<R::Response>> + Send;

    /// The coordinator is elsewhere.
    fn forget_coordinator(&mut self);

    /// The ids of the plan's topics, as some node knows them; `None` without an answer.
    fn topics(
        &mut self,
        who: &Claim,
    ) -> impl Future<Output = Option<BTreeMap<u32, TopicId>>> + Send;

    fn reader(&self, chance: &mut Chance) -> Self::Reader;

    /// A life of a member of `Protocol::Library`.
    fn live_by_library(member: &mut Member<Self>) -> impl Future<Output = ()> + Send;
}

/// How a member reads the partitions that it has.
pub(crate) trait Reader: Send {
    /// It is to be read from `next` on.
    fn assign(&mut self, partition: Partition, next: i64);

    fn unassign(&mut self, partition: Partition);

    /// What there is to read next, if that comes within `most`; an error once this reader is of no
    /// use any more.
    fn poll(
        &mut self,
        most: Duration,
    ) -> impl Future<Output = Result<Option<Found>, String>> + Send;
}

/// What was read of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) partition: Partition,
    pub(crate) log_start: i64,
    /// From where on it was read.
    pub(crate) from: i64,
    /// Behind the last batch, if there is one.
    pub(crate) behind: Option<Standing>,
}

impl Found {
    pub(crate) const fn up_to(mut self, next: i64, leader_epoch: i32) -> Self {
        self.behind = Some(Standing { next, leader_epoch });
        self
    }
}

/// What becomes of a member in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Works,
    Dies,
    Leaves,
    Pauses,
}

/// How a member's life has ended, or how it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It joins again.
    Rejoin,
    /// This life is over.
    Ends,
}

/// One client that is a member of a group, over all its lives.
pub(crate) struct Member<W> {
    pub(crate) world: W,
    pub(crate) client: u32,
    pub(crate) group: u32,
    pub(crate) spec: Group,
    /// What it speaks in this life.
    pub(crate) protocol: Protocol,
    /// A static member's name.
    pub(crate) instance: Option<String>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) chance: Chance,
    lives: u32,
    /// Names commits.
    commits: u64,
    /// Who it was in its last life, and what it had read.
    before: Option<(Claim, Vec<(Partition, Committed)>)>,
}

/// Lives as a member, again and again, until the run is over.
pub(crate) async fn live<W: Environment>(
    world: W,
    plan: Arc<Plan>,
    client: u32,
    roster: Arc<Roster>,
) {
    let (group, place) = plan.membership(client).expect("a member of a group");
    let spec = plan.groups[group as usize].clone();
    let mut member = Member {
        world,
        client,
        group,
        instance: (place < spec.statics).then(|| format!("g{group}-i{place}")),
        roster,
        chance: Chance::new(plan.seed, &format!("member {client}")),
        lives: 0,
        commits: 0,
        before: None,
        protocol: spec.protocol,
        spec,
    };
    // From a stream of their own, so that a member does what it did but for that.
    let mut migrations = Chance::new(plan.seed, &format!("migration {client}"));
    while !member.is_over() {
        member.lives += 1;
        member.protocol = member.spec.protocol_of_a_life(&mut migrations);
        member.note("has not joined");
        match member.protocol {
            Protocol::Eager | Protocol::Cooperative => classic::live(&mut member).await,
            Protocol::Consumer => consumer::live(&mut member).await,
            Protocol::Library => W::live_by_library(&mut member).await,
        }
        member.roster.owns(client, Partitions::new());
        member.world.forget_coordinator();
        member.rest().await;
    }
}

/// A life as an eager member of the classic protocol.
pub(crate) async fn live_eagerly<W: Environment>(member: &mut Member<W>) {
    member.protocol = Protocol::Eager;
    classic::live(member).await;
}

impl<W: Environment> Member<W> {
    pub(crate) fn claim(&self, member: &str, generation: i32) -> Claim {
        Claim {
            group: self.group,
            client: self.client,
            by_epoch: self.protocol == Protocol::Consumer,
            member: member.to_owned(),
            instance: self.instance.clone(),
            generation,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.world.is_over()
    }

    /// What the group shares out, as far as is known.
    fn subscribed(&self) -> Partitions {
        subscribed(&self.spec, &self.world.partitions())
    }

    fn reader(&mut self) -> W::Reader {
        self.world.reader(&mut self.chance)
    }

    /// `heartbeat.interval.ms`.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.spec.session / 4
    }

    pub(crate) fn draw_fate(&mut self) -> Fate {
        if self.world.is_healed() {
            return Fate::Works;
        }
        let (crash, leave, pause) = (self.spec.crash, self.spec.leave, self.spec.pause);
        if self.chance.hit(crash) {
            Fate::Dies
        } else if self.chance.hit(leave) {
            Fate::Leaves
        } else if self.chance.hit(pause) {
            Fate::Pauses
        } else {
            Fate::Works
        }
    }

    /// Does nothing for as long as the plan has it, or until the run is healed.
    pub(crate) async fn rest(&mut self) {
        let away = self.chance.duration(self.spec.away);
        let until = self.world.now() + away;
        while self.world.now() < until && !self.world.is_healed() {
            let left = until.saturating_since(self.world.now());
            self.world.sleep(left.min(LOOK)).await;
        }
        self.world.sleep(Duration::from_millis(1)).await;
    }

    pub(crate) async fn pause(&self, during: Duration) {
        self.world.sleep(during).await;
    }

    pub(crate) fn note(&self, what: impl Into<String>) {
        self.world.note(self.client, what.into());
    }

    /// It asks for something now.
    fn invoke(&self, who: Claim, call: GroupCall) -> GroupOperationId {
        let now = self.world.now();
        self.world.with_history(|history| history.invoke_in_group(who, now, call))
    }

    /// It has its answer now.
    fn complete(&self, id: GroupOperationId, end: GroupEnd) {
        let now = self.world.now();
        self.world.with_history(|history| history.complete_in_group(id, now, end));
    }

    /// Heeds a code that says that the coordinator is elsewhere.
    fn heed(&mut self, code: Code) {
        offsets::heed(&mut self.world, code);
    }

    /// A new offset to commit, with a name of its own.
    fn named(&mut self, offset: i64, leader_epoch: i32) -> Committed {
        self.commits += 1;
        let metadata = format!("c{} {}", self.client, self.commits);
        Committed { offset, leader_epoch, metadata }
    }

    /// Commits where it stands in some partitions.
    async fn commit(&mut self, who: &Claim, positions: Vec<(Partition, Standing)>) {
        if positions.is_empty() {
            return;
        }
        let offsets: Vec<(Partition, Committed)> = positions
            .into_iter()
            .map(|(partition, at)| (partition, self.named(at.next, at.leader_epoch)))
            .collect();
        self.before = Some((who.clone(), offsets.clone()));
        let partitions: Partitions = offsets.iter().map(|(partition, _)| *partition).collect();
        let refused = offsets::commit(&mut self.world, who, offsets).await;
        if refused.is_none() && self.world.is_healed() {
            self.roster.commits(self.client, partitions.into_iter());
        }
    }

    /// What its last life had on its way to the coordinator comes after all.
    async fn haunt(&mut self) {
        let Some((who, offsets)) = self.before.take() else { return };
        if self.chance.one_in(2) {
            quorate_core::reached!("a-member-of-old-commits");
            offsets::commit(&mut self.world, &who, offsets).await;
        }
    }
}

/// What a group shares out of the partitions that there are.
pub(crate) fn subscribed(group: &Group, partitions: &[Partition]) -> Partitions {
    let all = partitions.iter().copied();
    all.filter(|partition| group.topics.contains(&partition.topic)).collect()
}
