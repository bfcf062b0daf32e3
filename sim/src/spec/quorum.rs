//! The metadata quorum as a specification: Raft with pre-vote, durable votes, commits by entries of
//! the own term, one voter more or less at a time. Written to be read; it says what a member may do
//! next and nothing of when it does so.
//!
//! There is no network here. What was said once may be heard at any later time, any number of times
//! or never, so messages are a set of facts that only grows. A member *remembers* on its disk,
//! *thinks* in memory, and what it has written but not synced lies in between, in order. Nothing
//! is said that the disk does not back.
//!
//! Not here: snapshots (a log keeps all its entries; who installs one takes the leader's committed
//! entries), reads, the founding before the first entry, time.

pub mod explore;
pub mod witness;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::runs::Runs;

pub type Term = u64;
/// The place of an entry, from 1 on; also the length of the log that ends there.
pub type Index = u64;
pub type Voters = BTreeSet<Member>;

/// A memory that may vote: a node, and which of its disks, from 0 on.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Member(pub u8, pub u8);

/// What a voter must not forget.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Memory {
    pub term: Term,
    pub vote: Option<Member>,
    pub log: Runs,
}

/// One member.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    pub disk: Memory,
    /// What `disk` will be next, and after that: writes in their order.
    pub writing: VecDeque<Memory>,
    pub mind: Memory,
    /// It stood for election in this term and in this life.
    pub stands: bool,
    pub leads: bool,
    pub committed: Index,
    /// The application was given everything up to here.
    pub applied: Index,
}

impl Peer {
    /// It, without what is on its way to the disk: no rule asks for that.
    fn settled(&self) -> Self {
        let (disk, mind, writing) = (self.disk.clone(), self.mind.clone(), VecDeque::new());
        let Self { stands, leads, committed, applied, .. } = *self;
        Self { disk, writing, mind, stands, leads, committed, applied }
    }
}

/// What is known of the leader of a term: all that it ever had in its log then, and committed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Led {
    pub member: Member,
    pub log: Runs,
    pub committed: Index,
}

/// Something that a member tells others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// "I would vote for this one in that term."
    Welcomes { candidate: Member, term: Term },
    /// "Vote for me in this term": its log ends so.
    Asks { term: Term, last: (Term, Index) },
    /// "You have my vote."
    Grants { candidate: Member, term: Term },
    /// "My disk has your log up to here."
    Holds { term: Term, through: Index },
    /// "Stand now": the leader hands over.
    Calls { member: Member, term: Term },
    /// Anything else, said in this term.
    Speaks { term: Term },
    /// "I am this one."
    Claims { member: Member },
}

impl Fact {
    /// The term in which it is said; a welcome is about the next one.
    const fn spoken_in(self) -> Option<Term> {
        match self {
            Self::Welcomes { .. } | Self::Claims { .. } => None,
            Self::Asks { term, .. }
            | Self::Grants { term, .. }
            | Self::Holds { term, .. }
            | Self::Calls { term, .. }
            | Self::Speaks { term } => Some(term),
        }
    }
}

/// One step of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It hears of the cluster for the first time, and may have a term and a vote of another one.
    Join {
        disk: Memory,
        term: Term,
    },
    /// The first entry: who votes.
    Found {
        voters: Voters,
    },
    /// It hears of a newer term.
    Follow {
        term: Term,
    },
    Stand,
    Vote {
        candidate: Member,
    },
    Lead,
    /// A leader's next entry; `voters` if it changes them.
    Write {
        voters: Option<Voters>,
    },
    /// A follower cuts what is not the leader's, and takes what is.
    Cut {
        after: Index,
    },
    Take {
        through: Index,
    },
    /// It puts a snapshot, of the leader's entries up to here, in the place of its whole log.
    Install {
        through: Index,
    },
    /// The first so many writes are done.
    Persist {
        writes: usize,
    },
    /// It comes back with what its disk has.
    Restart {
        committed: Index,
    },
    /// A leader finds that a majority has everything up to here.
    Commit {
        through: Index,
    },
    /// A follower hears so.
    Learn {
        through: Index,
    },
    Apply {
        through: Index,
    },
    /// A leader leads no more.
    Resign,
    Say(Fact),
}

/// All members, and all that was ever said.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    pub peers: BTreeMap<Member, Peer>,
    pub welcomed: BTreeSet<(Term, Member, Member)>,
    pub asked: BTreeMap<(Term, Member), (Term, Index)>,
    pub granted: BTreeSet<(Term, Member, Member)>,
    pub called: BTreeSet<(Term, Member)>,
    pub held: BTreeMap<(Term, Member), Index>,
    pub led: BTreeMap<Term, Led>,
    /// Who votes from an entry on. An entry is known by its place and its writer.
    pub voters: BTreeMap<(Index, Term), Voters>,
    /// The largest term of which anybody has spoken.
    pub newest: Term,
    /// The longest prefix that anybody took for committed.
    pub committed: Runs,
}

/// Why a step is not allowed: the rule that it breaks.
pub type Broken = &'static str;

fn rule(holds: bool, broken: Broken) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(broken) }
}

impl State {
    /// The voters by the last word in the first `length` entries of a log, and where that stands.
    pub fn voters_of(&self, log: &Runs, length: Index) -> Option<(Index, &Voters)> {
        let mut words = self.voters.range(..=(length, Term::MAX)).rev();
        let (&(index, _), voters) = words
            .find(|((index, term), _)| *index <= log.len() && log.writer(*index) == Some(*term))?;
        Some((index, voters))
    }

    fn majority(&self, log: &Runs, agrees: impl Fn(Member) -> bool) -> bool {
        self.voters_of(log, log.len()).is_some_and(|(_, voters)| {
            voters.iter().filter(|voter| agrees(**voter)).count() * 2 > voters.len()
        })
    }

    fn is_alone(&self, me: Member, log: &Runs) -> bool {
        self.voters_of(log, log.len()).is_some_and(|(_, voters)| voters.iter().eq([&me]))
    }

    /// The same with other names.
    #[must_use]
    pub fn renamed(&self, name: impl Fn(Member) -> Member) -> Self {
        let memory = |of: &Memory| Memory { vote: of.vote.map(&name), ..of.clone() };
        let peer = |of: &Peer| Peer {
            disk: memory(&of.disk),
            writing: of.writing.iter().map(&memory).collect(),
            mind: memory(&of.mind),
            ..of.clone()
        };
        let votes = |of: &BTreeSet<(Term, Member, Member)>| {
            of.iter().map(|&(term, one, two)| (term, name(one), name(two))).collect()
        };
        let led = |led: &Led| Led { member: name(led.member), ..led.clone() };
        let voters = |voters: &Voters| voters.iter().map(|voter| name(*voter)).collect();
        Self {
            peers: self.peers.iter().map(|(&member, of)| (name(member), peer(of))).collect(),
            welcomed: votes(&self.welcomed),
            asked: self.asked.iter().map(|(&(t, m), &last)| ((t, name(m)), last)).collect(),
            granted: votes(&self.granted),
            called: self.called.iter().map(|&(term, member)| (term, name(member))).collect(),
            held: self.held.iter().map(|(&(t, m), &held)| ((t, name(m)), held)).collect(),
            led: self.led.iter().map(|(&term, of)| (term, led(of))).collect(),
            voters: self.voters.iter().map(|(&at, of)| (at, voters(of))).collect(),
            newest: self.newest,
            committed: self.committed.clone(),
        }
    }

    /// Takes the step, or says which rule it breaks; the state is of no use then.
    pub fn act(&mut self, me: Member, action: &Action) -> Result<(), Broken> {
        let peer = self.peers.entry(me).or_default().settled();
        match action {
            Action::Join { disk, term } => self.join(me, disk, *term),
            Action::Found { voters } => self.found(me, voters),
            Action::Follow { term } => {
                rule(*term > peer.mind.term, "a term is never taken back")?;
                rule(*term <= self.newest, "a term of which nobody has spoken")?;
                self.begin_term(me, *term, None);
                Ok(())
            }
            Action::Stand => self.stand(me, &peer),
            Action::Vote { candidate } => self.vote(me, &peer, *candidate),
            Action::Lead => self.lead(me, &peer),
            Action::Write { voters } => self.write(me, &peer, voters.as_ref()),
            Action::Cut { after } => self.cut(me, &peer, *after),
            Action::Take { through } => self.take(me, &peer, *through),
            Action::Install { through } => self.install(me, &peer, *through),
            Action::Persist { writes } => {
                let peer = self.peer(me);
                for _ in 0..*writes {
                    peer.disk = peer.writing.pop_front().ok_or("nothing was written")?;
                }
                Ok(())
            }
            Action::Restart { committed } => {
                rule(*committed <= peer.committed, "who restarts knows of no more commits")?;
                rule(*committed <= peer.disk.log.len(), "more is committed than is there")?;
                let disk = peer.disk;
                let mind = disk.clone();
                let (committed, applied) = (*committed, *committed);
                *self.peer(me) = Peer { disk, mind, committed, applied, ..Peer::default() };
                Ok(())
            }
            Action::Commit { through } => self.commit(me, &peer, *through),
            Action::Learn { through } => self.learn(me, &peer, *through),
            Action::Apply { through } => {
                rule(*through <= peer.committed, "what is applied is committed")?;
                let kept = peer.disk.log.common(&peer.mind.log);
                rule(*through <= kept, "what is applied is on this disk")?;
                self.peer(me).applied = *through;
                Ok(())
            }
            Action::Resign => {
                rule(peer.leads, "only a leader resigns")?;
                (self.peer(me).leads, self.peer(me).stands) = (false, false);
                Ok(())
            }
            Action::Say(fact) => self.say(me, &peer, *fact),
        }
    }

    fn peer(&mut self, me: Member) -> &mut Peer {
        self.peers.entry(me).or_default()
    }

    /// What is in memory now is written, behind all that was before.
    fn remember(&mut self, me: Member) {
        let peer = self.peer(me);
        peer.writing.push_back(peer.mind.clone());
    }

    fn begin_term(&mut self, me: Member, term: Term, vote: Option<Member>) {
        let peer = self.peer(me);
        (peer.mind.term, peer.mind.vote) = (term, vote);
        (peer.leads, peer.stands) = (false, vote == Some(me));
        self.remember(me);
    }

    fn join(&mut self, me: Member, disk: &Memory, term: Term) -> Result<(), Broken> {
        rule(disk.log.is_empty(), "who joins brings no entries")?;
        let mind = Memory { term, ..Memory::default() };
        let writing = if *disk == mind { VecDeque::new() } else { VecDeque::from([mind.clone()]) };
        *self.peer(me) = Peer { disk: disk.clone(), writing, mind, ..Peer::default() };
        Ok(())
    }

    fn found(&mut self, me: Member, voters: &Voters) -> Result<(), Broken> {
        rule(self.voters.is_empty(), "a cluster is founded once")?;
        rule(self.peer(me).mind.log.is_empty(), "who founds has no entries")?;
        rule(voters.contains(&me), "who founds votes")?;
        self.voters.insert((1, 0), voters.clone());
        self.peer(me).mind.log.push(0, 1);
        self.remember(me);
        Ok(())
    }

    /// It begins a term with a vote for itself, once a majority would follow (pre-vote), or once
    /// the leader calls it.
    fn stand(&mut self, me: Member, peer: &Peer) -> Result<(), Broken> {
        let term = peer.mind.term + 1;
        let welcomes = |voter| voter == me || self.welcomed.contains(&(term, me, voter));
        let is_called = self.called.contains(&(peer.mind.term, me));
        let is_welcome = is_called || self.majority(&peer.mind.log, welcomes);
        rule(is_welcome, "who stands is welcome to a majority")?;
        self.begin_term(me, term, Some(me));
        Ok(())
    }

    fn vote(&mut self, me: Member, peer: &Peer, candidate: Member) -> Result<(), Broken> {
        rule(peer.mind.vote.is_none(), "one vote a term")?;
        let asked = self.asked.get(&(peer.mind.term, candidate));
        let last = asked.ok_or("nobody of this name has asked for a vote")?;
        rule(*last >= peer.mind.log.last(), "who is voted for lacks nothing of the voter's")?;
        self.peer(me).mind.vote = Some(candidate);
        self.remember(me);
        Ok(())
    }

    fn lead(&mut self, me: Member, peer: &Peer) -> Result<(), Broken> {
        let Memory { term, log, .. } = &peer.mind;
        rule(peer.stands && !peer.leads, "only a candidate leads")?;
        let grants = |voter: Member| {
            let own = voter == me && peer.disk.term == *term && peer.disk.vote == Some(me);
            own || self.granted.contains(&(*term, me, voter))
        };
        let is_elected = self.is_alone(me, log) || self.majority(log, grants);
        rule(is_elected, "who leads has durable votes of a majority")?;
        // Who is alone leads before its vote is on the disk. A life that ends before it is has told
        // nobody.
        let is_unheard = |led: &Led| led.member == me && *term > self.newest;
        rule(self.led.get(term).is_none_or(is_unheard), "one leader a term")?;
        let mut before = self.led.range(..*term).map(|(_, led)| led);
        let has_all = before.all(|led| log.common(&led.log) >= led.committed);
        rule(has_all, "who leads has all that was committed")?;
        let led = Led { member: me, log: log.clone(), committed: peer.committed };
        self.led.insert(*term, led);
        self.peer(me).leads = true;
        Ok(())
    }

    fn write(&mut self, me: Member, peer: &Peer, next: Option<&Voters>) -> Result<(), Broken> {
        rule(peer.leads, "only a leader writes")?;
        let Memory { term, log, .. } = &peer.mind;
        if let Some(next) = next {
            let (at, now) = self.voters_of(log, log.len()).ok_or("nobody votes")?;
            rule(at <= peer.committed, "one change of the voters at a time")?;
            let is_own = log.writer(peer.committed) == Some(*term);
            rule(is_own, "voters change once an entry of the own term is committed")?;
            rule(now.symmetric_difference(next).count() <= 1, "one voter more or less")?;
            rule(!next.is_empty(), "somebody votes")?;
            self.voters.insert((log.len() + 1, *term), next.clone());
        }
        let term = *term;
        let peer = self.peer(me);
        peer.mind.log.push(term, 1);
        let log = peer.mind.log.clone();
        if let Some(led) = self.led.get_mut(&term) {
            led.log = log;
        }
        self.remember(me);
        Ok(())
    }

    /// The leader's log, as the follower of its term knows it.
    fn leaders(&self, peer: &Peer) -> Result<&Led, Broken> {
        rule(!peer.leads, "a leader takes nobody's entries")?;
        self.led.get(&peer.mind.term).ok_or("nobody leads this term")
    }

    fn cut(&mut self, me: Member, peer: &Peer, after: Index) -> Result<(), Broken> {
        let common = peer.mind.log.common(&self.leaders(peer)?.log);
        rule(after == common, "a log is cut where it parts from the leader's")?;
        rule(after < self.leaders(peer)?.log.len(), "a tail is cut for what stands in its place")?;
        rule(after >= peer.committed, "what is committed is never cut")?;
        self.peer(me).mind.log.truncate(after);
        self.remember(me);
        Ok(())
    }

    fn take(&mut self, me: Member, peer: &Peer, through: Index) -> Result<(), Broken> {
        let led = self.leaders(peer)?;
        rule(peer.mind.log.is_prefix_of(&led.log), "entries follow a log that is the leader's")?;
        rule(through <= led.log.len(), "what is taken, the leader has written")?;
        self.peer(me).mind.log = led.log.prefix(through);
        self.remember(me);
        Ok(())
    }

    fn install(&mut self, me: Member, peer: &Peer, through: Index) -> Result<(), Broken> {
        let led = self.leaders(peer)?;
        rule(through <= led.committed, "a snapshot is of what is committed")?;
        rule(through > peer.mind.log.common(&led.log), "a snapshot is for who lacks its entries")?;
        self.peer(me).mind.log = led.log.prefix(through);
        self.remember(me);
        Ok(())
    }

    fn commit(&mut self, me: Member, peer: &Peer, through: Index) -> Result<(), Broken> {
        let Memory { term, log, .. } = &peer.mind;
        rule(peer.leads, "only a leader counts")?;
        rule(log.writer(through) == Some(*term), "an entry of the own term is counted")?;
        let has = |voter: Member| match voter == me {
            true => peer.disk.log.common(log) >= through,
            false => self.held.get(&(*term, voter)).is_some_and(|held| *held >= through),
        };
        rule(self.majority(log, has), "a majority holds what is committed")?;
        if let Some(led) = self.led.get_mut(term) {
            led.committed = through;
        }
        self.raise(me, peer, through)
    }

    fn learn(&mut self, me: Member, peer: &Peer, through: Index) -> Result<(), Broken> {
        let led = self.leaders(peer)?;
        rule(through <= led.committed, "the leader has not committed this")?;
        let verified = peer.mind.log.common(&led.log);
        rule(through <= verified, "what a follower commits is the leader's entry")?;
        self.raise(me, peer, through)
    }

    /// State machine safety: nobody takes another entry for committed than anybody else.
    fn raise(&mut self, me: Member, peer: &Peer, through: Index) -> Result<(), Broken> {
        rule(through >= peer.committed, "a commit is never taken back")?;
        let log = peer.mind.log.prefix(through);
        let known = self.committed.len().min(through);
        rule(log.common(&self.committed) >= known, "one history is committed")?;
        if through > self.committed.len() {
            self.committed = log;
        }
        self.peer(me).committed = through;
        Ok(())
    }

    fn say(&mut self, me: Member, peer: &Peer, fact: Fact) -> Result<(), Broken> {
        let disk = &peer.disk;
        let keeps = |of: Term, vote| disk.term > of || disk.term == of && disk.vote == Some(vote);
        match fact {
            Fact::Welcomes { candidate, term } => {
                rule(term > disk.term, "a term that has begun is not asked about")?;
                self.welcomed.insert((term, candidate, me));
            }
            Fact::Asks { term, last } => {
                rule(keeps(term, me), "who asks for votes has its own on the disk")?;
                self.asked.insert((term, me), last);
            }
            Fact::Grants { candidate, term } => {
                rule(keeps(term, candidate), "a vote is on the disk before it is given")?;
                self.granted.insert((term, candidate, me));
            }
            Fact::Holds { term, through } => {
                let led = self.led.get(&term).ok_or("nobody leads this term")?;
                let has = disk.log.common(&led.log);
                rule(through <= has, "what is acknowledged is on the disk and the leader's")?;
                let held = self.held.entry((term, me)).or_default();
                *held = through.max(*held);
            }
            Fact::Calls { member, term } => {
                let leads = self.led.get(&term).is_some_and(|led| led.member == me);
                rule(leads, "a leader calls its successor")?;
                self.called.insert((term, member));
            }
            Fact::Claims { member } => {
                rule(member == me, "nobody speaks for another, nor for a disk that is gone")?;
            }
            Fact::Speaks { .. } => {}
        }
        let Some(term) = fact.spoken_in() else { return Ok(()) };
        rule(term <= disk.term, "nothing is said in a term that the disk does not have")?;
        self.newest = self.newest.max(term);
        Ok(())
    }
}
