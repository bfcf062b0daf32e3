//! Feeds a log to the coordinator or controller whose truth it is, from its start to its end.

use std::sync::Arc;

use quorate_core::shard::interface::Input;

use super::Command;
use super::ask::{ShardClient, Stopped};
use crate::catalog::log::LogHandle;
use crate::halt::Halt;
use crate::storage::ReadError;

/// Bytes read in one go.
const READ_BYTES: usize = 1 << 20;

pub(super) fn start(log: Arc<LogHandle>, shard: ShardClient, halt: Arc<Halt>) {
    tokio::spawn(async move {
        match feed(&log, &shard).await {
            Ok(()) | Err(Failed::Stopped | Failed::Read(ReadError::Removed)) => {}
            Err(Failed::Read(error)) => {
                // Going on without a part of what was decided would be a lie.
                halt.halt(&format!("log {} could not be replayed: {error}", log.partition));
            }
        }
    });
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

async fn feed(log: &LogHandle, shard: &ShardClient) -> Result<(), Failed> {
    let partition = log.partition;
    let (mut from, end) = log.opened_with;
    while from < end {
        let batches = match log.reader.read(from, end, READ_BYTES, true).await {
            Ok(batches) => batches,
            // Retention or delete-records was faster: what is gone is not needed.
            Err(ReadError::OutOfRange { start, .. }) if start > from => {
                from = start;
                continue;
            }
            Err(error) => return Err(Failed::Read(error)),
        };
        let Some(last) = batches.last() else {
            // What was recovered and cannot be read is not the end of the log.
            return Err(Failed::Read(ReadError::OutOfRange { start: from, end }));
        };
        from = last.header().next_offset();
        for batch in batches {
            shard.tell(Command::Tell(Input::Replayed { partition, batch })).await?;
        }
    }
    shard.tell(Command::Tell(Input::ReplayEnded { partition })).await?;
    Ok(())
}
