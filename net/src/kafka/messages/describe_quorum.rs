//! Who votes on the metadata, who leads, and how far each has come. KIP-595, KIP-836.

pub mod asked;

pub use self::asked::DescribeQuorumRequest;
use super::structs;
use crate::wire::Text;

structs! {
    DescribeQuorumResponse {
        error_code: i16 [0..];
        error_message: Option<Text> [2..];
        topics: Vec<TopicData> [0..];
        /// Where the replicas are reached.
        nodes: Vec<Node> [2..];
    }

    TopicData {
        topic_name: Text [0..];
        partitions: Vec<PartitionData> [0..];
    }

    PartitionData {
        partition_index: i32 [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [2..];
        leader_id: i32 [0..];
        /// The quorum's term.
        leader_epoch: i32 [0..];
        high_watermark: i64 [0..];
        current_voters: Vec<ReplicaState> [0..];
        observers: Vec<ReplicaState> [0..];
    }

    ReplicaState {
        replica_id: i32 [0..];
        replica_directory_id: [u8; 16] [2..];
        /// −1 for unknown.
        log_end_offset: i64 [0..];
        /// When it was heard of last, by the leader's clock; −1 for unknown.
        last_fetch_timestamp: i64 [1..] = -1;
        /// When it had all that the leader had.
        last_caught_up_timestamp: i64 [1..] = -1;
    }

    Node {
        node_id: i32 [2..];
        listeners: Vec<Listener> [2..];
    }

    Listener {
        name: Text [2..];
        host: Text [2..];
        port: u16 [2..];
    }
}
