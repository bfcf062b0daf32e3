//! The settings that make a node part of a cluster: who votes, what a node is for, how the nodes
//! reach one another, and what follows from that for the machines.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::id::NodeId;
use quorate_core::metadata::Roles;
use quorate_core::{controller, quorum};
use quorate_net::peer;

use super::value::Value;
use super::{NodeConfig, split_address};

/// More voters make each decision slower, and nothing safer that nine do not make safe.
const VOTERS_MAX: usize = 9;
/// A frame between nodes holds this beside the largest batch.
const FRAME_HEAD_BYTES: usize = 1 << 20;
/// A changed partition in a decision, with as many replicas as it may have.
const PARTITION_BYTES: usize = 128;

/// The nodes that vote on the metadata, and where they are reached: `1@host:port,2@host:port`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voters(BTreeMap<NodeId, String>);

impl Voters {
    /// Each with its `host:port`, by id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NodeId, &str)> {
        self.0.iter().map(|(&node, address)| (node, address.as_str()))
    }

    #[must_use]
    pub fn address(&self, node: NodeId) -> Option<&str> {
        self.0.get(&node).map(String::as_str)
    }
}

impl FromIterator<(NodeId, String)> for Voters {
    fn from_iter<T: IntoIterator<Item = (NodeId, String)>>(voters: T) -> Self {
        Self(voters.into_iter().collect())
    }
}

impl Value for Voters {
    fn parse(text: &str) -> Result<Self, String> {
        let why = || "a list such as 1@host1:9192,2@host2:9192,3@host3:9192".to_owned();
        let mut voters = BTreeMap::new();
        let mut addresses = BTreeSet::new();
        for voter in text.split(',').map(str::trim).filter(|voter| !voter.is_empty()) {
            let (node, address) = voter.split_once('@').ok_or_else(why)?;
            let node = node.parse().ok().filter(|&node| node >= 0).ok_or_else(why)?;
            split_address(address).ok_or_else(why)?;
            if voters.insert(NodeId(node), address.to_owned()).is_some() {
                return Err(format!(
                    "a list that names each node once; node {node} is there twice"
                ));
            }
            if !addresses.insert(address.to_owned()) {
                return Err(format!("a list with an address for each node; {address} is two's"));
            }
        }
        if voters.len() > VOTERS_MAX {
            return Err(format!("a list of at most {VOTERS_MAX} voters"));
        }
        Ok(Self(voters))
    }

    fn show(&self) -> String {
        let voters = self.0.iter().map(|(node, address)| format!("{node}@{address}"));
        voters.collect::<Vec<_>>().join(",")
    }
}

/// What a node is for: at least one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRoles {
    /// Keeps partitions.
    pub broker: bool,
    /// May vote on the metadata.
    pub controller: bool,
}

impl NodeRoles {
    pub const BOTH: Self = Self { broker: true, controller: true };
}

impl Value for NodeRoles {
    fn parse(text: &str) -> Result<Self, String> {
        let mut roles = Self { broker: false, controller: false };
        for role in text.split(',').map(str::trim) {
            match role {
                "broker" => roles.broker = true,
                "controller" => roles.controller = true,
                _ => return Err("broker, controller, or both with a comma between".to_owned()),
            }
        }
        Ok(roles)
    }

    fn show(&self) -> String {
        match (self.broker, self.controller) {
            (true, true) => "broker,controller",
            (true, false) => "broker",
            (false, _) => "controller",
        }
        .to_owned()
    }
}

impl From<NodeRoles> for Roles {
    fn from(roles: NodeRoles) -> Self {
        Self { broker: roles.broker, controller: roles.controller }
    }
}

impl NodeConfig {
    /// Whether there are, or may be, other nodes.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.network.peer_listen.is_some()
    }

    /// What must hold between the settings of a cluster.
    pub(super) fn check_cluster(&self) -> Result<(), String> {
        let (me, voters) = (NodeId(self.node.id), &self.quorum.voters);
        if !self.is_cluster() {
            if voters.iter().any(|(node, _)| node != me) {
                return Err("quorum.voters names other nodes, and network.peer_listen is empty: \
                            they could not reach this one"
                    .to_owned());
            }
            if self.node.roles != NodeRoles::BOTH {
                return Err("node.roles must be broker,controller where network.peer_listen is \
                            empty: nobody else would do the other half"
                    .to_owned());
            }
            return Ok(());
        }
        let is_voter = voters.iter().len() == 0 || voters.address(me).is_some();
        if is_voter && !self.node.roles.controller {
            return Err(format!(
                "node.roles lacks controller, and node {me} is among quorum.voters"
            ));
        }
        self.check_peer_address()?;
        self.quorum_limits().check().map_err(|why| format!("quorum settings: {why}"))?;
        self.peer_limits().check().map_err(|why| format!("peer settings: {why}"))
    }

    fn check_peer_address(&self) -> Result<(), String> {
        let told = self.network.peer_advertise.is_some()
            || self.quorum.voters.address(NodeId(self.node.id)).is_some();
        match self.network.peer_listen {
            Some(listen) if listen.ip().is_unspecified() && !told => Err(format!(
                "network.peer_listen is {listen}, which is no address for others to connect to: \
                 set network.peer_advertise"
            )),
            _ => Ok(()),
        }
    }

    /// Those who found the cluster.
    #[must_use]
    pub fn founders(&self) -> BTreeSet<NodeId> {
        let founders: BTreeSet<NodeId> = self.quorum.voters.iter().map(|(node, _)| node).collect();
        if founders.is_empty() { BTreeSet::from([NodeId(self.node.id)]) } else { founders }
    }

    /// What is decided together goes into one entry, and that into one frame to a peer: the end of
    /// a node that has a part in each of 200,000 partitions has room. A snapshot is written as one
    /// batch, with the entries behind it.
    #[must_use]
    pub fn quorum_limits(&self) -> quorum::interface::Limits {
        let defaults = quorum::interface::Limits::default();
        let entry_bytes_max = (self.request.bytes_max as u64).min(32 << 20);
        quorum::interface::Limits {
            entry_bytes_max,
            uncommitted_bytes_max: 2 * entry_bytes_max,
            append_bytes_max: defaults.append_bytes_max.min(entry_bytes_max),
            chunk_bytes: defaults.chunk_bytes.min(entry_bytes_max),
            snapshot_after_bytes: self.quorum.snapshot_bytes,
            entries_kept: self.quorum.entries_kept,
            snapshot_bytes_max: 64 << 20,
            election_timeout: self.quorum.election_timeout,
            heartbeat_interval: self.quorum.heartbeat_interval,
            restores_votes: self.quorum.restore_votes,
            observer_timeout: defaults.observer_timeout.max(self.quorum.election_timeout),
            ..defaults
        }
    }

    /// All that a node has a part in changes in one decision when it is gone, and that must have
    /// room in an entry.
    fn partitions_in_one_entry(&self) -> usize {
        let bytes = usize::try_from(self.quorum_limits().entry_bytes_max).unwrap_or(usize::MAX);
        bytes / PARTITION_BYTES
    }

    #[must_use]
    pub fn peer_limits(&self) -> peer::Limits {
        let settings = &self.peer;
        peer::Limits {
            frame_bytes_max: self.request.bytes_max + FRAME_HEAD_BYTES,
            queue_bytes_max: settings.queue_bytes_max,
            queue_frames_max: settings.queue_frames_max,
            connect_timeout: settings.connect_timeout,
            backoff_max: settings.backoff_max,
            pulse_interval: settings.pulse_interval,
            silence_max: settings.silence_max,
            ..peer::Limits::default()
        }
    }

    /// A lone node is never fenced and needs no heartbeats.
    #[must_use]
    pub fn controller_limits(&self) -> controller::interface::Limits {
        let topic = &self.topic;
        let of_nodes = if self.is_cluster() {
            controller::interface::Limits {
                session_timeout: Some(self.node.session_timeout),
                replace_after: Some(self.replace.after).filter(|after| *after > Duration::ZERO),
                ..controller::interface::Limits::cluster()
            }
        } else {
            controller::interface::Limits::default()
        };
        controller::interface::Limits {
            partitions_max: topic.partitions_max.min(self.partitions_in_one_entry()),
            partitions_default: topic.partitions,
            replication_default: (topic.replication > 0).then_some(topic.replication),
            ..of_nodes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> NodeConfig {
        let mut config = NodeConfig::default();
        config.set("network.peer_listen", "127.0.0.1:9192").unwrap();
        config.set("quorum.voters", "1@a:9192, 2@b:9192,3@[::1]:9192").unwrap();
        config
    }

    fn refused(key: &str, text: &str) -> String {
        let mut config = three();
        match config.set(key, text) {
            Ok(()) => config.check().expect_err("it is refused").to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn voters_are_named_once_each() {
        let config = three();
        assert_eq!(config.check(), Ok(()));
        assert_eq!(config.quorum.voters.address(NodeId(3)), Some("[::1]:9192"));
        assert_eq!(config.values()["quorum.voters"], "1@a:9192,2@b:9192,3@[::1]:9192");
        assert_eq!(config.founders().len(), 3);
        assert!(refused("quorum.voters", "1@a:1,1@b:1").contains("node 1 is there twice"));
        assert!(refused("quorum.voters", "1@a:1,2@a:1").contains("a:1 is two's"));
        for wrong in ["a:1", "1@a", "1@a:0", "-1@a:1", "1@:1", "x@a:1"] {
            assert!(refused("quorum.voters", wrong).contains("a list such as"), "{wrong}");
        }
        let many = |count| (1..=count).map(|id| format!("{id}@h{id}:1,")).collect::<String>();
        assert!(refused("quorum.voters", &many(10)).contains("at most 9"));
        let mut config = three();
        config.set("quorum.voters", &many(9)).unwrap();
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn a_list_in_a_file_is_a_list() {
        let file = "[network]\npeer_listen = \"127.0.0.1:1\"\n\
                    [quorum]\nvoters = [\"1@a:1\", \"2@b:1\"]";
        let config = NodeConfig::from_toml(file).unwrap();
        assert_eq!(config.quorum.voters.iter().len(), 2);
        let error = NodeConfig::from_toml("[quorum]\nvoters = [1]").unwrap_err().to_string();
        assert!(error.contains("list of other things"), "{error}");
    }

    #[test]
    fn a_cluster_needs_a_way_to_its_nodes() {
        assert!(refused("network.peer_listen", "").contains("could not reach this one"));
        assert!(refused("node.roles", "broker").contains("is among quorum.voters"));
        assert!(refused("node.roles", "worker").contains("broker, controller"));
        assert!(refused("quorum.election_timeout", "150ms").contains("election_timeout"));
        assert!(refused("peer.silence_max", "999ms").contains("pulses"));
        assert!(refused("peer.queue_bytes_max", "64MiB").contains("one frame"));
        assert!(refused("node.session_timeout", "99ms").contains("node.session_timeout"));
        let mut broker = three();
        broker.set("node.id", "4").unwrap();
        broker.set("node.roles", "broker").unwrap();
        assert_eq!(broker.check(), Ok(()));
        broker.set("network.peer_listen", "0.0.0.0:9192").unwrap();
        assert!(broker.check().unwrap_err().to_string().contains("network.peer_advertise"));
        broker.set("network.peer_advertise", "here:9192").unwrap();
        assert_eq!(broker.check(), Ok(()));
    }

    #[test]
    fn a_lone_node_stays_as_it_was() {
        let config = NodeConfig::default();
        let limits = config.controller_limits();
        assert_eq!((limits.session_timeout, limits.replace_after), (None, None));
        assert_eq!(config.founders(), BTreeSet::from([NodeId(1)]));
        let mut lone = NodeConfig::default();
        lone.set("node.roles", "broker").unwrap();
        assert!(lone.check().unwrap_err().to_string().contains("node.roles"));
        let mut never = three();
        never.set("replace.after", "0").unwrap();
        let limits = never.controller_limits();
        assert_eq!(limits.session_timeout, Some(Duration::from_millis(1500)));
        assert_eq!(limits.replace_after, None);
    }
}
