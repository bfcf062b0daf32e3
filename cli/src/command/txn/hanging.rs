//! Transactions that hang: open in a partition, and in no coordinator's. Nobody will end them, so
//! readers of committed records wait there until somebody does.

use std::collections::BTreeMap;

use quorate_core::id::{LeaderEpoch, NodeId, ProducerId};
use quorate_core::metadata::topic::TRANSACTIONS_TOPIC;
use quorate_net::client::{Client, PartitionName, ProducerDescription, TransactionFilter};
use serde::Serialize;

use super::place;
use crate::command::Context;
use crate::failure::Failure;
use crate::output::table::Table;

/// States in which a coordinator still has something to end.
const UNFINISHED: [&str; 4] = ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"];

/// What coordinators know of a transaction.
pub(super) enum Known {
    /// The one of this transactional id has yet to end it.
    By(String),
    /// All were asked, and none does.
    ByNone,
    /// None of those that could be asked. This partition of `__transaction_state` has no leader.
    NotByOthersThan(i32),
}

/// Whether a coordinator has `name` among what it has yet to end for `producer`.
pub(super) async fn known_to_coordinator(
    client: &Client,
    name: &PartitionName,
    producer: ProducerId,
) -> Result<Known, Failure> {
    let filter = TransactionFilter { producers: vec![producer], ..TransactionFilter::default() };
    let before = coordinators(client).await?;
    let (listed, silent) = client.list_transactions(&filter).await?;
    for it in listed.iter().filter(|it| UNFINISHED.contains(&it.state.as_str())) {
        let described = client.describe_transaction(&it.transactional_id).await?;
        if described.partitions.contains(name) {
            return Ok(Known::By(it.transactional_id.clone()));
        }
    }
    // The one that knows of it may be the one that is silent.
    if let Some((_, error)) = silent.into_iter().next() {
        return Err(error.into());
    }
    // Or one that was elected while they were asked, and was not there yet.
    let after = coordinators(client).await?;
    if before != after {
        let what = "a coordinator was elected while all were asked";
        return Err(Failure::new(what.to_owned()).hint("try again"));
    }
    let leaderless = after.iter().find(|(_, (leader, _))| leader.is_none());
    Ok(leaderless.map_or(Known::ByNone, |(index, _)| Known::NotByOthersThan(*index)))
}

/// Who leads each partition of `__transaction_state`, and since which election.
async fn coordinators(
    client: &Client,
) -> Result<BTreeMap<i32, (Option<NodeId>, LeaderEpoch)>, Failure> {
    let metadata = client.cluster().await?;
    let topic = metadata.topics.get(TRANSACTIONS_TOPIC);
    let partitions = topic.into_iter().flat_map(|topic| &topic.partitions);
    Ok(partitions.map(|it| (it.index, (it.leader, it.leader_epoch))).collect())
}

#[derive(Serialize)]
struct Hanging {
    partition: String,
    producer_id: i64,
    producer_epoch: i16,
    coordinator_epoch: Option<i32>,
    start_offset: i64,
    last_timestamp: i64,
}

async fn open_in(
    client: &Client,
    name: &PartitionName,
) -> Result<Vec<ProducerDescription>, Failure> {
    let mut producers = client.describe_producers(&name.topic, name.partition).await?;
    producers.retain(|it| it.open_since.is_some());
    Ok(producers)
}

pub(super) async fn list(context: &Context) -> Result<(), Failure> {
    let client = context.connect().await?;
    let metadata = client.cluster().await?;
    let topics = metadata.topics.values();
    let names = topics.flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|it| PartitionName { topic: topic.name.clone(), partition: it.index })
    });
    let mut found = Vec::new();
    let mut unasked = None;
    for name in names {
        let open = match open_in(&client, &name).await {
            Ok(open) => open,
            Err(failure) => {
                context.output.warn(&format!("{} is left out: {}", place(&name), failure.what));
                continue;
            }
        };
        for it in open {
            let silent = match known_to_coordinator(&client, &name, it.producer).await? {
                Known::By(_) => continue,
                Known::ByNone => None,
                Known::NotByOthersThan(index) => Some(index),
            };
            // It may have ended while the coordinators were asked.
            let again = open_in(&client, &name).await?;
            if again.iter().any(|now| {
                (now.producer, now.epoch, now.open_since) == (it.producer, it.epoch, it.open_since)
            }) {
                found.push((name.clone(), it));
                // The warning speaks of rows, so it comes with one.
                unasked = silent.or(unasked);
            }
        }
    }
    if let Some(index) = unasked {
        context.output.warn(&format!("{}, and may know of these", leaderless(index)));
    }
    show(context, &found)
}

/// Why a coordinator could not be asked.
pub(super) fn leaderless(index: i32) -> String {
    format!("the coordinator at {TRANSACTIONS_TOPIC}:{index} has no leader now")
}

fn show(context: &Context, found: &[(PartitionName, ProducerDescription)]) -> Result<(), Failure> {
    let since = |it: &ProducerDescription| it.open_since.unwrap_or_default();
    if context.output.json {
        let told: Vec<Hanging> = found
            .iter()
            .map(|(name, it)| Hanging {
                partition: place(name),
                producer_id: it.producer.0,
                producer_epoch: it.epoch.0,
                coordinator_epoch: it.coordinator_epoch,
                start_offset: since(it).0,
                last_timestamp: it.last_timestamp.0,
            })
            .collect();
        return context.output.json(&told);
    }
    let Some((name, it)) = found.first() else {
        context.output.note("no transaction hangs");
        return Ok(());
    };
    let mut table = Table::new(&["PARTITION", "PRODUCER-ID", "EPOCH", "START-OFFSET"]);
    for (name, it) in found {
        let (producer, epoch) = (it.producer.to_string(), it.epoch.to_string());
        table.row([place(name), producer, epoch, since(it).to_string()]);
    }
    context.output.table(&table)?;
    context.output.note(&format!(
        "No coordinator that answers knows of them, so nobody will end them, and readers of \
         committed records wait there. `quorate txn abort {} --start-offset {}` ends the first.",
        place(name),
        since(it)
    ));
    Ok(())
}
