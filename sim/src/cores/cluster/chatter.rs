//! Metadata that is written all the time: in some seeds every node that believes it leads the
//! quorum is asked to decide something every few milliseconds, the deposed and the cut off too.
//! Otherwise so little is decided that hardly an entry is on its way when something strikes.

use std::time::Duration;

use quorate_core::controller::interface::Input;
use quorate_core::id::RequestId;
use quorate_core::quorum::interface::{Limits, Role};
use quorate_core::shard::interface::Input as ForShard;

use super::node::Waiting;
use super::{Cluster, Event};
use crate::chance::Chance;
use crate::plan::Plan;

/// A request that nobody waits for has this name.
const NOBODY: u64 = 0;

/// Bytes of an entry in the log, about.
const ENTRY_BYTES: u64 = 128;

/// How often, if this seed's metadata is busy. A lone voter decides as fast as it is asked; whoever
/// follows may be sent no more than its window has room for in a round trip, and would never come
/// to the end: twice that room, so that it catches up.
pub(super) fn draw(plan: &Plan, limits: &Limits) -> Option<Duration> {
    let mut chance = Chance::new(plan.seed, "busy metadata");
    let millis = *chance.pick(&[1, 3, 10, 30]);
    let round = 2 * plan.link.latency.high + plan.disk.sync.high;
    let in_a_message = (limits.append_bytes_max / ENTRY_BYTES).max(1);
    let in_a_round = in_a_message.saturating_mul(limits.inflight_max as u64);
    let least = 2 * round / u32::try_from(in_a_round).unwrap_or(u32::MAX);
    chance.one_in(3).then(|| Duration::from_millis(millis).max(least))
}

impl Cluster {
    pub(super) fn chatter(&mut self) {
        let Some(every) = self.chatter.filter(|_| !self.healed) else { return };
        for n in 0..self.nodes.len() {
            let node = &mut self.nodes[n];
            let leads = matches!(node.role, Role::Leading { .. });
            if !leads || !node.is_up() || node.paused_until.is_some() {
                continue;
            }
            let node_id = node.id;
            let request = node.next_request(Waiting::Ask { ask: NOBODY, turn: NOBODY });
            let input = Input::AllocateProducerIds { request: RequestId(0), node: node_id };
            self.tell(n, ForShard::Controller(input.with_request(request)));
        }
        self.agenda.after(every, Event::Chatter);
    }
}
