//! Questions to the controller and to the coordinators of groups, each in the shard where its log
//! lives.

use quorate_core::group::interface::{Outcome as GroupOutcome, Refusal};
use quorate_core::group::placement::partition_of;
use quorate_core::id::{PartitionId, RequestId};
use quorate_core::shard::interface::{Input, Outcome};
use quorate_core::{controller, group};

use crate::catalog::OFFSETS_TOPIC;
use crate::driver::ask::{Stopped, Withdrawal};
use crate::driver::lane::shard_of;
use crate::node::Node;

impl Node {
    /// The controller's answer. What was asked for happens even if nobody waits any more.
    pub(crate) async fn ask_controller(
        &self,
        input: impl FnOnce(RequestId) -> controller::interface::Input,
    ) -> Result<controller::interface::Outcome, Stopped> {
        let shard = &self.shards[shard_of(PartitionId::METADATA, self.shards.len())];
        let asked =
            shard.ask(Withdrawal::Controller, |request| Input::Controller(input(request))).await?;
        match asked.await? {
            Outcome::Controller(outcome) => Ok(outcome),
            other => unreachable!("the controller answered {other:?}"),
        }
    }

    /// The answer of the group's coordinator; `NotCoordinator` as long as there is none, which
    /// makes the client look for one.
    pub(crate) async fn ask_group(
        &self,
        group: &str,
        input: impl FnOnce(RequestId) -> group::interface::Input,
    ) -> Result<GroupOutcome, Stopped> {
        let Some(offsets) = self.catalog.topic_named(OFFSETS_TOPIC) else {
            return Ok(GroupOutcome::Refused(Refusal::NotCoordinator));
        };
        let partitions = i32::try_from(offsets.partitions.len()).unwrap_or(i32::MAX);
        let coordinator = partition_of(group, partitions);
        let partition = PartitionId { topic: offsets.id, index: coordinator };
        self.ask_coordinator(partition, input).await
    }

    /// The answer of the coordinator whose log is `partition`.
    pub(crate) async fn ask_coordinator(
        &self,
        partition: PartitionId,
        input: impl FnOnce(RequestId) -> group::interface::Input,
    ) -> Result<GroupOutcome, Stopped> {
        let coordinator = partition.index;
        let shard = &self.shards[shard_of(partition, self.shards.len())];
        let asked = shard
            .ask(Withdrawal::Group { coordinator }, |request| Input::Group {
                coordinator,
                input: input(request),
            })
            .await?;
        match asked.await? {
            Outcome::Group(outcome) => Ok(outcome),
            other => unreachable!("a coordinator answered {other:?}"),
        }
    }
}
