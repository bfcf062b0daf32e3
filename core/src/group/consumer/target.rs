//! When a consumer group shares out anew, and among whom.

use std::collections::{BTreeMap, BTreeSet};

use super::super::desk::Desk;
use super::super::interface::GroupLimits;
use super::super::missed::Awaiting;
use super::super::topics::Topics;
use super::assign::{self, Subscriber, Wanted};
use super::keep::Key;
use super::{Consumer, ConsumerMember};
use crate::reached;
use crate::time::Instant;

impl Consumer {
    /// Something has changed of which the targets depend.
    pub(super) fn bump(&mut self) {
        self.state.epoch = self.state.epoch.checked_add(1).expect("2^31 rebalances are not seen");
        self.keeping.soil(Key::Epoch);
    }

    /// The topics that `member` subscribes to, whether they are there or not.
    fn subscribed<'a>(&'a self, member: &'a ConsumerMember) -> impl Iterator<Item = &'a String> {
        let pattern = member.regex.as_ref().and_then(|regex| self.patterns.get(regex));
        member.topics.iter().chain(pattern.into_iter().flat_map(|pattern| &pattern.topics))
    }

    /// Looks anew at the topics that there are; whether those that concern this group changed.
    pub(super) fn refresh(&mut self, topics: &Topics) -> bool {
        let used: BTreeSet<&String> =
            self.state.members.values().filter_map(|member| member.regex.as_ref()).collect();
        self.patterns.retain(|text, _| used.contains(text));
        let names: BTreeSet<&String> =
            self.state.members.values().flat_map(|member| self.subscribed(member)).collect();
        let there: BTreeMap<_, _> =
            names.into_iter().filter_map(|name| Some((name.clone(), topics.get(name)?))).collect();
        let changed = there != self.state.topics;
        if changed {
            self.state.topics = there;
            self.keeping.soil(Key::Topics);
        }
        changed
    }

    /// Topics have changed: those of these names, or (`None`) any. The group shares out anew if
    /// they concern it.
    pub(in super::super) fn on_topics(
        &mut self,
        changed: Option<&BTreeSet<String>>,
        desk: &Desk<'_>,
    ) {
        match changed {
            Some(changed) => {
                for pattern in self.patterns.values_mut() {
                    for name in changed {
                        pattern.look_at(name, desk.topics);
                    }
                }
            }
            None => self.compile_patterns(desk.topics),
        }
        if self.refresh(desk.topics) {
            reached!("consumer-topics-change");
            self.bump();
        }
        self.assign_if_due(desk);
    }

    /// Every member's pattern was accepted when the member brought it; one that a later build
    /// does not know any more means no topic.
    fn compile_patterns(&mut self, topics: &Topics) {
        let texts: BTreeSet<String> =
            self.state.members.values().filter_map(|member| member.regex.clone()).collect();
        self.patterns = texts
            .into_iter()
            .filter_map(|text| {
                let pattern = super::Pattern::new(&text, topics).ok()?;
                Some((text, pattern))
            })
            .collect();
    }

    /// The assignor that most members ask for.
    pub(super) fn assignor(&self) -> &'static str {
        assign::vote(self.state.members.values().map(|member| member.assignor.as_deref()))
    }

    /// A member comes. A group of which nobody was left waits for more of those that it misses: for
    /// as long as changes are coalesced after each that comes, and in all for the interval in which
    /// everybody who lives is heard once.
    pub(super) fn await_the_missed(&mut self, desk: &Desk<'_>) {
        if self.missed.any() && (self.is_empty() || self.awaits.is_some()) {
            let limits = desk.limits;
            let (each, most) =
                (limits.consumer_assignment_interval, limits.consumer_heartbeat_interval);
            self.awaits = Some(Awaiting::go_on(self.awaits, desk.now.monotonic, each, most));
        }
    }

    /// When targets are to be computed, if they are.
    pub(super) fn target_due(&self, limits: &GroupLimits) -> Option<Instant> {
        let due = self.assigned_at.map(|at| at + limits.consumer_assignment_interval);
        let are_back = self.missed.are_back(self.state.members.len());
        let awaited = self.awaits.filter(|_| !are_back).map(|awaiting| awaiting.until);
        // Without a time it was due at once, and was done.
        due.max(awaited).filter(|_| self.state.epoch > self.state.target_epoch)
    }

    /// Computes the targets, unless they were just now: what changes within a moment costs one
    /// rebalance.
    pub(super) fn assign_if_due(&mut self, desk: &Desk<'_>) {
        let now = desk.now.monotonic;
        let is_due = self.target_due(desk.limits).is_none_or(|due| due <= now);
        if self.state.epoch > self.state.target_epoch && is_due {
            self.assign(now);
        }
    }

    fn assign(&mut self, now: Instant) {
        let members = self.state.members.iter().map(|(id, member)| {
            let topics = self.subscribed(member).filter_map(|name| self.state.topics.get(name));
            let subscriber = Subscriber {
                topics: topics.map(|topic| topic.id).collect(),
                before: self.state.targets[id].clone(),
                order: member.instance.as_ref().unwrap_or(id).clone(),
                rank: self.presence[id].rank(now),
            };
            (id.clone(), subscriber)
        });
        let topics = self.state.topics.values().map(|topic| (topic.id, topic.partitions));
        let wanted = Wanted { members: members.collect(), topics: topics.collect() };
        for (id, target) in assign::assign(self.assignor(), &wanted) {
            if self.state.targets[&id] != target {
                self.state.targets.insert(id.clone(), target);
                self.keeping.soil(Key::Target(id));
            }
        }
        self.state.target_epoch = self.state.epoch;
        self.keeping.soil(Key::TargetEpoch);
        self.assigned_at = Some(now);
        if self.awaits.take().is_some() {
            reached!("the-missed-were-awaited");
            self.missed.forget();
        }
    }
}
