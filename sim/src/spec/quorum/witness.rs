//! Holds members of a quorum to its specification: what is seen of a member after one of its steps
//! becomes a line of specification variables, and the line becomes steps of the specification.

use std::collections::BTreeMap;
use std::fmt;

use quorate_core::id::NodeId;
use quorate_core::quorum::Quorum;
use quorate_core::quorum::interface::{
    Body, ClusterId, Configuration, Index as CoreIndex, Input, Member as CoreMember, Message,
    Payload, Recovered,
};
use serde::{Deserialize, Serialize};

use super::{Action, Broken, Fact, Index, Member, Memory, Peer, State, Term, Voters, words};
use crate::check::Violation;
use crate::spec::runs::Runs;
use crate::spec::{Seen, Wanted, rejected};

pub(crate) const PROPERTY: &str = "refines-quorum";

/// What is seen of a member after a step.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    pub(crate) at_us: u64,
    /// What it was told, for people.
    pub(crate) step: &'static str,
    pub(crate) member: CoreMember,
    pub(crate) quorum: &'a Quorum,
    /// All that it has asked its disk for, added up; and what is done of it.
    pub(crate) issued: &'a Recovered,
    pub(crate) durable: &'a Recovered,
    pub(crate) applied: CoreIndex,
    /// What it said in this step, and to whom.
    pub(crate) said: &'a [(NodeId, Message)],
    /// Its life begins with this step.
    pub(crate) restarts: bool,
}

/// What a member is told, in a word.
pub(crate) const fn name_of(input: &Input) -> &'static str {
    match input {
        Input::Propose { .. } => "propose",
        Input::Read { .. } => "read",
        Input::Change { .. } => "change",
        Input::Transfer { .. } => "transfer",
        Input::Resign => "resign",
        Input::SnapshotTaken { .. } => "snapshot taken",
        Input::Describe { .. } => "describe",
        Input::Cancelled { .. } => "cancelled",
        Input::Received(message) => match message.body {
            Body::PreVote { .. } => "pre-vote",
            Body::PreVoteReply { .. } => "pre-vote reply",
            Body::Vote { .. } => "vote",
            Body::VoteReply { .. } => "vote reply",
            Body::Append { .. } => "append",
            Body::Appended { .. } => "appended",
            Body::Heartbeat { .. } => "heartbeat",
            Body::HeartbeatReply { .. } => "heartbeat reply",
            Body::Chunk { .. } => "chunk",
            _ => "message",
        },
        Input::Persisted { .. } => "persisted",
        Input::PersistFailed { .. } => "persist failed",
        Input::Tick => "tick",
    }
}

/// What the specification hears of a message; the rest is left out.
pub(crate) fn heard(message: &Message) -> Message {
    let body = match &message.body {
        body @ (Body::PreVoteReply { .. }
        | Body::Vote { .. }
        | Body::VoteReply { .. }
        | Body::Appended { .. }
        | Body::HeartbeatReply { .. }
        | Body::TimeoutNow) => body.clone(),
        _ => Body::Outdated,
    };
    let Message { cluster, from, to, term, .. } = *message;
    Message { cluster, from, to, term, body }
}

/// One line of a trace: what has changed of one member, and what it said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Line {
    pub at_us: u64,
    /// Which cluster: one that was founded in vain is another.
    pub cluster: u32,
    pub member: Member,
    pub step: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restarts: bool,
    /// Term, vote, and the last entry's term and index: on the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<(Term, Option<Member>, (Term, Index))>,
    /// Term and vote in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mind: Option<(Term, Option<Member>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leads: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Tail>,
    /// Who votes, as this member has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voters: Option<Voters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed: Option<Index>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<Index>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Fact>,
}

/// How a log has changed: up to where it is as it was, and what stands behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tail {
    pub kept: Index,
    /// The snapshot that took the place of the log: the last entry's term and index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<(Term, Index)>,
    /// Terms, each with a number of entries.
    pub wrote: Vec<(Term, u64)>,
    /// Entries among those that say who votes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub voters: BTreeMap<Index, Voters>,
}

/// The specification's states, a cluster each, and the trace.
#[derive(Default)]
pub(crate) struct Watch {
    wanted: Wanted,
    states: BTreeMap<u32, State>,
    /// The cluster that each member was in last.
    homes: BTreeMap<Member, u32>,
    names: Names,
    /// Who votes, as each member had it last, and where in its log that stands.
    voters: BTreeMap<Member, (Index, Configuration)>,
    seen: Seen,
}

/// Short names for what has long ones.
#[derive(Default)]
struct Names {
    clusters: Vec<ClusterId>,
    disks: BTreeMap<NodeId, Vec<CoreMember>>,
}

impl Names {
    fn member(&mut self, member: CoreMember) -> Member {
        let disks = self.disks.entry(member.node).or_default();
        let disk = disks.iter().position(|known| *known == member).unwrap_or_else(|| {
            disks.push(member);
            disks.len() - 1
        });
        Member(member.node.0 as u8, disk as u8)
    }

    fn cluster(&mut self, id: ClusterId) -> u32 {
        let place = self.clusters.iter().position(|known| *known == id).unwrap_or_else(|| {
            self.clusters.push(id);
            self.clusters.len() - 1
        });
        place as u32
    }

    fn voters(&mut self, configuration: &Configuration) -> Voters {
        configuration.voters.iter().map(|voter| self.member(*voter)).collect()
    }
}

impl Watch {
    pub(crate) fn new(wanted: Wanted) -> Self {
        Self { wanted, ..Self::default() }
    }

    pub(crate) fn end(self) -> Seen {
        self.seen
    }

    /// After each step of a member; what changes nothing is no step of the specification.
    pub(crate) fn look(&mut self, look: &Look<'_>) {
        if !self.seen.violations.is_empty() {
            return;
        }
        let founded = || look.issued.log.configuration().map(|voters| voters.cluster);
        let member = self.names.member(look.member);
        let written = look.issued.hard.cluster.or_else(founded);
        let written = written.map(|cluster| self.names.cluster(cluster));
        // Who has forgotten its cluster, since that never was on its disk, is still of it here; who
        // has none speaks in that of the question.
        let asked = look.said.iter().find_map(|(_, message)| message.cluster);
        let known = written.or_else(|| self.homes.get(&member).copied());
        let known = known.or_else(|| asked.map(|cluster| self.names.cluster(cluster)));
        let Some(cluster) = known else { return };
        self.homes.insert(member, cluster);
        let mut line = self.line(cluster, member, look);
        if line == Line::default() {
            return;
        }
        (line.at_us, line.cluster, line.member) = (look.at_us, cluster, member);
        look.step.clone_into(&mut line.step);
        if self.wanted.export {
            let text = serde_json::to_string(&line).expect("it is plain data");
            self.seen.lines.push((format!("quorum-{cluster}"), text));
        }
        self.seen.steps += 1;
        let state = self.states.entry(cluster).or_default();
        if let Err(why) = refine(state, &line) {
            self.seen.violations.push(blame(&line, why));
        } else if self.wanted.shapes {
            self.seen.shapes.extend(super::explore::shape(state));
        }
    }

    /// What differs from what the specification has.
    fn line(&mut self, cluster: u32, me: Member, look: &Look<'_>) -> Line {
        let Self { names, states, .. } = self;
        let vote = look.issued.hard.vote.map(|member| names.member(member));
        let disk_vote = look.durable.hard.vote.map(|member| names.member(member));
        let nobody = Peer::default();
        let state = states.get(&cluster);
        let known = state.and_then(|state| state.peers.get(&me));
        let is_new = known.is_none();
        let peer = known.unwrap_or(&nobody);
        let last = |of: &Recovered| (of.log.last().term.0, of.log.last().index.0);
        let disk = (look.durable.hard.term.0, disk_vote, last(look.durable));
        let on_disk = |of: &Memory| (of.term, of.vote, of.log.last());
        let mind = (look.quorum.term().0, vote);
        let (leads, committed) = (look.quorum.is_leader(), look.quorum.committed().0);
        let restarts = look.restarts && !is_new;
        // A restart gives the mind what the disk has, and forgets commits.
        let kept = restarts.then(|| disk_memory(peer, &disk));
        let before = kept.as_ref().unwrap_or(&peer.mind);
        let mut line = Line {
            restarts,
            disk: (is_new || disk != on_disk(&peer.disk)).then_some(disk),
            mind: (mind != (before.term, before.vote)).then_some(mind),
            leads: (leads != (peer.leads && !restarts)).then_some(leads),
            log: tail(names, before, look),
            committed: (restarts || committed != peer.committed).then_some(committed),
            applied: (restarts || look.applied.0 != peer.applied).then_some(look.applied.0),
            said: facts(names, state, me, look),
            ..Line::default()
        };
        line.voters = self.voters_if_new(me, look);
        line
    }

    fn voters_if_new(&mut self, me: Member, look: &Look<'_>) -> Option<Voters> {
        let index = look.quorum.log().configuration_index().0;
        let configuration = look.quorum.configuration()?;
        let known = self.voters.get(&me);
        if known.is_some_and(|(at, known)| *at == index && known == configuration) {
            return None;
        }
        self.voters.insert(me, (index, configuration.clone()));
        Some(self.names.voters(configuration))
    }
}

/// Compared from the end: who has the same writer at a place has the same log below.
fn tail(names: &mut Names, known: &Memory, look: &Look<'_>) -> Option<Tail> {
    let (known, log) = (&known.log, look.quorum.log());
    let (base, last) = (log.base(), log.last());
    if known.last() == (last.term.0, last.index.0)
        && known.writer(base.index.0).unwrap_or_default() == base.term.0
    {
        return None;
    }
    let writer = |index| log.term(CoreIndex(index)).map(|term| term.0);
    let agrees = |index: Index| index == 0 || writer(index) == known.writer(index);
    let mut tail = Tail { kept: known.len().min(last.index.0), ..Tail::default() };
    while tail.kept > base.index.0 && !agrees(tail.kept) {
        tail.kept -= 1;
    }
    let mut from = tail.kept;
    if tail.kept < base.index.0 || !agrees(tail.kept) {
        tail.installed = Some((base.term.0, base.index.0));
        tail.kept = 0;
        from = base.index.0;
    }
    for index in from + 1..=last.index.0 {
        let Some(entry) = log.entry(CoreIndex(index)) else { continue };
        match tail.wrote.last_mut() {
            Some((term, count)) if *term == entry.term.0 => *count += 1,
            _ => tail.wrote.push((entry.term.0, 1)),
        }
        if let Payload::Configuration(voters) = &entry.payload {
            tail.voters.insert(index, names.voters(voters));
        }
    }
    Some(tail)
}

/// What was said that was not said before.
fn facts(names: &mut Names, state: Option<&State>, me: Member, look: &Look<'_>) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    for (to, message) in look.said {
        let term = message.term.0;
        let mut to = message.to.map(|directory| CoreMember { node: *to, directory });
        let mut to = || to.take().map(|to| names.member(to));
        let fact = match message.body {
            Body::PreVoteReply { term, granted: true } => {
                to().map(|candidate| Fact::Welcomes { candidate, term: term.0 })
            }
            Body::Vote { last, .. } => Some(Fact::Asks { term, last: (last.term.0, last.index.0) }),
            Body::VoteReply { granted: true } => {
                to().map(|candidate| Fact::Grants { candidate, term })
            }
            Body::Appended { through, .. } | Body::HeartbeatReply { through, .. } => {
                Some(Fact::Holds { term, through: through.0 })
            }
            Body::TimeoutNow => to().map(|member| Fact::Calls { member, term }),
            _ => None,
        };
        let from = names.member(message.from);
        let claims = (from != me).then_some(Fact::Claims { member: from });
        let is_newer = state.is_none_or(|state| term > state.newest);
        let speaks = is_newer.then_some(Fact::Speaks { term });
        for fact in [claims, fact, speaks].into_iter().flatten() {
            if !is_known(state, me, fact) && !facts.contains(&fact) {
                facts.push(fact);
            }
        }
    }
    facts
}

/// Whether this was said before.
fn is_known(state: Option<&State>, me: Member, fact: Fact) -> bool {
    let Some(state) = state else { return false };
    match fact {
        Fact::Welcomes { candidate, term } => state.welcomed.contains(&(term, candidate, me)),
        Fact::Asks { term, .. } => state.asked.contains_key(&(term, me)),
        Fact::Grants { candidate, term } => state.granted.contains(&(term, candidate, me)),
        Fact::Holds { through: 0, .. } => true,
        Fact::Holds { term, through } => {
            state.held.get(&(term, me)).is_some_and(|held| *held >= through)
        }
        Fact::Calls { member, term } => state.called.contains(&(term, member)),
        Fact::Speaks { .. } | Fact::Claims { .. } => false,
    }
}

/// What a disk that ends so remembers, if that was written.
fn disk_memory(peer: &Peer, disk: &(Term, Option<Member>, (Term, Index))) -> Memory {
    let is = |of: &&Memory| (of.term, of.vote, of.log.last()) == *disk;
    std::iter::once(&peer.disk).chain(&peer.writing).find(is).unwrap_or(&peer.disk).clone()
}

fn blame(line: &Line, (step, broken): (String, Broken)) -> Violation {
    let step = format!("{} ({}) {step}", line.member, line.step);
    rejected(PROPERTY, "the quorum", (line.member.0, line.at_us), &step, broken)
}

/// Takes the steps that the line tells of, or says which one is not allowed.
///
/// # Errors
///
/// The step, and the rule that it breaks.
pub fn refine(state: &mut State, line: &Line) -> Result<(), (String, Broken)> {
    let mut steps = Steps { state, me: line.member, founded: false };
    steps.on_disk(line)?;
    steps.on_mind(line)?;
    // A step that commits may go on to write, and one that writes to commit.
    let is_both = line.log.is_some() && line.committed.is_some();
    let other = is_both.then(|| steps.state.clone());
    let first = steps.on_log(line).and_then(|()| steps.on_committed(line));
    if first.is_err()
        && let Some(mut other) = other
    {
        let mut steps = Steps { state: &mut other, me: line.member, founded: false };
        steps.on_committed(line).and_then(|()| steps.on_log(line)).or(first)?;
        *state = other;
    } else {
        first?;
    }
    Steps { state, me: line.member, founded: false }.on_said(line)
}

struct Steps<'a> {
    state: &'a mut State,
    me: Member,
    /// The first entry was written in this step.
    founded: bool,
}

impl Steps<'_> {
    fn act(&mut self, action: &Action) -> Result<(), (String, Broken)> {
        self.state.act(self.me, action).map_err(|broken| (action.to_string(), broken))
    }

    fn peer(&self) -> Option<&Peer> {
        self.state.peers.get(&self.me)
    }

    fn log(&self) -> Runs {
        self.peer().map(|peer| peer.mind.log.clone()).unwrap_or_default()
    }

    fn leads(&self) -> bool {
        self.peer().is_some_and(|peer| peer.leads)
    }

    fn on_disk(&mut self, line: &Line) -> Result<(), (String, Broken)> {
        let is_new = !self.state.peers.contains_key(&self.me);
        if let Some((term, vote, last)) = line.disk {
            if is_new {
                let mut disk = Memory { term, vote, ..Memory::default() };
                disk.log.push(last.0, last.1);
                let joins = line.mind.filter(|mind| mind.1.is_none()).map_or(term, |mind| mind.0);
                self.act(&Action::Join { disk, term: joins })?;
            } else {
                let is = |of: &Memory| (of.term, of.vote, of.log.last()) == (term, vote, last);
                let place = self.peer().and_then(|peer| peer.writing.iter().position(is));
                let Some(place) = place else {
                    let step = words::of_disk(term, vote, last);
                    return Err((step, "a disk has what was written, in order"));
                };
                self.act(&Action::Persist { writes: place + 1 })?;
            }
        }
        if line.restarts {
            self.act(&Action::Restart { committed: line.committed.unwrap_or(0) })?;
        }
        Ok(())
    }

    /// Term, vote, leadership. The first entry of all comes before the first term.
    fn on_mind(&mut self, line: &Line) -> Result<(), (String, Broken)> {
        if let Some(tail) = line.log.as_ref().filter(|tail| tail.wrote.first() == Some(&(0, 1)))
            && self.state.voters.is_empty()
        {
            let voters = tail.voters.get(&1).cloned().unwrap_or_default();
            self.act(&Action::Found { voters })?;
            self.founded = true;
        }
        let (led, mind) = (self.leads(), self.peer().map(|peer| (peer.mind.term, peer.mind.vote)));
        let (known_term, known_vote) = mind.unwrap_or_default();
        if let Some((term, vote)) = line.mind
            && (term, vote) != (known_term, known_vote)
        {
            if vote == Some(self.me) && term == known_term + 1 {
                self.act(&Action::Stand)?;
            } else {
                if term != known_term {
                    self.act(&Action::Follow { term })?;
                }
                match vote {
                    Some(candidate) => self.act(&Action::Vote { candidate })?,
                    None if term == known_term => {
                        return Err(("forgets its vote".to_owned(), "one vote a term"));
                    }
                    None => {}
                }
            }
        }
        if line.leads == Some(true) || line.leads.is_none() && led && !self.leads() {
            self.act(&Action::Lead)?;
        }
        Ok(())
    }

    fn on_log(&mut self, line: &Line) -> Result<(), (String, Broken)> {
        if let Some(tail) = &line.log {
            self.on_tail(tail)?;
        }
        if line.log.is_none() && line.voters.is_none() {
            return Ok(());
        }
        let nobody = Peer::default();
        let log = &self.peer().unwrap_or(&nobody).mind.log;
        let voters = self.state.voters_of(log, log.len()).map(|(_, voters)| voters);
        if let Some(told) = &line.voters
            && voters != Some(told)
        {
            let step = format!("knows who votes [{}]", words::names(told));
            return Err((step, "the last word in the log says who votes"));
        }
        Ok(())
    }

    fn on_tail(&mut self, tail: &Tail) -> Result<(), (String, Broken)> {
        let mut wrote = tail.wrote.clone();
        if let Some((term, through)) = tail.installed {
            self.act(&Action::Install { through })?;
            let installed = self.log().last();
            if installed != (term, through) {
                let step = format!("puts a snapshot up to {through}@{term} for its log");
                return Err((step, "a snapshot is the leader's"));
            }
        } else if self.founded && wrote.first() == Some(&(0, 1)) {
            wrote.remove(0);
        } else if tail.kept < self.log().len() {
            self.act(&Action::Cut { after: tail.kept })?;
        }
        let mut expected = self.log();
        let start = expected.len();
        let count: u64 = wrote.iter().map(|(_, count)| count).sum();
        if self.leads() {
            for index in start + 1..=start + count {
                self.act(&Action::Write { voters: tail.voters.get(&index).cloned() })?;
            }
        } else if count > 0 {
            self.act(&Action::Take { through: start + count })?;
        }
        wrote.iter().for_each(|(term, count)| expected.push(*term, *count));
        if self.log() != expected {
            return Err((words::of_entries(&tail.wrote), "entries are their leader's"));
        }
        Ok(())
    }

    fn on_committed(&mut self, line: &Line) -> Result<(), (String, Broken)> {
        let known = self.peer().map(|peer| (peer.committed, peer.applied));
        let (committed, applied) = known.unwrap_or_default();
        if let Some(through) = line.committed.filter(|through| *through != committed) {
            match self.leads() {
                true => self.act(&Action::Commit { through })?,
                false => self.act(&Action::Learn { through })?,
            }
        }
        if let Some(through) = line.applied.filter(|through| *through != applied) {
            self.act(&Action::Apply { through })?;
        }
        Ok(())
    }

    fn on_said(&mut self, line: &Line) -> Result<(), (String, Broken)> {
        for fact in &line.said {
            self.act(&Action::Say(*fact))?;
        }
        if line.leads == Some(false) && self.leads() {
            self.act(&Action::Resign)?;
        }
        Ok(())
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)?;
        if self.1 > 0 { write!(f, " (disk {})", self.1) } else { Ok(()) }
    }
}
