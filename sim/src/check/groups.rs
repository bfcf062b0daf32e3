//! Whether what the members of consumer groups did and were told may come from a correct system.
//! The rules of simulation.md, a file each: one owner of a partition in a generation, over all
//! time; commits that stay and never come from whoever is out; everything delivered at least
//! once; members that are heard stay members; members have what their leader gave them; and no more
//! rebalances than a plan allows.

mod commits;
mod delivery;
mod membership;
mod owners;
mod shares;
mod storms;

#[cfg(test)]
mod story;

use std::collections::BTreeMap;

use quorate_core::time::Instant;

use super::{Evidence, Struck, Violation};
use crate::fault::Kind;
use crate::history::Partition;
use crate::history::groups::{Claim, Committed, GroupCall, GroupEnd, GroupOperation};
use crate::plan::Plan;
use crate::plan::groups::Protocol;

/// Where a group stands in a partition.
type Place = (u32, Partition);

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    if evidence.plan.groups.is_empty() || !offsets_survive(evidence.plan, evidence.struck) {
        return;
    }
    let facts = Facts::new(evidence);
    owners::check(&facts, violations);
    commits::check(&facts, violations);
    delivery::check(evidence, violations);
    membership::check(evidence, violations);
    shares::check(evidence, &facts, violations);
    storms::check(&facts, violations);
}

/// Whether what is in `__consumer_offsets`, and in the transactions' log, which is kept alike, must
/// be there for ever. Plans that are drawn do not wipe more than that, others may.
pub(super) fn offsets_survive(plan: &Plan, struck: Struck) -> bool {
    let in_sync_min = plan.cluster.own_in_sync_min() as usize;
    let wiped = plan.faults.iter().filter(|fault| matches!(fault.kind, Kind::Wipe(_))).count();
    let is_kept = plan.cluster.nodes == 1 || wiped < in_sync_min;
    is_kept && !struck.journal_rot && !struck.led_uncleanly
}

/// A member was told that it has a partition.
#[derive(Clone, Debug)]
struct Assigned<'a> {
    who: &'a Claim,
    generation: i32,
    told: Instant,
    partitions: &'a [Partition],
}

/// A commit, of one partition.
#[derive(Clone, Debug)]
struct Commit<'a> {
    who: &'a Claim,
    at: &'a Committed,
    invoked: Instant,
    /// `None`: nobody knows whether, or when.
    accepted: Option<Instant>,
}

/// What was read of a group's offset in one partition.
#[derive(Clone, Debug)]
struct Fetch<'a> {
    found: Option<&'a Committed>,
    invoked: Instant,
    completed: Instant,
}

/// The operations of groups, sorted for the checkers.
struct Facts<'a> {
    plan: &'a Plan,
    assigned: BTreeMap<u32, Vec<Assigned<'a>>>,
    commits: BTreeMap<Place, Vec<Commit<'a>>>,
    fetches: BTreeMap<Place, Vec<Fetch<'a>>>,
    /// In which generations members were, by what they were told, and by which commits of theirs
    /// were accepted; and since when that is known.
    been: BTreeMap<(u32, &'a str), BTreeMap<i32, Instant>>,
    /// Static members that were told their ids: the group, the instance, and when.
    returned: Vec<(&'a Claim, &'a str, Instant)>,
}

impl<'a> Facts<'a> {
    fn new(evidence: &Evidence<'a>) -> Self {
        let mut facts = Self {
            plan: evidence.plan,
            assigned: BTreeMap::new(),
            commits: BTreeMap::new(),
            fetches: BTreeMap::new(),
            been: BTreeMap::new(),
            returned: Vec::new(),
        };
        for operation in &evidence.history.groups.operations {
            facts.take(operation);
        }
        facts
    }

    fn take(&mut self, operation: &'a GroupOperation) {
        let GroupOperation { who, invoked, completed, call, end } = operation;
        let (group, invoked) = (who.group, *invoked);
        match (call, end, *completed) {
            (_, GroupEnd::Assigned { generation, partitions }, Some(told)) => {
                let assigned = Assigned { who, generation: *generation, told, partitions };
                self.note(who, *generation, told);
                self.assigned.entry(group).or_default().push(assigned);
            }
            (_, GroupEnd::Joined { member, .. }, Some(told)) if who.instance.is_some() => {
                self.returned.push((who, member, told));
            }
            (GroupCall::Commit { .. }, GroupEnd::Refused(_), _) => {}
            (GroupCall::Commit { offsets }, end, completed) => {
                let accepted = completed.filter(|_| *end == GroupEnd::Committed);
                accepted.into_iter().for_each(|at| self.note(who, who.generation, at));
                for (partition, at) in offsets {
                    let commit = Commit { who, at, invoked, accepted };
                    self.commits.entry((group, *partition)).or_default().push(commit);
                }
            }
            (GroupCall::Fetch { partitions }, GroupEnd::Fetched { offsets }, Some(completed)) => {
                for (partition, found) in partitions.iter().zip(offsets) {
                    let fetch = Fetch { found: found.as_ref(), invoked, completed };
                    self.fetches.entry((group, *partition)).or_default().push(fetch);
                }
            }
            _ => {}
        }
    }

    /// It is known by then that the member is in the generation.
    fn note(&mut self, who: &'a Claim, generation: i32, known: Instant) {
        // Whoever has no id is nobody's newer or older self.
        if who.member.is_empty() {
            return;
        }
        let been = self.been.entry((who.group, &who.member)).or_default();
        let since = been.entry(generation).or_insert(known);
        *since = known.min(*since);
    }

    /// Whether the coordinator itself shares out, now and then at least: then only members are
    /// stale that are in a newer generation themselves, or whose partition another has; in the
    /// classic protocol all are that are not of the newest generation.
    fn shares_out(&self, group: u32) -> bool {
        let spec = self.plan.groups.get(group as usize);
        spec.is_some_and(|group| group.protocol == Protocol::Consumer || group.is_mixed())
    }

    /// When it was first told to somebody that `who` cannot act on the partition any more.
    fn stale_since(&self, who: &Claim, partition: Partition) -> Option<(Instant, String)> {
        let shares_out = self.shares_out(who.group);
        let assigned = self.assigned.get(&who.group).map_or(&[][..], Vec::as_slice);
        let by_assignment = assigned
            .iter()
            .filter(|assigned| {
                assigned.generation > who.generation
                    && (!shares_out
                        || (!is_same(assigned.who, who)
                            && assigned.partitions.contains(&partition)))
            })
            .map(|assigned| {
                let Assigned { who, generation, told, .. } = assigned;
                (*told, format!("{} was told its part of generation {generation}", who.member))
            });
        let by_return = self
            .returned
            .iter()
            .filter(|(other, member, _)| {
                other.group == who.group
                    && other.instance == who.instance
                    && who.instance.is_some()
                    && *member != who.member
            })
            // An older self does not make a newer one stale.
            .filter(|(_, member, told)| self.became(who) < self.became_as(who, member).max(*told))
            .map(|(_, member, told)| (*told, format!("{member} was told that it is the instance")));
        // Whoever is there shares out no older one (KIP-848: the member's own epoch never falls).
        let own = self.been.get(&(who.group, who.member.as_str())).into_iter();
        let by_itself = own.flat_map(|been| been.range(who.generation.saturating_add(1)..)).map(
            |(generation, since)| (*since, format!("it was in generation {generation} itself")),
        );
        by_assignment.chain(by_itself).chain(by_return).min_by_key(|(told, _)| *told)
    }

    /// When the static member was told its id; never is the beginning.
    fn became(&self, who: &Claim) -> Instant {
        self.became_as(who, &who.member)
    }

    fn became_as(&self, who: &Claim, member: &str) -> Instant {
        let mut told = self.returned.iter().filter(|(other, id, _)| {
            other.group == who.group && other.instance == who.instance && *id == member
        });
        told.next().map_or(Instant::ZERO, |(_, _, told)| *told)
    }
}

/// The same member, or the same static member under another id.
fn is_same(one: &Claim, other: &Claim) -> bool {
    match (&one.instance, &other.instance) {
        (Some(one), Some(other)) => one == other,
        _ => one.member == other.member,
    }
}

fn blame(
    violations: &mut Vec<Violation>,
    property: &'static str,
    group: u32,
    partition: Option<Partition>,
    sentence: String,
) {
    let place =
        partition.map_or_else(|| format!("g{group}"), |partition| format!("g{group} {partition}"));
    violations.push(Violation { property, place, sentence });
}
