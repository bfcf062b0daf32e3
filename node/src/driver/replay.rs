//! Feeds a log to the coordinator whose truth it is, from its start to where it ended when this
//! node began to lead it.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::mutant;
use quorate_core::partition::interface::ReadView;
use quorate_net::clock::Clock;

use super::Command;
use super::ask::{ShardClient, Stopped};
use crate::catalog::log::LogHandle;
use crate::halt::Halt;
use crate::storage::ReadError;

/// Bytes read in one go.
const READ_BYTES: usize = 1 << 20;
/// What a follower was sent last may be on its way to the segments when it is elected. That takes
/// no longer than a write.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// One reading of one log.
pub(super) struct Replay {
    pub(super) log: Arc<LogHandle>,
    /// The log as it was when the coordinator was elected.
    pub(super) view: ReadView,
    /// Tells this reading from one for an earlier election, of which batches may be on their way.
    pub(super) number: u64,
    pub(super) shard: ShardClient,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) halt: Arc<Halt>,
}

enum Failed {
    Stopped,
    Read(ReadError),
}

impl From<Stopped> for Failed {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl Replay {
    pub(super) fn start(self) {
        tokio::spawn(async move {
            match self.feed().await {
                // A machine counts its replays: each has an end, one that nobody waits for, too.
                Ok(()) | Err(Failed::Read(ReadError::Removed | ReadError::Cut)) => {
                    // The node stops if nobody hears it.
                    let _ = self.tell(None).await;
                }
                Err(Failed::Stopped) => {}
                Err(Failed::Read(error)) => {
                    // Going on without a part of what was decided would be a lie.
                    let partition = self.log.partition;
                    self.halt.halt(&format!("log {partition} could not be replayed: {error}"));
                }
            }
        });
    }

    async fn feed(&self) -> Result<(), Failed> {
        let (mut from, end) = (self.view.log_start, self.view.end);
        while from < end {
            let batches = match self.log.reader.read(from, end, READ_BYTES, true).await {
                Ok(batches) => batches,
                // Retention or delete-records was faster: what is gone is not needed.
                Err(ReadError::OutOfRange { start, .. }) if start > from => {
                    from = start;
                    continue;
                }
                // Another leader's log is being taken over: nobody waits for this.
                Err(_) if !self.still_leads() => return Ok(()),
                Err(error) => return Err(Failed::Read(error)),
            };
            let mut batches = batches;
            // zoo G12: where compaction left nothing, there is nothing to go on from.
            if mutant!("load-loops-on-gap") {
                batches.retain(|batch| !batch.is_empty());
            }
            let Some(last) = batches.last() else {
                if !self.still_leads() {
                    return Ok(());
                }
                if self.halt.is_halted() {
                    return Err(Failed::Stopped);
                }
                self.clock.sleep(LOOK_AGAIN).await;
                continue;
            };
            from = last.header().next_offset();
            for batch in batches {
                self.tell(Some(batch)).await?;
            }
        }
        Ok(())
    }

    async fn tell(&self, batch: Option<quorate_core::batch::Batch>) -> Result<(), Failed> {
        let (partition, number) = (self.log.partition, self.number);
        Ok(self.shard.tell(Command::Replayed { partition, number, batch }).await?)
    }

    fn still_leads(&self) -> bool {
        let now = self.log.view();
        now.is_leader && now.leader_epoch == self.view.leader_epoch
    }
}
