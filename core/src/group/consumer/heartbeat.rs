//! The heartbeat of a consumer group's member: it joins, lives, reconciles and leaves by it.
//! Kafka's `GroupMetadataManager.consumerGroupHeartbeat`.

use std::collections::BTreeSet;

use super::super::desk::{Desk, TEXT_BYTES_MAX};
use super::super::interface::{ConsumerAlive, ConsumerHeartbeat, Refusal};
use super::super::topics::Pattern;
use super::assign::ASSIGNORS;
use super::keep::Key;
use super::reconcile::{Current, Progress};
use super::{AWAY, Consumer};
use crate::{mutant, reached};

/// The epoch by which a member joins, and that by which it leaves for good.
const JOIN: i32 = 0;
const LEAVE: i32 = -1;

/// Whether the heartbeat has what its epoch demands, whatever the group is.
pub(in super::super) fn check(heartbeat: &ConsumerHeartbeat) -> Result<(), Refusal> {
    let invalid = |why| Err(Refusal::InvalidHeartbeat { why });
    let texts = [
        Some(&heartbeat.member),
        heartbeat.instance.as_ref(),
        heartbeat.rack.as_ref(),
        heartbeat.regex.as_ref(),
        Some(&heartbeat.client_id),
        Some(&heartbeat.client_host),
    ];
    let topics = heartbeat.topics.iter().flatten();
    if texts.into_iter().flatten().chain(topics).any(|text| text.len() > TEXT_BYTES_MAX) {
        return invalid("a text is too long");
    }
    if heartbeat.instance.as_ref().is_some_and(String::is_empty) {
        return invalid("the instance id is empty");
    }
    if heartbeat.rack.as_ref().is_some_and(String::is_empty) {
        return invalid("the rack is empty");
    }
    if heartbeat.epoch != JOIN && heartbeat.member.is_empty() {
        return invalid("the member id is empty");
    }
    match heartbeat.epoch {
        JOIN => {
            if heartbeat.rebalance_timeout.is_none() {
                return invalid("whoever joins says its rebalance timeout");
            }
            if heartbeat.topics.is_none() && heartbeat.regex.is_none() {
                return invalid("whoever joins says what it subscribes to");
            }
            if heartbeat.owned.as_ref().is_none_or(|owned| !owned.is_empty()) {
                return invalid("whoever joins has no partitions, and says so");
            }
        }
        AWAY if heartbeat.instance.is_none() => {
            return invalid("only a static member leaves for a while");
        }
        epoch if epoch < AWAY => return invalid("no epoch is so low"),
        _ => {}
    }
    match &heartbeat.assignor {
        Some(name) if !ASSIGNORS.contains(&name.as_str()) => Err(Refusal::UnsupportedAssignor),
        _ => Ok(()),
    }
}

impl Consumer {
    /// The answer is true once the log has what is soiled then.
    pub(in super::super) fn on_heartbeat(
        &mut self,
        mut heartbeat: ConsumerHeartbeat,
        desk: &mut Desk<'_>,
    ) -> Result<ConsumerAlive, Refusal> {
        if self.keeping.is_ending {
            // It is forgotten first; then this is a member of a new group.
            return Err(Refusal::NotAvailable);
        }
        if heartbeat.epoch == JOIN && heartbeat.member.is_empty() {
            heartbeat.member = desk.draw_member_id(&heartbeat.client_id);
        }
        if heartbeat.epoch == LEAVE || heartbeat.epoch == AWAY {
            return self.on_leave(&heartbeat, desk);
        }
        let mut changed = false;
        if heartbeat.epoch == JOIN {
            changed = self.join(&heartbeat, desk)?;
        } else {
            self.resolve(&heartbeat)?;
            self.check_heartbeat_epoch(&heartbeat)?;
            if self.awaits.is_none() {
                self.missed.forget();
            }
        }
        changed |= self.update(&heartbeat, desk)?;
        changed |= self.refresh(desk.topics);
        if changed {
            self.bump();
        }
        let now = desk.now.monotonic;
        self.change_presence(&heartbeat.member, |presence| {
            presence.heard = now;
            presence.due = now;
        });
        self.assign_if_due(desk);
        Ok(self.reconcile(&heartbeat, desk))
    }

    /// The member exists, and has the instance that it speaks of.
    fn resolve(&self, heartbeat: &ConsumerHeartbeat) -> Result<(), Refusal> {
        if let Some(instance) = &heartbeat.instance {
            match self.instances.get(instance) {
                None => return Err(Refusal::UnknownMember),
                Some(id) if *id != heartbeat.member => return Err(Refusal::FencedInstance),
                Some(_) => {}
            }
        }
        let known = self.state.members.contains_key(&heartbeat.member);
        if known { Ok(()) } else { Err(Refusal::UnknownMember) }
    }

    fn check_heartbeat_epoch(&self, heartbeat: &ConsumerHeartbeat) -> Result<(), Refusal> {
        let current = &self.state.currents[&heartbeat.member];
        let epoch = heartbeat.epoch;
        if epoch == current.epoch {
            return Ok(());
        }
        // The answer that told of the member's epoch may have been lost.
        let owned = heartbeat.owned.as_ref();
        let behind = epoch < current.epoch && epoch == current.previous_epoch;
        if behind && owned.is_some_and(|owned| owned.is_subset(&current.assigned)) {
            reached!("member-missed-its-epoch");
            return Ok(());
        }
        Err(Refusal::FencedMemberEpoch)
    }

    /// A member joins, or joins again without anything. Whether that changes the targets.
    fn join(
        &mut self,
        heartbeat: &ConsumerHeartbeat,
        desk: &mut Desk<'_>,
    ) -> Result<bool, Refusal> {
        let id = &heartbeat.member;
        let now = desk.now.monotonic;
        // What would refuse it must do so before anything has changed.
        self.check_subscription(heartbeat, desk)?;
        let holder =
            heartbeat.instance.as_ref().and_then(|instance| self.instances.get(instance)).cloned();
        if self.state.members.contains_key(id) {
            if self.state.members[id].instance != heartbeat.instance {
                return Err(Refusal::FencedInstance);
            }
            // It has given everything up. What others wait for is theirs.
            let current = &self.state.currents[id];
            if current.epoch != JOIN && current.previous_epoch != JOIN {
                reached!("member-joins-again");
                self.set_current(id, Current::default(), now);
            }
            return Ok(false);
        }
        if let Some(old) = holder {
            // One of the classic protocol never says that it comes back as another.
            let is_classic = self.state.members[&old].classic.is_some();
            if self.state.currents[&old].epoch != AWAY && !is_classic {
                return Err(Refusal::UnreleasedInstance);
            }
            self.replace_static(&old, id, desk);
            return Ok(false);
        }
        if self.state.members.len() >= desk.limits.group_members_max {
            return Err(Refusal::Full);
        }
        self.enlist(id, heartbeat.instance.clone(), desk);
        Ok(true)
    }

    /// A static member is back under a new id: it takes its own place, and nobody else moves.
    pub(super) fn replace_static(&mut self, old: &str, id: &str, desk: &mut Desk<'_>) {
        reached!("consumer-static-member-returns");
        let member = self.state.members[old].clone();
        let target = self.state.targets[old].clone();
        let assigned = self.state.currents[old].assigned.clone();
        self.remove(old, Refusal::FencedInstance, desk);
        if let Some(instance) = &member.instance {
            self.instances.insert(instance.clone(), id.to_owned());
        }
        self.state.members.insert(id.to_owned(), member);
        self.state.targets.insert(id.to_owned(), target);
        self.appear(id, desk);
        let current = Current { assigned, ..Current::default() };
        self.set_current(id, current, desk.now.monotonic);
        self.keeping.soil(Key::Member(id.to_owned()));
        self.keeping.soil(Key::Target(id.to_owned()));
    }

    fn check_subscription(
        &mut self,
        heartbeat: &ConsumerHeartbeat,
        desk: &Desk<'_>,
    ) -> Result<(), Refusal> {
        if let Some(regex) = heartbeat.regex.as_ref().filter(|regex| !regex.is_empty())
            && !self.patterns.contains_key(regex)
        {
            let pattern = Pattern::new(regex, desk.topics)?;
            self.patterns.insert(regex.clone(), pattern);
        }
        if let Some(topics) = &heartbeat.topics {
            let others = self.state.members.iter().filter(|(id, _)| **id != heartbeat.member);
            let others: usize = others.map(|(_, member)| bytes(&member.topics)).sum();
            if others + bytes(topics) > desk.limits.metadata_bytes_max {
                return Err(Refusal::Full);
            }
        }
        Ok(())
    }

    /// Takes what the member says of itself. Whether that changes the targets.
    fn update(&mut self, heartbeat: &ConsumerHeartbeat, desk: &Desk<'_>) -> Result<bool, Refusal> {
        let ConsumerHeartbeat { topics, regex, assignor, rack, rebalance_timeout, .. } = heartbeat;
        if topics.is_none()
            && regex.is_none()
            && assignor.is_none()
            && rack.is_none()
            && rebalance_timeout.is_none()
        {
            return Ok(false);
        }
        self.check_subscription(heartbeat, desk)?;
        let before = &self.state.members[&heartbeat.member];
        let mut member = before.clone();
        if let Some(topics) = topics {
            let sorted: BTreeSet<&String> = topics.iter().collect();
            member.topics = sorted.into_iter().cloned().collect();
        }
        if let Some(regex) = regex {
            member.regex = Some(regex.clone()).filter(|regex| !regex.is_empty());
        }
        member.assignor = assignor.clone().or(member.assignor);
        member.rack = rack.clone().or(member.rack);
        member.rebalance_timeout = rebalance_timeout.unwrap_or(member.rebalance_timeout);
        let changes_protocol = heartbeat.epoch == JOIN && member.classic.take().is_some();
        member.client_id.clone_from(&heartbeat.client_id);
        member.client_host.clone_from(&heartbeat.client_host);
        if member == *before {
            return Ok(false);
        }
        let shares_anew = (&member.topics, &member.regex, &member.assignor)
            != (&before.topics, &before.regex, &before.assignor);
        self.state.members.insert(heartbeat.member.clone(), member);
        self.keeping.soil(Key::Member(heartbeat.member.clone()));
        if changes_protocol {
            self.forget_classic_times(&heartbeat.member, desk);
        }
        Ok(shares_anew)
    }

    /// A member of the classic protocol has come back by this one: the session that it had named is
    /// over, and it joins no more generations.
    fn forget_classic_times(&mut self, id: &str, desk: &Desk<'_>) {
        reached!("classic-member-becomes-a-consumer");
        let session_timeout = desk.limits.consumer_session_timeout;
        self.change_presence(id, |presence| {
            presence.session_timeout = session_timeout;
            presence.rejoin_by = None;
        });
    }

    /// The member's next step, and what it is told.
    fn reconcile(&mut self, heartbeat: &ConsumerHeartbeat, desk: &Desk<'_>) -> ConsumerAlive {
        let id = &heartbeat.member;
        let before = self.state.currents[id].assigned.clone();
        let reported = heartbeat.owned.as_ref();
        self.step(id, reported, desk.now.monotonic);
        let next = &self.state.currents[id];
        let changed = next.assigned != before;
        let (epoch, assigned) = (next.epoch, next.assigned.clone());
        let settled = next.progress == Progress::Stable && epoch == self.state.epoch;
        let confirmed = match reported {
            // It may have been told of more than it has come to have: it must hear of the change.
            Some(reported) => !changed && *reported == assigned,
            None => !changed && self.presence[id].confirmed,
        };
        self.change_presence(id, |presence| presence.confirmed = confirmed);
        let is_full = reported.is_some()
            && heartbeat.rebalance_timeout.is_some()
            && (heartbeat.topics.is_some() || heartbeat.regex.is_some());
        let is_told = if mutant!("partial-heartbeat-reply") {
            changed
        } else {
            heartbeat.epoch == JOIN || is_full || !confirmed
        };
        let limits = desk.limits;
        let intervals = (limits.consumer_heartbeat_interval, limits.consumer_unsettled_interval);
        ConsumerAlive {
            member: id.clone(),
            epoch,
            interval: self.next_turn(id, settled, desk.now.monotonic, intervals),
            assignment: is_told.then_some(assigned),
        }
    }

    fn on_leave(
        &mut self,
        heartbeat: &ConsumerHeartbeat,
        desk: &mut Desk<'_>,
    ) -> Result<ConsumerAlive, Refusal> {
        let id = &heartbeat.member;
        self.resolve(heartbeat)?;
        let now = desk.now.monotonic;
        if heartbeat.epoch == AWAY {
            let assigned = self.state.currents[id].assigned.clone();
            let current = Current { epoch: AWAY, assigned, ..Current::default() };
            self.set_current(id, current, now);
            self.change_presence(id, |presence| presence.heard = now);
        } else {
            self.remove(id, Refusal::UnknownMember, desk);
            self.missed.forget();
            self.after_departure(desk);
        }
        Ok(ConsumerAlive {
            member: id.clone(),
            epoch: heartbeat.epoch,
            interval: desk.limits.consumer_heartbeat_interval,
            assignment: None,
        })
    }
}

fn bytes(topics: &[String]) -> usize {
    topics.iter().map(String::len).sum()
}
