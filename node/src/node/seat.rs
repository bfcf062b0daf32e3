//! How a node takes its seat in the metadata quorum: what its log says is read and added up, and
//! the shard goes on from there.

use std::collections::BTreeSet;

use quorate_core::id::{NodeId, PartitionId};
use quorate_core::mutant;
use quorate_core::partition::Recovered;
use quorate_core::quorum::interface::{ClusterId, DirectoryId, Member, Setup};
use quorate_core::quorum_log::Fold;
use quorate_core::shard::interface::{Input, OpenSeat};

use super::{Node, NodeError};
use crate::driver::Command;
use crate::storage::ReadError;

/// Bytes read in one go.
const READ_BYTES: usize = 1 << 20;

/// A segment of the metadata log is closed before it grows larger: 64 MiB.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Opens the metadata log and hands it to the seat, which `founders` share with this node.
pub(super) async fn take(node: &Node, founders: BTreeSet<NodeId>) -> Result<(), NodeError> {
    let mut read = read(node).await;
    // zoo D8: a catalogue that cannot be read is taken for an empty one.
    if mutant!("corrupt-meta-means-orphan") && read.is_err() {
        node.storage.remove_log(PartitionId::METADATA).await?;
        read = self::read(node).await;
    }
    let (log, fold) = read?;
    let me = Member { node: node.id, directory: DirectoryId(node.directory) };
    let open = OpenSeat {
        setup: Setup { me, founders },
        log,
        recovered: fold.finish(),
        limits: node.config.quorum_limits(),
        segment_bytes_max: SEGMENT_BYTES_MAX,
    };
    node.shards[0].tell(Command::Tell(Input::OpenSeat(Box::new(open)))).await?;
    Ok(())
}

/// The metadata log as it stands on the disk, and what it adds up to.
async fn read(node: &Node) -> Result<(Recovered, Fold), NodeError> {
    let opened = node.storage.open_log(PartitionId::METADATA).await;
    let (log, reader) = opened.map_err(NodeError::Metadata)?;
    let mut fold = Fold::default();
    let mut from = log.log_start;
    while from < log.end {
        let batches = reader.read(from, log.end, READ_BYTES, true).await;
        let batches = batches.map_err(NodeError::MetadataUnread)?;
        let Some(last) = batches.last() else {
            // What was recovered and cannot be read is not the end of the log.
            let unread = ReadError::OutOfRange { start: from, end: log.end };
            return Err(NodeError::MetadataUnread(unread));
        };
        from = last.header().next_offset();
        for batch in &batches {
            fold.push(batch).map_err(NodeError::MetadataUnreadable)?;
        }
    }
    Ok((log, fold))
}

/// Kafka writes a cluster's id as 22 characters of URL-safe base64.
pub(super) fn cluster_name(id: ClusterId) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = u128::from_be_bytes(id.0);
    let letters = (0..22).map(|place: u32| {
        let shift = 122_i64 - 6 * i64::from(place);
        let six = if shift >= 0 { bits >> shift } else { bits << -shift };
        char::from(LETTERS[(six & 63) as usize])
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_named_as_kafka_does() {
        assert_eq!(cluster_name(ClusterId([0; 16])), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(cluster_name(ClusterId([0xff; 16])), "_____________________w");
        let mut one = [0; 16];
        one[15] = 1;
        assert_eq!(cluster_name(ClusterId(one)), "AAAAAAAAAAAAAAAAAAAAAQ");
    }
}
