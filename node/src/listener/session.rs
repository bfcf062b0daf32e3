//! One client connection: frames become requests, requests become answers, answers leave in the
//! order of their requests. It knows nothing of what a request means.
//!
//! A session is one future that waits in one place. Each time it is woken it takes the answers
//! that are there, begins the requests that may begin, sends, and only then reads on; so whatever
//! stands still (the disk, the memory, the client) ends in not reading, never in a longer queue.
//!
//! Produce requests overlap: the next may begin once the one before has been handed to its
//! partitions. Any other request begins when everything before it is answered, as in Kafka, whose
//! clients rely on it.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use quorate_core::time::Instant;
use quorate_net::clock::{Clock, Sleep};
use quorate_net::connection::{Frames, Wants};
use quorate_net::kafka::frame::{
    Decoded, Encoded, RequestError, decode_counted, encode_response, unsupported_api_versions,
};
use quorate_net::kafka::header::RequestHeader;
use quorate_net::kafka::{ApiKey, Request, Response};
use quorate_net::transport::Stream;
use tokio::io::AsyncReadExt;

use super::api_versions;
use super::end::End;
use super::lending::AnswerPools;
use super::output::{Lent, MustLeave, Output};
use super::permits::{
    FREE_BYTES, FREE_DECODED_BYTES, Granting, Permit, RequestPools, SMALL_BYTES, Stage, hold,
};
use super::stop::{Ear, Pace, Stop};
use super::transfer::Transfer;
use crate::metrics::Metrics;

/// Unsent bytes from which on a client must read before its next request begins.
const UNSENT_MAX: usize = 64 * 1024;
/// A frame must have come as a whole after its time of grace and the time that it takes at this
/// rate: the large pool is not for those who trickle.
const FRAME_BYTES_A_SECOND_MIN: u64 = 1 << 20;
/// Rounds after which other tasks get their turn.
const ROUNDS_MAX: usize = 64;

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The address it comes from, without the port.
    pub(crate) host: String,
}

/// What a request comes to.
pub(crate) enum Answer {
    /// With the memory of the records in it.
    Send(Response, Option<Lent>),
    /// Nothing is sent, as the client asked (acks=0).
    Silence,
    /// Nothing can be sent: the connection is closed, for this reason.
    Close(String),
}

/// A request that has begun.
pub(crate) enum Started {
    Answered(Answer),
    /// The next request may begin, if it may overlap.
    Waiting(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

pub(crate) type Starting = Pin<Box<dyn Future<Output = Started> + Send>>;

/// What stands behind the connections.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Begins a request. The future may be dropped at any point if the client goes away.
    fn begin(&self, client: &Arc<Client>, header: &RequestHeader, request: Request) -> Starting;
}

/// What all sessions share.
pub(crate) struct Shared {
    pub(crate) serve: Arc<dyn Serve>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) pools: RequestPools,
    pub(crate) answers: AnswerPools,
    pub(crate) stop: Arc<Stop>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) limits: Limits,
}

/// The limits of one session; see the settings of the same names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) frame_bytes_max: usize,
    pub(crate) in_flight_max: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) receive_timeout: Duration,
    pub(crate) send_timeout: Duration,
    pub(crate) pressed_patience: Duration,
    pub(crate) request_time_max: Duration,
}

/// A request taken apart.
struct Next {
    header: RequestHeader,
    request: Request,
    /// For its parts, if they are many.
    permit: Option<Permit>,
}

/// A request and when it began; `T` is where it stands.
struct Asked<T> {
    header: RequestHeader,
    began: Instant,
    stands: T,
    /// For the parts of the request.
    permit: Option<Permit>,
}

pub(crate) struct Session {
    shared: Arc<Shared>,
    client: Arc<Client>,
    stream: Box<dyn Stream>,
    ear: Ear,
    now: Instant,
    frames: Frames,
    permit: Option<(Stage, Permit)>,
    granting: Option<(Stage, Granting)>,
    receiving: Transfer,
    /// The same for the patience that is left when others wait for the memory of the frame.
    pressed: Transfer,
    /// When to look again whether others wait for it.
    look_at: Instant,
    /// When the frame that is being received began.
    frame_began: Instant,
    /// How much to read when no frame has begun: as much as the frame before had.
    ahead: usize,
    /// Decoded, and waiting for its turn.
    next: Option<Next>,
    /// To be taken apart again, once there is memory for its parts.
    parked: Option<(Bytes, Granting)>,
    starting: Option<Asked<Starting>>,
    waiting: VecDeque<Asked<Pin<Box<dyn Future<Output = Answer> + Send>>>>,
    output: Output,
    sending: Transfer,
    /// Since when sending waits for the log, and not for the client.
    reads_since: Option<Instant>,
    /// Nothing more is read: the client has ended its side, or the node stops, or an answer was
    /// to close. What was begun is answered first.
    closing: Option<End>,
    active: Instant,
    timer: Option<(Instant, Sleep)>,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, client: Client, stream: Box<dyn Stream>) -> Self {
        let now = shared.clock.now().monotonic;
        Self {
            client: Arc::new(client),
            stream,
            ear: shared.stop.ear(),
            now,
            frames: Frames::new(shared.limits.frame_bytes_max),
            permit: None,
            granting: None,
            receiving: Transfer::default(),
            pressed: Transfer::default(),
            look_at: now,
            frame_began: now,
            ahead: FREE_BYTES,
            next: None,
            parked: None,
            starting: None,
            waiting: VecDeque::new(),
            output: Output::default(),
            sending: Transfer::default(),
            reads_since: None,
            closing: None,
            active: now,
            timer: None,
            shared,
        }
    }

    /// One round; whether anything moved.
    fn round(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let mut moved = self.take_answers(context)?;
        moved |= self.begin(context)?;
        moved |= self.send(context)?;
        if !moved {
            moved = self.receive(context)?;
        }
        Ok(moved)
    }

    /// Only the oldest is asked: the answers of the others keep, and leave later anyway.
    fn take_answers(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let mut moved = false;
        while let Some(oldest) = self.waiting.front_mut() {
            let Poll::Ready(answer) = oldest.stands.as_mut().poll(context) else { break };
            let asked = self.waiting.pop_front().expect("it was just there");
            self.put(&asked.header, answer)?;
            moved = true;
        }
        Ok(moved)
    }

    fn begin(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let mut moved = false;
        loop {
            if let Some(asked) = &mut self.starting {
                let Poll::Ready(started) = asked.stands.as_mut().poll(context) else { break };
                let Asked { header, began, permit, .. } =
                    self.starting.take().expect("it was just there");
                match started {
                    Started::Answered(answer) => self.put(&header, answer)?,
                    Started::Waiting(stands) => {
                        self.waiting.push_back(Asked { header, began, stands, permit });
                    }
                }
                moved = true;
            }
            if self.next.is_none() && !matches!(self.closing, Some(End::Refused(_))) {
                moved |= self.decode(context)?;
            }
            if !self.next_may_begin() {
                break;
            }
            let Some(Next { header, request, permit }) = self.next.take() else { break };
            let stands = self.shared.serve.begin(&self.client, &header, request);
            self.starting = Some(Asked { header, began: self.now, stands, permit });
        }
        Ok(moved)
    }

    fn next_may_begin(&self) -> bool {
        let Some(next) = &self.next else { return false };
        let turn = match next.header.key {
            ApiKey::Produce => self.waiting.len() < self.shared.limits.in_flight_max,
            _ => self.waiting.is_empty(),
        };
        turn && self.output.pending() < UNSENT_MAX
    }

    /// Takes the next whole frame apart.
    fn decode(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        if let Some((_, granting)) = &mut self.parked {
            let Poll::Ready(permit) = granting.as_mut().poll(context) else { return Ok(false) };
            let (frame, _) = self.parked.take().expect("it was just there");
            return self.take_apart(frame, Some(permit));
        }
        // A frame that came in the tail of another's bytes has no permit yet.
        if self.frames.wants()? != Wants::Frame || !self.permitted(self.whole(), context) {
            return Ok(false);
        }
        let Some(frame) = self.frames.next_frame()? else { return Ok(false) };
        self.shared.metrics.requests.add(1);
        self.active = self.now;
        self.granting = None;
        self.begin_frame();
        // Its length prefix included, and the beginning of the next.
        self.ahead = (frame.len() + FREE_BYTES).min(SMALL_BYTES);
        let frame = hold(frame, self.permit.take().map(|(_, permit)| permit));
        self.take_apart(frame, None)
    }

    fn take_apart(&mut self, frame: Bytes, mut permit: Option<Permit>) -> Result<bool, End> {
        match decode_counted(&frame) {
            Ok(Decoded { header, request, memory }) => {
                if permit.is_none() && memory > FREE_DECODED_BYTES {
                    let pool = self.shared.pools.decoded();
                    permit = pool.try_take(memory);
                    if permit.is_none() {
                        self.parked = Some((frame, pool.take(memory)));
                        return Ok(true);
                    }
                }
                self.next = Some(Next { header, request, permit });
            }
            Err(RequestError::UnsupportedVersion { key: ApiKey::ApiVersions, prefix }) => {
                // Answered in its turn: this one may not overtake either.
                if !self.waiting.is_empty() || self.starting.is_some() {
                    return Err(End::garbage("a version of ApiVersions beyond ours, pipelined"));
                }
                let chunks = unsupported_api_versions(
                    prefix.correlation_id,
                    api_versions::response(&BTreeMap::new()),
                )
                .map_err(End::garbage)?;
                self.push(Encoded { chunks, records: Vec::new() }, None);
            }
            Err(error) => return Err(End::garbage(error)),
        }
        Ok(true)
    }

    fn put(&mut self, header: &RequestHeader, answer: Answer) -> Result<(), End> {
        match answer {
            Answer::Send(response, lent) => {
                let encoded = encode_response(header.correlation_id, header.version, &response)
                    .map_err(End::garbage)?;
                self.push(encoded, lent);
            }
            Answer::Silence => {}
            Answer::Close(why) => {
                self.closing = Some(End::Refused(why));
                // What came after it is not answered, even where it has begun.
                self.waiting.clear();
                self.starting = None;
                self.next = None;
                self.parked = None;
            }
        }
        self.active = self.now;
        Ok(())
    }

    fn push(&mut self, encoded: Encoded, lent: Option<Lent>) {
        if self.output.pending() == 0 {
            self.sending = Transfer::start(self.now);
        }
        self.output.push(encoded, lent);
    }

    fn send(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let sent = self.output.poll_send(&mut *self.stream, context);
        match (self.output.is_reading(), self.reads_since) {
            (true, None) => self.reads_since = Some(self.now),
            (false, Some(since)) => {
                self.sending.excuse(self.now.saturating_since(since));
                self.reads_since = None;
            }
            _ => {}
        }
        match sent {
            Poll::Pending => {
                let rested = self.output.rest(self.now, &self.shared.answers, context);
                rested.map_err(|MustLeave| End::SlowReader)?;
                Ok(false)
            }
            Poll::Ready(Err(error)) => Err(End::Io(error)),
            Poll::Ready(Ok(bytes)) => {
                self.sending.moved(self.now, bytes, self.shared.limits.send_timeout);
                self.shared.metrics.bytes_sent.add(bytes as u64);
                Ok(true)
            }
        }
    }

    fn receive(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        if self.closing.is_some() {
            return Ok(false);
        }
        let room = match self.frames.wants()? {
            Wants::Frame => return Ok(false),
            Wants::Length => self.room_ahead(),
            Wants::Body { length, missing } => {
                let received = length - missing;
                let stage = Stage::of(length, received);
                if !self.permitted(stage, context) {
                    return Ok(false);
                }
                stage.bytes().min(length) - received
            }
        };
        let mid_frame = self.frames.buffered() > 0;
        let buffer = self.frames.room_up_to(room);
        let read = pin!(self.stream.read_buf(buffer));
        match read.poll(context) {
            Poll::Pending => {
                if !mid_frame {
                    // Who sends nothing holds nothing.
                    self.permit = None;
                }
                Ok(false)
            }
            Poll::Ready(Err(error)) => Err(End::Io(error)),
            Poll::Ready(Ok(0)) => {
                self.closing = Some(End::Left);
                Ok(true)
            }
            Poll::Ready(Ok(bytes)) => {
                if !mid_frame {
                    self.begin_frame();
                }
                let limits = &self.shared.limits;
                self.receiving.moved(self.now, bytes, limits.receive_timeout);
                self.pressed.moved(self.now, bytes, limits.pressed_patience);
                self.shared.metrics.bytes_received.add(bytes as u64);
                self.active = self.now;
                Ok(true)
            }
        }
    }

    fn begin_frame(&mut self) {
        self.receiving = Transfer::start(self.now);
        self.pressed = self.receiving;
        self.frame_began = self.now;
    }

    /// When the frame that is being received must be whole.
    fn frame_deadline(&self, grace: Duration) -> Instant {
        let length = self.frames.next_length().unwrap_or(0) as u64;
        self.frame_began + grace + Duration::from_millis(length * 1000 / FRAME_BYTES_A_SECOND_MIN)
    }

    /// Whether somebody waits for memory of the pool that the frame being received holds some of.
    fn is_pressed(&self) -> bool {
        let held = self.permit.as_ref().and_then(|(stage, _)| self.shared.pools.of(*stage));
        held.is_some_and(|(pool, _)| pool.waiting() > 0)
    }

    /// The stage of a frame that has come as a whole.
    fn whole(&self) -> Stage {
        let length = self.frames.next_length().unwrap_or(0);
        Stage::of(length, length)
    }

    /// Bytes to read before a frame has begun: more than the free ones only if they are permitted
    /// at once.
    fn room_ahead(&mut self) -> usize {
        if self.ahead <= 2 * FREE_BYTES {
            return FREE_BYTES;
        }
        let stage = Stage::Small(self.ahead);
        if !self.permit.as_ref().is_some_and(|(held, _)| held.covers(stage)) {
            let Some((pool, bytes)) = self.shared.pools.of(stage) else { return FREE_BYTES };
            let Some(permit) = pool.try_take(bytes) else { return FREE_BYTES };
            self.permit = Some((stage, permit));
        }
        self.ahead
    }

    /// Whether `stage` is permitted; if not yet, the task is woken when it is.
    fn permitted(&mut self, stage: Stage, context: &mut Context<'_>) -> bool {
        let Some((pool, bytes)) = self.shared.pools.of(stage) else { return true };
        if self.permit.as_ref().is_some_and(|(held, _)| held.covers(stage)) {
            return true;
        }
        if self.granting.as_ref().is_none_or(|(asked, _)| *asked != stage) {
            // Two that keep what they read ahead under would wait for each other for ever.
            let keeps = |(held, _): &(Stage, Permit)| !held.waits_in_the_way_of(stage);
            self.permit = self.permit.take().filter(keeps);
            if let Some(permit) = pool.try_take(bytes) {
                self.permit = Some((stage, permit));
                return true;
            }
            self.granting = Some((stage, pool.take(bytes)));
        }
        let Some((_, granting)) = &mut self.granting else { return false };
        let Poll::Ready(permit) = granting.as_mut().poll(context) else { return false };
        self.granting = None;
        self.permit = Some((stage, permit));
        // The client is not to blame for the time that this took.
        self.begin_frame();
        true
    }

    fn listen_for_stop(&mut self, context: &mut Context<'_>) -> Result<(), End> {
        match self.ear.poll(context) {
            Pace::Serve => Ok(()),
            Pace::Drain => {
                self.closing.get_or_insert(End::Stopped);
                Ok(())
            }
            Pace::Cut => Err(End::Stopped),
        }
    }

    /// With the session closing: whether the last answer has left.
    fn finished(&mut self) -> bool {
        // Nobody would take its answer, and it may wait long.
        let idles = |key| matches!(key, ApiKey::Fetch | ApiKey::JoinGroup | ApiKey::SyncGroup);
        if self.starting.as_ref().is_some_and(|asked| idles(asked.header.key)) {
            self.starting = None;
        }
        self.next.is_none()
            && self.parked.is_none()
            && self.starting.is_none()
            && self.waiting.is_empty()
            && self.output.pending() == 0
            && (matches!(self.closing, Some(End::Refused(_)))
                || !matches!(self.frames.wants(), Ok(Wants::Frame)))
    }

    /// The first of the times at which the patience ends, and with what.
    fn deadline(&self) -> (Instant, End) {
        let limits = &self.shared.limits;
        let mut first = (self.active + limits.idle_timeout, End::Idle);
        let oldest = self.waiting.front().map(|asked| asked.began);
        let working = oldest.or_else(|| self.starting.as_ref().map(|asked| asked.began));
        if let Some(began) = working {
            first = (began + limits.request_time_max, End::TookTooLong);
        }
        let sooner = |first: &mut (Instant, End), at: Instant, end: End| {
            if at < first.0 {
                *first = (at, end);
            }
        };
        if self.output.pending() > 0 && !self.output.is_reading() {
            sooner(&mut first, self.sending.deadline(limits.send_timeout), End::SlowReader);
        }
        // Who closes does not read any more: that is not the sender's fault.
        let mid_frame = self.frames.buffered() > 0
            && self.closing.is_none()
            && self.granting.is_none()
            && !matches!(self.frames.wants(), Ok(Wants::Frame));
        if mid_frame {
            sooner(&mut first, self.receiving.deadline(limits.receive_timeout), End::SlowSender);
            sooner(&mut first, self.frame_deadline(limits.receive_timeout), End::SlowSender);
            if self.permit.is_some() {
                let patience = limits.pressed_patience;
                let behind = self.pressed.deadline(patience).min(self.frame_deadline(patience));
                sooner(&mut first, behind.max(self.look_at), End::InTheWay);
            }
        }
        first
    }

    /// Ready when the patience has ended; otherwise the task is woken in time.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<End> {
        loop {
            let (deadline, end) = self.deadline();
            if deadline <= self.now {
                if matches!(end, End::InTheWay) && !self.is_pressed() {
                    self.look_at = self.now + self.shared.limits.pressed_patience;
                    continue;
                }
                return Poll::Ready(end);
            }
            // A timer that is early is left to run: moving it at each request would cost more.
            let armed = self.timer.take().filter(|(at, _)| *at <= deadline);
            let (at, mut sleep) =
                armed.unwrap_or_else(|| (deadline, self.shared.clock.sleep_until(deadline)));
            match sleep.as_mut().poll(context) {
                Poll::Pending => {
                    self.timer = Some((at, sleep));
                    return Poll::Pending;
                }
                Poll::Ready(()) => self.now = self.shared.clock.now().monotonic,
            }
        }
    }
}

impl Future for Session {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<End> {
        let this = &mut *self;
        this.now = this.shared.clock.now().monotonic;
        if let Err(end) = this.listen_for_stop(context) {
            return Poll::Ready(end);
        }
        for _ in 0..ROUNDS_MAX {
            match this.round(context) {
                Ok(true) => {}
                Ok(false) => {
                    if this.closing.is_some() && this.finished() {
                        return Poll::Ready(this.closing.take().expect("it was just there"));
                    }
                    return this.poll_deadline(context);
                }
                Err(end) => return Poll::Ready(end),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
