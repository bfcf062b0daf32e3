//! `range`: each topic's partitions are cut into runs, one a subscriber, so that a member has the
//! same partitions of topics that have equally many and the same subscribers.
//!
//! Members stand in the order of what they had, newcomers behind them by name: who stays keeps
//! most of its runs.

use super::{Targets, Wanted};

/// See the module.
pub fn assign(wanted: &Wanted) -> Targets {
    let mut members: Vec<_> = wanted.members.iter().collect();
    members.sort_by_key(|(name, subscriber)| {
        let first = subscriber.before.iter().map(|(_, partition)| partition).min();
        (first.unwrap_or(i32::MAX), &subscriber.order, *name)
    });
    let mut targets: Targets =
        wanted.members.keys().map(|name| (name.clone(), Default::default())).collect();
    for (&topic, &partitions) in &wanted.topics {
        let subscribers: Vec<_> = members
            .iter()
            .filter(|(_, subscriber)| subscriber.topics.contains(&topic))
            .map(|(name, _)| *name)
            .collect();
        let count = i32::try_from(subscribers.len()).expect("members are bounded");
        if count == 0 {
            continue;
        }
        let (share, longer) = (partitions / count, partitions % count);
        let mut next = 0;
        for (place, name) in (0..).zip(subscribers) {
            let end = next + share + i32::from(place < longer);
            let target = targets.get_mut(name).expect("subscribers are members");
            target.extend((next..end).map(|partition| (topic, partition)));
            next = end;
        }
    }
    targets
}
