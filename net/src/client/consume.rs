//! Consuming several partitions: one fetch under way for each broker, the next one asked for
//! before the last one's records are used, offsets that fell out of the log put right.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::batch::Batch;
use quorate_core::id::{Offset, TopicId};
use quorate_core::mutant;
use quorate_core::partition::interface::Isolation;
use quorate_core::time::Instant;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::fetch::{fetch_request, fetched, is_out_of_range, records_of};
use super::metadata::{partition_named, refusal, topic_named};
use super::route::Lane;
use super::{Client, ConsumedRecord, Error, FetchOptions, Fetched, Position};
use crate::kafka::messages::FetchResponse;
use crate::kafka::messages::fetch::{FetchPartition, FetchTopic};
use crate::wire::Text;

/// What to do when the log does not have the offset that comes next, or a group has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReset {
    Beginning,
    End,
    /// The caller gets the error.
    Fail,
}

#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    pub fetch: FetchOptions,
    pub on_reset: OnReset,
    /// Answers that are held ready beside the one that is under way for each broker.
    pub ready_max: usize,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self { fetch: FetchOptions::default(), on_reset: OnReset::Fail, ready_max: 4 }
    }
}

/// Batches of one partition, in order, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionBatches {
    pub topic: Arc<str>,
    pub partition: i32,
    /// Records of the first batch below this were consumed before.
    pub from: Offset,
    /// None of an aborted transaction where committed records are read; then perhaps none at all.
    pub batches: Vec<Batch>,
    next: Offset,
    pub log_start: Offset,
    pub high_watermark: Offset,
}

impl PartitionBatches {
    /// Where to read on: after the last batch that the broker gave.
    #[must_use]
    pub const fn next(&self) -> Offset {
        self.next
    }

    /// All records, decompressed.
    ///
    /// # Errors
    ///
    /// `Malformed` if a batch does not hold records.
    pub fn records(&self) -> Result<Vec<ConsumedRecord>, Error> {
        let mut records = Vec::new();
        for batch in &self.batches {
            records.extend(records_of(batch, self.from)?);
        }
        Ok(records)
    }
}

type Place = (Arc<str>, i32);

struct Assigned {
    next: Position,
    /// Which assignment this is, so that an answer to an earlier one is not taken for it.
    assignment: u64,
    busy: bool,
    not_before: Instant,
    /// Where the last fetch said that what may be read ends.
    end: Option<Offset>,
}

enum Done {
    Fetched {
        address: String,
        places: Vec<(Place, u64, Offset)>,
        outcome: Result<FetchResponse, Error>,
    },
    Located {
        place: Place,
        assignment: u64,
        outcome: Result<Offset, Error>,
    },
    Asked(Result<(), Error>),
}

/// Starts a job as a task of its own, which ends with its consumer. Who reads may do something else
/// for long between two polls, and a job may have the lock under which a broker is dialled
/// (`route.rs`): as a future that only polls drive, it would hold up all that its client asks that
/// broker meanwhile, a member's heartbeats, commits and good-bye among them.
fn start(jobs: &mpsc::UnboundedSender<Done>, job: impl Future<Output = Done> + Send + 'static) {
    let jobs = jobs.clone();
    let life = async move {
        let done = tokio::select! {
            biased;
            () = jobs.closed() => return,
            done = job => done,
        };
        // The consumer may have gone this very moment.
        let _ = jobs.send(done);
    };
    tokio::spawn(life.in_current_span());
}

/// Reads the partitions that it is assigned. It belongs to no group; `GroupConsumer` does.
pub struct Consumer {
    client: Client,
    config: ConsumerConfig,
    assigned: BTreeMap<Place, Assigned>,
    assignments: u64,
    /// Where jobs say what came of them: one that asks for metadata, at most one fetch for each
    /// broker, and one that looks up an offset for each assignment of a partition.
    jobs: mpsc::UnboundedSender<Done>,
    done: mpsc::UnboundedReceiver<Done>,
    /// Brokers with a fetch under way.
    fetching: Vec<String>,
    asking: bool,
    ready: VecDeque<PartitionBatches>,
    /// Where the last fetch ended, so that every partition gets its turn.
    turn: Option<Place>,
}

impl Consumer {
    #[must_use]
    pub fn new(client: Client, config: ConsumerConfig) -> Self {
        let (jobs, done) = mpsc::unbounded_channel();
        Self {
            client,
            config,
            assigned: BTreeMap::new(),
            assignments: 0,
            jobs,
            done,
            fetching: Vec::new(),
            asking: false,
            ready: VecDeque::new(),
            turn: None,
        }
    }

    /// Reads `partition` from `position` on; also a way to seek.
    pub fn assign(&mut self, topic: &Arc<str>, partition: i32, position: Position) {
        let place = (Arc::clone(topic), partition);
        self.forget(&place);
        self.assignments += 1;
        let assigned = Assigned {
            next: position,
            assignment: self.assignments,
            busy: false,
            not_before: Instant::ZERO,
            end: None,
        };
        self.assigned.insert(place, assigned);
    }

    pub fn unassign(&mut self, topic: &Arc<str>, partition: i32) {
        let place = (Arc::clone(topic), partition);
        self.forget(&place);
        self.assigned.remove(&place);
    }

    fn forget(&mut self, (topic, partition): &Place) {
        self.ready.retain(|ready| ready.topic != *topic || ready.partition != *partition);
    }

    /// Whether every partition has been read up to the end that its last fetch told: the high
    /// watermark, or the last stable offset for committed records.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.ready.is_empty()
            && self.assigned.values().all(|assigned| match (assigned.next, assigned.end) {
                (Position::Offset(next), Some(end)) => next >= end,
                _ => false,
            })
    }

    /// The next batches, of one partition; `None` if an answer came without any, or none came
    /// within `wait`.
    ///
    /// # Errors
    ///
    /// What cannot be put right by trying again: an unknown topic, an offset outside the log with
    /// `OnReset::Fail`, a batch that cannot be read.
    pub async fn poll(&mut self, wait: Duration) -> Result<Option<PartitionBatches>, Error> {
        let clock = Arc::clone(self.client.clock());
        let deadline = clock.now().monotonic + wait;
        loop {
            let wake = self.dispatch(clock.now().monotonic);
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            let until = wake.map_or(deadline, |wake| wake.min(deadline));
            let done = tokio::select! {
                biased;
                Some(done) = self.done.recv() => Some(done),
                () = clock.sleep_until(until) => None,
            };
            let now = clock.now().monotonic;
            match done {
                None if now >= deadline => return Ok(None),
                None => {}
                Some(Done::Asked(outcome)) => {
                    self.asking = false;
                    outcome?;
                }
                Some(Done::Located { place, assignment, outcome }) => {
                    self.on_located(now, &place, assignment, outcome)?;
                }
                Some(Done::Fetched { address, places, outcome }) => {
                    self.fetching.retain(|busy| *busy != address);
                    if self.on_fetched(now, &address, places, outcome)? == 0
                        && wait > Duration::ZERO
                    {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Starts what can be started. Says when to look again.
    fn dispatch(&mut self, now: Instant) -> Option<Instant> {
        let mut wake: Option<Instant> = None;
        let mut wanted: BTreeMap<String, Vec<(Place, u64, Offset, TopicId)>> = BTreeMap::new();
        let room = self.ready.len() < self.config.ready_max;
        let after = self.turn.clone();
        let (first, second): (Vec<_>, Vec<_>) =
            self.assigned.iter_mut().partition(|(place, _)| Some(*place) > after.as_ref());
        for (place, assigned) in first.into_iter().chain(second) {
            if assigned.busy {
                continue;
            }
            if assigned.not_before > now {
                let at = assigned.not_before;
                wake = Some(wake.map_or(at, |wake| wake.min(at)));
                continue;
            }
            let Position::Offset(offset) = assigned.next else {
                assigned.busy = true;
                let position = assigned.next;
                let isolation = self.config.fetch.isolation;
                let job = locate(
                    self.client.clone(),
                    place.clone(),
                    assigned.assignment,
                    position,
                    isolation,
                );
                start(&self.jobs, job);
                continue;
            };
            let Some((address, id)) = self.client.inner.metadata.leader(&place.0, place.1) else {
                if !self.asking {
                    self.asking = true;
                    start(&self.jobs, ask(self.client.clone(), place.clone()));
                }
                continue;
            };
            if room && !self.fetching.contains(&address) {
                let entry = (place.clone(), assigned.assignment, offset, id);
                wanted.entry(address).or_default().push(entry);
            }
        }
        for (address, places) in wanted {
            for (place, ..) in &places {
                if let Some(assigned) = self.assigned.get_mut(place) {
                    assigned.busy = true;
                }
            }
            self.fetching.push(address.clone());
            let job = fetch(self.client.clone(), self.config.fetch.clone(), address, places);
            start(&self.jobs, job);
        }
        wake
    }

    fn on_located(
        &mut self,
        now: Instant,
        place: &Place,
        assignment: u64,
        outcome: Result<Offset, Error>,
    ) -> Result<(), Error> {
        let Some(assigned) = self.current(place, assignment) else { return Ok(()) };
        assigned.busy = false;
        match outcome {
            Ok(offset) => assigned.next = Position::Offset(offset),
            Err(error) if error.is_retriable() => self.pause(now, place, &error),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes an answer apart; gives the number of partitions that have something new.
    fn on_fetched(
        &mut self,
        now: Instant,
        address: &str,
        places: Vec<(Place, u64, Offset)>,
        outcome: Result<FetchResponse, Error>,
    ) -> Result<usize, Error> {
        let outcome = outcome.and_then(|response| match refusal(response.error_code) {
            Some(code) => Err(Error::refused(format!("fetching from {address}"), code, None)),
            None => Ok(response),
        });
        let mut found = match outcome {
            Ok(response) => by_place(&self.client, response),
            Err(error) => {
                for (place, assignment, from) in places {
                    if let Some(assigned) = self.current(&place, assignment) {
                        assigned.busy = false;
                        if mutant!("client-passes-over-a-lost-answer") {
                            assigned.next = Position::Offset(from.plus(1));
                        }
                        self.pause(now, &place, &error);
                    }
                }
                return if error.is_retriable() { Ok(0) } else { Err(error) };
            }
        };
        let mut news = 0;
        let mut failure = None;
        for (place, assignment, from) in places {
            let data = found.remove(&place);
            let Some(assigned) = self.current(&place, assignment) else { continue };
            assigned.busy = false;
            let Some(data) = data else { continue };
            match fetched(|| partition_named(&place.0, place.1), data, address) {
                Ok(fetched) => news += self.on_batches(&place, from, fetched),
                Err(error) => failure = self.on_refused(now, &place, error).err().or(failure),
            }
        }
        failure.map_or(Ok(news), Err)
    }

    fn on_batches(&mut self, place: &Place, from: Offset, fetched: Fetched) -> usize {
        let Some(assigned) = self.assigned.get_mut(place) else { return 0 };
        assigned.end = Some(match self.config.fetch.isolation {
            Isolation::ReadUncommitted => fetched.high_watermark,
            Isolation::ReadCommitted => fetched.last_stable,
        });
        // All of them may be of aborted transactions: the reader goes on behind them.
        let count = usize::from(fetched.next.is_some());
        if let Some(next) = fetched.next {
            let ready = PartitionBatches {
                topic: Arc::clone(&place.0),
                partition: place.1,
                from,
                batches: fetched.batches,
                next,
                log_start: fetched.log_start,
                high_watermark: fetched.high_watermark,
            };
            assigned.next = Position::Offset(next);
            self.ready.push_back(ready);
            self.turn = Some(place.clone());
        }
        count
    }

    fn on_refused(&mut self, now: Instant, place: &Place, error: Error) -> Result<(), Error> {
        let reset = match self.config.on_reset {
            OnReset::Beginning => Some(Position::Beginning),
            OnReset::End => Some(Position::End),
            OnReset::Fail => None,
        };
        if is_out_of_range(&error)
            && let (Some(position), Some(assigned)) = (reset, self.assigned.get_mut(place))
        {
            tracing::warn!(topic = %place.0, partition = place.1, ?position, "offset out of range");
            assigned.next = position;
            return Ok(());
        }
        if !error.is_retriable() {
            return Err(error);
        }
        self.pause(now, place, &error);
        Ok(())
    }

    fn pause(&mut self, now: Instant, place: &Place, error: &Error) {
        tracing::debug!(topic = %place.0, partition = place.1, %error, "trying again");
        if error.blames_metadata() {
            self.client.inner.metadata.expire();
        }
        if let Some(assigned) = self.assigned.get_mut(place) {
            assigned.not_before = now + self.client.config().retry_backoff;
        }
    }

    fn current(&mut self, place: &Place, assignment: u64) -> Option<&mut Assigned> {
        self.assigned.get_mut(place).filter(|assigned| assigned.assignment == assignment)
    }
}

/// The partitions of an answer by name; from version 13 on topics stand there by their ids.
fn by_place(
    client: &Client,
    response: FetchResponse,
) -> BTreeMap<Place, crate::kafka::messages::fetch::PartitionData> {
    let mut found = BTreeMap::new();
    for topic in response.responses {
        let name: Option<Arc<str>> = match topic.topic.as_str() {
            "" => client.inner.metadata.name_of(topic.topic_id),
            name => Some(Arc::from(name)),
        };
        let Some(name) = name else { continue };
        for data in topic.partitions {
            found.insert((Arc::clone(&name), data.partition_index), data);
        }
    }
    found
}

async fn fetch(
    client: Client,
    options: FetchOptions,
    address: String,
    places: Vec<(Place, u64, Offset, TopicId)>,
) -> Done {
    let mut topics: Vec<FetchTopic> = Vec::new();
    for ((name, partition), _, offset, topic_id) in &places {
        let wanted = FetchPartition {
            partition: *partition,
            fetch_offset: offset.0,
            partition_max_bytes: options.partition_bytes_max,
            ..FetchPartition::default()
        };
        match topics.last_mut().filter(|topic| topic.topic == **name) {
            Some(topic) => topic.partitions.push(wanted),
            None => topics.push(FetchTopic {
                topic: Text::from(&**name),
                topic_id: *topic_id,
                partitions: vec![wanted],
            }),
        }
    }
    let request = fetch_request(&options, topics);
    let patience = options.wait_max;
    let outcome = client.inner.routes.call(&address, Lane::Fetch, &request, patience).await;
    let places =
        places.into_iter().map(|(place, assignment, offset, _)| (place, assignment, offset));
    Done::Fetched { address, places: places.collect(), outcome }
}

async fn locate(
    client: Client,
    place: Place,
    assignment: u64,
    position: Position,
    isolation: Isolation,
) -> Done {
    let located = async {
        let listed = client.list_offset_once(&place.0, place.1, position, isolation).await?;
        match listed.offset {
            Some(offset) => Ok(offset),
            // No record is so new: what comes next is.
            None => client
                .list_offset_once(&place.0, place.1, Position::End, isolation)
                .await?
                .offset
                .ok_or_else(|| Error::Malformed {
                    address: "the broker".to_owned(),
                    reason: format!("{} has no end", partition_named(&place.0, place.1)),
                }),
        }
    };
    let outcome = located.await;
    Done::Located { place, assignment, outcome }
}

/// A look at the metadata, with a pause after a failure so that the consumer does not spin.
async fn ask(client: Client, (topic, partition): Place) -> Done {
    match client.leader_once(&topic, partition).await {
        Err(error) if error.is_retriable() => {
            tracing::debug!(%error, "no leader is known for {}", topic_named(&topic));
            client.clock().sleep(client.config().retry_backoff).await;
            Done::Asked(Ok(()))
        }
        outcome => Done::Asked(outcome.map(|_| ())),
    }
}
