//! Clients that commit offsets and read them back (`plan/committers.rs`), each with a group and a
//! topic of its own. What they do and are told is recorded; `check/offsets` judges it.

mod ask;
mod member;
mod topic;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate_core::id::TopicId;
use quorate_core::reached;
use quorate_core::time::Instant;

pub(crate) use self::ask::is_verdict;
use self::member::Membership;
use super::super::client::Link;
use super::Scene;
use crate::chance::{Chance, Ratio};
use crate::history::offsets::{Event, Found, Number};
use crate::plan::committers::Committers;

/// How often it is looked whether all works.
const LOOK: Duration = Duration::from_millis(100);
/// Before a client that was refused tries again.
const AGAIN: Duration = Duration::from_millis(20);

/// Who has shown since the healing that its offsets are kept, and forgotten.
#[derive(Debug, Default)]
pub struct Proofs(Mutex<BTreeSet<u32>>);

impl Proofs {
    fn given(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().expect("one thread")
    }
}

/// One of these clients.
struct Committer {
    scene: Scene,
    client: u32,
    spec: Committers,
    /// Which of them it is: names its topic and its group.
    place: u32,
    chance: Chance,
    proofs: Arc<Proofs>,
    /// To the group's coordinator, which has heard of the newest topic.
    link: Option<Link>,
    /// Where that was found last, and where before that, if it was elsewhere.
    coordinator: Option<String>,
    former: Option<String>,
    /// It was found elsewhere, and nothing was committed there yet.
    has_moved: bool,
    /// That has the name now, once there is one.
    topic: TopicId,
    /// How many had the name before.
    topics: u32,
    /// Those that were deleted.
    gone: BTreeSet<TopicId>,
    commits: Number,
    member: Option<Membership>,
    /// Whether it is a static member when it is one.
    is_static: bool,
}

/// Lives until the run is over.
pub async fn live(scene: Scene, client: u32, proofs: Arc<Proofs>) {
    let spec = scene.plan.committers.clone().expect("a plan with such clients");
    let mut chance = Chance::new(scene.plan.seed, &format!("committer {client}"));
    let mut committer = Committer {
        place: client - scene.plan.committing().start,
        is_static: chance.one_in(2),
        chance,
        scene,
        client,
        spec,
        proofs,
        link: None,
        coordinator: None,
        former: None,
        has_moved: false,
        topic: TopicId::NONE,
        topics: 0,
        gone: BTreeSet::new(),
        commits: 0,
        member: None,
    };
    committer.note("has no topic yet");
    committer.renew_topic().await;
    let mut has_proven = false;
    while !committer.is_over() {
        if committer.scene.stage.is_healed() && !has_proven {
            committer.prove().await;
            has_proven = true;
        }
        committer.act().await;
        let pause = committer.chance.duration(committer.spec.pause);
        committer.pause(pause.max(committer.scene.leisure())).await;
    }
}

/// Waits, once the run is healed, until each has shown that its offsets are kept.
pub async fn settle(scene: &Scene, proofs: &Proofs, client: u32) {
    while proofs.given().len() < scene.plan.committing().len() {
        scene.clock.sleep(LOOK).await;
    }
    scene.stage.done(client);
}

impl Committer {
    fn is_over(&self) -> bool {
        self.scene.stage.is_over()
    }

    fn note(&self, what: impl Into<String>) {
        self.scene.stage.note(self.client, what);
    }

    fn now(&self) -> Instant {
        self.scene.now().monotonic
    }

    fn tell(&self, invoked: Instant, event: Event) {
        let now = self.now();
        self.scene.history().tell_of_offsets(self.client, (invoked, now), event);
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
            self.scene.clock.sleep(next).await;
        }
    }

    fn hits(&mut self, habit: Ratio) -> bool {
        self.chance.hit(habit)
    }

    async fn act(&mut self) {
        let Committers { renew, join, vanish, rest, .. } = self.spec;
        if self.hits(renew) {
            reached!("a-topic-gives-its-name-to-another");
            self.renew_topic().await;
        } else if self.hits(join) {
            if self.member.is_none() {
                self.join().await;
            } else if self.hits(vanish) {
                self.vanish();
            } else {
                self.leave().await;
            }
        } else if self.hits(rest) {
            let away = self.chance.duration(self.spec.away);
            let healed = self.scene.stage.is_healed();
            self.pause(if healed { away.min(LOOK) } else { away }).await;
        } else if self.chance.one_in(3) {
            let partition = self.chance.below(self.spec.partitions.into()) as u32;
            let by_name = self.chance.one_in(3);
            let number = self.commit(partition, by_name).await;
            // Who coordinated before must not tell what it knew then.
            if number.is_some() && std::mem::take(&mut self.has_moved) {
                self.read_at_the_former().await;
            }
        } else if self.chance.one_in(2) {
            let by_name = self.chance.one_in(3);
            let _ = self.read(by_name).await;
        } else if self.chance.one_in(3) {
            self.read_at_the_former().await;
        } else {
            self.read_anywhere().await;
        }
    }

    /// Once the run is healed: a commit is accepted and read, a member that has vanished is given
    /// up, and what was committed stays as long as there is a member, and goes in its time.
    async fn prove(&mut self) {
        self.sees_a_commit().await;
        self.joins().await;
        if self.is_static {
            self.leave().await
        } else {
            self.vanish()
        }
        // A new member, which is not heard of again.
        self.joins().await;
        self.vanish();
        self.note("vanished from its group, which stays as it is");
        self.sees_a_commit().await;
        if let Some(retention) = self.spec.retention
            && self.scene.plan.dates_offsets_by_one_clock()
        {
            self.joins().await;
            self.pause(retention + Duration::from_millis(500)).await;
            let _ = self.read(false).await;
            self.note("does not see its offsets forgotten");
            self.leave().await;
            while !self.is_over() && self.read(false).await != Some(None) {
                self.pause(LOOK).await;
            }
            reached!("offsets-are-forgotten-in-their-time");
        }
        self.scene.stage.done(self.client);
        self.proofs.given().insert(self.client);
    }

    /// As a member, or as nobody, which is heard only where there is no member.
    async fn sees_a_commit(&mut self) {
        self.note("gets no commit accepted");
        while !self.is_over() {
            if let Some(number) = self.commit(0, false).await {
                let found = Found { topic: self.topics, number };
                if self.read(false).await == Some(Some(found)) {
                    return;
                }
                self.note("does not read what it committed");
            }
            self.pause(AGAIN).await;
        }
    }

    async fn joins(&mut self) {
        while self.member.is_none() && !self.is_over() {
            self.note("does not become a member");
            self.join().await;
            self.scene.clock.sleep(AGAIN).await;
        }
    }
}
