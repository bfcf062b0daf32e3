//! Clients of several nodes in the world of cores that hold conversations: what they ask for next
//! follows from what they were told, over many requests. Each is a future that the world polls when
//! there is an answer, or a timer is due (docs/decisions/0159). What they say is elsewhere:
//! `transactions`, `committers`, `members`.

mod desk;
mod seeker;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use quorate_core::batch::Batch;
use quorate_core::batch::control::Ending;
use quorate_core::group::interface as group;
use quorate_core::id::{Offset, ProducerId, TopicId};
use quorate_core::partition::interface::{Isolation, ProducerStatus};
use quorate_core::transaction::interface::{Claim, TransactionVersion};
use quorate_net::kafka::error::Code;

pub(super) use self::desk::Desk;
use self::desk::Sent;
pub(super) use self::seeker::Seeker;
use super::clients::{Answer, Told, What};
use super::members::{self, Parties};
use super::{Cluster, Event, committers, transactions};
use crate::history::Partition;
use crate::history::transactions::Place;
use crate::plan::Plan;
use crate::workload::members::Found;

/// What a client asks for.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// Who leads what, and where is whose coordinator?
    Leaders,
    Init {
        id: String,
        timeout: Duration,
        /// Who it was (KIP-360).
        current: Option<(i64, i16)>,
    },
    /// In the older protocol, before the first record of a partition.
    Add {
        claim: Claim,
        place: Place,
    },
    Produce {
        claim: Claim,
        version: TransactionVersion,
        place: Place,
        batch: Batch,
    },
    /// The copying group has consumed `place` up to `next`, if the transaction is committed.
    CommitOffset {
        claim: Claim,
        version: TransactionVersion,
        place: Place,
        next: i64,
    },
    End {
        claim: Claim,
        version: TransactionVersion,
        ending: Ending,
    },
    /// Of a group's coordinator. The node gives the request its number.
    Group {
        group: String,
        input: Box<group::Input>,
    },
    Read {
        place: Place,
        from: i64,
        isolation: Isolation,
        /// Of batches, one at least.
        bytes_max: usize,
    },
    /// What members of groups read: committed records of a plan's topic, from its start on where
    /// there is nothing at `from` (any more).
    Fetch {
        partition: Partition,
        from: i64,
        bytes_max: usize,
    },
    /// DescribeProducers.
    Producers {
        place: Place,
    },
    /// WriteTxnMarkers, as if from a coordinator.
    Mark {
        claim: Claim,
        place: Place,
        ending: Ending,
        coordinator_epoch: i32,
    },
}

/// What a client is told.
#[derive(Debug)]
pub(super) enum Reply {
    Leaders(Known),
    /// What the producer goes by from now on.
    Who(i64, i16),
    Done,
    Stored(i64),
    Group(group::Outcome),
    Read(Read),
    Fetched(Found),
    Producers(Vec<ProducerStatus>),
    Refused(Code),
}

/// Where what is, as a node knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) leaders: BTreeMap<Place, usize>,
    /// Of each partition of `__transaction_state`, and of `__consumer_offsets`.
    pub(super) coordinators: Vec<Option<usize>>,
    pub(super) groups: Vec<Option<usize>>,
    /// Where groups consume: who leads the partitions of the plan's topics, and the topics' ids.
    pub(super) partitions: BTreeMap<Partition, usize>,
    pub(super) topics: BTreeMap<u32, TopicId>,
}

/// What a fetch has found.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) batches: Vec<Batch>,
    /// Ascending by first record.
    pub(super) aborted: Vec<(ProducerId, Offset)>,
    pub(super) next: i64,
    /// Up to where all is decided, and where the log ends.
    pub(super) stable: i64,
    pub(super) end: i64,
}

/// One client.
pub(super) struct Conversation {
    desk: Desk,
    life: Pin<Box<dyn Future<Output = ()>>>,
    /// The timer that counts.
    token: u64,
}

impl Conversation {
    /// `desk` is that at which `life` asks.
    pub(super) fn new(desk: Desk, life: Pin<Box<dyn Future<Output = ()>>>) -> Self {
        Self { desk, life, token: 0 }
    }
}

pub(super) struct Conversations {
    clients: BTreeMap<u32, Conversation>,
    /// Who has shown since the healing that all works.
    pub(super) proofs: BTreeSet<u32>,
    /// What members of groups have in common.
    pub(super) parties: Parties,
}

impl Conversations {
    pub(super) fn new(plan: &Plan) -> Self {
        let transactional = plan
            .transactional()
            .filter_map(|client| Some((client, transactions::conversation(plan, client)?)));
        let committing = plan
            .committing()
            .filter_map(|client| Some((client, committers::conversation(plan, client)?)));
        let parties = Parties::new(plan);
        let members = plan
            .members()
            .filter_map(|client| Some((client, members::conversation(plan, client, &parties)?)));
        let clients = transactional.chain(committing).chain(members).collect();
        Self { clients, proofs: BTreeSet::new(), parties }
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        self.clients.keys().copied().collect()
    }

    pub(super) fn has(&self, client: u32) -> bool {
        self.clients.contains_key(&client)
    }

    /// Nobody goes on.
    pub(super) fn end(&mut self) {
        self.clients.clear();
    }
}

impl Cluster {
    /// Something has come for the client, or its timer is due: it goes on until it waits again.
    fn go_on_with(&mut self, client: u32) {
        let (now, healed, timeout) = (self.client_now(), self.healed, self.timeout());
        let Some(it) = self.conversations.clients.get_mut(&client) else { return };
        it.desk.open(now, healed, timeout, std::mem::take(&mut self.history));
        let ends = it.life.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        let left = it.desk.close();
        self.history = left.history;
        if left.has_proven {
            self.conversations.proofs.insert(client);
        }
        if let Some(delay) = left.wakes {
            it.token += 1;
            let token = it.token;
            self.agenda.after(delay, Event::Wakes { client, token });
        }
        if ends {
            self.conversations.clients.remove(&client);
        }
        for Sent { n, attempt, after, ask } in left.sent {
            if after.is_zero() {
                self.send_request(client, n, attempt, What::Conversation(Box::new(ask)));
            } else {
                self.agenda.after(after, Event::Late { client, n, ask: Box::new(ask) });
            }
        }
    }

    /// Something comes once more, or late, over another connection. Nobody hears the answer.
    pub(super) fn on_late(&mut self, client: u32, n: usize, ask: Box<Ask>) {
        self.send_request(client, n, 0, What::Conversation(ask));
    }

    pub(super) fn wake_conversations(&mut self) {
        for client in self.conversations.numbers() {
            self.agenda.after(Duration::from_millis(1), Event::Wakes { client, token: 0 });
        }
    }

    pub(super) fn on_conversation_wakes(&mut self, client: u32, token: u64) {
        let clients = &self.conversations.clients;
        let Some(it) = clients.get(&client).filter(|it| it.token == token) else { return };
        it.desk.ring();
        self.go_on_with(client);
    }

    pub(super) fn on_conversation_answer(&mut self, answer: Answer) {
        let Answer { client, attempt, told, .. } = answer;
        let Some(it) = self.conversations.clients.get(&client) else { return };
        let Told::Conversation(reply) = told else { return };
        if it.desk.take(attempt, *reply) {
            self.go_on_with(client);
        }
    }

    pub(super) fn on_conversation_broken(&mut self, client: u32, n: usize, attempt: u64) {
        let Some(it) = self.conversations.clients.get(&client) else { return };
        if it.desk.lose(n, attempt) {
            self.go_on_with(client);
        }
    }

    /// The last reading begins.
    pub(super) fn begin_last(&mut self, client: u32, conversation: Conversation) {
        self.conversations.clients.insert(client, conversation);
        self.agenda.after(Duration::ZERO, Event::Wakes { client, token: 0 });
    }
}
