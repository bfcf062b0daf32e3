//! Whoever holds a conversation: its chance, how long it goes on asking, and how it finds out whom
//! to ask.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::group::placement::partition_of;
use quorate_core::id::TopicId;

use super::desk::Desk;
use super::{Ask, Known, Reply};
use crate::chance::Chance;
use crate::history::Partition;
use crate::history::transactions::Place;
use crate::plan::Plan;

/// How often a question is asked while faults strike, at most; and once they do not.
const ATTEMPTS: u64 = 8;
const ATTEMPTS_AFTER: u64 = 1000;

pub(in super::super) struct Seeker {
    desk: Desk,
    pub(in super::super) client: u32,
    pub(in super::super) chance: Chance,
    nodes: u64,
    known: Option<Known>,
    /// It waits no longer for an answer to whom to ask.
    most: Option<Duration>,
}

impl Seeker {
    /// `kind`: what kind of client it is, which names its stream of chance.
    pub(in super::super) fn new(plan: &Plan, client: u32, kind: &str) -> Self {
        let chance = Chance::new(plan.seed, &format!("{kind} {client} of cores"));
        let nodes = u64::from(plan.cluster.nodes);
        Self { desk: Desk::default(), client, chance, nodes, known: None, most: None }
    }

    /// Another part of the same client, with a chance of its own. It does not wait longer than
    /// `most` to be told whom to ask.
    pub(in super::super) fn beside(&self, chance: Chance, most: Duration) -> Self {
        let (desk, client, nodes) = (self.desk.clone(), self.client, self.nodes);
        Self { desk, client, chance, nodes, known: None, most: Some(most) }
    }

    pub(in super::super) fn desk(&self) -> Desk {
        self.desk.clone()
    }

    pub(in super::super) fn at(&self) -> &Desk {
        &self.desk
    }

    pub(in super::super) fn is_healed(&self) -> bool {
        self.desk.is_healed()
    }

    pub(in super::super) fn attempts(&mut self) -> u64 {
        if self.is_healed() { ATTEMPTS_AFTER } else { 1 + self.chance.below(ATTEMPTS) }
    }

    pub(in super::super) async fn pause(&self, during: Duration) {
        self.desk.sleep(during).await;
    }

    pub(in super::super) fn any_node(&mut self) -> usize {
        self.chance.below(self.nodes) as usize
    }

    /// What is known of who leads is not believed any more.
    pub(in super::super) fn forget(&mut self) {
        self.known = None;
    }

    async fn known(&mut self) -> Option<&Known> {
        if self.known.is_none() {
            let n = self.any_node();
            let reply = match self.most {
                None => self.desk.ask(n, Ask::Leaders).await,
                Some(most) => self.desk.ask_within(n, Ask::Leaders, most).await,
            };
            if let Some(Reply::Leaders(known)) = reply {
                self.known = Some(known);
            }
        }
        self.known.as_ref()
    }

    /// Who is believed to lead; what is known is forgotten if nobody is.
    async fn found(&mut self, find: impl FnOnce(&Known) -> Option<usize>) -> Option<usize> {
        let found = find(self.known().await?);
        if found.is_none() {
            self.known = None;
        }
        found
    }

    pub(in super::super) async fn leader(&mut self, place: Place) -> Option<usize> {
        self.found(|known| known.leaders.get(&place).copied()).await
    }

    /// Of a transactional id.
    pub(in super::super) async fn coordinator(&mut self, id: &str) -> Option<usize> {
        self.found(|known| among(&known.coordinators, id)).await
    }

    pub(in super::super) async fn group_coordinator(&mut self, group: &str) -> Option<usize> {
        self.found(|known| among(&known.groups, group)).await
    }

    /// Of a partition of the plan's topics.
    pub(in super::super) async fn leader_of(&mut self, partition: Partition) -> Option<usize> {
        self.found(|known| known.partitions.get(&partition).copied()).await
    }

    /// The ids of the plan's topics, as some node knows them now.
    pub(in super::super) async fn topics(&mut self) -> Option<BTreeMap<u32, TopicId>> {
        self.known = None;
        self.known().await.map(|known| known.topics.clone())
    }
}

fn among(coordinators: &[Option<usize>], name: &str) -> Option<usize> {
    let count = i32::try_from(coordinators.len()).ok().filter(|count| *count > 0)?;
    coordinators[partition_of(name, count) as usize]
}
