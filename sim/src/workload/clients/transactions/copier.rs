//! A copier: a member of a group that consumes what is committed, writes each value to the other
//! topic, and commits both together. After anything that goes wrong it begins anew where the group
//! stands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::partition::interface::Isolation;
use quorate_core::reached;
use quorate_net::client::{
    FetchOptions, GroupConfig, GroupConsumer, GroupPlace, OnReset, PartitionBatches, PartitionName,
    Polled, TransactionalProducer,
};

use super::super::super::values;
use super::super::library::library;
use super::{Actor, BYTES, GROUP, Next, group_place};
use crate::chance::Between;
use crate::history::transactions::{Consumed, Incident, IncidentKind, Place, Sent, Topic};

const POLL: Duration = Duration::from_millis(80);
const SESSION: Duration = Duration::from_secs(2);
/// What is read at once is copied in one transaction, over the slowest link in far less than the
/// transaction's time.
const READ_BYTES_MAX: i32 = 4096;
/// The same after the healing, when a copy must come to its end. Whoever lags always reads so much:
/// 72 records in 4096 bytes. Sent one at a time to three slow disks, 140 ms each, they take ten
/// times as long as the shortest transaction may. This is a handful of records, or one batch: about
/// as much as a producer's transaction has (seed 2468 of three whole nodes).
const READ_BYTES_AFTER: i32 = 512;
/// Polls of one life, at most.
const POLLS_MAX: u64 = 100;
/// The generation of a member that is in none: no group has it.
const NOWHERE: i32 = i32::MAX;

fn config(actor: &Actor) -> GroupConfig {
    let most = if actor.scene.stage.is_healed() { READ_BYTES_AFTER } else { READ_BYTES_MAX };
    GroupConfig {
        session_timeout: SESSION,
        rebalance_timeout: SESSION * 2,
        heartbeat_interval: SESSION / 4,
        fetch: FetchOptions {
            wait_max: POLL,
            partition_bytes_max: (actor.scene.plan.workload.read_bytes as i32).min(most),
            isolation: Isolation::ReadCommitted,
            ..FetchOptions::default()
        },
        on_reset: OnReset::Beginning,
        ..GroupConfig::new(GROUP, &[Topic::Input.name()])
    }
}

/// One life. `writer` is named by the values of copies.
pub(super) async fn live(actor: &mut Actor, writer: u32) {
    let id = format!("xc-{}", actor.client);
    let Some((mut producer, life)) = actor.begin_life(&id).await else { return };
    let client = library(&actor.scene, &mut actor.chance);
    let mut consumer = GroupConsumer::new(&client, config(actor));
    let patient = actor.scene.stage.is_healed();
    for _ in 0..1 + actor.chance.below(POLLS_MAX) {
        if actor.is_over() || actor.scene.stage.is_healed() != patient {
            break;
        }
        actor.pause(actor.scene.leisure()).await;
        match consumer.poll(POLL).await {
            Ok(Polled::Batches(read)) => {
                let member = (consumer.member_id(), consumer.generation().unwrap_or(NOWHERE));
                let place = group_place(member.0, member.1);
                if !patient && actor.chance.hit(actor.spec.doze) {
                    return doze(actor, consumer, place, &mut producer, (life, writer), &read)
                        .await;
                }
                let next = copy(actor, place, &mut producer, (life, writer), &read).await;
                if next != Some(Next::Goes) {
                    return;
                }
            }
            Ok(Polled::Assigned(partitions)) => {
                let generation = consumer.generation().unwrap_or(NOWHERE);
                let member = consumer.member_id();
                let has = list(&partitions);
                tell(actor, format!("{GROUP}: {member}@{generation} has {has}"));
            }
            Ok(Polled::Revoked { partitions, lost }) => {
                let gone = list(&partitions);
                let how = if lost { "has lost" } else { "gives up" };
                tell(actor, format!("{GROUP}: {} {how} {gone}", consumer.member_id()));
            }
            Ok(Polled::Nothing) => {}
            Err(error) => {
                actor.note(format!("cannot poll: {error}"));
                return;
            }
        }
    }
    // It may have left nothing open, and the others need not wait for its session.
    let _ = consumer.close().await;
}

/// The group hears no more of this member, which goes on much later with what it has read.
async fn doze(
    actor: &mut Actor,
    consumer: GroupConsumer,
    place: GroupPlace,
    producer: &mut TransactionalProducer,
    who: (usize, u32),
    read: &PartitionBatches,
) {
    reached!("a-copier-stands-still");
    let leaves = actor.chance.one_in(2);
    let (from, next, how) = (read.from.0, read.next(), if leaves { "leaves" } else { "is silent" });
    let what = format!(
        "{GROUP}: {}@{} {how}, and keeps {}-{} from {from} to {}",
        place.member, place.generation, read.topic, read.partition, next.0
    );
    let stands_still = begin(actor, what);
    if leaves {
        let _ = consumer.close().await;
    } else {
        drop(consumer);
    }
    let still = Between { low: Duration::ZERO, high: SESSION * 2 };
    let still = actor.chance.duration(still);
    actor.pause(still).await;
    let now = actor.scene.now().monotonic;
    actor.scene.history().end_incident(
        stands_still,
        now,
        "goes on with what it has kept".to_owned(),
    );
    let _ = copy(actor, place, producer, who, read).await;
}

fn list(partitions: &[(Arc<str>, i32)]) -> String {
    let names = partitions.iter().map(|(topic, index)| format!("{topic}-{index}"));
    let names: Vec<String> = names.collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// A copier's place in its group changes; for whoever looks at the run.
fn begin(actor: &Actor, what: String) -> usize {
    let begun = actor.scene.now().monotonic;
    let (client, kind) = (actor.client, IncidentKind::Member);
    let (transactional_id, ended, end) = (String::new(), None, String::new());
    let incident = Incident { client, transactional_id, kind, begun, ended, what, end };
    actor.scene.history().begin_incident(incident)
}

fn tell(actor: &Actor, what: String) {
    let place = begin(actor, what);
    let now = actor.scene.now().monotonic;
    actor.scene.history().transactions.incidents[place].ended = Some(now);
}

/// Copies what was read in one transaction. `None`: it was not committed, or nobody knows.
async fn copy(
    actor: &mut Actor,
    place: GroupPlace,
    producer: &mut TransactionalProducer,
    (life, writer): (usize, u32),
    read: &PartitionBatches,
) -> Option<Next> {
    producer.begin().ok()?;
    let now = actor.scene.now().monotonic;
    let transaction = actor.scene.history().begin_transaction(life, now);
    let mut seen = Vec::new();
    for batch in read.batches.iter().filter(|batch| !batch.header().is_control()) {
        values::records(batch, read.from.0, &mut seen);
    }
    let mut sent = Vec::new();
    for original in seen.iter().filter_map(|seen| seen.value) {
        actor.values += 1;
        let value = values::value(writer, BYTES, actor.values);
        let index = actor.chance.below(actor.spec.partitions.into()) as u32;
        let place = Place { topic: Topic::Output, index };
        sent.push(Sent { place, value, copy_of: Some(original) });
    }
    let mut good = actor.send(producer, transaction, &sent).await;
    if good {
        let name = PartitionName { topic: read.topic.to_string(), partition: read.partition };
        let offsets = BTreeMap::from([(name, read.next())]);
        let consumed = Consumed {
            place: Place { topic: Topic::Input, index: read.partition as u32 },
            next: read.next().0,
            member: place.member.clone(),
            generation: place.generation,
        };
        let now = actor.scene.now().monotonic;
        actor.scene.history().consume_in_transaction(transaction, now, consumed);
        if let Err(error) = producer.send_offsets(&place, &offsets).await {
            actor.note(format!("cannot commit offsets: {error}"));
            good = false;
        }
    }
    let dies = !actor.scene.stage.is_healed() && actor.chance.hit(actor.spec.abandon);
    if good && dies {
        reached!("a-copy-is-left-open");
        return None;
    }
    if !good || actor.chance.hit(actor.spec.abort) {
        // What it has read it must read again.
        actor.abort(producer, Some(transaction)).await;
        return None;
    }
    let next = actor.commit(producer, transaction).await;
    let committed = {
        let history = actor.scene.history();
        let outcome = history.transactions.transactions[transaction].outcome;
        outcome == crate::history::transactions::Outcome::Committed
    };
    if committed {
        reached!("a-copy-is-committed");
        Some(next)
    } else {
        None
    }
}
