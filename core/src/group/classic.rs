//! One group of the classic protocol: its members, and the rebalance that gives each its part.
//! Kafka's `ClassicGroup`. The requests that move it are in `requests`, its offsets in `offsets`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::consumer::Consumer;
use super::desk::{Desk, Then};
use super::interface::{GroupLimits, Joined, Outcome, Refusal, TopicPartition};
use super::member::{Member, Waits};
use super::missed::Missed;
use super::record::{Entry, StoredGroup, StoredOffset};
use super::transactional::InTransaction;
use crate::id::{ProducerId, RequestId};
use crate::time::{Instant, Timestamp};
use crate::{mutant, reached};

/// How long an id that was handed out is kept after the coordinator was away.
const FORGIVEN: Duration = Duration::from_secs(6);

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) phase: Phase,
    pub(super) generation: i32,
    /// `consumer`, or whatever else the members speak; empty if there never was a member.
    pub(super) protocol_type: String,
    pub(super) protocol: Option<String>,
    pub(super) leader: Option<String>,
    pub(super) members: BTreeMap<String, Member>,
    /// Instance → member, of the static members.
    pub(super) instances: BTreeMap<String, String>,
    /// Ids that were handed out and whose owners have not joined yet; until when. KIP-394.
    pub(super) reserved: BTreeMap<String, Instant>,
    pub(super) offsets: BTreeMap<TopicPartition, StoredOffset>,
    /// What waits for the markers of transactions.
    pub(super) in_transactions: BTreeMap<ProducerId, InTransaction>,
    /// When the group became what it is; the retention of an empty group's offsets counts from it.
    pub(super) since: Timestamp,
    /// Appends in flight.
    pub(super) appends: usize,
    pub(super) joins: u64,
    /// Who fell silent since the last generation.
    pub(super) missed: Missed,
    /// Where it is a consumer group; then there are no members of the classic protocol.
    pub(super) consumer: Option<Box<Consumer>>,
    /// When sessions and reservations end: an index over `members` and `reserved`.
    sessions: BTreeSet<(Instant, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No members. There may be offsets.
    Empty,
    /// Members are joining. `gather`: a new group waits for more of them, at least until then.
    Preparing {
        since: Instant,
        gather: Option<Instant>,
    },
    /// The leader computes the assignment, or (`assigning`) the log is taking it.
    Completing {
        since: Instant,
        assigning: bool,
    },
    Stable,
}

impl Phase {
    /// Kafka's name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Preparing { .. } => "PreparingRebalance",
            Self::Completing { .. } => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

impl Group {
    pub(super) fn new(name: &str, since: Timestamp) -> Self {
        Self {
            name: name.to_owned(),
            phase: Phase::Empty,
            generation: 0,
            protocol_type: String::new(),
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            reserved: BTreeMap::new(),
            offsets: BTreeMap::new(),
            in_transactions: BTreeMap::new(),
            since,
            appends: 0,
            joins: 0,
            missed: Missed::default(),
            consumer: None,
            sessions: BTreeSet::new(),
        }
    }

    /// Takes over what the log says of the group. Everybody gets a whole session from `now`: a
    /// coordinator that could not hear them does not blame them.
    pub(super) fn restore(&mut self, stored: StoredGroup, now: Instant) {
        let mut fresh = Self::new(&self.name, stored.since);
        fresh.offsets = std::mem::take(&mut self.offsets);
        fresh.in_transactions = std::mem::take(&mut self.in_transactions);
        fresh.generation = stored.generation;
        fresh.protocol_type = stored.protocol_type;
        fresh.leader = stored.leader;
        let protocol = stored.protocol.unwrap_or_default();
        for stored in stored.members {
            fresh.joins += 1;
            let member = Member::from_stored(stored, &protocol, fresh.joins, now);
            fresh.insert(member);
        }
        if !fresh.members.is_empty() {
            fresh.phase = Phase::Stable;
            fresh.protocol = Some(protocol);
        }
        *self = fresh;
    }

    /// Every session begins at `now`.
    pub(super) fn hear_everybody(&mut self, now: Instant) {
        let ids: Vec<_> = self.members.keys().cloned().collect();
        for id in ids {
            self.change(&id, |member| member.heard = now);
        }
    }

    /// The coordinator itself was away until `now`: whatever should have come meanwhile may still
    /// come.
    pub(super) fn forgive(&mut self, now: Instant) {
        self.hear_everybody(now);
        if let Some(consumer) = &mut self.consumer {
            consumer.forgive(now);
        }
        for (id, until) in std::mem::take(&mut self.reserved) {
            self.sessions.remove(&(until, id.clone()));
            self.reserve(&id, until.max(now + FORGIVEN));
        }
        match &mut self.phase {
            Phase::Empty | Phase::Stable => {}
            Phase::Preparing { since, .. } | Phase::Completing { since, .. } => *since = now,
        }
    }

    /// Nothing is known of it that would have to be kept.
    pub(super) fn is_void(&self) -> bool {
        self.generation == 0
            && self.consumer.as_ref().is_none_or(|consumer| consumer.is_blank())
            && self.members.is_empty()
            && self.reserved.is_empty()
            && self.offsets.is_empty()
            && self.in_transactions.is_empty()
            && self.appends == 0
    }

    pub(super) fn insert(&mut self, member: Member) {
        if let Some(instance) = &member.instance {
            self.instances.insert(instance.clone(), member.id.clone());
        }
        if let Some(ends) = member.session_ends() {
            self.sessions.insert((ends, member.id.clone()));
        }
        self.members.insert(member.id.clone(), member);
    }

    /// The only way to change a member: the index of sessions follows.
    pub(super) fn change<R>(&mut self, id: &str, change: impl FnOnce(&mut Member) -> R) -> R {
        let member = self.members.get_mut(id).expect("only members are changed");
        let before = member.session_ends();
        let result = change(member);
        let after = member.session_ends();
        if before != after {
            if let Some(before) = before {
                self.sessions.remove(&(before, id.to_owned()));
            }
            if let Some(after) = after {
                self.sessions.insert((after, id.to_owned()));
            }
        }
        result
    }

    /// Takes a member out, and refuses what it waits for.
    pub(super) fn remove(&mut self, id: &str, refusal: Refusal, desk: &mut Desk<'_>) -> Member {
        self.stop_waiting(id, Outcome::Refused(refusal), desk);
        let member = self.members.remove(id).expect("only members are removed");
        if let Some(ends) = member.session_ends() {
            self.sessions.remove(&(ends, id.to_owned()));
        }
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = None;
        }
        member
    }

    pub(super) fn reserve(&mut self, id: &str, until: Instant) {
        self.reserved.insert(id.to_owned(), until);
        self.sessions.insert((until, id.to_owned()));
    }

    /// Whether the id was reserved; it is no more.
    pub(super) fn unreserve(&mut self, id: &str) -> bool {
        let until = self.reserved.remove(id);
        if let Some(until) = until {
            self.sessions.remove(&(until, id.to_owned()));
        }
        until.is_some()
    }

    /// Answers what the member waits for, if it does. Its session counts anew.
    pub(super) fn stop_waiting(&mut self, id: &str, outcome: Outcome, desk: &mut Desk<'_>) {
        let now = desk.now.monotonic;
        let waits = self.change(id, |member| {
            let waits = std::mem::replace(&mut member.waits, Waits::Not);
            if waits != Waits::Not {
                member.heard = now;
                member.knows_id |= !mutant!("new-member-timer");
            }
            waits
        });
        if let Waits::ForJoin(request) | Waits::ForSync(request) = waits {
            desk.reply(request, outcome);
        }
    }

    /// Nobody waits for `request` any more, which was the member's.
    pub(super) fn on_cancelled(&mut self, id: &str, desk: &mut Desk<'_>) {
        let Some(member) = self.members.get(id) else { return };
        if member.knows_id || member.instance.is_some() {
            let now = desk.now.monotonic;
            self.change(id, |member| {
                member.waits = Waits::Not;
                member.heard = now;
            });
        } else {
            // The client never learnt its id, so it can never come back as this member.
            self.change(id, |member| member.waits = Waits::Not);
            self.remove(id, Refusal::UnknownMember, desk);
            self.after_departure(desk);
        }
    }

    /// The longest time that a member asks for; every group has at least a moment.
    fn rebalance_timeout(&self) -> Duration {
        let longest = self.members.values().map(|member| member.rebalance_timeout).max();
        longest.unwrap_or_default().max(Duration::from_millis(1))
    }

    /// When this group wants to be ticked.
    pub(super) fn deadline(&self, limits: &GroupLimits) -> Option<Instant> {
        let session = self.sessions.first().map(|(ends, _)| *ends);
        let phase = match self.phase {
            Phase::Empty | Phase::Stable | Phase::Completing { assigning: true, .. } => None,
            Phase::Preparing { gather: Some(gather), .. } => Some(gather),
            Phase::Preparing { since, gather: None }
            | Phase::Completing { since, assigning: false } => {
                Some(since + self.rebalance_timeout())
            }
        };
        let consumer = self.consumer.as_ref().and_then(|consumer| consumer.deadline(limits));
        session.into_iter().chain(phase).chain(consumer).min()
    }

    /// Time has passed: sessions, reservations and phases end. All that ends at once costs one
    /// rebalance.
    pub(super) fn on_tick(&mut self, desk: &mut Desk<'_>) {
        let now = desk.now.monotonic;
        self.with_consumer(desk, Consumer::on_tick);
        let mut departed = false;
        let mut released = false;
        while let Some((ends, id)) = self.sessions.first()
            && *ends <= now
        {
            let id = id.clone();
            if self.unreserve(&id) {
                released = true;
            } else {
                reached!("session-ends");
                self.missed.lose();
                self.remove(&id, Refusal::UnknownMember, desk);
                departed = true;
            }
        }
        if departed {
            self.after_departure(desk);
        } else if released {
            self.try_complete_join(desk);
        }
        match self.phase {
            Phase::Preparing { since, gather: Some(gather) } if gather <= now => {
                self.phase = Phase::Preparing { since, gather: None };
                self.try_complete_join(desk);
            }
            Phase::Preparing { since, gather: None } if since + self.rebalance_timeout() <= now => {
                reached!("join-times-out");
                self.complete_join(desk);
            }
            Phase::Completing { since, assigning: false }
                if since + self.rebalance_timeout() <= now =>
            {
                reached!("sync-times-out");
                self.drop_unsynced(desk);
                self.prepare_rebalance(desk);
            }
            _ => {}
        }
    }

    fn drop_unsynced(&mut self, desk: &mut Desk<'_>) {
        let unsynced = |member: &&Member| !member.synced && member.waits == Waits::Not;
        let ids: Vec<_> =
            self.members.values().filter(unsynced).map(|member| member.id.clone()).collect();
        for id in ids {
            self.remove(&id, Refusal::UnknownMember, desk);
        }
    }

    /// Members have left: the rest shares anew.
    pub(super) fn after_departure(&mut self, desk: &mut Desk<'_>) {
        match self.phase {
            Phase::Empty => {}
            Phase::Preparing { .. } => self.try_complete_join(desk),
            Phase::Completing { .. } | Phase::Stable => self.prepare_rebalance(desk),
        }
    }

    /// Asks everybody to join again.
    pub(super) fn prepare_rebalance(&mut self, desk: &mut Desk<'_>) {
        let now = desk.now.monotonic;
        let syncing: Vec<_> = self
            .members
            .values()
            .filter(|member| matches!(member.waits, Waits::ForSync(_)))
            .map(|member| member.id.clone())
            .collect();
        for id in syncing {
            self.stop_waiting(&id, Outcome::Refused(Refusal::RebalanceInProgress), desk);
        }
        let first =
            self.phase == Phase::Empty && desk.limits.initial_rebalance_delay.as_nanos() > 0;
        self.phase = Phase::Preparing { since: now, gather: None };
        if first {
            self.gather_more(desk);
        }
        self.try_complete_join(desk);
    }

    /// A new group waits a little for more members: each newcomer extends the wait, up to the
    /// rebalance timeout. One that lost all of its members waits until as many are back.
    pub(super) fn gather_more(&mut self, desk: &Desk<'_>) {
        if let Phase::Preparing { since, .. } = self.phase {
            if self.missed.are_back(self.members.len()) {
                reached!("all-are-back");
                self.phase = Phase::Preparing { since, gather: None };
                return;
            }
            let wait = desk.now.monotonic + desk.limits.initial_rebalance_delay;
            let gather = Some(wait.min(since + self.rebalance_timeout()));
            self.phase = Phase::Preparing { since, gather };
        }
    }

    pub(super) fn is_gathering(&self) -> bool {
        matches!(self.phase, Phase::Preparing { gather: Some(_), .. })
    }

    /// Ends the joining as soon as everybody is there.
    pub(super) fn try_complete_join(&mut self, desk: &mut Desk<'_>) {
        let Phase::Preparing { gather, .. } = self.phase else { return };
        let joined = |member: &Member| matches!(member.waits, Waits::ForJoin(_));
        let everybody = self.reserved.is_empty() && self.members.values().all(joined);
        if self.members.is_empty() || (gather.is_none() && everybody) {
            self.complete_join(desk);
        }
    }

    /// Ends the joining: a new generation of those who are there.
    fn complete_join(&mut self, desk: &mut Desk<'_>) {
        let absent: Vec<_> = self
            .members
            .values()
            .filter(|member| !matches!(member.waits, Waits::ForJoin(_)))
            .filter(|member| member.instance.is_none())
            .map(|member| member.id.clone())
            .collect();
        for id in absent {
            self.missed.lose();
            self.remove(&id, Refusal::UnknownMember, desk);
        }
        if self.members.is_empty() {
            return self.become_empty(desk);
        }
        let Some(leader) = self.choose_leader() else {
            // Only static members, all away: their sessions decide.
            self.phase = Phase::Preparing { since: desk.now.monotonic, gather: None };
            return;
        };
        self.missed.forget();
        self.leader = Some(leader);
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.protocol = Some(self.vote());
        self.phase = Phase::Completing { since: desk.now.monotonic, assigning: false };
        let ids: Vec<_> = self.members.keys().cloned().collect();
        for id in ids {
            self.change(&id, |member| member.synced = false);
            let joined = self.joined(&id);
            self.stop_waiting(&id, Outcome::Joined(joined), desk);
        }
    }

    fn become_empty(&mut self, desk: &mut Desk<'_>) {
        self.phase = Phase::Empty;
        (self.protocol, self.leader) = (None, None);
        self.since = desk.now.wall;
        // A group whose first members never came to be has left nothing in the log.
        if self.generation > 0 {
            self.generation = self.generation.checked_add(1).unwrap_or(1);
            self.append_self(Then::default(), desk);
        }
    }

    /// The present leader if it is there, or else the first that joined.
    fn choose_leader(&self) -> Option<String> {
        let present = |member: &&Member| matches!(member.waits, Waits::ForJoin(_));
        let leader = self.leader.as_ref().and_then(|leader| self.members.get(leader));
        let first = || self.members.values().filter(present).min_by_key(|member| member.order);
        leader.filter(present).or_else(first).map(|member| member.id.clone())
    }

    /// Each member votes for the first of its protocols that all support.
    pub(super) fn vote(&self) -> String {
        let mut votes = BTreeMap::<&str, usize>::new();
        for member in self.members.values() {
            let choice = member.protocols.iter().find(|protocol| self.all_support(&protocol.name));
            if let Some(choice) = choice {
                *votes.entry(&choice.name).or_default() += 1;
            }
        }
        // Names break ties, so that the same group always chooses alike.
        let winner = votes.iter().max_by_key(|(name, count)| (**count, std::cmp::Reverse(*name)));
        winner.map(|(name, _)| (*name).to_owned()).expect("who joins shares a protocol with all")
    }

    pub(super) fn all_support(&self, protocol: &str) -> bool {
        self.members.values().all(|member| member.supports(protocol))
    }

    /// What the member is told of the present generation; everybody's metadata for the leader.
    pub(super) fn joined(&self, id: &str) -> Joined {
        let protocol = self.protocol.clone().unwrap_or_default();
        let leader = self.leader.clone().unwrap_or_default();
        let members = if leader == id {
            self.members.values().map(|member| member.joined(&protocol)).collect()
        } else {
            Vec::new()
        };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol,
            leader,
            member: id.to_owned(),
            skip_assignment: false,
            members,
        }
    }

    pub(super) fn synced(&self, id: &str) -> Outcome {
        Outcome::Synced {
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone().unwrap_or_default(),
            assignment: self
                .members
                .get(id)
                .map(|member| member.assignment.clone())
                .unwrap_or_default(),
        }
    }

    /// What the log is to have of the group as it is now.
    pub(super) fn stored(&self) -> Entry {
        let protocol = self.protocol.clone().unwrap_or_default();
        let stored = StoredGroup {
            protocol_type: self.protocol_type.clone(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            since: self.since,
            members: self.members.values().map(|member| member.stored(&protocol)).collect(),
        };
        Entry::Group { group: self.name.clone(), value: Some(stored) }
    }

    /// Writes the group down as it is now.
    pub(super) fn append_self(&mut self, then: Then, desk: &mut Desk<'_>) {
        let request = then.reply.as_ref().map(|(request, _)| *request);
        let entry = self.stored();
        match desk.append(&self.name, vec![entry], then) {
            Ok(()) => self.appends += 1,
            Err(refusal) => {
                if let Some(request) = request {
                    desk.refuse(request, refusal);
                }
            }
        }
    }

    /// The log has the assignment of this generation: the members may have it too.
    pub(super) fn on_assigned(&mut self, generation: i32, desk: &mut Desk<'_>) {
        if !self.is_assigning(generation) {
            reached!("assignment-overtaken");
            return;
        }
        self.phase = Phase::Stable;
        for (id, _) in self.syncing() {
            let synced = self.synced(&id);
            self.stop_waiting(&id, synced, desk);
        }
    }

    /// The log did not take the assignment: everybody starts over.
    pub(super) fn on_assignment_refused(&mut self, generation: i32, desk: &mut Desk<'_>) {
        if !self.is_assigning(generation) {
            return;
        }
        for (id, _) in self.syncing() {
            self.stop_waiting(&id, Outcome::Refused(Refusal::NotAvailable), desk);
        }
        self.prepare_rebalance(desk);
    }

    fn is_assigning(&self, generation: i32) -> bool {
        generation == self.generation
            && matches!(self.phase, Phase::Completing { assigning: true, .. })
    }

    fn syncing(&self) -> Vec<(String, RequestId)> {
        let waits = |member: &Member| match member.waits {
            Waits::ForSync(request) => Some((member.id.clone(), request)),
            Waits::Not | Waits::ForJoin(_) => None,
        };
        self.members.values().filter_map(waits).collect()
    }

    /// Panics if the group is impossible.
    pub(super) fn check(&self, is_loading: bool) {
        let ends = self
            .members
            .values()
            .filter_map(|member| member.session_ends().map(|ends| (ends, member.id.clone())));
        let reserved = self.reserved.iter().map(|(id, until)| (*until, id.clone()));
        assert_eq!(self.sessions, ends.chain(reserved).collect(), "sessions are an index");
        for (instance, id) in &self.instances {
            assert_eq!(self.members[id].instance.as_ref(), Some(instance));
        }
        let statics = self.members.values().filter(|member| member.instance.is_some()).count();
        assert_eq!(statics, self.instances.len(), "each static member has its instance");
        if let Some(leader) = &self.leader {
            assert!(self.members.contains_key(leader), "the leader is a member");
        }
        if let Some(consumer) = &self.consumer {
            assert!(self.phase == Phase::Empty && self.reserved.is_empty());
            if !is_loading {
                consumer.check();
            }
        }
        match self.phase {
            Phase::Empty => assert!(self.members.is_empty() && self.leader.is_none()),
            Phase::Preparing { .. } => assert!(!self.members.is_empty()),
            Phase::Completing { .. } | Phase::Stable => {
                let protocol = self.protocol.as_deref().expect("a generation has a protocol");
                assert!(self.all_support(protocol), "everybody supports what was chosen");
            }
        }
        for member in self.members.values() {
            match member.waits {
                Waits::Not => {}
                Waits::ForJoin(_) => assert!(matches!(self.phase, Phase::Preparing { .. })),
                Waits::ForSync(_) => assert!(matches!(self.phase, Phase::Completing { .. })),
            }
        }
    }
}
