//! The links that this node dials: two to each other node it knows of, begun, aimed anew and ended
//! as addresses come and go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use quorate_core::id::NodeId;
use quorate_core::shard::interface::Input;
use quorate_net::peer::Channel;
use quorate_net::peer::link::{Link, State, Target, Told};
use tokio::sync::Notify;

use super::Shared;
use super::frames::Parts;
use crate::driver::Command;
use crate::driver::ask::{ShardClient, Stopped};
use crate::listener::stop::Stop;

/// A frame's kind and the length of its head stand before head and tail.
const FRONT_BYTES: usize = 5;

/// By node.
#[derive(Default)]
pub(super) struct Links {
    pairs: Mutex<BTreeMap<NodeId, Pair>>,
}

struct Pair {
    address: String,
    control: Arc<Link>,
    data: Arc<Link>,
    stop: Arc<Stop>,
}

/// How the links to one node stand.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    pub node: NodeId,
    pub address: String,
    pub control: State,
    pub data: State,
    /// Frames that did not fit, or waited for a connection that broke.
    pub lost: u64,
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Pair>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on there are links to these, at these addresses, and to nobody else.
    pub(super) fn aim(&self, shared: &Arc<Shared>, wanted: &BTreeMap<NodeId, String>) {
        let mut pairs = self.lock();
        pairs.retain(|node, pair| {
            let stays = wanted.get(node) == Some(&pair.address);
            if !stays {
                pair.stop.cut();
            }
            stays
        });
        for (&node, address) in wanted {
            pairs.entry(node).or_insert_with(|| Pair::dial(shared, node, address));
        }
    }

    pub(super) fn end(&self) {
        for (_, pair) in std::mem::take(&mut *self.lock()) {
            pair.stop.cut();
        }
    }

    /// Whether the frame is on its way; otherwise it is lost.
    pub(super) fn send(&self, to: NodeId, channel: Channel, kind: u8, parts: &Parts) -> bool {
        let link = match (self.lock().get(&to), channel) {
            (None, _) => return false,
            (Some(pair), Channel::Control) => Arc::clone(&pair.control),
            (Some(pair), Channel::Data) => Arc::clone(&pair.data),
        };
        let (head, tail) = parts;
        let bytes = FRONT_BYTES + head.len() + tail.iter().map(Bytes::len).sum::<usize>();
        if bytes > link.frame_bytes_max() {
            let max = link.frame_bytes_max();
            tracing::error!(%to, kind, bytes, max, "a message is too long to be sent");
            return false;
        }
        link.send(kind, head, tail)
    }

    pub(super) fn status(&self) -> Vec<LinkStatus> {
        let pairs = self.lock();
        let status = pairs.iter().map(|(&node, pair)| LinkStatus {
            node,
            address: pair.address.clone(),
            control: pair.control.state(),
            data: pair.data.state(),
            lost: pair.control.lost() + pair.data.lost(),
        });
        status.collect()
    }
}

impl Pair {
    fn dial(shared: &Arc<Shared>, node: NodeId, address: &str) -> Self {
        let stop = Arc::new(Stop::default());
        let link = |channel| {
            let link = Arc::new(Link::new(shared.limits.clone()));
            let target = Target { node, address: address.to_owned(), channel };
            tokio::spawn(drive(Arc::clone(shared), target, Arc::clone(&link), Arc::clone(&stop)));
            link
        };
        let (control, data) = (link(Channel::Control), link(Channel::Data));
        Self { address: address.to_owned(), control, data, stop }
    }
}

/// One link, until it is told to stop.
async fn drive(shared: Arc<Shared>, target: Target, link: Arc<Link>, stop: Arc<Stop>) {
    let (node, channel) = (target.node, target.channel);
    let is_new = Notify::new();
    let told = |told| match (told, channel) {
        (Told::Connected, Channel::Data) => is_new.notify_one(),
        (Told::Connected, Channel::Control) => shared.note_gone(node, false),
        (Told::Gone, Channel::Control) => shared.note_gone(node, true),
        (Told::Ended, Channel::Control) => shared.calls.lose(node),
        _ => {}
    };
    let seed = shared.seed ^ (u64::from(node.0.unsigned_abs()) << 1) ^ channel as u64;
    let me = || shared.me();
    tokio::select! {
        biased;
        () = stop.told() => {}
        () = link.run(&shared.around, &me, &target, seed, &told) => {}
        _ = announce(&shared.shards, node, &is_new) => {}
    }
    shared.calls.lose(node);
}

/// Tells the machines of each new connection.
async fn announce(shards: &[ShardClient], peer: NodeId, is_new: &Notify) -> Result<(), Stopped> {
    loop {
        is_new.notified().await;
        connected(shards, peer).await?;
    }
}

/// There is a new connection to `peer`, or from it: what was sent before may be lost.
pub(super) async fn connected(shards: &[ShardClient], peer: NodeId) -> Result<(), Stopped> {
    for shard in shards {
        shard.tell(Command::Tell(Input::Connected { peer })).await?;
    }
    Ok(())
}
