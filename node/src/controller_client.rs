//! The way to the controller, wherever it is: requests are asked of the node that leads, and asked
//! again while there is none.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::controller::interface::{Input, Outcome, Problem, ProblemKind};
use quorate_core::id::RequestId;
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_core::time::Instant;
use quorate_net::clock::Clock;

use crate::driver::ask::{ShardClient, Stopped, Withdrawal};

/// The wait before asking again doubles from here,
const AGAIN_MIN: Duration = Duration::from_millis(2);
/// to here.
const AGAIN_MAX: Duration = Duration::from_millis(200);

/// How long to ask on behalf of a client that says nothing of its patience; Kafka's clients give a
/// request 30 seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the controller. Clones are the same.
#[derive(Clone)]
pub(crate) struct ControllerClient {
    here: ShardClient,
    clock: Arc<dyn Clock>,
}

impl ControllerClient {
    /// `here` is the shard where this node's controller would be.
    pub(crate) fn new(here: ShardClient, clock: Arc<dyn Clock>) -> Self {
        Self { here, clock }
    }

    /// Asks until there is an answer other than that there is no controller, or until `until`; once
    /// at least. A request that may have been carried out is repeated only if that does no harm
    /// (`Input::is_repeatable`); otherwise, and at the end, the answer is a refusal of the kind
    /// `NotAvailable` or `Loading`. What was decided stands in the log when it is answered; this
    /// node may not have applied it yet.
    ///
    /// # Errors
    ///
    /// This node stops.
    pub(crate) async fn ask(
        &self,
        until: Instant,
        input: impl Fn(RequestId) -> Input,
    ) -> Result<Outcome, Stopped> {
        let mut wait = AGAIN_MIN;
        loop {
            let input = |request| input(request);
            let is_repeatable = input(RequestId(0)).is_repeatable();
            let outcome = self.ask_here(input).await?;
            let is_again = match &outcome {
                Outcome::Refused(Problem { kind: ProblemKind::Loading, .. }) => true,
                Outcome::Refused(Problem { kind: ProblemKind::NotAvailable, .. }) => is_repeatable,
                _ => false,
            };
            let next = self.clock.now().monotonic + wait;
            if !is_again || next > until {
                return Ok(outcome);
            }
            self.clock.sleep_until(next).await;
            wait = (wait * 2).min(AGAIN_MAX);
        }
    }

    async fn ask_here(&self, input: impl Fn(RequestId) -> Input) -> Result<Outcome, Stopped> {
        let input = |request| ShardInput::Controller(input(request));
        match self.here.ask(Withdrawal::Controller, input).await?.await? {
            ShardOutcome::Controller(outcome) => Ok(outcome),
            other => unreachable!("the controller answers as itself, not with {other:?}"),
        }
    }
}
