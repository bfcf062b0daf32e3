//! What nodes tell one another, as the trace has it.

use quorate_core::batch::control::Ending;
use quorate_core::partition::interface::Message;
use quorate_core::quorum::message::Body;

use super::transactions::{Done, Errand};

/// What replicas tell one another, for people.
pub(super) fn of_replica(message: &Message) -> String {
    let said = match message {
        Message::Follow(it) => {
            let last = it.last_epoch.map(|epoch| format!(" with e{epoch}")).unwrap_or_default();
            format!("it ends at {}{last}: where do we part? (attempt {})", it.end, it.attempt)
        }
        Message::Lead(it) => {
            let epochs: Vec<String> =
                it.epochs.iter().map(|(epoch, base)| format!("e{epoch} from {base}")).collect();
            let (start, end, high) = (it.log_start, it.end, it.high_watermark);
            format!("it has {start} to {end}, {}, high watermark {high}", epochs.join(", "))
        }
        Message::Replicate(it) => {
            let (count, base, high) = (it.entries.len(), it.base, it.high_watermark);
            let s = if count == 1 { "" } else { "es" };
            format!("{count} batch{s} from {base}, high watermark {high}")
        }
        Message::Replicated(it) => {
            let again = it.resume.map(|from| format!(", go on from {from}")).unwrap_or_default();
            format!("it has all below {}, high watermark {}{again}", it.end, it.high_watermark)
        }
        Message::Confirm(it) => format!("do I lead? (round {})", it.round),
        Message::Confirmed(it) => format!("you lead (round {})", it.round),
    };
    format!("in e{}: {said}", message.leader_epoch())
}

/// What members of the metadata quorum tell one another, for people.
pub(super) fn of_quorum(body: &Body) -> String {
    let entries = |count: usize| if count == 1 { "entry" } else { "entries" };
    match body {
        Body::PreVote { term, last } => format!("would I be elected in {term}? I end at {last}"),
        Body::PreVoteReply { term, granted: true } => format!("you would, in {term}"),
        Body::PreVoteReply { term, granted: false } => format!("you would not, in {term}"),
        Body::Vote { last, transfer: false } => format!("vote for me, I end at {last}"),
        Body::Vote { last, transfer: true } => {
            format!("vote for me as the leader asks, I end at {last}")
        }
        Body::VoteReply { granted: true } => "you have my vote".to_owned(),
        Body::VoteReply { granted: false } => "you do not have my vote".to_owned(),
        Body::Append { previous, entries: new, committed, round } => {
            let (count, what) = (new.len(), entries(new.len()));
            format!("{count} {what} behind {previous}, committed {committed} (round {round})")
        }
        Body::Appended { through, round } => format!("I have all to {through} (round {round})"),
        Body::Mismatch { previous, hint, round } => {
            format!("I do not have {previous}, perhaps {hint} (round {round})")
        }
        Body::Heartbeat { committed, round } => {
            format!("I lead, committed {committed} (round {round})")
        }
        Body::HeartbeatReply { round, through, received } => {
            format!("you lead, I have all to {through}, received {received} (round {round})")
        }
        Body::Chunk { position, bytes_total, offset, data, round, .. } => format!(
            "{} bytes from {offset} of a snapshot of {bytes_total} at {position} (round {round})",
            data.len()
        ),
        Body::ChunkReply { position, received, round } => {
            format!("I have {received} bytes of the snapshot at {position} (round {round})")
        }
        other => format!("{other:?}"),
    }
}

/// What one node asks of another for the sake of a transaction, for people.
pub(super) fn of_errand(errand: &Errand) -> String {
    match errand {
        Errand::Mark(_, marker) => {
            let partition = &marker.partition;
            let how = match marker.ending {
                Ending::Committed => "commits",
                Ending::Aborted => "aborts",
            };
            format!(
                "{how} what {}@{} of {} has in {}-{} (coordinator in e{})",
                marker.producer,
                marker.epoch,
                marker.transactional_id,
                partition.topic,
                partition.partition,
                marker.coordinator_epoch
            )
        }
        Errand::Join { claim, partition, .. } => format!(
            "asks whether {}-{} is in the transaction of {}, who claims to be {}@{}",
            partition.topic,
            partition.partition,
            claim.transactional_id,
            claim.producer,
            claim.epoch
        ),
    }
}

pub(super) fn of_done(done: Done) -> String {
    match done {
        Done::Marked(result) => format!("says of a marker: {result:?}"),
        Done::Joined(Ok(true)) => "says that it is".to_owned(),
        Done::Joined(Ok(false)) => "says that it is not".to_owned(),
        Done::Joined(Err(refusal)) => format!("does not say: {refusal:?}"),
    }
}
