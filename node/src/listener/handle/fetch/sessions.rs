//! Fetch sessions: what a client reads is remembered, so that its requests name only what changes
//! and the answers only what is new. KIP-227, Kafka's `FetchSession`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorate_core::id::Offset;
use quorate_core::rng::Rng;
use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::FetchRequest;
use quorate_net::kafka::messages::fetch::{FetchPartition, FetchTopic};

use super::read::Read;
use super::{BY_ID, TopicKey, Wanted};

/// The epoch that opens a session.
const INITIAL: i32 = 0;
/// The epoch of a request without one, or of the last one.
const FINAL: i32 = -1;

type Key = (TopicKey, i32);

/// The sessions of a node, within their bounds.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    state: Mutex<State>,
    sessions_max: usize,
    partitions_max: usize,
    idle: Duration,
}

#[derive(Debug)]
struct State {
    sessions: HashMap<i32, Session>,
    partitions: usize,
    ids: Rng,
}

#[derive(Debug)]
struct Session {
    /// What the next request must say.
    epoch: i32,
    by_id: bool,
    used: Instant,
    places: HashMap<Key, u64>,
    /// In the order in which they are read: who was given records goes to the end.
    partitions: BTreeMap<u64, Remembered>,
    next_place: u64,
}

#[derive(Debug)]
struct Remembered {
    wanted: Wanted,
    high_watermark: i64,
    log_start: i64,
}

/// One request's view of its session.
#[derive(Debug)]
pub(crate) struct Context {
    /// The session and whether only news are wanted; 0 for a request without one.
    session: i32,
    incremental: bool,
    wanted: Vec<Wanted>,
}

impl Context {
    pub(crate) fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    pub(crate) const fn session_id(&self) -> i32 {
        self.session
    }
}

impl FetchSessions {
    pub(crate) fn new(
        sessions_max: usize,
        partitions_max: usize,
        idle: Duration,
        seed: u64,
    ) -> Self {
        let state = State { sessions: HashMap::new(), partitions: 0, ids: Rng::new(seed) };
        Self { state: Mutex::new(state), sessions_max, partitions_max, idle }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a request wants to read, its session taken into account.
    ///
    /// # Errors
    ///
    /// The session is not known, or the request is not the one that it waits for.
    pub(crate) fn open(
        &self,
        now: Instant,
        version: i16,
        request: &FetchRequest,
    ) -> Result<Context, Code> {
        let (id, epoch) = (request.session_id, request.session_epoch);
        if epoch != INITIAL && epoch != FINAL {
            return self.go_on(now, version, request);
        }
        let wanted: Vec<Wanted> = wanted(&request.topics).collect();
        let mut state = self.state();
        if id != 0 {
            state.remove(id);
        }
        let session = if epoch == INITIAL && self.make_room(&mut state, now, wanted.len()) {
            state.insert(now, version >= BY_ID, &wanted)
        } else {
            0
        };
        Ok(Context { session, incremental: false, wanted })
    }

    fn go_on(&self, now: Instant, version: i16, request: &FetchRequest) -> Result<Context, Code> {
        let mut state = self.state();
        let id = request.session_id;
        let session = state.sessions.get_mut(&id).ok_or(Code::FetchSessionIdNotFound)?;
        if session.by_id != (version >= BY_ID) {
            return Err(Code::FetchSessionTopicIdError);
        }
        if session.epoch != request.session_epoch {
            return Err(Code::InvalidFetchSessionEpoch);
        }
        session.epoch = session.epoch.checked_add(1).unwrap_or(1);
        session.used = now;
        let before = session.partitions.len();
        for topic in &request.forgotten_topics_data {
            for &index in &topic.partitions {
                let key = TopicKey { name: topic.topic.clone(), id: topic.topic_id };
                session.forget(&(key, index));
            }
        }
        for wanted in wanted(&request.topics) {
            session.remember(wanted);
        }
        let wanted = session.partitions.values().map(|known| known.wanted.clone()).collect();
        let after = session.partitions.len();
        state.partitions = state.partitions - before + after;
        if state.partitions > self.partitions_max {
            // This answer is still complete; the next request will open another one.
            state.remove(id);
            return Ok(Context { session: 0, incremental: false, wanted });
        }
        Ok(Context { session: id, incremental: true, wanted })
    }

    /// Room for a session of so many partitions: an idle one may have to go.
    fn make_room(&self, state: &mut State, now: Instant, partitions: usize) -> bool {
        while state.sessions.len() >= self.sessions_max
            || state.partitions + partitions > self.partitions_max
        {
            let oldest = state.sessions.iter().min_by_key(|(id, session)| (session.used, **id));
            match oldest {
                Some((&id, session)) if now.saturating_since(session.used) >= self.idle => {
                    state.remove(id);
                }
                _ => return false,
            }
        }
        true
    }

    /// The rows that the answer needs: all, or the news only.
    pub(crate) fn close(&self, context: &Context, reads: Vec<Read>) -> Vec<Read> {
        if context.session == 0 {
            return reads;
        }
        let mut state = self.state();
        // It may have been pushed out meanwhile; then the client learns it from its next request.
        let Some(session) = state.sessions.get_mut(&context.session) else { return reads };
        reads
            .into_iter()
            .filter_map(|read| {
                let news = session.note(&read);
                (news || !context.incremental).then_some(read)
            })
            .collect()
    }
}

impl State {
    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions -= session.partitions.len();
        }
    }

    fn insert(&mut self, now: Instant, by_id: bool, wanted: &[Wanted]) -> i32 {
        let id = loop {
            let id = (self.ids.u32() & 0x7fff_ffff).cast_signed();
            if id != 0 && !self.sessions.contains_key(&id) {
                break id;
            }
        };
        let mut session = Session {
            epoch: 1,
            by_id,
            used: now,
            places: HashMap::new(),
            partitions: BTreeMap::new(),
            next_place: 0,
        };
        for wanted in wanted {
            session.remember(wanted.clone());
        }
        self.partitions += session.partitions.len();
        self.sessions.insert(id, session);
        id
    }
}

impl Session {
    fn remember(&mut self, wanted: Wanted) {
        // Text of a request keeps its whole frame in memory: what stays is copied.
        let name = wanted.topic.name.detached();
        let wanted = Wanted { topic: TopicKey { name, id: wanted.topic.id }, ..wanted };
        let key = (wanted.topic.clone(), wanted.index);
        if let Some(known) = self.places.get(&key).and_then(|at| self.partitions.get_mut(at)) {
            known.wanted = wanted;
            return;
        }
        self.places.insert(key, self.next_place);
        let known = Remembered { wanted, high_watermark: -1, log_start: -1 };
        self.partitions.insert(self.next_place, known);
        self.next_place += 1;
    }

    fn forget(&mut self, key: &Key) {
        if let Some(place) = self.places.remove(key) {
            self.partitions.remove(&place);
        }
    }

    /// Whether the answer tells the client anything new of this partition.
    fn note(&mut self, read: &Read) -> bool {
        let key = (read.topic.clone(), read.data.partition_index);
        let Some(place) = self.places.get_mut(&key) else { return true };
        let Some(known) = self.partitions.get_mut(place) else { return true };
        let has_records = read.data.records.as_ref().is_some_and(|records| !records.is_empty());
        let failed = read.data.error_code != Code::None.code();
        let news = has_records
            || failed
            || read.data.preferred_read_replica >= 0
            || read.data.high_watermark != known.high_watermark
            || read.data.log_start_offset != known.log_start;
        // After an error all is news again.
        known.high_watermark = if failed { -1 } else { read.data.high_watermark };
        known.log_start = read.data.log_start_offset;
        if has_records {
            let known = self.partitions.remove(place).expect("it was just there");
            *place = self.next_place;
            self.partitions.insert(self.next_place, known);
            self.next_place += 1;
        }
        news
    }
}

fn wanted(topics: &[FetchTopic]) -> impl Iterator<Item = Wanted> + '_ {
    topics.iter().flat_map(|topic| {
        let key = TopicKey { name: topic.topic.clone(), id: topic.topic_id };
        topic.partitions.iter().map(move |partition| one(key.clone(), partition))
    })
}

fn one(topic: TopicKey, partition: &FetchPartition) -> Wanted {
    Wanted {
        topic,
        index: partition.partition,
        from: Offset(partition.fetch_offset),
        bytes_max: usize::try_from(partition.partition_max_bytes).unwrap_or(0),
        leader_epoch: partition.current_leader_epoch,
    }
}

#[cfg(test)]
mod tests;
