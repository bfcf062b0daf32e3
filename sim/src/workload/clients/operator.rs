//! What operators do to a cluster, as the command line does it: through our client library, to
//! whichever node answers, again and again until there is an answer that is final.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::id::NodeId;
use quorate_core::reached;
use quorate_net::client::{
    Client, ConfigurationChange, Election, Error, PartitionName, QuorumMember, Resource,
};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::FindCoordinatorRequest;
use quorate_net::wire::Text;

use super::super::client::within;
use super::{Scene, library};
use crate::chance::Chance;
use crate::fault::reassign::Reassign;
use crate::fault::{Fault, Kind};
use crate::history::Partition;
use crate::workload::writer;

/// A node's configuration that says what is wanted of it.
const DUTY: &str = "quorate.duty";
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(100);
/// Between two looks at what nodes are for: as long as a node asks the controller for a client that
/// may have left.
const LATE: Duration = Duration::from_secs(10);

/// What operators have done so far.
#[derive(Debug, Default)]
pub struct Done {
    /// Acts under way, in words, by their order.
    open: BTreeMap<u64, String>,
    begun: u64,
    /// Partitions of topics that were given more.
    raised: BTreeMap<u32, u32>,
    /// Nodes that were let go and not called back.
    left: BTreeSet<u32>,
    /// Nodes that an operator sends away or back now: two do not get in each other's way.
    sent: BTreeSet<u32>,
    /// What the others are for that were sent once.
    duties: BTreeMap<u32, &'static str>,
    /// The topics are there. Whoever sets a cluster up does that first.
    may_begin: bool,
}

/// What is asked of the cluster.
#[derive(Debug, PartialEq, Eq)]
enum Ask {
    /// `None` takes the move back.
    Move {
        partition: PartitionName,
        to: Option<Vec<NodeId>>,
    },
    Duty(&'static str),
    TakeVote,
    GiveVote,
    Elect(Election),
    Partitions {
        topic: String,
        to: i32,
    },
}

/// What one attempt came to.
enum Tried {
    /// It was done.
    Done,
    /// It was refused for good.
    Refused(Error),
    Again(Error),
}

impl Done {
    fn begin(&mut self, what: String) -> u64 {
        self.begun += 1;
        self.open.insert(self.begun, what);
        self.begun
    }

    /// Acts may begin.
    pub fn begin_acting(&mut self) {
        self.may_begin = true;
    }

    /// An act that has no answer yet.
    pub(super) fn unanswered(&self) -> Option<String> {
        self.open.values().next().map(|what| format!("{what} has no answer"))
    }

    /// Nodes that shall keep nothing.
    pub fn left(&self) -> &BTreeSet<u32> {
        &self.left
    }
}

impl Scene {
    /// The partitions that there are by now.
    pub(super) fn partitions(&self) -> Vec<Partition> {
        let mut partitions = writer::partitions(&self.plan);
        for (&topic, &count) in &self.stage.operators().raised {
            let first = self.plan.topics[topic as usize].partitions;
            partitions.extend((first..count).map(|index| Partition { topic, index }));
        }
        partitions
    }
}

/// Carries out what the plan has an operator do.
pub async fn act(scene: Scene, client: u32, fault: Fault) {
    let number = scene.stage.operators().begin(format!("{:?} of {}", fault.kind, fault.node));
    let chance = Chance::new(scene.plan.seed, &format!("operator {number}"));
    let operator = Operator { scene, client, chance, node: fault.node };
    while !operator.scene.stage.operators().may_begin {
        operator.pass(AGAIN).await;
    }
    let wipes = operator.scene.plan.faults.iter().any(|fault| matches!(fault.kind, Kind::Wipe(_)));
    if wipes && let Kind::Decommission(_) | Kind::RemoveVoter(_) = &fault.kind {
        operator.coordinators_come_first().await;
    }
    match &fault.kind {
        // Nothing would be acknowledged any more.
        Kind::Reassign(wanted)
            if wanted.to.len() < operator.scene.plan.cluster.in_sync_min as usize => {}
        Kind::Reassign(reassign) => operator.reassign(reassign).await,
        Kind::Decommission(_) | Kind::Maintenance(_) if !operator.takes_node() => {}
        Kind::Decommission(decommission) => operator.decommission(decommission.back).await,
        Kind::Maintenance(maintenance) => {
            if operator.ask(Ask::Duty("maintenance")).await {
                operator.pass(maintenance.during).await;
                operator.ask(Ask::Duty("serve")).await;
            }
            operator.leaves_node();
        }
        Kind::RemoveVoter(removal) => operator.remove_voter(removal.back).await,
        Kind::AddVoter(_) => drop(operator.ask(Ask::GiveVote).await),
        Kind::ElectPreferred(_) => drop(operator.ask(Ask::Elect(Election::Preferred)).await),
        Kind::ElectUnclean(_) => drop(operator.ask(Ask::Elect(Election::Unclean)).await),
        Kind::AddPartitions(more) => operator.add_partitions(more.topic, more.to).await,
        other => unreachable!("no operator does {other:?}"),
    }
    operator.scene.stage.operators().open.remove(&number);
}

/// Tells nodes again what they are for, from the healing on. What was asked in an attempt that was
/// given up may be done after what was asked next: a node that hears of no controller asks on for
/// its client, whether that is still there or not. So one that had been called back stood in
/// maintenance for good (seed 3931 of three nodes). To be told the same again changes nothing. Once
/// nobody has said anything for so long, no word is late, and what comes undone then stays so.
pub async fn look_after(scene: Scene, client: u32) {
    let chance = Chance::new(scene.plan.seed, "operator who looks after nodes");
    let mut operator = Operator { scene, client, chance, node: 0 };
    let mut was_quiet = false;
    while !operator.scene.stage.is_over() && !was_quiet {
        was_quiet = operator.scene.stage.operators().open.is_empty();
        operator.pass(LATE).await;
        let duties = operator.scene.stage.operators().duties.clone();
        for (node, duty) in duties {
            operator.node = node;
            // Who was let go for good is nobody else's.
            if duty == "leave" {
                operator.ask(Ask::Duty(duty)).await;
            } else if operator.takes_node() {
                operator.ask(Ask::Duty(duty)).await;
                operator.leaves_node();
            }
        }
    }
}

struct Operator {
    scene: Scene,
    client: u32,
    chance: Chance,
    /// Which node the act is about.
    node: u32,
}

impl Operator {
    async fn pass(&self, during: Duration) {
        self.scene.clock.sleep(during).await;
    }

    /// Asks until there is an answer; whether it was done.
    async fn ask(&self, ask: Ask) -> bool {
        let mut chance = self.chance.clone();
        loop {
            let client = library::library(&self.scene, &mut chance);
            match self.attempt(&client, &ask).await {
                Tried::Done => {
                    self.note(&ask, "done");
                    return true;
                }
                Tried::Refused(error) => {
                    self.note(&ask, &error.to_string());
                    return false;
                }
                Tried::Again(error) => {
                    self.scene.stage.note(self.client, format!("{ask:?}: {error}"));
                }
            }
            self.pass(AGAIN).await;
        }
    }

    async fn attempt(&self, client: &Client, ask: &Ask) -> Tried {
        match ask {
            Ask::Move { partition, to } => {
                let moves = client.reassign(&[(partition.clone(), to.clone())]).await;
                match moves {
                    Ok(mut each) => tried(each.pop().map_or(Ok(()), |(_, outcome)| outcome)),
                    Err(error) => tried(Err(error)),
                }
            }
            Ask::Duty(duty) => {
                let resource = Resource::Broker(self.node as i32);
                let change = ConfigurationChange::Set(DUTY.to_owned(), (*duty).to_owned());
                tried(client.alter_configs(&resource, &[change]).await)
            }
            Ask::TakeVote | Ask::GiveVote => self.vote(client, *ask == Ask::GiveVote).await,
            // What is refused of single partitions stays as it is.
            Ask::Elect(election) => tried(client.elect_leaders(*election, None).await.map(drop)),
            Ask::Partitions { topic, to } => match client.add_partitions(topic, *to).await {
                // There are as many already: the answer to an earlier attempt was lost, or another
                // operator was faster.
                Err(error) if error.code() == Some(Code::InvalidPartitions) => Tried::Done,
                // Not enough nodes are there now.
                Err(error) if error.code() == Some(Code::InvalidReplicationFactor) => {
                    Tried::Again(error)
                }
                outcome => tried(outcome),
            },
        }
    }

    async fn vote(&self, client: &Client, gives: bool) -> Tried {
        let node = NodeId(self.node as i32);
        let quorum = match client.describe_quorum().await {
            Ok(quorum) => quorum,
            Err(error) => return Tried::Again(error),
        };
        match (gives, directory(&quorum.voters, node), directory(&quorum.observers, node)) {
            (false, Some(directory), _) => tried(client.remove_voter(node, directory).await),
            // The answer to an earlier attempt was lost, or there is nothing to do.
            (false, None, _) | (true, Some(_), _) => Tried::Done,
            (true, None, Some(directory)) => tried(client.add_voter(node, directory).await),
            (true, None, None) => {
                let reason = format!("node {node} does not follow the quorum");
                Tried::Again(Error::Invalid { reason })
            }
        }
    }

    fn note(&self, ask: &Ask, end: &str) {
        self.scene.stage.done(self.client);
        let now = self.scene.now().monotonic;
        super::note_act(now, self.client, self.node, || format!("{ask:?}: {end}"));
    }

    async fn reassign(&self, wanted: &Reassign) {
        let topic = format!("t{}", wanted.topic);
        let partition = PartitionName { topic, partition: wanted.partition as i32 };
        let to = wanted.to.iter().map(|node| NodeId(*node as i32)).collect();
        let moves = self.ask(Ask::Move { partition: partition.clone(), to: Some(to) }).await;
        if let Some(cancel) = wanted.cancel.filter(|_| moves) {
            self.pass(cancel).await;
            if self.ask(Ask::Move { partition, to: None }).await {
                reached!("operator-cancels-a-move");
            }
        }
    }

    /// A topic of coordinators is created when it is first asked for, with a copy for each node
    /// that stays then: beside one that was let go before, two of three, of which one may
    /// acknowledge (docs/decisions/0142). A plan may wipe a disk because there are three, so
    /// operators let nobody go until these topics are there.
    async fn coordinators_come_first(&self) {
        let plan = &self.scene.plan;
        let (groups, transactions) = (plan.has_groups(), plan.transactions.is_some());
        for (key_type, is_needed) in [(0, groups), (1, transactions)] {
            while is_needed && !self.finds_coordinator(key_type).await {
                self.scene.stage.note(self.client, "finds no coordinator");
                self.pass(AGAIN).await;
            }
        }
    }

    async fn finds_coordinator(&self, key_type: i8) -> bool {
        let Some(mut link) = self.scene.connect(self.client).await else { return false };
        let key = Text::from_static("operator");
        let request = FindCoordinatorRequest { key, key_type, ..Default::default() };
        let answer = within(&*self.scene.clock, self.scene.timeout(), link.call(2, &request)).await;
        answer.is_ok_and(|found| found.error_code == Code::None.code())
    }

    /// Whether no other operator is about to send the node away or back.
    fn takes_node(&self) -> bool {
        let mut operators = self.scene.stage.operators();
        let takes = operators.sent.insert(self.node);
        if takes {
            operators.duties.remove(&self.node);
        }
        takes
    }

    fn leaves_node(&self) {
        let mut operators = self.scene.stage.operators();
        operators.sent.remove(&self.node);
        operators.duties.insert(self.node, "serve");
    }

    async fn decommission(&self, back: Option<Duration>) {
        if !self.ask(Ask::Duty("leave")).await {
            reached!("operator-cannot-let-a-node-go");
            self.leaves_node();
            return;
        }
        self.scene.stage.operators().left.insert(self.node);
        let Some(back) = back else {
            self.scene.stage.operators().duties.insert(self.node, "leave");
            return;
        };
        self.pass(back).await;
        if self.ask(Ask::Duty("serve")).await {
            self.scene.stage.operators().left.remove(&self.node);
            self.leaves_node();
        }
    }

    async fn remove_voter(&self, back: Option<Duration>) {
        if self.ask(Ask::TakeVote).await
            && let Some(back) = back
        {
            self.pass(back).await;
            self.ask(Ask::GiveVote).await;
        }
    }

    async fn add_partitions(&self, topic: u32, to: u32) {
        if self.ask(Ask::Partitions { topic: format!("t{topic}"), to: to as i32 }).await {
            reached!("operator-adds-partitions");
            let mut operators = self.scene.stage.operators();
            let raised = operators.raised.entry(topic).or_default();
            *raised = to.max(*raised);
        }
    }
}

fn directory(members: &[QuorumMember], node: NodeId) -> Option<[u8; 16]> {
    members.iter().find(|member| member.node == node).map(|member| member.directory)
}

fn tried(outcome: Result<(), Error>) -> Tried {
    match outcome {
        Ok(()) => Tried::Done,
        // The library has tried for as long as it may, or met a refusal.
        Err(error) => match error.code() {
            Some(code) if !code.is_retriable() => Tried::Refused(error),
            _ => Tried::Again(error),
        },
    }
}
