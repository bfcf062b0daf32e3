//! A producer: a transaction after the other under an id that others may have as well, each
//! committed, aborted, or left open and forgotten.

use quorate_core::reached;
use quorate_net::client::TransactionalProducer;

use super::super::super::values;
use super::{Actor, BYTES, Next, goes_on};
use crate::history::transactions::{Place, Sent, Topic};

/// Transactions of one life, at most.
const TRANSACTIONS_MAX: u64 = 12;

/// One life.
pub(super) async fn live(actor: &mut Actor, place: u32) {
    let patient = actor.scene.stage.is_healed();
    if patient && !goes_on(&actor.spec, place) {
        actor.scene.stage.done(actor.client);
        return actor.pause(super::LOOK).await;
    }
    let id = format!("x-{}", place % actor.spec.ids);
    let Some((mut producer, life)) = actor.begin_life(&id).await else { return };
    for _ in 0..1 + actor.chance.below(TRANSACTIONS_MAX) {
        // The patience of a client is settled when it is made.
        if actor.is_over() || actor.scene.stage.is_healed() != patient {
            break;
        }
        actor.rest().await;
        if transact(actor, &mut producer, life, place).await == Next::Ends {
            break;
        }
    }
}

async fn transact(
    actor: &mut Actor,
    producer: &mut TransactionalProducer,
    life: usize,
    writer: u32,
) -> Next {
    if let Err(error) = producer.begin() {
        actor.note(format!("cannot begin: {error}"));
        return Next::Ends;
    }
    let now = actor.scene.now().monotonic;
    let transaction = actor.scene.history().begin_transaction(life, now);
    let mut sent = Vec::new();
    for _ in 0..actor.chance.between(actor.spec.records) {
        actor.values += 1;
        let index = actor.chance.below(actor.spec.partitions.into()) as u32;
        let value = values::value(writer, BYTES, actor.values);
        sent.push(Sent { place: Place { topic: Topic::Input, index }, value, copy_of: None });
    }
    if !actor.send(producer, transaction, &sent).await {
        return actor.abort(producer, Some(transaction)).await;
    }
    let healed = actor.scene.stage.is_healed();
    if !healed && actor.chance.hit(actor.spec.abandon) {
        reached!("a-transaction-is-left-open");
        if actor.chance.one_in(2) {
            producer.flush().await;
        }
        return Next::Ends;
    }
    if actor.chance.hit(actor.spec.abort) {
        return actor.abort(producer, Some(transaction)).await;
    }
    actor.commit(producer, transaction).await
}
