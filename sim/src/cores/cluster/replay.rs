//! Feeds a log to the coordinator whose truth it is, from its start to where it ended when this
//! node began to lead it. A thin version of the node's own.

use std::time::Duration;

use quorate_core::batch::Batch;
use quorate_core::id::{Offset, PartitionId};
use quorate_core::partition::interface::ReadView;
use quorate_core::shard::interface::Input;

use super::{Cluster, Event};

/// Bytes read in one go, at most.
const READ_BYTES_MAX: u64 = 4096;
/// What one reading takes, at most.
const READING_MICROS: u64 = 1000;
/// What a follower was sent last may be on its way to the disk when it is elected.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// One reading of one log.
pub(super) struct Replay {
    partition: PartitionId,
    /// The log as it was when the coordinator was elected.
    view: ReadView,
    /// Tells it from one for an earlier election.
    number: u64,
    from: Offset,
}

impl Cluster {
    /// A coordinator was elected here.
    pub(super) fn replay(&mut self, n: usize, partition: PartitionId) {
        let Some(&view) = self.nodes[n].views.get(&partition) else { return };
        self.next_ask += 1;
        let number = self.next_ask;
        self.nodes[n].replays.insert(partition, number);
        let replay = Box::new(Replay { partition, view, number, from: view.log_start });
        self.read_on(n, replay);
    }

    fn read_on(&mut self, n: usize, replay: Box<Replay>) {
        let life = self.nodes[n].life;
        let takes = Duration::from_micros(self.inbox.below(READING_MICROS));
        self.agenda.after(takes, Event::Replays { n, life, replay });
    }

    pub(super) fn on_replay(&mut self, n: usize, mut replay: Box<Replay>) {
        let Replay { partition, view, number, from } = *replay;
        let bytes = 1 + self.inbox.below(READ_BYTES_MAX) as usize;
        let disk = &mut self.nodes[n].disk;
        let fails = disk.reads_fail > 0;
        disk.reads_fail = disk.reads_fail.saturating_sub(1);
        let batches: Vec<Batch> = match disk.log(partition) {
            Some(log) if !fails => {
                log.read_for(from, view.end, bytes).into_iter().map(|(batch, _)| batch).collect()
            }
            Some(_) => Vec::new(),
            // Dropped meanwhile; a machine counts its replays: each has an end.
            None => return self.tell(n, Input::ReplayEnded { partition }),
        };
        let is_last = self.nodes[n].replays.get(&partition) == Some(&number);
        let is_nothing = batches.is_empty();
        for batch in batches {
            replay.from = batch.header().next_offset();
            if is_last {
                self.tell(n, Input::Replayed { partition, batch });
            }
        }
        let start = self.nodes[n].disk.log(partition).map_or(from, |log| log.state().log_start);
        replay.from = replay.from.max(start);
        let now = self.nodes[n].views.get(&partition);
        let leads = now.is_some_and(|now| now.is_leader && now.leader_epoch == view.leader_epoch);
        if replay.from >= view.end || !leads {
            self.tell(n, Input::ReplayEnded { partition });
        } else if is_nothing {
            let life = self.nodes[n].life;
            self.agenda.after(LOOK_AGAIN, Event::Replays { n, life, replay });
        } else {
            self.read_on(n, replay);
        }
    }
}
