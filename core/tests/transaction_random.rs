//! Random walks of a transaction coordinator beside a slow twin that knows nothing but the records
//! that are committed. The log takes, refuses and loses; markers fail, come late and twice; a
//! failover comes at any moment. What is told is what the log says, one transaction has one end, no
//! epoch goes back, and all comes to an end once everything works.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::batch::control::Ending;
use quorate_core::batch::{Batch, Records};
use quorate_core::id::{LeaderEpoch, ProducerEpoch, ProducerId, RequestId};
use quorate_core::machine::Machine;
use quorate_core::own_log::{self, AppendId};
use quorate_core::time::{Instant, Now, Timestamp};
use quorate_core::transaction::Transactions;
use quorate_core::transaction::interface::{
    AddPartitions, Claim, Effect, End, InitProducer, Input, Marker, MarkerResult, Outcome, Phase,
    TopicPartition, TransactionLimits, TransactionVersion,
};
use quorate_core::transaction::record;
use quorate_core::transaction::state::State;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const IDS: [&str; 2] = ["x", "y"];

/// What was asked, until it is answered.
#[derive(Clone, Debug)]
enum Asked {
    Init,
    Add(Claim, Vec<TopicPartition>),
    Verify(Claim, Vec<TopicPartition>),
    End(Claim, Ending),
}

struct Walk {
    rng: ChaCha8Rng,
    transactions: Transactions,
    now: Instant,
    requests: u64,
    elections: i32,
    fresh: i64,
    open: BTreeMap<RequestId, Asked>,
    log: Vec<Batch>,
    in_flight: Vec<(AppendId, Batch)>,
    /// On their way, in any order.
    markers: Vec<Marker>,
    /// Who producers are, or were.
    told: Vec<Claim>,
    twin: Twin,
}

/// The committed records, read one by one.
#[derive(Default)]
struct Twin {
    states: BTreeMap<String, State>,
    /// All that was ever decided, by the marker's producer and epoch.
    ends: BTreeMap<(ProducerId, ProducerEpoch), (Ending, BTreeSet<TopicPartition>)>,
    /// Partitions that have their marker.
    marked: BTreeSet<(ProducerId, ProducerEpoch, TopicPartition)>,
    /// Partitions that were ever in a transaction.
    added: BTreeSet<(ProducerId, ProducerEpoch, TopicPartition)>,
    producers: BTreeSet<ProducerId>,
}

impl Twin {
    fn read(&mut self, batch: &Batch) {
        for read in Records::new(batch.records(), batch.header().record_count()) {
            let read = read.unwrap();
            let name = record::read_key(read.key.unwrap()).unwrap();
            let Some(value) = read.value else {
                assert!(self.states[&name].phase.is_idle(), "no transaction is forgotten");
                self.states.remove(&name);
                continue;
            };
            let state = record::read_value(value).unwrap();
            self.follow(&name, &state);
            self.states.insert(name, state);
        }
    }

    /// Whether this may come after what was there.
    fn follow(&mut self, name: &str, state: &State) {
        let before = self.states.get(name);
        match before {
            Some(before) if before.producer == state.producer => {
                assert!(before.epoch <= state.epoch, "an epoch goes back: {before:?} {state:?}");
            }
            _ => assert!(self.producers.insert(state.producer), "given twice: {state:?}"),
        }
        let phase = before.map_or(Phase::Empty, |before| before.phase);
        for partition in &state.partitions {
            self.added.insert((state.producer, state.epoch, partition.clone()));
        }
        if let Some(ending) = state.phase.prepared() {
            assert!(phase.prepared().is_none(), "decided again: {state:?}");
            let end = (ending, state.partitions.clone());
            let known = self.ends.insert((state.producer, state.epoch), end);
            let again = state.version < TransactionVersion::V2;
            assert!(known.is_none() || again, "one epoch, one end: {state:?}");
        }
        if let Some(ending) = state.phase.completed() {
            assert_eq!(phase.prepared(), Some(ending), "completed as decided: {state:?}");
        }
        // What is decided is completed by a record of its own, or by the begin of what comes next.
        if let Some(before) = before.filter(|before| before.phase.prepared().is_some()) {
            let rotated = state.producer != before.producer;
            let next = if rotated { ProducerEpoch(0) } else { before.epoch };
            let follows = state.phase == Phase::Ongoing || state.phase.completed().is_some();
            assert!(follows, "a decision is not taken back: {state:?}");
            assert_eq!(state.epoch, next, "{before:?} {state:?}");
            for partition in &before.partitions {
                let marker = (before.producer, before.epoch, partition.clone());
                assert!(self.marked.contains(&marker), "completed without {marker:?}: {state:?}");
            }
        }
    }
}

fn limits() -> TransactionLimits {
    TransactionLimits { ids_max: 2, waiting_max: 8, ..TransactionLimits::default() }
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            transactions: Transactions::new(limits()),
            now: Instant::ZERO,
            requests: 0,
            elections: 0,
            fresh: 100,
            open: BTreeMap::new(),
            log: Vec::new(),
            in_flight: Vec::new(),
            markers: Vec::new(),
            told: Vec::new(),
            twin: Twin::default(),
        }
    }

    fn step(&mut self, input: Input) {
        let wall = i64::try_from(self.now.as_duration().as_millis()).unwrap();
        let now = Now { monotonic: self.now, wall: Timestamp(wall) };
        let mut effects = Vec::new();
        self.transactions.step(now, input, &mut effects);
        self.transactions.check();
        for effect in effects {
            match effect {
                Effect::Log(own_log::Effect::Replay) => {}
                Effect::Log(own_log::Effect::Append { append, batch }) => {
                    self.in_flight.push((append, batch));
                }
                Effect::Reply { request, outcome } => self.on_reply(request, &outcome),
                Effect::SendMarker(marker) => self.on_marker(marker),
            }
        }
    }

    fn on_marker(&mut self, marker: Marker) {
        let decided = &self.twin.ends[&(marker.producer, marker.epoch)];
        assert_eq!(decided.0, marker.ending, "a marker says what the log says: {marker:?}");
        assert!(decided.1.contains(&marker.partition), "{marker:?}");
        assert_eq!(marker.coordinator_epoch, LeaderEpoch(self.elections));
        self.markers.push(marker);
    }

    fn on_reply(&mut self, request: RequestId, outcome: &Outcome) {
        let asked = self.open.remove(&request).expect("one answer a request");
        match (asked, outcome) {
            (Asked::Init, Outcome::Initialized { producer, epoch }) => {
                self.learn(*producer, *epoch);
            }
            (Asked::Add(claim, partitions), Outcome::Added) => {
                for partition in partitions {
                    let added = (claim.producer, claim.epoch, partition);
                    assert!(self.twin.added.contains(&added), "told before it is true: {added:?}");
                }
            }
            (Asked::Verify(claim, partitions), Outcome::Verified(within)) => {
                let state = &self.twin.states[&claim.transactional_id];
                for (partition, within) in partitions.iter().zip(within) {
                    let there = (state.producer, state.epoch) == (claim.producer, claim.epoch)
                        && state.partitions.contains(partition);
                    assert_eq!(*within, there, "{claim:?} {partition:?}");
                }
            }
            (Asked::End(claim, ending), Outcome::Ended { producer, epoch }) => {
                let bumped = ProducerEpoch(claim.epoch.0 + 1);
                let ends = [bumped, claim.epoch].map(|epoch| (claim.producer, epoch));
                let decided = ends.iter().filter_map(|end| self.twin.ends.get(end));
                let same = decided.clone().any(|decided| decided.0 == ending);
                assert!(same, "{claim:?} was told {ending:?}, and the log says otherwise");
                self.learn(*producer, *epoch);
            }
            (_, Outcome::Refused(_) | Outcome::NeedsProducerId) => {}
            (asked, outcome) => panic!("{asked:?} was answered {outcome:?}"),
        }
    }

    fn learn(&mut self, producer: ProducerId, epoch: ProducerEpoch) {
        for name in IDS {
            let transactional_id = name.to_owned();
            self.told.push(Claim { transactional_id, producer, epoch });
        }
    }

    fn ask(&mut self, asked: Asked, input: impl FnOnce(RequestId) -> Input) {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.open.insert(request, asked);
        self.step(input(request));
    }

    /// Often the last one that anybody was told, sometimes somebody long gone.
    fn claim(&mut self) -> Claim {
        let lately = self.told.len().saturating_sub(6);
        let from = if self.rng.random_bool(0.8) { lately } else { 0 };
        match self.told[from..].choose(&mut self.rng) {
            Some(claim) => claim.clone(),
            None => Claim {
                transactional_id: "x".to_owned(),
                producer: ProducerId(1),
                epoch: ProducerEpoch(0),
            },
        }
    }

    fn partitions(&mut self) -> Vec<TopicPartition> {
        let count = self.rng.random_range(1..3);
        let mut one =
            || TopicPartition { topic: "t".to_owned(), partition: self.rng.random_range(0..3) };
        (0..count).map(|_| one()).collect()
    }

    fn fresh(&mut self) -> Option<ProducerId> {
        self.fresh += 1;
        self.rng.random_bool(0.9).then_some(ProducerId(self.fresh))
    }

    fn version(&mut self) -> TransactionVersion {
        if self.rng.random_bool(0.8) { TransactionVersion::V2 } else { TransactionVersion::V1 }
    }

    fn act(&mut self) {
        match self.rng.random_range(0..100) {
            0..10 => {
                let transactional_id = (*IDS.choose(&mut self.rng).unwrap()).to_owned();
                let claim = self.claim();
                let is_named = self.rng.random_bool(0.4);
                let current = is_named.then_some((claim.producer, claim.epoch));
                let timeout = Duration::from_secs(self.rng.random_range(1..60));
                let fresh = self.fresh();
                self.ask(Asked::Init, |request| {
                    Input::InitProducer(InitProducer {
                        request,
                        transactional_id,
                        timeout,
                        current,
                        fresh,
                    })
                });
            }
            10..30 => {
                let (claim, partitions) = (self.claim(), self.partitions());
                let version = self.version();
                self.ask(Asked::Add(claim.clone(), partitions.clone()), |request| {
                    Input::AddPartitions(AddPartitions { request, claim, partitions, version })
                });
            }
            30..35 => {
                let (claim, partitions) = (self.claim(), self.partitions());
                self.ask(Asked::Verify(claim.clone(), partitions.clone()), |request| {
                    Input::Verify { request, claim, partitions }
                });
            }
            35..50 => {
                let claim = self.claim();
                let commits = self.rng.random_bool(0.6);
                let ending = if commits { Ending::Committed } else { Ending::Aborted };
                let (version, fresh) = (self.version(), self.fresh());
                self.ask(Asked::End(claim.clone(), ending), |request| {
                    Input::End(End { request, claim, ending, version, fresh })
                });
            }
            50..70 => self.answer_log(0.9),
            70..86 => self.answer_marker(0.8),
            86..94 => {
                self.pass(Duration::from_millis(self.now.as_duration().as_millis() as u64 % 977))
            }
            94..96 => self.pass(Duration::from_secs(20)),
            96..98 => self.cancel(),
            _ => self.fail_over(),
        }
    }

    fn cancel(&mut self) {
        let open: Vec<_> = self.open.keys().copied().collect();
        if let Some(&request) = open.choose(&mut self.rng) {
            self.open.remove(&request);
            self.step(Input::Cancelled { request });
        }
    }

    fn answer_log(&mut self, works: f64) {
        if self.in_flight.is_empty() {
            return;
        }
        let (append, batch) = self.in_flight.remove(0);
        if self.rng.random_bool(works) {
            self.twin.read(&batch);
            self.log.push(batch);
            self.step(Input::Log(own_log::Input::Appended { append }));
        } else {
            self.step(Input::Log(own_log::Input::AppendRefused { append }));
        }
    }

    fn answer_marker(&mut self, works: f64) {
        if self.markers.is_empty() {
            return;
        }
        let place = self.rng.random_range(0..self.markers.len());
        // Answers come twice, too.
        let marker = if self.rng.random_bool(0.9) {
            self.markers.swap_remove(place)
        } else {
            self.markers[place].clone()
        };
        let result = match self.rng.random_bool(works) {
            true => {
                let Marker { producer, epoch, partition, .. } = marker.clone();
                self.twin.marked.insert((producer, epoch, partition));
                MarkerResult::Done
            }
            false => MarkerResult::Failed,
        };
        self.step(Input::MarkerAnswered { marker, result });
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(deadline) = self.transactions.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(deadline);
            self.step(Input::Tick);
            let next = self.transactions.deadline();
            assert!(next.is_none_or(|next| next > self.now), "a tick moves the deadline");
        }
        self.now = until;
    }

    /// A part of what is in flight reaches the successor; the rest is gone.
    fn fail_over(&mut self) {
        if self.rng.random_bool(0.5) {
            self.transactions = Transactions::new(limits());
            self.open.clear();
            // A new process cannot be told of markers that it has not sent.
            self.markers.clear();
        } else {
            self.step(Input::Log(own_log::Input::Resigned));
            assert!(self.open.is_empty(), "who waits is refused");
        }
        let kept = self.rng.random_range(0..=self.in_flight.len());
        for (_, batch) in self.in_flight.drain(..).take(kept) {
            self.twin.read(&batch);
            self.log.push(batch);
        }
        self.elections += 1;
        let leader_epoch = LeaderEpoch(self.elections);
        self.step(Input::Log(own_log::Input::Elected { leader_epoch }));
        for batch in self.log.clone() {
            self.step(Input::Log(own_log::Input::Replayed { batch }));
        }
        self.step(Input::Log(own_log::Input::ReplayEnded));
        let known: Vec<_> =
            self.twin.states.iter().map(|(name, state)| line(name, state)).collect();
        let status = self.transactions.status().replace(" (writing)", "");
        assert_eq!(status.lines().collect::<Vec<_>>(), known, "as the log has it");
    }

    /// From here on everything works.
    fn heal(&mut self) {
        for _ in 0..200 {
            while !self.in_flight.is_empty() {
                self.answer_log(1.0);
            }
            while !self.markers.is_empty() {
                self.answer_marker(1.0);
            }
            self.pass(Duration::from_secs(1));
        }
        assert!(self.open.is_empty(), "all are answered: {:?}", self.open);
        for (name, state) in &self.twin.states {
            assert!(state.phase.is_idle(), "{name} hangs: {state:?}");
        }
    }
}

fn line(name: &str, state: &State) -> String {
    let mut out = format!("{name} {}/{} {}", state.producer, state.epoch, state.phase.name());
    if state.next_producer.is_some() {
        out += &format!(" next={}", state.next_producer);
    }
    for TopicPartition { topic, partition } in &state.partitions {
        out += &format!(" {topic}-{partition}");
    }
    out
}

fn walk(seed: u64) {
    let mut walk = Walk::new(seed);
    walk.fail_over();
    for _ in 0..400 {
        walk.act();
    }
    walk.heal();
}

#[test]
fn coordinators_keep_their_word() {
    for seed in 0..300 {
        walk(seed);
    }
}

/// `cargo planted`.
#[cfg(mutants)]
#[test]
fn planted_bugs_are_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for slug in [
        "completion-written-twice",
        "expiry-leaves-pending-state",
        "late-endtxn-ends-next-txn",
        "partition-add-in-memory",
        "pending-map-aba",
        "transaction-answer-before-log",
    ] {
        let caught = (0..300).any(|seed| {
            quorate_core::mutant::choose(Some(slug));
            let walked = std::panic::catch_unwind(|| walk(seed));
            quorate_core::mutant::choose(None);
            walked.is_err()
        });
        if !caught {
            missed.push(slug);
        }
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "nobody notices {missed:?}");
}
