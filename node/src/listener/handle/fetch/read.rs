//! One pass over the partitions of a fetch: what can be read of each right now.

use std::sync::Arc;

use quorate_core::id::{NodeId, Offset};
use quorate_core::partition::interface::{Assignment, Isolation, ReadView};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::fetch::{AbortedTransaction, LeaderIdAndEpoch, PartitionData};
use quorate_net::wire::Records;

use super::aborted::aborted;
use super::again::{LogAgain, Steps};
use super::{BY_ID, FROM_FOLLOWERS, Terms, TopicKey, Wanted, failure};
use crate::catalog::log::LogHandle;
use crate::catalog::{State, Topic};
use crate::listener::handle::place::{epoch_code, leader_code, names_leader, open};
use crate::listener::lending::Loan;
use crate::listener::output::Source;
use crate::node::Node;
use crate::storage::ReadError;

/// What one partition has for the client.
pub(crate) struct Read {
    pub(crate) topic: TopicKey,
    pub(crate) data: PartitionData,
    /// Where its records can be read again; `None` without records.
    pub(crate) source: Option<Source>,
    /// `None` where it cannot be read at all.
    pub(crate) log: Option<Arc<LogHandle>>,
    /// Where the client will read on.
    pub(crate) next: Offset,
}

#[derive(Default)]
pub(crate) struct Pass {
    /// In the order in which they are wanted.
    pub(crate) reads: Vec<Read>,
    /// Bytes of records.
    pub(crate) bytes: usize,
    /// A partition has an error: the client should hear of it at once.
    pub(crate) failed: bool,
    /// A partition had more than the request may take of it: waiting would not add to it.
    pub(crate) more: bool,
    /// A partition is better read elsewhere: the client should go there at once.
    pub(crate) sent_away: bool,
}

/// A partition that can be read, and how far.
pub(in crate::listener::handle) struct Readable<'a> {
    wanted: &'a Wanted,
    /// The largest batch that its topic takes.
    batch_bytes_max: usize,
    log: Arc<LogHandle>,
    view: ReadView,
    up_to: Offset,
    /// A replica that is nearer to the client; nothing is read for it here then.
    nearer: Option<NodeId>,
}

/// Why a partition cannot be read.
pub(in crate::listener::handle) struct Refused {
    pub(in crate::listener::handle) code: Code,
    /// Where the client should know the leader better: who leads.
    pub(in crate::listener::handle) leader: LeaderIdAndEpoch,
}

impl From<Code> for Refused {
    fn from(code: Code) -> Self {
        Self { code, leader: LeaderIdAndEpoch::default() }
    }
}

impl Refused {
    fn new(code: Code, assignment: &Assignment) -> Self {
        if !names_leader(code) {
            return code.into();
        }
        let leader_id = assignment.leader.map_or(-1, |leader| leader.0);
        let leader_epoch = assignment.leader_epoch.0;
        Self { code, leader: LeaderIdAndEpoch { leader_id, leader_epoch } }
    }
}

impl Readable<'_> {
    fn has_more(&self) -> bool {
        self.wanted.from < self.up_to && self.nearer.is_none()
    }
}

pub(super) async fn pass(
    node: &Arc<Node>,
    terms: &Terms,
    wanted: &[Wanted],
) -> (Pass, Option<Loan>) {
    let found: Vec<Result<Readable<'_>, Refused>> = {
        let state = node.catalog.read();
        wanted.iter().map(|wanted| find(&state, node.id, terms, wanted)).collect()
    };
    let mut loan = match wanted_bytes(terms, &found) {
        Some(bytes) => Some(node.answers.take(bytes).await),
        None => None,
    };
    let permitted = loan.as_ref().map_or(0, Loan::bytes);
    let terms = &Terms { bytes_max: terms.bytes_max.min(permitted), ..terms.clone() };
    let mut pass = Pass::default();
    for (wanted, found) in wanted.iter().zip(found) {
        let read = match found {
            Ok(Readable { nearer: Some(nearer), wanted, view, .. }) => {
                pass.sent_away = true;
                send_away(terms, wanted, &view, nearer)
            }
            Ok(readable) => {
                let up_to = readable.up_to;
                let read = read(node, terms, &pass, readable, &mut loan).await;
                pass.more |= read.log.is_some() && read.next < up_to;
                read
            }
            Err(refused) => unreadable(wanted, refused),
        };
        pass.failed |= read.data.error_code != Code::None.code();
        pass.bytes += read.data.records.as_ref().map_or(0, Records::len);
        pass.reads.push(read);
    }
    // What was asked for and not filled goes back at once.
    if let Some(loan) = &mut loan {
        loan.shrink(pass.bytes);
    }
    (pass, loan.filter(|loan| loan.bytes() > 0))
}

/// Bytes that may be read; `None` where nothing is there to read.
fn wanted_bytes(terms: &Terms, found: &[Result<Readable<'_>, Refused>]) -> Option<usize> {
    let more = found.iter().flatten().filter(|readable| readable.has_more());
    let mut more = more.map(|readable| readable.wanted.bytes_max).peekable();
    more.peek()?;
    // The first batch goes out even if nothing was asked for.
    Some(more.fold(0, usize::saturating_add).min(terms.bytes_max).max(1))
}

pub(in crate::listener::handle) fn find<'a>(
    state: &State,
    node: NodeId,
    terms: &Terms,
    wanted: &'a Wanted,
) -> Result<Readable<'a>, Refused> {
    let topic = if terms.version >= BY_ID {
        state.topic(wanted.topic.id).ok_or(Code::UnknownTopicId)?
    } else {
        state.topic_named(&wanted.topic.name).ok_or(Code::UnknownTopicOrPartition)?
    };
    let partition = topic.partition(wanted.index).ok_or(Code::UnknownTopicOrPartition)?;
    let refuse = |code| Refused::new(code, &partition.assignment);
    let log = open(partition).map_err(refuse)?;
    let view = log.view();
    let code = if terms.version >= FROM_FOLLOWERS {
        epoch_code(wanted.leader_epoch, &view)
    } else {
        leader_code(wanted.leader_epoch, &view)
    };
    if let Some(code) = code {
        return Err(refuse(code));
    }
    // A follower that lacks what the client has read elsewhere says so too: the client goes back
    // to the leader then.
    if wanted.from < view.log_start || wanted.from > view.end {
        return Err(Code::OffsetOutOfRange.into());
    }
    let up_to = match terms.isolation {
        Isolation::ReadUncommitted => view.high_watermark,
        Isolation::ReadCommitted => view.last_stable,
    };
    let nearer = nearer(state, node, terms, wanted, topic, &view);
    let batch_bytes_max = topic.rules.batch_bytes_max;
    Ok(Readable { wanted, batch_bytes_max, log: Arc::clone(log), view, up_to, nearer })
}

/// The replica that the client should read from, if it is nearer than the leader: one in the
/// client's rack. Who is in sync has all that is committed, so the client's place is there.
/// KIP-392.
pub(in crate::listener::handle) fn nearer(
    state: &State,
    node: NodeId,
    terms: &Terms,
    wanted: &Wanted,
    topic: &Topic,
    view: &ReadView,
) -> Option<NodeId> {
    let rack = terms.rack.as_deref()?;
    let is_near = |id: &&NodeId| {
        state.image.node(**id).is_some_and(|found| found.rack.as_deref() == Some(rack))
    };
    if !view.is_leader || wanted.from > view.high_watermark || is_near(&&node) {
        return None;
    }
    let in_sync = &topic.partition(wanted.index)?.assignment.in_sync;
    let near: Vec<&NodeId> = in_sync.iter().filter(is_near).collect();
    // The partitions of a topic are spread over those that are as near.
    let place = usize::try_from(wanted.index).ok()?.checked_rem(near.len())?;
    Some(*near[place])
}

fn unreadable(wanted: &Wanted, refused: Refused) -> Read {
    let mut data = failure(wanted.index, refused.code);
    data.current_leader = refused.leader;
    Read { topic: wanted.topic.clone(), data, source: None, log: None, next: wanted.from }
}

fn send_away(terms: &Terms, wanted: &Wanted, view: &ReadView, nearer: NodeId) -> Read {
    let mut data = about(terms, wanted, view);
    data.preferred_read_replica = nearer.0;
    Read { topic: wanted.topic.clone(), data, source: None, log: None, next: wanted.from }
}

/// The answer without records.
fn about(terms: &Terms, wanted: &Wanted, view: &ReadView) -> PartitionData {
    PartitionData {
        partition_index: wanted.index,
        high_watermark: view.high_watermark.0,
        last_stable_offset: view.last_stable.0,
        log_start_offset: view.log_start.0,
        aborted_transactions: match terms.isolation {
            Isolation::ReadUncommitted => None,
            Isolation::ReadCommitted => Some(Vec::new()),
        },
        records: Some(Records::default()),
        ..PartitionData::default()
    }
}

async fn read(
    node: &Arc<Node>,
    terms: &Terms,
    pass: &Pass,
    readable: Readable<'_>,
    loan: &mut Option<Loan>,
) -> Read {
    let Readable { wanted, batch_bytes_max, log, view, up_to, nearer: _ } = readable;
    let mut data = about(terms, wanted, &view);
    let mut next = wanted.from;
    let mut source = None;
    // By what is lent now: a loan for one whole batch may have taken the place of a larger one.
    let lent = loan.as_ref().map_or(0, Loan::bytes).min(terms.bytes_max);
    let room = lent.saturating_sub(pass.bytes).min(wanted.bytes_max);
    // The first batch of an answer goes out whatever its size, or a reader would never pass it.
    let at_least_one = pass.bytes == 0;
    if wanted.from < up_to && (room > 0 || at_least_one) {
        let mut found = log.reader.read(wanted.from, up_to, room, false).await;
        if at_least_one && found.as_ref().is_ok_and(Vec::is_empty) {
            // Memory first, the batch after it: the one permit is for the one batch then.
            *loan = None;
            *loan = Some(node.answers.take_whole(batch_bytes_max).await);
            found = log.reader.read(wanted.from, up_to, room, true).await;
        }
        match found {
            Ok(batches) => {
                let end = batches.last().map_or(wanted.from, |last| last.header().next_offset());
                let batches = match leave_out(terms, &log, &view, wanted.from, end).await {
                    Ok(Told::Nothing) => batches,
                    Ok(Told::Aborted(transactions)) => {
                        data.aborted_transactions = Some(transactions);
                        batches
                    }
                    // Asked again at once, it finds what is left.
                    Ok(Told::Changed) => Vec::new(),
                    Err(code) => return unreadable(wanted, code.into()),
                };
                let mut records = Records::default();
                let mut steps = Steps::default();
                // Any codec to any version, as Kafka since 4.0: rskafka reads zstd by Fetch v4.
                for batch in batches {
                    next = batch.header().next_offset();
                    steps.pass(&batch);
                    records.extend(batch.chunks());
                }
                if !records.is_empty() {
                    let again = LogAgain::new(node, &log, batch_bytes_max);
                    source = Some(Source { again: Arc::new(again), steps: steps.into() });
                }
                data.records = Some(records);
            }
            Err(error) => {
                let code = read_code(&error);
                if code == Code::KafkaStorageError {
                    tracing::error!(partition = %log.partition, "{error}");
                }
                return unreadable(wanted, code.into());
            }
        }
    }
    Read { topic: wanted.topic.clone(), data, source, log: Some(log), next }
}

/// What a reader is to leave out.
enum Told {
    /// It reads everything.
    Nothing,
    Aborted(Vec<AbortedTransaction>),
    /// The log is not any more what was read.
    Changed,
}

async fn leave_out(
    terms: &Terms,
    log: &LogHandle,
    view: &ReadView,
    from: Offset,
    next: Offset,
) -> Result<Told, Code> {
    if terms.isolation == Isolation::ReadUncommitted || from >= next {
        return Ok(Told::Nothing);
    }
    Ok(aborted(log, view, (from, next)).await?.map_or(Told::Changed, Told::Aborted))
}

pub(crate) const fn read_code(error: &ReadError) -> Code {
    match error {
        ReadError::OutOfRange { .. } => Code::OffsetOutOfRange,
        ReadError::Rot(_) | ReadError::Io { .. } => Code::KafkaStorageError,
        ReadError::Removed => Code::UnknownTopicOrPartition,
        // Another node leads: look again who.
        ReadError::Cut | ReadError::Replaced => Code::NotLeaderOrFollower,
    }
}
