//! `quorate txn`: list, describe, abort.

mod diagnosis;
mod hanging;

use quorate_core::time::Timestamp;
use quorate_net::client::{
    Client, Error, PartitionName, ProducerDescription, TransactionDescription, TransactionFilter,
};
use quorate_net::kafka::error::Code;
use serde::Serialize;

use self::diagnosis::{Leaders, leaders_of};
use self::hanging::Known;
use super::{Context, existing_topic};
use crate::args::{AbortArgs, TxnCommand};
use crate::failure::Failure;
use crate::nearest::nearest;
use crate::output::table::Table;

pub(crate) async fn run(context: &Context, command: TxnCommand) -> Result<(), Failure> {
    match command {
        TxnCommand::List { hanging: true, .. } => hanging::list(context).await,
        TxnCommand::List { state, longer_than, .. } => {
            let filter = TransactionFilter { states: state, longer_than, producers: Vec::new() };
            list(context, &filter).await
        }
        TxnCommand::Describe { ids } => describe(context, &ids).await,
        TxnCommand::Abort(args) => abort(context, &args).await,
    }
}

async fn list(context: &Context, filter: &TransactionFilter) -> Result<(), Failure> {
    let client = context.connect().await?;
    let (listed, silent) = client.list_transactions(filter).await?;
    #[derive(Serialize)]
    struct Listed {
        transactional_id: String,
        coordinator: i32,
        producer_id: i64,
        state: String,
    }
    let listed: Vec<Listed> = listed
        .into_iter()
        .map(|it| Listed {
            transactional_id: it.transactional_id,
            coordinator: it.coordinator.0,
            producer_id: it.producer.0,
            state: it.state,
        })
        .collect();
    for (node, error) in silent {
        context.output.warn(&format!("transactions of node {node} are not listed: {error}"));
    }
    if context.output.json {
        return context.output.json(&listed);
    }
    if listed.is_empty() {
        context.output.note("there are no such transactional ids");
        return Ok(());
    }
    let mut table = Table::new(&["TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"]);
    for it in listed {
        let (coordinator, producer) = (it.coordinator.to_string(), it.producer_id.to_string());
        table.row([it.transactional_id, coordinator, producer, it.state]);
    }
    context.output.table(&table)
}

/// The failure for an id that nobody uses, with the nearest one.
async fn no_such_id(client: &Client, id: &str) -> Failure {
    let failure = Failure::new(format!("there is no transactional id {id}"));
    let known = client.list_transactions(&TransactionFilter::default()).await;
    let Ok((known, _)) = known else { return failure };
    match nearest(id, known.iter().map(|known| known.transactional_id.as_str())) {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure.hint("`quorate txn list` shows those that there are"),
    }
}

#[derive(Serialize)]
struct Told<'a> {
    transactional_id: &'a str,
    coordinator: i32,
    state: &'a str,
    producer_id: i64,
    producer_epoch: i16,
    timeout_ms: u64,
    started: Option<i64>,
    partitions: Vec<String>,
    waits_for: String,
}

async fn describe(context: &Context, ids: &[String]) -> Result<(), Failure> {
    let client = context.connect().await?;
    let mut found: Vec<(TransactionDescription, Leaders)> = Vec::with_capacity(ids.len());
    for id in ids {
        let described = match client.describe_transaction(id).await {
            Ok(described) => described,
            Err(error) if error.code() == Some(Code::TransactionalIdNotFound) => {
                return Err(no_such_id(&client, id).await);
            }
            Err(error) => return Err(error.into()),
        };
        let leaders = leaders_of(&client, &described.partitions).await?;
        found.push((described, leaders));
    }
    let now = context.clock.now().wall;
    if context.output.json {
        let told: Vec<Told<'_>> = found.iter().map(|it| told(it, now)).collect();
        return context.output.json(&told);
    }
    for (at, (it, leaders)) in found.iter().enumerate() {
        if at > 0 {
            context.output.line("")?;
        }
        show(context, it, leaders, now)?;
    }
    Ok(())
}

fn told((it, leaders): &(TransactionDescription, Leaders), now: Timestamp) -> Told<'_> {
    Told {
        transactional_id: &it.transactional_id,
        coordinator: it.coordinator.0,
        state: &it.state,
        producer_id: it.producer.0,
        producer_epoch: it.epoch.0,
        timeout_ms: u64::try_from(it.timeout.as_millis()).unwrap_or(u64::MAX),
        started: it.started.map(|at| at.0),
        partitions: it.partitions.iter().map(place).collect(),
        waits_for: diagnosis::waits_for(it, leaders, now),
    }
}

fn place(name: &PartitionName) -> String {
    format!("{}:{}", name.topic, name.partition)
}

fn show(
    context: &Context,
    it: &TransactionDescription,
    leaders: &Leaders,
    now: Timestamp,
) -> Result<(), Failure> {
    let (id, state, node) = (&it.transactional_id, &it.state, it.coordinator);
    let (producer, epoch) = (it.producer, it.epoch);
    let output = context.output;
    output.line(&format!(
        "{id}  {state}, producer {producer} epoch {epoch}, coordinated by node {node}"
    ))?;
    output.line("")?;
    output.line(&format!("  {}", diagnosis::waits_for(it, leaders, now)))?;
    if it.partitions.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let mut table = Table::new(&["TOPIC", "PARTITION", "LEADER"]);
    for name in &it.partitions {
        let leader = leaders.get(name).copied().flatten();
        let leader = leader.map_or_else(|| "-".to_owned(), |leader| leader.to_string());
        table.row([name.topic.clone(), name.partition.to_string(), leader]);
    }
    output.table(&table)
}

/// `orders:3`.
fn parse_place(text: &str) -> Result<PartitionName, Failure> {
    let parsed = text.rsplit_once(':').and_then(|(topic, number)| {
        let partition = number.parse().ok().filter(|&number: &i32| number >= 0)?;
        (!topic.is_empty()).then(|| PartitionName { topic: topic.to_owned(), partition })
    });
    parsed.ok_or_else(|| {
        Failure::usage(format!("`{text}` names no partition")).hint("write TOPIC:PARTITION")
    })
}

async fn abort(context: &Context, args: &AbortArgs) -> Result<(), Failure> {
    let name = parse_place(&args.partition)?;
    let client = context.connect().await?;
    let count = existing_topic(&client, &name.topic).await?.partition_count();
    if name.partition >= count {
        let failure = format!("topic {} has no partition {}", name.topic, name.partition);
        return Err(Failure::new(failure).hint(format!("its partitions are 0 to {}", count - 1)));
    }
    let producers = client.describe_producers(&name.topic, name.partition).await?;
    let open: Vec<&ProducerDescription> =
        producers.iter().filter(|it| it.open_since.is_some()).collect();
    let meant = open.iter().find(|it| {
        args.start_offset.is_some_and(|at| it.open_since.is_some_and(|since| since.0 == at))
            || args.producer == Some(it.producer.0)
    });
    let Some(it) = meant else { return Err(none_open(&name, &open)) };
    let since = it.open_since.unwrap_or_default();
    let known = hanging::known_to_coordinator(&client, &name, it.producer).await?;
    match known {
        Known::By(id) => {
            let what = format!("a coordinator knows of it and will end it: it is {id}'s");
            return Err(Failure::new(what).hint(format!("`quorate txn describe {id}` says when")));
        }
        Known::NotByOthersThan(index) if !args.coordinator_is_lost => {
            let what = format!("{}, and may have decided to commit it", hanging::leaderless(index));
            return Err(Failure::new(what).hint("if it never comes back: --coordinator-is-lost"));
        }
        Known::ByNone | Known::NotByOthersThan(_) => {}
    }
    let question = format!(
        "Abort what producer {} has open in {} since offset {since}? Its records there are lost",
        it.producer,
        place(&name)
    );
    context.output.confirm(args.sure.yes, &question)?;
    client.write_abort_marker(&name, it).await.map_err(refused)?;
    if context.output.json {
        let aborted = serde_json::json!({
            "partition": place(&name), "producer_id": it.producer.0, "start_offset": since.0,
        });
        return context.output.json(&serde_json::json!({ "aborted": aborted }));
    }
    context.output.line(&format!(
        "aborted what producer {} had open in {}",
        it.producer,
        place(&name)
    ))
}

fn refused(error: Error) -> Failure {
    let fenced = matches!(
        error.code(),
        Some(Code::TransactionCoordinatorFenced | Code::InvalidProducerEpoch)
    );
    let failure = Failure::from(error);
    if fenced { failure.hint("it has been ended meanwhile: look again") } else { failure }
}

fn none_open(name: &PartitionName, open: &[&ProducerDescription]) -> Failure {
    let failure = Failure::new(format!("no such transaction is open in {}", place(name)));
    let shown = open.iter().filter_map(|it| {
        let since = it.open_since?;
        Some(format!("producer {} since offset {since}", it.producer))
    });
    let shown: Vec<String> = shown.take(5).collect();
    if shown.is_empty() {
        failure.hint("none is open there at all")
    } else {
        failure.hint(format!("open are: {}", shown.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_a_number() {
        let orders = PartitionName { topic: "orders".to_owned(), partition: 3 };
        assert_eq!(parse_place("orders:3"), Ok(orders));
        for wrong in ["orders", "orders:", ":3", "orders:x", "orders:-1"] {
            assert!(parse_place(wrong).is_err(), "{wrong}");
        }
    }
}
