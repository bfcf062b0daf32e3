//! All small states of a partition, with a controller that fences, lets in and elects as ours does;
//! and the shape of any state: what remains without names, without what all have in common, and
//! with epochs by their order only.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Action, Copy, Epoch, Fact, Kept, Life, Lives, Node, Nodes, Offset, Standing, State, Version,
    Word,
};
use crate::spec::explore::{Model, hash, orders};
use crate::spec::quorum::Broken;
use crate::spec::runs::Runs;

/// How far to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub nodes: Node,
    pub leader_epochs: Epoch,
    /// Words of the controller.
    pub words: Epoch,
    pub records: Offset,
    /// `min.insync.replicas`.
    pub min: usize,
}

/// A partition, and what the controller knows of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Small {
    state: State,
    live: Nodes,
    lives: BTreeMap<Node, Life>,
}

const RECORDS_MAX: Offset = 3;
const RANKS_MAX: usize = 4;
const WRITES_MAX: usize = 2;
const NODES_MAX: usize = 3;

/// What the guards of the others must bring about.
const THEOREMS: &[Broken] =
    &["who may be elected has all that is committed", "one history is committed"];

impl Small {
    fn standing(&self) -> Standing {
        let lives = self.live.iter().map(|node| (*node, self.lives[node]));
        let known_disks = self.lives.keys().copied().collect();
        Standing { live: lives.collect(), known_disks }
    }
}

impl Model for Bounds {
    type State = Small;

    fn begin(&self) -> Small {
        let nodes: Nodes = (1..=self.nodes).collect();
        let word = Word {
            leader: Some(1),
            replicas: nodes.clone(),
            in_sync: nodes.clone(),
            ..Word::default()
        };
        let mut state = State::default();
        state.words.insert(word.version(), word);
        state.copies = nodes.iter().map(|node| (*node, Copy::default())).collect();
        let lives = nodes.iter().map(|node| (*node, 1)).collect();
        Small { state, live: nodes, lives }
    }

    fn next(&self, small: &Small) -> Result<Vec<Small>, Broken> {
        let mut next = Vec::new();
        let standing = small.standing();
        for (&me, copy) in &small.state.copies {
            for action in self.actions(small, me, copy) {
                let mut after = small.clone();
                match after.state.act(me, &action, &standing) {
                    Ok(()) if after.state.copies[&me].writing.len() > 1 => {}
                    Ok(()) => next.push(told(after)?),
                    Err(broken) if THEOREMS.contains(&broken) => return Err(broken),
                    Err(_) => {}
                }
            }
            next.extend(self.dies(small, me)?);
            next.extend(self.comes_back(small, me)?);
        }
        for (version, members) in &small.state.proposed {
            next.extend(self.is_granted(small, *version, members)?);
        }
        Ok(next)
    }

    fn least(&self, small: &Small) -> u64 {
        hash(small)
    }

    fn shape(&self, small: &Small) -> Option<u64> {
        shape(&small.state)
    }
}

impl Bounds {
    fn actions(&self, small: &Small, me: Node, copy: &Copy) -> Vec<Action> {
        let state = &small.state;
        let mut actions = Vec::new();
        if !small.live.contains(&me) && copy.heard.is_none() {
            return actions;
        }
        // Who begins a life has registered: it hears what was decided since.
        let last = state.last_word().map(Word::version);
        let is_news = |version: &&Version| match copy.heard {
            Some(heard) => heard < **version,
            None => Some(**version) == last,
        };
        let newer = state.words.keys().filter(is_news);
        actions.extend(newer.map(|&version| Action::Hear { version }));
        let Some(word) = copy.heard.and_then(|version| state.words.get(&version)) else {
            return actions;
        };
        let len = copy.mind.log.len();
        if copy.leads {
            if len < self.records {
                actions.push(Action::Append { base: len, next: len + 1 });
            }
            let min = self.min;
            actions.extend((copy.high + 1..=len).map(|to| Action::Commit { to, min }));
            for &other in word.replicas.iter().filter(|node| **node != me) {
                let mut members = word.in_sync.clone();
                if !members.remove(&other) {
                    members.insert(other);
                }
                let members = members.iter().map(|node| (*node, small.lives[node])).collect();
                actions.push(Action::Say(Fact::Proposes { members }));
            }
        } else if word.leader == Some(me) {
            actions.push(Action::Lead);
        } else if let Some(led) = state.led.get(&word.leader_epoch) {
            let common = copy.mind.log.common(&led.kept.log);
            if common < len {
                actions.push(Action::Cut { to: common });
            } else if let Some(epoch) = led.kept.log.writer(len + 1) {
                actions.push(Action::Take { base: len, next: len + 1, epoch });
            }
            actions.extend((copy.high + 1..=len).map(|to| Action::Learn { to }));
        }
        actions.extend((1..=copy.writing.len()).map(|writes| Action::Persist { writes }));
        actions
    }

    /// The next word, with an election if one is due. KIP-966's eligible ones stay while too few
    /// are in sync.
    fn decides(
        &self,
        small: &Small,
        change: impl FnOnce(&mut Word),
    ) -> Result<Option<Small>, Broken> {
        let mut after = small.clone();
        let Some(before) = small.state.last_word() else { return Ok(None) };
        let mut word = before.clone();
        change(&mut word);
        let qualify = |word: &mut Word| {
            word.eligible = if word.in_sync.len() >= self.min.min(word.replicas.len()) {
                Nodes::new()
            } else {
                let had = before.in_sync.union(&before.eligible);
                had.copied().filter(|node| !word.in_sync.contains(node)).collect()
            };
        };
        qualify(&mut word);
        let is_live = |node: &&Node| after.live.contains(node);
        if word.leader.is_none_or(|leader| !word.in_sync.contains(&leader)) {
            word.leader = word.in_sync.iter().find(is_live).copied();
            if word.leader.is_none()
                && let Some(node) = word.eligible.iter().find(is_live).copied()
            {
                (word.leader, word.in_sync) = (Some(node), Nodes::from([node]));
                qualify(&mut word);
            }
        }
        word.leader_epoch += u64::from(word.leader != before.leader);
        word.partition_epoch += 1;
        if word.partition_epoch > self.words || word.leader_epoch > self.leader_epochs {
            return Ok(None);
        }
        let standing = after.standing();
        match after.state.decide(&word, &standing) {
            Ok(()) => Ok(Some(told(after)?)),
            Err(broken) if THEOREMS.contains(&broken) => Err(broken),
            Err(_) => Ok(None),
        }
    }

    /// The power of a node fails, and the controller notices.
    fn dies(&self, small: &Small, me: Node) -> Result<Option<Small>, Broken> {
        if !small.live.contains(&me) {
            return Ok(None);
        }
        let mut after = small.clone();
        after.live.remove(&me);
        after.state.act(me, &Action::Restart, &small.standing())?;
        self.decides(&after, |word| {
            word.in_sync.remove(&me);
        })
    }

    /// It registers, in another life.
    fn comes_back(&self, small: &Small, me: Node) -> Result<Option<Small>, Broken> {
        if small.live.contains(&me) {
            return Ok(None);
        }
        let mut after = small.clone();
        after.live.insert(me);
        *after.lives.entry(me).or_default() += 1;
        if small.state.last_word().is_some_and(|word| word.leader.is_some()) {
            return Ok(Some(told(after)?));
        }
        self.decides(&after, |_| {})
    }

    fn is_granted(
        &self,
        small: &Small,
        version: Version,
        members: &Lives,
    ) -> Result<Option<Small>, Broken> {
        let is_current = small.state.last_word().is_some_and(|word| word.version() == version);
        let lives = |(node, life): &(Node, Life)| {
            small.live.contains(node) && small.lives.get(node) == Some(life)
        };
        if !is_current || !members.iter().all(lives) {
            return Ok(None);
        }
        self.decides(small, |word| {
            word.in_sync = members.iter().map(|(node, _)| *node).collect();
        })
    }
}

/// Everything is said as soon as it may be, and what nobody needs any more is forgotten.
fn told(mut small: Small) -> Result<Small, Broken> {
    let standing = small.standing();
    let state = &mut small.state;
    for (me, copy) in state.copies.clone() {
        let Some(word) = copy.heard.and_then(|version| state.words.get(&version)) else { continue };
        let (epoch, replicas) = (word.leader_epoch, word.replicas.clone());
        if copy.leads {
            for to in replicas.into_iter().filter(|node| *node != me) {
                state.act(me, &Action::Say(Fact::Compares { to }), &standing)?;
            }
        } else if small.live.contains(&me)
            && let Some(led) = state.led.get(&epoch)
            && copy.mind.log.is_prefix_of(&led.kept.log)
            && state.compared.contains(&(epoch, me))
        {
            let through = copy.disk.log.common(&led.kept.log);
            let fact = Fact::Holds { life: small.lives[&me], through };
            state.act(me, &Action::Say(fact), &standing)?;
        }
    }
    let last = state.last_word().map(Word::version).unwrap_or_default();
    let heard = state.copies.values().filter_map(|copy| copy.heard);
    let oldest = heard.min().unwrap_or(last).min(last);
    state.words.retain(|version, _| *version >= oldest);
    // A leader that has not heard of the last word still waits for whom it wished for.
    state.proposed.retain(|(version, _)| *version >= oldest);
    state.led.retain(|epoch, _| *epoch >= oldest.0);
    let leads = |epoch: &Epoch| {
        let led = state.led.get(epoch);
        led.is_some_and(|led| state.copies.get(&led.node).is_some_and(|copy| copy.leads))
    };
    state.held.retain(|(epoch, ..), _| leads(epoch));
    state.compared.retain(|(epoch, _)| *epoch >= oldest.0);
    Ok(small)
}

/// `None` for a state that is not small.
pub fn shape(state: &State) -> Option<u64> {
    let word = state.last_word()?;
    if word.replicas.len() > NODES_MAX {
        return None;
    }
    let nothing = Copy::default();
    let nodes: Vec<Node> = word.replicas.iter().copied().collect();
    let copies: Vec<&Copy> =
        nodes.iter().map(|node| state.copies.get(node).unwrap_or(&nothing)).collect();
    // All have this on their disks, and it is committed.
    let all = copies.iter().map(|copy| copy.disk.log.common(&state.committed));
    let base = all.min()?;
    let suffix = |kept: &Kept| suffix(&kept.log, base);
    let mut epochs = BTreeSet::from([word.leader_epoch]);
    for copy in &copies {
        if copy.mind.log.len() > base + RECORDS_MAX || copy.writing.len() > WRITES_MAX {
            return None;
        }
        epochs.extend(suffix(&copy.mind).into_iter().chain(suffix(&copy.disk)));
        epochs.extend(copy.heard.map(|(epoch, _)| epoch));
    }
    if epochs.len() > RANKS_MAX {
        return None;
    }
    let rank = |epoch: Epoch| epochs.iter().position(|known| *known == epoch);
    let last = word.version();
    let hashes = orders(nodes.len()).into_iter().map(|order| {
        let one = |place: &usize| {
            let (node, copy) = (nodes[*place], copies[*place]);
            let log = |kept: &Kept| suffix(kept).into_iter().map(rank).collect::<Vec<_>>();
            let heard = copy.heard.map(|version| (rank(version.0), version == last));
            let is_eligible = word.eligible.contains(&node);
            let role = (word.leader == Some(node), word.in_sync.contains(&node), is_eligible);
            let high = copy.high.max(base) - base;
            ((log(&copy.mind), log(&copy.disk)), heard, role, (copy.leads, high))
        };
        hash(&order.iter().map(one).collect::<Vec<_>>())
    });
    hashes.min()
}

fn suffix(log: &Runs, base: Offset) -> Vec<Epoch> {
    (base + 1..=log.len()).filter_map(|length| log.writer(length)).collect()
}
