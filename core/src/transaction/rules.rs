//! Who may do what to a transactional id: each question is a function of the committed state and
//! the request, and gives an answer, or the state that must be in the log before it is true.
//! Kafka's `TransactionCoordinator`, with KIP-360 and KIP-890.

use std::time::Duration;

use super::interface::{AddPartitions, Claim, End, InitProducer, Outcome, Refusal};
use super::state::{EPOCH_MAX, Phase, State, TopicPartition, TransactionVersion};
use crate::batch::control::Ending;
use crate::id::{ProducerEpoch, ProducerId};
use crate::mutant;
use crate::time::Timestamp;

/// What follows from a request.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Nothing changes.
    Answer(Outcome),
    /// Once this is in the log.
    Write(Box<State>, Outcome),
    /// Nothing is wrong but the moment: the last transaction is about to be completed.
    Wait,
}

use Verdict::{Answer, Write};

fn refuse(refusal: Refusal) -> Verdict {
    Answer(Outcome::Refused(refusal))
}

fn write(next: State, outcome: Outcome) -> Verdict {
    Write(Box::new(next), outcome)
}

/// The first producer of a transactional id, or one that comes back after it has expired. A claim
/// to have been somebody is passed over: nobody else is there to be fenced.
pub(super) fn found(init: &InitProducer, now: Timestamp) -> Verdict {
    let Some(producer) = init.fresh else { return Answer(Outcome::NeedsProducerId) };
    let state = State {
        producer,
        epoch: ProducerEpoch(0),
        previous_producer: ProducerId::NONE,
        next_producer: ProducerId::NONE,
        last_epoch: None,
        timeout: init.timeout,
        phase: Phase::Empty,
        partitions: Default::default(),
        updated: now,
        started: Timestamp::NONE,
        version: TransactionVersion::V0,
    };
    write(state, Outcome::Initialized { producer, epoch: ProducerEpoch(0) })
}

pub(super) fn init(state: &State, init: &InitProducer, now: Timestamp) -> Verdict {
    let known = |(producer, epoch): (ProducerId, ProducerEpoch)| {
        // The last rotation may not have been heard of.
        let rotated = producer == state.previous_producer && epoch >= EPOCH_MAX;
        producer == state.producer || rotated
    };
    if !init.current.is_none_or(known) {
        return refuse(Refusal::ProducerFenced);
    }
    match state.phase {
        Phase::PrepareCommit | Phase::PrepareAbort => refuse(Refusal::ConcurrentTransactions),
        // A late question of who is no more must not end what its successor has begun.
        Phase::Ongoing if init.current.is_some_and(|(_, epoch)| epoch != state.epoch) => {
            refuse(Refusal::ProducerFenced)
        }
        // The producer is fenced and its transaction aborted first; the client asks again.
        Phase::Ongoing => {
            let last_epoch = init.current.map(|(_, epoch)| epoch);
            let next = fence(state, last_epoch, now);
            write(next, Outcome::Refused(Refusal::ConcurrentTransactions))
        }
        Phase::Empty | Phase::CompleteCommit | Phase::CompleteAbort => bump(state, init, now),
    }
}

fn bump(state: &State, init: &InitProducer, now: Timestamp) -> Verdict {
    let current = init.current.map(|(_, epoch)| epoch);
    let mut next = State {
        timeout: init.timeout,
        phase: Phase::Empty,
        started: Timestamp::NONE,
        updated: now,
        // Whoever comes without an identity leaves nobody a right to a retry.
        last_epoch: current,
        ..state.clone()
    };
    let is_retry = current.is_some_and(|epoch| epoch != state.epoch);
    if is_retry && current != state.last_epoch {
        return refuse(Refusal::ProducerFenced);
    }
    if is_retry && !state.is_fenced_for_good() {
        // Its last question was answered, and it has not heard so.
        return Answer(Outcome::Initialized { producer: state.producer, epoch: state.epoch });
    }
    if state.is_exhausted() {
        let Some(fresh) = init.fresh else { return Answer(Outcome::NeedsProducerId) };
        next = rotate(next, fresh);
    } else {
        next.epoch = ProducerEpoch(state.epoch.0 + 1);
    }
    let outcome = Outcome::Initialized { producer: next.producer, epoch: next.epoch };
    write(next, outcome)
}

/// The epochs of the producer id are used up: another one takes its place.
fn rotate(state: State, fresh: ProducerId) -> State {
    State { previous_producer: state.producer, producer: fresh, epoch: ProducerEpoch(0), ..state }
}

/// The transaction under way is aborted, and its producer fenced: it has taken too long, or there
/// is a successor. KAFKA-6119. `last_epoch` may learn of it and go on with the next epoch.
pub(super) fn fence(state: &State, last_epoch: Option<ProducerEpoch>, now: Timestamp) -> State {
    // zoo F5: a producer that does not know of the abort goes on in the next transaction.
    let bump = i16::from(!mutant!("timeout-abort-keeps-epoch"));
    State {
        phase: Phase::PrepareAbort,
        epoch: ProducerEpoch(state.epoch.0.saturating_add(bump)),
        last_epoch,
        updated: now,
        // The epoch is above all that the partitions know, as version 2 asks for.
        version: TransactionVersion::V2,
        ..state.clone()
    }
}

pub(super) fn add(
    state: &State,
    asked: &AddPartitions,
    partitions_max: usize,
    now: Timestamp,
) -> Verdict {
    let claim = &asked.claim;
    if state.phase.prepared().is_some() && (claim.producer, claim.epoch) == state.after() {
        return Verdict::Wait;
    }
    if let Err(refusal) = identify(state, claim) {
        return refuse(refusal);
    }
    let added = asked.partitions.iter();
    match state.phase {
        Phase::PrepareCommit | Phase::PrepareAbort => refuse(Refusal::ConcurrentTransactions),
        Phase::Ongoing if added.clone().all(|added| state.partitions.contains(added)) => {
            Answer(Outcome::Added)
        }
        phase => {
            let mut next = State { updated: now, version: asked.version, ..state.clone() };
            if phase != Phase::Ongoing {
                next.phase = Phase::Ongoing;
                next.started = now;
            }
            next.partitions.extend(added.cloned());
            if next.partitions.is_empty() {
                return refuse(Refusal::InvalidRequest);
            }
            if next.partitions.len() > partitions_max {
                return refuse(Refusal::Full);
            }
            write(next, Outcome::Added)
        }
    }
}

/// By what is committed. Whoever acts on the answer holds a guard that a marker invalidates.
pub(super) fn verify(state: &State, claim: &Claim, partitions: &[TopicPartition]) -> Outcome {
    if let Err(refusal) = identify(state, claim) {
        return Outcome::Refused(refusal);
    }
    if state.phase.prepared().is_some() {
        return Outcome::Refused(Refusal::ConcurrentTransactions);
    }
    let within = |partition| state.partitions.contains(partition);
    Outcome::Verified(partitions.iter().map(within).collect())
}

fn identify(state: &State, claim: &Claim) -> Result<(), Refusal> {
    if claim.producer != state.producer {
        return Err(Refusal::InvalidProducerIdMapping);
    }
    if claim.epoch != state.epoch {
        return Err(Refusal::ProducerFenced);
    }
    Ok(())
}

pub(super) fn end(state: &State, end: &End, now: Timestamp) -> Verdict {
    if end.version.bumps_epoch() {
        end_by_epoch(state, end, now)
    } else {
        end_by_state(state, end, now)
    }
}

/// Clients of versions 0 and 1: a retry cannot be told from the end of the next transaction, which
/// has the same epoch (KAFKA-17754). Version 2 is the answer to that.
fn end_by_state(state: &State, end: &End, now: Timestamp) -> Verdict {
    // zoo F6: an epoch that the coordinator never gave.
    let newer = mutant!("endtxn-accepts-newer-epoch") && end.claim.epoch > state.epoch;
    if let Err(refusal) = identify(state, &end.claim)
        && !newer
    {
        return refuse(refusal);
    }
    match state.phase {
        Phase::Ongoing => {
            let next = State {
                phase: Phase::prepare(end.ending),
                updated: now,
                version: end.version,
                ..state.clone()
            };
            ended(next)
        }
        Phase::PrepareCommit
        | Phase::PrepareAbort
        | Phase::CompleteCommit
        | Phase::CompleteAbort => repeat(state, end, now),
        Phase::Empty => refuse(Refusal::InvalidState),
    }
}

/// Every end has an epoch of its own. KIP-890 part 2.
fn end_by_epoch(state: &State, end: &End, now: Timestamp) -> Verdict {
    let Claim { producer, epoch, .. } = end.claim;
    // What its producer calls the transaction whose end is decided, or was. Whoever was replaced
    // by a successor has no such right.
    let owns = state.last_epoch == Some(epoch);
    let bumped = owns && epoch.0.checked_add(1) == Some(state.epoch.0);
    let rotated = owns
        && producer == state.previous_producer
        && epoch == EPOCH_MAX
        && state.epoch == ProducerEpoch(0);
    let is_retry = match state.phase {
        Phase::Empty | Phase::Ongoing => false,
        Phase::PrepareCommit | Phase::PrepareAbort => bumped,
        Phase::CompleteCommit | Phase::CompleteAbort => bumped || rotated,
    };
    if state.phase.prepared().is_some() && (producer, epoch) == state.after() {
        // It ends a transaction that it has not begun: the last one is in the way.
        return refuse(Refusal::ConcurrentTransactions);
    }
    if producer != state.producer && !(rotated && is_retry) {
        return refuse(Refusal::InvalidProducerIdMapping);
    }
    if is_retry {
        return repeat(state, end, now);
    }
    // zoo F6, as above.
    let newer = mutant!("endtxn-accepts-newer-epoch") && epoch > state.epoch;
    if epoch != state.epoch && !newer {
        return refuse(Refusal::ProducerFenced);
    }
    match (state.phase, end.ending) {
        (Phase::PrepareCommit | Phase::PrepareAbort, _) => refuse(Refusal::ProducerFenced),
        // The producer may not know whether any of its batches arrived.
        (Phase::Ongoing, _)
        | (Phase::Empty | Phase::CompleteCommit | Phase::CompleteAbort, Ending::Aborted) => {
            finish(state, end, now)
        }
        (Phase::Empty | Phase::CompleteCommit | Phase::CompleteAbort, Ending::Committed) => {
            refuse(Refusal::InvalidState)
        }
    }
}

fn finish(state: &State, end: &End, now: Timestamp) -> Verdict {
    let mut next = State {
        phase: Phase::prepare(end.ending),
        last_epoch: Some(state.epoch),
        updated: now,
        version: end.version,
        ..state.clone()
    };
    if state.phase != Phase::Ongoing {
        next.started = now;
    }
    if state.is_exhausted() {
        let Some(fresh) = end.fresh else { return Answer(Outcome::NeedsProducerId) };
        next.next_producer = fresh;
    }
    // zoo F2: a late copy of this request ends the next transaction.
    if !mutant!("late-endtxn-ends-next-txn") {
        next.epoch = ProducerEpoch(state.epoch.0.saturating_add(1));
    }
    ended(next)
}

fn ended(next: State) -> Verdict {
    let (producer, epoch) = next.after();
    write(next, Outcome::Ended { producer, epoch })
}

/// The end was decided before: the same again is true, the opposite is not.
fn repeat(state: &State, end: &End, now: Timestamp) -> Verdict {
    if let Some(decided) = state.phase.completed() {
        // zoo F16: to a client that has not heard the answer, this says: not committed.
        if decided != end.ending || mutant!("retry-commit-lied-to") {
            return refuse(Refusal::InvalidState);
        }
        if state.is_fenced_for_good() {
            let Some(fresh) = end.fresh else { return Answer(Outcome::NeedsProducerId) };
            return ended(rotate(State { updated: now, ..state.clone() }, fresh));
        }
        let (producer, epoch) = state.after();
        return Answer(Outcome::Ended { producer, epoch });
    }
    let same = state.phase.prepared() == Some(end.ending);
    refuse(if same { Refusal::ConcurrentTransactions } else { Refusal::InvalidState })
}

/// All partitions have their marker. `None` unless an end is decided.
pub(super) fn complete(state: &State, now: Timestamp) -> Option<State> {
    let phase = match state.phase.prepared()? {
        Ending::Committed => Phase::CompleteCommit,
        Ending::Aborted => Phase::CompleteAbort,
    };
    let (producer, epoch) = state.after();
    let rotated = producer != state.producer;
    Some(State {
        phase,
        producer,
        epoch,
        previous_producer: if rotated { state.producer } else { state.previous_producer },
        next_producer: ProducerId::NONE,
        partitions: Default::default(),
        updated: now,
        ..state.clone()
    })
}

/// Whether nobody has used the id for so long that it may be forgotten.
pub(super) fn is_expired(state: &State, expiration: Duration, today: Timestamp) -> bool {
    let age = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
    state.phase.is_idle() && today.0.saturating_sub(state.updated.0) >= age
}
