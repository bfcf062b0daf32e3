//! The door for other nodes: they are greeted, judged, and what they send goes to whom it is meant
//! for. A full shard makes its senders wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorate_core::controller::interface::{Input, Outcome, Problem, ProblemKind};
use quorate_core::id::NodeId;
use quorate_core::partition;
use quorate_core::quorum;
use quorate_core::quorum::interface::{Body, Input as QuorumInput, Question, Refusal};
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_net::peer::Channel;
use quorate_net::peer::frame::{Frame, PULSE};
use quorate_net::peer::inbound::{Inbound, NotAccepted};
use quorate_net::transport::{Listener, Stream};

use super::frames::{self, ERRAND, QUESTION, QUORUM, REPLICAS, REPLY, REQUEST, Reply};
use super::{Shared, links};
use crate::driver::Command;
use crate::driver::ask::{Stopped, Withdrawal};
use crate::driver::lane::shard_of;
use crate::transactions::Office;
use crate::transactions::errand::Errand;

/// After a failed accept the door stays shut for so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Until the node stops.
pub(super) async fn listen(shared: Arc<Shared>, mut listener: Box<dyn Listener>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.stop.told() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a peer's connection could not be accepted");
                shared.around.clock.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(guest) = Guest::enter(&open, shared.connections_max) else {
            tracing::warn!(%from, max = shared.connections_max, "one peer's connection too many");
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = shared.stop.told() => {}
                () = serve(&shared, stream) => {}
            }
            drop(guest);
        });
    }
}

/// Counts a connection as long as it lives.
struct Guest(Arc<AtomicUsize>);

impl Guest {
    fn enter(open: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let guest = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::SeqCst) < max).then_some(guest)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(shared: &Arc<Shared>, stream: Box<dyn Stream>) {
    let (around, limits) = (shared.around.clone(), shared.limits.clone());
    let known = |hello: &_| shared.known(hello);
    let inbound = match Inbound::accept(stream, around, limits, &shared.me(), known).await {
        Ok(inbound) => inbound,
        Err(NotAccepted::Refused(hello, refusal)) => {
            return shared.note_refusal(hello.node, &refusal);
        }
        Err(NotAccepted::Stranger(reason)) => {
            return tracing::info!(reason, "somebody who is no peer was turned away");
        }
    };
    let visit = shared.enter(&inbound.hello);
    let (node, channel) = (inbound.hello.node, inbound.hello.channel);
    match read(shared, inbound).await {
        Ok(()) => tracing::debug!(%node, ?channel, "the peer closed its connection"),
        Err(End::Stopped) => {}
        Err(End::Broken(reason)) => tracing::debug!(%node, ?channel, reason, "connection ended"),
        Err(End::Malformed(reason)) => {
            tracing::warn!(%node, ?channel, reason, "a peer sent what no node sends; closed");
        }
    }
    drop(visit);
}

/// Why nothing more is read.
enum End {
    Stopped,
    Broken(String),
    Malformed(String),
}

impl From<Stopped> for End {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

async fn read(shared: &Arc<Shared>, mut inbound: Inbound) -> Result<(), End> {
    let hello = inbound.hello.clone();
    if hello.channel == Channel::Data {
        links::connected(&shared.shards, hello.node).await?;
    }
    let served = Arc::new(AtomicUsize::new(0));
    let errands = Arc::new(AtomicUsize::new(0));
    while let Some(frame) = inbound.next().await.map_err(End::Broken)? {
        match (frame.kind, hello.channel) {
            (PULSE, _) => {}
            (QUORUM, Channel::Control) => {
                let message = frames::parse_quorum(&frame).map_err(End::Malformed)?;
                let from = message.from;
                if (from.node, from.directory.0) != (hello.node, hello.directory) {
                    return Err(End::Malformed(format!("a message in the name of {from}")));
                }
                if let Body::Leads { leader, address } = &message.body {
                    shared.hear_of(leader.node, address);
                }
                let input = ShardInput::Quorum(QuorumInput::Received(message));
                shared.shards[0].tell(Command::Tell(input)).await?;
            }
            (REPLICAS, Channel::Data) => deliver(shared, hello.node, frame).await?,
            (REQUEST, Channel::Control) => {
                let (id, input) = frames::parse_request(&frame).map_err(End::Malformed)?;
                on_request(shared, hello.node, id, input, &served);
            }
            (QUESTION, Channel::Control) => {
                let (id, question) = frames::parse_question(&frame).map_err(End::Malformed)?;
                on_question(shared, hello.node, id, question, &served);
            }
            (ERRAND, Channel::Control) => {
                let (id, errand) = frames::parse_errand(&frame).map_err(End::Malformed)?;
                on_errand(shared, hello.node, id, errand, &errands);
            }
            (REPLY, Channel::Control) => {
                let (id, reply) = frames::parse_reply(&frame).map_err(End::Malformed)?;
                shared.calls.answer(hello.node, id, reply);
            }
            (kind, channel) => {
                return Err(End::Malformed(format!("a frame of kind {kind} on {channel:?}")));
            }
        }
    }
    Ok(())
}

async fn deliver(shared: &Shared, from: NodeId, frame: Frame) -> Result<(), End> {
    for (partition, message) in frames::parse_replicas(frame).map_err(End::Malformed)? {
        let input = partition::interface::Input::Message { from, message };
        let shard = &shared.shards[shard_of(partition, shared.shards.len())];
        shard.tell(Command::Tell(ShardInput::Partition { partition, input })).await?;
    }
    Ok(())
}

/// A question for the quorum, answered as `on_request` does.
fn on_question(
    shared: &Arc<Shared>,
    from: NodeId,
    id: u64,
    question: Question,
    served: &Arc<AtomicUsize>,
) {
    let busy = || Reply::Quorum(quorum::interface::Outcome::Refused(Refusal::Busy));
    let named = move |request| ShardInput::Quorum(question.input(request));
    let shard = shared.shards[0].clone();
    let answer = async move {
        match shard.ask(Withdrawal::Never, named).await?.await? {
            ShardOutcome::Quorum(outcome) => Ok(Reply::Quorum(outcome)),
            other => unreachable!("the quorum answers as itself, not with {other:?}"),
        }
    };
    serve_call(shared, from, id, served, busy, answer);
}

/// For the sake of a transaction: asked of whichever machine it names, which knows whether it
/// leads.
fn on_errand(
    shared: &Arc<Shared>,
    from: NodeId,
    id: u64,
    errand: Errand,
    served: &Arc<AtomicUsize>,
) {
    let here = Arc::clone(shared);
    let answer = async move {
        let Shared { catalog, shards, around, .. } = &*here;
        let office = Office { catalog, shards, clock: &*around.clock };
        office.run(errand).await.map(Reply::Errand)
    };
    // Who asked comes again.
    reply_when_done(shared, from, id, served, || Reply::NotHere, answer);
}

/// Answers on this node's own link, while more is read.
fn on_request(
    shared: &Arc<Shared>,
    from: NodeId,
    id: u64,
    input: Input,
    served: &Arc<AtomicUsize>,
) {
    let refused = |kind, message: &str| {
        Reply::Outcome(Outcome::Refused(Problem { kind, message: message.to_owned() }))
    };
    if !is_of(&input, from) {
        let reply = refused(ProblemKind::InvalidRequest, "a node speaks for itself only");
        return shared.reply(from, id, &reply);
    }
    let busy = || refused(ProblemKind::Busy, "too many requests of this node are under way");
    let named = move |request| ShardInput::Controller(input.with_request(request));
    let shard = shared.shards[0].clone();
    let answer = async move {
        match shard.ask(Withdrawal::Controller, named).await?.await? {
            ShardOutcome::Controller(outcome) => Ok(Reply::Outcome(outcome)),
            other => unreachable!("the controller answers as itself, not with {other:?}"),
        }
    };
    serve_call(shared, from, id, served, busy, answer);
}

/// Asks only where this node leads, and not too much at a time.
fn serve_call(
    shared: &Arc<Shared>,
    from: NodeId,
    id: u64,
    served: &Arc<AtomicUsize>,
    busy: impl FnOnce() -> Reply,
    answer: impl Future<Output = Result<Reply, Stopped>> + Send + 'static,
) {
    if shared.quorum.state().leader(shared.node) != Some(shared.node) {
        return shared.reply(from, id, &Reply::NotHere);
    }
    reply_when_done(shared, from, id, served, busy, answer);
}

fn reply_when_done(
    shared: &Arc<Shared>,
    from: NodeId,
    id: u64,
    served: &Arc<AtomicUsize>,
    busy: impl FnOnce() -> Reply,
    answer: impl Future<Output = Result<Reply, Stopped>> + Send + 'static,
) {
    let Some(guest) = Guest::enter(served, shared.requests_max) else {
        return shared.reply(from, id, &busy());
    };
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = shared.stop.told() => {}
            reply = answer => if let Ok(reply) = reply {
                shared.reply(from, id, &reply);
            }
        }
        drop(guest);
    });
}

/// Whether a node may say this: what it says of itself is of itself.
fn is_of(input: &Input, from: NodeId) -> bool {
    match input {
        Input::RegisterNode(register) => register.node == from,
        Input::Heartbeat(heartbeat) => heartbeat.node == from,
        Input::ChangeInSync(change) => change.node == from,
        Input::AllocateProducerIds { node, .. } => *node == from,
        _ => true,
    }
}
