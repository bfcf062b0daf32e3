//! The end of a node: gently, and cut off.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{self, StreamExt};
use quorate_core::id::PartitionId;
use quorate_core::partition::interface::Input;
use quorate_core::shard::interface::Input as ShardInput;

use super::{Node, NodeError, RunningNode};
use crate::catalog::Log;
use crate::catalog::news::News;
use crate::driver::ask::{ShardClient, Withdrawal};
use crate::listener::Sessions;
use crate::listener::session::Shared;

/// Logs that are closed at the same time.
const CLOSING_MAX: usize = 256;
/// How long connections have to end once they are cut off.
const CUT_TIME: Duration = Duration::from_secs(1);

/// What runs behind a node.
pub(super) struct Running {
    pub(super) shared: Arc<Shared>,
    pub(super) sessions: Arc<Sessions>,
    news: Arc<News>,
}

impl Running {
    pub(super) fn new(shared: Arc<Shared>, news: Arc<News>) -> Self {
        Self { shared, sessions: Arc::default(), news }
    }

    /// Ends everything now.
    pub(super) fn cut(&self, node: &Node) {
        self.shared.stop.cut();
        node.peers.cut();
        self.news.close();
        for shard in &node.shards {
            shard.stop();
        }
    }

    /// Whether the connections ended by themselves within `patience`.
    async fn ended(&self, patience: Duration) -> bool {
        let ended = Box::pin(self.sessions.all_ended(&self.shared));
        matches!(select(ended, self.shared.clock.sleep(patience)).await, Either::Left(_))
    }
}

pub(super) async fn close(running: &RunningNode) -> Result<(), NodeError> {
    let RunningNode { node, halt, running, .. } = running;
    tracing::info!(id = %node.id, "the node stops");
    let began = node.clock.now().monotonic;
    let patience = node.config.node.stop_timeout;
    if let Some(membership) = node.membership.get()
        && !membership.retire(began + patience / 3).await
    {
        tracing::warn!("not all that this node leads was taken over by others in time");
    }
    let left = (began + patience).saturating_since(node.clock.now().monotonic);
    running.shared.stop.drain();
    // The other half is for the logs.
    if !running.ended(left / 2).await {
        let open = running.shared.metrics.connections_open.value();
        tracing::warn!(open, "connections did not end in time and are cut off");
        running.shared.stop.cut();
        running.ended(CUT_TIME.min(left / 4)).await;
    }
    let drained = node.clock.now().monotonic;
    tokio::select! {
        biased;
        reason = halt.halted() => return Err(NodeError::Halted(reason)),
        closed = close_files(node, running) => closed?,
        () = node.clock.sleep_until(began + patience) => return Err(NodeError::SlowStop(patience)),
    }
    let closed = node.clock.now().monotonic;
    let (connections, logs) = (drained.saturating_since(began), closed.saturating_since(drained));
    tracing::info!(id = %node.id, ?connections, ?logs, "the node has stopped");
    Ok(())
}

async fn close_files(node: &Node, running: &Running) -> Result<(), NodeError> {
    close_logs(node).await?;
    running.news.close();
    // What another node still says would be written into an engine that has ended, which is how a
    // failed disk looks: nobody who could write is there any more when it ends.
    node.peers.cut();
    for shard in &node.shards {
        shard.stop();
        shard.stopped().await;
    }
    Ok(node.storage.close().await?)
}

/// Each log writes down what a fast start needs. The metadata log goes last: the others may still
/// have words for it.
async fn close_logs(node: &Node) -> Result<(), NodeError> {
    let open: Vec<(ShardClient, PartitionId)> = {
        let state = node.catalog.read();
        let partitions = state.topics().flat_map(|topic| &topic.partitions);
        let logs = partitions.filter_map(|partition| match &partition.log {
            Log::Open(log) => Some((log.shard.clone(), log.partition)),
            Log::Offline | Log::Elsewhere => None,
        });
        logs.collect()
    };
    let mut closing = stream::iter(open)
        .map(|(shard, partition)| close_log(shard, partition))
        .buffer_unordered(CLOSING_MAX);
    while let Some(closed) = closing.next().await {
        closed?;
    }
    close_log(node.shards[0].clone(), PartitionId::METADATA).await
}

async fn close_log(shard: ShardClient, partition: PartitionId) -> Result<(), NodeError> {
    let input = |request| ShardInput::Partition { partition, input: Input::Close { request } };
    shard.ask(Withdrawal::Never, input).await?.await?;
    Ok(())
}
