//! One member's talk with its coordinator: where it is, joining and syncing, the heartbeats in
//! between, commits, and leaving.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_core::id::Offset;
use tracing::Instrument as _;

use super::assign::{self, Partitions, Subscriptions};
use super::{Client, Error, GroupConfig};
use crate::client::metadata::{partition_named, refusal};
use crate::client::route::Lane;
use crate::kafka::Call;
use crate::kafka::error::Code;
use crate::kafka::messages as m;
use crate::wire::{Text, WireError};

const PROTOCOL_TYPE: &str = "consumer";
const RANGE: &str = "range";

/// Topics, each with the number of its partitions.
type Counts = BTreeMap<String, i32>;

/// One generation of the group, with this member in it. Dropping it ends the heartbeats.
pub(super) struct Membership {
    pub generation: i32,
    pub partitions: Partitions,
    pulse: Arc<Pulse>,
}

/// What the heartbeat task and the member share.
#[derive(Default)]
struct Pulse {
    over: AtomicBool,
    /// The code that ended the membership; 0 while it lasts.
    verdict: AtomicI32,
}

impl Membership {
    /// Why the membership is over, if it is.
    pub(super) fn verdict(&self) -> Option<Code> {
        let code = self.pulse.verdict.load(Ordering::Acquire);
        i16::try_from(code).ok().and_then(refusal)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.pulse.over.store(true, Ordering::Release);
    }
}

pub(super) struct Member {
    client: Client,
    config: GroupConfig,
    id: String,
    generation: i32,
    coordinator: Mutex<Option<String>>,
}

impl Member {
    pub(super) fn new(client: Client, config: GroupConfig) -> Self {
        let coordinator = Mutex::new(None);
        Self { client, config, id: String::new(), generation: -1, coordinator }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn forget_id(&mut self) {
        self.id.clear();
        self.generation = -1;
    }

    fn what(&self) -> String {
        format!("group {}", self.config.group)
    }

    fn group_id(&self) -> Text {
        Text::from(self.config.group.as_str())
    }

    fn instance(&self) -> Option<Text> {
        self.config.instance.as_deref().map(Text::from)
    }

    async fn coordinator(&self) -> Result<String, Error> {
        let known = self.coordinator.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(address) = known {
            return Ok(address);
        }
        let request = m::FindCoordinatorRequest {
            key: self.group_id(),
            key_type: 0,
            coordinator_keys: vec![self.group_id()],
        };
        let response = self.client.ask_any(&request, Duration::ZERO).await?;
        let (code, message, host, port) = match response.coordinators.first() {
            Some(found) => (found.error_code, &found.error_message, &found.host, found.port),
            None => (response.error_code, &response.error_message, &response.host, response.port),
        };
        if let Some(code) = refusal(code) {
            let message = message.as_ref().map(Text::as_str);
            return Err(Error::refused(
                format!("the coordinator of {}", self.what()),
                code,
                message,
            ));
        }
        let address = format!("{host}:{port}");
        *self.coordinator.lock().unwrap_or_else(PoisonError::into_inner) = Some(address.clone());
        Ok(address)
    }

    fn forget_coordinator(&self) {
        *self.coordinator.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// One attempt at the coordinator. A code that `code_of` finds is an error.
    async fn ask_once<R: Call>(
        &self,
        request: &R,
        patience: Duration,
        code_of: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, Error> {
        let address = self.coordinator().await?;
        let routes = &self.client.inner.routes;
        let outcome = routes.call(&address, Lane::Group, request, patience).await;
        let outcome = outcome.and_then(|response| match refusal(code_of(&response)) {
            Some(code) => Err(Error::refused(self.what(), code, None)),
            None => Ok(response),
        });
        if let Err(error) = &outcome {
            let moved =
                matches!(error.code(), Some(Code::NotCoordinator | Code::CoordinatorNotAvailable));
            if moved || matches!(error, Error::Unreachable { .. } | Error::Interrupted { .. }) {
                self.forget_coordinator();
            }
        }
        outcome
    }

    /// As `ask_once`, with retries.
    pub(super) async fn ask_coordinator<R: Call>(
        &self,
        request: &R,
        code_of: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, Error> {
        let attempt = || self.ask_once(request, Duration::ZERO, &code_of);
        self.client.retry(&self.what(), attempt).await
    }

    /// Joins until a generation holds, and starts its heartbeats.
    pub(super) async fn join(&mut self) -> Result<Membership, Error> {
        loop {
            let joined = match self.join_once().await {
                Ok(joined) => joined,
                Err(error) => {
                    self.on_setback(error)?;
                    continue;
                }
            };
            self.generation = joined.generation_id;
            match self.sync(&joined).await {
                Ok((partitions, shared_out)) => {
                    let pulse = Arc::new(Pulse::default());
                    let generation = self.generation;
                    let heartbeats = self.heartbeats(Arc::clone(&pulse), shared_out);
                    tokio::spawn(heartbeats.in_current_span());
                    return Ok(Membership { generation, partitions, pulse });
                }
                Err(error) => self.on_setback(error)?,
            }
        }
    }

    /// What a member does about a refusal on its way into a generation: try again, or give up.
    fn on_setback(&mut self, error: Error) -> Result<(), Error> {
        match error.code() {
            Some(Code::RebalanceInProgress) => Ok(()),
            Some(Code::IllegalGeneration) => {
                self.generation = -1;
                Ok(())
            }
            Some(Code::UnknownMemberId) => {
                self.forget_id();
                Ok(())
            }
            _ => Err(error),
        }
    }

    async fn join_once(&mut self) -> Result<m::JoinGroupResponse, Error> {
        let metadata = assign::encode_subscription(&self.config.topics)
            .map_err(|error| self.invalid(&error))?;
        let millis = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        let patience = self.config.rebalance_timeout;
        // Twice: a member without an id is told one and asked to come again with it (KIP-394).
        for _ in 0..2 {
            let request = m::JoinGroupRequest {
                group_id: self.group_id(),
                session_timeout_ms: millis(self.config.session_timeout),
                rebalance_timeout_ms: millis(self.config.rebalance_timeout),
                member_id: Text::from(self.id.as_str()),
                group_instance_id: self.instance(),
                protocol_type: Text::from_static(PROTOCOL_TYPE),
                protocols: vec![m::join_group::JoinGroupRequestProtocol {
                    name: Text::from_static(RANGE),
                    metadata: metadata.clone(),
                }],
                reason: None,
            };
            let wanted = Code::MemberIdRequired.code();
            let code_of = |response: &m::JoinGroupResponse| match response.error_code {
                code if code == wanted => 0,
                code => code,
            };
            let attempt = || self.ask_once(&request, patience, code_of);
            let response = self.client.retry(&format!("joining {}", self.what()), attempt).await?;
            self.id = response.member_id.to_string();
            if response.error_code != wanted {
                return Ok(response);
            }
        }
        Err(Error::refused(self.what(), Code::MemberIdRequired, None))
    }

    fn invalid(&self, error: &WireError) -> Error {
        Error::Invalid { reason: format!("{}: {error}", self.what()) }
    }

    /// Hands in the assignment, if this member leads, and learns its own part. With it, how many
    /// partitions of each topic were shared out, if this member did that.
    async fn sync(&self, joined: &m::JoinGroupResponse) -> Result<(Partitions, Counts), Error> {
        let (assignments, shared_out) = if joined.leader != *self.id {
            Default::default()
        } else if joined.skip_assignment {
            (Vec::new(), self.shared_out(joined).await?)
        } else {
            let counts = self.counts(joined).await?;
            (self.assignments(joined, &counts)?, counts)
        };
        let request = m::SyncGroupRequest {
            group_id: self.group_id(),
            generation_id: joined.generation_id,
            member_id: Text::from(self.id.as_str()),
            group_instance_id: self.instance(),
            protocol_type: Some(Text::from_static(PROTOCOL_TYPE)),
            protocol_name: Some(Text::from_static(RANGE)),
            assignments,
        };
        let patience = self.config.rebalance_timeout;
        let code_of = |response: &m::SyncGroupResponse| response.error_code;
        let attempt = || self.ask_once(&request, patience, code_of);
        let response = self.client.retry(&format!("syncing {}", self.what()), attempt).await?;
        let partitions = assign::decode_assignment(&response.assignment);
        let partitions = partitions.map_err(|error| Error::Malformed {
            address: format!("the leader of {}", self.what()),
            reason: error.to_string(),
        })?;
        Ok((partitions, shared_out))
    }

    /// How many partitions each topic of the group has.
    async fn counts(&self, joined: &m::JoinGroupResponse) -> Result<Counts, Error> {
        let mut counts = Counts::new();
        for topic in subscriptions(joined).values().flatten() {
            if !counts.contains_key(topic) {
                counts.insert(topic.clone(), self.count(topic).await?);
            }
        }
        Ok(counts)
    }

    /// How many partitions of each topic an earlier self has shared out. Topics may have grown
    /// while this static member was away (KIP-814), and it leads again without a rebalance.
    async fn shared_out(&self, joined: &m::JoinGroupResponse) -> Result<Counts, Error> {
        let request =
            m::DescribeGroupsRequest { groups: vec![self.group_id()], ..Default::default() };
        let code_of = |response: &m::DescribeGroupsResponse| {
            response
                .groups
                .first()
                .map_or(Code::UnknownServerError.code(), |group| group.error_code)
        };
        let attempt = || self.ask_once(&request, Duration::ZERO, code_of);
        let described = self.client.retry(&format!("describing {}", self.what()), attempt).await?;
        let topics = subscriptions(joined).into_values().flatten();
        let mut counts: Counts = topics.map(|topic| (topic, 0)).collect();
        for member in described.groups.iter().flat_map(|group| &group.members) {
            let parts = assign::decode_assignment(&member.member_assignment).unwrap_or_default();
            for (topic, partitions) in parts {
                let count = counts.entry(topic).or_default();
                *count = count.saturating_add(i32::try_from(partitions.len()).unwrap_or(i32::MAX));
            }
        }
        Ok(counts)
    }

    /// An absent topic has nothing to share out.
    async fn count(&self, topic: &str) -> Result<i32, Error> {
        match self.client.topic_once(topic, false).await {
            Ok(known) => Ok(known.partition_count()),
            Err(error) if error.code() == Some(Code::UnknownTopicOrPartition) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Whether a topic has other partitions than those that were shared out, as far as is known:
    /// it is asked again at the metadata's age. Kafka's leaders watch so, too.
    async fn have_changed(&self, shared_out: &Counts) -> bool {
        for (topic, shared) in shared_out {
            if self.count(topic).await.is_ok_and(|count| count != *shared) {
                return true;
            }
        }
        false
    }

    fn assignments(
        &self,
        joined: &m::JoinGroupResponse,
        counts: &Counts,
    ) -> Result<Vec<m::sync_group::SyncGroupRequestAssignment>, Error> {
        let shares = assign::range(&subscriptions(joined), counts);
        shares
            .into_iter()
            .map(|(member, partitions)| {
                let assignment =
                    assign::encode_assignment(&partitions).map_err(|error| self.invalid(&error))?;
                let member_id = Text::from(member);
                Ok(m::sync_group::SyncGroupRequestAssignment { member_id, assignment })
            })
            .collect()
    }

    /// Tells the coordinator that the member lives, until the membership is dropped or refused, or
    /// there is something else to share out.
    fn heartbeats(
        &self,
        pulse: Arc<Pulse>,
        shared_out: Counts,
    ) -> impl Future<Output = ()> + Send + use<> {
        let member = Self {
            client: self.client.clone(),
            config: self.config.clone(),
            id: self.id.clone(),
            generation: self.generation,
            coordinator: Mutex::new(
                self.coordinator.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            ),
        };
        async move {
            let request = m::HeartbeatRequest {
                group_id: member.group_id(),
                generation_id: member.generation,
                member_id: Text::from(member.id.as_str()),
                group_instance_id: member.instance(),
            };
            loop {
                member.client.clock().sleep(member.config.heartbeat_interval).await;
                if pulse.over.load(Ordering::Acquire) {
                    return;
                }
                let code_of = |response: &m::HeartbeatResponse| response.error_code;
                match member.ask_once(&request, Duration::ZERO, code_of).await {
                    Ok(_) if member.have_changed(&shared_out).await => {
                        // A leader that joins again makes everybody do so.
                        let code = Code::RebalanceInProgress.code();
                        pulse.verdict.store(i32::from(code), Ordering::Release);
                        return;
                    }
                    Ok(_) => {}
                    Err(error) if error.is_retriable() => {
                        tracing::debug!(%error, "a heartbeat failed");
                    }
                    Err(error) => {
                        let code = error.code().unwrap_or(Code::UnknownServerError);
                        pulse.verdict.store(i32::from(code.code()), Ordering::Release);
                        return;
                    }
                }
            }
        }
    }

    pub(super) async fn commit(&self, offsets: &[(Arc<str>, i32, Offset)]) -> Result<(), Error> {
        let mut topics: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (topic, partition, offset) in offsets {
            let wanted = m::offset_commit::OffsetCommitRequestPartition {
                partition_index: *partition,
                committed_offset: offset.0,
                // Kafka's own client sends no null here.
                committed_metadata: Some(Text::from_static("")),
                ..Default::default()
            };
            topics.entry(topic).or_default().push(wanted);
        }
        let topics = self.client.with_ids(topics).await?.into_iter();
        let topics = topics.map(|(name, topic_id, partitions)| {
            m::offset_commit::OffsetCommitRequestTopic { name, topic_id, partitions }
        });
        let request = m::OffsetCommitRequest {
            group_id: self.group_id(),
            generation_id_or_member_epoch: self.generation,
            member_id: Text::from(self.id.as_str()),
            group_instance_id: self.instance(),
            topics: topics.collect(),
            ..Default::default()
        };
        let response = self.ask_coordinator(&request, first_commit_error).await?;
        for topic in &response.topics {
            for partition in &topic.partitions {
                if let Some(code) = refusal(partition.error_code) {
                    let name = self.client.name_told(&topic.name, topic.topic_id);
                    let what = partition_named(&name, partition.partition_index);
                    return Err(Error::refused(what, code, None));
                }
            }
        }
        Ok(())
    }

    pub(super) async fn leave(&mut self) -> Result<(), Error> {
        // A static member stays for its session, so that it may come back.
        if self.id.is_empty() || self.config.instance.is_some() {
            return Ok(());
        }
        let member_id = Text::from(self.id.as_str());
        let request = m::LeaveGroupRequest {
            group_id: self.group_id(),
            member_id: member_id.clone(),
            members: vec![m::leave_group::MemberIdentity { member_id, ..Default::default() }],
        };
        let code_of = |response: &m::LeaveGroupResponse| response.error_code;
        self.ask_once(&request, Duration::ZERO, code_of).await?;
        self.forget_id();
        Ok(())
    }
}

/// The error that concerns the group as a whole stands at each partition.
fn first_commit_error(response: &m::OffsetCommitResponse) -> i16 {
    let mut partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.find(|partition| partition.error_code != 0).map_or(0, |found| found.error_code)
}

/// What each member wants. One whose words cannot be read gets nothing.
fn subscriptions(joined: &m::JoinGroupResponse) -> Subscriptions {
    let topics = joined.members.iter().map(|member| {
        let topics = assign::decode_subscription(&member.metadata).unwrap_or_default();
        (member.member_id.to_string(), topics)
    });
    topics.collect()
}
