//! The keeper of node 1 against a metadata log that a test writes.

use std::time::Duration;

use quorate_core::batch::{BatchBuilder, Codec, Levels};
use quorate_core::group::interface::{Outcome as GroupOutcome, Refusal as GroupRefusal};
use quorate_core::id::{LeaderEpoch, Offset, PartitionEpoch};
use quorate_core::metadata::{Placement, Registration};
use quorate_core::partition::interface::{Acks, Outcome, Produce};
use quorate_core::shard::Shard;
use quorate_core::shard::interface::{Limits, Outcome as ShardOutcome};
use quorate_net::clock::Clock;

use super::*;
use crate::clock::OsClock;
use crate::disk::Disk;
use crate::disk::memory::MemoryDisk;
use crate::driver::ask::Withdrawal;
use crate::driver::lane::Lanes;
use crate::driver::{self, Surroundings};
use crate::membership::proposals;
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::storage::{Identity, StorageConfig};

const ME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);
const EPOCH: NodeEpoch = NodeEpoch(5);
const TOPIC: TopicId = TopicId([7; 16]);

/// One life of the node's data, without its door.
struct House {
    news: Arc<News>,
    catalog: Arc<Catalog>,
    storage: Arc<Storage>,
    shard: ShardClient,
    clock: Arc<dyn Clock>,
}

impl House {
    async fn start(disk: &Arc<dyn Disk>, seed: u64) -> Self {
        let lanes = Arc::new(Lanes::new(1));
        let identity = Identity { node: ME, directory: [2; 16] };
        let config =
            StorageConfig { journal_file_bytes: 1 << 20, ..StorageConfig::new("/data", identity) };
        let completions = Arc::clone(&lanes) as Arc<_>;
        let (storage, _) =
            Storage::open(Arc::clone(disk), config, completions).await.expect("opens");
        let storage = Arc::new(storage);
        let clock: Arc<dyn Clock> = Arc::new(OsClock::new());
        let halt: Arc<Halt> = Arc::default();
        let news: Arc<News> = Arc::default();
        let around = Surroundings {
            cleaner: crate::cleaner::channel().0,
            peers: Peers::new(),
            proposals: proposals::channel().0,
            rounds: crate::transactions::rounds::channel().0,
            catch_up_max: 1,
            clock: Arc::clone(&clock),
            writes: storage.writer(),
            lane: lanes.lane(0),
            news: Arc::default(),
            quorum: Arc::default(),
            halt: Arc::clone(&halt),
            witness: None,
            metrics: Arc::new(Metrics::default()),
            batch_max: 16,
        };
        let shard = driver::start(Shard::new(ME, Limits::default(), seed), around, 16);
        let catalog: Arc<Catalog> = Arc::default();
        let keeper = Keeper {
            node: ME,
            news: Arc::clone(&news),
            catalog: Arc::clone(&catalog),
            storage: Arc::clone(&storage),
            shards: vec![shard.clone()],
            halt,
            uncompressed_bytes_max: 1 << 20,
            witness: None,
        };
        tokio::spawn(keeper.run());
        Self { news, catalog, storage, shard, clock }
    }

    async fn until(&self, what: &str, holds: impl Fn(&crate::catalog::State) -> bool) {
        let patience = self.clock.sleep(Duration::from_secs(10));
        tokio::select! {
            biased;
            () = self.catalog.until(holds) => {}
            () = patience => panic!("{what}: {:?}", self.catalog.read()),
        }
    }

    /// Until partition 0 is shown as `state` with this partition epoch.
    async fn shows(&self, epoch: i32, state: &str) {
        self.until(state, |shown| {
            let topic = shown.topic(TOPIC);
            let Some(found) = topic.and_then(|topic| topic.partition(0)) else { return false };
            found.assignment.partition_epoch == PartitionEpoch(epoch) && name(&found.log) == state
        })
        .await;
    }

    /// Appends one record and says where it stands.
    async fn append(&self) -> Offset {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.append(Timestamp(1), None, Some(b"value"), []);
        let (batch, until) =
            (builder.build(), self.clock.now().monotonic + Duration::from_secs(10));
        let partition = partition(0);
        let input = |request| {
            let acks = Acks::All;
            let produce =
                Produce { request, batch, levels: Levels::DEFAULT, acks, until, guard: None };
            Input::Partition { partition, input: PartitionInput::Produce(produce) }
        };
        let asked = self.shard.ask(Withdrawal::Never, input).await.expect("runs");
        match asked.await.expect("runs") {
            ShardOutcome::Partition(Outcome::Produced { base, .. }) => base,
            other => panic!("{other:?}"),
        }
    }

    async fn has_files(&self) -> bool {
        self.storage.logs().await.expect("a directory").contains(&partition(0))
    }

    async fn stop(self) {
        self.shard.barrier().await.expect("runs");
        self.news.close();
        self.shard.stop();
        self.storage.close().await.expect("closes");
    }
}

fn disk() -> Arc<dyn Disk> {
    Arc::new(MemoryDisk::ephemeral(64 << 20))
}

fn name(log: &Log) -> &'static str {
    match log {
        Log::Open(_) => "open",
        Log::Offline => "offline",
        Log::Elsewhere => "elsewhere",
    }
}

fn partition(index: i32) -> PartitionId {
    PartitionId { topic: TOPIC, index }
}

fn on(node: NodeId, epoch: i32) -> Placement {
    Placement {
        leader_epoch: LeaderEpoch(epoch),
        partition_epoch: PartitionEpoch(epoch),
        leader: Some(node),
        replicas: vec![node],
        in_sync: vec![node],
        ..Placement::default()
    }
}

fn created(nodes: &[NodeId]) -> Record {
    Record::TopicCreated {
        topic: TOPIC,
        name: "orders".to_owned(),
        partitions: nodes.iter().map(|node| on(*node, 0)).collect(),
        configs: Vec::new(),
    }
}

fn moved(node: NodeId, epoch: i32) -> Record {
    Record::PartitionsChanged { topic: TOPIC, partitions: vec![(0, on(node, epoch))] }
}

fn registered() -> Record {
    Record::NodeRegistered(Registration { node: ME, epoch: EPOCH, ..Registration::default() })
}

fn join(house: &House) {
    house.news.tell(vec![registered()]);
    house.news.registered(EPOCH);
}

#[tokio::test]
async fn logs_are_opened_where_they_are_kept_once_the_node_is_taken_in() {
    let house = House::start(&disk(), 1).await;
    house.news.tell(vec![created(&[ME, OTHER])]);
    house.until("the image is shown", |state| state.image.topic(TOPIC).is_some()).await;
    assert!(house.catalog.topic(TOPIC).is_none(), "nothing is served yet");
    join(&house);
    house.shows(0, "open").await;
    let topic = house.catalog.topic(TOPIC).expect("shown");
    assert_eq!(name(&topic.partitions[1].log), "elsewhere");
    assert!(house.catalog.read().is_current);
    assert_eq!(house.append().await, Offset(0));
}

#[tokio::test]
async fn a_copy_that_goes_leaves_nothing_and_comes_back_empty() {
    let house = House::start(&disk(), 1).await;
    house.news.tell(vec![created(&[ME])]);
    join(&house);
    house.shows(0, "open").await;
    house.append().await;
    assert!(house.has_files().await);
    house.news.tell(vec![moved(OTHER, 1)]);
    house.shows(1, "elsewhere").await;
    house.news.tell(vec![moved(ME, 2)]);
    house.shows(2, "open").await;
    assert_eq!(house.append().await, Offset(0), "what was here before is gone");
}

#[tokio::test]
async fn replicas_hear_who_leads_and_keep_their_log() {
    let house = House::start(&disk(), 1).await;
    house.news.tell(vec![created(&[ME])]);
    join(&house);
    house.shows(0, "open").await;
    house.append().await;
    house.news.tell(vec![moved(ME, 1)]);
    house.shows(1, "open").await;
    assert_eq!(house.append().await, Offset(1));
    let topic = house.catalog.topic(TOPIC).expect("shown");
    let Log::Open(log) = &topic.partitions[0].log else { panic!("{topic:?}") };
    assert_eq!(log.view().leader_epoch, LeaderEpoch(1));
}

/// Two elections come so soon after one another that the log is read for both at once. A
/// coordinator waits for the end of both readings, and for no other.
#[tokio::test]
async fn a_coordinator_that_is_elected_twice_at_once_serves() {
    let house = House::start(&disk(), 1).await;
    let (topic, configs) = (TOPIC, Vec::new());
    let (name, partitions) = (OFFSETS_TOPIC.to_owned(), vec![on(ME, 0)]);
    house.news.tell(vec![Record::TopicCreated { topic, name, partitions, configs }]);
    join(&house);
    house.shows(0, "open").await;
    house.append().await;
    for epoch in 1..5 {
        let leader = if epoch % 2 == 0 { ME } else { OTHER };
        let assignment = Assignment {
            leader: Some(leader),
            replicas: vec![ME],
            in_sync: vec![ME],
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: PartitionEpoch(epoch),
            ..Assignment::default()
        };
        let input = PartitionInput::Assigned(assignment);
        let input = Input::Partition { partition: partition(0), input };
        house.shard.tell(Command::Tell(input)).await.expect("runs");
    }
    let patience = house.clock.now().monotonic + Duration::from_secs(10);
    loop {
        let list = |request| ForGroups::List { request, states: Vec::new(), types: Vec::new() };
        let input = |request| Input::Group { coordinator: 0, input: list(request) };
        let asked = house.shard.ask(Withdrawal::Never, input).await.expect("runs");
        match asked.await.expect("runs") {
            ShardOutcome::Group(GroupOutcome::Listed { .. }) => return,
            ShardOutcome::Group(GroupOutcome::Refused(GroupRefusal::Loading)) => {}
            other => panic!("{other:?}"),
        }
        assert!(house.clock.now().monotonic < patience, "it loads for ever");
        house.clock.sleep(Duration::from_millis(5)).await;
    }
}

/// The log was to go in an earlier life, and came back: reading that history again must not cost
/// its records.
#[tokio::test]
async fn what_the_log_says_of_earlier_lives_removes_nothing() {
    let disk = disk();
    let first = House::start(&disk, 1).await;
    let history = [created(&[ME]), moved(OTHER, 1), moved(ME, 2)];
    first.news.tell(history.to_vec());
    join(&first);
    first.shows(2, "open").await;
    first.append().await;
    first.stop().await;

    let second = House::start(&disk, 2).await;
    for record in history {
        // Each is a stretch of its own for whoever acts on it at once.
        second.news.tell(vec![record.clone()]);
        second.until("the record is seen", |state| state.image.topic(TOPIC).is_some()).await;
        second.shard.barrier().await.expect("runs");
    }
    join(&second);
    second.shows(2, "open").await;
    assert_eq!(second.append().await, Offset(1), "the record before is there");
}

#[tokio::test]
async fn files_that_belong_here_no_more_are_removed_once_the_node_knows() {
    let disk = disk();
    let first = House::start(&disk, 1).await;
    first.news.tell(vec![created(&[ME])]);
    join(&first);
    first.shows(0, "open").await;
    first.append().await;
    first.stop().await;

    let second = House::start(&disk, 2).await;
    second.news.tell(vec![created(&[ME]), moved(OTHER, 1)]);
    second.until("the image is shown", |state| state.image.topic(TOPIC).is_some()).await;
    assert!(second.has_files().await, "nobody knows yet what is true");
    join(&second);
    second.shows(1, "elsewhere").await;
    while second.has_files().await {
        second.clock.sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_snapshot_is_compared_with_what_is_open() {
    let house = House::start(&disk(), 1).await;
    let gone = TopicId([8; 16]);
    let other = Record::TopicCreated {
        topic: gone,
        name: "gone".to_owned(),
        partitions: vec![on(ME, 0)],
        configs: Vec::new(),
    };
    house.news.tell(vec![created(&[ME, OTHER]), other]);
    join(&house);
    house.shows(0, "open").await;
    let second_moved = Record::PartitionsChanged {
        topic: TOPIC,
        partitions: vec![(1, on(ME, 3)), (0, on(ME, 2))],
    };
    house.news.restore(vec![registered(), created(&[ME, OTHER]), second_moved]);
    house.shows(2, "open").await;
    let state = house.catalog.read();
    assert!(state.topic(gone).is_none() && state.topic_named("gone").is_none());
    let topic = state.topic(TOPIC).expect("shown");
    assert_eq!(name(&topic.partitions[1].log), "open");
    assert_eq!(state.image.topics_count(), 1);
}
