//! A consumer group, KIP-848: the coordinator itself shares out, and each member comes to its part
//! at its own pace, by heartbeats.
//!
//! Three epochs tell how far that is. The group's rises with whatever would change the targets; the
//! target's is that for which they were computed; a member's is that whose target it has come to.
//! What the group is stands in `State`, all of which is written to the log before anybody is
//! answered by it (`consumer/keep.rs`).

pub mod assign;
pub mod reconcile;

pub(super) mod classic;
pub(super) mod heartbeat;
pub(super) mod keep;
mod target;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use self::classic::Joining;
use self::keep::{Keeping, Key};
use self::reconcile::{Current, Progress};
use super::assignment::Assignment;
use super::desk::Desk;
use super::interface::{
    ConsumerDescribed, ConsumerMemberDescribed, GroupLimits, NamedAssignment, Refusal, TopicInfo,
};
use super::missed::{Awaiting, Missed};
use super::record::{ConsumerEntry, ConsumerMember};
use super::topics::{Pattern, Topics};
use crate::id::{RequestId, TopicId};
use crate::time::Instant;
use crate::{mutant, reached};

/// One append of a group is in flight at a time. A silent member whose time is over meanwhile is
/// given up so much later, with all whose time is over by then, and not another session later. Who
/// waits for the log has so much time at least, whatever it said that it needs: 0 is allowed, and
/// what is due again at the same instant would be due for ever.
const MOMENT: Duration = Duration::from_millis(100);

/// The epoch of a static member that has left and means to come back.
pub(super) const AWAY: i32 = -2;

/// What the log holds of a group, or will hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) epoch: i32,
    /// The topics that members subscribe to and that there are, as of `epoch`.
    pub(super) topics: BTreeMap<String, TopicInfo>,
    pub(super) members: BTreeMap<String, ConsumerMember>,
    pub(super) target_epoch: i32,
    pub(super) targets: BTreeMap<String, Assignment>,
    pub(super) currents: BTreeMap<String, Current>,
}

/// What is known of a member only while this coordinator leads.
#[derive(Clone, Debug)]
struct Presence {
    /// Its session counts from here.
    heard: Instant,
    session_timeout: Duration,
    /// Until when it must have given up what it was told to.
    revoke_by: Option<Instant>,
    /// Until when it must have joined again, which a member of the classic protocol was told to.
    rejoin_by: Option<Instant>,
    /// It has said that it has just what it is to have.
    confirmed: bool,
    /// When it is to be heard next.
    due: Instant,
}

impl Presence {
    fn new(heard: Instant, session_timeout: Duration) -> Self {
        let (revoke_by, rejoin_by) = (None, None);
        Self { heard, session_timeout, revoke_by, rejoin_by, confirmed: false, due: heard }
    }

    fn ends(&self) -> Instant {
        let session = self.heard + self.session_timeout;
        self.revoke_by.into_iter().chain(self.rejoin_by).fold(session, Instant::min)
    }

    /// Its time is not over before `until`.
    fn postpone(&mut self, until: Instant) {
        self.heard = self.heard.max(until - self.session_timeout);
        self.revoke_by = self.revoke_by.map(|by| by.max(until));
        self.rejoin_by = self.rejoin_by.map(|by| by.max(until));
    }

    /// Whatever should have come until `now` may still come, within `patience`.
    fn forgive(&mut self, now: Instant, patience: Duration) {
        let until = now + patience.max(MOMENT);
        self.heard = now;
        self.revoke_by = self.revoke_by.map(|_| until);
        self.rejoin_by = self.rejoin_by.map(|_| until);
    }
}

#[derive(Clone, Debug)]
pub(super) struct Consumer {
    pub(super) state: State,
    /// Who has a partition, or has not said that it gave it up: an index over `state.currents`.
    owners: BTreeMap<(TopicId, i32), String>,
    /// Instance → member, of the static members.
    instances: BTreeMap<String, String>,
    presence: BTreeMap<String, Presence>,
    /// When members are given up: an index over `presence`.
    ends: BTreeSet<(Instant, String)>,
    /// Of all members, by their text.
    patterns: BTreeMap<String, Pattern>,
    /// Members of the classic protocol whose joins wait for targets.
    joining: BTreeMap<String, Joining>,
    /// When targets were last computed in this life.
    assigned_at: Option<Instant>,
    /// Who fell silent since somebody was heard.
    missed: Missed,
    /// The group, of which nobody was left, waits for those that it misses.
    awaits: Option<Awaiting>,
    pub(super) keeping: Keeping,
}

impl Consumer {
    /// A group without members, whose epochs go on from `epoch`.
    pub(super) fn new(epoch: i32) -> Self {
        Self {
            state: State { epoch, target_epoch: epoch, ..State::default() },
            owners: BTreeMap::new(),
            instances: BTreeMap::new(),
            presence: BTreeMap::new(),
            ends: BTreeSet::new(),
            patterns: BTreeMap::new(),
            joining: BTreeMap::new(),
            assigned_at: None,
            missed: Missed::default(),
            awaits: None,
            keeping: Keeping::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.members.is_empty()
    }

    /// The log has nothing of it, and will have nothing.
    pub(super) fn is_blank(&self) -> bool {
        self.state == State::default() && !self.keeping.is_busy()
    }

    /// Kafka's name.
    pub(super) fn phase(&self) -> &'static str {
        let settled = |(id, current): (&String, &Current)| {
            let is_away = current.epoch == AWAY && self.state.members[id].instance.is_some();
            let is_there = current.epoch == self.state.target_epoch;
            is_away || (is_there && current.progress == Progress::Stable)
        };
        if self.is_empty() {
            "Empty"
        } else if self.state.epoch > self.state.target_epoch {
            "Assigning"
        } else if self.state.currents.iter().all(settled) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// Takes over what a replayed record says.
    pub(super) fn fold(&mut self, entry: ConsumerEntry) {
        let state = &mut self.state;
        match entry {
            ConsumerEntry::Epoch(epoch) => state.epoch = epoch.unwrap_or_default(),
            ConsumerEntry::Topics(topics) => state.topics = topics.unwrap_or_default(),
            ConsumerEntry::TargetEpoch(epoch) => state.target_epoch = epoch.unwrap_or_default(),
            ConsumerEntry::Member(id, member) => put(&mut state.members, id, member),
            ConsumerEntry::Target(id, target) => put(&mut state.targets, id, target),
            ConsumerEntry::Current(id, current) => put(&mut state.currents, id, current),
        }
    }

    /// The log was replayed: what it says is made whole, and everybody gets a session from `now`.
    pub(super) fn on_loaded(&mut self, desk: &Desk<'_>) {
        let state = &mut self.state;
        // Records of one step are one batch; only a foreign or compacted log has halves.
        state.targets.retain(|id, _| state.members.contains_key(id));
        state.currents.retain(|id, _| state.members.contains_key(id));
        for id in state.members.keys() {
            state.targets.entry(id.clone()).or_default();
            state.currents.entry(id.clone()).or_default();
        }
        self.index(desk);
        if desk.topics.is_known {
            self.on_topics(None, desk);
        }
    }

    /// Makes the indexes anew, and gives everybody a session from now.
    pub(super) fn index(&mut self, desk: &Desk<'_>) {
        let now = desk.now.monotonic;
        let state = &mut self.state;
        self.owners.clear();
        for (id, current) in &mut state.currents {
            // Nor does our log give a partition to two; who comes first has it.
            for part in [&mut current.assigned, &mut current.revoking] {
                let own = part.iter().filter(|place| !self.owners.contains_key(place));
                *part = own.collect();
                self.owners.extend(part.iter().map(|place| (place, id.clone())));
            }
        }
        let statics = |(id, member): (&String, &ConsumerMember)| {
            member.instance.clone().map(|instance| (instance, id.clone()))
        };
        self.instances = state.members.iter().filter_map(statics).collect();
        let ids: Vec<_> = state.members.keys().cloned().collect();
        for id in ids {
            self.appear(&id, desk);
            if self.state.currents[&id].progress == Progress::Unrevoked {
                let revoke_by = now + self.state.members[&id].rebalance_timeout;
                self.change_presence(&id, |presence| presence.revoke_by = Some(revoke_by));
            }
        }
    }

    /// The coordinator itself was away until now: whatever should have come meanwhile may still
    /// come.
    pub(super) fn forgive(&mut self, now: Instant) {
        let ids: Vec<_> = self.presence.keys().cloned().collect();
        for id in ids {
            let patience = self.state.members[&id].rebalance_timeout;
            self.change_presence(&id, |presence| presence.forgive(now, patience));
        }
    }

    /// When this group wants to be ticked.
    pub(super) fn deadline(&self, limits: &GroupLimits) -> Option<Instant> {
        let ends = self.ends.first().map(|(ends, _)| *ends);
        let target = self.target_due(limits);
        ends.into_iter().chain(target).chain(self.keeping.retry_at()).min()
    }

    /// Members whose time is over are gone: all at once cost one rebalance.
    pub(super) fn on_tick(&mut self, desk: &mut Desk<'_>) {
        let now = desk.now.monotonic;
        let mut departed = false;
        while let Some((ends, id)) = self.ends.first()
            && *ends <= now
        {
            let id = id.clone();
            if self.keeping.keeps_waiting(&id) {
                // It waits for the log, as everybody does.
                let patience = self.state.members[&id].rebalance_timeout;
                self.change_presence(&id, |presence| presence.forgive(now, patience));
            } else if self.keeping.is_writing() {
                reached!("a-session-ends-while-the-log-is-written");
                self.change_presence(&id, |presence| presence.postpone(now + MOMENT));
            } else {
                reached!("consumer-session-ends");
                self.missed.lose();
                self.remove(&id, Refusal::UnknownMember, desk);
                departed = true;
            }
        }
        if departed {
            self.after_departure(desk);
        }
        self.assign_if_due(desk);
    }

    /// Members have left: the rest shares anew, unless it becomes a classic group, which does so
    /// by itself.
    fn after_departure(&mut self, desk: &Desk<'_>) {
        if !self.becomes_classic(desk.limits) {
            self.refresh(desk.topics);
            self.bump();
            self.assign_if_due(desk);
        }
    }

    /// Whether only members of the classic protocol are left, and may have their own again.
    pub(super) fn becomes_classic(&self, limits: &GroupLimits) -> bool {
        let mut members = self.state.members.values();
        limits.migration.downgrades()
            && !self.is_empty()
            && members.all(|member| member.classic.is_some())
    }

    fn appear(&mut self, id: &str, desk: &Desk<'_>) {
        let classic = self.state.members[id].classic.as_ref();
        let session = classic.map(|classic| classic.session_timeout);
        let session = session.unwrap_or(desk.limits.consumer_session_timeout);
        let presence = Presence::new(desk.now.monotonic, session);
        self.ends.insert((presence.ends(), id.to_owned()));
        self.presence.insert(id.to_owned(), presence);
    }

    /// The only way to change a presence: the index follows.
    fn change_presence(&mut self, id: &str, change: impl FnOnce(&mut Presence)) {
        let presence = self.presence.get_mut(id).expect("only members are changed");
        let before = presence.ends();
        change(presence);
        let after = presence.ends();
        if before != after {
            self.ends.remove(&(before, id.to_owned()));
            self.ends.insert((after, id.to_owned()));
        }
    }

    /// The only way to change what a member has: the owners follow, and the time it has for it.
    fn set_current(&mut self, id: &str, current: Current, now: Instant) {
        let before = self.state.currents.get(id).cloned().unwrap_or_default();
        if before == current && self.state.currents.contains_key(id) {
            return;
        }
        if mutant!("partition-epoch-lost") {
            self.owners.extend(current.owned().map(|place| (place, id.to_owned())));
            before.owned().filter(|place| before.revoking.contains(place.0, place.1)).for_each(
                |place| {
                    self.owners.remove(&place);
                },
            );
        } else {
            for place in before.owned() {
                self.owners.remove(&place);
            }
            self.owners.extend(current.owned().map(|place| (place, id.to_owned())));
        }
        let is_told = current.progress == Progress::Unrevoked;
        let again = is_told && before.progress == Progress::Unrevoked;
        if !(again && before.revoking == current.revoking) {
            let patience = self.state.members[id].rebalance_timeout;
            self.change_presence(id, |presence| {
                presence.revoke_by = is_told.then_some(now + patience);
            });
        }
        self.state.currents.insert(id.to_owned(), current);
        self.keeping.soil(Key::Current(id.to_owned()));
    }

    /// A new member, who has nothing yet.
    fn enlist(&mut self, id: &str, instance: Option<String>, desk: &Desk<'_>) {
        self.await_the_missed(desk);
        if let Some(instance) = &instance {
            self.instances.insert(instance.clone(), id.to_owned());
        }
        self.state
            .members
            .insert(id.to_owned(), ConsumerMember { instance, ..ConsumerMember::default() });
        self.state.targets.insert(id.to_owned(), Assignment::default());
        self.appear(id, desk);
        self.set_current(id, Current::default(), desk.now.monotonic);
        self.keeping.soil(Key::Member(id.to_owned()));
    }

    /// A member's next step towards its target.
    fn step(&mut self, id: &str, reported: Option<&Assignment>, now: Instant) {
        let state = &self.state;
        let is_free = |topic, at| self.owners.get(&(topic, at)).is_none_or(|owner| owner == id);
        let (target, epoch) = (&state.targets[id], state.target_epoch);
        let next = state.currents[id].step(target, epoch, reported, is_free);
        self.set_current(id, next, now);
    }

    /// Nobody waits for it any more.
    pub(super) fn on_cancelled(&mut self, request: RequestId) {
        self.joining.retain(|_, joining| joining.request() != request);
        self.keeping.on_cancelled(request);
    }

    /// Takes a member out; whatever it waits for is refused.
    fn remove(&mut self, id: &str, refusal: Refusal, desk: &mut Desk<'_>) {
        self.keeping.refuse_member(id, &refusal, desk);
        if let Some(joining) = self.joining.remove(id) {
            desk.refuse(joining.request(), refusal);
        }
        if let Some(current) = self.state.currents.remove(id) {
            for place in current.owned() {
                self.owners.remove(&place);
            }
        }
        let member = self.state.members.remove(id).expect("only members are removed");
        self.state.targets.remove(id);
        if let Some(instance) = member.instance {
            self.instances.remove(&instance);
        }
        let presence = self.presence.remove(id).expect("members have a presence");
        self.ends.remove(&(presence.ends(), id.to_owned()));
        self.keeping.soil(Key::Member(id.to_owned()));
        self.keeping.soil(Key::Target(id.to_owned()));
        self.keeping.soil(Key::Current(id.to_owned()));
    }

    /// Whether a member has that id and epoch.
    pub(super) fn check_epoch(&self, member: &str, epoch: i32) -> Result<(), Refusal> {
        match self.state.currents.get(member) {
            None => Err(Refusal::UnknownMember),
            Some(current) if current.epoch == epoch => Ok(()),
            Some(_) if self.state.members[member].classic.is_some() => {
                Err(Refusal::IllegalGeneration)
            }
            Some(_) => Err(Refusal::StaleMemberEpoch),
        }
    }

    /// Whether the member is here, and has an epoch rather than a generation.
    pub(super) fn has_by_epoch(&self, member: &str) -> bool {
        self.state.members.get(member).is_some_and(|member| member.classic.is_none())
    }

    pub(super) fn is_subscribed(&self, topic: &str) -> bool {
        self.state.members.values().any(|member| {
            member.topics.iter().any(|name| name == topic)
                || member
                    .regex
                    .as_ref()
                    .and_then(|regex| self.patterns.get(regex))
                    .is_some_and(|pattern| pattern.topics.contains(topic))
        })
    }

    pub(super) fn describe(&self, group: String, topics: &Topics) -> ConsumerDescribed {
        let named = |assignment: &Assignment| -> NamedAssignment {
            let topics = assignment.topics().map(|(topic, partitions)| {
                let name = topics.name(topic).unwrap_or_default().to_owned();
                (topic, name, partitions.iter().copied().collect())
            });
            topics.collect()
        };
        let members = self.state.members.iter().map(|(id, member)| {
            let current = &self.state.currents[id];
            ConsumerMemberDescribed {
                id: id.clone(),
                epoch: current.epoch,
                member: member.clone(),
                assigned: named(&current.assigned),
                target: named(&self.state.targets[id]),
            }
        });
        ConsumerDescribed {
            group,
            state: self.phase(),
            epoch: self.state.epoch,
            target_epoch: self.state.target_epoch,
            assignor: self.assignor(),
            members: members.collect(),
        }
    }

    /// The whole state in a line.
    pub(super) fn status(&self, topics: &Topics) -> String {
        let State { epoch, target_epoch, .. } = self.state;
        let mut out = format!("{} epoch={epoch} target={target_epoch}", self.phase());
        let list = |assignment: &Assignment| {
            let places: Vec<_> = assignment
                .iter()
                .map(|(topic, partition)| {
                    format!("{}-{partition}", topics.name(topic).unwrap_or("?"))
                })
                .collect();
            places.join(" ")
        };
        for (id, current) in &self.state.currents {
            let _ = write!(out, " [{id} @{} {:?}", current.epoch, current.progress);
            let _ = write!(out, " {{{}}}", list(&current.assigned));
            if !current.revoking.is_empty() {
                let _ = write!(out, " revoking {{{}}}", list(&current.revoking));
            }
            let target = &self.state.targets[id];
            if *target != current.assigned {
                let _ = write!(out, " wants {{{}}}", list(target));
            }
            out.push(']');
        }
        out
    }

    /// Panics if the group is impossible. Called once the log is replayed: while it is, a compacted
    /// one may tell of a target before it tells of the group's epoch.
    pub(super) fn check(&self) {
        let state = &self.state;
        let mut owners = BTreeMap::new();
        for (id, current) in &state.currents {
            for place in current.owned() {
                let other = owners.insert(place, id.clone());
                assert!(other.is_none(), "a partition has two owners: {id} and {other:?}");
            }
            assert!(current.epoch <= state.target_epoch, "a member is ahead of the target");
            let told = current.progress == Progress::Unrevoked;
            assert_eq!(told, !current.revoking.is_empty(), "who is told to revoke has something");
            assert_eq!(told, self.presence[id].revoke_by.is_some(), "and a time for it");
        }
        assert_eq!(self.owners, owners, "owners are an index");
        assert!(state.target_epoch <= state.epoch, "targets are not ahead of the group");
        assert!(state.members.keys().eq(state.currents.keys()));
        assert!(state.members.keys().eq(state.targets.keys()));
        assert!(state.members.keys().eq(self.presence.keys()));
        let mut targets = BTreeSet::new();
        for target in state.targets.values() {
            let disjoint = target.iter().all(|place| targets.insert(place));
            assert!(disjoint, "a partition has two targets: {state:?}");
        }
        let ends = self.presence.iter().map(|(id, presence)| (presence.ends(), id.clone()));
        assert_eq!(self.ends, ends.collect(), "ends are an index");
        let statics = state.members.values().filter(|member| member.instance.is_some()).count();
        assert_eq!(statics, self.instances.len(), "each static member has its instance");
        assert!(self.joining.keys().all(|id| state.members.contains_key(id)), "members join");
        for (instance, id) in &self.instances {
            assert_eq!(state.members[id].instance.as_ref(), Some(instance));
        }
    }
}

fn put<T>(map: &mut BTreeMap<String, T>, id: String, value: Option<T>) {
    match value {
        Some(value) => map.insert(id, value),
        None => map.remove(&id),
    };
}
