//! What members ask, as the machines of the core hear it, and what those say, as members hear it:
//! what a node's listener makes of these requests and answers, where there is no listener. A node
//! that serves no such group answers with a code.

use bytes::Bytes;
use quorate_core::group::interface::{
    Assignment, CommitOffsets, CommittedOffset, ConsumerHeartbeat, FetchOffsets, Input, Join,
    Joined, Leaving, MemberClaim, Outcome, Protocol, Refusal, Sync, TopicPartition,
};
use quorate_core::id::{LeaderEpoch, Offset, RequestId, TopicId};
use quorate_net::kafka::Call;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::consumer_group_heartbeat::{Assignment as Told, TopicPartitions};
use quorate_net::kafka::messages::join_group::JoinGroupResponseMember;
use quorate_net::kafka::messages::leave_group::MemberResponse;
use quorate_net::kafka::messages::offset_commit::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use quorate_net::kafka::messages::offset_fetch::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use quorate_net::kafka::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatRequest,
    HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use quorate_net::wire::Text;

use crate::history::client_name;

/// From this version of JoinGroup on, a returning leader may be told to leave the assignment
/// (KIP-814).
const SKIP_ASSIGNMENT: i16 = 9;

/// The machines' number for a request is given by the node.
const NUMBER: RequestId = RequestId(0);

/// A request of a member.
pub(crate) trait Question: Call<Response: Send> + std::marker::Sync {
    /// To the coordinator, from this client in this version.
    fn input(&self, client: u32, version: i16) -> Input;

    /// `Err`: there was no coordinator to ask.
    fn answer(&self, told: Result<Outcome, Code>) -> Self::Response;
}

fn text(text: &Text) -> String {
    text.to_string()
}

fn optional(of: Option<&Text>) -> Option<String> {
    of.map(text)
}

fn host() -> String {
    "/simulated".to_owned()
}

fn millis(millis: i32) -> std::time::Duration {
    std::time::Duration::from_millis(millis.max(0) as u64)
}

/// The code of an outcome that says nothing else.
fn code_of(told: Result<Outcome, Code>) -> i16 {
    match told {
        Err(code) => code.code(),
        Ok(Outcome::Refused(refusal)) => Code::from(&refusal).code(),
        Ok(other) => unreachable!("nobody was asked for {other:?}"),
    }
}

impl Question for JoinGroupRequest {
    fn input(&self, client: u32, version: i16) -> Input {
        let protocols = self.protocols.iter().map(|protocol| Protocol {
            name: text(&protocol.name),
            metadata: Bytes::copy_from_slice(&protocol.metadata),
        });
        Input::Join(Join {
            request: NUMBER,
            group: text(&self.group_id),
            member: text(&self.member_id),
            instance: optional(self.group_instance_id.as_ref()),
            client_id: client_name(client).to_owned(),
            client_host: host(),
            session_timeout: millis(self.session_timeout_ms),
            rebalance_timeout: millis(self.rebalance_timeout_ms),
            protocol_type: text(&self.protocol_type),
            protocols: protocols.collect(),
            member_id_required: true,
            skip_assignment: version >= SKIP_ASSIGNMENT,
        })
    }

    fn answer(&self, told: Result<Outcome, Code>) -> JoinGroupResponse {
        match told {
            Ok(Outcome::Joined(joined)) => {
                let Joined { generation, protocol_type, protocol, leader, member, .. } = joined;
                let members = joined.members.into_iter().map(|row| JoinGroupResponseMember {
                    member_id: row.member.into(),
                    group_instance_id: row.instance.map(Text::from),
                    metadata: row.metadata,
                });
                JoinGroupResponse {
                    generation_id: generation,
                    protocol_type: Some(protocol_type.into()),
                    protocol_name: Some(protocol.into()),
                    leader: leader.into(),
                    skip_assignment: joined.skip_assignment,
                    member_id: member.into(),
                    members: members.collect(),
                    ..Default::default()
                }
            }
            Ok(Outcome::Refused(Refusal::MemberIdRequired { member })) => JoinGroupResponse {
                error_code: Code::MemberIdRequired.code(),
                member_id: member.into(),
                ..Default::default()
            },
            told => JoinGroupResponse {
                error_code: code_of(told),
                member_id: self.member_id.clone(),
                ..Default::default()
            },
        }
    }
}

impl Question for SyncGroupRequest {
    fn input(&self, _: u32, _: i16) -> Input {
        let assigned = self
            .assignments
            .iter()
            .map(|row| (text(&row.member_id), Bytes::copy_from_slice(&row.assignment)));
        Input::Sync(Sync {
            request: NUMBER,
            member: MemberClaim {
                group: text(&self.group_id),
                member: text(&self.member_id),
                instance: optional(self.group_instance_id.as_ref()),
                generation: self.generation_id,
            },
            protocol_type: optional(self.protocol_type.as_ref()),
            protocol: optional(self.protocol_name.as_ref()),
            assignments: assigned.collect(),
        })
    }

    fn answer(&self, told: Result<Outcome, Code>) -> SyncGroupResponse {
        match told {
            Ok(Outcome::Synced { protocol_type, protocol, assignment }) => SyncGroupResponse {
                protocol_type: Some(protocol_type.into()),
                protocol_name: Some(protocol.into()),
                assignment,
                ..Default::default()
            },
            told => SyncGroupResponse { error_code: code_of(told), ..Default::default() },
        }
    }
}

impl Question for HeartbeatRequest {
    fn input(&self, _: u32, _: i16) -> Input {
        let member = MemberClaim {
            group: text(&self.group_id),
            member: text(&self.member_id),
            instance: optional(self.group_instance_id.as_ref()),
            generation: self.generation_id,
        };
        Input::Heartbeat { request: NUMBER, member }
    }

    fn answer(&self, told: Result<Outcome, Code>) -> HeartbeatResponse {
        let error_code = match told {
            Ok(Outcome::Alive) => Code::None.code(),
            told => code_of(told),
        };
        HeartbeatResponse { error_code, ..Default::default() }
    }
}

impl Question for LeaveGroupRequest {
    fn input(&self, _: u32, _: i16) -> Input {
        let members = self.members.iter().map(|row| Leaving {
            member: text(&row.member_id),
            instance: optional(row.group_instance_id.as_ref()),
        });
        let (group, members) = (text(&self.group_id), members.collect());
        Input::Leave { request: NUMBER, group, members }
    }

    fn answer(&self, told: Result<Outcome, Code>) -> LeaveGroupResponse {
        match told {
            Ok(Outcome::Left { members }) => {
                let members = members.into_iter().map(|(leaving, refusal)| MemberResponse {
                    member_id: leaving.member.into(),
                    group_instance_id: leaving.instance.map(Text::from),
                    error_code: refusal.as_ref().map_or(Code::None, Code::from).code(),
                });
                LeaveGroupResponse { members: members.collect(), ..Default::default() }
            }
            told => LeaveGroupResponse { error_code: code_of(told), ..Default::default() },
        }
    }
}

impl Question for ConsumerGroupHeartbeatRequest {
    fn input(&self, client: u32, _: i16) -> Input {
        let owned = self.topic_partitions.as_ref().map(|topics| -> Assignment {
            let rows = topics
                .iter()
                .flat_map(|row| row.partitions.iter().map(|partition| (row.topic_id, *partition)));
            rows.collect()
        });
        let topics = self.subscribed_topic_names.as_ref();
        Input::ConsumerHeartbeat(ConsumerHeartbeat {
            request: NUMBER,
            group: text(&self.group_id),
            member: text(&self.member_id),
            epoch: self.member_epoch,
            instance: optional(self.instance_id.as_ref()),
            rack: optional(self.rack_id.as_ref()),
            client_id: client_name(client).to_owned(),
            client_host: host(),
            rebalance_timeout: (self.rebalance_timeout_ms >= 0)
                .then(|| millis(self.rebalance_timeout_ms)),
            topics: topics.map(|topics| topics.iter().map(text).collect()),
            regex: optional(self.subscribed_topic_regex.as_ref()),
            assignor: optional(self.server_assignor.as_ref()),
            owned,
        })
    }

    fn answer(&self, told: Result<Outcome, Code>) -> ConsumerGroupHeartbeatResponse {
        match told {
            Ok(Outcome::ConsumerAlive(alive)) => {
                let told = |assignment: Assignment| Told {
                    topic_partitions: assignment
                        .topics()
                        .map(|(topic_id, partitions)| TopicPartitions {
                            topic_id,
                            partitions: partitions.iter().copied().collect(),
                        })
                        .collect(),
                };
                ConsumerGroupHeartbeatResponse {
                    member_id: Some(alive.member.into()),
                    member_epoch: alive.epoch,
                    heartbeat_interval_ms: alive.interval.as_millis() as i32,
                    assignment: alive.assignment.map(told),
                    ..Default::default()
                }
            }
            told => {
                ConsumerGroupHeartbeatResponse { error_code: code_of(told), ..Default::default() }
            }
        }
    }
}

impl Question for OffsetCommitRequest {
    fn input(&self, _: u32, _: i16) -> Input {
        let rows = self.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|row| {
                let committed = CommittedOffset {
                    offset: Offset(row.committed_offset),
                    leader_epoch: LeaderEpoch(row.committed_leader_epoch),
                    metadata: row.committed_metadata.as_ref().map(text).unwrap_or_default(),
                    topic: TopicId::NONE,
                };
                let (topic, partition) = (text(&topic.name), row.partition_index);
                (TopicPartition { topic, partition }, committed)
            })
        });
        Input::CommitOffsets(CommitOffsets {
            request: NUMBER,
            member: MemberClaim {
                group: text(&self.group_id),
                member: text(&self.member_id),
                instance: optional(self.group_instance_id.as_ref()),
                generation: self.generation_id_or_member_epoch,
            },
            knows_epochs: true,
            offsets: rows.collect(),
        })
    }

    fn answer(&self, told: Result<Outcome, Code>) -> OffsetCommitResponse {
        let mut codes = match told {
            Ok(Outcome::OffsetsCommitted { partitions }) => {
                let codes = partitions
                    .iter()
                    .map(|(_, refusal)| refusal.as_ref().map_or(Code::None, Code::from).code());
                codes.collect::<Vec<i16>>().into_iter()
            }
            told => {
                let rows = self.topics.iter().flat_map(|topic| &topic.partitions);
                vec![code_of(told); rows.count()].into_iter()
            }
        };
        let mut topics = Vec::with_capacity(self.topics.len());
        for asked in &self.topics {
            let rows = asked.partitions.iter().zip(&mut codes);
            let rows = rows.map(|(row, error_code)| OffsetCommitResponsePartition {
                partition_index: row.partition_index,
                error_code,
            });
            topics.push(OffsetCommitResponseTopic {
                name: asked.name.clone(),
                partitions: rows.collect(),
                ..Default::default()
            });
        }
        OffsetCommitResponse { topics, ..Default::default() }
    }
}

impl Question for OffsetFetchRequest {
    /// Of the one group that it names.
    fn input(&self, _: u32, _: i16) -> Input {
        let asked = self.groups.first().expect("a member asks for its group");
        let topics = asked.topics.as_ref();
        let partitions = topics.map(|topics| {
            let rows = topics.iter().flat_map(|topic| {
                let partition =
                    |index: &i32| TopicPartition { topic: text(&topic.name), partition: *index };
                topic.partition_indexes.iter().map(partition)
            });
            rows.collect()
        });
        Input::FetchOffsets(FetchOffsets {
            request: NUMBER,
            group: text(&asked.group_id),
            member: optional(asked.member_id.as_ref()).map(|member| (member, asked.member_epoch)),
            partitions,
            require_stable: self.require_stable,
        })
    }

    fn answer(&self, told: Result<Outcome, Code>) -> OffsetFetchResponse {
        let group_id = self.groups.first().map(|asked| asked.group_id.clone()).unwrap_or_default();
        let (topics, error_code) = match told {
            Ok(Outcome::OffsetsFetched { partitions }) => {
                let rows = partitions.into_iter().map(|(partition, found)| {
                    let TopicPartition { topic, partition } = partition;
                    OffsetFetchResponseTopics {
                        name: topic.into(),
                        partitions: vec![found_row(partition, found)],
                        ..Default::default()
                    }
                });
                (rows.collect(), Code::None.code())
            }
            told => (Vec::new(), code_of(told)),
        };
        let group = OffsetFetchResponseGroup { group_id, topics, error_code };
        OffsetFetchResponse { groups: vec![group], ..Default::default() }
    }
}

fn found_row(
    partition_index: i32,
    found: Result<Option<CommittedOffset>, Refusal>,
) -> OffsetFetchResponsePartitions {
    let error_code = found.as_ref().err().map_or(Code::None, Code::from).code();
    let (committed_offset, committed_leader_epoch, metadata) = match found {
        Ok(Some(found)) => (found.offset.0, found.leader_epoch.0, found.metadata.into()),
        Ok(None) | Err(_) => (-1, -1, Text::default()),
    };
    OffsetFetchResponsePartitions {
        partition_index,
        committed_offset,
        committed_leader_epoch,
        metadata: Some(metadata),
        error_code,
        ..Default::default()
    }
}
