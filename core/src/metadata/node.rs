//! A node of the cluster as its registration and humans' wishes add up.

use super::record::{Address, Duty, FeatureRange, Registration, Roles, Wish};
use crate::id::{DirectoryId, NodeEpoch, NodeId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub id: NodeId,
    /// Which life of it; rises with each registration of any node, so it orders all of them.
    pub epoch: NodeEpoch,
    /// Drawn at each start: two processes with one id are told apart.
    pub incarnation: u64,
    /// Which data it has.
    pub directory: DirectoryId,
    /// Where clients reach it.
    pub address: Address,
    /// Where other nodes reach it.
    pub peer: Address,
    pub rack: Option<String>,
    pub roles: Roles,
    pub features: Vec<FeatureRange>,
    /// It was not heard of: it leads nothing and is in sync with nothing.
    pub fenced: bool,
    pub wish: Wish,
    pub duty: Duty,
}

impl Node {
    /// `duty` is that of the node's life before.
    pub(super) fn new(registration: &Registration, duty: Duty) -> Self {
        let Registration {
            node: id,
            epoch,
            incarnation,
            directory,
            address,
            peer,
            rack,
            roles,
            features,
            fenced,
        } = registration.clone();
        let wish = Wish::Serve;
        Self {
            id,
            epoch,
            incarnation,
            directory,
            address,
            peer,
            rack,
            roles,
            features,
            fenced,
            wish,
            duty,
        }
    }

    /// Whether it may be in sync and, if there is no better, lead.
    pub fn is_live(&self) -> bool {
        !self.fenced && self.roles.broker
    }

    /// Whether leaderships and new replicas may go there.
    pub fn is_willing(&self) -> bool {
        self.is_live() && self.wish == Wish::Serve && self.duty == Duty::Serve
    }

    /// Whether it gives its leaderships away.
    pub fn is_draining(&self) -> bool {
        self.wish != Wish::Serve || self.duty != Duty::Serve
    }
}
