//! A connection: two ends, and for each the segments that travel to it or wait to be read. The
//! end of a stream and a reset travel like data.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use bytes::{Buf, Bytes};

use super::{ConnectionId, HostId, State};
use crate::chance::Between;

/// How late a retransmission may come after a cut was healed or a host came back.
const RETRANSMISSION: Between<Duration> =
    Between { low: Duration::ZERO, high: Duration::from_millis(200) };

pub(super) struct Connection {
    pub(super) ends: [End; 2],
}

/// One end, and what is on its way to it.
pub(super) struct End {
    pub(super) host: HostId,
    pub(super) life: Life,
    /// With their times of arrival, in order.
    pub(super) inbound: VecDeque<(Duration, Segment)>,
    /// Sent into a cut; the sender's kernel keeps them.
    held: VecDeque<Segment>,
    /// Bytes in `inbound` and `held`.
    pub(super) unread: usize,
    last_arrival: Duration,
    /// From then on writes fail: the peer's reset has arrived.
    pub(super) reset_at: Option<Duration>,
    pub(super) fin_sent: bool,
    /// Something was sent to this end while its host had no power.
    pub(super) unanswered: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Open,
    /// The program closed it, or died; the host knows nothing of it any more.
    Closed,
}

#[derive(Debug)]
pub(super) enum Segment {
    Data(Bytes),
    Fin,
    Reset,
}

impl Connection {
    pub(super) fn new(hosts: [HostId; 2]) -> Self {
        let end = |place: usize| End {
            host: hosts[place],
            life: Life::Open,
            inbound: VecDeque::new(),
            held: VecDeque::new(),
            unread: 0,
            last_arrival: Duration::ZERO,
            reset_at: None,
            fin_sent: false,
            unanswered: false,
            reader: None,
            writer: None,
        };
        Self { ends: [end(0), end(1)] }
    }

    pub(super) fn is_between(&self, one: HostId, other: HostId) -> bool {
        let hosts = (self.ends[0].host, self.ends[1].host);
        hosts == (one, other) || hosts == (other, one)
    }
}

impl End {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn arrives(&mut self, at: Duration, segment: Segment) {
        let at = at.max(self.last_arrival);
        self.last_arrival = at;
        if matches!(segment, Segment::Reset) {
            self.reset_at.get_or_insert(at);
            // A writer that waits for room will never get any.
            self.wake();
        }
        self.inbound.push_back((at, segment));
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }
}

impl State {
    /// Sends a segment from one end to the other.
    pub(super) fn send(&mut self, id: ConnectionId, from: usize, segment: Segment) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (source, target) = (connection.ends[from].host, connection.ends[1 - from].host);
        let end = &mut connection.ends[1 - from];
        let bytes = match &segment {
            Segment::Data(data) => data.len(),
            Segment::Fin | Segment::Reset => 0,
        };
        if end.life == Life::Closed {
            if bytes > 0 {
                self.refuse_or_forget(id, 1 - from, target);
            }
            return;
        }
        end.unread += bytes;
        if self.is_cut(source, target) {
            self.end(id, 1 - from).held.push_back(segment);
            return;
        }
        let at = self.arrival(source, target, bytes);
        self.end(id, 1 - from).arrives(at, segment);
    }

    fn end(&mut self, id: ConnectionId, end: usize) -> &mut End {
        &mut self.connections.get_mut(&id).expect("a known connection").ends[end]
    }

    fn refuse_or_forget(&mut self, id: ConnectionId, closed: usize, host: HostId) {
        if self.hosts[host].up {
            self.refuse(id, closed);
        } else {
            self.end(id, closed).unanswered = true;
        }
    }

    /// The host of the closed end answers with a reset, as hosts do for what they do not know.
    pub(super) fn refuse(&mut self, id: ConnectionId, closed: usize) {
        let (from, to) = (self.end(id, closed).host, self.end(id, 1 - closed).host);
        self.end(id, closed).unanswered = false;
        if self.is_cut(from, to) {
            self.end(id, 1 - closed).held.push_back(Segment::Reset);
            return;
        }
        let late = self.link(from, to).chance.duration(RETRANSMISSION);
        let at = self.arrival(from, to, 0) + late;
        self.end(id, 1 - closed).arrives(at, Segment::Reset);
    }

    /// A cut has healed: what the senders kept is on its way.
    pub(super) fn release(&mut self, from: HostId, to: HostId) {
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            for end in 0..2 {
                let held = &self.connections[&id].ends;
                if (held[1 - end].host, held[end].host) != (from, to) {
                    continue;
                }
                let held = std::mem::take(&mut self.end(id, end).held);
                if held.is_empty() {
                    continue;
                }
                let late = self.link(from, to).chance.duration(RETRANSMISSION);
                for segment in held {
                    let at = self.arrival(from, to, 0) + late;
                    self.end(id, end).arrives(at, segment);
                }
            }
        }
    }

    /// The program at this end is done with it: the end of the stream is sent, or a reset if
    /// something was left unread.
    pub(super) fn close(&mut self, id: ConnectionId, end: usize) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let this = &mut connection.ends[end];
        if this.life == Life::Closed {
            return;
        }
        let unread = this.unread > 0;
        let fin_sent = std::mem::replace(&mut this.fin_sent, true);
        this.life = Life::Closed;
        this.inbound.clear();
        this.held.clear();
        this.unread = 0;
        this.wake();
        if unread {
            self.send(id, end, Segment::Reset);
        } else if !fin_sent {
            self.send(id, end, Segment::Fin);
        }
        // Whoever waits for room at the closed end writes into the void, and hears of it.
        if let Some(waker) = self.end(id, 1 - end).writer.take() {
            waker.wake();
        }
        self.forget(id);
    }

    /// The host of this end lost power: nobody is told.
    pub(super) fn vanish(&mut self, id: ConnectionId, end: usize) {
        let this = self.end(id, end);
        if this.life == Life::Closed {
            return;
        }
        this.life = Life::Closed;
        // The peer's kernel goes on sending what was not acknowledged.
        this.unanswered = this.unread > 0;
        this.inbound.clear();
        this.held.clear();
        this.unread = 0;
        let peer = self.end(id, 1 - end);
        // What this host's kernel held back for the peer is gone with it.
        peer.held.clear();
        if let Some(waker) = peer.writer.take() {
            waker.wake();
        }
        self.forget(id);
    }

    /// Resets both ends; of what travels, a part still arrives.
    pub(super) fn reset(&mut self, id: ConnectionId) {
        let now = self.time.elapsed();
        for end in 0..2 {
            let (from, to) = (self.end(id, 1 - end).host, self.end(id, end).host);
            let unread = self.end(id, end).unread as u64;
            let mut passes = self.link(from, to).chance.below(unread + 1) as usize;
            let this = self.end(id, end);
            this.held.clear();
            this.unread = passes;
            for (_, segment) in &mut this.inbound {
                if let Segment::Data(data) = segment {
                    data.truncate(passes);
                    passes -= data.len();
                }
            }
            this.inbound.retain(|(_, segment)| match segment {
                Segment::Data(data) => data.has_remaining(),
                Segment::Fin | Segment::Reset => false,
            });
            this.unread -= passes;
            this.arrives(now, Segment::Reset);
        }
    }

    fn forget(&mut self, id: ConnectionId) {
        if self.connections[&id].ends.iter().all(|end| end.life == Life::Closed) {
            self.connections.remove(&id);
        }
    }
}
