//! What a member does with what it has: it reads its partitions from the group's offsets on.

use std::collections::BTreeMap;
use std::time::Duration;

use super::protocol::Partitions;
use super::{AGAIN, Environment, Found, Member, Reader, offsets};
use crate::history::Partition;
use crate::history::groups::{Claim, Delivery};

/// How long one round of reading is.
pub(crate) const ROUND: Duration = Duration::from_millis(80);

/// Where a member stands in a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// The next offset to read.
    pub(crate) next: i64,
    /// Of the last batch that was read, -1 for none.
    pub(crate) leader_epoch: i32,
}

/// The partitions that a member has, and its reading of them.
pub(super) struct Work<R> {
    reader: R,
    /// What the clients' patience was when the reader was made.
    patient: bool,
    owned: BTreeMap<Partition, Standing>,
}

impl<R: Reader> Work<R> {
    pub(super) fn new<W: Environment<Reader = R>>(member: &mut Member<W>) -> Self {
        let patient = member.world.is_healed();
        Self { reader: member.reader(), patient, owned: BTreeMap::new() }
    }

    pub(super) fn owned(&self) -> Partitions {
        self.owned.keys().copied().collect()
    }

    /// Where it stands in those of these that it has.
    pub(super) fn positions(&self, partitions: &Partitions) -> Vec<(Partition, Standing)> {
        let owned = self.owned.iter().filter(|(partition, _)| partitions.contains(partition));
        owned.map(|(partition, at)| (*partition, *at)).collect()
    }

    /// Takes partitions over where the group stands; whether that is known.
    pub(super) async fn take<W: Environment<Reader = R>>(
        &mut self,
        member: &mut Member<W>,
        who: &Claim,
        partitions: &Partitions,
    ) -> bool {
        let wanted: Vec<Partition> = partitions
            .iter()
            .filter(|partition| !self.owned.contains_key(partition))
            .copied()
            .collect();
        if !wanted.is_empty() {
            let found = offsets::fetch(&mut member.world, who, &wanted).await;
            let Ok(offsets) = found else {
                member.note(format!("gets no offsets: {found:?}"));
                member.pause(AGAIN).await;
                return false;
            };
            for (partition, at) in wanted.into_iter().zip(offsets) {
                let (next, leader_epoch) = at.map_or((0, -1), |at| (at.offset, at.leader_epoch));
                self.owned.insert(partition, Standing { next, leader_epoch });
                self.reader.assign(partition, next);
            }
        }
        member.roster.owns(member.client, self.owned());
        true
    }

    pub(super) fn give_up<W: Environment>(&mut self, member: &Member<W>, partitions: &Partitions) {
        for partition in partitions {
            if self.owned.remove(partition).is_some() {
                self.reader.unassign(*partition);
            }
        }
        member.roster.owns(member.client, self.owned());
    }

    /// Reads for a while.
    pub(super) async fn round<W: Environment<Reader = R>>(&mut self, member: &mut Member<W>) {
        if member.world.is_healed() != self.patient {
            self.renew(member);
        }
        let until = member.world.now() + ROUND;
        while member.world.now() < until && !member.is_over() {
            let left = until.saturating_since(member.world.now());
            match self.reader.poll(left).await {
                Ok(None) => {}
                Ok(Some(read)) => self.on_read(member, &read),
                Err(error) => {
                    member.note(format!("cannot poll: {error}"));
                    self.renew(member);
                    member.pause(AGAIN).await;
                }
            }
        }
    }

    fn on_read<W: Environment>(&mut self, member: &Member<W>, read: &Found) {
        let partition = read.partition;
        let Some(place) = self.owned.get_mut(&partition) else { return };
        let was_reset = read.log_start > place.next || read.from < place.next;
        let from = if was_reset { read.from } else { place.next };
        let Some(behind) = read.behind else { return };
        *place = behind;
        let (group, client) = (member.group, member.client);
        let delivery = Delivery { group, client, partition, from, next: behind.next };
        let now = member.world.now();
        member.world.with_history(|history| history.deliver(now, delivery));
    }

    /// A new reader goes on where the old one was.
    fn renew<W: Environment<Reader = R>>(&mut self, member: &mut Member<W>) {
        self.reader = member.reader();
        self.patient = member.world.is_healed();
        for (partition, place) in &self.owned {
            self.reader.assign(*partition, place.next);
        }
    }
}
