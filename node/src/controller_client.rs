//! The way to the controller, wherever it is: requests are asked of the node that leads, and asked
//! again while there is none.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use quorate_core::controller::interface::{Input, Outcome, Problem, ProblemKind};
use quorate_core::id::{NodeId, RequestId};
use quorate_core::quorum::interface as quorum;
use quorate_core::quorum::interface::{Question, Refusal};
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_core::time::Instant;
use quorate_net::clock::Clock;

use crate::driver::ask::{ShardClient, Stopped, Withdrawal};
use crate::peers::{NoAnswer, Peers};
use crate::quorum_cell::QuorumCell;

/// The wait before asking again doubles from here,
const AGAIN_MIN: Duration = Duration::from_millis(2);
/// to here.
const AGAIN_MAX: Duration = Duration::from_millis(200);

/// How long to ask on behalf of a client that says nothing of its patience; Kafka's clients give a
/// request 30 seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A request that may not be repeated is given at least so long.
const ATTEMPT_MIN: Duration = Duration::from_secs(5);
/// One that may be is asked again of another node after so long, and after twice as long each time:
/// where the disks are slow, each answer may come later than that, and none would ever be heard.
const ATTEMPT_FIRST: Duration = Duration::from_secs(1);

/// Asks the controller. Clones are the same.
#[derive(Clone)]
pub(crate) struct ControllerClient {
    node: NodeId,
    here: ShardClient,
    quorum: Arc<QuorumCell>,
    peers: Peers,
    clock: Arc<dyn Clock>,
}

/// What came of asking once.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Answered(Outcome),
    /// Nothing was done.
    Nobody,
    /// It may have been done.
    Unknown,
}

impl ControllerClient {
    /// `here` is the shard where node `node`'s own controller would be.
    pub(crate) fn new(
        node: NodeId,
        here: ShardClient,
        quorum: Arc<QuorumCell>,
        peers: Peers,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { node, here, quorum, peers, clock }
    }

    /// Asks whoever leads until there is an answer other than that nobody does, or until `until`;
    /// once at least. A request that may have been carried out is repeated only if that does no
    /// harm (`Input::is_repeatable`); otherwise, and at the end, the answer is a refusal of the
    /// kind `NotAvailable` or `Loading`. What was decided stands in the log when it is answered;
    /// this node may not have applied it yet.
    ///
    /// # Errors
    ///
    /// This node stops.
    pub(crate) async fn ask(
        &self,
        until: Instant,
        input: impl Fn(RequestId) -> Input,
    ) -> Result<Outcome, Stopped> {
        let is_repeatable = input(RequestId(0)).is_repeatable();
        let mut wait = AGAIN_MIN;
        let mut attempt = ATTEMPT_FIRST;
        loop {
            let repeatable_after = is_repeatable.then_some(attempt);
            let refused = match self.ask_once(until, repeatable_after, &input).await? {
                Asked::Answered(Outcome::Refused(problem)) => match problem.kind {
                    ProblemKind::Loading => Outcome::Refused(problem),
                    ProblemKind::NotAvailable if is_repeatable => Outcome::Refused(problem),
                    _ => return Ok(Outcome::Refused(problem)),
                },
                Asked::Answered(outcome) => return Ok(outcome),
                Asked::Nobody => not_available("no node leads the cluster at the moment"),
                Asked::Unknown if is_repeatable => {
                    attempt *= 2;
                    not_available("the controller did not answer")
                }
                Asked::Unknown => {
                    return Ok(not_available(
                        "the controller did not answer in time: what was asked may be done, or not",
                    ));
                }
            };
            let next = self.clock.now().monotonic + wait;
            if next > until {
                return Ok(refused);
            }
            self.pause(next).await?;
            wait = (wait * 2).min(AGAIN_MAX);
        }
    }

    /// Asks whoever leads the quorum, until there is an answer, or until `until`; once at least.
    /// A change that may have been made is not asked for again (`Refusal::Unknown`).
    ///
    /// # Errors
    ///
    /// This node stops.
    pub(crate) async fn ask_quorum(
        &self,
        until: Instant,
        question: Question,
    ) -> Result<quorum::Outcome, Stopped> {
        let mut wait = AGAIN_MIN;
        loop {
            match self.ask_quorum_once(until, question).await? {
                Ok(quorum::Outcome::Refused(Refusal::NotLeader { .. }))
                | Err(NoAnswer::NotAsked) => {}
                Ok(outcome) => return Ok(outcome),
                Err(NoAnswer::Unknown) if question == Question::Describe => {}
                Err(NoAnswer::Unknown) => return Ok(quorum::Outcome::Refused(Refusal::Unknown)),
            }
            let next = self.clock.now().monotonic + wait;
            if next > until {
                let leader = self.quorum.state().leader(self.node);
                return Ok(quorum::Outcome::Refused(Refusal::NotLeader { leader }));
            }
            self.pause(next).await?;
            wait = (wait * 2).min(AGAIN_MAX);
        }
    }

    async fn ask_quorum_once(
        &self,
        until: Instant,
        question: Question,
    ) -> Result<Result<quorum::Outcome, NoAnswer>, Stopped> {
        let Some(leader) = self.quorum.state().leader(self.node) else {
            return Ok(Err(NoAnswer::NotAsked));
        };
        let answered = async {
            if leader != self.node {
                return Ok(self.peers.ask_quorum(leader, question).await);
            }
            let input = |request| ShardInput::Quorum(question.input(request));
            match self.here.ask(Withdrawal::Never, input).await?.await? {
                ShardOutcome::Quorum(outcome) => Ok(Ok(outcome)),
                other => unreachable!("the quorum answers as itself, not with {other:?}"),
            }
        };
        let ends = until.max(self.clock.now().monotonic + AGAIN_MAX);
        let answer = match select(Box::pin(answered), self.clock.sleep_until(ends)).await {
            Either::Left((answer, _)) => answer?,
            Either::Right(_) => Err(NoAnswer::Unknown),
        };
        Ok(answer.and_then(|outcome| {
            let is_answer = question.is_answered_by(&outcome);
            is_answer.then_some(outcome).ok_or(NoAnswer::Unknown)
        }))
    }

    /// Until `next`, or until somebody else leads.
    async fn pause(&self, next: Instant) -> Result<(), Stopped> {
        let before = self.quorum.state();
        let changed = self
            .quorum
            .until(|state| (state != before && state.leader(self.node).is_some()).then_some(()));
        let _ = select(Box::pin(changed), self.clock.sleep_until(next)).await;
        if self.here.is_stopped() { Err(Stopped) } else { Ok(()) }
    }

    /// A request that may be repeated is to be repeated after `repeatable_after`.
    async fn ask_once(
        &self,
        until: Instant,
        repeatable_after: Option<Duration>,
        input: &impl Fn(RequestId) -> Input,
    ) -> Result<Asked, Stopped> {
        let now = self.clock.now().monotonic;
        match self.quorum.state().leader(self.node) {
            None => Ok(Asked::Nobody),
            Some(leader) if leader == self.node => {
                // Nothing is lost on the way, and who resigns refuses what it has not answered:
                // asked again, it would only begin anew at the end of the disk's queue.
                let least = repeatable_after.map_or(ATTEMPT_MIN, |_| AGAIN_MAX);
                let ends = until.max(now + least);
                match select(Box::pin(self.ask_here(input)), self.clock.sleep_until(ends)).await {
                    Either::Left((outcome, _)) => Ok(Asked::Answered(outcome?)),
                    Either::Right(_) => Ok(Asked::Unknown),
                }
            }
            Some(leader) => {
                let ends = match repeatable_after {
                    Some(after) => until.min(now + after).max(now + AGAIN_MAX),
                    None => until.max(now + ATTEMPT_MIN),
                };
                // Whoever leads by now is asked instead, if that does no harm.
                let moved = self.quorum.until(|state| {
                    let other = state.leader(self.node).is_some_and(|other| other != leader);
                    (repeatable_after.is_some() && other).then_some(())
                });
                let ended = select(Box::pin(moved), self.clock.sleep_until(ends));
                let input = input(RequestId(0));
                let asked = Box::pin(self.peers.ask(leader, &input));
                Ok(match select(asked, ended).await {
                    Either::Left((answer, _)) => heard(leader, &input, answer),
                    Either::Right(_) => Asked::Unknown,
                })
            }
        }
    }

    async fn ask_here(&self, input: &impl Fn(RequestId) -> Input) -> Result<Outcome, Stopped> {
        let input = |request| ShardInput::Controller(input(request));
        match self.here.ask(Withdrawal::Controller, input).await?.await? {
            ShardOutcome::Controller(outcome) => Ok(outcome),
            other => unreachable!("the controller answers as itself, not with {other:?}"),
        }
    }
}

/// What node `leader` said to `input`.
fn heard(leader: NodeId, input: &Input, answer: Result<Outcome, NoAnswer>) -> Asked {
    match answer {
        Ok(outcome) if outcome.answers(input) => Asked::Answered(outcome),
        Ok(outcome) => {
            // Nobody who asked could make anything of it, and none may end for it.
            tracing::warn!(%leader, ?outcome, "the controller answers something else");
            Asked::Unknown
        }
        Err(NoAnswer::NotAsked) => Asked::Nobody,
        Err(NoAnswer::Unknown) => Asked::Unknown,
    }
}

fn not_available(message: &str) -> Outcome {
    let kind = ProblemKind::NotAvailable;
    Outcome::Refused(Problem { kind, message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_something_else_is_none() {
        let input = Input::DescribeNodes { request: RequestId(1) };
        let heard = |answer| heard(NodeId(2), &input, answer);
        let nodes = Outcome::Nodes(Vec::new());
        assert_eq!(heard(Ok(nodes.clone())), Asked::Answered(nodes));
        let refused = not_available("not now");
        assert_eq!(heard(Ok(refused.clone())), Asked::Answered(refused));
        assert_eq!(heard(Ok(Outcome::DutySet)), Asked::Unknown, "and not the end of who asked");
        assert_eq!(heard(Err(NoAnswer::NotAsked)), Asked::Nobody);
        assert_eq!(heard(Err(NoAnswer::Unknown)), Asked::Unknown);
    }
}
