//! Who has which partitions, as the members themselves believe, and what was committed since the
//! healing: by that it is seen whether all groups have settled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use super::protocol::Partitions;
use super::subscribed;
use crate::history::Partition;
use crate::plan::groups::Protocol;
use crate::plan::{Acks, Plan};

#[derive(Debug, Default)]
pub struct Roster(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    owned: BTreeMap<u32, Partitions>,
    /// Who has committed what.
    committed: BTreeSet<(u32, Partition)>,
}

impl Roster {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("one thread")
    }

    pub(crate) fn owns(&self, client: u32, partitions: Partitions) {
        self.entries().owned.insert(client, partitions);
    }

    /// A client's commit was taken, after the healing.
    pub(crate) fn commits(&self, client: u32, partitions: impl Iterator<Item = Partition>) {
        self.entries().committed.extend(partitions.map(|partition| (client, partition)));
    }

    /// Why not every one of these partitions is exactly one member's, of each group that has its
    /// topic, with that one's commits taken since the healing.
    pub(crate) fn unsettled(&self, plan: &Plan, partitions: &[Partition]) -> Option<String> {
        let entries = self.entries();
        // Without answers, nobody notices that a gap in the sequence keeps a writer's records out,
        // and our library commits what it was given.
        let unheard = plan.workload.acks == Acks::None;
        for (place, group) in (0..).zip(&plan.groups) {
            let commits = !(unheard && group.protocol == Protocol::Library);
            let mut owners: BTreeMap<Partition, u32> = BTreeMap::new();
            for (client, partitions) in &entries.owned {
                if plan.membership(*client).is_none_or(|(of, _)| of != place) {
                    continue;
                }
                for partition in partitions {
                    if let Some(other) = owners.insert(*partition, *client) {
                        return Some(format!("g{place}: c{other} and c{client} have {partition}"));
                    }
                }
            }
            for partition in subscribed(group, partitions) {
                let Some(owner) = owners.get(&partition) else {
                    return Some(format!("g{place}: {partition} is nobody's"));
                };
                if commits && !entries.committed.contains(&(*owner, partition)) {
                    let sentence = format!("c{owner} gets no commit of {partition} accepted");
                    return Some(format!("g{place}: {sentence}"));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::draw::{Only, draw_only};

    /// A plan with a group of several members who all commit, and two of its partitions.
    fn plan() -> (Plan, Vec<Partition>) {
        let fits = |plan: &Plan| {
            plan.groups.first().is_some_and(|group| {
                group.members >= 2 && group.protocol != Protocol::Library && group.topics == [0]
            })
        };
        let mut plans = (0..).map(|seed| draw_only(seed, Some(Only::Groups)));
        let mut plan = plans.find(fits).expect("one of them");
        plan.groups.truncate(1);
        (plan, [0, 1].map(|index| Partition { topic: 0, index }).to_vec())
    }

    #[test]
    fn a_group_has_settled_once_each_owners_commits_are_taken() {
        let (plan, partitions) = plan();
        let [one, two] = [partitions[0], partitions[1]];
        let a = plan.members().start;
        let (roster, b) = (Roster::default(), a + 1);
        roster.owns(a, Partitions::from([one, two]));
        roster.commits(a, [one].into_iter());
        let unsettled = |roster: &Roster| roster.unsettled(&plan, &partitions);
        let refused = |client| format!("g0: c{client} gets no commit of {two} accepted");
        assert_eq!(unsettled(&roster), Some(refused(a)));
        roster.commits(a, [two].into_iter());
        assert_eq!(unsettled(&roster), None);
        // Another has it now, who must have its own taken.
        roster.owns(a, Partitions::from([one]));
        assert_eq!(unsettled(&roster), Some(format!("g0: {two} is nobody's")));
        roster.owns(b, Partitions::from([two]));
        assert_eq!(unsettled(&roster), Some(refused(b)));
        roster.commits(b, [two].into_iter());
        assert_eq!(unsettled(&roster), None);
        roster.owns(b, Partitions::from([one, two]));
        assert_eq!(unsettled(&roster), Some(format!("g0: c{a} and c{b} have {one}")));
    }
}
