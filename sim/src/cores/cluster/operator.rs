//! Operators of several nodes in the world of cores: who asks for the plan's topics until all are
//! there, and who moves partitions, nodes and votes as the plan says, again and again until there
//! is an answer that is final.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::controller::interface::{
    ElectLeaders, Election, Input, MorePartitions, NewTopic, Outcome, PartitionName, ProblemKind,
    Reassign, SetDuty,
};
use quorate_core::id::{NodeId, RequestId};
use quorate_core::metadata::Duty;
use quorate_core::quorum::interface::{
    Change, Input as ForQuorum, Outcome as Vote, Refusal as NoVote,
};
use quorate_core::shard::interface::Input as ForShard;

use super::asks::Purpose;
use super::node::Waiting;
use super::{Cluster, Event, committers, transactions};
use crate::fault::Kind;
use crate::plan::text::Value as _;
use crate::plan::{Plan, Topic};
use crate::trace::Mark;

/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);
/// How long it asks one node.
const ASKING: Duration = Duration::from_secs(2);
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(100);

/// What operators do.
#[derive(Default)]
pub(super) struct Operators {
    acts: BTreeMap<u64, Act>,
    begun: u64,
    /// Nodes that were let go and not called back.
    pub(super) left: BTreeSet<NodeId>,
    /// Nodes that an operator sends away or back: two do not get in each other's way.
    sent: BTreeSet<NodeId>,
    /// The topics are there.
    pub(super) may_begin: bool,
}

struct Act {
    node: NodeId,
    what: What,
    /// What comes after it is done, and when.
    then: Option<(Duration, What)>,
    turn: u64,
}

#[derive(Clone, Debug)]
enum What {
    /// `None` takes the move back.
    Move(PartitionName, Option<Vec<NodeId>>),
    Duty(Duty),
    TakeVote,
    GiveVote,
    Elect(Election),
    Partitions(String, i32),
}

/// What one attempt came to.
enum Tried {
    Done,
    /// For good.
    Refused,
    Again,
}

impl Operators {
    /// Acts that have no answer yet, in words.
    pub(super) fn unanswered(&self) -> Option<String> {
        let act = self.acts.values().next()?;
        Some(format!("{:?} of n{} has no answer", act.what, act.node))
    }
}

impl Cluster {
    pub(super) fn operate(&mut self) {
        let place = self.inbox.below(self.nodes.len() as u64) as usize;
        let all = (0..self.nodes.len()).map(|n| (place + n) % self.nodes.len());
        let Some(n) = all.into_iter().find(|n| self.nodes[*n].serves()) else {
            self.agenda.after(LOOK, Event::Operate);
            return;
        };
        let image = &self.nodes[n].keeper.image;
        let topics = (0..).zip(&self.plan.topics);
        let missing = topics.filter(|(place, _)| image.topic_named(&format!("t{place}")).is_none());
        let missing = missing.map(|(place, topic): (u32, _)| new_topic(&self.plan, place, topic));
        let others =
            transactions::topics(&self.plan).into_iter().chain(committers::topics(&self.plan));
        let others = others.filter(|topic| image.topic_named(&topic.name).is_none());
        let missing: Vec<NewTopic> = missing.chain(others).collect();
        if missing.is_empty() {
            self.operators.may_begin = true;
            return;
        }
        let there = image.nodes().filter(|node| !node.fenced).count();
        let mut copies = self.plan.cluster.replication;
        if transactions::has_coordinators(&self.plan) {
            copies = copies.max(transactions::own_copies(&self.plan));
        }
        if there >= copies as usize {
            let input = Input::CreateTopics {
                request: RequestId(0),
                topics: missing,
                validate_only: false,
            };
            self.ask(n, Purpose::Operate, ASKING, input);
        }
        self.agenda.after(LOOK, Event::Operate);
    }
}

impl Cluster {
    /// Begins what the plan has an operator do; `false` if no operator does that.
    pub(super) fn act(&mut self, n: usize, kind: &Kind) -> bool {
        let nodes = |to: &Vec<u32>| to.iter().map(|node| NodeId(*node as i32)).collect();
        let (what, then) = match kind {
            // Nothing would be acknowledged any more.
            Kind::Reassign(wanted) if wanted.to.len() < self.plan.cluster.in_sync_min as usize => {
                return true;
            }
            Kind::Decommission(_) | Kind::Maintenance(_)
                if !self.operators.sent.insert(self.nodes[n].id) =>
            {
                return true;
            }
            Kind::Reassign(wanted) => {
                let (topic, index) = (format!("t{}", wanted.topic), wanted.partition as i32);
                let name = PartitionName { topic, index };
                let back = wanted.cancel.map(|after| (after, What::Move(name.clone(), None)));
                (What::Move(name, Some(nodes(&wanted.to))), back)
            }
            Kind::Decommission(wanted) => {
                let back = wanted.back.map(|after| (after, What::Duty(Duty::Serve)));
                (What::Duty(Duty::Leave), back)
            }
            Kind::Maintenance(wanted) => {
                let back = Some((wanted.during, What::Duty(Duty::Serve)));
                (What::Duty(Duty::Maintenance), back)
            }
            Kind::RemoveVoter(wanted) => {
                (What::TakeVote, wanted.back.map(|after| (after, What::GiveVote)))
            }
            Kind::AddVoter(_) => (What::GiveVote, None),
            Kind::ElectPreferred(_) => (What::Elect(Election::Preferred), None),
            Kind::ElectUnclean(_) => {
                self.observed.struck.led_uncleanly = true;
                self.shadow.is_unclean = true;
                (What::Elect(Election::Unclean), None)
            }
            Kind::AddPartitions(more) => {
                (What::Partitions(format!("t{}", more.topic), more.to as i32), None)
            }
            _ => return false,
        };
        let operators = &mut self.operators;
        operators.begun += 1;
        let (id, node) = (operators.begun, self.nodes[n].id);
        operators.acts.insert(id, Act { node, what, then, turn: 0 });
        self.try_act(id);
        true
    }

    /// Asks some node that serves; looks again if that does not answer.
    fn try_act(&mut self, id: u64) {
        self.next_ask += 1;
        let turn = self.next_ask;
        let Some(act) = self.operators.acts.get_mut(&id) else { return };
        act.turn = turn;
        let (node, what) = (act.node, act.what.clone());
        self.agenda.after(ASKING + AGAIN, Event::ActDue { act: id, turn });
        if matches!(what, What::TakeVote | What::GiveVote) {
            return self.try_vote(id, turn, node, matches!(what, What::GiveVote));
        }
        let serving: Vec<usize> =
            (0..self.nodes.len()).filter(|n| self.nodes[*n].serves()).collect();
        let Some(place) = serving.len().checked_sub(1) else { return };
        let n = serving[self.inbox.below(place as u64 + 1) as usize];
        let request = RequestId(0);
        let input = match what {
            What::Move(partition, target) => Input::Reassign {
                request,
                replication_changes: true,
                partitions: vec![Reassign { partition, target }],
            },
            What::Duty(duty) => Input::SetDuty(SetDuty { request, node, duty }),
            What::Elect(election) => {
                Input::ElectLeaders(ElectLeaders { request, election, partitions: None })
            }
            What::Partitions(topic, count) => Input::CreatePartitions {
                request,
                topics: vec![MorePartitions { topic, count, assignments: Vec::new() }],
                validate_only: false,
            },
            What::TakeVote | What::GiveVote => return,
        };
        self.ask(n, Purpose::Act { act: id, turn }, ASKING, input);
    }

    /// Asks the node that leads the quorum.
    fn try_vote(&mut self, id: u64, turn: u64, node: NodeId, gives: bool) {
        let leads = |n: &usize| self.nodes[*n].leader() == Some(self.nodes[*n].id);
        let Some(n) = (0..self.nodes.len()).find(leads) else { return };
        let now = self.nodes[n].now(self.agenda.now);
        let seat = self.nodes[n].shard.as_ref().and_then(|shard| shard.seat());
        let Some(status) = seat.map(|seat| seat.quorum().status(now)) else { return };
        let voter = status.configuration.on_node(node).next();
        let mut observers = status.replicas.iter().filter(|replica| !replica.is_voter);
        let observer = observers.find(|replica| replica.member.node == node && replica.is_heard);
        let change = match (gives, voter, observer) {
            (false, Some(voter), _) => Change::RemoveVoter(voter),
            (false, None, _) | (true, Some(_), _) => return self.on_acted(id, turn, &Tried::Done),
            (true, None, Some(observer)) => Change::AddVoter(observer.member),
            (true, None, None) => return,
        };
        let request = self.nodes[n].next_request(Waiting::Vote { act: id, turn });
        self.tell(n, ForShard::Quorum(ForQuorum::Change { request, change }));
    }

    pub(super) fn on_voted(&mut self, id: u64, turn: u64, outcome: &Vote) {
        let tried = match outcome {
            Vote::Refused(NoVote::LastVoter) => Tried::Refused,
            Vote::Refused(_) => Tried::Again,
            _ => Tried::Done,
        };
        self.on_acted(id, turn, &tried);
    }

    pub(super) fn on_act_answered(&mut self, id: u64, turn: u64, outcome: Outcome) {
        let mut problem = None;
        match outcome {
            Outcome::Refused(why) => problem = Some(why.kind),
            Outcome::Reassigned(each) => {
                problem = each.into_iter().find_map(|(_, done)| Some(done.err()?.kind));
            }
            Outcome::PartitionsCreated(each) => {
                problem = each.into_iter().find_map(|(_, done)| Some(done.err()?.kind));
                // There are as many already: an answer was lost, or another was faster.
                problem = problem.filter(|kind| *kind != ProblemKind::InvalidPartitions);
                if problem == Some(ProblemKind::InvalidReplication) {
                    return self.on_acted(id, turn, &Tried::Again);
                }
            }
            // What is refused of single partitions stays as it is.
            _ => {}
        }
        let tried = match problem {
            None => Tried::Done,
            Some(
                ProblemKind::Loading
                | ProblemKind::NotAvailable
                | ProblemKind::Busy
                | ProblemKind::UnknownTopic,
            ) => Tried::Again,
            Some(_) => Tried::Refused,
        };
        self.on_acted(id, turn, &tried);
    }

    fn on_acted(&mut self, id: u64, turn: u64, tried: &Tried) {
        let Some(act) = self.operators.acts.get(&id).filter(|act| act.turn == turn) else { return };
        if matches!(tried, Tried::Again) {
            self.agenda.after(AGAIN, Event::ActDue { act: id, turn });
            return;
        }
        let n = super::node::place_of(act.node);
        let is_done = matches!(tried, Tried::Done);
        let end = if is_done { "done" } else { "refused" };
        self.note(n, Mark::Fault, id, &format!("{:?} is {end}", act.what));
        let Some(mut act) = self.operators.acts.remove(&id) else { return };
        if act.then.is_none() || !is_done {
            // Who was let go for good is nobody else's.
            let is_gone = is_done && matches!(act.what, What::Duty(Duty::Leave));
            if matches!(act.what, What::Duty(_)) && !is_gone {
                self.operators.sent.remove(&act.node);
            }
        }
        if !is_done {
            return;
        }
        match act.what {
            What::Duty(Duty::Leave) => drop(self.operators.left.insert(act.node)),
            What::Duty(_) => drop(self.operators.left.remove(&act.node)),
            What::Partitions(ref topic, count) => {
                let place = topic.trim_start_matches('t').parse().expect("a topic of the plan");
                self.clients.use_partitions(place, count as u32);
                self.conversations.parties.use_partitions(&self.clients.partitions);
            }
            _ => {}
        }
        if let Some((after, what)) = act.then.take() {
            (act.what, act.turn) = (what, turn);
            self.operators.acts.insert(id, act);
            self.agenda.after(after, Event::ActDue { act: id, turn });
        }
    }

    pub(super) fn on_act_due(&mut self, id: u64, turn: u64) {
        if self.operators.acts.get(&id).is_some_and(|act| act.turn == turn) {
            self.try_act(id);
        }
    }
}

fn new_topic(plan: &Plan, place: u32, topic: &Topic) -> NewTopic {
    let time = if topic.log_append_time { "LogAppendTime" } else { "CreateTime" };
    let millis = |time: Duration| time.as_millis() as u64;
    let settings = [
        ("segment.bytes", topic.segment_bytes.to_string()),
        ("segment.ms", topic.segment_time.as_millis().to_string()),
        ("quorate.flush", topic.flush.print()),
        ("message.timestamp.type", time.to_owned()),
        ("retention.ms", kept(topic.retention_time.map(millis))),
        ("retention.bytes", kept(topic.retention_bytes)),
        ("min.insync.replicas", plan.cluster.in_sync_min.to_string()),
    ];
    let mut configs = settings.map(|(name, value)| (name.to_owned(), Some(value))).to_vec();
    if topic.compact {
        let policy = if topic.retention_bytes.is_some() || topic.retention_time.is_some() {
            "compact,delete"
        } else {
            "compact"
        };
        let share = topic.cleanable.hits * 100 / topic.cleanable.of.max(1);
        let share = format!("0.{share:02}");
        let compacted = [("cleanup.policy", policy), ("min.cleanable.dirty.ratio", &*share)];
        let given = |(name, value): (&str, &str)| (name.to_owned(), Some(value.to_owned()));
        configs.extend(compacted.map(given));
    }
    NewTopic {
        name: format!("t{place}"),
        partitions: Some(topic.partitions as i32),
        replication: Some(plan.cluster.replication as i16),
        configs,
        ..NewTopic::default()
    }
}

/// How Kafka writes a bound; -1 is none.
fn kept(bound: Option<u64>) -> String {
    bound.map_or_else(|| "-1".to_owned(), |bound| bound.to_string())
}
