//! How far the groups that this node coordinates are behind, measured at intervals: the
//! coordinators say where groups are, the partitions' leaders what lies before them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use quorate_core::group::interface::{Input, Outcome, Surveyed};
use quorate_core::group::lag::{self, Commit, Lag, Progress, Window};
use quorate_core::id::{Offset, TopicId};
use quorate_core::partition::interface::Isolation;
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_core::time::Timestamp;
use quorate_net::client::{Client, ClientConfig, PartitionName, PartitionUnread, Readers};
use quorate_net::transport::Network;

use crate::catalog::{Log, OFFSETS_TOPIC};
use crate::driver::ask::{Stopped, Withdrawal};
use crate::node::Node;

/// A leader that does not answer for so long is left out this time.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// A group at the last measurement.
#[derive(Clone, Debug)]
pub(crate) struct GroupLag {
    pub(crate) group: String,
    pub(crate) kind: &'static str,
    pub(crate) state: &'static str,
    pub(crate) members: usize,
    /// The worst of its partitions.
    pub(crate) progress: Progress,
    pub(crate) partitions: Vec<PartitionLag>,
}

#[derive(Clone, Debug)]
pub(crate) struct PartitionLag {
    pub(crate) name: PartitionName,
    pub(crate) committed: Offset,
    pub(crate) committed_at: Timestamp,
    /// `None` where the leader did not answer.
    pub(crate) ends: Option<(Offset, Offset)>,
    pub(crate) lag: Option<Lag>,
    pub(crate) progress: Progress,
    /// How many commits that rests on.
    pub(crate) commits: usize,
}

/// What was measured last; empty before, and where nothing measures.
#[derive(Debug, Default)]
pub(crate) struct LagBoard(Mutex<Arc<Vec<GroupLag>>>);

impl LagBoard {
    /// By group.
    pub(crate) fn read(&self) -> Arc<Vec<GroupLag>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, measured: Vec<GroupLag>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(measured);
    }
}

/// Measures as long as the node lives.
pub(crate) struct Measurer {
    node: Weak<Node>,
    client: Client,
    interval: Duration,
    windows: BTreeMap<(String, PartitionName), Window>,
}

impl Measurer {
    /// `address` is where this node itself is reached.
    pub(crate) fn new(node: &Arc<Node>, network: Arc<dyn Network>, address: &str) -> Self {
        let config = ClientConfig {
            client_id: "quorate-lag".to_owned(),
            connect_timeout: ANSWER_TIME_MAX,
            request_timeout: ANSWER_TIME_MAX,
            operation_timeout: ANSWER_TIME_MAX,
            ..ClientConfig::new(address)
        };
        Self {
            node: Arc::downgrade(node),
            client: Client::new(network, Arc::clone(&node.clock), config),
            interval: node.config.http.lag_interval,
            windows: BTreeMap::new(),
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let Some(node) = self.node.upgrade() else { return };
            let clock = Arc::clone(&node.clock);
            match self.measure(&node).await {
                Ok(measured) => node.lags.put(measured),
                Err(Stopped) => return,
            }
            drop(node);
            clock.sleep(self.interval).await;
        }
    }

    async fn measure(&mut self, node: &Node) -> Result<Vec<GroupLag>, Stopped> {
        let groups = survey(node).await?;
        let mut readers = Readers::new();
        for group in &groups {
            for found in &group.offsets {
                let (topic, partition) = (found.partition.topic.clone(), found.partition.partition);
                let name = PartitionName { topic, partition };
                readers.entry(name).or_default().insert(found.offset);
            }
        }
        let logs = match self.client.unread(&readers, Isolation::ReadUncommitted).await {
            Ok(logs) => logs,
            Err(error) => {
                tracing::debug!(%error, "lags are not known this time");
                BTreeMap::new()
            }
        };
        let logs: BTreeMap<PartitionName, PartitionUnread> =
            logs.into_iter().filter_map(|(name, log)| Some((name, log.ok()?))).collect();
        let now = node.clock.now().wall;
        let mut windows = std::mem::take(&mut self.windows);
        let measured = groups.into_iter().map(|group| {
            let partitions = group.offsets.iter().map(|found| {
                let (topic, partition) = (found.partition.topic.clone(), found.partition.partition);
                let name = PartitionName { topic, partition };
                let key = (group.group.clone(), name.clone());
                let mut window = windows.remove(&key).unwrap_or_default();
                let log = logs.get(&name);
                let commit = (found.offset, found.at);
                let measured = of_partition(name, commit, log, &mut window, now);
                self.windows.insert(key, window);
                measured
            });
            let partitions: Vec<PartitionLag> = partitions.collect();
            let progress = partitions.iter().map(|partition| partition.progress).max();
            GroupLag {
                group: group.group,
                kind: group.kind,
                state: group.state,
                members: group.members,
                progress: progress.unwrap_or(Progress::Ok),
                partitions,
            }
        });
        let mut measured: Vec<GroupLag> = measured.collect();
        measured.sort_by(|a, b| a.group.cmp(&b.group));
        Ok(measured)
    }
}

fn of_partition(
    name: PartitionName,
    (committed, committed_at): (Offset, Timestamp),
    log: Option<&PartitionUnread>,
    window: &mut Window,
    now: Timestamp,
) -> PartitionLag {
    let lag = log.map(|log| {
        let unread = log.readers.get(&committed);
        let unread = unread.map(|it| lag::Unread { first: it.first, bytes: it.bytes });
        lag::lag(committed, (log.start, log.end), unread, now)
    });
    let mut progress = Progress::Ok;
    if let Some(lag) = lag {
        window.push(Commit { offset: committed, at: committed_at, lag: lag.records });
        progress = window.evaluate(now, lag.records);
    }
    let ends = log.map(|log| (log.start, log.end));
    let commits = window.len();
    PartitionLag { name, committed, committed_at, ends, lag, progress, commits }
}

/// All groups that this node coordinates.
async fn survey(node: &Node) -> Result<Vec<Surveyed>, Stopped> {
    let Some(topic) = node.catalog.topic_named(OFFSETS_TOPIC) else { return Ok(Vec::new()) };
    let mut groups = Vec::new();
    for partition in &topic.partitions {
        let Log::Open(log) = &partition.log else { continue };
        let coordinator = log.partition.index;
        let input = |request| ShardInput::Group {
            coordinator,
            input: Input::Survey { request, group: None },
        };
        let asked = log.shard.ask(Withdrawal::Group { coordinator }, input).await?;
        // Whoever does not lead, or loads, refuses: another node measures those, or the next time.
        if let ShardOutcome::Group(Outcome::Surveyed { groups: found }) = asked.await? {
            groups.extend(found);
        }
    }
    // What was committed for another topic of the same name is no place in this one.
    for group in &mut groups {
        group.offsets.retain(|found| {
            let known = node.catalog.topic_named(&found.partition.topic);
            let is_known = found.topic != TopicId::NONE;
            !is_known || known.is_none_or(|topic| topic.id == found.topic)
        });
    }
    Ok(groups)
}
