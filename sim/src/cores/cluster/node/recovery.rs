//! What recovery makes of a node's logs, and whether that is what lives.

use quorate_core::id::PartitionId;

use super::super::log;
use super::super::{Cluster, NAMES};
use crate::spec;

impl Cluster {
    /// What recovery finds in the log.
    pub(in super::super) fn recover(
        &mut self,
        n: usize,
        partition: PartitionId,
    ) -> quorate_core::partition::Recovered {
        let log = self.nodes[n].disk.open(partition);
        let recovered = log.recover();
        if let Some(wrong) = log::difference(&recovered, log.state()) {
            self.shadow.blame("rebuilt-state", NAMES[n], format!("{partition}: {wrong}"));
        }
        let (at_us, id) = (self.agenda.now.as_micros() as u64, self.nodes[n].id);
        spec::on_replicas(|watch| watch.opens(at_us, id, partition, &recovered));
        recovered
    }

    pub(in super::super) fn remove_log(&mut self, n: usize, partition: PartitionId) {
        self.shadow.is_dropped |= self.nodes[n].disk.log(partition).is_some();
        self.nodes[n].disk.remove(partition);
        self.nodes[n].views.remove(&partition);
        let (at_us, id) = (self.agenda.now.as_micros() as u64, self.nodes[n].id);
        spec::on_replicas(|watch| watch.vanishes(at_us, id, Some(partition)));
    }

    /// What storage has seen to be wrong.
    pub(super) fn take_wrong(&mut self, n: usize) {
        if let Some((partition, wrong)) = self.nodes[n].disk.wrong() {
            self.shadow.blame("rebuilt-state", NAMES[n], format!("{partition}: {wrong}"));
        }
    }

    /// Rebuilt state = live state, of every log that is at rest, and whose machine has heard that
    /// it is: a paused process does not know yet that its log was cut.
    pub(in super::super) fn compare(&mut self, n: usize) {
        let node = &self.nodes[n];
        let Some(shard) = node.shard.as_ref().filter(|_| self.check_every.is_some()) else {
            return;
        };
        let quiet = node.disk.logs().filter(|(_, log)| log.is_quiet());
        for (partition, log) in quiet {
            let live = match partition {
                PartitionId::METADATA => shard.seat().map(|seat| seat.log().log()),
                _ => shard
                    .replica(partition)
                    .filter(|replica| replica.writes_in_flight() == 0)
                    .map(|replica| replica.log()),
            };
            let wrong = live.and_then(|live| log::difference(log.state(), live));
            if let Some(wrong) = wrong {
                let wrong = format!("{partition}: rebuilt is not live: {wrong}");
                self.shadow.blame("rebuilt-state", node.name, wrong);
            }
        }
        let memory = node.disk.log(PartitionId::METADATA).filter(|log| log.is_quiet());
        if let (Some(log), Some(seat)) = (memory, shard.seat()) {
            let (sum, memory) = (seat.log().sum(), log.memory());
            let last = (sum.hard, &sum.snapshot, sum.log.last());
            if last != (memory.hard, &memory.snapshot, memory.log.last()) {
                let wrong = "the quorum's memory is not what its log adds up to".to_owned();
                self.shadow.blame("rebuilt-state", node.name, wrong);
            }
        }
    }
}
