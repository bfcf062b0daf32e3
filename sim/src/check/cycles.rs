//! Nothing comes before itself. Who wrote behind whom, who read whose, and who had ended before who
//! began must fit into one order; where they do not, there is a cycle, and the shortest is shown.
//! These are the anomalies `G1c`, `G1c-process` and `G1c-realtime` of Adya and Jepsen, over logs.
//!
//! Edges: *ww* from the append of a record to that of the next in its log; *wr* from an append to
//! who read it; *realtime* from what has ended to what began later, *process* if one client did
//! both. What was never answered may have happened at any time after it began. Sets of operations
//! that reach one another are found by Tarjan's algorithm, in time linear in the history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_core::time::Instant;

use super::dense::{ByValue, Dense};
use super::{Evidence, Violation, blame};
use crate::history::{Call, End, Partition, Value};

/// Operations of a cycle from which the shortest way back is searched, at most.
const SEARCHED_MAX: usize = 64;
/// Operations that are named.
const NAMED_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    Write,
    Read,
    /// Of the line of time: from who ends to a moment, on to later ones, to who begins.
    Time,
}

/// Those below `operations` are operations; the others are moments.
struct Graph {
    operations: usize,
    next: Vec<Vec<(u32, Edge)>>,
}

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    for partition in evidence.appends.keys() {
        // What stands at two places, or out of order, is told by others, in plainer words.
        const TOLD: &[&str] =
            &["realtime-order", "nonmonotonic-send", "inconsistent-offsets", "duplicate"];
        let place = partition.to_string();
        let is_told =
            |violation: &Violation| violation.place == place && TOLD.contains(&violation.property);
        // Where the tail may be lost, its offsets are used again.
        if evidence.promise(*partition).unread_survives
            && !violations.iter().any(is_told)
            && let Some((property, sentence)) = shortest(evidence, *partition)
        {
            blame(violations, property, *partition, sentence);
        }
    }
}

/// A cycle among the operations on a partition: its name, and its operations in words.
fn shortest(evidence: &Evidence<'_>, partition: Partition) -> Option<(&'static str, String)> {
    let (ids, graph) = graph(evidence, partition);
    let cycles = components(&graph.next).into_iter().filter(|found| found.len() > 1);
    let cycle = cycles.filter_map(|found| shortest_within(&graph, &found)).min_by_key(Vec::len)?;
    Some(words(evidence, &ids, &graph, &cycle))
}

/// The operations on a partition by their place in the graph, and the graph.
fn graph(evidence: &Evidence<'_>, partition: Partition) -> (Vec<usize>, Graph) {
    let ids: Vec<usize> = (0..evidence.history.operations.len())
        .filter(|id| evidence.history.operations[*id].call.partition() == partition)
        .filter(|id| {
            let call = &evidence.history.operations[*id].call;
            matches!(call, Call::Append { .. } | Call::Read { .. })
        })
        .collect();
    let mut graph = Graph { operations: ids.len(), next: vec![Vec::new(); ids.len()] };
    add_order(evidence, partition, &ids, &mut graph);
    add_time(evidence, &ids, &mut graph);
    (ids, graph)
}

/// Which append stands at each offset, as acknowledgements and readers say; and who read what. One
/// that stands at two places has none in the order: that is told as a duplicate, or it is the price
/// of decision 0085.
fn add_order(evidence: &Evidence<'_>, partition: Partition, ids: &[usize], graph: &mut Graph) {
    let mut writers = writers(evidence, ids);
    let (mut stands, mut twice) = (Dense::<u32>::default(), BTreeSet::new());
    let mut stand = |offset: i64, value: Value| {
        let (writer, first) = writers.get_mut(value)?;
        if *first.get_or_insert(offset) != offset {
            twice.insert(*writer);
        }
        stands.or_insert(offset, *writer);
        Some(*writer)
    };
    for (append, base) in evidence.acknowledged(partition) {
        for (offset, value) in (base..).zip(append.values) {
            stand(offset, *value);
        }
    }
    for (place, id) in (0..).zip(ids) {
        let End::Read { records, .. } = &evidence.history.operations[*id].end else { continue };
        let seen = records.iter().filter_map(|seen| stand(seen.offset, seen.value?));
        // All before the last come before it anyway.
        if let Some(writer) = seen.last() {
            graph.next[writer as usize].push((place, Edge::Read));
        }
    }
    let mut before = None;
    for (_, writer) in stands.iter().filter(|(_, writer)| !twice.contains(*writer)) {
        if let Some(before) = before.filter(|before| before != writer) {
            graph.next[before as usize].push((*writer, Edge::Write));
        }
        before = Some(*writer);
    }
}

/// The append of each value, and where it stands, once somebody says so.
fn writers(evidence: &Evidence<'_>, ids: &[usize]) -> ByValue<(u32, Option<i64>)> {
    let mut writers = ByValue::with_room(&evidence.numbers);
    for (place, id) in (0..).zip(ids) {
        let Call::Append { values, producer, attempts, .. } =
            &evidence.history.operations[*id].call
        else {
            continue;
        };
        // One that was sent again without a number may stand at two places.
        if producer.is_some() || *attempts <= 1 {
            for value in values {
                writers.or_insert(*value, (place, None));
            }
        }
    }
    writers
}

/// Moments in a row, one for each time at which something ended.
fn add_time(evidence: &Evidence<'_>, ids: &[usize], graph: &mut Graph) {
    let operations = &evidence.history.operations;
    let ends =
        |id: &usize| operations[*id].completed.filter(|_| operations[*id].end != End::Unknown);
    let mut moments: Vec<Instant> = ids.iter().filter_map(ends).collect();
    moments.sort_unstable();
    moments.dedup();
    let first = graph.next.len() as u32;
    graph.next.resize_with(graph.next.len() + moments.len(), Vec::new);
    for moment in 1..moments.len() as u32 {
        graph.next[(first + moment - 1) as usize].push((first + moment, Edge::Time));
    }
    for (place, id) in (0..).zip(ids) {
        if let Some(ended) = ends(id) {
            let moment = moments.partition_point(|moment| *moment < ended) as u32;
            graph.next[place as usize].push((first + moment, Edge::Time));
        }
        let before = moments.partition_point(|moment| *moment < operations[*id].invoked) as u32;
        if before > 0 {
            graph.next[(first + before - 1) as usize].push((place, Edge::Time));
        }
    }
}

/// Sets of nodes that reach one another, by Tarjan's algorithm, without recursion.
fn components(next: &[Vec<(u32, Edge)>]) -> Vec<Vec<u32>> {
    const NEW: u32 = u32::MAX;
    let mut index = vec![NEW; next.len()];
    let mut low = vec![0; next.len()];
    let mut is_open = vec![false; next.len()];
    let (mut open, mut found, mut count) = (Vec::new(), Vec::new(), 0);
    let mut path: Vec<(u32, usize)> = Vec::new();
    for root in 0..next.len() as u32 {
        if index[root as usize] != NEW {
            continue;
        }
        path.push((root, 0));
        while let Some((node, edge)) = path.pop() {
            let at = node as usize;
            if edge == 0 {
                (index[at], low[at], is_open[at]) = (count, count, true);
                count += 1;
                open.push(node);
            }
            if let Some((to, _)) = next[at].get(edge) {
                path.push((node, edge + 1));
                if index[*to as usize] == NEW {
                    path.push((*to, 0));
                } else if is_open[*to as usize] {
                    low[at] = low[at].min(index[*to as usize]);
                }
                continue;
            }
            if low[at] == index[at] {
                let place = open.iter().rposition(|other| *other == node).unwrap_or(0);
                let component = open.split_off(place);
                component.iter().for_each(|node| is_open[*node as usize] = false);
                found.push(component);
            }
            if let Some((parent, _)) = path.last() {
                low[*parent as usize] = low[*parent as usize].min(low[at]);
            }
        }
    }
    found
}

/// The cycle with the fewest operations through the first ones of a component: (node, how it goes
/// on), in order. Moments cost nothing.
fn shortest_within(graph: &Graph, component: &[u32]) -> Option<Vec<(u32, Edge)>> {
    let members: BTreeSet<u32> = component.iter().copied().collect();
    let is_operation = |node: &&u32| (**node as usize) < graph.operations;
    let from = members.iter().filter(is_operation).take(SEARCHED_MAX);
    from.filter_map(|from| way_back(graph, &members, *from)).min_by_key(Vec::len)
}

/// The way with the fewest operations from an operation to itself.
fn way_back(graph: &Graph, members: &BTreeSet<u32>, from: u32) -> Option<Vec<(u32, Edge)>> {
    let mut came: BTreeMap<u32, (u32, Edge)> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(node) = queue.pop_front() {
        for (to, edge) in &graph.next[node as usize] {
            if *to == from {
                let mut way = vec![(node, *edge)];
                let mut at = node;
                while at != from {
                    let (before, edge) = came[&at];
                    way.push((before, edge));
                    at = before;
                }
                way.reverse();
                return Some(way);
            }
            if members.contains(to) && !came.contains_key(to) {
                came.insert(*to, (node, *edge));
                if (*to as usize) < graph.operations {
                    queue.push_back(*to);
                } else {
                    queue.push_front(*to);
                }
            }
        }
    }
    None
}

/// What kind of cycle it is, and which operations stand on it.
fn words(
    evidence: &Evidence<'_>,
    ids: &[usize],
    graph: &Graph,
    cycle: &[(u32, Edge)],
) -> (&'static str, String) {
    let operations = &evidence.history.operations;
    let on: Vec<(u32, Edge)> =
        cycle.iter().copied().filter(|(node, _)| (*node as usize) < graph.operations).collect();
    let client = |place: usize| operations[ids[on[place % on.len()].0 as usize]].client;
    let is_one_client = |place: usize| client(place) == client(place + 1);
    let times: Vec<usize> = (0..on.len()).filter(|place| on[*place].1 == Edge::Time).collect();
    let property = match (times.is_empty(), times.iter().all(|place| is_one_client(*place))) {
        (true, _) => "G1c",
        (false, true) => "G1c-process",
        (false, false) => "G1c-realtime",
    };
    let mut parts = Vec::new();
    for (place, (node, edge)) in on.iter().enumerate().take(NAMED_MAX) {
        let id = ids[*node as usize];
        let verb = match edge {
            Edge::Write => "stands before what was written by",
            Edge::Read => "was read by",
            Edge::Time if is_one_client(place) => "ended, and then its client began",
            Edge::Time => "had ended before the beginning of",
        };
        parts.push(format!("operation {id} ({}) {verb}", operations[id].call));
    }
    let first = ids[on[0].0 as usize];
    (property, format!("{} operation {first}", parts.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row has the nodes that an edge leads to.
    fn sets(edges: &[&[u32]]) -> Vec<Vec<u32>> {
        let next: Vec<Vec<(u32, Edge)>> =
            edges.iter().map(|to| to.iter().map(|to| (*to, Edge::Write)).collect()).collect();
        let mut sets = components(&next);
        sets.iter_mut().for_each(|set| set.sort_unstable());
        sets.retain(|set| set.len() > 1);
        sets.sort();
        sets
    }

    #[test]
    fn those_that_reach_one_another_are_found() {
        assert_eq!(sets(&[&[1], &[2], &[]]), [] as [Vec<u32>; 0]);
        assert_eq!(sets(&[&[1], &[2], &[0]]), [vec![0, 1, 2]]);
        assert_eq!(sets(&[&[1], &[0, 2], &[3], &[2, 4], &[]]), [vec![0, 1], vec![2, 3]]);
        // Two ways into one set, and a node that is reached after its set was closed.
        assert_eq!(sets(&[&[1, 2], &[3], &[3], &[1], &[0]]), [vec![1, 3]]);
    }

    #[test]
    fn the_shortest_cycle_is_shown() {
        let row = |to: &[u32]| to.iter().map(|to| (*to, Edge::Write)).collect();
        let next = vec![row(&[1]), row(&[2]), row(&[3, 1]), row(&[0])];
        let graph = Graph { operations: 4, next };
        let cycle = shortest_within(&graph, &[0, 1, 2, 3]).expect("there are two");
        let nodes: Vec<u32> = cycle.iter().map(|(node, _)| *node).collect();
        assert_eq!(nodes, [1, 2]);
    }

    #[test]
    fn a_long_line_is_no_matter() {
        let next: Vec<Vec<(u32, Edge)>> =
            (1..=200_000).map(|to| vec![(to % 200_000, Edge::Time)]).collect();
        assert_eq!(components(&next).len(), 1);
    }
}
