//! Snapshots: taken by the application, kept in memory, sent in pieces to whom the log cannot
//! help any more. A receiver puts it in the place of its whole log, in one write.

use bytes::Bytes;

use super::interface::{Body, Configuration, Effect, Index, LogOp, Member, Position, Snapshot};
use super::log::Log;
use super::progress::Flow;
use super::{Quorum, State};
use crate::time::Now;
use crate::{mutant, reached};

/// A snapshot that has come in part. A restart forgets it; the leader begins again.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    position: Position,
    bytes_total: u64,
    data: Vec<u8>,
}

pub(super) struct Chunk {
    pub(super) position: Position,
    pub(super) configuration: Configuration,
    pub(super) bytes_total: u64,
    pub(super) offset: u64,
    pub(super) data: Bytes,
}

impl Quorum {
    /// Ignores what is older than the last snapshot, too large, or was never given out.
    pub(super) fn on_snapshot_taken(
        &mut self,
        through: Index,
        data: Bytes,
        effects: &mut Vec<Effect>,
    ) {
        let is_new = through > self.snapshot.position.index && through <= self.delivered;
        if !is_new || data.len() as u64 > self.limits.snapshot_bytes_max {
            reached!("snapshot-is-not-taken");
            return;
        }
        // zoo B21: the snapshot is named by the last entry that is part of it.
        let named = if mutant!("snapshot-id-off-by-one") { through.previous() } else { through };
        let (Some(term), Some(configuration)) =
            (self.log.term(named), self.log.configuration_at(named).cloned())
        else {
            return;
        };
        let snapshot = Snapshot { position: Position::new(named, term), configuration, data };
        self.snapshot = snapshot.clone();
        let forget = Index(named.0.saturating_sub(self.limits.entries_kept));
        self.log.forget(forget);
        self.log.settle(named);
        self.bytes_since_snapshot = self.log.bytes_behind(through);
        self.is_snapshot_asked = false;
        self.persist(LogOp::Snapshot { snapshot, forget }, effects);
    }

    /// The entries that `to` needs are gone: it gets the snapshot instead.
    pub(super) fn begin_snapshot(&mut self, to: Member, effects: &mut Vec<Effect>) {
        reached!("snapshot-is-sent");
        let snapshot = self.snapshot.clone();
        if let Some(progress) = self.leading().and_then(|leader| leader.progress.get_mut(&to)) {
            progress.flow = Flow::Snapshot { snapshot, offset: 0, is_waiting: false };
        }
        self.send_chunk(to, effects);
    }

    /// One piece at a time; it is sent again when a heartbeat is answered and it was not.
    pub(super) fn send_chunk(&mut self, to: Member, effects: &mut Vec<Effect>) {
        let chunk_bytes = usize::try_from(self.limits.chunk_bytes).unwrap_or(usize::MAX);
        let State::Leader(leader) = &mut self.state else { return };
        let round = leader.round;
        let Some(progress) = leader.progress.get_mut(&to) else { return };
        let Flow::Snapshot { snapshot, offset, is_waiting } = &mut progress.flow else { return };
        if std::mem::replace(is_waiting, true) {
            return;
        }
        let start = usize::try_from(*offset).unwrap_or(usize::MAX).min(snapshot.data.len());
        let end = snapshot.data.len().min(start.saturating_add(chunk_bytes));
        let body = Body::Chunk {
            position: snapshot.position,
            configuration: snapshot.configuration.clone(),
            bytes_total: snapshot.data.len() as u64,
            offset: *offset,
            data: snapshot.data.slice(start..end),
            round,
        };
        self.send(to, body, effects);
    }

    pub(super) fn on_chunk(&mut self, now: Now, chunk: Chunk, effects: &mut Vec<Effect>) {
        let position = chunk.position;
        if position.index <= self.committed || self.log.has(position) {
            // What is committed is in every leader's log, and so is what has its last entry.
            reached!("snapshot-says-nothing-new");
            let known = self.committed.max(position.index);
            self.following.verified = self.following.verified.max(known);
            self.raise_committed(now, position.index, effects);
            self.following.owed = Some(self.following.verified);
            self.acknowledge(effects);
            return;
        }
        if chunk.bytes_total > self.limits.snapshot_bytes_max {
            return;
        }
        let bytes_total = chunk.bytes_total;
        let incoming = self.following.incoming.take();
        let mut incoming = incoming
            .filter(|incoming| incoming.position == position && incoming.bytes_total == bytes_total)
            .unwrap_or(Incoming { position, bytes_total, data: Vec::new() });
        if chunk.offset == incoming.data.len() as u64 {
            incoming.data.extend_from_slice(&chunk.data);
        }
        let received = incoming.data.len() as u64;
        if received == bytes_total {
            let data = Bytes::from(incoming.data);
            let snapshot = Snapshot { position, configuration: chunk.configuration, data };
            self.install(snapshot, effects);
            return;
        }
        self.following.incoming = Some(incoming);
        if let Some(leader) = self.following.leader {
            let round = self.following.round;
            self.send(leader, Body::ChunkReply { position, received, round }, effects);
        }
    }

    /// This log lacks the snapshot's last entry, so none of its tail can be the leader's.
    fn install(&mut self, snapshot: Snapshot, effects: &mut Vec<Effect>) {
        reached!("snapshot-installed");
        let position = snapshot.position;
        // zoo C6: who votes is a part of the snapshot.
        let voters = match (mutant!("joint-config-lost-in-snapshot"), self.configuration()) {
            (true, Some(own)) => own.clone(),
            _ => snapshot.configuration.clone(),
        };
        let mut log = Log::new(position, Some((position.index, voters)));
        // zoo B20
        if mutant!("snapshot-keeps-conflicting-log") {
            let tail = self.log.entries().filter(|entry| entry.index > position.index);
            tail.for_each(|entry| log.push(entry.clone()));
        }
        // Until it is on the disk, only what was committed there before is.
        self.disk.cut(self.committed);
        self.log = log;
        self.snapshot = snapshot.clone();
        self.persist(LogOp::Install { snapshot }, effects);
        self.committed = position.index;
        self.following.verified = position.index;
        self.following.owed = Some(position.index);
    }

    /// The installed snapshot is on the disk: the application starts from it.
    pub(super) fn restore(&mut self, effects: &mut Vec<Effect>) {
        self.delivered = self.snapshot.position.index;
        self.bytes_since_snapshot = 0;
        self.is_snapshot_asked = false;
        effects.push(Effect::Restore { snapshot: self.snapshot.clone() });
    }
}
