//! Members of consumer groups (`workload/members`) over a network: how they reach their
//! coordinator, how they read, and how it is seen that all have settled. `library.rs` is a member
//! that leaves the protocol to our own client.

mod coordinator;
mod library;
mod reading;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::TopicId;
use quorate_core::time::Instant;
use quorate_net::kafka::messages::MetadataRequest;

use self::coordinator::Coordinator;
use self::reading::Reading;
use super::Scene;
use crate::chance::Chance;
use crate::history::groups::Claim;
use crate::history::{History, Partition};
pub(super) use crate::workload::members::code_of;
use crate::workload::members::{
    self, Environment, Member, Question, Roster, last_offsets, subscribed,
};

/// How often it is looked whether groups have settled.
const LOOK: Duration = Duration::from_millis(100);
/// The version in which topics have ids.
const METADATA: i16 = 12;

/// Waits, once the run is healed, until every partition of every group is exactly one member's, and
/// that one's commits are taken.
pub async fn settle(scene: &Scene, roster: &Roster, client: u32) {
    loop {
        scene.clock.sleep(LOOK).await;
        if !scene.stage.is_healed() {
            continue;
        }
        match roster.unsettled(&scene.plan, &scene.partitions()) {
            None => break,
            Some(reason) => scene.stage.note(client, reason),
        }
    }
    scene.stage.done(client);
}

/// The last word of every group on its offsets, once everything else is over.
pub async fn read_offsets(scene: Scene, client: u32) {
    let (plan, all) = (Arc::clone(&scene.plan), scene.partitions());
    let mut around = Around { scene, coordinator: Coordinator::default() };
    for (place, group) in (0..).zip(&plan.groups) {
        let partitions: Vec<Partition> = subscribed(group, &all).into_iter().collect();
        last_offsets(&mut around, client, place, &partitions).await;
        around.scene.stage.advance();
    }
    around.scene.stage.done(client);
}

/// Lives as a member, again and again, until the run is over.
pub async fn live(scene: Scene, client: u32, roster: Arc<Roster>) {
    let plan = Arc::clone(&scene.plan);
    let around = Around { scene, coordinator: Coordinator::default() };
    members::live(around, plan, client, roster).await;
}

/// What a member has around it.
struct Around {
    scene: Scene,
    coordinator: Coordinator,
}

impl Environment for Around {
    type Reader = Reading;

    fn now(&self) -> Instant {
        self.scene.now().monotonic
    }

    fn is_healed(&self) -> bool {
        self.scene.stage.is_healed()
    }

    fn is_over(&self) -> bool {
        self.scene.stage.is_over()
    }

    fn note(&self, client: u32, what: String) {
        self.scene.stage.note(client, what);
    }

    fn with_history<T>(&self, tell: impl FnOnce(&mut History) -> T) -> T {
        tell(&mut self.scene.history())
    }

    fn partitions(&self) -> Vec<Partition> {
        self.scene.partitions()
    }

    async fn sleep(&self, during: Duration) {
        self.scene.clock.sleep(during).await;
    }

    async fn ask<R: Question>(
        &mut self,
        who: &Claim,
        asking: (i16, Duration),
        request: &R,
    ) -> Option<R::Response> {
        self.coordinator.ask(&self.scene, who, asking, request).await.ok()
    }

    fn forget_coordinator(&mut self) {
        self.coordinator = Coordinator::default();
    }

    async fn topics(&mut self, who: &Claim) -> Option<BTreeMap<u32, TopicId>> {
        let request = MetadataRequest { topics: None, ..Default::default() };
        let asking = (METADATA, Duration::ZERO);
        let answer = self.coordinator.ask(&self.scene, who, asking, &request).await.ok()?;
        let known = answer.topics.iter().filter_map(|topic| {
            let place = topic.name.as_ref()?.as_str().strip_prefix('t')?.parse().ok()?;
            Some((place, topic.topic_id))
        });
        Some(known.collect())
    }

    fn reader(&self, chance: &mut Chance) -> Reading {
        Reading::new(&self.scene, chance)
    }

    async fn live_by_library(member: &mut Member<Self>) {
        library::live(member).await;
    }
}
