//! Clients of several nodes in the world of cores: what travels between them and the nodes, and
//! how a node answers. What writers and readers do with it is theirs.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use quorate_core::batch::{Batch, Levels};
use quorate_core::id::{Offset, PartitionId, RequestId};
use quorate_core::partition::interface as core;
use quorate_core::shard::interface::Input;
use quorate_core::time::{Instant, Now, Timestamp};
use quorate_net::kafka::error::Code;

use super::conversations::{Ask, Reply};
use super::node::{WALL_START, Waiting, place_of};
use super::readers::ReaderActor;
use super::writers::WriterActor;
use super::{Cluster, Event};
use crate::history::{End, OperationId, Partition};
use crate::plan::{Acks, Plan};
use crate::spec;
use crate::workload::writer::{Answer as Word, partitions};

/// A request on its way to a node.
pub(super) struct Request {
    pub(super) client: u32,
    pub(super) n: usize,
    /// The node's life when it was sent: a connection ends with it.
    life: u32,
    sent: Duration,
    /// Which of the client's attempts it belongs to.
    attempt: u64,
    what: What,
}

pub(super) enum What {
    /// Who leads what?
    Metadata,
    ProducerId,
    Append {
        place: usize,
        partition: Partition,
        batch: Batch,
    },
    Delete {
        operation: OperationId,
        partition: Partition,
        before: Option<i64>,
    },
    Read {
        operation: OperationId,
        partition: Partition,
        from: i64,
    },
    /// Of a client that holds a conversation.
    Conversation(Box<Ask>),
}

/// Who waits for an answer of a shard.
pub(super) struct Client {
    client: u32,
    attempt: u64,
    partition: PartitionId,
    what: Wanted,
}

enum Wanted {
    Append { place: usize },
    Delete { operation: OperationId },
    Read { operation: OperationId, partition: Partition, from: i64 },
}

/// A reader that is to wait.
pub(super) struct Waits {
    partition: PartitionId,
    wait: core::Wait,
}

/// An answer on its way to a client.
pub(super) struct Answer {
    pub(super) client: u32,
    pub(super) n: usize,
    pub(super) attempt: u64,
    pub(super) told: Told,
}

pub(super) enum Told {
    /// Which node leads each partition, in the plan's order; `None` if nobody does.
    Metadata(BTreeMap<Partition, usize>),
    ProducerId(Option<i64>),
    Append {
        place: usize,
        word: Word,
    },
    Delete {
        operation: OperationId,
        log_start: Option<i64>,
    },
    Read {
        operation: OperationId,
        partition: Partition,
        end: End,
        next: Option<i64>,
    },
    Conversation(Box<Reply>),
}

pub(super) struct Clients {
    pub(super) writers: BTreeMap<u32, WriterActor>,
    pub(super) readers: BTreeMap<u32, ReaderActor>,
    pub(super) partitions: Vec<Partition>,
    /// What came to paused nodes, by client and node: one connection keeps the order, however often
    /// the pause is made longer (seed 2050 of groups in three cores).
    deferred: BTreeMap<(u32, usize), VecDeque<Box<Request>>>,
    /// Nobody does anything any more.
    pub(super) are_done: bool,
    pub(super) is_healed: bool,
}

impl Clients {
    pub(super) fn new(plan: &Plan) -> Self {
        let (library_writers, library_readers) = plan.library_clients();
        let workload = &plan.workload;
        let writers = (0..workload.writers).chain(library_writers);
        let readers = workload.writers..workload.writers + workload.readers;
        let partitions = partitions(plan);
        let reader = |client| (client, ReaderActor::new(plan, client, &partitions));
        Self {
            writers: writers.map(|client| (client, WriterActor::new(plan, client))).collect(),
            readers: readers.chain(library_readers).map(reader).collect(),
            partitions,
            deferred: BTreeMap::new(),
            are_done: false,
            is_healed: false,
        }
    }

    /// A topic has so many partitions by now, which everybody writes to and reads.
    pub(super) fn use_partitions(&mut self, topic: u32, count: u32) {
        let all = (0..count).map(|index| Partition { topic, index });
        let new: Vec<_> = all.filter(|partition| !self.partitions.contains(partition)).collect();
        for reader in self.readers.values_mut() {
            reader.positions.extend(new.iter().map(|partition| (*partition, 0)));
        }
        for writer in self.writers.values_mut() {
            writer.writer.use_partitions(&new);
        }
        self.partitions.extend(new);
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        self.writers.keys().chain(self.readers.keys()).copied().collect()
    }

    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.writers.values_mut().for_each(WriterActor::heal);
    }
}

impl Cluster {
    /// Every client begins.
    pub(super) fn wake_all(&mut self) {
        for client in self.clients.numbers() {
            self.wake_after(client, Duration::from_millis(1));
        }
        self.wake_conversations();
    }

    pub(super) fn wake_after(&mut self, client: u32, delay: Duration) {
        let Clients { writers, readers, .. } = &mut self.clients;
        let token = match writers.get_mut(&client) {
            Some(writer) => &mut writer.token,
            None => &mut readers.get_mut(&client).expect("a reader").token,
        };
        *token += 1;
        let token = *token;
        self.agenda.after(delay, Event::Wakes { client, token });
    }

    pub(super) fn on_wake(&mut self, client: u32, token: u64) {
        if self.clients.are_done && !self.conversations.has(client) {
            return;
        }
        if let Some(writer) = self.clients.writers.get(&client) {
            if writer.token == token {
                self.on_writer_wakes(client);
            }
        } else if let Some(reader) = self.clients.readers.get(&client) {
            if reader.token == token {
                self.read_next(client);
            }
        } else {
            self.on_conversation_wakes(client, token);
        }
    }

    /// The clients' clock: the true time.
    pub(super) fn client_now(&self) -> Now {
        let wall = WALL_START + self.agenda.now.as_millis() as i64;
        Now { monotonic: self.agenda.instant(), wall: Timestamp(wall) }
    }

    /// How long a client waits for an answer; longer once all is healed, as the others do.
    pub(super) fn timeout(&self) -> Duration {
        let timeout = self.plan.workload.timeout;
        if self.clients.is_healed { timeout.max(Duration::from_secs(2)) } else { timeout }
    }

    /// Sends a request; those of one attempt to one node arrive in their order.
    pub(super) fn send_request(&mut self, client: u32, n: usize, attempt: u64, what: What) {
        let sent = self.agenda.now;
        let at = self.wires.request_arrives(client, n, sent);
        let life = self.nodes[n].life;
        let request = Box::new(Request { client, n, life, sent, attempt, what });
        self.agenda.at(at, Event::Request(request));
    }

    pub(super) fn on_request(&mut self, request: Box<Request>) {
        let Request { client, n, .. } = *request;
        if let Some(until) = self.nodes[n].paused_until {
            self.clients.deferred.entry((client, n)).or_default().push_back(request);
            self.agenda.at(until, Event::Deferred { client, n });
            return;
        }
        self.take_up(*request);
    }

    pub(super) fn on_deferred(&mut self, client: u32, n: usize) {
        if let Some(until) = self.nodes[n].paused_until {
            self.agenda.at(until, Event::Deferred { client, n });
            return;
        }
        let oldest = self.clients.deferred.get_mut(&(client, n)).and_then(VecDeque::pop_front);
        self.take_up(*oldest.expect("as many are deferred as are to be taken up"));
    }

    fn take_up(&mut self, request: Request) {
        let Request { client, n, life, sent, attempt, .. } = request;
        if life != self.nodes[n].life || !self.nodes[n].serves() {
            if self.nodes[n].host_is_up {
                let delay = self.wires.latency();
                self.agenda.after(delay, Event::Broken { client, n, attempt });
            }
            return;
        }
        if !self.wires.survives(client, n, sent) {
            return;
        }
        match request.what {
            What::Metadata => {
                let leaders = self.leaders_known(n);
                self.reply(n, client, attempt, Told::Metadata(leaders));
            }
            What::ProducerId => {
                let id = self.producer_id(n).map(|id| id.0);
                self.reply(n, client, attempt, Told::ProducerId(id));
            }
            What::Append { place, partition, batch } => {
                let Some(id) = self.id_of(n, partition) else {
                    let word = Word::Refused(Code::UnknownTopicOrPartition.code());
                    self.reply(n, client, attempt, Told::Append { place, word });
                    return;
                };
                let what = Wanted::Append { place };
                let waiting = Client { client, attempt, partition: id, what };
                let request = self.nodes[n].next_request(Waiting::Client(waiting));
                let produce = self.produce(n, request, batch);
                let input = core::Input::Produce(produce);
                self.tell(n, Input::Partition { partition: id, input });
            }
            What::Delete { operation, partition, before } => {
                let Some(id) = self.id_of(n, partition) else { return };
                let what = Wanted::Delete { operation };
                let waiting = Client { client, attempt, partition: id, what };
                let request = self.nodes[n].next_request(Waiting::Client(waiting));
                let (before, until) = (before.map(Offset), self.until(n));
                let input = core::Input::DeleteRecords { request, before, until };
                self.tell(n, Input::Partition { partition: id, input });
            }
            What::Read { operation, partition, from } => {
                let what = Wanted::Read { operation, partition, from };
                let id = self.id_of(n, partition).unwrap_or(PartitionId::METADATA);
                let waiting = Client { client, attempt, partition: id, what };
                self.read_or_wait(n, waiting, from);
            }
            What::Conversation(ask) => self.on_ask(n, client, attempt, *ask),
        }
    }

    /// Until when a client waits for the node's replicas, by the node's clock.
    pub(super) fn until(&self, n: usize) -> Instant {
        self.nodes[n].now(self.agenda.now).monotonic + self.timeout()
    }

    fn produce(&self, n: usize, request: RequestId, batch: Batch) -> core::Produce {
        let until = self.until(n);
        let acks = match self.plan.workload.acks {
            Acks::None => core::Acks::None,
            Acks::Leader => core::Acks::Leader,
            Acks::All => core::Acks::All,
        };
        core::Produce { request, batch, levels: Levels::DEFAULT, acks, until, guard: None }
    }

    /// What there is to read is answered at once; else the reader waits for it.
    fn read_or_wait(&mut self, n: usize, waiting: Client, from: i64) {
        let wait = self.plan.workload.wait;
        let partition = waiting.partition;
        let view = self.nodes[n].views.get(&partition);
        let waits = view.is_some_and(|view| {
            view.high_watermark.0 <= from && from <= view.end.0 && !view.is_settling
        });
        if wait.is_zero() || !waits {
            self.answer_client(n, waiting, &core::Outcome::Advanced);
            return;
        }
        let until = self.nodes[n].now(self.agenda.now).monotonic + wait;
        let request = self.nodes[n].next_request(Waiting::Client(waiting));
        let isolation = core::Isolation::ReadUncommitted;
        let beyond = Offset(from);
        let wait = core::Wait { request, beyond, bytes_min: 1, isolation, until };
        let delay = Duration::from_micros(self.inbox.below(200));
        let life = self.nodes[n].life;
        let wait = Box::new(Waits { partition, wait });
        self.agenda.after(delay, Event::Waits { n, life, wait });
    }

    pub(super) fn on_waits(&mut self, n: usize, waits: Waits) {
        let Waits { partition, wait } = waits;
        self.tell(n, Input::Partition { partition, input: core::Input::Wait(wait) });
    }

    /// The partition as this node knows it.
    pub(super) fn id_of(&self, n: usize, partition: Partition) -> Option<PartitionId> {
        let topic = self.nodes[n].keeper.image.topic_named(&format!("t{}", partition.topic))?;
        Some(PartitionId { topic: topic.id, index: partition.index as i32 })
    }

    pub(super) fn leaders_known(&self, n: usize) -> BTreeMap<Partition, usize> {
        let image = &self.nodes[n].keeper.image;
        let leader = |partition: &Partition| {
            let leader = image.partition(self.id_of(n, *partition)?)?.leader?;
            Some((*partition, place_of(leader)))
        };
        self.clients.partitions.iter().filter_map(leader).collect()
    }

    /// An answer of the shard goes to who asked.
    pub(super) fn answer_client(&mut self, n: usize, waiting: Client, outcome: &core::Outcome) {
        let Client { client, attempt, partition: id, what } = waiting;
        let told = match what {
            Wanted::Append { place } => {
                if let core::Outcome::Produced { base, .. } = outcome {
                    let acks = self.plan.workload.acks;
                    self.shadow.on_acknowledged(&self.nodes, n, id, *base, acks);
                    let base = base.0;
                    if acks == Acks::None {
                        return;
                    }
                    spec::on_replicas(|watch| watch.answers(id, base, acks == Acks::All));
                }
                Told::Append { place, word: judge(outcome) }
            }
            Wanted::Delete { operation } => {
                let log_start = match outcome {
                    core::Outcome::RecordsDeleted { log_start } => Some(log_start.0),
                    _ => None,
                };
                Told::Delete { operation, log_start }
            }
            Wanted::Read { operation, partition, from } => {
                let (end, next) = self.read(n, id, from, outcome);
                Told::Read { operation, partition, end, next }
            }
        };
        self.reply(n, client, attempt, told);
    }

    pub(super) fn reply(&mut self, n: usize, client: u32, attempt: u64, told: Told) {
        if let Some(at) = self.wires.reply_arrives(client, n, self.agenda.now) {
            let answer = Answer { client, n, attempt, told };
            self.agenda.at(at, Event::Answer(Box::new(answer)));
        }
    }

    pub(super) fn on_answer(&mut self, answer: Answer) {
        if self.clients.writers.contains_key(&answer.client) {
            self.on_writer_answer(answer);
        } else if self.clients.readers.contains_key(&answer.client) {
            self.on_reader_answer(answer);
        } else {
            self.on_conversation_answer(answer);
        }
    }

    pub(super) fn on_broken(&mut self, client: u32, n: usize, attempt: u64) {
        if self.clients.writers.contains_key(&client) {
            self.on_writer_broken(client, n, attempt);
        } else if self.clients.readers.contains_key(&client) {
            self.on_reader_broken(client, n, attempt);
        } else {
            self.on_conversation_broken(client, n, attempt);
        }
    }

    /// One of the nodes, drawn by the client.
    pub(super) fn some_node(&mut self, client: u32) -> usize {
        let nodes = self.nodes.len() as u64;
        let Clients { writers, readers, .. } = &mut self.clients;
        let chance = match writers.get_mut(&client) {
            Some(writer) => &mut writer.writer.chance,
            None => &mut readers.get_mut(&client).expect("a reader").chance,
        };
        chance.below(nodes) as usize
    }
}

fn judge(outcome: &core::Outcome) -> Word {
    match outcome {
        core::Outcome::Produced { base, append_time, .. } => {
            Word::Appended { base: base.0, append_time: append_time.map(Timestamp::millis) }
        }
        core::Outcome::Refused(refusal) => Word::Refused(Code::from(refusal).code()),
        _ => Word::InDoubt,
    }
}
