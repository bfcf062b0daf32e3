//! The machines' limits in the world of cores, distorted so that edges are met often.

use std::time::Duration;

use quorate_core::controller::interface::Limits as ControllerLimits;
use quorate_core::group::interface::GroupLimits;
use quorate_core::partition::interface::{Limits as PartitionLimits, ReplicationLimits};
use quorate_core::quorum::interface::Limits as QuorumLimits;
use quorate_core::shard::interface::Limits;
use quorate_core::transaction::interface::TransactionLimits;

use crate::chance::Chance;
use crate::plan::Plan;
use crate::workload::members::SESSION;

/// Offsets are looked through often enough for a short run.
const OFFSETS_CHECK: Duration = Duration::from_millis(200);

/// Of every node of a plan.
#[derive(Clone, Debug)]
pub(super) struct Knobs {
    pub(super) limits: Limits,
    pub(super) quorum: QuorumLimits,
    /// Of the metadata log.
    pub(super) segment_bytes_max: u64,
}

impl Knobs {
    pub(super) fn draw(plan: &Plan) -> Self {
        let mut chance = Chance::new(plan.seed, "knobs");
        let chance = &mut chance;
        let replication = ReplicationLimits {
            lag_time_max: Duration::from_secs(*chance.pick(&[1, 3, 10])),
            // Who was away must come nearer while the leader is written to, over slow links too.
            window_bytes: *chance.pick(&[256 << 10, 4 << 20]),
            message_bytes_max: *chance.pick(&[16 << 10, 1 << 20]),
            tail_bytes_max: *chance.pick(&[0, 2 << 10, 1 << 20]),
            epochs_max: *chance.pick(&[1, 3, 1000]),
            ..ReplicationLimits::default()
        };
        let partition = PartitionLimits {
            // Retention looks often enough for a short run.
            retention_check_interval: Duration::from_millis(100),
            // And compaction.
            compaction_check_interval: Duration::from_millis(100),
            snapshot_bytes_min: *chance.pick(&[1 << 10, 1 << 20]),
            replication,
            ..PartitionLimits::default()
        };
        let controller = ControllerLimits {
            balance_interval: Some(Duration::from_secs(*chance.pick(&[1, 5, 60]))),
            replace_after: Some(plan.cluster.replace_after),
            producer_ids_block: *chance.pick(&[1, 10, 1000]),
            ..ControllerLimits::cluster()
        };
        let mut group = GroupLimits {
            session_timeout_min: Duration::from_millis(500),
            initial_rebalance_delay: plan.node.rebalance_delay,
            consumer_session_timeout: SESSION,
            consumer_heartbeat_interval: SESSION / 4,
            ..GroupLimits::default()
        };
        if let Some(retention) = plan.committers.as_ref().and_then(|it| it.retention) {
            group.offsets_retention = retention;
            group.offsets_check_interval = OFFSETS_CHECK;
        }
        let mut transaction = TransactionLimits::default();
        if let Some(spec) = &plan.transactions {
            transaction.marker_patience = spec.marker_patience;
        }
        let quorum = QuorumLimits {
            snapshot_after_bytes: *chance.pick(&[1 << 10, 4 << 10, 16 << 20]),
            entries_kept: *chance.pick(&[2, 50, 1000]),
            chunk_bytes: *chance.pick(&[100, 256 << 10]),
            inflight_max: *chance.pick(&[1, 4, 64]),
            append_bytes_max: *chance.pick(&[1, 1 << 10, 256 << 10]),
            ..QuorumLimits::default()
        };
        quorum.check().expect("limits that a voter can keep to");
        let segment_bytes_max = *chance.pick(&[2000, 64 << 20]);
        Self {
            limits: Limits { partition, group, transaction, controller },
            quorum,
            segment_bytes_max,
        }
    }
}
