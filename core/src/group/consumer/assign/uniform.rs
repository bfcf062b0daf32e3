//! `uniform`: as balanced as the subscriptions allow, and as few moves as that takes.
//!
//! Everybody keeps what it had; what nobody has goes to its least loaded subscriber; then
//! partitions move from whoever has most to a subscriber that has at least two fewer, until there
//! is no such pair. Each move lowers the sum of the squares of the loads, so it ends. Racks play no
//! part. Among equals whoever is to be heard first gives and takes, so that what moves is soon
//! consumed again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Subscriber, Targets, Wanted};
use crate::id::TopicId;

/// A member's load, and its place among the members by rank and name: the order in which they are
/// chosen.
type Load = (usize, usize);

struct Table<'a> {
    names: Vec<&'a String>,
    loads: Vec<usize>,
    /// The topics that each member subscribes to.
    subscribed: Vec<&'a BTreeSet<TopicId>>,
    /// Subscribers of each set of subscribers that occurs, by load; and each topic's set.
    pools: Vec<BTreeSet<Load>>,
    pool_of: BTreeMap<TopicId, usize>,
    /// The pools that each member stands in.
    pools_of: Vec<Vec<usize>>,
    owner: BTreeMap<(TopicId, i32), usize>,
}

impl<'a> Table<'a> {
    fn new(wanted: &'a Wanted, members: &[(&'a String, &'a Subscriber)]) -> Self {
        let names: Vec<_> = members.iter().map(|(name, _)| *name).collect();
        let subscribed: Vec<_> = members.iter().map(|(_, member)| &member.topics).collect();
        let mut subscribers = BTreeMap::<TopicId, Vec<usize>>::new();
        for (member, topics) in subscribed.iter().enumerate() {
            for topic in topics.iter().filter(|topic| wanted.topics.contains_key(topic)) {
                subscribers.entry(*topic).or_default().push(member);
            }
        }
        let mut pools: Vec<BTreeSet<Load>> = Vec::new();
        let mut pools_of = vec![Vec::new(); names.len()];
        let mut known = BTreeMap::<Vec<usize>, usize>::new();
        let mut pool_of = BTreeMap::new();
        for (topic, members) in subscribers {
            let pool = *known.entry(members).or_insert_with_key(|members| {
                for &member in members {
                    pools_of[member].push(pools.len());
                }
                pools.push(members.iter().map(|&member| (0, member)).collect());
                pools.len() - 1
            });
            pool_of.insert(topic, pool);
        }
        let loads = vec![0; names.len()];
        let owner = BTreeMap::new();
        Self { names, loads, subscribed, pools, pool_of, pools_of, owner }
    }

    fn change_load(&mut self, member: usize, load: usize) {
        let before = std::mem::replace(&mut self.loads[member], load);
        for &pool in &self.pools_of[member] {
            self.pools[pool].remove(&(before, member));
            self.pools[pool].insert((load, member));
        }
    }

    fn give(&mut self, topic: TopicId, partition: i32, member: usize) {
        if let Some(before) = self.owner.insert((topic, partition), member) {
            self.change_load(before, self.loads[before] - 1);
        }
        self.change_load(member, self.loads[member] + 1);
    }

    /// The subscriber of `topic` with the least; the first by rank and name among equals.
    fn least(&self, topic: TopicId) -> Option<Load> {
        self.pools[*self.pool_of.get(&topic)?].first().copied()
    }

    /// Takes from whoever has most, one by one, so that nobody gives who need not. Whether anything
    /// moved.
    fn balance(&mut self) -> bool {
        let mut held = vec![BTreeMap::<usize, BTreeSet<(TopicId, i32)>>::new(); self.names.len()];
        for (place, owner) in &self.owner {
            held[*owner].entry(self.pool_of[&place.0]).or_default().insert(*place);
        }
        // The most loaded come first, and among equals whoever is heard first.
        let mut givers: BTreeSet<(Reverse<usize>, usize)> =
            self.loads.iter().enumerate().map(|(member, load)| (Reverse(*load), member)).collect();
        let mut moved = false;
        while let Some((Reverse(load), giver)) = givers.pop_first() {
            let least = |pool: usize| self.pools[pool].first().copied();
            let pools = held[giver].keys().filter_map(|&pool| Some((least(pool)?, pool)));
            let Some(((least, taker), pool)) = pools.min().filter(|(least, _)| least.0 + 1 < load)
            else {
                continue;
            };
            let places = held[giver].get_mut(&pool).expect("it was found there");
            let place = places.pop_first().expect("no pool is held without a partition");
            if places.is_empty() {
                held[giver].remove(&pool);
            }
            held[taker].entry(pool).or_default().insert(place);
            self.give(place.0, place.1, taker);
            givers.insert((Reverse(load - 1), giver));
            if givers.remove(&(Reverse(least), taker)) {
                givers.insert((Reverse(least + 1), taker));
            }
            moved = true;
        }
        moved
    }
}

/// See the module.
pub fn assign(wanted: &Wanted) -> Targets {
    let mut members: Vec<_> = wanted.members.iter().collect();
    members.sort_by_key(|(_, subscriber)| subscriber.rank);
    let mut table = Table::new(wanted, &members);
    for (member, (_, subscriber)) in members.iter().enumerate() {
        for (topic, partition) in subscriber.before.iter() {
            let is_there = wanted.topics.get(&topic).is_some_and(|count| partition < *count);
            if is_there
                && table.subscribed[member].contains(&topic)
                && !table.owner.contains_key(&(topic, partition))
            {
                table.give(topic, partition, member);
            }
        }
    }
    // Topics that few subscribe to come first: theirs cannot go elsewhere.
    let mut topics: Vec<_> = table
        .pool_of
        .iter()
        .map(|(topic, pool)| (table.pools[*pool].len(), *topic, wanted.topics[topic]))
        .collect();
    topics.sort_unstable();
    for (_, topic, partitions) in topics {
        for partition in 0..partitions {
            if !table.owner.contains_key(&(topic, partition))
                && let Some((_, least)) = table.least(topic)
            {
                table.give(topic, partition, least);
            }
        }
    }
    while table.balance() {}
    let mut targets: Targets =
        table.names.iter().map(|name| ((*name).clone(), Default::default())).collect();
    for ((topic, partition), member) in &table.owner {
        let target = targets.get_mut(table.names[*member]).expect("owners are members");
        target.insert(*topic, *partition);
    }
    targets
}
