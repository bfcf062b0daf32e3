//! States that only a recovery leaves behind, and what a replica makes of them.

use quorate_core::batch::{BatchBuilder, Codec, Levels};
use quorate_core::id::{LeaderEpoch, NodeId, Offset, RequestId};
use quorate_core::machine::Machine;
use quorate_core::partition::interface::{
    Acks, Assignment, Effect, Input, LogOp, PartitionConfig, Produce,
};
use quorate_core::partition::{Recovered, Replica};
use quorate_core::time::{Instant, Now, Timestamp};

fn batch(offset: i64) -> quorate_core::batch::Batch {
    let mut builder = BatchBuilder::new(Codec::None);
    builder.append(Timestamp(1), None, Some(b"value"), []);
    let mut batch = builder.build();
    batch.stamp(Offset(offset), LeaderEpoch(1));
    batch
}

/// A power loss may keep a raised start and lose the roll behind it: then the active segment holds
/// bytes and no record to keep. It goes with the next roll, and the size by which retention deletes
/// must not count it any more (found in review).
#[test]
fn an_emptied_active_segment_leaves_the_size_with_the_roll() {
    let mut recovered = Recovered::default();
    recovered.apply(&batch(0), 1000).expect("the first batch");
    recovered.delete_before(Offset(1));
    assert_eq!(
        (recovered.log_start, recovered.end, recovered.bytes()),
        (Offset(1), Offset(1), 1000)
    );
    let node = NodeId(1);
    let config = PartitionConfig { segment_bytes_max: 1024, ..PartitionConfig::default() };
    let assignment = Assignment {
        leader_epoch: LeaderEpoch(1),
        leader: Some(node),
        replicas: vec![node],
        in_sync: vec![node],
        ..Assignment::default()
    };
    let mut replica = Replica::new(node, recovered, config, assignment, Default::default());
    let now = Now { monotonic: Instant::ZERO, wall: Timestamp(1) };
    let produce = Produce {
        request: RequestId(1),
        batch: batch(0),
        levels: Levels::default(),
        acks: Acks::All,
        until: Instant::from_micros(1),
        guard: None,
    };
    let mut effects = Vec::new();
    replica.step(now, Input::Produce(produce), &mut effects);
    let rolled = |effect: &Effect| matches!(effect, Effect::Write { op: LogOp::Roll { .. }, .. });
    assert!(effects.iter().any(rolled), "{effects:?}");
    replica.check();
}

/// What ListOffsets tells of the start is the epoch of the record there, whoever leads by now: a
/// consumer that took the present one for its position's would take all later records for stale
/// (zoo H3).
#[test]
fn the_epoch_at_the_start_is_the_records_not_the_leaders() {
    let mut recovered = Recovered::default();
    recovered.apply(&batch(0), 100).expect("the first batch");
    let node = NodeId(1);
    let assignment = Assignment {
        leader_epoch: LeaderEpoch(4),
        leader: Some(node),
        replicas: vec![node],
        in_sync: vec![node],
        ..Assignment::default()
    };
    let open = |recovered| {
        let config = PartitionConfig::default();
        Replica::new(node, recovered, config, assignment.clone(), Default::default())
    };
    assert_eq!(open(recovered).view().start_epoch, LeaderEpoch(1));
    assert_eq!(open(Recovered::default()).view().start_epoch, LeaderEpoch(4), "nothing is there");
}
