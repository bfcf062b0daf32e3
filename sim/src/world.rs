//! The world of nodes: the shipping node under a deterministic runtime, with a disk, a network and
//! a clock of ours. Only this half knows the runtime (`cfg(madsim)`).
//!
//! A run: faults strike while clients work; then everything is healed and must work again; then
//! everything is read for the last time.

pub mod clock;
pub mod cluster;
pub mod compare;
pub mod disk;
mod gate;
pub mod inject;
pub mod member;
pub mod network;
pub mod observe;
pub mod witness;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use madsim::plugin::{Simulator, simulator};
use madsim::rand::GlobalRng;
use madsim::runtime::{Handle, NodeHandle, Runtime};
use madsim::task::{JoinHandle, NodeId};
use madsim::time::TimeHandle;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use self::clock::{SimClock, until};
use self::cluster::Cluster;
use self::disk::SimDisks;
use self::member::Member;
use self::network::SimNetwork;
use crate::chance::Chance;
use crate::check::Violation;
use crate::fault::Kind;
use crate::fault::power_loss::Unsynced;
use crate::history::{History, client_name};
use crate::plan::Plan;
use crate::run::Observed;
use crate::trace::{self, Mark};
use crate::workload::clients::reading::{read, read_everything};
use crate::workload::clients::setup::create_topics;
use crate::workload::clients::{
    Scene, Stage, committers, groups, health, library, operator, transactions, write,
};
use crate::workload::members;

/// Runs a plan on this thread, which must be a fresh one.
pub fn run(plan: &Plan) -> Observed {
    live(plan).0
}

/// A run; and its network, which is gone unless something of the run is still there.
fn live(plan: &Plan) -> (Observed, Weak<SimNetwork>) {
    let seed = Chance::new(plan.seed, "runtime").number();
    let runtime = Runtime::with_seed_and_config(seed, madsim::Config::default());
    runtime.add_simulator::<Surroundings>();
    let outside = runtime.create_node().name("outside").build();
    let observed = runtime.block_on(simulate(Arc::new(plan.clone()), outside.clone()));
    trace::close();
    let network = runtime.block_on(clear_away(outside.id()));
    (observed, network)
}

/// Ends what still waits outside of the nodes. A task that waits is held by its timer, its timer by
/// the clock, and the clock by the task: otherwise most of a life would stay in memory for ever.
async fn clear_away(outside: NodeId) -> Weak<SimNetwork> {
    let time = TimeHandle::current();
    Handle::current().kill(outside);
    // They are dropped when their turn comes.
    until(&time, time.elapsed() + Duration::from_millis(1)).await;
    Arc::downgrade(&simulator::<Surroundings>().network)
}

/// Network and disks, as one plugin of the runtime. It goes through several in the order of a hash
/// of their types, which is another in each build: of two builds a seed would not be one run.
pub struct Surroundings {
    pub network: Arc<SimNetwork>,
    pub disks: SimDisks,
}

impl Simulator for Surroundings {
    fn new(_: &GlobalRng, time: &TimeHandle, _: &madsim::Config) -> Self {
        Self {
            network: Arc::new(SimNetwork::new(time.clone())),
            disks: SimDisks::new(time.clone()),
        }
    }

    fn reset_node(&self, id: NodeId) {
        self.disks.reset_node(id);
        self.network.reset_node(id);
    }
}

async fn simulate(plan: Arc<Plan>, outside: NodeHandle) -> Observed {
    let time = TimeHandle::current();
    let cluster = Cluster::new(&plan);
    let actors = Actors {
        plan: Arc::clone(&plan),
        cluster: Arc::clone(&cluster),
        stage: Arc::default(),
        history: Arc::default(),
        roster: Arc::default(),
        commits: Arc::default(),
        proofs: Arc::default(),
        members: Arc::default(),
        outside: outside.clone(),
    };
    cluster.start();
    let supervise = |member: &Arc<Member>| outside.spawn(Arc::clone(member).supervise());
    let supervisors: Vec<_> = cluster.members.iter().map(supervise).collect();
    let faults = outside.spawn(actors.clone().strike());
    let mut clients = outside.spawn(actors.clone().work());

    let is_blamed = until_blamed(&cluster, plan.run.safety).await;
    faults.abort();
    if is_blamed {
        // Nothing that follows could be better news.
        supervisors.iter().for_each(|supervisor| supervisor.abort());
        clients.abort();
        return actors.end_early().await;
    }
    cluster.heal();
    actors.stage.heal();
    trace::event(time.elapsed(), Mark::Run, "all", [0; 3], || "healed");
    actors.look_after();
    let deadline = time.elapsed() + plan.run.liveness;
    let working = actors.by(deadline, &mut clients).await;
    let worked = working.is_some();
    let finished = match working {
        Some(working) => actors.clone().finishes(plan.run.liveness, working).await,
        None => false,
    };
    if !worked && cluster.struck().rot {
        // What is still served is read, once nobody writes any more.
        actors.stage.finish();
        if let Some(working) = actors.by(time.elapsed() + plan.run.liveness, &mut clients).await {
            actors.clone().finishes(plan.run.liveness, working).await;
        }
    }
    supervisors.iter().for_each(|supervisor| supervisor.abort());

    let mut observed = actors.observed();
    if finished && plan.cluster.nodes > 1 {
        observed.violations.extend(cluster.compare());
    }
    if !finished && observed.struck.rot {
        // The only copy of something has rotted: no node can go on from there, and none may guess.
        observed.stuck.clear();
        observed.faults.insert("excused", 1);
    } else if finished {
        observed.stuck.clear();
    } else {
        observed.stuck.splice(0..0, actors.stage.waiting());
        if observed.stuck.is_empty() {
            observed.stuck.push("something waits, and no client says for what".to_owned());
        }
    }
    observed.history = actors.history.lock().expect("one thread").clone();
    observed.simulated = time.elapsed();
    note_end(&observed, finished);
    clients.abort();
    cluster.discard().await;
    observed
}

/// Waits until then; or, with several nodes, until one is seen to do wrong. Whether one is.
async fn until_blamed(cluster: &Cluster, then: Duration) -> bool {
    const LOOK: Duration = Duration::from_millis(100);
    let time = &cluster.time;
    while cluster.members.len() > 1 && time.elapsed() + LOOK < then {
        until(time, time.elapsed() + LOOK).await;
        if cluster.is_blamed() {
            return true;
        }
    }
    until(time, then).await;
    false
}

fn note_end(observed: &Observed, finished: bool) {
    let tally = observed.history.tally();
    let numbers = [tally.operations as u64, tally.acknowledged as u64, tally.read as u64];
    trace::event(observed.simulated, Mark::Run, "all", numbers, || {
        format!("ends, finished: {finished}, {tally:?}")
    });
}

/// The clients of a run.
#[derive(Clone)]
struct Actors {
    plan: Arc<Plan>,
    cluster: Arc<Cluster>,
    stage: Arc<Stage>,
    history: Arc<Mutex<History>>,
    roster: Arc<members::Roster>,
    commits: Arc<transactions::Commits>,
    proofs: Arc<committers::Proofs>,
    /// Of groups and transactions: they end when they are told to, whatever they wait for.
    members: Arc<Mutex<Vec<JoinHandle<()>>>>,
    /// Where they are.
    outside: NodeHandle,
}

impl Actors {
    fn spawn(
        &self,
        client: u32,
        life: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.outside.spawn(life.instrument(observe::client_span(client)))
    }

    fn scene(&self, client: u32) -> Scene {
        let clock = SimClock::exact(client_name(client), TimeHandle::current());
        Scene {
            plan: Arc::clone(&self.plan),
            history: Arc::clone(&self.history),
            stage: Arc::clone(&self.stage),
            addresses: (1..=self.plan.cluster.nodes).map(|n| format!("n{n}:9092")).collect(),
            attempts: AtomicUsize::new(0),
            network: self.cluster.client_network(client),
            clock: Arc::new(clock),
        }
    }

    /// Faults strike, and operators act.
    async fn strike(self) {
        let operator = self.plan.operator();
        let act = |fault| {
            let life = operator::act(self.scene(operator), operator, fault);
            drop(self.spawn(operator, life));
        };
        inject::all(Arc::clone(&self.cluster), Arc::clone(&self.plan), act).await;
    }

    /// Where an operator sends nodes away, one looks after them.
    fn look_after(&self) {
        let sends = |kind: &Kind| matches!(kind, Kind::Decommission(_) | Kind::Maintenance(_));
        if self.plan.faults.iter().any(|fault| sends(&fault.kind)) {
            let operator = self.plan.operator();
            let life = operator::look_after(self.scene(operator), operator);
            drop(self.spawn(operator, life));
        }
    }

    /// What was seen from outside, but for logs that went because somebody had their topic deleted.
    fn observed(&self) -> Observed {
        let mut observed = self.cluster.observed();
        let is_wanted =
            |it: &Violation| it.property == "deleted" && self.stage.is_deleted(&it.place);
        observed.violations.retain(|violation| !is_wanted(violation));
        observed
    }

    /// What was seen by now.
    async fn end_early(self) -> Observed {
        let mut observed = self.observed();
        observed.stuck.clear();
        observed.history = self.history.lock().expect("one thread").clone();
        observed.simulated = self.cluster.time.elapsed();
        note_end(&observed, false);
        self.cluster.discard().await;
        observed
    }

    /// Creates the topics, then writes and reads. Returns those who go on doing so when the writers
    /// have shown that all works.
    async fn work(self) -> Vec<JoinHandle<()>> {
        let (writers, last) = (self.plan.workload.writers, self.plan.last_client());
        create_topics(&self.scene(last), last).await;
        self.stage.operators().begin_acting();
        let read: Vec<JoinHandle<()>> = (writers..last)
            .map(|client| self.spawn(client, read(self.scene(client), client)))
            .collect();
        let mut clients = read;
        let mut proofs = Vec::new();
        for client in 0..writers {
            let (proven, proof) = oneshot::channel();
            clients.push(self.spawn(client, write(self.scene(client), client, proven)));
            proofs.push(proof);
        }
        let (writers, readers) = self.plan.library_clients();
        for client in writers {
            let (proven, proof) = oneshot::channel();
            let life = library::write(self.scene(client), client, proven);
            clients.push(self.spawn(client, life));
            proofs.push(proof);
        }
        for client in readers {
            let (proven, proof) = oneshot::channel();
            clients.push(self.spawn(client, library::read(self.scene(client), client, proven)));
            proofs.push(proof);
        }
        let members = self.plan.members().map(|client| {
            let life = groups::live(self.scene(client), client, Arc::clone(&self.roster));
            self.spawn(client, life)
        });
        self.members.lock().expect("one thread").extend(members);
        let transactional = self.plan.transactional().map(|client| {
            let life = transactions::live(self.scene(client), client, Arc::clone(&self.commits));
            self.spawn(client, life)
        });
        self.members.lock().expect("one thread").extend(transactional);
        let committing = self.plan.committing().map(|client| {
            let life = committers::live(self.scene(client), client, Arc::clone(&self.proofs));
            self.spawn(client, life)
        });
        self.members.lock().expect("one thread").extend(committing);
        if self.plan.cluster.nodes > 1 {
            let last = self.plan.last_client();
            health::becomes_whole(&self.scene(last), last).await;
        }
        for proof in proofs {
            // A run that ends without proof, because its disk has rotted, drops the sender.
            let _ = proof.await;
        }
        let last = self.plan.last_client();
        let others = async {
            groups::settle(&self.scene(last), &self.roster, last).await;
            transactions::settle(&self.scene(last), &self.commits, last).await;
            committers::settle(&self.scene(last), &self.proofs, last).await;
        };
        health::with_room(&self.scene(last), others).await;
        clients
    }

    /// Loses power once more while clients work, and reads everything that must have survived it.
    async fn finish(self, working: Vec<JoinHandle<()>>) {
        for member in &self.cluster.members {
            member.must_have_halted().await;
        }
        let mut chance = Chance::new(self.plan.seed, "end");
        let unsynced = *chance.pick(Unsynced::ALL);
        let loses_power = !chance.one_in(4);
        let moment = inject::draw_moment(&mut chance, &self.plan);
        if loses_power {
            inject::wait_for_moment(self.cluster.member(1), moment).await;
            for member in &self.cluster.members {
                member.lose_power(unsynced);
            }
        }
        self.stage.finish();
        // Whatever a member has asked for, it is not told any more.
        self.members.lock().expect("one thread").drain(..).for_each(|member| member.abort());
        self.cluster.start();
        for client in working {
            client.await.expect("a client ends");
        }
        let client = self.plan.last_client();
        self.history.lock().expect("one thread").begin_last_phase();
        let rot = self.cluster.struck().rot;
        read_everything(&self.scene(client), client, rot).await;
        groups::read_offsets(self.scene(client), client).await;
        transactions::read_last(self.scene(client), client, rot).await;
        if self.plan.cluster.nodes > 1 {
            self.replicas_agree(client).await;
        }
    }

    /// Nothing is written any more: every replica comes to have all of it.
    async fn replicas_agree(&self, client: u32) {
        let time = TimeHandle::current();
        health::becomes_whole(&self.scene(client), client).await;
        let members = &self.cluster.members;
        let mut ends = compare::Ends::default();
        loop {
            let left = self.stage.operators().left().clone();
            let mut lacking = compare::lagging(members, &mut ends);
            lacking.extend(compare::kept(members, &left));
            let Some(lacking) = lacking.into_iter().next() else { break };
            self.stage.note(client, lacking);
            until(&time, time.elapsed() + Duration::from_millis(100)).await;
        }
        self.stage.done(client);
    }

    /// Whether the last reading comes to its end: within `patience` of the last step that it got on
    /// by. A long log, a slow link and a late deadline are no fault of the node.
    async fn finishes(self, patience: Duration, working: Vec<JoinHandle<()>>) -> bool {
        let time = TimeHandle::current();
        let stage = Arc::clone(&self.stage);
        let stalls = async {
            let mut seen = None;
            while seen != Some(stage.progress()) {
                seen = Some(stage.progress());
                until(&time, time.elapsed() + patience).await;
            }
        };
        tokio::select! {
            biased;
            () = self.finish(working) => true,
            () = stalls => false,
        }
    }

    /// What it comes to before the deadline.
    async fn by<T>(&self, deadline: Duration, clients: &mut JoinHandle<T>) -> Option<T> {
        let time = TimeHandle::current();
        tokio::select! {
            biased;
            worked = clients => Some(worked.expect("the clients are set going")),
            () = until(&time, deadline) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::draw::draw_cluster;

    /// Operators and faults that wait when a run ends, as they do in most, once kept a megabyte of
    /// each life: a campaign of 865 lives had 900 MiB and was half as fast as at its beginning.
    #[test]
    fn nothing_of_a_life_outlives_it() {
        for seed in [3, 7, 11] {
            let life = move || live(&draw_cluster(seed, 3)).1;
            let network = std::thread::spawn(life).join().expect("it lives");
            assert_eq!(network.strong_count(), 0, "seed {seed}");
        }
    }
}
