//! Members of consumer groups in the world of cores: those of `workload/members`, which ask and
//! wait by a conversation. Whoever is a member by our client library in the world of nodes is an
//! eager one here: the library is not of this world.

mod reading;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::id::{Offset, TopicId};
use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;

use self::reading::Reading;
use super::Cluster;
use super::conversations::{Ask, Conversation, Reply, Seeker};
use crate::chance::Chance;
use crate::history::groups::Claim;
use crate::history::{History, Partition};
use crate::plan::Plan;
use crate::workload::members::{
    self, Environment, Found, Member, Question, Roster, group_name, last_offsets, live_eagerly,
    subscribed,
};
use crate::workload::writer;

/// What the last reading asks is numbered from here on; the same client has read transactions.
const BEHIND_TRANSACTIONS: u64 = 1 << 32;

/// What members of groups have in common.
pub(super) struct Parties {
    plan: Arc<Plan>,
    roster: Arc<Roster>,
    /// All that there are by now.
    partitions: Arc<Mutex<Vec<Partition>>>,
}

impl Parties {
    pub(super) fn new(plan: &Plan) -> Self {
        let partitions = Arc::new(Mutex::new(writer::partitions(plan)));
        Self { plan: Arc::new(plan.clone()), roster: Arc::default(), partitions }
    }

    pub(super) fn use_partitions(&self, partitions: &[Partition]) {
        *self.partitions.lock().expect("one thread") = partitions.to_vec();
    }

    fn environment(&self, seeker: Seeker) -> Around {
        let (plan, partitions) = (Arc::clone(&self.plan), Arc::clone(&self.partitions));
        Around { seeker, plan, partitions, coordinator: None }
    }
}

/// What the client does, if it is a member of a group.
pub(super) fn conversation(plan: &Plan, client: u32, parties: &Parties) -> Option<Conversation> {
    plan.membership(client)?;
    let seeker = Seeker::new(plan, client, "member");
    let desk = seeker.desk();
    let (plan, roster) = (Arc::clone(&parties.plan), Arc::clone(&parties.roster));
    let life = members::live(parties.environment(seeker), plan, client, roster);
    Some(Conversation::new(desk, Box::pin(life)))
}

/// What a member has around it.
struct Around {
    seeker: Seeker,
    plan: Arc<Plan>,
    partitions: Arc<Mutex<Vec<Partition>>>,
    /// The group's, as far as it knows.
    coordinator: Option<usize>,
}

impl Environment for Around {
    type Reader = Reading;

    fn now(&self) -> Instant {
        self.seeker.at().now().monotonic
    }

    fn is_healed(&self) -> bool {
        self.seeker.is_healed()
    }

    /// The world ends its conversations itself.
    fn is_over(&self) -> bool {
        false
    }

    fn note(&self, _: u32, _: String) {}

    fn with_history<T>(&self, tell: impl FnOnce(&mut History) -> T) -> T {
        self.seeker.at().with_history(tell)
    }

    fn partitions(&self) -> Vec<Partition> {
        self.partitions.lock().expect("one thread").clone()
    }

    async fn sleep(&self, during: Duration) {
        self.seeker.pause(during).await;
    }

    async fn ask<R: Question>(
        &mut self,
        who: &Claim,
        (version, patience): (i16, Duration),
        request: &R,
    ) -> Option<R::Response> {
        let group = group_name(who.group).to_string();
        let n = match self.coordinator.take() {
            Some(n) => n,
            None => self.seeker.group_coordinator(&group).await?,
        };
        let ask = Ask::Group { group, input: Box::new(request.input(who.client, version)) };
        let told = match self.seeker.at().ask_for(n, ask, patience).await {
            Some(Reply::Group(outcome)) => Ok(outcome),
            Some(Reply::Refused(code)) => Err(code),
            _ => {
                self.seeker.forget();
                return None;
            }
        };
        self.coordinator = Some(n);
        Some(request.answer(told))
    }

    fn forget_coordinator(&mut self) {
        self.coordinator = None;
        self.seeker.forget();
    }

    async fn topics(&mut self, _: &Claim) -> Option<BTreeMap<u32, TopicId>> {
        self.seeker.topics().await
    }

    fn reader(&self, chance: &mut Chance) -> Reading {
        Reading::new(&self.seeker, &self.plan, chance)
    }

    async fn live_by_library(member: &mut Member<Self>) {
        live_eagerly(member).await;
    }
}

impl Cluster {
    /// Why the groups have not settled since the healing.
    pub(super) fn unsettled(&self) -> Option<String> {
        self.conversations.parties.roster.unsettled(&self.plan, &self.clients.partitions)
    }

    /// Where what is, for those who consume it.
    pub(super) fn consumed(
        &self,
        n: usize,
    ) -> (BTreeMap<Partition, usize>, BTreeMap<u32, TopicId>) {
        if self.plan.groups.is_empty() {
            return Default::default();
        }
        let image = &self.nodes[n].keeper.image;
        let topics = (0..self.plan.topics.len() as u32).filter_map(|place| {
            let topic = image.topic_named(&format!("t{place}"))?;
            Some((place, topic.id))
        });
        (self.leaders_known(n), topics.collect())
    }

    /// As a fetch of Kafka's consumers with `auto.offset.reset=earliest`.
    pub(super) fn fetch_for_member(
        &self,
        n: usize,
        partition: Partition,
        from: i64,
        bytes_max: usize,
    ) -> Reply {
        let node = &self.nodes[n];
        let found = self.id_of(n, partition);
        let found = found.and_then(|id| Some((node.views.get(&id)?, node.disk.log(id)?)));
        let leads = found.filter(|(view, _)| view.is_leader && !view.is_settling);
        let Some((view, log)) = leads else {
            return Reply::Refused(Code::NotLeaderOrFollower);
        };
        // Storage may have deleted what the machine does not know to be gone yet.
        let log_start = view.log_start.max(log.state().log_start).0;
        let from = if from < log_start || from > view.end.0 { log_start } else { from };
        let batches = log.read_for(Offset(from), view.high_watermark, bytes_max);
        let found = Found { partition, log_start, from, behind: None };
        Reply::Fetched(match batches.last() {
            None => found,
            Some((last, _)) => {
                found.up_to(last.header().next_offset().0, last.header().leader_epoch().0)
            }
        })
    }

    /// The last word of every group on its offsets.
    pub(super) fn read_offsets(&mut self, patience: Duration) {
        if self.plan.groups.is_empty() {
            return;
        }
        let client = self.plan.last_client();
        let seeker = Seeker::new(&self.plan, client, "last of groups");
        let (desk, plan) = (seeker.desk(), self.plan.clone());
        desk.count_from(BEHIND_TRANSACTIONS);
        let mut around = self.conversations.parties.environment(seeker);
        let life = async move {
            let all = around.partitions();
            for (place, group) in (0..).zip(&plan.groups) {
                let partitions: Vec<Partition> = subscribed(group, &all).into_iter().collect();
                last_offsets(&mut around, client, place, &partitions).await;
            }
        };
        self.begin_last(client, Conversation::new(desk, Box::pin(life)));
        let end = self.agenda.now + patience;
        self.go_on(end, |cluster| !cluster.conversations.has(client));
        if self.conversations.has(client) {
            self.observed.stuck.push("what groups have committed cannot be read".to_owned());
        }
    }
}
