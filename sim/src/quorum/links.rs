//! The network between members: it loses, doubles, delays and overtakes, and some of it is cut.

use std::collections::BTreeSet;

use quorate_core::id::NodeId;
use quorate_core::quorum::interface::Message;

use crate::chance::{Chance, Ratio};

/// Messages on their way at once; more are lost.
const WAITING_MAX: usize = 400;
/// Messages that are held back at once.
const HELD_MAX: usize = 100;

/// A message and the node it goes to.
pub(super) type Packet = (NodeId, Message);

#[derive(Debug, Default)]
pub(super) struct Links {
    waiting: Vec<Packet>,
    /// They come when everything has changed, if they come.
    held: Vec<Packet>,
    /// Pairs between which nothing passes, in this direction.
    cuts: BTreeSet<(NodeId, NodeId)>,
}

impl Links {
    pub(super) fn send(&mut self, to: NodeId, message: Message, lag: Ratio, chance: &mut Chance) {
        if chance.hit(lag) {
            self.hold((to, message), chance);
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.remove(chance.below(WAITING_MAX as u64) as usize);
        }
        self.waiting.push((to, message));
    }

    pub(super) fn hold(&mut self, packet: Packet, chance: &mut Chance) {
        if self.held.len() >= HELD_MAX {
            self.held.swap_remove(chance.below(HELD_MAX as u64) as usize);
        }
        self.held.push(packet);
    }

    /// The next message: mostly one of the oldest, sometimes any of them, seldom one that was held
    /// back. It may have been doubled: then it comes again, soon or late.
    pub(super) fn next(&mut self, doubling: Ratio, chance: &mut Chance) -> Option<Packet> {
        if !self.held.is_empty() && chance.one_in(32) {
            let place = chance.below(self.held.len() as u64) as usize;
            return Some(self.held.swap_remove(place));
        }
        let waiting = self.waiting.len() as u64;
        if waiting == 0 {
            return None;
        }
        let span = if chance.one_in(4) { waiting } else { waiting.min(4) };
        let packet = self.waiting.remove(chance.below(span) as usize);
        if chance.hit(doubling) {
            if chance.one_in(2) {
                self.hold(packet.clone(), chance);
            } else {
                self.waiting.push(packet.clone());
            }
        }
        Some(packet)
    }

    /// The oldest message.
    pub(super) fn first(&mut self) -> Option<Packet> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What was held back comes now, in any order.
    pub(super) fn release(&mut self, chance: &mut Chance) {
        while !self.held.is_empty() {
            let place = chance.below(self.held.len() as u64) as usize;
            self.waiting.push(self.held.swap_remove(place));
        }
    }

    /// What `from` has said and nobody has heard yet, or some of it, is lost or comes late.
    pub(super) fn silence(&mut self, from: NodeId, chance: &mut Chance) {
        let (is_late, is_some) = (chance.one_in(2), chance.one_in(2));
        let said = self.waiting.extract_if(.., |(_, message)| {
            message.from.node == from && (!is_some || chance.one_in(2))
        });
        let said: Vec<Packet> = said.collect();
        if is_late {
            said.into_iter().for_each(|packet| self.hold(packet, chance));
        }
    }

    pub(super) fn passes(&self, from: NodeId, to: NodeId) -> bool {
        !self.cuts.contains(&(from, to))
    }

    pub(super) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cuts.insert((from, to));
    }

    /// Nothing passes between these nodes and all others.
    pub(super) fn part(&mut self, group: &BTreeSet<NodeId>, all: &[NodeId]) {
        for one in all.iter().filter(|node| group.contains(node)) {
            for other in all.iter().filter(|node| !group.contains(node)) {
                self.cuts.extend([(*one, *other), (*other, *one)]);
            }
        }
    }

    pub(super) fn mend(&mut self) {
        self.cuts.clear();
    }
}
