//! A replica in one line, for scripts and whoever looks for a bug.

use std::fmt;

use super::role::Role;
use super::{Replica, State};
use crate::id::Offset;

/// `n1@e5 leader(n1:2) end=2 durable=2 hw=2`, and what else is not as usual.
impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}@e{} ", self.id, self.leader_epoch())?;
        match (self.assignment.leader, &self.role) {
            (Some(leader), _) if leader == self.id => f.write_str("leader")?,
            (Some(leader), Role::Following(following)) => {
                write!(f, "follower(n{leader} {})", following.stage)?;
            }
            (Some(leader), _) => write!(f, "follower(n{leader})")?,
            (None, _) => f.write_str("leaderless")?,
        }
        if self.in_sync.count() > 1 && matches!(self.role, Role::Leading(_)) {
            let ends = self.in_sync.ends().filter(|(id, _)| *id != self.id);
            let ends = ends.map(|(id, end)| format!("n{id}:{end}")).collect::<Vec<_>>();
            write!(f, "({})", ends.join(" "))?;
        }
        let (end, durable, high) = (self.log.end, self.durable_end, self.high_watermark);
        write!(f, " end={end} durable={durable} hw={high}")?;
        let stable = self.last_stable();
        if stable < high {
            write!(f, " stable={stable}")?;
        }
        if self.log.log_start > Offset::ZERO {
            write!(f, " start={}", self.log.log_start)?;
        }
        if self.waiting.len() > 0 {
            write!(f, " waiting={}", self.waiting.len())?;
        }
        match self.state {
            State::Open => Ok(()),
            State::Closing => f.write_str(" closing"),
            State::Halted => f.write_str(" halted"),
        }
    }
}
