//! One transactional id in the hands of its coordinator: what the log says of it, the one record
//! that is on its way there, and who waits behind it.

use std::collections::{BTreeMap, VecDeque};

use super::interface::{
    AddPartitions, Effect, End, InitProducer, Marker, MarkerId, MarkerResult, Outcome, Refusal,
    TransactionLimits,
};
use super::markers::Markers;
use super::record;
use super::rules::{self, Verdict};
use super::state::{Phase, State};
use crate::batch::{BatchBuilder, Codec};
use crate::id::{LeaderEpoch, RequestId};
use crate::own_log::{self, AppendId};
use crate::time::{Instant, Now, Timestamp};
use crate::{mutant, reached};

/// What one transactional id may do while an input is handled.
pub(super) struct Desk<'a> {
    pub(super) now: Now,
    pub(super) limits: &'a TransactionLimits,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) counters: &'a mut Counters,
    pub(super) effects: &'a mut Vec<Effect>,
}

/// What the machine counts, across its leaderships.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) next_append: AppendId,
    pub(super) next_marker: MarkerId,
    /// Whose request waits.
    pub(super) waiting: BTreeMap<RequestId, String>,
}

/// A request that is judged when its turn has come.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Init(InitProducer),
    Add(AddPartitions),
    End(End),
}

impl Ask {
    pub(super) fn request(&self) -> RequestId {
        match self {
            Self::Init(init) => init.request,
            Self::Add(add) => add.request,
            Self::End(end) => end.request,
        }
    }
}

/// The record that the log is taking.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    pub(super) append: AppendId,
    /// `None` forgets the transactional id.
    next: Option<State>,
    /// The answers that wait for it.
    answers: Vec<(RequestId, Outcome)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    pub(super) name: String,
    /// As committed; `None` until its first record is.
    pub(super) state: Option<State>,
    pub(super) writing: Option<Writing>,
    /// In the order in which they came. Whoever comes while a record is on its way waits, so each
    /// is judged by what is in the log.
    queue: VecDeque<Ask>,
    pub(super) markers: Markers,
    /// When the transaction under way has taken too long.
    times_out: Option<Instant>,
    /// Not before: the log has refused a record that nobody waits for.
    retry: Instant,
}

impl Desk<'_> {
    fn reply(&mut self, request: RequestId, outcome: Outcome) {
        self.effects.push(Effect::Reply { request, outcome });
    }
}

impl Identity {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Whether nothing is left of it.
    pub(super) fn is_void(&self) -> bool {
        self.state.is_none() && self.writing.is_none() && self.queue.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.writing.is_some() {
            return None;
        }
        let state = self.state.as_ref()?;
        let due = match state.phase {
            Phase::Ongoing => self.times_out,
            Phase::PrepareCommit | Phase::PrepareAbort if self.markers.are_done() => {
                Some(Instant::ZERO)
            }
            Phase::PrepareCommit | Phase::PrepareAbort => return self.markers.deadline(),
            Phase::Empty | Phase::CompleteCommit | Phase::CompleteAbort => None,
        };
        due.map(|due| due.max(self.retry))
    }

    pub(super) fn on_ask(&mut self, ask: Ask, desk: &mut Desk<'_>) {
        if desk.counters.waiting.len() >= desk.limits.waiting_max {
            reached!("transaction-requests-full");
            return desk.reply(ask.request(), Outcome::Refused(Refusal::NotAvailable));
        }
        desk.counters.waiting.insert(ask.request(), self.name.clone());
        self.queue.push_back(ask);
        self.take_turns(desk);
    }

    /// Judges who waits, until one has something written.
    fn take_turns(&mut self, desk: &mut Desk<'_>) {
        let mut kept = VecDeque::new();
        while self.writing.is_none()
            && let Some(ask) = self.queue.pop_front()
        {
            match self.judge(&ask, desk) {
                Verdict::Wait if self.markers.go_well() => kept.push_back(ask),
                Verdict::Wait => {
                    let outcome = Outcome::Refused(Refusal::ConcurrentTransactions);
                    self.answer(ask.request(), outcome, desk);
                }
                Verdict::Answer(outcome) => self.answer(ask.request(), outcome, desk),
                Verdict::Write(next, outcome) => {
                    let mut answers = vec![(ask.request(), outcome)];
                    let next = match ask {
                        Ask::Add(_) => self.gather(*next, &mut answers, desk),
                        Ask::Init(_) | Ask::End(_) => *next,
                    };
                    self.write(Some(next), answers, desk);
                }
            }
        }
        kept.append(&mut self.queue);
        self.queue = kept;
    }

    fn judge(&self, ask: &Ask, desk: &Desk<'_>) -> Verdict {
        let now = desk.now.wall;
        match (ask, &self.state) {
            (Ask::Init(init), None) => rules::found(init, now),
            (Ask::Init(init), Some(state)) => rules::init(state, init, now),
            (Ask::Add(_) | Ask::End(_), None) => {
                Verdict::Answer(Outcome::Refused(Refusal::InvalidProducerIdMapping))
            }
            (Ask::Add(add), Some(state)) => rules::add(state, add, desk.limits.partitions_max, now),
            (Ask::End(end), Some(state)) => rules::end(state, end, now),
        }
    }

    /// Many partitions are added at once, each by its own leader: those that wait go into the
    /// record of the first.
    fn gather(
        &mut self,
        mut next: State,
        answers: &mut Vec<(RequestId, Outcome)>,
        desk: &Desk<'_>,
    ) -> State {
        while let Some(Ask::Add(add)) = self.queue.front() {
            match rules::add(&next, add, desk.limits.partitions_max, desk.now.wall) {
                Verdict::Write(further, outcome) => {
                    if !answers.is_empty() {
                        reached!("partitions-added-together");
                    }
                    answers.push((add.request, outcome));
                    next = *further;
                }
                Verdict::Answer(Outcome::Added) => answers.push((add.request, Outcome::Added)),
                // It is judged in its turn.
                Verdict::Answer(_) | Verdict::Wait => break,
            }
            self.queue.pop_front();
        }
        next
    }

    fn answer(&mut self, request: RequestId, outcome: Outcome, desk: &mut Desk<'_>) {
        desk.counters.waiting.remove(&request);
        desk.reply(request, outcome);
    }

    fn write(
        &mut self,
        next: Option<State>,
        mut answers: Vec<(RequestId, Outcome)>,
        desk: &mut Desk<'_>,
    ) {
        // zoo F12: the coordinator's memory is no place for what a commit is to cover.
        let ongoing = next.as_ref().is_some_and(|next| next.phase == Phase::Ongoing);
        if mutant!("partition-add-in-memory") && ongoing {
            self.adopt(next, desk);
            for (request, outcome) in answers {
                self.answer(request, outcome, desk);
            }
            return;
        }
        if mutant!("transaction-answer-before-log") {
            for (request, outcome) in answers.drain(..) {
                self.answer(request, outcome, desk);
            }
        }
        // zoo F14: an epoch that is lost with the write it was for.
        if mutant!("epoch-exhaustion")
            && let (Some(state), Some(next)) = (&mut self.state, &next)
            && state.producer == next.producer
        {
            state.epoch = next.epoch;
        }
        let append = desk.counters.next_append;
        desk.counters.next_append = AppendId(append.0 + 1);
        let mut builder = BatchBuilder::new(Codec::None);
        let value = next.as_ref().map(record::value);
        builder.append(desk.now.wall, Some(&record::key(&self.name)), value.as_deref(), []);
        let batch = builder.build();
        desk.effects.push(Effect::Log(own_log::Effect::Append { append, batch }));
        self.writing = Some(Writing { append, next, answers });
    }

    /// What was written is committed.
    pub(super) fn on_appended(&mut self, desk: &mut Desk<'_>) {
        let Some(Writing { next, answers, .. }) = self.writing.take() else { return };
        self.adopt(next, desk);
        for (request, outcome) in answers {
            self.answer(request, outcome, desk);
        }
        self.go_on(desk);
    }

    /// What was to be written is not: all is as before, and nobody was told otherwise.
    pub(super) fn on_append_refused(&mut self, desk: &mut Desk<'_>) {
        // zoo F17: the transition stays half done for ever.
        if mutant!("expiry-leaves-pending-state") {
            return;
        }
        reached!("transaction-append-refused");
        let Some(Writing { answers, .. }) = self.writing.take() else { return };
        for (request, _) in answers {
            self.answer(request, Outcome::Refused(Refusal::NotAvailable), desk);
        }
        self.retry = desk.now.monotonic + desk.limits.append_retry;
        self.take_turns(desk);
    }

    /// Makes true what is committed.
    fn adopt(&mut self, next: Option<State>, desk: &Desk<'_>) {
        let before = self.state.as_ref().map(|state| state.phase);
        self.state = next;
        let Some(state) = &self.state else { return };
        if state.phase == Phase::Ongoing && before != Some(Phase::Ongoing) {
            self.times_out = Some(desk.now.monotonic + state.timeout);
        }
        self.markers = match state.phase.prepared() {
            Some(_) => Markers::new(state.partitions.iter().cloned()),
            None => Markers::default(),
        };
    }

    /// As the log has it, read by a new leadership.
    pub(super) fn fold(&mut self, state: Option<State>) {
        self.state = state;
    }

    /// The whole log was read. A transaction has all of its time again: nobody could go on with it
    /// meanwhile.
    pub(super) fn on_loaded(&mut self, desk: &mut Desk<'_>) {
        let state = self.state.take();
        self.adopt(state, desk);
        self.go_on(desk);
    }

    /// Sends markers that are due, completes what has all of them, and hears who waits.
    pub(super) fn go_on(&mut self, desk: &mut Desk<'_>) {
        if self.writing.is_some() {
            return;
        }
        self.send_markers(desk);
        self.complete(desk);
        self.take_turns(desk);
    }

    fn send_markers(&mut self, desk: &mut Desk<'_>) {
        let Some(state) = &self.state else { return };
        let Some(ending) = state.phase.prepared() else { return };
        let next = &mut desk.counters.next_marker;
        let due = self.markers.due(desk.now.monotonic, desk.limits, || {
            *next = MarkerId(next.0 + 1);
            *next
        });
        for (partition, id) in due {
            desk.effects.push(Effect::SendMarker(Marker {
                id,
                transactional_id: self.name.clone(),
                partition,
                producer: state.producer,
                epoch: state.epoch,
                ending,
                coordinator_epoch: desk.leader_epoch,
                version: state.version,
            }));
        }
    }

    fn complete(&mut self, desk: &mut Desk<'_>) {
        if self.writing.is_some() || !self.markers.are_done() || self.retry > desk.now.monotonic {
            return;
        }
        let Some(state) = &self.state else { return };
        if let Some(completed) = rules::complete(state, desk.now.wall) {
            // Whoever waits to begin the next transaction need not wait for two records: that it
            // has begun says that the last one is completed.
            let mut answers = Vec::new();
            let next = self.gather(completed, &mut answers, desk);
            if !answers.is_empty() {
                reached!("transaction-begins-with-completion");
            }
            self.write(Some(next), answers, desk);
        }
    }

    pub(super) fn on_marker_answered(
        &mut self,
        marker: &Marker,
        result: MarkerResult,
        desk: &mut Desk<'_>,
    ) {
        let (partition, id) = (&marker.partition, marker.id);
        let now = desk.now.monotonic;
        // A coordinator that lived here before gave the same names.
        let is_mine = marker.coordinator_epoch == desk.leader_epoch || mutant!("pending-map-aba");
        if !is_mine || !self.markers.answered(partition, id, result, now, desk.limits) {
            reached!("marker-answered-late");
            // zoo F7: the second "all done" overwrites what has begun since.
            if mutant!("completion-written-twice") && self.writing.is_none() {
                let ended = State {
                    phase: Phase::prepare(marker.ending),
                    ..self.state.clone().expect("it had markers")
                };
                let next = rules::complete(&ended, desk.now.wall);
                self.write(next, Vec::new(), desk);
            }
            return;
        }
        self.go_on(desk);
    }

    /// The deadline has come.
    pub(super) fn on_tick(&mut self, desk: &mut Desk<'_>) {
        let Some(state) = &self.state else { return };
        if self.writing.is_none() && state.phase == Phase::Ongoing {
            if self.times_out.is_some_and(|due| due <= desk.now.monotonic) {
                reached!("transaction-timed-out");
                // Nobody took its place: it may hear of the abort and go on.
                let next = rules::fence(state, Some(state.epoch), desk.now.wall);
                self.write(Some(next), Vec::new(), desk);
            }
            return;
        }
        self.go_on(desk);
    }

    /// The coordinator itself was away: whoever could not reach it gets its time again.
    pub(super) fn forgive(&mut self, desk: &Desk<'_>) {
        let state = self.state.as_ref().filter(|state| state.phase == Phase::Ongoing);
        if let Some(state) = state {
            self.times_out = Some(desk.now.monotonic + state.timeout);
        }
    }

    /// Forgets the transactional id if nobody has used it for long.
    pub(super) fn expire(&mut self, today: Timestamp, desk: &mut Desk<'_>) {
        let Some(state) = &self.state else { return };
        let expiration = desk.limits.id_expiration;
        if self.writing.is_none() && rules::is_expired(state, expiration, today) {
            self.write(None, Vec::new(), desk);
        }
    }

    pub(super) fn on_cancelled(&mut self, request: RequestId) {
        self.queue.retain(|ask| ask.request() != request);
        if let Some(writing) = &mut self.writing {
            writing.answers.retain(|(waiting, _)| *waiting != request);
        }
    }

    /// Who waits is refused: this coordinator leads no more.
    pub(super) fn refuse_all(&mut self, effects: &mut Vec<Effect>) {
        let queued = self.queue.drain(..).map(|ask| ask.request());
        let writing = self.writing.take();
        let answers = writing.into_iter().flat_map(|writing| writing.answers);
        for request in answers.map(|(request, _)| request).chain(queued) {
            let outcome = Outcome::Refused(Refusal::NotCoordinator);
            effects.push(Effect::Reply { request, outcome });
        }
    }

    /// Whether the end of the transaction is on its way to the log.
    pub(super) fn is_ending(&self) -> bool {
        let next = self.writing.as_ref().and_then(|writing| writing.next.as_ref());
        next.is_some_and(|next| next.phase.prepared().is_some())
    }

    /// Who waits here.
    pub(super) fn waiting(&self) -> Vec<RequestId> {
        let answers = self.writing.iter().flat_map(|writing| &writing.answers);
        let queued = self.queue.iter().map(Ask::request);
        answers.map(|(request, _)| *request).chain(queued).collect()
    }

    pub(super) fn check(&self) {
        if let Some(state) = &self.state {
            state.check();
            let ends = state.phase != Phase::Ongoing || self.times_out.is_some();
            assert!(ends, "no transaction is for ever: {self:?}");
            let decided = self.markers.are_done() || state.phase.prepared().is_some();
            assert!(decided, "markers follow a decision: {self:?}");
        }
        if let Some(Writing { next: Some(next), .. }) = &self.writing {
            next.check();
        }
    }
}
