//! The script's words for offsets that are committed in transactions.

use quorate_core::batch::Batch;
use quorate_core::batch::control::{Ending, Marker};
use quorate_core::group::interface::{CommitOffsets, CommitTransactional, Input};
use quorate_core::id::{CoordinatorEpoch, ProducerEpoch, ProducerId, VerificationGuard};
use quorate_core::time::Timestamp;

/// `7@0`.
fn producer(text: &str) -> (ProducerId, ProducerEpoch) {
    let (id, epoch) = text.split_once('@').expect("ID@EPOCH");
    (ProducerId(id.parse().expect("an id")), ProducerEpoch(epoch.parse().expect("an epoch")))
}

/// `commit`, with `in=ID@EPOCH` and perhaps `guard=N`.
pub(crate) fn commit(
    commit: CommitOffsets,
    transaction: Option<&str>,
    guard: Option<u64>,
) -> Input {
    let Some(transaction) = transaction else { return Input::CommitOffsets(commit) };
    let (producer, epoch) = producer(transaction);
    let guard = guard.map(VerificationGuard);
    Input::CommitTransactional(CommitTransactional { commit, producer, epoch, guard })
}

/// `marker commit|abort ID@EPOCH`: what is put into the log, and what the coordinator is told.
pub(crate) fn marker(words: &[&str]) -> (Batch, Input) {
    let (producer, epoch) = producer(words[2]);
    let ending = if words[1] == "commit" { Ending::Committed } else { Ending::Aborted };
    let marker = Marker { ending, coordinator_epoch: CoordinatorEpoch(1) };
    let batch = marker.batch(producer, epoch, Timestamp(1_000_000));
    (batch, Input::TransactionEnded { producer, ending })
}
