//! The requests of a speaker: over which connection they go, how often and how late they come, and
//! which of their answers are lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::reached;
use quorate_core::time::Timestamp;
use quorate_net::kafka::Call;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages as m;
use quorate_net::wire::{Records, Text};
use tracing::Instrument as _;

use super::super::super::super::client::{Link, within};
use super::super::super::super::values;
use super::{Speaker, Told};
use crate::history::transactions::{Incident, IncidentKind, OBEYED, Place, Topic};
use crate::history::{Producer, Value};

/// `transaction.version` 2 in each request, and the last versions before it.
const END: (i16, i16) = (5, 4);
const PRODUCE: (i16, i16) = (12, 11);
const INIT: i16 = 4;
const ADD: i16 = 3;
const FIND: i16 = 4;
const METADATA: i16 = 9;
const MARK: i16 = 2;
/// No id comes so far in one run.
const NEVER_GIVEN: i16 = 20_000;
/// Nor does any node give so large a producer id.
const NEVER_GIVEN_ID: i64 = 1 << 40;

/// What a producer goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) producer: i64,
    pub(super) epoch: i16,
}

impl Who {
    pub(super) const NOBODY: Self = Self { producer: -1, epoch: -1 };
}

/// A batch that is sent as often as need be.
pub(super) struct Batch {
    pub(super) who: Who,
    pub(super) sequence: i32,
    pub(super) values: Vec<Value>,
    pub(super) at: Timestamp,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.producer, self.epoch)
    }
}

impl Batch {
    /// What asks to have it stored there, in words.
    pub(super) fn told(&self, place: Place) -> String {
        let Self { who, sequence, values, .. } = self;
        let first = values.first().copied().unwrap_or_default();
        format!("Produce of {}×{first:x} to {place} by {who}, sequence {sequence}", values.len())
    }
}

const fn ending(commits: bool) -> &'static str {
    if commits { "commit" } else { "abort" }
}

/// A code of Kafka's in a sentence; none for success.
fn refusal(code: i16) -> Option<Code> {
    (code != 0).then(|| Code::from_code(code).unwrap_or(Code::UnknownServerError))
}

fn told(code: i16) -> Told {
    refusal(code).map_or(Told::Done, Told::Refused)
}

impl Speaker<'_> {
    fn text(&self) -> Text {
        Text::from(self.id.as_str())
    }

    /// Delivers a request some time later, over a connection of its own. Nobody waits for what
    /// becomes of it; once the run is healed, it is lost.
    pub(super) fn echo<R: Call + Send + Sync + 'static>(
        &self,
        address: &str,
        version: i16,
        request: R,
        after: Duration,
        what: &str,
    ) where
        R::Response: Send,
    {
        let scene = &self.actor.scene;
        let history = Arc::clone(&scene.history);
        let mut incident = self.incident(IncidentKind::Late, String::new());
        let sent = scene.now().monotonic.as_duration();
        incident.what = format!(
            "{}: {what}, sent at {:.6} s, comes over another connection",
            self.id,
            sent.as_secs_f64()
        );
        let (network, clock) = (Arc::clone(&scene.network), Arc::clone(&scene.clock));
        let (stage, timeout, address) =
            (Arc::clone(&scene.stage), scene.timeout(), address.to_owned());
        let delivery = async move {
            clock.sleep(after).await;
            if stage.is_healed() {
                return;
            }
            let connected = within(&*clock, timeout, Link::connect(&network, &address)).await;
            if let Ok(mut link) = connected {
                reached!("a-request-comes-over-another-connection");
                incident.begun = clock.now().monotonic;
                let place = history.lock().expect("one thread").begin_incident(incident);
                // Whoever sent it has another answer, or none.
                let answer = within(&*clock, timeout, link.call(version, &request)).await;
                let end = if answer.is_ok() { "is answered" } else { "has no answer" };
                let (mut history, now) =
                    (history.lock().expect("one thread"), clock.now().monotonic);
                history.end_incident(place, now, end.to_owned());
            }
        };
        tokio::spawn(delivery.in_current_span());
    }

    /// Something of this transactional id that begins now.
    fn incident(&self, kind: IncidentKind, what: String) -> Incident {
        Incident {
            client: self.actor.client,
            transactional_id: self.id.clone(),
            kind,
            begun: self.actor.scene.now().monotonic,
            ended: None,
            what,
            end: String::new(),
        }
    }

    /// Draws whether a request is delivered again.
    fn draw_echo(&mut self) -> Option<Duration> {
        let spec = &self.actor.spec;
        let hit = !self.is_healed() && self.actor.chance.hit(spec.echo);
        hit.then(|| self.actor.chance.duration(self.actor.spec.echo_after))
    }

    /// One attempt. `None`: nobody knows whether it was heard.
    async fn ask<R: Call>(
        &mut self,
        address: &str,
        version: i16,
        request: &R,
    ) -> Option<R::Response> {
        let client = self.actor.client;
        let mut link = match self.links.remove(address) {
            Some(link) => link,
            None => self.actor.scene.connect_to(client, address).await?,
        };
        let timeout = self.actor.scene.timeout();
        match within(&*self.actor.scene.clock, timeout, link.call(version, request)).await {
            Ok(response) => {
                if !self.is_healed() && self.actor.chance.hit(self.actor.spec.deaf) {
                    reached!("an-answer-is-lost");
                    return None;
                }
                self.links.insert(address.to_owned(), link);
                Some(response)
            }
            Err(error) => {
                self.actor.note(format!("got no answer: {error}"));
                None
            }
        }
    }

    /// One that may be delivered again, whatever becomes of it now.
    async fn ask_twice<R: Call + Clone + Send + Sync + 'static>(
        &mut self,
        address: &str,
        version: i16,
        request: R,
        what: &str,
    ) -> Option<R::Response>
    where
        R::Response: Send,
    {
        if let Some(after) = self.draw_echo() {
            self.echo(address, version, request.clone(), after, what);
        }
        self.ask(address, version, &request).await
    }

    fn any_node(&mut self) -> String {
        self.actor.chance.pick(&self.actor.scene.addresses).clone()
    }

    async fn find_coordinator(&mut self) -> Option<String> {
        if let Some(address) = &self.coordinator {
            return Some(address.clone());
        }
        let request = m::FindCoordinatorRequest {
            key_type: 1,
            coordinator_keys: vec![self.text()],
            ..Default::default()
        };
        let address = self.any_node();
        let response = self.ask(&address, FIND, &request).await?;
        let found = response.coordinators.first().filter(|found| found.error_code == 0)?;
        let address = format!("{}:{}", found.host.as_str(), found.port);
        Some(self.coordinator.insert(address).clone())
    }

    pub(super) async fn leader(&mut self, place: Place) -> Option<String> {
        if let Some(address) = self.leaders.get(&place) {
            return Some(address.clone());
        }
        let topic = m::metadata::MetadataRequestTopic {
            name: Some(Text::from_static(place.topic.name())),
            ..Default::default()
        };
        let request = m::MetadataRequest {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let address = self.any_node();
        let response = self.ask(&address, METADATA, &request).await?;
        let topic = response.topics.first()?;
        let index = place.index as i32;
        let partition = topic.partitions.iter().find(|found| found.partition_index == index)?;
        let leader =
            response.brokers.iter().find(|broker| broker.node_id == partition.leader_id)?;
        let address = format!("{}:{}", leader.host.as_str(), leader.port);
        self.leaders.insert(place, address.clone());
        Some(address)
    }

    /// What it goes by from now on.
    pub(super) async fn ask_who(&mut self) -> Option<Result<Who, Code>> {
        let request = self.init_request(self.who);
        let address = self.find_coordinator().await?;
        let what = format!("InitProducerId of {}", self.who);
        let response = self.ask_twice(&address, INIT, request, &what).await?;
        Some(match refusal(response.error_code) {
            Some(code) => Err(code),
            None => Ok(Who { producer: response.producer_id, epoch: response.producer_epoch }),
        })
    }

    fn init_request(&self, who: Who) -> m::InitProducerIdRequest {
        m::InitProducerIdRequest {
            transactional_id: Some(self.text()),
            transaction_timeout_ms: self.actor.spec.timeout.as_millis() as i32,
            producer_id: who.producer,
            producer_epoch: who.epoch,
        }
    }

    pub(super) async fn add_partition(&mut self, place: Place, who: Who) -> Told {
        let topic = m::add_partitions_to_txn::AddPartitionsToTxnTopic {
            name: Text::from_static(place.topic.name()),
            partitions: vec![place.index as i32],
        };
        let request = m::AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.text(),
            v3_and_below_producer_id: who.producer,
            v3_and_below_producer_epoch: who.epoch,
            v3_and_below_topics: vec![topic],
            ..Default::default()
        };
        let Some(address) = self.find_coordinator().await else { return Told::Unknown };
        let what = format!("AddPartitionsToTxn with {place} by {who}");
        let Some(response) = self.ask_twice(&address, ADD, request, &what).await else {
            return Told::Unknown;
        };
        let rows = &response.results_by_topic_v3_and_below;
        let row = rows.first().and_then(|topic| topic.results_by_partition.first());
        row.map_or(Told::Unknown, |row| told(row.partition_error_code))
    }

    pub(super) fn produce_version(&self) -> i16 {
        if self.old { PRODUCE.1 } else { PRODUCE.0 }
    }

    pub(super) fn produce_request<'a>(
        &self,
        batches: impl IntoIterator<Item = (Place, &'a Batch)>,
    ) -> m::ProduceRequest {
        let row = |(place, batch): (Place, &Batch)| {
            let Who { producer: id, epoch } = batch.who;
            let producer = Producer { id, epoch, sequence: batch.sequence };
            let built = values::transactional_batch(&batch.values, producer, batch.at);
            let mut records = Records::default();
            for chunk in built.chunks() {
                records.push(chunk);
            }
            let index = place.index as i32;
            m::produce::PartitionProduceData { index, records: Some(records) }
        };
        let topic = m::produce::TopicProduceData {
            name: Text::from_static(Topic::Input.name()),
            partition_data: batches.into_iter().map(row).collect(),
            ..Default::default()
        };
        m::ProduceRequest {
            transactional_id: Some(self.text()),
            acks: -1,
            timeout_ms: self.actor.scene.timeout().as_millis() as i32,
            topic_data: vec![topic],
        }
    }

    /// Batches of producers that there never were, which somebody puts into the same request: their
    /// coordinator is asked about each of them, one after the other.
    pub(super) fn strangers(&mut self, place: Place) -> Vec<(Place, Batch)> {
        let count = *self.actor.chance.pick(&[0, 0, 1, 4, 12, 40]);
        let stranger = |number| {
            let who = Who { producer: NEVER_GIVEN_ID + number, epoch: 0 };
            let values = self.draw_values(1);
            (place, Batch { who, sequence: 0, values, at: self.actor.scene.now().wall })
        };
        (0..count).map(stranger).collect()
    }

    /// The first offset, if it is stored.
    pub(super) async fn produce(
        &mut self,
        place: Place,
        batch: &Batch,
    ) -> Option<Result<i64, Code>> {
        let leader = self.leader(place).await?;
        let request = self.produce_request([(place, batch)]);
        let (version, what) = (self.produce_version(), batch.told(place));
        let response = self.ask_twice(&leader, version, request, &what).await?;
        let row = response.responses.first()?.partition_responses.first()?;
        Some(match refusal(row.error_code) {
            Some(code) => Err(code),
            None => Ok(row.base_offset),
        })
    }

    fn end_request(&self, who: Who, committed: bool) -> m::EndTxnRequest {
        m::EndTxnRequest {
            transactional_id: self.text(),
            producer_id: who.producer,
            producer_epoch: who.epoch,
            committed,
        }
    }

    /// One attempt, and whether the same comes again later.
    pub(super) async fn ask_for_the_end(&mut self, commits: bool) -> (Told, bool) {
        let version = if self.old { END.1 } else { END.0 };
        let Some(address) = self.find_coordinator().await else { return (Told::Unknown, false) };
        let before = self.who;
        let request = self.end_request(before, commits);
        let may_echo = !self.old || self.actor.spec.old_ends_echo;
        let after = may_echo.then(|| self.draw_echo()).flatten();
        if let Some(after) = after {
            reached!("an-end-comes-again");
            let what = format!("EndTxn ({}) by {before}", ending(commits));
            self.echo(&address, version, request.clone(), after, &what);
        }
        let Some(response) = self.ask(&address, version, &request).await else {
            return (Told::Unknown, after.is_some());
        };
        let told = told(response.error_code);
        if matches!(told, Told::Done) && !self.old {
            self.who = Who { producer: response.producer_id, epoch: response.producer_epoch };
            self.sequences.clear();
            self.mark_again(before, commits).await;
        }
        (told, after.is_some())
    }

    /// A marker of the transaction that has ended comes once more, as from its coordinator.
    async fn mark_again(&mut self, before: Who, committed: bool) {
        let Some(after) = self.draw_echo() else { return };
        // What the coordinator gave with a fresh producer id is no epoch of the old one.
        if self.who.producer != before.producer {
            return;
        }
        let index = self.actor.chance.below(self.actor.spec.partitions.into()) as u32;
        let place = Place { topic: Topic::Input, index };
        let Some(leader) = self.leader(place).await else { return };
        let asked = m::describe_producers::TopicRequest {
            name: Text::from_static(place.topic.name()),
            partition_indexes: vec![index as i32],
        };
        let request = m::DescribeProducersRequest { topics: vec![asked] };
        let Some(response) = self.ask(&leader, 0, &request).await else { return };
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        let mut producers = partitions.flat_map(|partition| &partition.active_producers);
        let known = producers.find(|known| known.producer_id == before.producer);
        let Some(coordinator_epoch) = known.map(|known| known.coordinator_epoch) else { return };
        if coordinator_epoch < 0 {
            return;
        }
        reached!("a-marker-comes-again");
        let topic = m::write_txn_markers::WritableTxnMarkerTopic {
            name: Text::from_static(place.topic.name()),
            partition_indexes: vec![index as i32],
        };
        let marker = m::write_txn_markers::WritableTxnMarker {
            producer_id: before.producer,
            producer_epoch: self.who.epoch,
            transaction_result: committed,
            topics: vec![topic],
            coordinator_epoch,
            transaction_version: 2,
        };
        let what = format!(
            "WriteTxnMarkers ({}) to {place} for {}@{}",
            ending(committed),
            before.producer,
            self.who.epoch
        );
        self.echo(&leader, MARK, m::WriteTxnMarkersRequest { markers: vec![marker] }, after, &what);
    }

    /// Somebody claims an epoch that nobody was ever given: to end, to add, to write, or to be
    /// given the next one.
    pub(super) async fn forge(&mut self) {
        let Who { producer, epoch } = self.who;
        let who = Who { producer, epoch: NEVER_GIVEN.max(epoch) };
        let index = self.actor.chance.below(self.actor.spec.partitions.into()) as u32;
        let place = Place { topic: Topic::Input, index };
        reached!("somebody-claims-what-was-never-given");
        let version = if self.old { END.1 } else { END.0 };
        let (what, code) = match self.actor.chance.below(4) {
            0 | 1 => {
                let committed = self.actor.chance.one_in(2);
                let request = self.end_request(who, committed);
                let Some(address) = self.find_coordinator().await else { return };
                let asked = format!("EndTxn ({}) by {who}", ending(committed));
                (
                    "an end",
                    self.claim(&address, version, &request, &asked, |it| it.error_code).await,
                )
            }
            2 => {
                let request = self.init_request(who);
                let Some(address) = self.find_coordinator().await else { return };
                let asked = format!("InitProducerId of {who}");
                let code = self.claim(&address, INIT, &request, &asked, |it| it.error_code).await;
                ("another epoch", code)
            }
            _ => {
                let values = self.draw_values(1);
                let at = self.actor.scene.now().wall;
                let batch = Batch { who, sequence: 0, values, at };
                let claimed = self.begin_claim(&batch.told(place));
                let answer = self.produce(place, &batch).await;
                let code = answer.map(|answer| answer.err().map_or(0, Code::code));
                self.end_claim(claimed, code);
                ("a batch", code)
            }
        };
        if code == Some(0) {
            self.actor.scene.history().believe(self.actor.client, &self.id, what);
        }
    }

    /// Asks for what nobody may be given; the code of the answer.
    async fn claim<R: Call>(
        &mut self,
        address: &str,
        version: i16,
        request: &R,
        what: &str,
        code: impl Fn(&R::Response) -> i16,
    ) -> Option<i16> {
        let claimed = self.begin_claim(what);
        let response = self.ask(address, version, request).await;
        let code = response.as_ref().map(code);
        self.end_claim(claimed, code);
        code
    }

    fn begin_claim(&self, what: &str) -> usize {
        let what = format!("{}: {what}, an epoch that was never given", self.id);
        let incident = self.incident(IncidentKind::Forged, what);
        self.actor.scene.history().begin_incident(incident)
    }

    fn end_claim(&self, claimed: usize, code: Option<i16>) {
        let end = match code.map(refusal) {
            None => "has no answer".to_owned(),
            Some(None) => OBEYED.to_owned(),
            Some(Some(code)) => format!("is refused: {code}"),
        };
        let now = self.actor.scene.now().monotonic;
        self.actor.scene.history().end_incident(claimed, now, end);
    }
}
