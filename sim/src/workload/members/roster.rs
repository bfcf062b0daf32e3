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
    committed: BTreeSet<(u32, Partition)>,
}

impl Roster {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("one thread")
    }

    pub(crate) fn owns(&self, client: u32, partitions: Partitions) {
        self.entries().owned.insert(client, partitions);
    }

    pub(crate) fn commits(&self, group: u32, partitions: impl Iterator<Item = Partition>) {
        self.entries().committed.extend(partitions.map(|partition| (group, partition)));
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
                if commits && !entries.committed.contains(&(place, partition)) {
                    let sentence = format!("c{owner} gets no commit of {partition} accepted");
                    return Some(format!("g{place}: {sentence}"));
                }
            }
        }
        None
    }
}
