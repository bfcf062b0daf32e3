//! The way to the controller in the world of cores: requests are asked of the node that leads, and
//! asked again while there is none. A thin version of the node's own client of the controller.

use std::time::Duration;

use quorate_core::controller::interface::{Input, Outcome, Problem, ProblemKind};
use quorate_core::id::{PartitionId, RequestId};
use quorate_core::partition::interface::InSyncChange;
use quorate_core::quorum::interface::{ClusterId, Role};
use quorate_core::shard::interface::Input as ShardInput;

use super::node::{Waiting, place_of};
use super::{Cluster, Event, Payload};
use crate::trace::{self, Mark};

/// The wait before asking again doubles from here,
const AGAIN_MIN: Duration = Duration::from_millis(2);
/// to here.
const AGAIN_MAX: Duration = Duration::from_millis(200);
/// A request that may not be repeated is given at least so long.
const ATTEMPT_MIN: Duration = Duration::from_secs(5);
/// One that may be is asked again after so long.
const ATTEMPT_MAX: Duration = Duration::from_secs(1);

/// What a request is for.
pub(super) enum Purpose {
    Register,
    Beat,
    Propose(Vec<(PartitionId, InSyncChange)>),
    ProducerIds,
    /// Of an operator: nothing waits for the answer.
    Operate,
    /// Of an operator who waits for it.
    Act {
        act: u64,
        turn: u64,
    },
}

/// A request to the controller that waits for its answer.
pub(super) struct Ask {
    pub(super) purpose: Purpose,
    input: Input,
    until: Duration,
    wait: Duration,
    turn: u64,
    is_pausing: bool,
}

impl Cluster {
    /// Asks whoever leads until there is an answer other than that nobody does, or until so much
    /// time has passed.
    pub(super) fn ask(&mut self, n: usize, purpose: Purpose, patience: Duration, input: Input) {
        self.next_ask += 1;
        let id = self.next_ask;
        let until = self.agenda.now + patience;
        let ask = Ask { purpose, input, until, wait: AGAIN_MIN, turn: 0, is_pausing: false };
        self.nodes[n].asks.insert(id, ask);
        self.ask_once(n, id);
    }

    fn ask_once(&mut self, n: usize, id: u64) {
        self.next_ask += 1;
        let turn = self.next_ask;
        let (life, leader, now) = (self.nodes[n].life, self.nodes[n].leader(), self.agenda.now);
        let Some(ask) = self.nodes[n].asks.get_mut(&id) else { return };
        (ask.turn, ask.is_pausing) = (turn, false);
        let ends = if ask.input.is_repeatable() {
            ask.until.min(now + ATTEMPT_MAX).max(now + AGAIN_MAX)
        } else {
            ask.until.max(now + ATTEMPT_MIN)
        };
        let input = ask.input.clone();
        let Some(leader) = leader else {
            self.pause_ask(n, id, not_available());
            return;
        };
        self.agenda.at(ends, Event::AskDue { n, life, ask: id, turn });
        if leader == self.nodes[n].id {
            let request = self.nodes[n].next_request(Waiting::Ask { ask: id, turn });
            self.tell(n, ShardInput::Controller(input.with_request(request)));
        } else {
            let input = input.with_request(RequestId(0));
            self.send(n, place_of(leader), Payload::Ask { ask: id, turn, input });
        }
    }

    /// Asks again a little later, or gives up with `refused`.
    fn pause_ask(&mut self, n: usize, id: u64, refused: Outcome) {
        self.next_ask += 1;
        let turn = self.next_ask;
        let life = self.nodes[n].life;
        let Some(ask) = self.nodes[n].asks.get_mut(&id) else { return };
        let next = self.agenda.now + ask.wait;
        if next > ask.until {
            self.finish_ask(n, id, refused);
            return;
        }
        (ask.turn, ask.is_pausing) = (turn, true);
        ask.wait = (ask.wait * 2).min(AGAIN_MAX);
        self.agenda.at(next, Event::AskDue { n, life, ask: id, turn });
    }

    /// A wait is over: for an answer, or before asking again.
    pub(super) fn on_ask_due(&mut self, n: usize, id: u64, turn: u64) {
        let Some(ask) = self.nodes[n].asks.get(&id).filter(|ask| ask.turn == turn) else { return };
        if ask.is_pausing {
            self.ask_once(n, id);
        } else if ask.input.is_repeatable() {
            self.pause_ask(n, id, not_available());
        } else {
            self.finish_ask(n, id, not_available());
        }
    }

    /// Another node asks the controller, which it believes to be here.
    pub(super) fn on_asked(
        &mut self,
        n: usize,
        peer: usize,
        life: u32,
        ask: u64,
        turn: u64,
        input: Input,
    ) {
        if self.nodes[n].leader() != Some(self.nodes[n].id) {
            self.send(n, peer, Payload::Told { ask, turn, outcome: None });
            return;
        }
        let request = self.nodes[n].next_request(Waiting::Peer { peer, life, ask, turn });
        self.tell(n, ShardInput::Controller(input.with_request(request)));
    }

    /// What came of a request. `None`: nothing was done, since the controller was not there.
    pub(super) fn on_told(&mut self, n: usize, id: u64, turn: u64, outcome: Option<Outcome>) {
        let Some(ask) = self.nodes[n].asks.get(&id) else { return };
        if ask.turn != turn || ask.is_pausing {
            return;
        }
        let is_repeatable = ask.input.is_repeatable();
        match outcome {
            None => self.pause_ask(n, id, not_available()),
            Some(Outcome::Refused(problem)) => match problem.kind {
                ProblemKind::Loading => self.pause_ask(n, id, Outcome::Refused(problem)),
                ProblemKind::NotAvailable if is_repeatable => {
                    self.pause_ask(n, id, Outcome::Refused(problem));
                }
                _ => self.finish_ask(n, id, Outcome::Refused(problem)),
            },
            Some(outcome) => self.finish_ask(n, id, outcome),
        }
    }

    fn finish_ask(&mut self, n: usize, id: u64, outcome: Outcome) {
        if let Some(ask) = self.nodes[n].asks.remove(&id) {
            self.on_answered(n, ask.purpose, outcome);
        }
    }

    /// The seat says what this node is in the quorum.
    pub(super) fn on_role(&mut self, n: usize, role: Role, cluster: Option<ClusterId>) {
        let before = self.nodes[n].leader();
        let number = match role {
            Role::Leading { term } | Role::Following { term, .. } => term.0,
        };
        let leads = matches!(role, Role::Leading { .. });
        let mark = if leads { Mark::Node } else { Mark::Step };
        let numbers = [number, u64::from(leads), 0];
        let name = self.nodes[n].name;
        trace::event(self.agenda.now, mark, name, numbers, || format!("in the quorum: {role:?}"));
        let node = &mut self.nodes[n];
        (node.role, node.cluster) = (role, cluster);
        let leader = node.leader();
        self.wants_to_join(n);
        if leader == before || leader.is_none() {
            return;
        }
        // Whoever waits for somebody to lead need not wait any longer.
        let pausing = self.nodes[n].asks.iter().filter(|(_, ask)| ask.is_pausing);
        for id in pausing.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.ask_once(n, id);
        }
        if leads {
            self.tell_gone(n);
        }
    }
}

fn not_available() -> Outcome {
    let kind = ProblemKind::NotAvailable;
    Outcome::Refused(Problem { kind, message: "nobody leads, or it did not answer".to_owned() })
}
