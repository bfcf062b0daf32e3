//! Transactions among several nodes in the world of cores: producers that speak the protocol
//! themselves, badly treated or not, one that copies from one topic to the other with its group's
//! offsets, and readers of committed records. They are the plan's, as in the world of nodes, their
//! history is judged by the same checkers; what nodes do for them is a thin version of the shipping
//! node's (`office.rs`).

mod actor;
mod copier;
mod errands;
mod filter;
mod last;
mod office;
mod reader;
mod requests;
mod speaker;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use quorate_core::controller::interface::NewTopic;
use quorate_core::group::interface as group;
use quorate_core::id::{PartitionId, RequestId};
use quorate_core::metadata::topic::{OFFSETS_TOPIC, TRANSACTIONS_TOPIC};

use self::actor::Actor;
pub(super) use self::errands::{Done, Errand, Errands};
pub(super) use self::office::Duty;
use super::Cluster;
use super::conversations::{Ask, Conversation, Known, Read, Reply};
use super::node::place_of;
use crate::chance::Chance;
use crate::history::transactions::{Place, Topic};
use crate::plan::Plan;
use crate::plan::transactions::{Part, Transactions};

/// The group that copies.
const GROUP: &str = "xg";
/// Partitions of each topic of coordinators, at most.
const COORDINATORS_MAX: u64 = 3;

/// What the client does, if it has to do with transactions.
pub(super) fn conversation(plan: &Plan, client: u32) -> Option<Conversation> {
    let (actor, part) = (Actor::new(plan, client)?, plan.part(client)?);
    let desk = actor.desk();
    let life: Pin<Box<dyn Future<Output = ()>>> = match part {
        Part::Produces(place) => Box::pin(speaker::produce(actor, place)),
        Part::Speaks(place) => Box::pin(speaker::speak(actor, place)),
        Part::Copies(place) => Box::pin(copier::live(actor, place)),
        Part::Reads(_) => Box::pin(reader::live(actor)),
    };
    Some(Conversation::new(desk, life))
}

/// Up to where the copying group has consumed what it has, once nothing of that is pending.
async fn group_offsets(actor: &mut Actor) -> Option<BTreeMap<Place, i64>> {
    let n = actor.group_coordinator(GROUP).await?;
    let input = Box::new(group::Input::FetchOffsets(group::FetchOffsets {
        request: RequestId(0),
        group: GROUP.to_owned(),
        member: None,
        partitions: None,
        require_stable: true,
    }));
    let ask = Ask::Group { group: GROUP.to_owned(), input };
    let Reply::Group(group::Outcome::OffsetsFetched { partitions }) = actor.ask(n, ask).await?
    else {
        return None;
    };
    let mut offsets = BTreeMap::new();
    for (name, found) in partitions {
        if let Some(committed) = found.ok()? {
            let place = Place { topic: Topic::Input, index: name.partition as u32 };
            offsets.insert(place, committed.offset.0);
        }
    }
    Some(offsets)
}

/// Whether a producer goes on after the healing: of those that share an id, the first.
const fn goes_on(spec: &Transactions, part: Part) -> bool {
    match part {
        Part::Produces(place) => place < spec.ids,
        Part::Speaks(place) => place >= spec.ids,
        Part::Copies(place) => place == 0,
        Part::Reads(_) => true,
    }
}

pub(super) fn all_places(spec: &Transactions) -> impl Iterator<Item = Place> + use<> {
    let partitions = spec.partitions;
    [Topic::Input, Topic::Output]
        .into_iter()
        .flat_map(move |topic| (0..partitions).map(move |index| Place { topic, index }))
}

/// The topics of transactions and of coordinators, in plans that have such.
pub(super) fn topics(plan: &Plan) -> Vec<NewTopic> {
    let mut topics = Vec::new();
    if let Some(spec) = &plan.transactions {
        let names = [Topic::Input.name(), Topic::Output.name()];
        topics.extend(names.map(|name| plain(plan, name, spec.partitions)));
    }
    if has_coordinators(plan) {
        let mut chance = Chance::new(plan.seed, "coordinators' topics");
        topics.extend([TRANSACTIONS_TOPIC, OFFSETS_TOPIC].map(|name| {
            let partitions = 1 + chance.below(COORDINATORS_MAX) as u32;
            own_topic(plan, name, partitions)
        }));
    }
    topics
}

/// Whether any client asks coordinators.
pub(super) fn has_coordinators(plan: &Plan) -> bool {
    plan.transactions.is_some() || plan.committers.is_some() || !plan.groups.is_empty()
}

/// A topic in which nothing is deleted by age or size, nor compacted.
pub(super) fn plain(plan: &Plan, name: &str, partitions: u32) -> NewTopic {
    let cluster = &plan.cluster;
    new_topic(plan, name, partitions, (cluster.replication, cluster.in_sync_min), "delete")
}

/// A topic of coordinators, as nodes create it by themselves.
fn own_topic(plan: &Plan, name: &str, partitions: u32) -> NewTopic {
    let copies = own_copies(plan);
    let in_sync_min = plan.cluster.own_in_sync_min().min(copies);
    new_topic(plan, name, partitions, (copies, in_sync_min), "compact")
}

fn new_topic(
    plan: &Plan,
    name: &str,
    partitions: u32,
    (copies, in_sync_min): (u32, u32),
    policy: &str,
) -> NewTopic {
    let first = plan.topics.first().expect("a plan has topics");
    let settings = [
        ("cleanup.policy", policy.to_owned()),
        ("min.cleanable.dirty.ratio", "0.1".to_owned()),
        ("segment.bytes", first.segment_bytes.to_string()),
        ("segment.ms", first.segment_time.as_millis().to_string()),
        ("retention.ms", "-1".to_owned()),
        ("min.insync.replicas", in_sync_min.to_string()),
    ];
    NewTopic {
        name: name.to_owned(),
        partitions: Some(partitions as i32),
        replication: Some(copies as i16),
        configs: settings.map(|(name, value)| (name.to_owned(), Some(value))).to_vec(),
        ..NewTopic::default()
    }
}

/// Copies of the topics of coordinators.
pub(super) fn own_copies(plan: &Plan) -> u32 {
    plan.cluster.nodes.min(3)
}

impl Cluster {
    /// Of what is to be committed after the healing, what is not.
    pub(super) fn uncommitted(&self) -> Option<String> {
        let proofs = &self.conversations.proofs;
        let unproven = |client: &u32| !proofs.contains(client);
        if let Some(client) = self.plan.committing().find(unproven) {
            return Some(format!("c{client} has not shown that its offsets are kept"));
        }
        let spec = self.plan.transactions.as_ref()?;
        for client in self.plan.transactional() {
            let part = self.plan.part(client)?;
            let is_awaited = !matches!(part, Part::Reads(_)) && goes_on(spec, part);
            if is_awaited && !self.conversations.proofs.contains(&client) {
                return Some(format!("no transaction of c{client} is committed"));
            }
        }
        None
    }

    /// All partitions that transactions write to, as the metadata has them.
    fn transactional_partitions(&self) -> Vec<(String, PartitionId)> {
        let image = &self.shadow.truth;
        let names = [Topic::Input.name(), Topic::Output.name(), TRANSACTIONS_TOPIC, OFFSETS_TOPIC];
        let topics = names.into_iter().filter_map(|name| image.topic_named(name));
        let partitions = topics.flat_map(|topic| {
            (0..topic.partitions.len() as i32).map(|index| {
                (format!("{}-{index}", topic.name), PartitionId { topic: topic.id, index })
            })
        });
        partitions.collect()
    }

    /// A partition in which something is open, or of which a copy lacks something.
    pub(super) fn hanging(&self) -> Option<String> {
        self.transactional_partitions().into_iter().find_map(|(name, id)| {
            let found = self.shadow.truth.partition(id)?;
            let leader = place_of(found.leader?);
            let Some(view) = self.nodes[leader].views.get(&id).filter(|view| view.is_leader) else {
                return Some(format!("{name} is not led"));
            };
            let (stable, high, end) = (view.last_stable, view.high_watermark, view.end);
            if stable < end {
                let so_far = format!("stable to {stable} of {end}, committed to {high}");
                return Some(format!("a transaction hangs in {name}: {so_far}"));
            }
            let lags = |node: &quorate_core::id::NodeId| {
                let view = self.nodes[place_of(*node)].views.get(&id);
                view.is_none_or(|view| view.end != end || view.high_watermark != end)
            };
            let late = found.replicas.iter().find(|node| lags(node))?;
            Some(format!("n{late} has not all of {name}"))
        })
    }

    /// Reads what transactions wrote, by requests of a client.
    pub(super) fn read_transactions(&mut self, patience: Duration) {
        let client = self.plan.last_client();
        let Some(actor) = Actor::new(&self.plan, client) else { return };
        let desk = actor.desk();
        self.begin_last(client, Conversation::new(desk, Box::pin(last::read(actor))));
        let end = self.agenda.now + patience;
        self.go_on(end, |cluster| !cluster.conversations.has(client));
        if self.conversations.has(client) {
            self.observed
                .stuck
                .push("what transactions wrote cannot be read to its end".to_owned());
        }
    }

    /// Copies of what transactions wrote to are one log, batch by batch.
    pub(super) fn compare_transactional(&mut self) {
        for (name, id) in self.transactional_partitions() {
            let Some(found) = self.shadow.truth.partition(id).cloned() else { continue };
            let Some(leader) = found.leader.map(place_of) else { continue };
            for node in found.replicas {
                if let Some(wrong) = self.copies_differ(leader, place_of(node), id) {
                    self.shadow.blame("copies-differ", &name, wrong);
                }
            }
        }
    }
}
