//! All small states of the quorum, and the shape of any: what remains of a state without names,
//! without what all have in common, and with terms by their order only.

use std::collections::BTreeSet;

use super::{Action, Broken, Fact, Index, Member, Memory, Peer, State, Term};
use crate::spec::explore::{Model, hash, orders};
use crate::spec::runs::Runs;

/// How far to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub members: u8,
    pub terms: Term,
    /// Entries behind the one that says who votes.
    pub entries: Index,
    /// Writes that are under way at one member.
    pub writes: usize,
    /// Lives that end.
    pub restarts: bool,
}

/// What a shape may have at most; others are beyond what is compared.
const ENTRIES_MAX: Index = 3;
const RANKS_MAX: usize = 4;
const WRITES_MAX: usize = 2;
const PEERS_MAX: usize = 3;

impl Model for Bounds {
    type State = State;

    fn begin(&self) -> State {
        let mut state = State::default();
        let voters = (1..=self.members).map(|node| Member(node, 0)).collect::<BTreeSet<_>>();
        let mut log = Runs::default();
        log.push(0, 1);
        state.voters.insert((1, 0), voters.clone());
        for voter in voters {
            let memory = Memory { log: log.clone(), ..Memory::default() };
            let peer = Peer { disk: memory.clone(), mind: memory, ..Peer::default() };
            state.peers.insert(voter, peer);
        }
        state
    }

    fn next(&self, state: &State) -> Result<Vec<State>, Broken> {
        let mut next = Vec::new();
        for (&me, peer) in &state.peers {
            for action in self.actions(state, peer) {
                let mut after = state.clone();
                if action == Action::Stand {
                    // Whoever likes may be welcome: what pre-votes forbid is not needed for safety.
                    let term = peer.mind.term + 1;
                    after.welcomed = after.peers.keys().map(|peer| (term, me, *peer)).collect();
                }
                match after.act(me, &action) {
                    Ok(()) if after.peers[&me].writing.len() > self.writes => {}
                    Ok(()) => next.push(told(after)?),
                    Err(broken) if THEOREMS.contains(&broken) => return Err(broken),
                    Err(_) => {}
                }
            }
        }
        Ok(next)
    }

    fn least(&self, state: &State) -> u64 {
        let members: Vec<Member> = state.peers.keys().copied().collect();
        let place = |member| members.iter().position(|known| *known == member).unwrap_or(0);
        let all = orders(members.len()).into_iter();
        let hashes = all.map(|order| hash(&state.renamed(|member| members[order[place(member)]])));
        hashes.min().unwrap_or(0)
    }

    fn shape(&self, state: &State) -> Option<u64> {
        shape(state)
    }
}

/// What the guards of the others must bring about, never a reason to refuse a step.
const THEOREMS: &[Broken] = &[
    "one leader a term",
    "who leads has all that was committed",
    "one history is committed",
    "what is committed is never cut",
];

impl Bounds {
    /// What the member might do; the specification refuses most of it.
    fn actions(&self, state: &State, peer: &Peer) -> Vec<Action> {
        let mut actions = Vec::new();
        let (term, entries) = (peer.mind.term, self.entries + 1);
        if term < self.terms {
            actions.push(Action::Stand);
        }
        actions.extend((term + 1..=state.newest).map(|term| Action::Follow { term }));
        let asked = state.asked.keys().filter(|(of, _)| *of == term);
        actions.extend(asked.map(|&(_, candidate)| Action::Vote { candidate }));
        if peer.stands && !peer.leads {
            actions.push(Action::Lead);
        }
        if peer.leads && peer.mind.log.len() < entries {
            actions.push(Action::Write { voters: None });
        }
        if let Some(led) = state.led.get(&term).filter(|_| !peer.leads) {
            let common = peer.mind.log.common(&led.log);
            actions.push(Action::Cut { after: common });
            let new = peer.mind.log.len() + 1..=led.log.len();
            actions.extend(new.map(|through| Action::Take { through }));
        }
        actions.extend((1..=peer.writing.len()).map(|writes| Action::Persist { writes }));
        for through in peer.committed + 1..=peer.mind.log.len() {
            actions.push(if peer.leads {
                Action::Commit { through }
            } else {
                Action::Learn { through }
            });
        }
        if self.restarts && (peer.mind != peer.disk || peer.leads || peer.stands) {
            actions.push(Action::Restart { committed: 0 });
        }
        actions
    }
}

/// Everything is said as soon as it may be: hearing it is a choice. What nobody needs any more is
/// forgotten, so that states which differ in it only are one.
fn told(mut state: State) -> Result<State, Broken> {
    state.welcomed.clear();
    for (me, peer) in state.peers.clone() {
        let (disk, mind) = (&peer.disk, &peer.mind);
        let term = disk.term;
        let mut facts = vec![Fact::Speaks { term }];
        if disk.vote == Some(me) && mind.term == term && peer.stands {
            facts.push(Fact::Asks { term, last: mind.log.last() });
        }
        if let Some(candidate) = disk.vote.filter(|candidate| *candidate != me) {
            facts.push(Fact::Grants { candidate, term });
        }
        if let Some(led) = state.led.get(&term).filter(|led| led.member != me) {
            facts.push(Fact::Holds { term, through: disk.log.common(&led.log) });
        }
        for fact in facts {
            let is_asked =
                matches!(fact, Fact::Asks { term, .. } if state.asked.contains_key(&(term, me)));
            if !is_asked {
                state.act(me, &Action::Say(fact))?;
            }
        }
    }
    let oldest = state.peers.values().map(|peer| peer.mind.term).min().unwrap_or(0);
    let State { peers, asked, granted, held, led, .. } = &mut state;
    asked.retain(|(term, _), _| *term >= oldest && !led.contains_key(term));
    let stands = |term, member: &Member| {
        let peer = &peers[member];
        peer.stands && !peer.leads && peer.mind.term == term
    };
    granted.retain(|(term, candidate, _)| stands(*term, candidate));
    let leads = |term: &Term| {
        led.get(term).is_some_and(|led| {
            let peer = &peers[&led.member];
            peer.leads && peer.mind.term == *term
        })
    };
    held.retain(|(term, _), _| leads(term));
    for (term, led) in led.iter_mut() {
        if *term < oldest {
            led.log.truncate(led.committed);
        }
    }
    Ok(state)
}

/// `None` for a state that is not small.
pub fn shape(state: &State) -> Option<u64> {
    let peers = &state.peers;
    if peers.len() > PEERS_MAX || peers.values().any(|peer| peer.writing.len() > WRITES_MAX) {
        return None;
    }
    // All have this, and know that it is committed.
    let base = peers.values().map(|peer| peer.committed.min(peer.disk.log.len())).min()?;
    let suffix = |log: &Runs| {
        let writers = (base..=log.len()).map(|length| log.writer(length).unwrap_or(0));
        writers.collect::<Vec<Term>>()
    };
    let longest = peers.values().map(|peer| peer.mind.log.len().max(peer.disk.log.len())).max()?;
    if longest > base + ENTRIES_MAX {
        return None;
    }
    let mut terms = BTreeSet::new();
    for peer in peers.values() {
        for memory in [&peer.mind, &peer.disk] {
            terms.insert(memory.term);
            terms.extend(suffix(&memory.log));
        }
    }
    if terms.len() > RANKS_MAX {
        return None;
    }
    let rank = |term: Term| terms.iter().position(|known| *known == term);
    let members: Vec<Member> = peers.keys().copied().collect();
    let all = orders(members.len()).into_iter().map(|order| {
        let vote =
            |of: Option<Member>| of.map(|of| order.iter().position(|place| members[*place] == of));
        let memory = |of: &Memory| {
            let log: Vec<_> = suffix(&of.log).into_iter().map(rank).collect();
            (rank(of.term), vote(of.vote), log)
        };
        let peer = |place: &usize| {
            let peer = &peers[&members[*place]];
            let committed = peer.committed - base.min(peer.committed);
            (memory(&peer.mind), memory(&peer.disk), peer.stands, peer.leads, committed)
        };
        hash(&order.iter().map(peer).collect::<Vec<_>>())
    });
    all.min()
}
