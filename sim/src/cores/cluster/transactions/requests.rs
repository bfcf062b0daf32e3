//! The requests of a producer: which of them reach a node once more, late, and what somebody claims
//! who was never given it.

use std::fmt;
use std::time::Duration;

use quorate_core::batch::control::Ending;
use quorate_core::id::{ProducerEpoch, ProducerId};
use quorate_core::reached;
use quorate_core::time::Timestamp;
use quorate_core::transaction::interface::{Claim, TransactionVersion};
use quorate_net::kafka::error::Code;

use super::speaker::{Speaker, Told};
use super::{Ask, GROUP, Reply};
use crate::history::transactions::{Incident, IncidentKind, OBEYED, Place, Topic};
use crate::history::{Producer, Value};
use crate::workload::values;

/// No id comes so far in one run.
const NEVER_GIVEN: i16 = 20_000;

/// What a producer goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) producer: i64,
    pub(super) epoch: i16,
}

impl Who {
    pub(super) const NOBODY: Self = Self { producer: -1, epoch: -1 };
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.producer, self.epoch)
    }
}

/// A batch that is sent as often as need be.
pub(super) struct Batch {
    pub(super) who: Who,
    pub(super) sequence: i32,
    pub(super) values: Vec<Value>,
    pub(super) at: Timestamp,
}

impl Batch {
    /// What asks to have it stored there, in words.
    fn told(&self, place: Place) -> String {
        let Self { who, sequence, values, .. } = self;
        let first = values.first().copied().unwrap_or_default();
        format!("Produce of {}×{first:x} to {place} by {who}, sequence {sequence}", values.len())
    }
}

const fn in_words(ending: Ending) -> &'static str {
    match ending {
        Ending::Committed => "commit",
        Ending::Aborted => "abort",
    }
}

fn told(reply: Option<Reply>) -> Told {
    match reply {
        None => Told::Unknown,
        Some(Reply::Refused(code)) => Told::Refused(code),
        Some(_) => Told::Done,
    }
}

impl Speaker {
    fn version(&self) -> TransactionVersion {
        if self.old { TransactionVersion::V0 } else { TransactionVersion::V2 }
    }

    fn claim(&self, who: Who) -> Claim {
        Claim {
            transactional_id: self.id.clone(),
            producer: ProducerId(who.producer),
            epoch: ProducerEpoch(who.epoch),
        }
    }

    /// A request reaches the node once more, over another connection. Nobody hears the answer.
    fn echo(&mut self, n: usize, ask: Ask, after: Duration, what: &str) {
        let now = self.actor.at().now().monotonic.as_duration().as_secs_f64();
        let what =
            format!("{}: {what}, sent at {now:.6} s, comes over another connection", self.id);
        let incident = self.incident(IncidentKind::Late, what);
        self.actor.at().with_history(|history| history.begin_incident(incident));
        self.actor.at().send_late(n, ask, after);
    }

    /// Something of this transactional id that begins now.
    fn incident(&self, kind: IncidentKind, what: String) -> Incident {
        Incident {
            client: self.actor.client,
            transactional_id: self.id.clone(),
            kind,
            begun: self.actor.at().now().monotonic,
            ended: None,
            what,
            end: String::new(),
        }
    }

    /// One that may be delivered again, whatever becomes of it now.
    async fn ask_twice(&mut self, n: usize, ask: Ask, what: &str) -> Option<Reply> {
        if let Some(after) = self.actor.draw_echo() {
            self.echo(n, ask.clone(), after, what);
        }
        self.actor.ask(n, ask).await
    }

    /// What it goes by from now on.
    pub(super) async fn ask_who(&mut self) -> Option<Result<Who, Code>> {
        let n = self.actor.coordinator(&self.id.clone()).await?;
        let what = format!("InitProducerId of {}", self.who);
        Some(match self.ask_twice(n, self.init(self.who), &what).await? {
            Reply::Who(producer, epoch) => Ok(Who { producer, epoch }),
            Reply::Refused(code) => Err(code),
            other => unreachable!("a producer is told who it is, not {other:?}"),
        })
    }

    fn init(&self, who: Who) -> Ask {
        let current = (who != Who::NOBODY).then_some((who.producer, who.epoch));
        Ask::Init { id: self.id.clone(), timeout: self.actor.spec.timeout, current }
    }

    pub(super) async fn add_partition(&mut self, place: Place) -> Told {
        let Some(n) = self.actor.coordinator(&self.id.clone()).await else { return Told::Unknown };
        let ask = Ask::Add { claim: self.claim(self.who), place };
        let what = format!("AddPartitionsToTxn with {place} by {}", self.who);
        told(self.ask_twice(n, ask, &what).await)
    }

    fn produce_ask(&self, place: Place, batch: &Batch) -> Ask {
        let Who { producer: id, epoch } = batch.who;
        let producer = Producer { id, epoch, sequence: batch.sequence };
        let built = values::transactional_batch(&batch.values, producer, batch.at);
        let (claim, version) = (self.claim(batch.who), self.version());
        Ask::Produce { claim, version, place, batch: built }
    }

    /// The first offset, if it is stored.
    pub(super) async fn ask_to_store(
        &mut self,
        place: Place,
        batch: &Batch,
    ) -> Option<Result<i64, Code>> {
        let n = self.actor.leader(place).await?;
        let ask = self.produce_ask(place, batch);
        Some(match self.ask_twice(n, ask, &batch.told(place)).await? {
            Reply::Stored(base) => Ok(base),
            Reply::Refused(code) => Err(code),
            other => unreachable!("a batch is stored, not {other:?}"),
        })
    }

    /// Nobody waits for what becomes of it.
    pub(super) fn send_and_forget(&mut self, n: usize, place: Place, batch: &Batch) {
        let ask = self.produce_ask(place, batch);
        self.echo(n, ask, Duration::ZERO, &batch.told(place));
    }

    /// The copier's group has consumed `place` up to `next`, if the transaction is committed.
    pub(super) async fn commit_offset(&mut self, place: Place, next: i64) -> Told {
        let Some(n) = self.actor.group_coordinator(GROUP).await else { return Told::Unknown };
        let (claim, version) = (self.claim(self.who), self.version());
        told(self.actor.ask(n, Ask::CommitOffset { claim, version, place, next }).await)
    }

    fn end_ask(&self, who: Who, ending: Ending) -> Ask {
        Ask::End { claim: self.claim(who), version: self.version(), ending }
    }

    /// One attempt, and whether the same comes again later.
    pub(super) async fn ask_for_the_end(&mut self, ending: Ending) -> (Told, bool) {
        let before = self.who;
        let Some(n) = self.actor.coordinator(&self.id.clone()).await else {
            return (Told::Unknown, false);
        };
        let ask = self.end_ask(before, ending);
        let may_echo = !self.old || self.actor.spec.old_ends_echo;
        let after = if may_echo { self.actor.draw_echo() } else { None };
        if let Some(after) = after {
            reached!("an-end-comes-again");
            let what = format!("EndTxn ({}) by {before}", in_words(ending));
            self.echo(n, ask.clone(), after, &what);
        }
        match self.actor.ask(n, ask).await {
            Some(Reply::Who(producer, epoch)) => {
                if !self.old {
                    self.who = Who { producer, epoch };
                    self.sequences.clear();
                    self.mark_again(before, ending).await;
                }
                (Told::Done, after.is_some())
            }
            other => (told(other), after.is_some()),
        }
    }

    /// A marker of the transaction that has ended comes once more, as from its coordinator.
    async fn mark_again(&mut self, before: Who, ending: Ending) {
        let Some(after) = self.actor.draw_echo() else { return };
        // What the coordinator gave with a fresh producer id is no epoch of the old one.
        if self.who.producer != before.producer {
            return;
        }
        let place = self.draw_place();
        let Some(n) = self.actor.leader(place).await else { return };
        let asked = self.actor.ask(n, Ask::Producers { place }).await;
        let Some(Reply::Producers(producers)) = asked else { return };
        let known = producers.iter().find(|known| known.producer.0 == before.producer);
        let Some(coordinator_epoch) = known.map(|known| known.coordinator_epoch.0) else { return };
        if coordinator_epoch < 0 {
            return;
        }
        reached!("a-marker-comes-again");
        let who = Who { producer: before.producer, epoch: self.who.epoch };
        let ask = Ask::Mark { claim: self.claim(who), place, ending, coordinator_epoch };
        let what = format!("WriteTxnMarkers ({}) to {place} for {who}", in_words(ending));
        self.echo(n, ask, after, &what);
    }

    pub(super) fn draw_place(&mut self) -> Place {
        let partitions = self.actor.spec.partitions;
        let index = self.actor.chance.below(partitions.into()) as u32;
        Place { topic: Topic::Input, index }
    }

    /// Somebody claims an epoch that nobody was ever given: to end, to write, or to be given the
    /// next one.
    pub(super) async fn forge(&mut self) {
        let Who { producer, epoch } = self.who;
        let who = Who { producer, epoch: NEVER_GIVEN.max(epoch) };
        let place = self.draw_place();
        reached!("somebody-claims-what-was-never-given");
        let Some(coordinator) = self.actor.coordinator(&self.id.clone()).await else { return };
        let (what, n, ask, asked) = match self.actor.chance.below(4) {
            0 | 1 => {
                let commits = self.actor.chance.one_in(2);
                let ending = if commits { Ending::Committed } else { Ending::Aborted };
                let asked = format!("EndTxn ({}) by {who}", in_words(ending));
                ("an end", coordinator, self.end_ask(who, ending), asked)
            }
            2 => {
                let asked = format!("InitProducerId of {who}");
                ("another epoch", coordinator, self.init(who), asked)
            }
            _ => {
                let values = self.draw_values(1);
                let batch = Batch { who, sequence: 0, values, at: self.actor.at().now().wall };
                let Some(leader) = self.actor.leader(place).await else { return };
                ("a batch", leader, self.produce_ask(place, &batch), batch.told(place))
            }
        };
        let asked = format!("{}: {asked}, an epoch that was never given", self.id);
        let incident = self.incident(IncidentKind::Forged, asked);
        let claimed = self.actor.at().with_history(|history| history.begin_incident(incident));
        let told = told(self.actor.ask(n, ask).await);
        let end = match &told {
            Told::Unknown => "has no answer".to_owned(),
            Told::Done => OBEYED.to_owned(),
            Told::Refused(code) => format!("is refused: {code}"),
        };
        let now = self.actor.at().now().monotonic;
        self.actor.at().with_history(|history| history.end_incident(claimed, now, end));
        if matches!(told, Told::Done) {
            let (client, id) = (self.actor.client, self.id.clone());
            self.actor.at().with_history(|history| history.believe(client, &id, what));
        }
    }
}
