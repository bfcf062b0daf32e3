//! What all clients of transactions have in common: how they rest, and how badly the network treats
//! them.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use quorate_core::reached;

use super::super::conversations::Seeker;
use super::{Ask, Reply};
use crate::plan::Plan;
use crate::plan::transactions::Transactions;

/// Before a client that was refused tries again.
pub(super) const AGAIN: Duration = Duration::from_millis(50);
/// What a client writes as fast as it can; then it takes its time.
const VALUES_AT_ONCE: u64 = 300;

pub(super) struct Actor {
    seeker: Seeker,
    pub(super) spec: Transactions,
    /// `partition.max.bytes`.
    pub(super) read_bytes: usize,
    /// Values that it has made.
    pub(super) values: u64,
    /// Whether answers to it are lost, and what it asks comes again.
    pub(super) is_ill_treated: bool,
}

impl Deref for Actor {
    type Target = Seeker;

    fn deref(&self) -> &Seeker {
        &self.seeker
    }
}

impl DerefMut for Actor {
    fn deref_mut(&mut self) -> &mut Seeker {
        &mut self.seeker
    }
}

impl Actor {
    /// `None` in a plan without transactions.
    pub(super) fn new(plan: &Plan, client: u32) -> Option<Self> {
        let spec = plan.transactions.clone()?;
        let seeker = Seeker::new(plan, client, "transactions");
        let read_bytes = plan.workload.read_bytes as usize;
        Some(Self { seeker, spec, read_bytes, values: 0, is_ill_treated: false })
    }

    pub(super) async fn rest(&mut self) {
        let pauses = self.spec.pause;
        let pause = self.chance.duration(pauses);
        // After the healing there is a deadline.
        let pause = if self.is_healed() { pause.min(AGAIN) } else { pause };
        // Many transactions follow at once, and not more than readers can take in.
        let pause = if self.values > VALUES_AT_ONCE { pause.max(AGAIN) } else { pause };
        self.pause(pause).await;
    }

    /// Draws whether a request is delivered again, and when.
    pub(super) fn draw_echo(&mut self) -> Option<Duration> {
        let (echo, after) = (self.spec.echo, self.spec.echo_after);
        let may = self.is_ill_treated && !self.is_healed();
        (may && self.chance.hit(echo)).then(|| self.chance.duration(after))
    }

    /// One attempt. `None`: nobody knows whether it was heard.
    pub(super) async fn ask(&mut self, n: usize, ask: Ask) -> Option<Reply> {
        let reply = self.at().ask(n, ask).await?;
        let deaf = self.spec.deaf;
        if self.is_ill_treated && !self.is_healed() && self.chance.hit(deaf) {
            reached!("an-answer-is-lost");
            return None;
        }
        Some(reply)
    }
}
