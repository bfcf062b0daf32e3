//! Histories of groups as tests tell them: one thing after another, ten milliseconds each.

use std::time::Duration;

use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;

use crate::check::{Struck, check};
use crate::history::groups::{Claim, Committed, Delivery, GroupCall, GroupEnd};
use crate::history::{Call, End, History, Partition, Seen};
use crate::plan::Plan;
use crate::plan::draw::draw;

pub(super) struct Story {
    plan: Plan,
    history: History,
    now: Instant,
    /// Whoever speaks now speaks KIP-848.
    by_epoch: bool,
}

const STEP: Duration = Duration::from_millis(5);

fn partition(index: u32) -> Partition {
    Partition { topic: 0, index }
}

fn committed(offset: i64) -> Committed {
    Committed { offset, leader_epoch: 0, metadata: String::new() }
}

impl Story {
    /// With one group that shares out so, and sessions of two seconds. Further words of its line
    /// may follow the protocol.
    pub(super) fn new(protocol: &str) -> Self {
        let session = if protocol.contains("session=") { "" } else { " session=2s" };
        let group = format!(
            "group protocol={protocol}{session} members=3 topics=0 commit=1s..1s away=1s..1s\n"
        );
        let plan = draw(1);
        let text: String = plan
            .print()
            .lines()
            .filter(|line| !line.starts_with("fault ") && !line.starts_with("group "))
            .map(|line| format!("{line}\n"))
            .collect();
        let mut plan = Plan::parse(&(text + &group)).expect("a plan");
        plan.topics.truncate(1);
        plan.topics[0].partitions = 2;
        let by_epoch = protocol.starts_with("consumer");
        Self { plan, history: History::default(), now: Instant::ZERO, by_epoch }
    }

    /// Whether members speak KIP-848 from here on.
    pub(super) fn speak_by_epoch(&mut self, by_epoch: bool) -> &mut Self {
        self.by_epoch = by_epoch;
        self
    }

    fn claim(&self, client: u32, instance: Option<&str>, member: &str, generation: i32) -> Claim {
        let (member, instance) = (member.to_owned(), instance.map(str::to_owned));
        Claim { group: 0, client, by_epoch: self.by_epoch, member, instance, generation }
    }

    /// On so many nodes, which are healed after ten seconds.
    pub(super) fn of_nodes(protocol: &str, nodes: u32) -> Self {
        let mut story = Self::new(protocol);
        (story.plan.cluster.nodes, story.plan.run.safety) = (nodes, Duration::from_secs(10));
        story
    }

    fn step(&mut self) -> Instant {
        self.now = self.now + STEP;
        self.now
    }

    fn tell(&mut self, who: Claim, call: GroupCall, end: GroupEnd) -> &mut Self {
        let now = self.step();
        let id = self.history.invoke_in_group(who, now, call);
        let now = self.step();
        self.history.complete_in_group(id, now, end);
        self
    }

    pub(super) fn pause(&mut self, millis: u64) -> &mut Self {
        self.now = self.now + Duration::from_millis(millis);
        self
    }

    pub(super) fn joined_by(&mut self, client: u32, member: &str) -> &mut Self {
        let end = GroupEnd::Joined { member: member.to_owned(), generation: 1 };
        self.tell(self.claim(client, None, "", -1), GroupCall::Join, end)
    }

    pub(super) fn joined(&mut self, instance: &str, member: &str, generation: i32) -> &mut Self {
        let end = GroupEnd::Joined { member: member.to_owned(), generation };
        self.tell(self.claim(1, Some(instance), "", -1), GroupCall::Join, end)
    }

    pub(super) fn assigned(&mut self, member: &str, generation: i32, of: &[u32]) -> &mut Self {
        let partitions = of.iter().map(|index| partition(*index)).collect();
        let end = GroupEnd::Assigned { generation, partitions };
        self.tell(self.claim(1, None, member, generation), GroupCall::ASSIGN, end)
    }

    /// Whoever leads hands in what each member is to have, and is told nothing.
    pub(super) fn shared_out(&mut self, generation: i32, of: &[(&str, &[u32])]) -> &mut Self {
        let share = |(member, of): &(&str, &[u32])| {
            ((*member).to_owned(), of.iter().map(|index| partition(*index)).collect())
        };
        let call = GroupCall::Assign { shares: of.iter().map(share).collect() };
        let (who, now) = (self.claim(1, None, of[0].0, generation), self.step());
        self.history.invoke_in_group(who, now, call);
        self
    }

    pub(super) fn assigned_as(
        &mut self,
        instance: &str,
        member: &str,
        generation: i32,
        of: &[u32],
    ) -> &mut Self {
        let partitions = of.iter().map(|index| partition(*index)).collect();
        let end = GroupEnd::Assigned { generation, partitions };
        self.tell(self.claim(1, Some(instance), member, generation), GroupCall::ASSIGN, end)
    }

    pub(super) fn committed(
        &mut self,
        member: &str,
        generation: i32,
        index: u32,
        offset: i64,
    ) -> &mut Self {
        let call = GroupCall::Commit { offsets: vec![(partition(index), committed(offset))] };
        self.tell(self.claim(1, None, member, generation), call, GroupEnd::Committed)
    }

    pub(super) fn committed_as(
        &mut self,
        instance: &str,
        member: &str,
        generation: i32,
        index: u32,
        offset: i64,
    ) -> &mut Self {
        let call = GroupCall::Commit { offsets: vec![(partition(index), committed(offset))] };
        self.tell(self.claim(1, Some(instance), member, generation), call, GroupEnd::Committed)
    }

    /// A commit without an answer.
    pub(super) fn in_doubt(
        &mut self,
        member: &str,
        generation: i32,
        index: u32,
        offset: i64,
    ) -> &mut Self {
        let call = GroupCall::Commit { offsets: vec![(partition(index), committed(offset))] };
        let (who, now) = (self.claim(1, None, member, generation), self.step());
        self.history.invoke_in_group(who, now, call);
        self
    }

    pub(super) fn fetched(&mut self, index: u32, offset: Option<i64>) -> &mut Self {
        let call = GroupCall::Fetch { partitions: vec![partition(index)] };
        let end = GroupEnd::Fetched { offsets: vec![offset.map(committed)] };
        self.tell(self.claim(0, None, "", -1), call, end)
    }

    pub(super) fn refused(&mut self, member: &str, generation: i32, code: Code) -> &mut Self {
        let who = self.claim(1, None, member, generation);
        self.tell(who, GroupCall::Heartbeat, GroupEnd::Refused(code))
    }

    pub(super) fn heard(&mut self, member: &str, generation: i32) -> &mut Self {
        self.tell(self.claim(1, None, member, generation), GroupCall::Heartbeat, GroupEnd::Done)
    }

    /// A join without an answer.
    pub(super) fn unanswered(&mut self, instance: &str) -> &mut Self {
        let (who, now) = (self.claim(1, Some(instance), "", -1), self.step());
        self.history.invoke_in_group(who, now, GroupCall::Join);
        self
    }

    /// A heartbeat without an answer.
    pub(super) fn unheard(&mut self, member: &str, generation: i32) -> &mut Self {
        let (who, now) = (self.claim(1, None, member, generation), self.step());
        self.history.invoke_in_group(who, now, GroupCall::Heartbeat);
        self
    }

    pub(super) fn refused_as(&mut self, instance: &str, member: &str, code: Code) -> &mut Self {
        let who = self.claim(1, Some(instance), member, 1);
        self.tell(who, GroupCall::Heartbeat, GroupEnd::Refused(code))
    }

    pub(super) fn left(&mut self, member: &str, generation: i32) -> &mut Self {
        self.tell(self.claim(1, None, member, generation), GroupCall::Leave, GroupEnd::Done)
    }

    pub(super) fn delivered(&mut self, index: u32, from: i64, next: i64) -> &mut Self {
        let now = self.step();
        let delivery = Delivery { group: 0, client: 1, partition: partition(index), from, next };
        self.history.deliver(now, delivery);
        self
    }

    /// So many records are there at the end.
    pub(super) fn written(&mut self, index: u32, count: i64) -> &mut Self {
        let partition = partition(index);
        let now = self.step();
        self.history.begin_last_phase();
        let id = self.history.invoke(0, now, Call::Read { partition, from: 0 });
        let seen = |offset| Seen { offset, value: Some(offset as u64), timestamp: 0 };
        let records = (0..count).map(seen).collect();
        let now = self.step();
        let end = End::Read { records, high_watermark: count, log_start: 0 };
        self.history.complete(id, now, end);
        self
    }

    /// The properties of groups that do not hold. In stories that do not tell who shares out,
    /// nobody has what was handed in.
    pub(super) fn blamed(&self) -> Vec<&'static str> {
        let all = self.blamed_for_shares().into_iter();
        all.filter(|property| *property != "group-shares").collect()
    }

    /// The same, in stories that tell it.
    pub(super) fn blamed_for_shares(&self) -> Vec<&'static str> {
        let violations = check(&self.history, &self.plan, Struck::default());
        let properties = violations.iter().map(|violation| violation.property);
        properties.filter(|property| property.starts_with("group-")).collect()
    }
}
