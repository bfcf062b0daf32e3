//! Members of consumer groups: they join, have partitions, read them, commit, and die, leave, or
//! fall silent as the plan has it. What they do and are told is recorded; `check/groups` judges it.
//!
//! `classic.rs` and `consumer.rs` are two protocols with a thin client, so that nothing is hidden;
//! `library.rs` is our own.

mod classic;
mod consumer;
mod coordinator;
mod library;
mod protocol;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate_net::wire::Text;

use self::coordinator::Coordinator;
pub(super) use self::coordinator::code_of;
use self::protocol::Partitions;
use self::work::Standing;
use super::Scene;
use crate::chance::Chance;
use crate::history::Partition;
use crate::history::groups::{Claim, Committed};
use crate::plan::Acks;
use crate::plan::groups::{Group, Protocol};

/// The session of the members of consumer groups, KIP-848; their nodes have it.
pub const SESSION: Duration = Duration::from_secs(2);

/// How often it is looked whether groups have settled.
const LOOK: Duration = Duration::from_millis(100);
/// Before a member that was refused asks again.
const AGAIN: Duration = Duration::from_millis(30);

fn group_name(group: u32) -> Text {
    Text::from(format!("g{group}"))
}

/// Who has which partitions, as the members themselves believe, and what was committed since the
/// healing.
#[derive(Debug, Default)]
pub struct Roster(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    owned: BTreeMap<u32, Partitions>,
    committed: BTreeSet<(u32, Partition)>,
}

impl Roster {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("one thread")
    }

    fn owns(&self, client: u32, partitions: Partitions) {
        self.entries().owned.insert(client, partitions);
    }

    fn commits(&self, group: u32, partitions: impl Iterator<Item = Partition>) {
        self.entries().committed.extend(partitions.map(|partition| (group, partition)));
    }
}

/// Waits, once the run is healed, until every partition of every group is exactly one member's, and
/// that one's commits are taken.
pub async fn settle(scene: &Scene, roster: &Roster, client: u32) {
    loop {
        scene.clock.sleep(LOOK).await;
        if !scene.stage.is_healed() {
            continue;
        }
        match unsettled(scene, roster) {
            None => break,
            Some(reason) => scene.stage.note(client, reason),
        }
    }
    scene.stage.done(client);
}

fn unsettled(scene: &Scene, roster: &Roster) -> Option<String> {
    let entries = roster.entries();
    // Without answers, nobody notices that a gap in the sequence keeps a writer's records out, and
    // our library commits what it was given.
    let unheard = scene.plan.workload.acks == Acks::None;
    for (place, group) in (0..).zip(&scene.plan.groups) {
        let commits = !(unheard && group.protocol == Protocol::Library);
        let mut owners: BTreeMap<Partition, u32> = BTreeMap::new();
        for (client, partitions) in &entries.owned {
            if scene.plan.membership(*client).is_none_or(|(of, _)| of != place) {
                continue;
            }
            for partition in partitions {
                if let Some(other) = owners.insert(*partition, *client) {
                    return Some(format!("g{place}: c{other} and c{client} have {partition}"));
                }
            }
        }
        for partition in subscribed(scene, group) {
            let Some(owner) = owners.get(&partition) else {
                return Some(format!("g{place}: {partition} is nobody's"));
            };
            if commits && !entries.committed.contains(&(place, partition)) {
                return Some(format!("g{place}: c{owner} gets no commit of {partition} accepted"));
            }
        }
    }
    None
}

/// What a group shares out, as far as is known.
fn subscribed(scene: &Scene, group: &Group) -> Partitions {
    let partitions = scene.partitions().into_iter();
    partitions.filter(|partition| group.topics.contains(&partition.topic)).collect()
}

/// The last word of every group on its offsets, once everything else is over.
pub async fn read_offsets(scene: &Scene, client: u32) {
    for (place, group) in (0..).zip(&scene.plan.groups) {
        let partitions: Vec<Partition> = subscribed(scene, group).into_iter().collect();
        let who = Claim {
            group: place,
            client,
            by_epoch: false,
            member: String::new(),
            instance: None,
            generation: -1,
        };
        let mut coordinator = Coordinator::default();
        while let Err(error) = coordinator.fetch(scene, &who, &partitions).await {
            scene.stage.note(client, format!("gets no offsets of g{place}: {error:?}"));
            scene.clock.sleep(LOOK).await;
        }
        scene.stage.advance();
    }
    scene.stage.done(client);
}

/// What becomes of a member in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
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
struct Member {
    scene: Scene,
    client: u32,
    group: u32,
    spec: Group,
    /// What it speaks in this life.
    protocol: Protocol,
    /// A static member's name.
    instance: Option<String>,
    roster: Arc<Roster>,
    chance: Chance,
    coordinator: Coordinator,
    lives: u32,
    /// Names commits.
    commits: u64,
    /// Who it was in its last life, and what it had read.
    before: Option<(Claim, Vec<(Partition, Committed)>)>,
}

/// Lives as a member, again and again, until the run is over.
pub async fn live(scene: Scene, client: u32, roster: Arc<Roster>) {
    let (group, place) = scene.plan.membership(client).expect("a member of a group");
    let spec = scene.plan.groups[group as usize].clone();
    let mut member = Member {
        client,
        group,
        instance: (place < spec.statics).then(|| format!("g{group}-i{place}")),
        roster,
        chance: Chance::new(scene.plan.seed, &format!("member {client}")),
        coordinator: Coordinator::default(),
        lives: 0,
        commits: 0,
        before: None,
        protocol: spec.protocol,
        spec,
        scene,
    };
    // From a stream of their own, so that a member does what it did but for that.
    let mut migrations = Chance::new(member.scene.plan.seed, &format!("migration {client}"));
    while !member.scene.stage.is_over() {
        member.lives += 1;
        member.protocol = member.spec.protocol_of_a_life(&mut migrations);
        member.scene.stage.note(client, "has not joined");
        match member.protocol {
            Protocol::Eager | Protocol::Cooperative => classic::live(&mut member).await,
            Protocol::Consumer => consumer::live(&mut member).await,
            Protocol::Library => library::live(&mut member).await,
        }
        member.roster.owns(client, Partitions::new());
        member.coordinator.forget();
        member.rest().await;
    }
}

impl Member {
    fn claim(&self, member: &str, generation: i32) -> Claim {
        Claim {
            group: self.group,
            client: self.client,
            by_epoch: self.protocol == Protocol::Consumer,
            member: member.to_owned(),
            instance: self.instance.clone(),
            generation,
        }
    }

    fn is_over(&self) -> bool {
        self.scene.stage.is_over()
    }

    /// `heartbeat.interval.ms`.
    fn heartbeat(&self) -> Duration {
        self.spec.session / 4
    }

    fn draw_fate(&mut self) -> Fate {
        if self.scene.stage.is_healed() {
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
    async fn rest(&mut self) {
        let away = self.chance.duration(self.spec.away);
        let until = self.scene.now().monotonic + away;
        while self.scene.now().monotonic < until && !self.scene.stage.is_healed() {
            let left = until.saturating_since(self.scene.now().monotonic);
            self.scene.clock.sleep(left.min(LOOK)).await;
        }
        self.scene.clock.sleep(Duration::from_millis(1)).await;
    }

    async fn pause(&self, during: Duration) {
        self.scene.clock.sleep(during).await;
    }

    fn note(&self, what: impl Into<String>) {
        self.scene.stage.note(self.client, what);
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
        let refused = self.coordinator.commit(&self.scene, who, offsets).await;
        if refused.is_none() && self.scene.stage.is_healed() {
            self.roster.commits(self.group, partitions.into_iter());
        }
    }

    /// What its last life had on its way to the coordinator comes after all.
    async fn haunt(&mut self) {
        let Some((who, offsets)) = self.before.take() else { return };
        if self.chance.one_in(2) {
            quorate_core::reached!("a-member-of-old-commits");
            self.coordinator.commit(&self.scene, &who, offsets).await;
        }
    }
}
