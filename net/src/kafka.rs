//! Kafka's protocol: the one table of the requests we speak and in which versions, and what
//! follows from it. Facts: Kafka 4.4's message schema; version ranges: docs/decisions/0023.

pub mod error;
pub mod frame;
pub mod header;
pub mod messages;

use std::fmt;
use std::ops::RangeInclusive;

#[cfg(feature = "sample")]
use crate::wire::sample::{Sample, Source};
use crate::wire::{Form, Reader, Value, WireError, Writer};
use messages as m;

/// The top of a request or response: what the table lists.
pub trait Message: Value + Default + Clone + fmt::Debug + PartialEq {
    const KEY: ApiKey;

    /// Reads the body that follows the header. Bytes after it are left alone, as Kafka does.
    fn decode(reader: &mut Reader<'_>, version: i16) -> Result<Self, WireError> {
        Self::read(reader, Self::KEY.form(version))
    }

    /// Writes the body. Fields that `version` does not have are left out.
    fn encode(&self, writer: &mut Writer, version: i16) {
        self.write(writer, Self::KEY.form(version));
    }
}

/// A request, and what answers it.
pub trait Call: Message {
    type Response: Message;
}

/// Rows are `Name = key, versions we speak, first flexible version, lowest version advertised`.
macro_rules! apis {
    ($(
        $name:ident = $key:literal, $versions:expr, flexible $flexible:literal,
        advertised from $advertised:literal: $request:ident => $response:ident;
    )*) => {
        /// What a request asks for. The numbers are Kafka's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {
            $($name = $key,)*
        }

        impl ApiKey {
            /// All that we speak, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The key of this number, if we speak it.
            #[must_use]
            pub const fn from_code(code: i16) -> Option<Self> {
                match code {
                    $($key => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The versions that we read and write.
            #[must_use]
            pub const fn versions(self) -> RangeInclusive<i16> {
                match self {
                    $(Self::$name => $versions,)*
                }
            }

            const fn flexible_from(self) -> i16 {
                match self {
                    $(Self::$name => $flexible,)*
                }
            }

            const fn advertised_from(self) -> i16 {
                match self {
                    $(Self::$name => $advertised,)*
                }
            }
        }

        /// A request of any kind.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(clippy::large_enum_variant)]
        pub enum Request {
            $($name(m::$request),)*
        }

        impl Request {
            pub fn decode(
                key: ApiKey,
                reader: &mut Reader<'_>,
                version: i16,
            ) -> Result<Self, WireError> {
                match key {
                    $(ApiKey::$name => {
                        m::$request::decode(reader, version).map(Self::$name)
                    })*
                }
            }

            pub fn encode(&self, writer: &mut Writer, version: i16) {
                match self {
                    $(Self::$name(body) => body.encode(writer, version),)*
                }
            }

            #[must_use]
            pub const fn key(&self) -> ApiKey {
                match self {
                    $(Self::$name(_) => ApiKey::$name,)*
                }
            }
        }

        /// A response of any kind.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(clippy::large_enum_variant)]
        pub enum Response {
            $($name(m::$response),)*
        }

        impl Response {
            pub fn decode(
                key: ApiKey,
                reader: &mut Reader<'_>,
                version: i16,
            ) -> Result<Self, WireError> {
                match key {
                    $(ApiKey::$name => {
                        m::$response::decode(reader, version).map(Self::$name)
                    })*
                }
            }

            pub fn encode(&self, writer: &mut Writer, version: i16) {
                match self {
                    $(Self::$name(body) => body.encode(writer, version),)*
                }
            }

            #[must_use]
            pub const fn key(&self) -> ApiKey {
                match self {
                    $(Self::$name(_) => ApiKey::$name,)*
                }
            }
        }

        #[cfg(feature = "sample")]
        impl Request {
            /// A request drawn from `source`, with all that `version` has and nothing else.
            #[must_use]
            pub fn sample(key: ApiKey, source: &mut Source<'_>, version: i16) -> Self {
                match key {
                    $(ApiKey::$name => Self::$name(Sample::sample(source, key.form(version))),)*
                }
            }
        }

        #[cfg(feature = "sample")]
        impl Response {
            /// A response drawn from `source`, with all that `version` has and nothing else.
            #[must_use]
            pub fn sample(key: ApiKey, source: &mut Source<'_>, version: i16) -> Self {
                match key {
                    $(ApiKey::$name => Self::$name(Sample::sample(source, key.form(version))),)*
                }
            }
        }

        $(
            impl Message for m::$request {
                const KEY: ApiKey = ApiKey::$name;
            }

            impl Message for m::$response {
                const KEY: ApiKey = ApiKey::$name;
            }

            impl Call for m::$request {
                type Response = m::$response;
            }

            impl From<m::$request> for Request {
                fn from(body: m::$request) -> Self {
                    Self::$name(body)
                }
            }

            impl From<m::$response> for Response {
                fn from(body: m::$response) -> Self {
                    Self::$name(body)
                }
            }
        )*
    };
}

apis! {
    Produce = 0, 3..=13, flexible 9,
        advertised from 0: ProduceRequest => ProduceResponse;
    Fetch = 1, 4..=18, flexible 12,
        advertised from 4: FetchRequest => FetchResponse;
    ListOffsets = 2, 1..=11, flexible 6,
        advertised from 1: ListOffsetsRequest => ListOffsetsResponse;
    Metadata = 3, 0..=13, flexible 9,
        advertised from 0: MetadataRequest => MetadataResponse;
    OffsetCommit = 8, 2..=10, flexible 8,
        advertised from 2: OffsetCommitRequest => OffsetCommitResponse;
    OffsetFetch = 9, 1..=10, flexible 6,
        advertised from 1: OffsetFetchRequest => OffsetFetchResponse;
    FindCoordinator = 10, 0..=6, flexible 3,
        advertised from 0: FindCoordinatorRequest => FindCoordinatorResponse;
    JoinGroup = 11, 0..=9, flexible 6,
        advertised from 0: JoinGroupRequest => JoinGroupResponse;
    Heartbeat = 12, 0..=4, flexible 4,
        advertised from 0: HeartbeatRequest => HeartbeatResponse;
    LeaveGroup = 13, 0..=5, flexible 4,
        advertised from 0: LeaveGroupRequest => LeaveGroupResponse;
    SyncGroup = 14, 0..=5, flexible 4,
        advertised from 0: SyncGroupRequest => SyncGroupResponse;
    DescribeGroups = 15, 0..=6, flexible 5,
        advertised from 0: DescribeGroupsRequest => DescribeGroupsResponse;
    ListGroups = 16, 0..=5, flexible 3,
        advertised from 0: ListGroupsRequest => ListGroupsResponse;
    ApiVersions = 18, 0..=4, flexible 3,
        advertised from 0: ApiVersionsRequest => ApiVersionsResponse;
    CreateTopics = 19, 2..=7, flexible 5,
        advertised from 2: CreateTopicsRequest => CreateTopicsResponse;
    DeleteTopics = 20, 1..=6, flexible 4,
        advertised from 1: DeleteTopicsRequest => DeleteTopicsResponse;
    DeleteRecords = 21, 0..=2, flexible 2,
        advertised from 0: DeleteRecordsRequest => DeleteRecordsResponse;
    InitProducerId = 22, 0..=5, flexible 2,
        advertised from 0: InitProducerIdRequest => InitProducerIdResponse;
    OffsetForLeaderEpoch = 23, 2..=4, flexible 4,
        advertised from 2: OffsetForLeaderEpochRequest => OffsetForLeaderEpochResponse;
    AddPartitionsToTxn = 24, 0..=5, flexible 3,
        advertised from 0: AddPartitionsToTxnRequest => AddPartitionsToTxnResponse;
    AddOffsetsToTxn = 25, 0..=4, flexible 3,
        advertised from 0: AddOffsetsToTxnRequest => AddOffsetsToTxnResponse;
    EndTxn = 26, 0..=5, flexible 3,
        advertised from 0: EndTxnRequest => EndTxnResponse;
    WriteTxnMarkers = 27, 1..=2, flexible 1,
        advertised from 1: WriteTxnMarkersRequest => WriteTxnMarkersResponse;
    TxnOffsetCommit = 28, 0..=5, flexible 3,
        advertised from 0: TxnOffsetCommitRequest => TxnOffsetCommitResponse;
    DescribeConfigs = 32, 1..=4, flexible 4,
        advertised from 1: DescribeConfigsRequest => DescribeConfigsResponse;
    AlterConfigs = 33, 0..=2, flexible 2,
        advertised from 0: AlterConfigsRequest => AlterConfigsResponse;
    DescribeLogDirs = 35, 1..=4, flexible 2,
        advertised from 1: DescribeLogDirsRequest => DescribeLogDirsResponse;
    CreatePartitions = 37, 0..=3, flexible 2,
        advertised from 0: CreatePartitionsRequest => CreatePartitionsResponse;
    DeleteGroups = 42, 0..=3, flexible 2,
        advertised from 0: DeleteGroupsRequest => DeleteGroupsResponse;
    ElectLeaders = 43, 0..=2, flexible 2,
        advertised from 0: ElectLeadersRequest => ElectLeadersResponse;
    IncrementalAlterConfigs = 44, 0..=1, flexible 1,
        advertised from 0: IncrementalAlterConfigsRequest => IncrementalAlterConfigsResponse;
    AlterPartitionReassignments = 45, 0..=1, flexible 0,
        advertised from 0:
        AlterPartitionReassignmentsRequest => AlterPartitionReassignmentsResponse;
    ListPartitionReassignments = 46, 0..=0, flexible 0,
        advertised from 0:
        ListPartitionReassignmentsRequest => ListPartitionReassignmentsResponse;
    OffsetDelete = 47, 0..=0, flexible 1,
        advertised from 0: OffsetDeleteRequest => OffsetDeleteResponse;
    DescribeQuorum = 55, 0..=2, flexible 0,
        advertised from 0: DescribeQuorumRequest => DescribeQuorumResponse;
    UpdateFeatures = 57, 0..=2, flexible 0,
        advertised from 0: UpdateFeaturesRequest => UpdateFeaturesResponse;
    DescribeCluster = 60, 0..=2, flexible 0,
        advertised from 0: DescribeClusterRequest => DescribeClusterResponse;
    DescribeProducers = 61, 0..=0, flexible 0,
        advertised from 0: DescribeProducersRequest => DescribeProducersResponse;
    UnregisterBroker = 64, 0..=0, flexible 0,
        advertised from 0: UnregisterBrokerRequest => UnregisterBrokerResponse;
    DescribeTransactions = 65, 0..=0, flexible 0,
        advertised from 0: DescribeTransactionsRequest => DescribeTransactionsResponse;
    ListTransactions = 66, 0..=2, flexible 0,
        advertised from 0: ListTransactionsRequest => ListTransactionsResponse;
    ConsumerGroupHeartbeat = 68, 0..=1, flexible 0,
        advertised from 0: ConsumerGroupHeartbeatRequest => ConsumerGroupHeartbeatResponse;
    ConsumerGroupDescribe = 69, 0..=1, flexible 0,
        advertised from 0: ConsumerGroupDescribeRequest => ConsumerGroupDescribeResponse;
    DescribeTopicPartitions = 75, 0..=0, flexible 0,
        advertised from 0: DescribeTopicPartitionsRequest => DescribeTopicPartitionsResponse;
    AddRaftVoter = 80, 0..=0, flexible 0,
        advertised from 0: AddRaftVoterRequest => AddRaftVoterResponse;
    RemoveRaftVoter = 81, 0..=0, flexible 0,
        advertised from 0: RemoveRaftVoterRequest => RemoveRaftVoterResponse;
}

impl ApiKey {
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The lowest and highest version that ApiVersions tells. Produce is told from 0 on although
    /// versions below 3 are refused: older librdkafka turns compression off otherwise
    /// (KAFKA-18659).
    #[must_use]
    pub const fn advertised(self) -> (i16, i16) {
        (self.advertised_from(), *self.versions().end())
    }

    #[must_use]
    pub fn speaks(self, version: i16) -> bool {
        self.versions().contains(&version)
    }

    #[must_use]
    pub const fn form(self, version: i16) -> Form {
        Form { version, flexible: version >= self.flexible_from() }
    }

    /// Whether the request's header ends with tagged fields (header version 2, else 1).
    #[must_use]
    pub const fn request_header_is_flexible(self, version: i16) -> bool {
        self.form(version).flexible
    }

    /// Whether the response's header ends with tagged fields (header version 1, else 0). That of
    /// ApiVersions never does, since the asker does not know yet what we speak. KIP-511.
    #[must_use]
    pub const fn response_header_is_flexible(self, version: i16) -> bool {
        !matches!(self, Self::ApiVersions) && self.form(version).flexible
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
