//! The bytes of requests to the controller and of its answers: a node of one build hands them on to
//! a node of another.

use std::collections::BTreeMap;

use quorate_core::codec::CodecError;
use quorate_core::controller::interface::*;
use quorate_core::id::{
    DirectoryId, LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, PartitionId, ProducerId,
    RequestId, TopicId,
};
use quorate_core::metadata::{Address, Duty, FeatureRange, Roles, Wish};

const REQUEST: RequestId = RequestId(5);
const TOPIC: TopicId = TopicId([7; 16]);

fn text(text: &str) -> String {
    text.to_owned()
}

fn partition() -> PartitionId {
    PartitionId { topic: TOPIC, index: 2 }
}

fn name() -> PartitionName {
    PartitionName { topic: text("orders"), index: 2 }
}

fn of_nodes() -> Vec<Input> {
    let request = REQUEST;
    let register = RegisterNode {
        request,
        node: NodeId(1),
        incarnation: 77,
        cluster: text("abc"),
        directory: DirectoryId([3; 16]),
        address: Address { host: text("n1"), port: 9092 },
        peer: Address { host: text("n1"), port: 9093 },
        rack: Some(text("eu")),
        roles: Roles { broker: true, controller: true },
        features: vec![FeatureRange { name: text("f"), min: 1, max: 2 }],
        clean_stop: true,
        rotten: vec![partition()],
    };
    let heartbeat = Heartbeat {
        request,
        node: NodeId(1),
        node_epoch: NodeEpoch(8),
        applied: NodeEpoch(9),
        wish: Wish::Stop,
    };
    let change = InSyncChange {
        partition: partition(),
        leader_epoch: LeaderEpoch(3),
        partition_epoch: PartitionEpoch(4),
        in_sync: vec![(NodeId(1), NodeEpoch(8))],
    };
    let (node, node_epoch, changes) = (NodeId(1), NodeEpoch(8), vec![change]);
    let update = FeatureUpdate { feature: text("f"), level: 1, downgrade: true };
    vec![
        Input::RegisterNode(register),
        Input::Heartbeat(heartbeat),
        Input::ChangeInSync(ChangeInSync { request, node, node_epoch, changes }),
        Input::SetDuty(SetDuty { request, node, duty: Duty::Maintenance }),
        Input::DescribeNodes { request },
        Input::UnregisterNode { request, node },
        Input::UpdateFeatures { request, updates: vec![update], validate_only: true },
        Input::AllocateProducerIds { request, node },
    ]
}

fn of_topics() -> Vec<Input> {
    let request = REQUEST;
    let topic = NewTopic {
        name: text("orders"),
        partitions: Some(3),
        replication: None,
        assignments: BTreeMap::from([(0, vec![NodeId(1), NodeId(2)])]),
        configs: vec![(text("retention.ms"), Some(text("5")))],
    };
    let more =
        MorePartitions { topic: text("orders"), count: 4, assignments: vec![vec![NodeId(2)]] };
    let edits = vec![
        (text("a"), ConfigOp::Set(Some(text("b")))),
        (text("c"), ConfigOp::Delete),
        (text("d"), ConfigOp::Append(None)),
        (text("e"), ConfigOp::Subtract(Some(text("f")))),
    ];
    let replaced = ConfigChange::Replace(vec![(text("a"), None)]);
    let resources = vec![
        AlterConfig { resource: Resource::Topic(text("orders")), change: replaced },
        AlterConfig {
            resource: Resource::Node(Some(NodeId(1))),
            change: ConfigChange::Edit(edits),
        },
    ];
    let target = Some(vec![NodeId(2), NodeId(3)]);
    let elect =
        |election| Input::ElectLeaders(ElectLeaders { request, election, partitions: None });
    vec![
        Input::Reassign {
            request,
            replication_changes: true,
            partitions: vec![Reassign { partition: name(), target }],
        },
        Input::ListReassignments { request, partitions: Some(vec![name()]) },
        elect(Election::Preferred),
        elect(Election::Unclean),
        Input::CreateTopics { request, topics: vec![topic], validate_only: false },
        Input::DeleteTopics {
            request,
            topics: vec![TopicName::Name(text("orders")), TopicName::Id(TOPIC)],
        },
        Input::CreatePartitions { request, topics: vec![more], validate_only: false },
        Input::AlterConfigs { request, resources, validate_only: false },
    ]
}

fn problem(kind: ProblemKind) -> Problem {
    Problem { kind, message: text("why") }
}

fn outcomes_of_nodes() -> Vec<Outcome> {
    let refusals = [
        InSyncRefusal::ControllerBehind,
        InSyncRefusal::UnknownPartition,
        InSyncRefusal::StaleLeaderEpoch,
        InSyncRefusal::StalePartitionEpoch,
        InSyncRefusal::Invalid,
        InSyncRefusal::Ineligible(NodeId(2)),
    ];
    let refused = refusals.into_iter().map(|refusal| (partition(), Err(refusal)));
    let granted = (partition(), Ok(PartitionEpoch(5)));
    let status = |retreat| NodeStatus {
        node: NodeId(1),
        epoch: NodeEpoch(8),
        fenced: true,
        wish: Wish::Serve,
        duty: Duty::Leave,
        leads: 1,
        replicas: 5,
        lagging: 2,
        leaving: 3,
        retreat,
        stuck: 4,
    };
    vec![
        Outcome::NodeRegistered { node_epoch: NodeEpoch(8) },
        Outcome::Heartbeat(Standing { fenced: false, may_stop: true, leads: 3 }),
        Outcome::InSyncChanged(std::iter::once(granted).chain(refused).collect()),
        Outcome::DutySet,
        Outcome::Nodes(vec![
            status(None),
            status(Some(Retreat::Decommissioned)),
            status(Some(Retreat::Replaced)),
        ]),
        Outcome::NodeUnregistered,
        Outcome::FeaturesUpdated(vec![(text("f"), Ok(()))]),
        Outcome::ProducerIds { first: ProducerId(1000), end: ProducerId(2000) },
    ]
}

fn outcomes_of_topics() -> Vec<Outcome> {
    let created = CreatedTopic {
        id: TOPIC,
        partitions: 3,
        replication: 2,
        configs: BTreeMap::from([(text("a"), text("b"))]),
    };
    let deleted = DeletedTopic { id: TOPIC, name: text("orders") };
    let failed = || problem(ProblemKind::InvalidTopic);
    let running = Reassignment {
        partition: name(),
        replicas: vec![NodeId(1), NodeId(2)],
        adding: vec![NodeId(2)],
        removing: vec![NodeId(1)],
    };
    vec![
        Outcome::Reassigned(vec![(name(), Err(problem(ProblemKind::NoReassignment)))]),
        Outcome::Reassignments(vec![running]),
        Outcome::LeadersElected(vec![(name(), Ok(()))]),
        Outcome::TopicsCreated(vec![(text("a"), Ok(created)), (text("b"), Err(failed()))]),
        Outcome::TopicsDeleted(vec![(TopicName::Id(TOPIC), Ok(deleted))]),
        Outcome::PartitionsCreated(vec![(text("a"), Err(failed()))]),
        Outcome::ConfigsAltered(vec![(Resource::Node(None), Ok(()))]),
    ]
}

/// Every kind in its order: the place is its number.
const KINDS: [ProblemKind; 23] = [
    ProblemKind::Loading,
    ProblemKind::NotAvailable,
    ProblemKind::Busy,
    ProblemKind::InvalidTopic,
    ProblemKind::TopicExists,
    ProblemKind::UnknownTopic,
    ProblemKind::UnknownTopicId,
    ProblemKind::InvalidPartitions,
    ProblemKind::InvalidReplication,
    ProblemKind::InvalidAssignment,
    ProblemKind::InvalidConfig,
    ProblemKind::InvalidRequest,
    ProblemKind::Policy,
    ProblemKind::OtherCluster,
    ProblemKind::DuplicateNode,
    ProblemKind::StaleNodeEpoch,
    ProblemKind::UnknownNode,
    ProblemKind::UnsupportedFeature,
    ProblemKind::NoReassignment,
    ProblemKind::ElectionNotNeeded,
    ProblemKind::PreferredLeaderNotAvailable,
    ProblemKind::EligibleLeadersNotAvailable,
    ProblemKind::FeatureUpdateFailed,
];

fn inputs() -> Vec<Input> {
    of_nodes().into_iter().chain(of_topics()).collect()
}

fn outcomes() -> Vec<Outcome> {
    let refused = KINDS.map(|kind| Outcome::Refused(problem(kind)));
    outcomes_of_nodes().into_iter().chain(outcomes_of_topics()).chain(refused).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `UPDATE_GOLDENFILES=1` writes them anew: only when a new version is meant.
#[test]
fn the_bytes_are_those_of_old_builds() {
    let mut lines = String::new();
    for input in inputs() {
        let bytes = input.to_bytes();
        assert_eq!(Input::from_bytes(&bytes), Ok(input));
        lines += &format!("request {}\n", hex(&bytes));
    }
    for outcome in outcomes() {
        let bytes = outcome.to_bytes();
        assert_eq!(Outcome::from_bytes(&bytes), Ok(outcome));
        lines += &format!("answer {}\n", hex(&bytes));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/controller/formats_1");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(path, &lines).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), lines);
}

#[test]
fn what_is_cut_or_of_a_later_build_or_no_request_is_refused() {
    let later = CodecError::Version { found: 2, known: 1 };
    for input in inputs() {
        let mut bytes = input.to_bytes();
        for cut in 0..bytes.len() {
            assert!(Input::from_bytes(&bytes[..cut]).is_err(), "{cut}");
        }
        bytes[0] = 2;
        assert_eq!(Input::from_bytes(&bytes), Err(later.clone()));
    }
    for outcome in outcomes() {
        let bytes = outcome.to_bytes();
        for cut in 0..bytes.len() {
            assert!(Outcome::from_bytes(&bytes[..cut]).is_err(), "{cut}");
        }
    }
    // What one node says to its own controller is nobody else's to say.
    for place in 0..=u8::MAX {
        if let Ok(input) = Input::from_bytes(&[1, place, 5]) {
            assert_eq!(input.request(), Some(RequestId(5)), "{input:?}");
        }
    }
}

#[test]
fn a_request_goes_by_the_name_that_its_server_gives_it() {
    for input in inputs() {
        let renamed = input.clone().with_request(RequestId(9));
        assert_eq!(renamed.request(), Some(RequestId(9)));
        assert_eq!(renamed.with_request(REQUEST), input);
    }
}
