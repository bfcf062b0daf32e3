//! A plan: everything one run is, as a value: the cluster, its disks, links and clocks, the
//! workload, the faults with their times, and the properties that must hold.
//!
//! `draw.rs` makes one from a seed, `text.rs` is how its parts are written. Here: the whole, and
//! its text. Parsing what was printed gives the same plan back (`sim/tests/plan_text.rs`).

pub mod committers;
pub mod draw;
pub mod groups;
pub mod text;
pub mod transactions;

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use committers::Committers;
use groups::Group;
use text::{Fields, Item, Line, TextError, Value};
use transactions::Transactions;

use crate::chance::{Between, Ratio};
use crate::fault::add_partitions::AddPartitions;
use crate::fault::reassign::Reassign;
use crate::fault::{Disturb as _, Fault, Kind};
use crate::run::{Verdict, World};
use crate::symptom::Symptom;
use crate::{plan_item, plan_words};

/// The version of the text. A reader of another version refuses it.
pub const VERSION: u32 = 1;
const REBALANCE_DELAY: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Why this plan is kept, one line each; written on top.
    pub story: Vec<String>,
    /// Feeds every stream of chance of the run.
    pub seed: u64,
    pub mode: Mode,
    pub run: Run,
    pub cluster: Nodes,
    pub node: Node,
    pub disk: Disk,
    pub link: Link,
    pub clock: Clock,
    pub topics: Vec<Topic>,
    pub workload: AppendRead,
    pub groups: Vec<Group>,
    pub transactions: Option<Transactions>,
    pub committers: Option<Committers>,
    /// In the order of their times.
    pub faults: Vec<Fault>,
    /// What the world of quorums does. A plan that has it says nothing else but its seed.
    pub quorum: Option<Quorum>,
    /// What it failed with when it was kept, and where.
    pub found: Option<Found>,
    /// The hash of the trace that the plan gave when it was kept.
    pub trace: Option<u64>,
}

plan_words! {
    /// How far faults may go.
    Mode {
        /// Never beyond what the configuration promises to survive.
        Budgeted = "budgeted",
        /// Any: only the safety of what was promised is checked, and lost data is excused where a
        /// fault destroyed its only copy.
        Unbudgeted = "unbudgeted",
    }
}

plan_item! {
    /// The phases: faults strike during `safety`; after healing, everything must work again within
    /// `liveness`.
    Run {
        safety: Duration,
        liveness: Duration,
    }
}

plan_item! {
    /// How many nodes there are, and how many copies. Nodes are `n1`, `n2`, by place.
    Nodes {
        nodes: u32 = 1,
        /// The first so many vote on the metadata; odd.
        voters: u32 = 1,
        /// Nodes stand in racks in turn.
        racks: u32 = 1,
        /// Of every topic; at most `nodes`.
        replication: u32 = 1,
        /// `min.insync.replicas`; at most `replication`.
        in_sync_min: u32 = 1,
        /// `quorate.replace.after`: who is gone for so long has its copies made anew elsewhere.
        replace_after: Duration = Self::REPLACE_AFTER,
        /// `quorum.entries_kept`: of the metadata log, in front of a snapshot.
        entries_kept: u64 = 1000,
        /// `peer.lag_time_max`: who is behind for so long is in sync no more.
        lag_time: Duration = Duration::from_secs(10),
    }
}

impl Nodes {
    /// Most nodes that a plan may have.
    pub const MAX: u32 = 7;
    /// Longer than any run.
    const REPLACE_AFTER: Duration = Duration::from_secs(600);

    /// One node, as plans without a line for it have.
    pub const ONE: Self = Self {
        nodes: 1,
        voters: 1,
        racks: 1,
        replication: 1,
        in_sync_min: 1,
        replace_after: Self::REPLACE_AFTER,
        entries_kept: 1000,
        lag_time: Duration::from_secs(10),
    };

    /// The same of `__consumer_offsets` and `__transaction_state`, which nodes create by
    /// themselves: they have three copies and two of them in sync where three vote, whatever the
    /// plan says of other topics. They wait for late voters, and for nobody else
    /// (docs/decisions/0142).
    pub fn own_in_sync_min(&self) -> u32 {
        if self.voters < 3 { 1 } else { 2 }
    }

    /// Why no cluster can be so.
    fn wrong(&self) -> Option<&'static str> {
        let within = |value: u32, most: u32| (1..=most).contains(&value);
        let holds = within(self.nodes, Self::MAX)
            && within(self.voters, self.nodes)
            && self.voters % 2 == 1
            && within(self.racks, self.nodes)
            && within(self.replication, self.nodes)
            && within(self.in_sync_min, self.replication);
        (!holds).then_some("the cluster's numbers do not fit together")
    }
}

plan_item! {
    /// The node's settings, distorted so that edges are met often.
    Node {
        shards: u32,
        /// Inputs that a shard takes in one go.
        shard_batch: u32,
        /// Requests of one connection that may wait for their answers.
        in_flight: u32,
        /// Bytes of requests that may be in memory at once.
        request_memory: u64,
        journal_file_bytes: u64,
        /// Journal files kept at most, before writes wait for segments to be synced.
        journal_files: u32,
        /// Bytes appended between two syncs of the segments, at least.
        checkpoint_bytes: u64,
        /// Bytes of batches that wait for one sync together.
        group_bytes: u64,
        /// Segments held open.
        open_files: u32,
        /// Writes that may wait for the disk.
        queue: u32,
        /// `group.initial.rebalance.delay.ms`: short, so that lives see many rebalances.
        rebalance_delay: Duration = REBALANCE_DELAY,
    }
}

plan_item! {
    /// The simulated disk.
    Disk {
        read: Between<Duration>,
        write: Between<Duration>,
        sync: Between<Duration>,
        /// Bytes until the disk is full.
        capacity: u64,
    }
}

plan_item! {
    /// Every link between a client and the node, each direction drawn on its own.
    Link {
        latency: Between<Duration>,
        /// Bytes per second and direction; 0 is unlimited.
        bandwidth: u64,
        /// Bytes in flight and unread per direction, at most.
        window: u32,
        /// How often a read or a write is cut short.
        fragment: Ratio,
    }
}

plan_item! {
    /// How wrong the node's clocks are.
    Clock {
        /// Milliseconds that its wall clock is ahead (or behind).
        wall_offset: i64,
        /// Parts per million that its monotonic clock runs fast (or slow).
        drift: i32,
    }
}

plan_item! {
    /// The members of a quorum, and how they are treated.
    Quorum {
        voters: u32,
        /// Nodes that have no vote at first; up to 9 nodes in all.
        others: u32,
        /// Storms, with a calm behind each.
        storms: u64,
        /// Steps of the adversary in a storm.
        steps: u64,
        /// Steps until the weather changes, on average: what is cut, and which disk is stuck.
        spell: u64,
        /// How often something is cut then.
        cuts: Ratio,
        /// Of messages: lost, doubled, held back until everything has changed.
        loss: Ratio,
        doubling: Ratio,
        lag: Ratio,
        /// How often entries come in other pieces than the leader made: fewer, or with some before
        /// them. A leader of another build might send them so.
        slices: Ratio,
        /// How often a moment is used in which a failure hurts.
        ambush: Ratio,
        /// Of a thousand steps each.
        crashes: u32,
        wipes: u32,
        changes: u32,
        restores: u32,
        transfers: u32,
        /// Time that passes in a step, at most.
        slowness: Duration,
    }
}

impl Quorum {
    /// Why there can be none like this.
    fn wrong(&self) -> Option<&'static str> {
        let thousandths = [self.crashes, self.wipes, self.changes, self.restores, self.transfers];
        let holds = self.voters > 0
            && self.voters.saturating_add(self.others) < 10
            && self.spell > 0
            && thousandths.iter().all(|part| *part <= 190);
        (!holds).then_some("the numbers of the quorum do not fit together")
    }
}

plan_words! {
    /// `quorate.flush`.
    Flush { Durable = "durable", Replicated = "replicated" }
}

plan_item! {
    /// A topic. Its name is `t0`, `t1`, by place.
    Topic {
        partitions: u32,
        segment_bytes: u64,
        segment_time: Duration,
        flush: Flush,
        log_append_time: bool,
        /// `retention.bytes`.
        retention_bytes: Option<u64> = None,
        /// `retention.ms`.
        retention_time: Option<Duration> = None,
        /// `cleanup.policy` has `compact`; deleted is by age and size as well, if these are set.
        compact: bool = false,
        /// `min.cleanable.dirty.ratio`, of a topic that is compacted.
        cleanable: Ratio = Ratio::NEVER,
    }
}

plan_words! {
    /// Whose word a producer waits for.
    Acks { None = "0", Leader = "1", All = "all" }
}

plan_words! {
    /// The codecs that writers use.
    Codecs {
        Plain = "none", Gzip = "gzip", Snappy = "snappy", Lz4 = "lz4", Zstd = "zstd",
        Mixed = "mixed",
    }
}

plan_item! {
    /// Writers append unique values, readers read from the beginning; both retry.
    AppendRead {
        writers: u32,
        readers: u32,
        acks: Acks,
        idempotent: bool,
        /// Batches of one writer that are under way at once; 1..=5.
        in_flight: u32,
        /// Records in a batch.
        records: Between<u64>,
        /// Bytes of a record's value.
        value_bytes: Between<u64>,
        codec: Codecs,
        /// Between the end of one round and the next.
        pause: Between<Duration>,
        /// How long a client waits for an answer.
        timeout: Duration,
        /// Attempts at one batch, the first included.
        attempts: u32,
        /// How often a writer's round is a `DeleteRecords` instead.
        delete_records: Ratio,
        /// `fetch.max.wait.ms` of readers.
        wait: Duration,
        /// `partition.max.bytes` of readers.
        read_bytes: u32,
        /// How often a batch has no timestamps.
        undated: Ratio = Ratio::NEVER,
        /// A producer begins with this sequence number: a node that does not know it takes any.
        first_sequence: i32 = 0,
        /// Writers and readers beside the others that leave connections, batches, sequence numbers
        /// and retries to our client library.
        library_writers: u32 = 0,
        library_readers: u32 = 0,
    }
}

plan_item! {
    /// The failure that a plan is kept for. Spaces are written as `_`.
    Found {
        world: World,
        mutant: Option<String> = None,
        verdict: Verdict,
        property: String,
        object: String,
        reason: String,
    }
}

impl Found {
    pub fn new(world: World, mutant: Option<String>, symptom: &Symptom) -> Self {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join("_");
        let (property, object) = (words(&symptom.property), words(&symptom.object));
        let (verdict, reason) = (symptom.verdict, words(&symptom.reason));
        Self { world, mutant, verdict, property, object, reason }
    }

    pub fn symptom(&self) -> Symptom {
        let text = |words: &str| words.replace('_', " ");
        let (verdict, property) = (self.verdict, self.property.clone());
        Symptom { verdict, property, object: text(&self.object), reason: text(&self.reason) }
    }
}

impl Plan {
    /// The plan as text, ending in a line feed.
    pub fn print(&self) -> String {
        let story = self.story.iter().map(|line| format!("# {line}").trim_end().to_owned());
        let mut lines: Vec<String> = story.collect();
        lines.push(format!("quorate-plan {VERSION}"));
        lines.push(format!("seed {}", self.seed));
        if let Some(quorum) = &self.quorum {
            let mut line = Line::new("quorum");
            quorum.print(&mut line);
            lines.push(line.finish());
            lines.extend(self.print_kept());
            return lines.join("\n") + "\n";
        }
        lines.push(format!("mode {}", self.mode.print()));
        let mut item = |keyword: &str, item: &dyn Fn(&mut Line)| {
            let mut line = Line::new(keyword);
            item(&mut line);
            lines.push(line.finish());
        };
        item("run", &|line| self.run.print(line));
        if self.cluster != Nodes::ONE {
            item("cluster", &|line| self.cluster.print(line));
        }
        item("node", &|line| self.node.print(line));
        item("disk", &|line| self.disk.print(line));
        item("link", &|line| self.link.print(line));
        item("clock", &|line| self.clock.print(line));
        for topic in &self.topics {
            item("topic", &|line| topic.print(line));
        }
        item("workload append_read", &|line| self.workload.print(line));
        for group in &self.groups {
            item("group", &|line| group.print(line));
        }
        if let Some(transactions) = &self.transactions {
            item("transactions", &|line| transactions.print(line));
        }
        if let Some(committers) = &self.committers {
            item("committers", &|line| committers.print(line));
        }
        for fault in &self.faults {
            item("fault", &|line| fault.print(line));
        }
        lines.extend(self.print_kept());
        lines.join("\n") + "\n"
    }

    /// What is known of the run that it was kept for.
    fn print_kept(&self) -> impl Iterator<Item = String> {
        let found = self.found.as_ref().map(|found| {
            let mut line = Line::new("found");
            found.print(&mut line);
            line.finish()
        });
        found.into_iter().chain(self.trace.map(|hash| format!("trace {hash:016x}")))
    }

    /// # Errors
    ///
    /// The first line that is not understood, by number, and why.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut parts = Parts::default();
        // The story may stand before the version.
        let mut first = true;
        for (place, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() {
                parts
                    .line(line, first)
                    .map_err(|error| TextError(format!("line {}: {error}", place + 1)))?;
                first &= line.starts_with('#');
            }
        }
        parts.whole().map_err(TextError)
    }

    /// The number of the client that sets up and reads everything at the end.
    pub const fn last_client(&self) -> u32 {
        self.workload.writers + self.workload.readers
    }

    /// The numbers of the clients that use our library, those that write and those that read.
    pub const fn library_clients(&self) -> (Range<u32>, Range<u32>) {
        let first = self.last_client() + 1;
        let readers = first + self.workload.library_writers;
        (first..readers, readers..readers + self.workload.library_readers)
    }

    /// The number of the client that does what operators do.
    pub const fn operator(&self) -> u32 {
        self.library_clients().1.end
    }

    /// How many partitions all topics have together.
    pub fn partitions(&self) -> u32 {
        self.topics.iter().map(|topic| topic.partitions).sum()
    }
}

/// A plan while its lines are read.
#[derive(Default)]
struct Parts {
    story: Vec<String>,
    seed: Option<u64>,
    mode: Option<Mode>,
    run: Option<Run>,
    cluster: Option<Nodes>,
    node: Option<Node>,
    disk: Option<Disk>,
    link: Option<Link>,
    clock: Option<Clock>,
    topics: Vec<Topic>,
    workload: Option<AppendRead>,
    groups: Vec<Group>,
    transactions: Option<Transactions>,
    committers: Option<Committers>,
    faults: Vec<Fault>,
    quorum: Option<Quorum>,
    found: Option<Found>,
    trace: Option<u64>,
}

impl Parts {
    fn line(&mut self, line: &str, first: bool) -> Result<(), String> {
        if let Some(story) = line.strip_prefix('#') {
            self.story.push(story.strip_prefix(' ').unwrap_or(story).to_owned());
            return Ok(());
        }
        let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
        if first {
            return match (keyword, rest.trim().parse::<u32>()) {
                ("quorate-plan", Ok(VERSION)) => Ok(()),
                ("quorate-plan", Ok(other)) => Err(format!("version {other} is not {VERSION}")),
                _ => Err(format!("a plan begins with \"quorate-plan {VERSION}\"")),
            };
        }
        let mut fields = Fields::new(rest)?;
        match keyword {
            "seed" => set(&mut self.seed, u64::parse(&fields.word()?)?)?,
            "mode" => set(&mut self.mode, Mode::parse(&fields.word()?)?)?,
            "run" => set(&mut self.run, Item::parse(&mut fields)?)?,
            "cluster" => set(&mut self.cluster, Item::parse(&mut fields)?)?,
            "node" => set(&mut self.node, Item::parse(&mut fields)?)?,
            "disk" => set(&mut self.disk, Item::parse(&mut fields)?)?,
            "link" => set(&mut self.link, Item::parse(&mut fields)?)?,
            "clock" => set(&mut self.clock, Item::parse(&mut fields)?)?,
            "topic" => self.topics.push(Item::parse(&mut fields)?),
            "workload" => match fields.word()?.as_str() {
                "append_read" => set(&mut self.workload, Item::parse(&mut fields)?)?,
                other => return Err(format!("workload {other:?} is not known")),
            },
            "group" => self.groups.push(Item::parse(&mut fields)?),
            "transactions" => set(&mut self.transactions, Item::parse(&mut fields)?)?,
            "committers" => set(&mut self.committers, Item::parse(&mut fields)?)?,
            "fault" => self.faults.push(Item::parse(&mut fields)?),
            "quorum" => set(&mut self.quorum, Item::parse(&mut fields)?)?,
            "found" => set(&mut self.found, Item::parse(&mut fields)?)?,
            "trace" => {
                let hash = u64::from_str_radix(&fields.word()?, 16);
                set(&mut self.trace, hash.map_err(|error| error.to_string())?)?;
            }
            other => return Err(format!("{other:?} is not known")),
        }
        fields.finish()
    }

    /// Why an operator's act can mean nothing in this plan.
    fn aims_wrong(&self, kind: &Kind) -> Option<String> {
        let nodes = self.cluster.as_ref().map_or(1, |cluster| cluster.nodes);
        let topics = self.topics.len();
        match kind {
            Kind::Reassign(Reassign { topic, partition, to, .. }) => {
                let there = self.topics.get(*topic as usize);
                let distinct = to.iter().collect::<BTreeSet<_>>().len();
                let fits = there.is_some_and(|topic| *partition < topic.partitions)
                    && distinct == to.len()
                    && !to.is_empty()
                    && to.iter().all(|node| (1..=nodes).contains(node));
                (!fits).then(|| format!("{} names what there is not", Reassign::NAME))
            }
            Kind::AddPartitions(AddPartitions { topic, .. }) if *topic as usize >= topics => {
                Some(format!("{} names a topic that there is not", AddPartitions::NAME))
            }
            _ => None,
        }
    }

    fn whole(self) -> Result<Plan, String> {
        fn need<T>(part: Option<T>, name: &str) -> Result<T, String> {
            part.ok_or_else(|| format!("the {name} line is missing"))
        }
        if let Some(quorum) = self.quorum {
            if let Some(wrong) = quorum.wrong() {
                return Err(wrong.to_owned());
            }
            let (story, found, trace) = (self.story, self.found, self.trace);
            let plan = draw::with_quorum(need(self.seed, "seed")?, quorum);
            return Ok(Plan { story, found, trace, ..plan });
        }
        let cluster = self.cluster.clone().unwrap_or(Nodes::ONE);
        if let Some(wrong) = cluster.wrong() {
            return Err(wrong.to_owned());
        }
        if self.faults.iter().any(|fault| !(1..=cluster.nodes).contains(&fault.node)) {
            return Err("a fault strikes a node that there is not".to_owned());
        }
        if self.topics.is_empty() {
            return Err("a plan has at least one topic".to_owned());
        }
        if let Some(wrong) = self.groups.iter().find_map(|group| group.wrong(&self.topics)) {
            return Err(wrong.to_owned());
        }
        if self.groups.iter().map(|group| group.members).sum::<u32>() > Group::MEMBERS_MAX {
            return Err("the groups have too many members".to_owned());
        }
        if let Some(wrong) = self.transactions.as_ref().and_then(Transactions::wrong) {
            return Err(wrong.to_owned());
        }
        if let Some(wrong) = self.committers.as_ref().and_then(Committers::wrong) {
            return Err(wrong.to_owned());
        }
        if let Some(wrong) = self.faults.iter().find_map(|fault| self.aims_wrong(&fault.kind)) {
            return Err(wrong);
        }
        Ok(Plan {
            story: self.story,
            seed: need(self.seed, "seed")?,
            mode: need(self.mode, "mode")?,
            run: need(self.run, "run")?,
            cluster,
            node: need(self.node, "node")?,
            disk: need(self.disk, "disk")?,
            link: need(self.link, "link")?,
            clock: need(self.clock, "clock")?,
            topics: self.topics,
            workload: need(self.workload, "workload")?,
            groups: self.groups,
            transactions: self.transactions,
            committers: self.committers,
            faults: self.faults,
            quorum: None,
            found: self.found,
            trace: self.trace,
        })
    }
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), String> {
    if place.replace(value).is_some() { Err("the line is given twice".to_owned()) } else { Ok(()) }
}
