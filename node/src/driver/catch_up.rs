//! Reads for followers that are far behind: a few at a time, beside the shard's loop, which never
//! waits for them.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use quorate_core::batch::{Batch, Levels};
use quorate_core::id::{NodeId, Offset};
use quorate_core::partition;
use quorate_core::shard::interface::Input;
use tokio::sync::mpsc;

use super::Command;
use super::ask::{ShardClient, Stopped};
use crate::catalog::log::LogHandle;

/// Reads that wait, beyond which they are answered with nothing: leaders ask again.
pub(super) const WAITING_MAX: usize = 4096;

/// A follower's wish: see `partition::interface::Effect::ReadLog`.
pub(super) struct Wanted {
    pub(super) log: Arc<LogHandle>,
    pub(super) to: NodeId,
    pub(super) from: Offset,
    pub(super) up_to: Offset,
    pub(super) bytes_max: usize,
}

/// Where a shard puts them. Dropping it ends the reading.
pub(super) fn start(shard: ShardClient, reads_max: usize) -> mpsc::Sender<Wanted> {
    let (sender, wanted) = mpsc::channel(WAITING_MAX);
    tokio::spawn(serve(shard, wanted, reads_max));
    sender
}

type Reading = Pin<Box<dyn Future<Output = Result<(), Stopped>> + Send>>;

async fn serve(shard: ShardClient, mut wanted: mpsc::Receiver<Wanted>, reads_max: usize) {
    let mut reading = FuturesUnordered::<Reading>::new();
    loop {
        let has_room = reading.len() < reads_max;
        let ended = tokio::select! {
            biased;
            Some(ended) = reading.next(), if !reading.is_empty() => ended,
            next = wanted.recv(), if has_room => match next {
                Some(next) => {
                    reading.push(Box::pin(read(shard.clone(), next)));
                    continue;
                }
                None => return,
            },
        };
        if ended.is_err() {
            return;
        }
    }
}

async fn read(shard: ShardClient, wanted: Wanted) -> Result<(), Stopped> {
    let Wanted { log, to, from, up_to, bytes_max } = wanted;
    let entries = match log.reader.read_with_levels(from, up_to, bytes_max, true).await {
        Ok(entries) => entries,
        Err(error) => {
            // The leader asks again, or sends the follower to where the log begins now.
            tracing::info!(partition = %log.partition, %to, %error, "not read for a follower");
            Vec::new()
        }
    };
    shard.tell(Command::Tell(answer(&log, to, from, up_to, entries))).await
}

/// What a log holds between the offsets; a batch that crosses the end is for the next time.
fn answer(
    log: &LogHandle,
    to: NodeId,
    from: Offset,
    up_to: Offset,
    entries: Vec<(Batch, Levels)>,
) -> Input {
    // What stands for compacted records may reach further here than what the leader still has.
    let part = |(batch, levels): (Batch, Levels)| Some((batch.narrowed(from, up_to)?, levels));
    let mut entries: Vec<_> = entries.into_iter().filter_map(part).collect();
    entries.retain(|(batch, _)| batch.header().next_offset() <= up_to);
    let input = partition::interface::Input::LogRead { to, from, entries };
    Input::Partition { partition: log.partition, input }
}

/// The same for those that there was no room for. They wait for the next round.
#[derive(Default)]
pub(super) struct Unread(VecDeque<Input>);

impl Unread {
    pub(super) fn push(&mut self, wanted: &Wanted) {
        let Wanted { log, to, from, up_to, .. } = wanted;
        self.0.push_back(answer(log, *to, *from, *up_to, Vec::new()));
    }

    /// Any other answer that there was no room to ask for.
    pub(super) fn push_input(&mut self, input: Input) {
        self.0.push_back(input);
    }

    pub(super) fn pop(&mut self) -> Option<Input> {
        self.0.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
