//! What must always hold, what an operator sees, and the status line.

use std::fmt;

use super::interface::{Founding, Index, ReplicaStatus, Status};
use super::{Quorum, State};
use crate::time::Now;

impl Quorum {
    /// What an operator sees from here.
    pub fn status(&self, now: Now) -> Status {
        let heard = |at| now.monotonic.saturating_since(at) < self.limits.election_timeout;
        let configuration = self.configuration().cloned().unwrap_or_default();
        let mut replicas = Vec::new();
        if let State::Leader(leader) = &self.state {
            replicas.push(ReplicaStatus {
                member: self.setup.me,
                is_voter: self.is_voter(),
                matched: self.disk.durable_end(),
                is_heard: true,
            });
            replicas.extend(leader.progress.iter().map(|(member, progress)| ReplicaStatus {
                member: *member,
                is_voter: configuration.is_voter(*member),
                matched: progress.matched,
                is_heard: heard(progress.heard_at),
            }));
        }
        Status {
            me: self.setup.me,
            term: self.hard.term,
            leader: self.leader(),
            is_leading: matches!(&self.state, State::Leader(leader) if self.is_in_charge(leader)),
            committed: self.committed,
            last: self.log.last(),
            snapshot: self.snapshot.position.index,
            configuration,
            replicas,
            founding: self.founding(),
        }
    }

    pub(super) fn check_all(&self) {
        self.log.check();
        let last = self.log.last();
        self.disk.check(last.index);
        assert!(last.term <= self.hard.term, "an entry of a term not heard of: {self}");
        assert!(self.delivered <= self.committed && self.committed <= last.index, "{self}");
        assert!(self.log.base().index <= self.snapshot.position.index, "{self}");
        assert!(self.log.has(self.snapshot.position), "{self}");
        assert!(self.following.verified <= last.index, "{self}");
        assert!(self.hard.cluster.is_some() || last.index == Index::ZERO, "{self}");
        assert!(self.disk.hard_state().is_some() || self.held.is_empty(), "{self}");
        // What was not delivered is here, or a snapshot is about to take its place.
        assert!(self.delivered >= self.log.base().index || self.disk.is_installing(), "{self}");
        if let State::Leader(leader) = &self.state {
            leader.progress.values().for_each(|progress| progress.check(last.index, &self.limits));
            let voters = self.other_voters();
            assert!(voters.iter().all(|voter| leader.progress.contains_key(voter)), "{self}");
            assert!(!leader.progress.contains_key(&self.setup.me), "{self}");
            assert!(leader.requests() <= self.limits.requests_max, "{self}");
            let waiting = leader.proposals.keys().next();
            assert!(waiting.is_none_or(|index| *index > self.delivered), "{self}");
            assert_eq!(leader.uncommitted_bytes, self.log.bytes_behind(self.committed), "{self}");
            assert!(self.following.leader.is_none(), "{self}");
        }
    }
}

/// `n1@t3 leader(n2:5 n3:4) last=6@3 durable=6 committed=5`, and what else is not as usual.
impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}@t{} ", self.setup.me.node, self.hard.term)?;
        match &self.state {
            _ if self.is_halted => f.write_str("halted")?,
            State::Leader(leader) => {
                let name = if self.is_in_charge(leader) { "leader" } else { "elected" };
                write!(f, "{name}(")?;
                for (place, (member, progress)) in leader.progress.iter().enumerate() {
                    let blank = if place > 0 { " " } else { "" };
                    write!(f, "{blank}n{}:{}", member.node, progress.matched)?;
                }
                f.write_str(")")?;
            }
            State::Candidate { granted } => write!(f, "candidate({})", granted.len())?,
            State::PreCandidate { granted } => write!(f, "canvasses({})", granted.len())?,
            State::Follower => match (self.leader(), self.founding()) {
                (Some(leader), _) => write!(f, "follower(n{leader})")?,
                (None, Some(Founding::WaitingFor(nodes))) => {
                    let nodes = nodes.iter().map(|node| format!("n{node}")).collect::<Vec<_>>();
                    write!(f, "founder(waits for {})", nodes.join(" "))?;
                }
                (None, Some(_)) => f.write_str("unfounded")?,
                (None, None) => f.write_str("follower")?,
            },
        }
        let (last, durable) = (self.log.last(), self.disk.durable_end());
        write!(f, " last={last} durable={durable} committed={}", self.committed)?;
        if self.delivered != self.committed {
            write!(f, " delivered={}", self.delivered)?;
        }
        if self.snapshot.position.index > Index::ZERO {
            write!(f, " snapshot={}", self.snapshot.position)?;
        }
        Ok(())
    }
}
