//! When the controller last heard of each node, and what it will do by time alone. Soft state of
//! the one that leads: a new controller gives every node a full session.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::NodeId;
use crate::time::Instant;

/// What happens when its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The node's session ends.
    Session(NodeId),
    /// The node has been fenced for so long that its replicas are made anew elsewhere.
    Gone(NodeId),
    /// Leaderships go back to where they belong.
    Balance,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    heard: BTreeMap<NodeId, Instant>,
    planned: BTreeMap<Due, Instant>,
    agenda: BTreeSet<(Instant, Due)>,
}

impl Sessions {
    /// When this life, or one before, was last heard of.
    pub(super) fn heard(&self, node: NodeId) -> Option<Instant> {
        self.heard.get(&node).copied()
    }

    pub(super) fn hear(&mut self, now: Instant, node: NodeId) {
        self.heard.insert(node, now);
    }

    /// Forgets all about a node.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.heard.remove(&node);
        self.cancel(Due::Session(node));
        self.cancel(Due::Gone(node));
    }

    /// `due` comes at `at`, and not when it was to come before.
    pub(super) fn plan(&mut self, due: Due, at: Instant) {
        self.cancel(due);
        self.planned.insert(due, at);
        self.agenda.insert((at, due));
    }

    pub(super) fn cancel(&mut self, due: Due) {
        if let Some(at) = self.planned.remove(&due) {
            self.agenda.remove(&(at, due));
        }
    }

    pub(super) fn is_planned(&self, due: Due) -> bool {
        self.planned.contains_key(&due)
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.agenda.first().map(|&(at, _)| at)
    }

    /// What was planned for now or before, the earliest first.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Due> {
        let (at, due) = self.agenda.pop_first()?;
        if at > now {
            self.agenda.insert((at, due));
            return None;
        }
        self.planned.remove(&due);
        Some(due)
    }

    pub(super) fn check(&self) {
        assert_eq!(self.planned.len(), self.agenda.len());
        assert!(self.planned.iter().all(|(due, at)| self.agenda.contains(&(*at, *due))));
    }
}
