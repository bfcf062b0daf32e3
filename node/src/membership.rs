//! This node as a member of its cluster: it registers, says that it is there, brings its leaders'
//! wishes before the controller, and asks before it leaves.

pub(crate) mod proposals;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use quorate_core::controller::interface::{
    Heartbeat, Input, Outcome, Problem, ProblemKind, RegisterNode, Standing,
};
use quorate_core::id::{NodeEpoch, NodeId, RequestId};
use quorate_core::metadata::Wish;
use quorate_core::quorum;
use quorate_core::reached;
use quorate_core::shard::interface::Input as ShardInput;
use quorate_core::time::Instant;
use quorate_net::clock::Clock;
use tokio::sync::Notify;

use crate::catalog::news::News;
use crate::catalog::{Catalog, State};
use crate::controller_client::{ControllerClient, PATIENCE};
use crate::driver::Command;
use crate::driver::ask::{ShardClient, Stopped, Withdrawal};
use crate::halt::Halt;
use crate::quorum_cell::QuorumCell;

/// Heartbeats in one session: a few may be lost.
const BEATS: u32 = 5;
/// A node that wishes to stop asks so often whether it may.
const STOPPING_INTERVAL: Duration = Duration::from_millis(20);
/// How long another node is given to take over the quorum's leadership at a stop.
const TRANSFER_TIME: Duration = Duration::from_secs(1);
/// The wait before a refused registration is tried again.
const AGAIN: Duration = Duration::from_millis(50);

/// A node's membership.
pub(crate) struct Membership {
    /// What every registration of this life says.
    pub(crate) registration: RegisterNode,
    /// `None` where nodes are never fenced: nobody is told that this one is there.
    pub(crate) session_timeout: Option<Duration>,
    pub(crate) controller: ControllerClient,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) news: Arc<News>,
    pub(crate) quorum: Arc<QuorumCell>,
    pub(crate) shards: Vec<ShardClient>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) said: Said,
}

/// What this node and the controller have said to one another.
#[derive(Default)]
pub(crate) struct Said {
    told: Mutex<Told>,
    /// There is something new to say.
    wake: Notify,
    /// The controller has said something.
    heard: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    epoch: Option<NodeEpoch>,
    wish: Wish,
    /// As the controller said last.
    standing: Option<Standing>,
    is_over: bool,
}

/// Why a node does not become a member.
pub(crate) enum NoMember {
    Stopped,
    Refused(Problem),
}

impl From<Stopped> for NoMember {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl Membership {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.said.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self) -> NodeId {
        self.registration.node
    }

    /// Which life of the node this is, once it is registered.
    fn epoch(&self) -> Option<NodeEpoch> {
        self.told().epoch
    }

    /// As the controller said last.
    fn standing(&self) -> Option<Standing> {
        self.told().standing
    }

    /// Registers, waits until this node has applied that, and tells its machines.
    pub(crate) async fn join(&self) -> Result<(), NoMember> {
        // The node that had the id before may be gone, and counts as there for a session.
        let session = self.session_timeout.unwrap_or_default();
        let patience = session * 2;
        let mut give_up = self.clock.now().monotonic + patience;
        let epoch = loop {
            let asked = self.clock.now().monotonic;
            match self.register().await? {
                Ok(epoch) => break epoch,
                Err(problem) if problem.kind == ProblemKind::DuplicateNode => {
                    let now = self.clock.now().monotonic;
                    if now.saturating_since(asked) > session / 2 {
                        // A controller that was elected meanwhile counts the session anew.
                        reached!("refused-by-a-new-controller");
                        give_up = now + patience;
                    }
                    if now >= give_up {
                        return Err(NoMember::Refused(problem));
                    }
                    tracing::warn!(problem.message, "the registration is tried again");
                    self.clock.sleep(AGAIN.max(patience / 8)).await;
                }
                Err(problem) => return Err(NoMember::Refused(problem)),
            }
        };
        self.adopt(epoch).await?;
        Ok(())
    }

    /// Once the logs are open: if one is rotten that nobody knew of, this node registers anew in
    /// the same life, so that it counts as keeping nothing of that.
    pub(crate) async fn tell_rot(&self) -> Result<(), NoMember> {
        let offline = self.catalog.read().offline();
        let is_news = offline.iter().any(|found| !self.registration.rotten.contains(found));
        if !is_news || self.session_timeout.is_none() {
            return Ok(());
        }
        let epoch = self.register().await?.map_err(NoMember::Refused)?;
        Ok(self.adopt(epoch).await?)
    }

    /// The epoch of this life, or why the cluster does not want it.
    async fn register(&self) -> Result<Result<NodeEpoch, Problem>, Stopped> {
        let mut rotten = self.registration.rotten.clone();
        rotten.extend(self.catalog.read().offline());
        let registration = RegisterNode { rotten, ..self.registration.clone() };
        let input = |request| Input::RegisterNode(RegisterNode { request, ..registration.clone() });
        loop {
            let until = self.clock.now().monotonic + PATIENCE;
            match self.controller.ask(until, input).await? {
                Outcome::NodeRegistered { node_epoch } => return Ok(Ok(node_epoch)),
                Outcome::Refused(problem) => match problem.kind {
                    ProblemKind::Loading | ProblemKind::NotAvailable | ProblemKind::Busy => {
                        self.clock.sleep(AGAIN).await;
                    }
                    _ => return Ok(Err(problem)),
                },
                other => unreachable!("a node is registered, not {other:?}"),
            }
        }
    }

    /// Nobody acts in a life whose registration, and all that was decided before, this node has
    /// not applied.
    async fn adopt(&self, epoch: NodeEpoch) -> Result<(), Stopped> {
        self.news.registered(epoch);
        self.catalog.until(|state| state.image.next_node_epoch() > epoch).await;
        self.told().epoch = Some(epoch);
        for shard in &self.shards {
            shard.tell(Command::Tell(ShardInput::Registered { node_epoch: epoch })).await?;
        }
        Ok(())
    }

    /// Says that this node is there, as long as it is.
    pub(crate) async fn keep(&self, halt: &Halt) {
        let Some(timeout) = self.session_timeout else { return };
        loop {
            let began = self.clock.now().monotonic;
            let is_stopping = self.told().wish == Wish::Stop;
            let interval = if is_stopping { STOPPING_INTERVAL } else { timeout / BEATS };
            match self.beat(interval).await {
                Ok(Ok(())) => {}
                Ok(Err(problem)) => return halt.halt(&problem.message),
                Err(Stopped) => return,
            }
            if self.told().is_over {
                return;
            }
            let next = self.clock.sleep_until(began + interval);
            let _ = select(Box::pin(self.said.wake.notified()), next).await;
        }
    }

    /// One heartbeat; registers anew if the controller does not know this node. The problem is
    /// that another process lives in its place.
    async fn beat(&self, interval: Duration) -> Result<Result<(), Problem>, Stopped> {
        let Told { epoch: Some(node_epoch), wish, .. } = *self.told() else { return Ok(Ok(())) };
        let node = self.node();
        let applied = self.catalog.read().image.next_node_epoch();
        let input =
            |request| Input::Heartbeat(Heartbeat { request, node, node_epoch, applied, wish });
        let until = self.clock.now().monotonic + interval.max(AGAIN);
        match self.controller.ask(until, input).await? {
            Outcome::Heartbeat(standing) => {
                let before = self.told().standing.replace(standing);
                if before.is_none_or(|before| before.fenced != standing.fenced) {
                    tracing::info!(%node, standing.fenced, "how this node stands");
                }
                self.said.heard.notify_waiters();
                Ok(Ok(()))
            }
            Outcome::Refused(problem) => self.on_refused(node_epoch, problem).await,
            other => unreachable!("a heartbeat is answered with the standing, not {other:?}"),
        }
    }

    async fn on_refused(
        &self,
        node_epoch: NodeEpoch,
        problem: Problem,
    ) -> Result<Result<(), Problem>, Stopped> {
        let Problem { kind, message } = &problem;
        match kind {
            // It was unregistered while it lives.
            ProblemKind::UnknownNode => {}
            ProblemKind::StaleNodeEpoch if !self.is_replaced(node_epoch) => {}
            ProblemKind::StaleNodeEpoch => return Ok(Err(problem)),
            _ => {
                tracing::debug!(message, "a heartbeat was not taken");
                return Ok(Ok(()));
            }
        }
        tracing::warn!(message, "this node registers again");
        match self.register().await? {
            Ok(epoch) => {
                self.adopt(epoch).await?;
                Ok(Ok(()))
            }
            Err(problem) => {
                tracing::warn!(problem.message, "the registration was refused");
                Ok(Ok(()))
            }
        }
    }

    /// Whether this node has applied that another process registered in its place.
    fn is_replaced(&self, epoch: NodeEpoch) -> bool {
        let state = self.catalog.read();
        state.image.node(self.node()).is_some_and(|known| {
            known.epoch > epoch && known.incarnation != self.registration.incarnation
        })
    }

    /// Lets others take over what this node leads, until `until`; whether it may stop now. Nobody
    /// is asked where there is nobody else, and no longer than two sessions without a controller.
    pub(crate) async fn retire(&self, until: Instant) -> bool {
        let Some(timeout) = self.session_timeout.filter(|_| self.has_others()) else {
            return true;
        };
        self.told().wish = Wish::Stop;
        self.said.wake.notify_one();
        let mut heard_until = self.clock.now().monotonic + timeout * 2;
        let may_stop = loop {
            let heard = Box::pin(self.said.heard.notified());
            self.told().standing = None;
            let silent_at = heard_until.min(until);
            match select(heard, self.clock.sleep_until(silent_at)).await {
                Either::Left(_) => match self.standing() {
                    Some(standing) if standing.may_stop => break true,
                    Some(_) => heard_until = self.clock.now().monotonic + timeout * 2,
                    None => {}
                },
                Either::Right(_) => break false,
            }
        };
        self.told().is_over = true;
        self.said.wake.notify_one();
        self.hand_over(until).await;
        may_stop
    }

    fn has_others(&self) -> bool {
        let is_other = |state: &State| state.image.nodes().any(|other| other.id != self.node());
        is_other(&self.catalog.read())
    }

    /// If this node leads the quorum, another one may at once.
    async fn hand_over(&self, until: Instant) {
        if self.quorum.state().leader(self.node()) != Some(self.node()) {
            return;
        }
        let input = |request: RequestId| {
            ShardInput::Quorum(quorum::interface::Input::Transfer { request, to: None })
        };
        let until = until.min(self.clock.now().monotonic + TRANSFER_TIME);
        let transfer = Box::pin(async {
            if let Ok(asked) = self.shards[0].ask(Withdrawal::Never, input).await {
                // Whatever came of it: the others elect one of them anyway.
                let _ = asked.await;
            }
        });
        let _ = select(transfer, self.clock.sleep_until(until)).await;
    }
}
