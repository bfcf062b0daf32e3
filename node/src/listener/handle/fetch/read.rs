//! One pass over the partitions of a fetch: what can be read of each right now.

use std::sync::Arc;

use quorate_core::id::{LeaderEpoch, Offset};
use quorate_core::partition::interface::{Isolation, ReadView};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::fetch::{LeaderIdAndEpoch, PartitionData};
use quorate_net::wire::Records;

use super::again::{LogAgain, Steps};
use super::{BY_ID, Terms, TopicKey, Wanted, failure};
use crate::catalog::Log;
use crate::catalog::log::LogHandle;
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
}

/// A partition that can be read, and how far.
struct Readable<'a> {
    wanted: &'a Wanted,
    /// The largest batch that its topic takes.
    batch_bytes_max: usize,
    log: Arc<LogHandle>,
    view: ReadView,
    up_to: Offset,
}

/// Why a partition cannot be read.
#[derive(Clone, Copy)]
struct Refused {
    code: Code,
    /// Where the client should know the leader better: the leader's epoch.
    leader_epoch: Option<LeaderEpoch>,
}

impl From<Code> for Refused {
    fn from(code: Code) -> Self {
        Self { code, leader_epoch: None }
    }
}

impl Readable<'_> {
    fn has_more(&self) -> bool {
        self.wanted.from < self.up_to
    }
}

pub(super) async fn pass(
    node: &Arc<Node>,
    terms: &Terms,
    wanted: &[Wanted],
) -> (Pass, Option<Loan>) {
    let found: Vec<Result<Readable<'_>, Refused>> =
        wanted.iter().map(|wanted| find(node, terms, wanted)).collect();
    let mut loan = match wanted_bytes(terms, &found) {
        Some(bytes) => Some(node.answers.take(bytes).await),
        None => None,
    };
    let permitted = loan.as_ref().map_or(0, Loan::bytes);
    let terms = &Terms { bytes_max: terms.bytes_max.min(permitted), ..*terms };
    let mut pass = Pass::default();
    for (wanted, found) in wanted.iter().zip(found) {
        let read = match found {
            Ok(readable) => {
                let up_to = readable.up_to;
                let read = read(node, terms, &pass, readable, &mut loan).await;
                pass.more |= read.log.is_some() && read.next < up_to;
                read
            }
            Err(refused) => unreadable(node, wanted, refused),
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

fn find<'a>(node: &Node, terms: &Terms, wanted: &'a Wanted) -> Result<Readable<'a>, Refused> {
    let topic = if terms.version >= BY_ID {
        node.catalog.topic(wanted.topic.id).ok_or(Code::UnknownTopicId)?
    } else {
        node.catalog.topic_named(&wanted.topic.name).ok_or(Code::UnknownTopicOrPartition)?
    };
    let partition = topic.partition(wanted.index).ok_or(Code::UnknownTopicOrPartition)?;
    let Log::Open(log) = &partition.log else { return Err(Code::KafkaStorageError.into()) };
    let view = log.view();
    if let Some(code) = epoch_code(wanted.leader_epoch, &view) {
        let leader_epoch = (code == Code::FencedLeaderEpoch).then_some(view.leader_epoch);
        return Err(Refused { code, leader_epoch });
    }
    if wanted.from < view.log_start || wanted.from > view.end {
        return Err(Code::OffsetOutOfRange.into());
    }
    let up_to = match terms.isolation {
        Isolation::ReadUncommitted => view.high_watermark,
        Isolation::ReadCommitted => view.last_stable,
    };
    let batch_bytes_max = topic.rules.batch_bytes_max;
    Ok(Readable { wanted, batch_bytes_max, log: Arc::clone(log), view, up_to })
}

/// Whether the client and this node speak of the same leadership. KIP-320.
pub(crate) fn epoch_code(asked: i32, view: &ReadView) -> Option<Code> {
    if !view.is_leader {
        Some(Code::NotLeaderOrFollower)
    } else if asked < 0 || asked == view.leader_epoch.0 {
        None
    } else if asked < view.leader_epoch.0 {
        Some(Code::FencedLeaderEpoch)
    } else {
        Some(Code::UnknownLeaderEpoch)
    }
}

fn unreadable(node: &Node, wanted: &Wanted, refused: Refused) -> Read {
    let mut data = failure(wanted.index, refused.code);
    if let Some(LeaderEpoch(leader_epoch)) = refused.leader_epoch {
        data.current_leader = LeaderIdAndEpoch { leader_id: node.id.0, leader_epoch };
    }
    Read { topic: wanted.topic.clone(), data, source: None, log: None, next: wanted.from }
}

async fn read(
    node: &Arc<Node>,
    terms: &Terms,
    pass: &Pass,
    readable: Readable<'_>,
    loan: &mut Option<Loan>,
) -> Read {
    let Readable { wanted, batch_bytes_max, log, view, up_to } = readable;
    let mut data = PartitionData {
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
    };
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
                return unreadable(node, wanted, code.into());
            }
        }
    }
    Read { topic: wanted.topic.clone(), data, source, log: Some(log), next }
}

pub(crate) const fn read_code(error: &ReadError) -> Code {
    match error {
        ReadError::OutOfRange { .. } => Code::OffsetOutOfRange,
        ReadError::Rot(_) | ReadError::Io { .. } => Code::KafkaStorageError,
        ReadError::Removed => Code::UnknownTopicOrPartition,
    }
}
