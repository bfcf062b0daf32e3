//! A member that leaves the group's protocol to our client library, as an application would.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::Offset;
use quorate_core::reached;
use quorate_core::time::Instant;
use quorate_net::client::{
    Error, FetchOptions, GroupConfig, GroupConsumer, OnReset, PartitionBatches, Polled,
};
use quorate_net::kafka::error::Code;

use super::super::library;
use super::super::topic_name;
use super::Around;
use crate::history::Partition;
use crate::history::groups::{Claim, Committed, Delivery, GroupCall, GroupEnd};
use crate::workload::members::{self, AGAIN, Fate, Partitions, group_name};

type Member = members::Member<Around>;

/// Whoever shares out is to see that a topic has grown while the run lasts.
const METADATA_AGE_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(80);
/// A member has time to spare.
const WAIT_MIN: Duration = Duration::from_millis(10);

/// A member in one of its lives.
struct Library {
    consumer: GroupConsumer,
    /// What comes next of what it has read and not given up.
    read: BTreeMap<Partition, i64>,
    owned: Partitions,
    /// In which it was given that. The library has forgotten it when it says what is over.
    generation: i32,
}

fn config(member: &Member) -> GroupConfig {
    let topics: Vec<String> = member.spec.topics.iter().map(|topic| format!("t{topic}")).collect();
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let workload = &member.world.scene.plan.workload;
    GroupConfig {
        instance: member.instance.clone(),
        session_timeout: member.spec.session,
        rebalance_timeout: member.spec.session * 2,
        heartbeat_interval: member.heartbeat(),
        fetch: FetchOptions {
            wait_max: workload.wait.clamp(WAIT_MIN, POLL),
            partition_bytes_max: workload.read_bytes as i32,
            ..FetchOptions::default()
        },
        on_reset: OnReset::Beginning,
        ..GroupConfig::new(group_name(member.group).as_str(), &names)
    }
}

pub(super) async fn live(member: &mut Member) {
    let mut client = library::config(&member.world.scene, &mut member.chance);
    client.metadata_age_max = client.metadata_age_max.min(METADATA_AGE_MAX);
    let client = library::library_as(&member.world.scene, client);
    let consumer = GroupConsumer::new(&client, config(member));
    let mut life =
        Library { consumer, read: BTreeMap::new(), owned: Partitions::new(), generation: -1 };
    let patient = member.world.scene.stage.is_healed();
    let mut commit = Instant::ZERO;
    // The patience of a client is settled when it is made.
    while !member.is_over() && member.world.scene.stage.is_healed() == patient {
        match life.consumer.poll(POLL).await {
            Ok(polled) => life.on_polled(member, polled).await,
            Err(error) => {
                member.note(format!("cannot poll: {error}"));
                return;
            }
        }
        match member.draw_fate() {
            Fate::Works => {}
            Fate::Dies => return,
            Fate::Leaves => {
                let owned = life.owned.clone();
                life.commit(member, &owned).await;
                let _ = life.consumer.close().await;
                return;
            }
            Fate::Pauses => {
                // The heartbeats go on, as those of an application that is busy.
                member.rest().await;
                commit = Instant::ZERO;
            }
        }
        if member.world.scene.now().monotonic >= commit {
            let owned = life.owned.clone();
            life.commit(member, &owned).await;
            let pause = member.chance.duration(member.spec.commit);
            commit = member.world.scene.now().monotonic + pause;
        }
    }
}

impl Library {
    fn claim(&self, member: &Member) -> Claim {
        member.claim(self.consumer.member_id(), self.generation)
    }

    async fn on_polled(&mut self, member: &mut Member, polled: Polled) {
        match polled {
            Polled::Nothing => {}
            Polled::Batches(batches) => self.on_batches(member, &batches),
            Polled::Assigned(partitions) => {
                reached!("the-library-has-its-part");
                let named = |(topic, index): &(Arc<str>, i32)| Partition {
                    topic: topic.trim_start_matches('t').parse().expect("our topic"),
                    index: *index as u32,
                };
                self.owned = partitions.iter().map(named).collect();
                self.read.clear();
                self.generation = self.consumer.generation().unwrap_or(-1);
                let who = self.claim(member);
                let now = member.world.scene.now().monotonic;
                let mut history = member.world.scene.history();
                let (name, generation) = (who.member.clone(), who.generation);
                let id = history.invoke_in_group(who.clone(), now, GroupCall::Join);
                history.complete_in_group(id, now, GroupEnd::Joined { member: name, generation });
                let id = history.invoke_in_group(who, now, GroupCall::ASSIGN);
                let partitions = self.owned.iter().copied().collect();
                let end = GroupEnd::Assigned { generation, partitions };
                history.complete_in_group(id, now, end);
                drop(history);
                member.roster.owns(member.client, self.owned.clone());
            }
            Polled::Revoked { lost, .. } => {
                if lost {
                    self.read.clear();
                }
                let owned = std::mem::take(&mut self.owned);
                self.commit(member, &owned).await;
                self.read.clear();
                member.roster.owns(member.client, Partitions::new());
            }
        }
    }

    fn on_batches(&mut self, member: &Member, read: &PartitionBatches) {
        let topic = read.topic.trim_start_matches('t').parse().expect("our topic");
        let partition = Partition { topic, index: read.partition as u32 };
        let Some(last) = read.batches.last() else { return };
        let next = last.header().next_offset().0;
        // It goes on where it was, unless that is gone.
        let from = match self.read.get(&partition) {
            Some(&at) if read.log_start.0 <= at && read.from.0 >= at => at,
            _ => read.from.0,
        };
        self.read.insert(partition, next);
        let (group, client) = (member.group, member.client);
        let now = member.world.scene.now().monotonic;
        member
            .world
            .scene
            .history()
            .deliver(now, Delivery { group, client, partition, from, next });
    }

    async fn commit(&mut self, member: &mut Member, partitions: &Partitions) {
        let offsets: Vec<(Partition, i64)> = self
            .read
            .iter()
            .filter(|(partition, _)| partitions.contains(partition))
            .map(|(partition, next)| (*partition, *next))
            .collect();
        if offsets.is_empty() {
            return;
        }
        let told = |offset: i64| Committed { offset, leader_epoch: -1, metadata: String::new() };
        let call = GroupCall::Commit {
            offsets: offsets.iter().map(|(partition, next)| (*partition, told(*next))).collect(),
        };
        let who = self.claim(member);
        let now = member.world.scene.now().monotonic;
        let id = member.world.scene.history().invoke_in_group(who, now, call);
        let asked: Vec<(Arc<str>, i32, Offset)> = offsets
            .iter()
            .map(|(partition, next)| {
                let topic = Arc::from(topic_name(*partition).as_str());
                (topic, partition.index as i32, Offset(*next))
            })
            .collect();
        let outcome = self.consumer.commit(&asked).await;
        let now = member.world.scene.now().monotonic;
        match outcome {
            Ok(()) => {
                member.world.scene.history().complete_in_group(id, now, GroupEnd::Committed);
                if member.world.scene.stage.is_healed() {
                    let partitions = offsets.iter().map(|(partition, _)| *partition);
                    member.roster.commits(member.client, partitions);
                }
            }
            Err(error) => {
                member.note(format!("cannot commit: {error}"));
                // An attempt before the last one may have been heard.
                if let Error::Refused { code: Code::IllegalGeneration, .. } = error {
                    reached!("the-library-commits-too-late");
                }
                member.pause(AGAIN).await;
            }
        }
    }
}
