//! A transaction coordinator under a script: its clocks, its log, and the markers that it sends.

use std::time::Duration;

use quorate_core::batch::control::Ending;
use quorate_core::batch::{Batch, BatchBuilder, Codec, Records};
use quorate_core::id::{LeaderEpoch, ProducerEpoch, ProducerId, RequestId};
use quorate_core::machine::Machine;
use quorate_core::own_log::{self, AppendId};
use quorate_core::time::{Instant, Now, Timestamp};
use quorate_core::transaction::Transactions;
use quorate_core::transaction::interface::{
    AddPartitions, Claim, Effect, End, InitProducer, Input, List, Marker, MarkerResult, Outcome,
    Phase, TopicPartition, TransactionLimits, TransactionVersion,
};
use quorate_core::transaction::record;

pub(crate) struct Coordinator {
    transactions: Transactions,
    now: Instant,
    /// By how much the wall clock is ahead of the monotonic one.
    ahead: Duration,
    requests: u64,
    elections: i32,
    /// What is committed, and what the log has not answered yet.
    log: Vec<Batch>,
    in_flight: Vec<(AppendId, Batch)>,
    /// All that were ever sent, in their order.
    markers: Vec<Marker>,
}

/// `key=value` words of a command, and the words without `=`.
struct Words<'a> {
    plain: Vec<&'a str>,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn new(command: &'a str) -> Self {
        let (mut plain, mut pairs) = (Vec::new(), Vec::new());
        for word in command.split_whitespace() {
            match word.split_once('=') {
                Some(pair) => pairs.push(pair),
                None => plain.push(word),
            }
        }
        Self { plain, pairs }
    }

    fn named(&self, name: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn fresh(&self) -> Option<ProducerId> {
        self.named("fresh").map(|id| ProducerId(id.parse().expect("a producer id")))
    }

    fn version(&self) -> TransactionVersion {
        let version = self.named("v").map(|version| version.parse().expect("a version"));
        TransactionVersion(version.unwrap_or(2))
    }

    /// `X PID/EPOCH` behind the command.
    fn claim(&self) -> Claim {
        let (producer, epoch) = identity(self.plain[2]);
        Claim { transactional_id: self.plain[1].to_owned(), producer, epoch }
    }

    fn partitions(&self) -> Vec<TopicPartition> {
        self.plain[3..].iter().map(|text| partition(text)).collect()
    }
}

fn identity(text: &str) -> (ProducerId, ProducerEpoch) {
    let (producer, epoch) = text.split_once('/').expect("PID/EPOCH");
    let producer = ProducerId(producer.parse().expect("a producer id"));
    (producer, ProducerEpoch(epoch.parse().expect("an epoch")))
}

fn duration(text: &str) -> Duration {
    if let Some(millis) = text.strip_suffix("ms") {
        return Duration::from_millis(millis.parse().expect("milliseconds"));
    }
    if let Some(days) = text.strip_suffix('d') {
        return Duration::from_secs(days.parse::<u64>().expect("days") * 24 * 3600);
    }
    Duration::from_secs(text.strip_suffix('s').expect("a unit").parse().expect("seconds"))
}

fn partition(text: &str) -> TopicPartition {
    let (topic, partition) = text.rsplit_once('-').expect("topic-partition");
    TopicPartition { topic: topic.to_owned(), partition: partition.parse().expect("a number") }
}

fn shown(partition: &TopicPartition) -> String {
    format!("{}-{}", partition.topic, partition.partition)
}

fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Committed => "commit",
        Ending::Aborted => "abort",
    }
}

impl Coordinator {
    pub(crate) fn new() -> Self {
        Self {
            transactions: Transactions::new(limits()),
            now: Instant::ZERO,
            ahead: Duration::ZERO,
            requests: 0,
            elections: 0,
            log: Vec::new(),
            in_flight: Vec::new(),
            markers: Vec::new(),
        }
    }

    /// Carries out one command and says what came of it.
    pub(crate) fn run(&mut self, command: &str) -> Vec<String> {
        let words = Words::new(command);
        match words.plain[0] {
            "crash" => {
                self.transactions = Transactions::new(limits());
                self.in_flight.clear();
                Vec::new()
            }
            "elected" => {
                let epoch = words.plain.get(1).map(|epoch| epoch.parse().expect("an epoch"));
                self.elections = epoch.unwrap_or(self.elections + 1);
                let leader_epoch = LeaderEpoch(self.elections);
                self.step(Input::Log(own_log::Input::Elected { leader_epoch }))
            }
            "resign" => self.step(Input::Log(own_log::Input::Resigned)),
            "replay" => self.replay(),
            "wait" => self.wait(duration(words.plain[1])),
            "pause" => {
                self.now = self.now + duration(words.plain[1]);
                self.step(Input::Tick)
            }
            "clock" => {
                self.ahead += duration(words.plain[1]);
                Vec::new()
            }
            "log" => self.answer_log(&words),
            "exhaust" => self.exhaust(words.plain[1]),
            "status" => self.transactions.status().lines().map(str::to_owned).collect(),
            "cancel" => {
                let request = words.plain[1].strip_prefix('r').expect("rN").parse().expect("rN");
                self.step(Input::Cancelled { request: RequestId(request) })
            }
            "done" => self.answer_marker(&words, MarkerResult::Done),
            "gone" => self.answer_marker(&words, MarkerResult::Gone),
            "failed" => self.answer_marker(&words, MarkerResult::Failed),
            "fenced" => self.answer_marker(&words, MarkerResult::CoordinatorFenced),
            _ => {
                self.requests += 1;
                let input = request(&words, RequestId(self.requests));
                self.step(input)
            }
        }
    }

    fn step(&mut self, input: Input) -> Vec<String> {
        let wall = self.now.as_duration() + self.ahead + Duration::from_secs(1000);
        let wall = Timestamp(i64::try_from(wall.as_millis()).unwrap());
        let mut effects = Vec::new();
        self.transactions.step(Now { monotonic: self.now, wall }, input, &mut effects);
        self.transactions.check();
        effects.into_iter().filter_map(|effect| self.report(effect)).collect()
    }

    fn report(&mut self, effect: Effect) -> Option<String> {
        match effect {
            Effect::Log(own_log::Effect::Replay) => Some("replay".to_owned()),
            Effect::Log(own_log::Effect::Append { append, batch }) => {
                let line = format!("append {}", records(&batch));
                self.in_flight.push((append, batch));
                Some(line)
            }
            Effect::Reply { request, outcome } => Some(format!("r{request} {}", told(&outcome))),
            Effect::SendMarker(marker) => {
                let line = format!(
                    "marker m{} {} {} {}/{} {} coordinator={} v={}",
                    marker.id.0,
                    marker.transactional_id,
                    shown(&marker.partition),
                    marker.producer,
                    marker.epoch,
                    ending(marker.ending),
                    marker.coordinator_epoch,
                    marker.version.0
                );
                self.markers.push(marker);
                Some(line)
            }
        }
    }

    fn replay(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for batch in self.log.clone() {
            lines.extend(self.step(Input::Log(own_log::Input::Replayed { batch })));
        }
        lines.extend(self.step(Input::Log(own_log::Input::ReplayEnded)));
        lines
    }

    /// As 32766 transactions would leave it: the log has it, and a successor reads it.
    fn exhaust(&mut self, name: &str) -> Vec<String> {
        let mut found = None;
        for batch in &self.log {
            for read in Records::new(batch.records(), batch.header().record_count()) {
                let read = read.unwrap();
                if read.key == Some(&record::key(name)) {
                    found = read.value.map(|value| record::read_value(value).unwrap());
                }
            }
        }
        let mut state = found.expect("a known id");
        state.epoch = ProducerEpoch(i16::MAX - 1);
        let mut builder = BatchBuilder::new(Codec::None);
        let value = record::value(&state);
        builder.append(Timestamp(0), Some(&record::key(name)), Some(&value), []);
        self.log.push(builder.build());
        self.run("elected");
        self.replay()
    }

    fn wait(&mut self, duration: Duration) -> Vec<String> {
        let until = self.now + duration;
        let mut lines = Vec::new();
        while let Some(deadline) = self.transactions.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(deadline);
            let at = self.now;
            let ticked = self.step(Input::Tick);
            lines.extend(ticked.into_iter().map(|line| format!("{at} {line}")));
            let next = self.transactions.deadline();
            assert!(next.is_none_or(|next| next > at), "a tick moves the deadline: {next:?}");
        }
        self.now = until;
        lines
    }

    fn answer_log(&mut self, words: &Words<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        let count = if words.plain.contains(&"one") { 1 } else { self.in_flight.len() };
        for (append, batch) in self.in_flight.drain(..count).collect::<Vec<_>>() {
            let input = if words.plain.contains(&"refuse") {
                own_log::Input::AppendRefused { append }
            } else {
                self.log.push(batch);
                own_log::Input::Appended { append }
            };
            lines.extend(self.step(Input::Log(input)));
        }
        lines
    }

    fn answer_marker(&mut self, words: &Words<'_>, result: MarkerResult) -> Vec<String> {
        let wanted = partition(words.plain[1]);
        let named = words.plain.get(2).map(|name| {
            let (id, epoch) = name.split_once('@').unwrap_or((name, ""));
            let id = id.strip_prefix('m').expect("mN").parse::<u64>().expect("mN");
            (id, epoch.parse::<i32>().ok())
        });
        let found = self.markers.iter().rev().find(|marker| {
            marker.partition == wanted
                && named.is_none_or(|(id, epoch)| {
                    marker.id.0 == id && epoch.is_none_or(|it| marker.coordinator_epoch.0 == it)
                })
        });
        let marker = found.unwrap_or_else(|| panic!("no marker for {wanted:?}")).clone();
        self.step(Input::MarkerAnswered { marker, result })
    }
}

fn limits() -> TransactionLimits {
    TransactionLimits {
        ids_max: 3,
        partitions_max: 3,
        waiting_max: 6,
        timeout_max: Duration::from_secs(900),
        ..TransactionLimits::default()
    }
}

fn request(words: &Words<'_>, request: RequestId) -> Input {
    match words.plain[0] {
        "init" => Input::InitProducer(InitProducer {
            request,
            transactional_id: words.plain.get(1).copied().unwrap_or_default().to_owned(),
            timeout: words.named("timeout").map_or(Duration::from_secs(60), duration),
            current: words.named("as").map(identity),
            fresh: words.fresh(),
        }),
        "add" => Input::AddPartitions(AddPartitions {
            request,
            claim: words.claim(),
            partitions: words.partitions(),
            version: words.version(),
        }),
        "verify" => Input::Verify { request, claim: words.claim(), partitions: words.partitions() },
        "end" => Input::End(End {
            request,
            claim: words.claim(),
            ending: match words.plain[3] {
                "commit" => Ending::Committed,
                "abort" => Ending::Aborted,
                other => panic!("{other} is no end"),
            },
            version: words.version(),
            fresh: words.fresh(),
        }),
        "list" => {
            let named = |name: &&str| Phase::ALL.into_iter().find(|phase| phase.name() == *name);
            let producer = words.named("producer").map(|id| ProducerId(id.parse().unwrap()));
            Input::List(List {
                request,
                phases: words.plain[1..].iter().map(|name| named(name).expect("a phase")).collect(),
                producers: producer.into_iter().collect(),
                longer_than: words.named("longer").map(duration),
                pattern: words.named("like").map(str::to_owned),
            })
        }
        "describe" => Input::Describe { request, transactional_id: words.plain[1].to_owned() },
        other => panic!("{other} is no command"),
    }
}

/// As the log has them.
fn records(batch: &Batch) -> String {
    let bytes = batch.uncompressed(1 << 20).unwrap();
    let records = Records::new(&bytes, batch.header().record_count());
    let lines = records.map(|found| {
        let found = found.unwrap();
        let name = record::read_key(found.key.unwrap()).unwrap();
        let Some(value) = found.value else { return format!("[{name} forgotten]") };
        let state = record::read_value(value).unwrap();
        let mut line = format!("[{name} {}/{}", state.producer, state.epoch);
        if state.next_producer.is_some() {
            line += &format!(" next={}", state.next_producer);
        }
        line += &format!(" {}", state.phase.name());
        for partition in &state.partitions {
            line += &format!(" {}", shown(partition));
        }
        line + "]"
    });
    lines.collect::<Vec<_>>().join(" ")
}

fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Initialized { producer, epoch } => format!("is {producer}/{epoch}"),
        Outcome::Added => "added".to_owned(),
        Outcome::Verified(within) => format!("verified {within:?}"),
        Outcome::Ended { producer, epoch } => format!("ended, next {producer}/{epoch}"),
        Outcome::Listed(listed) => {
            let lines = listed.iter().map(|one| {
                format!(" [{} {} {}]", one.transactional_id, one.producer, one.phase.name())
            });
            format!("listed{}", lines.collect::<String>())
        }
        Outcome::Described(described) => {
            let (producer, epoch) = (described.producer, described.epoch);
            let (phase, timeout) = (described.phase.name(), described.timeout);
            let started = described.started;
            let partitions: String = described
                .partitions
                .iter()
                .map(|partition| format!(" {}", shown(partition)))
                .collect();
            format!("{producer}/{epoch} {phase} timeout={timeout:?} since={started}{partitions}")
        }
        Outcome::NeedsProducerId => "needs a producer id".to_owned(),
        Outcome::Refused(refusal) => format!("refused {refusal:?}"),
    }
}
