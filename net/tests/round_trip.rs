//! Every message in every version: what we write, we read; and `kafka-protocol`, an independent
//! implementation of the same schema, reads the same values and writes the same bytes.

#[path = "round_trip/tree.rs"]
mod tree;

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as oracle;
use kafka_protocol::protocol::{Decodable, Encodable, Message};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use quorate_net::kafka::{ApiKey, Request, Response};
use quorate_net::wire::sample::Source;
use quorate_net::wire::{Reader, Writer};

fn joined(writer: Writer) -> Bytes {
    writer.finish().expect("samples are short").concat().into()
}

/// What the oracle makes of `bytes`: its own bytes for the same value, and the value's fields.
type Told = Option<(Bytes, String)>;

fn ask<M: Decodable + Encodable + Message + Debug>(bytes: &Bytes, version: i16) -> Told {
    if version < M::VERSIONS.min || version > M::VERSIONS.max {
        return None;
    }
    let mut rest = bytes.clone();
    let value = M::decode(&mut rest, version)
        .unwrap_or_else(|error| panic!("the oracle refuses version {version}: {error:#}"));
    assert!(rest.is_empty(), "the oracle leaves {} bytes of version {version}", rest.len());
    let mut again = BytesMut::new();
    value.encode(&mut again, version).expect("what was decoded can be encoded");
    Some((again.freeze(), format!("{value:?}")))
}

macro_rules! oracles {
    ($($name:ident: $request:ident, $response:ident;)*) => {
        fn ask_request(key: ApiKey, bytes: &Bytes, version: i16) -> Told {
            match key {
                $(ApiKey::$name => ask::<oracle::$request>(bytes, version),)*
            }
        }

        fn ask_response(key: ApiKey, bytes: &Bytes, version: i16) -> Told {
            match key {
                $(ApiKey::$name => ask::<oracle::$response>(bytes, version),)*
            }
        }
    };
}

oracles! {
    Produce: ProduceRequest, ProduceResponse;
    Fetch: FetchRequest, FetchResponse;
    ListOffsets: ListOffsetsRequest, ListOffsetsResponse;
    Metadata: MetadataRequest, MetadataResponse;
    OffsetCommit: OffsetCommitRequest, OffsetCommitResponse;
    OffsetFetch: OffsetFetchRequest, OffsetFetchResponse;
    FindCoordinator: FindCoordinatorRequest, FindCoordinatorResponse;
    JoinGroup: JoinGroupRequest, JoinGroupResponse;
    Heartbeat: HeartbeatRequest, HeartbeatResponse;
    LeaveGroup: LeaveGroupRequest, LeaveGroupResponse;
    SyncGroup: SyncGroupRequest, SyncGroupResponse;
    DescribeGroups: DescribeGroupsRequest, DescribeGroupsResponse;
    ListGroups: ListGroupsRequest, ListGroupsResponse;
    ApiVersions: ApiVersionsRequest, ApiVersionsResponse;
    CreateTopics: CreateTopicsRequest, CreateTopicsResponse;
    DeleteTopics: DeleteTopicsRequest, DeleteTopicsResponse;
    DeleteRecords: DeleteRecordsRequest, DeleteRecordsResponse;
    InitProducerId: InitProducerIdRequest, InitProducerIdResponse;
    OffsetForLeaderEpoch: OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse;
    AddPartitionsToTxn: AddPartitionsToTxnRequest, AddPartitionsToTxnResponse;
    AddOffsetsToTxn: AddOffsetsToTxnRequest, AddOffsetsToTxnResponse;
    EndTxn: EndTxnRequest, EndTxnResponse;
    WriteTxnMarkers: WriteTxnMarkersRequest, WriteTxnMarkersResponse;
    TxnOffsetCommit: TxnOffsetCommitRequest, TxnOffsetCommitResponse;
    DescribeConfigs: DescribeConfigsRequest, DescribeConfigsResponse;
    AlterConfigs: AlterConfigsRequest, AlterConfigsResponse;
    DescribeLogDirs: DescribeLogDirsRequest, DescribeLogDirsResponse;
    CreatePartitions: CreatePartitionsRequest, CreatePartitionsResponse;
    DeleteGroups: DeleteGroupsRequest, DeleteGroupsResponse;
    IncrementalAlterConfigs: IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse;
    DescribeCluster: DescribeClusterRequest, DescribeClusterResponse;
    AlterPartitionReassignments:
        AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse;
    ListPartitionReassignments:
        ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse;
    ElectLeaders: ElectLeadersRequest, ElectLeadersResponse;
    OffsetDelete: OffsetDeleteRequest, OffsetDeleteResponse;
    DescribeQuorum: DescribeQuorumRequest, DescribeQuorumResponse;
    UpdateFeatures: UpdateFeaturesRequest, UpdateFeaturesResponse;
    UnregisterBroker: UnregisterBrokerRequest, UnregisterBrokerResponse;
    DescribeProducers: DescribeProducersRequest, DescribeProducersResponse;
    DescribeTransactions: DescribeTransactionsRequest, DescribeTransactionsResponse;
    ListTransactions: ListTransactionsRequest, ListTransactionsResponse;
    ConsumerGroupHeartbeat: ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse;
    ConsumerGroupDescribe: ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse;
    AddRaftVoter: AddRaftVoterRequest, AddRaftVoterResponse;
    RemoveRaftVoter: RemoveRaftVoterRequest, RemoveRaftVoterResponse;
    DescribeTopicPartitions: DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse;
}

/// Our value against our own reading of its bytes, then against the oracle's. Says whether the
/// oracle knew the version.
fn agree<V: Debug + PartialEq>(
    value: &V,
    bytes: &Bytes,
    read: impl Fn(&mut Reader<'_>) -> V,
    told: Told,
) -> bool {
    let mut reader = Reader::new(bytes);
    assert_eq!(read(&mut reader), *value);
    assert_eq!(reader.remaining(), 0);
    let Some((again, fields)) = told else { return false };
    assert_eq!(again, *bytes, "the oracle writes other bytes for {fields}");
    let ours = format!("{value:?}");
    // Ours says `Request::Name(NameRequest { .. })`.
    assert_eq!(tree::parse(&ours).into_inner(), tree::parse(&fields));
    true
}

fn request_agrees(key: ApiKey, source: &[u8], version: i16) -> bool {
    let value = Request::sample(key, &mut Source::new(source), version);
    let mut writer = Writer::new();
    value.encode(&mut writer, version);
    let bytes = joined(writer);
    let read = |reader: &mut Reader<'_>| {
        Request::decode(key, reader, version).expect("what we write we read")
    };
    agree(&value, &bytes, read, ask_request(key, &bytes, version))
}

fn response_agrees(key: ApiKey, source: &[u8], version: i16) -> bool {
    let value = Response::sample(key, &mut Source::new(source), version);
    let mut writer = Writer::new();
    value.encode(&mut writer, version);
    let bytes = joined(writer);
    let read = |reader: &mut Reader<'_>| {
        Response::decode(key, reader, version).expect("what we write we read")
    };
    agree(&value, &bytes, read, ask_response(key, &bytes, version))
}

/// All that we speak.
fn everything() -> Vec<(ApiKey, i16)> {
    ApiKey::ALL.iter().flat_map(|key| key.versions().map(|version| (*key, version))).collect()
}

#[test]
fn the_emptiest_and_a_full_message_of_every_version() {
    let full: Vec<u8> = (0..4096u32).map(|place| (place * 7 % 251) as u8 | 1).collect();
    let mut unknown = Vec::new();
    for (key, version) in everything() {
        for source in [&[][..], &full] {
            let request = request_agrees(key, source, version);
            let response = response_agrees(key, source, version);
            if !request || !response {
                unknown.push((key, version));
            }
        }
    }
    unknown.dedup();
    // These are younger than the oracle. ListOffsets 11 has the bytes of version 10, DeleteGroups 3
    // a message at each result, WriteTxnMarkers 2 the transaction version at each marker; the
    // others have topics by id.
    let younger = [
        (ApiKey::ListOffsets, 11),
        (ApiKey::OffsetCommit, 10),
        (ApiKey::OffsetFetch, 10),
        (ApiKey::WriteTxnMarkers, 2),
        (ApiKey::DeleteGroups, 3),
    ];
    assert_eq!(unknown, younger);
}

/// Failures are kept beside the test, and tried first the next time.
fn config() -> ProptestConfig {
    let kept = FileFailurePersistence::Direct("tests/round_trip/regressions.txt");
    ProptestConfig {
        cases: 4000,
        failure_persistence: Some(Box::new(kept)),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_message(
        (key, version) in prop::sample::select(everything()),
        source in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        request_agrees(key, &source, version);
        response_agrees(key, &source, version);
    }
}
