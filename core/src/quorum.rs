//! The metadata quorum: Raft over entries it does not look into. Its state, its inputs in their
//! order, its status line.

pub mod configuration;
pub mod identity;
pub mod interface;
pub mod limits;
pub mod log;
pub mod message;
mod opaque;
pub mod recovered;

use self::interface::{
    Configuration, Effect, Index, Input, Limits, Outcome, Recovered, Refusal, Setup, Status,
};
use crate::id::RequestId;
use crate::machine::Machine;
use crate::time::{Instant, Now};

/// One member of the quorum, voting or observing.
#[derive(Clone, Debug)]
pub struct Quorum {
    setup: Setup,
    limits: Limits,
    disk: Recovered,
    seed: u64,
}

impl Quorum {
    /// A member with what its disk remembers. `limits` and `recovered` pass their `check`, or
    /// this panics. `seed` spreads elections in time and names a cluster that is founded here.
    pub fn new(setup: Setup, recovered: Recovered, limits: Limits, seed: u64) -> Self {
        if let Err(reason) = limits.check() {
            panic!("{reason}");
        }
        recovered.check();
        Self { setup, limits, disk: recovered, seed }
    }

    /// What an operator sees from here.
    pub fn status(&self) -> Status {
        let _ = (&self.limits, self.seed);
        Status {
            me: self.setup.me,
            term: self.disk.hard.term,
            leader: None,
            is_leading: false,
            committed: Index::ZERO,
            last: self.disk.log.last(),
            snapshot: self.disk.snapshot.position.index,
            configuration: self.configuration().cloned().unwrap_or_default(),
            replicas: Vec::new(),
            founding: None,
        }
    }

    /// Who votes, as far as this node knows.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.disk.log.configuration()
    }
}

impl Machine for Quorum {
    type Input = Input;
    type Effect = Effect;

    const TICK: Input = Input::Tick;

    fn step(&mut self, _now: Now, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Propose { request, .. }
            | Input::Read { request }
            | Input::Change { request, .. }
            | Input::Transfer { request, .. } => refuse(request, effects),
            Input::Resign
            | Input::SnapshotTaken { .. }
            | Input::Cancelled { .. }
            | Input::Received(_)
            | Input::Persisted { .. }
            | Input::PersistFailed { .. }
            | Input::Tick => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn check(&self) {
        self.disk.check();
    }
}

fn refuse(request: RequestId, effects: &mut Vec<Effect>) {
    let refusal = Refusal::NotLeader { leader: None };
    effects.push(Effect::Reply { request, outcome: Outcome::Refused(refusal) });
}
