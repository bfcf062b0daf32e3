//! The commands about nodes, leaders and reassignments.

use std::fmt::Write as _;
use std::time::Duration;

use quorate_core::controller::interface::{
    ChangeInSync, ElectLeaders, Election, FeatureUpdate, Heartbeat, InSyncChange, Input,
    PartitionName, Reassign, RegisterNode, SetDuty,
};
use quorate_core::id::{
    DirectoryId, LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, PartitionId, RequestId,
};
use quorate_core::machine::Machine;
use quorate_core::metadata::{Address, Duty, FeatureRange, Wish};
use quorate_core::time::Instant;

use super::super::script::{Command, millis};
use super::{ControllerStage, show};

fn nodes(list: &str) -> Vec<NodeId> {
    let ids = list.split(',').filter(|id| !id.is_empty());
    ids.map(|id| NodeId(id.parse().expect("a node"))).collect()
}

/// `a-0`.
fn named(name: &str) -> PartitionName {
    let (topic, index) = name.rsplit_once('-').expect("TOPIC-INDEX");
    PartitionName { topic: topic.to_owned(), index: index.parse().expect("an index") }
}

/// `name:1-3`.
fn features(list: &str) -> Vec<FeatureRange> {
    let ranges = list.split(',').map(|feature| {
        let (name, range) = feature.split_once(':').expect("NAME:MIN-MAX");
        let (min, max) = range.split_once('-').expect("NAME:MIN-MAX");
        let level = |level: &str| level.parse().expect("a level");
        FeatureRange { name: name.to_owned(), min: level(min), max: level(max) }
    });
    ranges.collect()
}

impl ControllerStage {
    pub(super) fn cluster_input(&mut self, request: RequestId, command: &Command<'_>) -> Input {
        let words = command.words().collect::<Vec<_>>();
        let node = || NodeId(words[0].parse().expect("a node"));
        let partitions = || words.iter().map(|name| named(name)).collect::<Vec<_>>();
        match command.name {
            "register" => Input::RegisterNode(self.registration(request, command)),
            "beat" => Input::Heartbeat(self.heartbeat(request, node(), command)),
            "gone" => {
                let known = self.controller.image().node(node()).map_or(0, |known| known.epoch.0);
                let node_epoch = NodeEpoch(command.read("epoch").unwrap_or(known));
                Input::Gone { node: node(), node_epoch }
            }
            "in-sync" => Input::ChangeInSync(self.proposal(request, command)),
            "reassign" => {
                let target = command.value("to").map(nodes);
                let each = |partition| Reassign { partition, target: target.clone() };
                let partitions = partitions().into_iter().map(each).collect();
                let replication_changes = command.value("replication") != Some("same");
                Input::Reassign { request, replication_changes, partitions }
            }
            "reassignments" => {
                let partitions = (!words.is_empty()).then(partitions);
                Input::ListReassignments { request, partitions }
            }
            "elect-leaders" => {
                let election = match command.value("by") {
                    Some("unclean") => Election::Unclean,
                    _ => Election::Preferred,
                };
                let partitions = (!words.is_empty()).then(partitions);
                Input::ElectLeaders(ElectLeaders { request, election, partitions })
            }
            "duty" => {
                let duty = match words[1] {
                    "serve" => Duty::Serve,
                    "maintenance" => Duty::Maintenance,
                    "leave" => Duty::Leave,
                    other => panic!("no such duty: {other}"),
                };
                Input::SetDuty(SetDuty { request, node: node(), duty })
            }
            "nodes" => Input::DescribeNodes { request },
            "unregister" => Input::UnregisterNode { request, node: node() },
            "features" => {
                let updates = command.pairs().map(|(feature, level)| FeatureUpdate {
                    feature: feature.to_owned(),
                    level: level.parse().expect("a level"),
                    downgrade: words.contains(&"downgrade"),
                });
                let validate_only = words.contains(&"only-ask");
                Input::UpdateFeatures { request, updates: updates.collect(), validate_only }
            }
            other => panic!("no such command: {other}"),
        }
    }

    /// A node's directory has its id for a name unless the script says another.
    fn registration(&self, request: RequestId, command: &Command<'_>) -> RegisterNode {
        let id = command.words().next().and_then(|id| id.parse().ok()).expect("a node");
        let directory = command.read("dir").unwrap_or_else(|| u8::try_from(id).unwrap_or(0));
        let rot = command.value("rot").map(named);
        let rotten = rot.and_then(|name| {
            let topic = self.controller.image().topic_named(&name.topic)?.id;
            Some(PartitionId { topic, index: name.index })
        });
        RegisterNode {
            request,
            node: NodeId(id),
            incarnation: command.read("incarnation").unwrap_or(1),
            cluster: command.value("cluster").unwrap_or("abc").to_owned(),
            directory: DirectoryId([directory; 16]),
            address: Address {
                host: command.value("host").unwrap_or("localhost").to_owned(),
                port: 9092,
            },
            rack: command.value("rack").map(str::to_owned),
            features: command.value("features").map(features).unwrap_or_default(),
            clean_stop: !command.words().any(|word| word == "unclean"),
            rotten: rotten.into_iter().collect(),
            ..RegisterNode::default()
        }
    }

    /// A node has applied all that is committed, unless the script says otherwise.
    fn heartbeat(&self, request: RequestId, node: NodeId, command: &Command<'_>) -> Heartbeat {
        let image = self.controller.image();
        let epoch = image.node(node).map_or(0, |node| node.epoch.0);
        let wish = match command.value("wish") {
            None | Some("serve") => Wish::Serve,
            Some("drain") => Wish::Drain,
            Some("stop") => Wish::Stop,
            Some(other) => panic!("no such wish: {other}"),
        };
        Heartbeat {
            request,
            node,
            node_epoch: NodeEpoch(command.read("epoch").unwrap_or(epoch)),
            applied: NodeEpoch(
                command.read("applied").unwrap_or_else(|| image.next_node_epoch().0),
            ),
            wish,
        }
    }

    /// `in-sync a-0 members=1,2:7`: the leader, its epochs and the members' are those of the image
    /// unless the script says otherwise.
    fn proposal(&self, request: RequestId, command: &Command<'_>) -> ChangeInSync {
        let image = self.controller.image();
        let epoch = |node: NodeId| image.node(node).map_or(NodeEpoch(0), |node| node.epoch);
        let mut changes = Vec::new();
        let mut leader = command.read("leader").map(NodeId);
        for name in command.words().map(named) {
            let topic = image.topic_named(&name.topic).map_or_else(Default::default, |t| t.id);
            let partition = PartitionId { topic, index: name.index };
            let known = image.partition(partition).cloned().unwrap_or_default();
            leader = leader.or(known.leader);
            let members = command.value("members").expect("members=").split(',').map(|member| {
                let (id, life) = member.split_once(':').unwrap_or((member, ""));
                let id = NodeId(id.parse().expect("a node"));
                (id, life.parse().map_or_else(|_| epoch(id), NodeEpoch))
            });
            changes.push(InSyncChange {
                partition,
                leader_epoch: command.read("epoch").map_or(known.leader_epoch, LeaderEpoch),
                partition_epoch: command
                    .read("version")
                    .map_or(known.partition_epoch, PartitionEpoch),
                in_sync: members.collect(),
            });
        }
        let node = leader.unwrap_or_default();
        let node_epoch = command.read("life").map_or_else(|| epoch(node), NodeEpoch);
        ChangeInSync { request, node, node_epoch, changes }
    }

    pub(super) fn limit_of_time(&mut self, key: &str, value: &str) -> bool {
        let time = || {
            let time = u64::try_from(millis(value)).expect("a time");
            (time > 0).then(|| Duration::from_millis(time))
        };
        match key {
            "session" => self.limits.session_timeout = time(),
            "replace" => self.limits.replace_after = time(),
            "balance" => self.limits.balance_interval = time(),
            "pace" => self.limits.balance_pace = time().expect("a time"),
            _ => return false,
        }
        true
    }

    /// `after 5s beat=1,2`: time passes; those nodes send heartbeats four times a second, of which
    /// the script shows no answers.
    pub(super) fn after(&mut self, command: &Command<'_>) -> String {
        let time = u64::try_from(millis(command.words().next().expect("a time"))).expect("a time");
        let beating = command.value("beat").map(nodes).unwrap_or_default();
        let until = self.now + Duration::from_millis(time);
        let mut out = String::new();
        while self.now < until {
            let hop = (self.now + Duration::from_millis(250)).min(until);
            while let Some(due) = self.controller.deadline().map(Instant::as_duration)
                && due <= hop
            {
                self.now = due.max(self.now);
                out.push_str(&self.step(Input::Tick));
            }
            self.now = hop;
            for node in &beating {
                let request = self.request();
                let beat = self.heartbeat(request, *node, command);
                let told = self.step(Input::Heartbeat(beat));
                let shown = told.lines().filter(|line| !line.contains(" serves leads="));
                for line in shown {
                    let _ = writeln!(out, "{line}");
                }
            }
        }
        out
    }

    pub(super) fn partitions(&self, command: &Command<'_>) -> String {
        let mut out = String::new();
        for name in command.words() {
            let Some(topic) = self.controller.image().topic_named(name) else { continue };
            for (index, partition) in topic.partitions.iter().enumerate() {
                let _ = writeln!(out, "{name}-{index} {}", show::show_assignment(partition));
            }
        }
        out
    }
}
