//! The cluster under test: its nodes, the clients' places in the network, and what concerns all of
//! them. What one node does and suffers is `member.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use madsim::plugin::simulator;
use madsim::time::TimeHandle;
use quorate_net::transport::Network;

use super::member::Member;
use super::network::{HostId, SimNetwork};
use super::witness::Ledger;
use super::{Surroundings, compare};
use crate::check::{Struck, Violation};
use crate::history::client_name;
use crate::plan::Plan;
use crate::run::Observed;

pub struct Cluster {
    pub time: TimeHandle,
    pub network: Arc<SimNetwork>,
    pub members: Vec<Arc<Member>>,
    clients: Vec<HostId>,
    ledger: Arc<Ledger>,
}

impl Cluster {
    pub fn new(plan: &Plan) -> Arc<Self> {
        let network = Arc::clone(&simulator::<Surroundings>().network);
        network.configure(plan.seed, plan.link.clone());
        let compacts = plan.topics.iter().any(|topic| topic.compact);
        let ledger = Arc::new(Ledger::new(plan.cluster.nodes, compacts));
        let numbers = 1..=plan.cluster.nodes;
        let members = numbers.map(|number| Member::new(plan, number, &ledger)).collect();
        let clients =
            (0..plan.clients_end()).map(|client| network.add(client_name(client))).collect();
        Arc::new(Self { time: TimeHandle::current(), network, members, clients, ledger })
    }

    /// The node with this number, from 1 on.
    pub fn member(&self, number: u32) -> &Arc<Member> {
        &self.members[number as usize - 1]
    }

    /// The hosts of the other nodes, or of one of them.
    pub fn others(&self, number: u32, other: Option<u32>) -> Vec<HostId> {
        let members = (1..).zip(&self.members);
        let others = members
            .filter(|(place, _)| *place != number && other.is_none_or(|other| other == *place));
        others.map(|(_, member)| member.host).collect()
    }

    pub fn client_network(&self, client: u32) -> Arc<dyn Network> {
        self.network.of(self.clients[client as usize])
    }

    /// The hosts of one client, or of all.
    pub fn client_hosts(&self, client: Option<u32>) -> Vec<HostId> {
        match client {
            Some(client) => self.clients.get(client as usize).copied().into_iter().collect(),
            None => self.clients.clone(),
        }
    }

    /// The run is over.
    pub async fn discard(&self) {
        for member in &self.members {
            member.discard().await;
        }
    }

    pub fn start(&self) {
        self.members.iter().for_each(|member| member.start());
    }

    /// Ends all faults, and starts the nodes that are down.
    pub fn heal(&self) {
        self.network.heal_all();
        self.members.iter().for_each(|member| member.heal());
    }

    /// What struck any of them.
    pub fn struck(&self) -> Struck {
        let all = self.members.iter().map(|member| member.struck());
        all.fold(Struck::default(), Struck::and)
    }

    /// Whether the nodes, side by side, were seen to do wrong.
    pub fn is_blamed(&self) -> bool {
        self.ledger.is_blamed()
    }

    /// Compares what the nodes hold, once nothing is written any more.
    pub fn compare(&self) -> Vec<Violation> {
        compare::logs(&self.members)
    }

    /// What was seen from outside.
    pub fn observed(&self) -> Observed {
        let mut observed = Observed::default();
        let mut faults: BTreeMap<&'static str, u64> = BTreeMap::new();
        for member in &self.members {
            let seen = member.observed();
            observed.struck = observed.struck.and(seen.struck);
            observed.violations.extend(seen.violations);
            observed.stuck.extend(seen.stuck);
            for (kind, count) in seen.faults {
                *faults.entry(kind).or_default() += count;
            }
        }
        observed.violations.extend(self.ledger.take());
        observed.faults = faults;
        observed
    }
}
