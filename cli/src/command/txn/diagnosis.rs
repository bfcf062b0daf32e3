//! What a transaction waits for, in one sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::id::NodeId;
use quorate_core::time::Timestamp;
use quorate_net::client::{Client, PartitionName, TransactionDescription};

use super::place;
use crate::failure::Failure;
use crate::output::human;

/// Who leads each partition; `None` for nobody. A partition that is not in it does not exist.
pub(super) type Leaders = BTreeMap<PartitionName, Option<NodeId>>;

/// Of missing markers so many are named; the others are counted.
const NAMED_MAX: usize = 3;

pub(super) async fn leaders_of(
    client: &Client,
    partitions: &[PartitionName],
) -> Result<Leaders, Failure> {
    let topics: BTreeSet<&str> = partitions.iter().map(|name| name.topic.as_str()).collect();
    if topics.is_empty() {
        return Ok(Leaders::new());
    }
    let known = client.cluster().await?;
    let leaders = partitions.iter().filter_map(|name| {
        let place = usize::try_from(name.partition).ok()?;
        let partition = known.topics.get(&name.topic)?.partitions.get(place)?;
        Some((name.clone(), partition.leader.filter(|leader| known.brokers.contains_key(leader))))
    });
    Ok(leaders.collect())
}

pub(super) fn waits_for(it: &TransactionDescription, leaders: &Leaders, now: Timestamp) -> String {
    match it.state.as_str() {
        "Ongoing" => ongoing(it, now),
        "PrepareCommit" => markers("committed", it, leaders),
        "PrepareAbort" | "PrepareEpochFence" => markers("aborted", it, leaders),
        "CompleteCommit" => "Nothing is open: the last transaction was committed.".to_owned(),
        "CompleteAbort" => "Nothing is open: the last transaction was aborted.".to_owned(),
        "Dead" => "The id has not been used for so long that it is forgotten.".to_owned(),
        _ => "Nothing is open: no transaction has begun under this id.".to_owned(),
    }
}

fn ongoing(it: &TransactionDescription, now: Timestamp) -> String {
    let timeout = human::duration(it.timeout);
    let Some(started) = it.started else {
        return "It is open, and waits for its producer to commit or abort it.".to_owned();
    };
    let millis = u64::try_from(now.0.saturating_sub(started.0)).unwrap_or_default();
    // Of a time in milliseconds and a half nobody wants to know.
    let age = Duration::from_secs(millis / 1000);
    if Duration::from_millis(millis) <= it.timeout {
        let left = it.timeout.saturating_sub(Duration::from_millis(millis));
        let left = human::duration(Duration::from_secs(left.as_secs()));
        return format!(
            "It is open since {}, and waits for its producer to commit or abort it; in {left}, at \
             its timeout of {timeout}, the coordinator aborts it.",
            human::duration(age)
        );
    }
    format!(
        "It is open since {}, longer than its timeout of {timeout}: it waits for the coordinator \
         (node {}) to abort it, which looks every few seconds.",
        human::duration(age),
        it.coordinator
    )
}

fn markers(how: &str, it: &TransactionDescription, leaders: &Leaders) -> String {
    if it.partitions.is_empty() {
        return format!("It is {how}, and waits for the coordinator to write that it is complete.");
    }
    let several = |names: &[&PartitionName]| {
        let named: Vec<String> = names.iter().take(NAMED_MAX).map(|name| place(name)).collect();
        match names.len().checked_sub(NAMED_MAX).filter(|&more| more > 0) {
            Some(more) => format!("{} and {more} more", named.join(", ")),
            None => named.join(", "),
        }
    };
    let all: Vec<&PartitionName> = it.partitions.iter().collect();
    let leaderless: Vec<&PartitionName> =
        all.iter().copied().filter(|name| leaders.get(*name) == Some(&None)).collect();
    if !leaderless.is_empty() {
        return format!(
            "It is {how}, and waits for a leader of {}: until then readers of committed records \
             wait there.",
            several(&leaderless)
        );
    }
    let nodes: BTreeSet<NodeId> = leaders.values().copied().flatten().collect();
    let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    format!(
        "It is {how}, and waits until its end is written in {} (leaders: node {}).",
        several(&all),
        nodes.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use quorate_core::id::{ProducerEpoch, ProducerId};

    use super::*;

    fn name(partition: i32) -> PartitionName {
        PartitionName { topic: "orders".to_owned(), partition }
    }

    fn transaction(state: &str, partitions: i32) -> TransactionDescription {
        TransactionDescription {
            transactional_id: "transfers".to_owned(),
            coordinator: NodeId(2),
            state: state.to_owned(),
            timeout: Duration::from_secs(60),
            started: Some(Timestamp(100_000)),
            producer: ProducerId(7),
            epoch: ProducerEpoch(3),
            partitions: (0..partitions).map(name).collect(),
        }
    }

    #[test]
    fn an_open_one_waits_for_its_producer_and_then_for_the_coordinator() {
        let it = transaction("Ongoing", 1);
        let said = waits_for(&it, &Leaders::new(), Timestamp(115_400));
        assert!(said.contains("open since 15 s,") && said.contains("in 44 s,"), "{said}");
        assert!(said.contains("waits for its producer"), "{said}");
        let said = waits_for(&it, &Leaders::new(), Timestamp(160_001));
        assert!(said.contains("waits for the coordinator (node 2)"), "{said}");
        // A clock that is behind.
        let said = waits_for(&it, &Leaders::new(), Timestamp(0));
        assert!(said.contains("waits for its producer"), "{said}");
    }

    #[test]
    fn a_decided_one_waits_for_markers() {
        let it = transaction("PrepareCommit", 5);
        let mut leaders: Leaders =
            (0..5).map(|partition| (name(partition), Some(NodeId(1 + partition % 2)))).collect();
        let said = waits_for(&it, &leaders, Timestamp(0));
        assert!(said.contains("It is committed"), "{said}");
        assert!(said.contains("orders:0, orders:1, orders:2 and 2 more"), "{said}");
        assert!(said.contains("node 1, 2"), "{said}");
        leaders.insert(name(4), None);
        let said = waits_for(&it, &leaders, Timestamp(0));
        assert!(said.contains("waits for a leader of orders:4:"), "{said}");
        let said = waits_for(&transaction("PrepareAbort", 0), &leaders, Timestamp(0));
        assert!(said.contains("It is aborted"), "{said}");
    }

    #[test]
    fn one_that_has_ended_waits_for_nothing() {
        for state in ["Empty", "CompleteCommit", "CompleteAbort"] {
            let said = waits_for(&transaction(state, 0), &Leaders::new(), Timestamp(0));
            assert!(said.starts_with("Nothing is open"), "{said}");
        }
    }
}
