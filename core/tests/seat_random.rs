//! Random walks of seats in a metadata quorum: messages are lost, doubled and overtaken, nodes
//! crash and keep what was durable. All must see one history, in which everything that was
//! answered stands; what the disks hold adds up to what lives; and nobody waits for ever.

#[path = "support/log.rs"]
#[expect(dead_code, reason = "only replicas have two snapshots to begin from")]
mod log;
#[path = "support/seats.rs"]
mod seats;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::controller::interface as controller;
use quorate_core::id::{NodeId, RequestId, TopicId};
use quorate_core::metadata::{Address, Image};
use quorate_core::partition::interface::Input as LogInput;
use quorate_core::quorum::interface::{
    ClusterId, Index, Input as QuorumInput, Limits as QuorumLimits, Outcome as QuorumOutcome, Role,
    Term,
};
use quorate_core::rng::{Ratio, Rng};
use quorate_core::shard::Shard;
use quorate_core::shard::interface::{Effect, Input, Outcome};
use seats::Seats;

const STEPS_A_WALK: u64 = 1500;
const MESSAGES_MAX: usize = 200;

#[test]
fn seats_see_one_history() {
    let walks = if cfg!(debug_assertions) { 30 } else { 1000 };
    let (mut decided, mut restored) = (0, 0);
    for seed in 0..walks {
        let result = std::panic::catch_unwind(|| Walk::new(seed).run());
        let end = result.unwrap_or_else(|_| panic!("seed {seed}"));
        decided += end.decided;
        restored += end.restored;
    }
    assert!(decided > walks * 5, "only {decided} decisions in {walks} walks");
    assert!(restored > walks / 4, "only {restored} restored in {walks} walks");
}

/// What shows in images and answers; the world of quorums looks closer at the quorum itself.
#[cfg(mutants)]
#[test]
fn planted_bugs_are_noticed() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut table = String::new();
    let mut missed: Vec<&str> = Vec::new();
    for slug in PLANTED {
        quorate_core::mutant::choose(Some(slug));
        let noticed = (0..SEEDS_MAX)
            .find(|seed| std::panic::catch_unwind(|| Walk::new(*seed).run().decided).is_err());
        quorate_core::mutant::choose(None);
        let seeds = noticed.map_or_else(|| "-".to_owned(), |seed| (seed + 1).to_string());
        table += &format!("{slug} {seeds}\n");
        missed.extend(noticed.is_none().then_some(slug));
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not noticed: {missed:?}\n{table}");
}

#[cfg(mutants)]
const SEEDS_MAX: u64 = 150;

#[cfg(mutants)]
const PLANTED: &[&str] = &[
    "campaign-with-unapplied-config",
    "learner-refuses-vote",
    "pid-block-issued-twice",
    "read-index-before-first-commit",
    "same-epoch-leader-after-restart",
    "snapshot-id-off-by-one",
    "truncate-committed",
    "uncommitted-image-exposed",
    "unsorted-quorum-scan",
];

#[derive(Debug)]
enum Asked {
    Create(String),
    Delete(String),
    ProducerIds,
    Register,
    /// What had been answered before it was asked.
    Read(Index),
    Other,
}

/// What a walk came to.
struct End {
    decided: u64,
    restored: u64,
}

/// What a node was told of the metadata, in its present life.
#[derive(Default)]
struct Told {
    image: Image,
    applied: Index,
    said: Option<(Role, Option<ClusterId>)>,
}

impl Told {
    fn leads(&self) -> Option<Term> {
        match self.said {
            Some((Role::Leading { term }, _)) => Some(term),
            _ => None,
        }
    }
}

struct Walk {
    rng: Rng,
    seats: Seats,
    told: BTreeMap<NodeId, Told>,
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// The one history: what all that is committed up to an entry adds up to.
    history: BTreeMap<Index, Image>,
    leaders: BTreeMap<Term, NodeId>,
    asked: BTreeMap<RequestId, (NodeId, Asked)>,
    next_request: u64,
    next_name: u64,
    /// Topics that were answered to be there, and those of which somebody asked the end.
    created: BTreeMap<TopicId, String>,
    condemned: BTreeSet<String>,
    /// The end of the last block of producer ids that was answered.
    producer_ids: i64,
    /// An entry in which the last answered decision stands, at the latest.
    answered: Index,
    loss: Ratio,
    doubling: Ratio,
    crashes: u64,
    /// How long a moment lasts at most, in microseconds.
    haste: u64,
    /// Of a hundred completions, how many do not come yet.
    slowness: u64,
    end: End,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5ea7);
        let mut seats = Seats::new(seed);
        let of = |rng: &mut Rng, some: &[u64]| {
            some[usize::try_from(rng.below(some.len() as u64)).expect("few")]
        };
        seats.quorum_limits = QuorumLimits {
            snapshot_after_bytes: of(&mut rng, &[300, 1000, 1 << 20]),
            entries_kept: of(&mut rng, &[0, 2, 10]),
            chunk_bytes: of(&mut rng, &[100, 1 << 20]),
            append_bytes_max: of(&mut rng, &[100, 1 << 20]),
            ..QuorumLimits::default()
        };
        let voters = i32::try_from(of(&mut rng, &[1, 3, 3, 3, 3, 5])).expect("few");
        let others = i32::try_from(rng.below(2)).expect("few");
        seats.format(voters, others);
        let percent = |rng: &mut Rng, max: u64| {
            let often = rng.below(max + 1) * rng.below(2);
            Ratio::new(u32::try_from(often).expect("small"), 100)
        };
        let (loss, doubling) = (percent(&mut rng, 20), percent(&mut rng, 10));
        let crashes = rng.below(2) * rng.below(20);
        let haste = of(&mut rng, &[20_000, 80_000, 200_000]);
        let slowness = of(&mut rng, &[0, 0, 80]);
        let told = seats.ids().into_iter().map(|id| (id, Told::default())).collect();
        Self {
            rng,
            seats,
            told,
            cuts: BTreeSet::new(),
            history: BTreeMap::new(),
            leaders: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_request: 0,
            next_name: 0,
            created: BTreeMap::new(),
            condemned: BTreeSet::new(),
            producer_ids: 0,
            answered: Index::ZERO,
            loss,
            doubling,
            crashes,
            haste,
            slowness,
            end: End { decided: 0, restored: 0 },
        }
    }

    fn run(mut self) -> End {
        for id in self.seats.ids() {
            self.start(id);
        }
        for step in 0..STEPS_A_WALK {
            self.act();
            if step % 50 == 0 {
                self.check_disks();
            }
        }
        self.heal();
        self.check_disks();
        self.fail();
        self.end
    }

    fn act(&mut self) {
        let id = self.any_node();
        match self.rng.below(1000) {
            chance if chance < self.crashes => self.crash(id),
            20..40 if self.seats.nodes[&id].shard.is_none() => self.start(id),
            40..45 => self.cut(id),
            45..50 => self.cuts.clear(),
            50..55 => self.ask_quorum(id, |request| QuorumInput::Transfer { request, to: None }),
            55..57 => self.step(id, Input::Quorum(QuorumInput::Resign)),
            57..60 => {
                let request = self.request(id, Asked::Other);
                let effects = self.seats.tell_log(id, LogInput::Close { request });
                self.watch(id, effects);
            }
            60..550 => self.deliver(),
            550..750 if self.rng.below(100) >= self.slowness => {
                let count = usize::try_from(1 + self.rng.below(4)).expect("small");
                let effects = self.seats.complete(id, count);
                self.watch(id, effects);
            }
            750..850 => {
                let until = self.seats.time + Duration::from_micros(self.rng.below(self.haste));
                while let Some((id, effects)) = self.seats.tick(until) {
                    self.watch(id, effects);
                }
            }
            850..870 => {
                let asked = Asked::Read(self.answered);
                let leader = self.someone();
                let request = self.request(leader, asked);
                self.step(leader, Input::Quorum(QuorumInput::Read { request }));
            }
            // Their time has not come.
            550..750 => {}
            _ => self.ask(),
        }
    }

    fn any_node(&mut self) -> NodeId {
        NodeId(1 + i32::try_from(self.rng.below(self.seats.nodes.len() as u64)).expect("few"))
    }

    /// A leader, mostly.
    fn someone(&mut self) -> NodeId {
        let leads = |(id, told): (&NodeId, &Told)| Some((told.leads()?, *id));
        match self.told.iter().filter_map(leads).max() {
            Some((_, leader)) if self.rng.below(8) > 0 => leader,
            _ => self.any_node(),
        }
    }

    fn start(&mut self, id: NodeId) {
        self.told.insert(id, Told::default());
        let effects = self.seats.start(id);
        self.watch(id, effects);
    }

    fn crash(&mut self, id: NodeId) {
        let landed = usize::try_from(self.rng.below(5).saturating_sub(2)).expect("small");
        self.seats.crash(id, landed);
        self.told.insert(id, Told::default());
        self.asked.retain(|_, (node, _)| *node != id);
    }

    fn cut(&mut self, id: NodeId) {
        for other in self.seats.ids().into_iter().filter(|other| *other != id) {
            self.cuts.insert((id, other));
            if self.rng.below(3) > 0 {
                self.cuts.insert((other, id));
            }
        }
    }

    fn deliver(&mut self) {
        let waiting = self.seats.messages.len();
        if waiting == 0 {
            return;
        }
        if waiting > MESSAGES_MAX {
            self.seats.messages.drain(..waiting - MESSAGES_MAX);
        }
        let waiting = self.seats.messages.len() as u64;
        // Mostly in order, sometimes not at all.
        let span = if self.rng.below(4) == 0 { waiting } else { waiting.min(4) };
        let place = usize::try_from(self.rng.below(span)).expect("small");
        let (to, message) = &self.seats.messages[place];
        if self.cuts.contains(&(message.from.node, *to)) || self.rng.happens(self.loss) {
            self.seats.messages.remove(place);
            return;
        }
        if self.rng.happens(self.doubling) {
            let again = self.seats.messages[place].clone();
            self.seats.messages.push(again);
        }
        let (to, effects) = self.seats.deliver(place);
        self.watch(to, effects);
    }

    fn request(&mut self, id: NodeId, asked: Asked) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        if self.seats.nodes[&id].shard.is_some() {
            self.asked.insert(request, (id, asked));
        }
        request
    }

    fn ask_quorum(&mut self, id: NodeId, input: impl FnOnce(RequestId) -> QuorumInput) {
        let request = self.request(id, Asked::Other);
        self.step(id, Input::Quorum(input(request)));
    }

    /// Something of the controller, where it is or is not.
    fn ask(&mut self) {
        let id = self.someone();
        let input = match self.rng.below(10) {
            0..5 => {
                self.next_name += 1;
                let name = format!("topic-{}", self.next_name);
                self.create(id, name)
            }
            5..7 if self.next_name > 0 => {
                let name = format!("topic-{}", 1 + self.rng.below(self.next_name));
                self.condemned.insert(name.clone());
                let request = self.request(id, Asked::Delete(name.clone()));
                let topics = vec![controller::TopicName::Name(name)];
                controller::Input::DeleteTopics { request, topics }
            }
            5..9 => {
                let request = self.request(id, Asked::ProducerIds);
                controller::Input::AllocateProducerIds { request, node: id }
            }
            _ => self.register(id),
        };
        self.step(id, Input::Controller(input));
    }

    fn create(&mut self, id: NodeId, name: String) -> controller::Input {
        let request = self.request(id, Asked::Create(name.clone()));
        let topics = vec![controller::NewTopic { name, ..Default::default() }];
        controller::Input::CreateTopics { request, topics, validate_only: false }
    }

    fn register(&mut self, id: NodeId) -> controller::Input {
        controller::Input::RegisterNode(controller::RegisterNode {
            request: self.request(id, Asked::Register),
            node: NodeId(1 + i32::try_from(self.rng.below(3)).expect("few")),
            incarnation: self.rng.u64(),
            cluster: "abc".to_owned(),
            address: Address { host: "localhost".to_owned(), port: 9092 },
            ..Default::default()
        })
    }

    fn step(&mut self, id: NodeId, input: Input) {
        let effects = self.seats.step(id, input);
        self.watch(id, effects);
    }

    fn watch(&mut self, id: NodeId, effects: Vec<Effect>) {
        for effect in effects {
            let told = self.told.get_mut(&id).expect("a node");
            match effect {
                Effect::Committed(records) => {
                    records.iter().for_each(|record| told.image.apply(record));
                }
                Effect::Restored(records) => {
                    told.image = Image::default();
                    records.iter().for_each(|record| told.image.apply(record));
                    self.end.restored += 1;
                }
                Effect::QuorumRole { role, cluster } => {
                    let said = Some((role, cluster));
                    assert!(told.said != said, "the role is told when it changes");
                    assert!(told.said.is_none_or(|(_, known)| known.is_none() || known == cluster));
                    told.said = said;
                    let is_led = matches!(role, Role::Following { leader: Some(_), .. });
                    let shard = self.seats.nodes[&id].shard.as_ref().expect("it has just told");
                    let seat = shard.seat().expect("it has taken its seat");
                    assert!(!is_led || !seat.quorum().is_bare(), "n{id} may still be taken");
                    if let Role::Leading { term } = role {
                        let first = *self.leaders.entry(term).or_insert(id);
                        assert_eq!(first, id, "two leaders in term {term}");
                    }
                }
                Effect::Reply { request, outcome } => self.on_reply(id, request, outcome),
                Effect::Halt { reason, .. } => panic!("{reason:?}"),
                Effect::Write { .. } | Effect::SendQuorum { .. } => {}
                other => panic!("not of a seat: {other:?}"),
            }
        }
        self.compare(id);
    }

    /// What this node knows is what everybody knows who has come as far.
    fn compare(&mut self, id: NodeId) {
        let Some(shard) = &self.seats.nodes[&id].shard else { return };
        let seat = shard.seat().expect("it has taken its seat");
        let (image, applied) = seat.image();
        let told = self.told.get_mut(&id).expect("a node");
        assert!(told.image == *image, "n{id} was told what its seat knows");
        assert!(applied >= told.applied, "n{id} goes back");
        if applied == told.applied {
            return;
        }
        told.applied = applied;
        match self.history.get(&applied) {
            Some(known) => assert!(known == image, "two histories up to {applied}"),
            None => drop(self.history.insert(applied, image.clone())),
        }
        let (last, _) = self.history.last_key_value().expect("just looked up");
        assert!(*last >= applied);
    }

    fn on_reply(&mut self, id: NodeId, request: RequestId, outcome: Outcome) {
        use controller::Outcome as Decided;
        let (node, asked) = self.asked.remove(&request).expect("one answer to a request");
        assert_eq!(node, id, "an answer from somebody else");
        let image = &self.told[&id].image;
        let decided = match (asked, outcome) {
            (_, Outcome::Controller(Decided::Refused(problem))) => {
                use controller::ProblemKind::{Loading, NotAvailable};
                assert!(matches!(problem.kind, Loading | NotAvailable), "{problem:?}");
                return;
            }
            (Asked::Create(name), Outcome::Controller(Decided::TopicsCreated(all))) => {
                if let Ok(created) = &all[0].1 {
                    // Decided together, it may be gone again at once.
                    let is_so = image.topic(created.id).is_some() || self.condemned.contains(&name);
                    assert!(is_so, "{name} is told before it is true");
                    let other = self.created.insert(created.id, name);
                    assert_eq!(other, None, "an id was given twice");
                }
                true
            }
            (Asked::Delete(name), Outcome::Controller(Decided::TopicsDeleted(all))) => {
                assert!(all[0].1.is_err() || image.topic_named(&name).is_none(), "{name} is there");
                true
            }
            (Asked::ProducerIds, Outcome::Controller(Decided::ProducerIds { first, end })) => {
                assert!(first.0 >= self.producer_ids, "producer ids were given twice");
                assert!(image.next_producer_id() >= end, "told before it is true");
                self.producer_ids = end.0;
                true
            }
            (Asked::Register, Outcome::Controller(Decided::NodeRegistered { node_epoch })) => {
                assert!(image.next_node_epoch() > node_epoch, "told before it is true");
                true
            }
            (Asked::Read(answered), Outcome::Quorum(QuorumOutcome::Readable { through })) => {
                assert!(through >= answered, "a read of {through} misses {answered}");
                false
            }
            (Asked::Read(_) | Asked::Other, _) => false,
            (asked, outcome) => panic!("{asked:?} was answered {outcome:?}"),
        };
        if decided {
            self.end.decided += 1;
            let seat = self.seats.nodes[&id].shard.as_ref().and_then(|shard| shard.seat());
            // Within this step it may have come further than what was answered; not than is true.
            self.answered = self.answered.max(seat.expect("it answered").image().1);
        }
    }

    /// What is durable adds up to what lives, and the log to what the seat has of it.
    fn check_disks(&self) {
        for (id, node) in &self.seats.nodes {
            let Some(seat) = node.shard.as_ref().and_then(|shard| shard.seat()) else { continue };
            let (image, applied) = seat.image();
            assert!(node.rebuilt(applied) == *image, "rebuilt is not live on n{id}");
            if node.log.in_flight() == 0 {
                assert!(log::agrees(node.log.folded(), seat.log().log()), "the log of n{id}");
                let (sum, fold) = (seat.log().sum(), node.fold());
                assert_eq!((sum.hard, &sum.snapshot), (fold.hard, &fold.snapshot), "n{id}");
                assert_eq!(sum.log.last(), fold.log.last(), "n{id}");
            }
            let told = image.to_records();
            let mut rebuilt = Image::default();
            told.iter().for_each(|record| rebuilt.apply(record));
            assert!(rebuilt == *image, "an image is what its records add up to");
        }
    }

    /// A quiet network: somebody leads soon and decides, everybody hears of it, and everything
    /// that was ever answered is there.
    fn heal(&mut self) {
        self.cuts.clear();
        for id in self.seats.ids() {
            if self.seats.nodes[&id].shard.is_none() {
                self.start(id);
            }
        }
        self.quiet(Duration::from_secs(8));
        let leads = self.told.iter().filter(|(_, told)| told.leads().is_some());
        let leaders = leads.map(|(id, _)| *id).collect::<Vec<_>>();
        let [leader] = leaders[..] else { panic!("{leaders:?} lead") };
        assert!(self.asked.is_empty(), "somebody waits for ever: {:?}", self.asked);
        let register = self.register(leader);
        self.step(leader, Input::Controller(register));
        let create = self.create(leader, "the-last".to_owned());
        self.step(leader, Input::Controller(create));
        self.quiet(Duration::from_secs(2));
        assert!(self.created.values().any(|name| name == "the-last"), "nothing is decided");
        let (last, image) = self.history.last_key_value().expect("something was decided");
        for (id, told) in &self.told {
            assert_eq!(told.applied, *last, "n{id} is left behind");
        }
        for (topic, name) in &self.created {
            let is_there = image.topic(*topic).is_some();
            assert!(is_there || self.condemned.contains(name), "{name} is lost");
        }
        self.lose_a_disk(leader);
    }

    /// A voter loses its disk, and votes with another one before long.
    fn lose_a_disk(&mut self, leader: NodeId) {
        let seat = self.seats.nodes[&leader].shard.as_ref().and_then(Shard::seat);
        let voters = seat.and_then(|seat| seat.quorum().configuration()).expect("a cluster");
        let others = voters.voters.iter().map(|voter| voter.node).filter(|node| *node != leader);
        let others = others.collect::<Vec<_>>();
        let [lost, _, ..] = others[..] else { return };
        self.crash(lost);
        self.seats.wipe(lost);
        self.start(lost);
        self.quiet(Duration::from_secs(3));
        let member = self.seats.nodes[&lost].member;
        let mut register = self.register(leader);
        if let controller::Input::RegisterNode(register) = &mut register {
            (register.node, register.directory.0) = (lost, member.directory.0);
        }
        self.step(leader, Input::Controller(register));
        self.quiet(Duration::from_secs(3));
        for (id, node) in &self.seats.nodes {
            let seat = node.shard.as_ref().and_then(Shard::seat).expect("all are up");
            let votes = seat.quorum().configuration().is_some_and(|all| all.is_voter(member));
            assert!(votes, "{member} has no vote, says n{id}");
        }
    }

    fn quiet(&mut self, time: Duration) {
        let until = self.seats.time + time;
        loop {
            self.settle();
            let Some((id, effects)) = self.seats.tick(until) else { break };
            self.watch(id, effects);
        }
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut is_quiet = self.seats.messages.is_empty();
            if !is_quiet {
                let (to, effects) = self.seats.deliver(0);
                self.watch(to, effects);
            }
            for id in self.seats.ids() {
                let in_flight = self.seats.nodes[&id].log.in_flight();
                is_quiet &= in_flight == 0;
                let effects = self.seats.complete(id, in_flight);
                self.watch(id, effects);
            }
            if is_quiet {
                return;
            }
        }
        panic!("messages go round for ever");
    }

    /// The disk fails: everybody who waits is told so, and nothing is done any more.
    fn fail(&mut self) {
        let id = self.someone();
        let create = self.create(id, "too-late".to_owned());
        self.step(id, Input::Controller(create));
        let Some(write) = self.seats.nodes[&id].log.next_write() else { return };
        let effects = self.seats.tell_log(id, LogInput::WriteFailed { write });
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Halt { .. })), "{effects:?}");
        let answers = effects.iter().filter(|effect| matches!(effect, Effect::Reply { .. }));
        assert_eq!(answers.count(), self.asked.len(), "somebody waits for ever");
        let seat = self.seats.nodes[&id].shard.as_ref().and_then(|shard| shard.seat());
        assert_eq!(seat.expect("it is up").quorum().leader(), None);
    }
}
