//! Groups, their offsets and producer ids.

use quorate_net::kafka::messages::join_group::JoinGroupRequestProtocol;
use quorate_net::kafka::messages::leave_group::MemberIdentity;
use quorate_net::kafka::messages::offset_commit::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use quorate_net::kafka::messages::offset_delete::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use quorate_net::kafka::messages::offset_fetch::OffsetFetchRequestGroup;
use quorate_net::kafka::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest,
    InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest, OffsetCommitRequest,
    OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest,
};

use super::{Case, case, text};

fn find(key_type: i8) -> FindCoordinatorRequest {
    FindCoordinatorRequest { key: text("g"), key_type, ..Default::default() }
}

fn join(group: &str, member: &str, session: i32, kind: &str) -> JoinGroupRequest {
    let metadata = vec![0; 10].into();
    JoinGroupRequest {
        group_id: text(group),
        session_timeout_ms: session,
        rebalance_timeout_ms: 1000,
        member_id: text(member),
        protocol_type: text(kind),
        protocols: vec![JoinGroupRequestProtocol { name: text("range"), metadata }],
        ..Default::default()
    }
}

fn sync(group: &str) -> SyncGroupRequest {
    SyncGroupRequest {
        group_id: text(group),
        generation_id: 1,
        member_id: text("m"),
        protocol_type: Some(text("consumer")),
        protocol_name: Some(text("range")),
        ..Default::default()
    }
}

fn beat(group: &str) -> HeartbeatRequest {
    let (group_id, member_id) = (text(group), text("m"));
    HeartbeatRequest { group_id, generation_id: 1, member_id, ..Default::default() }
}

fn leave(group: &str) -> LeaveGroupRequest {
    let members = vec![MemberIdentity { member_id: text("m"), ..Default::default() }];
    LeaveGroupRequest { group_id: text(group), member_id: text("m"), members }
}

fn commit(group: &str, topic: &str, partition_index: i32, metadata: &str) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition {
        partition_index,
        committed_offset: 5,
        committed_metadata: Some(text(metadata)),
        ..Default::default()
    };
    let (name, partitions) = (text(topic), vec![partition]);
    let topics = vec![OffsetCommitRequestTopic { name, partitions, ..Default::default() }];
    OffsetCommitRequest { group_id: text(group), topics, ..Default::default() }
}

fn fetch(groups: &[&str]) -> OffsetFetchRequest {
    let group = |name: &&str| OffsetFetchRequestGroup {
        group_id: text(name),
        ..OffsetFetchRequestGroup::default()
    };
    OffsetFetchRequest { groups: groups.iter().map(group).collect(), ..Default::default() }
}

fn forget(group: &str, places: &[(&str, i32)]) -> OffsetDeleteRequest {
    let topics = places.iter().map(|&(topic, partition_index)| OffsetDeleteRequestTopic {
        name: text(topic),
        partitions: vec![OffsetDeleteRequestPartition { partition_index }],
    });
    OffsetDeleteRequest { group_id: text(group), topics: topics.collect() }
}

pub(crate) fn cases() -> Vec<Case> {
    let old = OffsetFetchRequest { group_id: text("nobody"), ..Default::default() };
    let mut of_a_member = commit("simple", "d", 0, "");
    (of_a_member.generation_id_or_member_epoch, of_a_member.member_id) = (3, text("m"));
    let mut of_nobody = of_a_member.clone();
    of_nobody.group_id = text("nobody");
    let mut nothing = join("g", "", 10_000, "consumer");
    nothing.protocols.clear();
    let long = "x".repeat(5000);
    let describe = DescribeGroupsRequest { groups: vec![text("nobody")], ..Default::default() };
    let delete = |group: &str| DeleteGroupsRequest { groups_names: vec![text(group)] };
    vec![
        case("find a group", 3, find(0), &[0]),
        case("find something else", 3, find(9), &[42]),
        case("join no group", 5, join("", "", 10_000, "consumer"), &[24]),
        case("join for 10 ms", 5, join("g", "", 10, "consumer"), &[26]),
        case("join for 25 days", 5, join("g", "", i32::MAX, "consumer"), &[26]),
        case("join with no protocols", 5, nothing, &[23]),
        case("join as no kind", 5, join("g", "", 10_000, ""), &[23]),
        case("join as an unknown member", 5, join("g", "m", 10_000, "consumer"), &[25]),
        case("join as nobody", 5, join("g", "", 10_000, "consumer"), &[79]),
        case("join as nobody, long ago", 3, join("h", "", 10_000, "consumer"), &[0]),
        case("sync in no group", 5, sync("nobody"), &[25]),
        case("sync as no member", 5, sync("h"), &[25]),
        case("beat in no group", 4, beat("nobody"), &[25]),
        case("beat in a nameless group", 4, beat(""), &[24]),
        case("leave no group", 4, leave("nobody"), &[0, 25]),
        case("leave as no member, long ago", 2, leave("h"), &[25]),
        case("commit", 8, commit("simple", "d", 0, "m"), &[0]),
        case("commit in version 2", 2, commit("simple", "d", 0, "m"), &[0]),
        case("commit for no topic", 8, commit("simple", "nope", 0, ""), &[3]),
        case("commit for no partition", 8, commit("simple", "d", 99, ""), &[3]),
        case("commit for no group", 8, commit("", "d", 0, ""), &[0]),
        case("commit for a member", 8, of_a_member, &[25]),
        case("commit for a member of no group", 8, of_nobody, &[22]),
        case("commit much metadata", 8, commit("simple", "d", 0, &long), &[12]),
        case("offsets", 8, fetch(&["simple", "nobody"]), &[0, 0, 0, 0]),
        case("offsets of no group", 7, old, &[0]),
        case(
            "forget offsets",
            0,
            forget("simple", &[("d", 0), ("nope", 0), ("d", 99)]),
            &[0, 0, 3],
        ),
        case("commit again", 8, commit("simple", "d", 0, "m"), &[0]),
        case("forget offsets of no group", 0, forget("nobody", &[("d", 0)]), &[69]),
        case("forget offsets of a nameless group", 0, forget("", &[("d", 0)]), &[24]),
        case("describe no group, long ago", 5, describe.clone(), &[0]),
        case("describe no group", 6, describe, &[69]),
        case("delete a group", 2, delete("simple"), &[0]),
        case("delete no group", 3, delete("nobody"), &[69]),
        case("a producer id", 4, InitProducerIdRequest::default(), &[0]),
    ]
}
