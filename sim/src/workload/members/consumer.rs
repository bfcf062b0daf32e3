//! A member of a consumer group, KIP-848: one heartbeat by which it joins, hears what it is to
//! have, says what it has, and leaves.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::id::TopicId;
use quorate_core::reached;
use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::consumer_group_heartbeat::TopicPartitions;
use quorate_net::kafka::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use quorate_net::wire::Text;

use super::protocol::Partitions;
use super::work::Work;
use super::{AGAIN, Environment, Fate, Member, Next, code_of, group_name};
use crate::history::Partition;
use crate::history::groups::{Claim, GroupCall, GroupEnd};

/// The version of its requests: members name themselves.
const HEARTBEAT: i16 = 1;

/// Epochs that are none.
const JOIN: i32 = 0;
const LEAVE: i32 = -1;
const AWAY: i32 = -2;

/// A member in one of its lives.
struct Consumer<W: Environment> {
    id: String,
    epoch: i32,
    /// What it is to have, as it was told.
    target: Partitions,
    /// It has said what it has since that changed.
    has_told: bool,
    /// Its last heartbeat was answered.
    is_answered: bool,
    due: Instant,
    topics: BTreeMap<u32, TopicId>,
    work: Work<W::Reader>,
}

pub(super) async fn live<W: Environment>(member: &mut Member<W>) {
    let work = Work::new(member);
    let mut consumer: Consumer<W> = Consumer {
        id: format!("c{}-{}", member.client, member.lives),
        epoch: JOIN,
        target: Partitions::new(),
        has_told: false,
        is_answered: true,
        due: Instant::ZERO,
        topics: BTreeMap::new(),
        work,
    };
    let mut commit = member.world.now();
    while !member.is_over() {
        if member.world.now() >= consumer.due && consumer.heartbeat(member).await == Next::Ends {
            return;
        }
        consumer.reconcile(member).await;
        consumer.work.round(member).await;
        match member.draw_fate() {
            Fate::Works => {}
            Fate::Dies => return,
            Fate::Leaves => return consumer.leave(member).await,
            Fate::Pauses => {
                member.rest().await;
                // It does not know yet what it has missed.
                commit = Instant::ZERO;
            }
        }
        if member.world.now() >= commit && consumer.epoch > JOIN {
            let (who, owned) = (consumer.claim(member), consumer.work.owned());
            member.commit(&who, consumer.work.positions(&owned)).await;
            let pause = member.chance.duration(member.spec.commit);
            commit = member.world.now() + pause;
        }
    }
}

impl<W: Environment> Consumer<W> {
    fn claim(&self, member: &Member<W>) -> Claim {
        member.claim(&self.id, self.epoch)
    }

    fn owned(&self) -> Option<Vec<TopicPartitions>> {
        let mut topics: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
        for partition in self.work.owned() {
            topics.entry(partition.topic).or_default().push(partition.index as i32);
        }
        let row = |(topic, partitions): (u32, Vec<i32>)| {
            let topic_id = *self.topics.get(&topic)?;
            Some(TopicPartitions { topic_id, partitions })
        };
        topics.into_iter().map(row).collect()
    }

    fn request(&mut self, member: &mut Member<W>) -> ConsumerGroupHeartbeatRequest {
        // As Kafka's client does it: everything at first, and again after an answer was lost.
        let is_full = self.epoch == JOIN || !self.is_answered || member.chance.one_in(8);
        let names = || member.spec.topics.iter().map(|topic| Text::from(format!("t{topic}")));
        let rebalance = member.spec.session.as_millis() as i32 * 2;
        ConsumerGroupHeartbeatRequest {
            group_id: group_name(member.group),
            member_id: Text::from(self.id.as_str()),
            member_epoch: self.epoch,
            instance_id: member.instance.as_deref().map(Text::from),
            rebalance_timeout_ms: if is_full { rebalance } else { -1 },
            subscribed_topic_names: is_full.then(|| names().collect()),
            topic_partitions: if is_full || !self.has_told { self.owned() } else { None },
            ..Default::default()
        }
    }

    async fn heartbeat(&mut self, member: &mut Member<W>) -> Next {
        let request = self.request(member);
        let who = self.claim(member);
        let joins = self.epoch == JOIN;
        let call = if joins { GroupCall::Join } else { GroupCall::Heartbeat };
        let id = member.invoke(who.clone(), call);
        member.note(format!("is in g{} in epoch {}", member.group, self.epoch));
        let asking = (HEARTBEAT, Duration::ZERO);
        let answer = member.world.ask(&who, asking, &request).await;
        let Some(response) = answer else {
            self.is_answered = false;
            self.has_told = false;
            member.pause(AGAIN).await;
            return Next::Rejoin;
        };
        if let Some(code) = code_of(response.error_code) {
            member.complete(id, GroupEnd::Refused(code));
            return self.heed(member, code).await;
        }
        self.is_answered = true;
        self.has_told |= request.topic_partitions.is_some();
        let (name, generation) = (self.id.clone(), response.member_epoch);
        let end =
            if joins { GroupEnd::Joined { member: name, generation } } else { GroupEnd::Done };
        member.complete(id, end);
        self.take(member, &response).await;
        if joins {
            member.haunt().await;
        }
        Next::Rejoin
    }

    async fn heed(&mut self, member: &mut Member<W>, code: Code) -> Next {
        member.heed(code);
        member.note(format!("is in g{} in epoch {}, and is told {code}", member.group, self.epoch));
        match code {
            Code::UnknownMemberId | Code::FencedMemberEpoch => {
                // Others may have all of it already.
                let owned = self.work.owned();
                self.work.give_up(member, &owned);
                self.target.clear();
                self.epoch = JOIN;
            }
            Code::FencedInstanceId => return Next::Ends,
            _ => member.pause(AGAIN).await,
        }
        Next::Rejoin
    }

    /// Learns its epoch, and what it is to have.
    async fn take(&mut self, member: &mut Member<W>, response: &ConsumerGroupHeartbeatResponse) {
        let before = self.epoch;
        self.epoch = response.member_epoch;
        let interval = Duration::from_millis(response.heartbeat_interval_ms.max(1) as u64);
        self.due = member.world.now() + interval;
        let told = match &response.assignment {
            Some(assignment) => match self.named(member, &assignment.topic_partitions).await {
                Some(target) => target,
                None => {
                    // It does not know that topic yet: it asks for everything again.
                    self.is_answered = false;
                    return;
                }
            },
            None if self.epoch == before => return,
            None => self.target.clone(),
        };
        let who = self.claim(member);
        let id = member.invoke(who, GroupCall::ASSIGN);
        let partitions = told.iter().copied().collect();
        member.complete(id, GroupEnd::Assigned { generation: self.epoch, partitions });
        self.target = told;
    }

    /// The partitions by the plan's names, if all topics are known.
    async fn named(
        &mut self,
        member: &mut Member<W>,
        rows: &[TopicPartitions],
    ) -> Option<Partitions> {
        let is_known = |topics: &BTreeMap<u32, TopicId>| {
            rows.iter().all(|row| topics.values().any(|id| *id == row.topic_id))
        };
        if !is_known(&self.topics) {
            let who = self.claim(member);
            self.topics.extend(member.world.topics(&who).await?);
        }
        let place = |wanted: &TopicId| {
            self.topics.iter().find(|(_, id)| *id == wanted).map(|(topic, _)| *topic)
        };
        let mut partitions = Partitions::new();
        for row in rows {
            let topic = place(&row.topic_id)?;
            let each = row.partitions.iter();
            partitions.extend(each.map(|index| Partition { topic, index: *index as u32 }));
        }
        Some(partitions)
    }

    /// Gives up what it is not to have any more, and takes what it is to have.
    async fn reconcile(&mut self, member: &mut Member<W>) {
        let owned = self.work.owned();
        if owned == self.target || self.epoch == JOIN {
            return;
        }
        let who = self.claim(member);
        let revoked: Partitions = owned.difference(&self.target).copied().collect();
        if !revoked.is_empty() {
            reached!("a-consumer-gives-partitions-up");
            member.commit(&who, self.work.positions(&revoked)).await;
            self.work.give_up(member, &revoked);
        }
        let target = self.target.clone();
        if self.work.take(member, &who, &target).await {
            self.has_told = false;
            self.due = Instant::ZERO;
        }
    }

    async fn leave(mut self, member: &mut Member<W>) {
        let (who, owned) = (self.claim(member), self.work.owned());
        if self.epoch <= JOIN {
            return;
        }
        member.commit(&who, self.work.positions(&owned)).await;
        self.work.give_up(member, &owned);
        let member_epoch = if member.instance.is_some() { AWAY } else { LEAVE };
        let request = ConsumerGroupHeartbeatRequest { member_epoch, ..self.request(member) };
        let id = member.invoke(who.clone(), GroupCall::Leave);
        let asking = (HEARTBEAT, Duration::ZERO);
        let answer = member.world.ask(&who, asking, &request).await;
        if let Some(response) = answer {
            let end = code_of(response.error_code).map_or(GroupEnd::Done, GroupEnd::Refused);
            member.complete(id, end);
        }
    }
}
