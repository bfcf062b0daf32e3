//! A coordinator under a script: its clock, its log, and the clients that know their ids.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::batch::{Batch, Records};
use quorate_core::group::Groups;
use quorate_core::group::interface::{
    CommitOffsets, CommittedOffset, Effect, FetchOffsets, GroupLimits, Input, Join, Joined,
    Leaving, MemberClaim, Outcome, Protocol, Refusal, Surveyed, SurveyedOffset, Sync,
    TopicPartition,
};
use quorate_core::group::record::{ConsumerEntry, Entry};
use quorate_core::id::{LeaderEpoch, Offset, RequestId, TopicId};
use quorate_core::machine::Machine;
use quorate_core::own_log::{self, AppendId};
use quorate_core::time::{Instant, Now, Timestamp};

use super::consumers::Consumers;
use super::{embedded, transactions};

pub(crate) struct Coordinator {
    groups: Groups,
    lives: u64,
    now: Instant,
    requests: u64,
    /// What is committed, and what the log has not answered yet.
    log: Vec<Batch>,
    in_flight: Vec<(AppendId, Batch)>,
    /// Member id → the short name that scripts see.
    names: BTreeMap<String, String>,
    clients: BTreeMap<String, Client>,
    consumer: Consumers,
    /// Whose request it was.
    asked: BTreeMap<RequestId, String>,
}

#[derive(Clone, Default)]
struct Client {
    member: String,
    instance: Option<String>,
    generation: i32,
}

/// `key=value` words of a command, and the words without `=`.
struct Words<'a> {
    plain: Vec<&'a str>,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn new(command: &'a str) -> Self {
        let (mut plain, mut pairs) = (Vec::new(), Vec::new());
        for word in command.split_whitespace() {
            match word.split_once('=') {
                Some(pair) => pairs.push(pair),
                None => plain.push(word.trim_matches('"')),
            }
        }
        Self { plain, pairs }
    }

    fn named(&self, name: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.named(name).map(|text| text.parse().ok().expect("a number"))
    }

    fn seconds(&self, name: &str, default: u64) -> Duration {
        self.named(name).map_or_else(|| Duration::from_secs(default), duration)
    }
}

fn duration(text: &str) -> Duration {
    match text.strip_suffix("ms") {
        Some(millis) => Duration::from_millis(millis.parse().expect("milliseconds")),
        None => {
            Duration::from_secs(text.strip_suffix('s').expect("a unit").parse().expect("seconds"))
        }
    }
}

fn partition(text: &str) -> TopicPartition {
    let (topic, partition) = text.rsplit_once('-').expect("topic-partition");
    TopicPartition { topic: topic.to_owned(), partition: partition.parse().expect("a number") }
}

impl Coordinator {
    pub(crate) fn new() -> Self {
        let limits = GroupLimits {
            group_members_max: 4,
            groups_max: 3,
            group_offsets_max: 3,
            offsets_max: 5,
            offset_metadata_bytes_max: 8,
            ..GroupLimits::default()
        };
        Self {
            groups: Groups::new(limits, 1),
            lives: 1,
            now: Instant::ZERO,
            requests: 0,
            log: Vec::new(),
            in_flight: Vec::new(),
            names: BTreeMap::new(),
            clients: BTreeMap::new(),
            consumer: Consumers::default(),
            asked: BTreeMap::new(),
        }
    }

    /// Carries out one command and says what came of it.
    pub(crate) fn run(&mut self, command: &str) -> Vec<String> {
        let words = Words::new(command);
        match words.plain[0] {
            "crash" => self.crash(),
            "elected" => {
                self.step(Input::Log(own_log::Input::Elected { leader_epoch: LeaderEpoch(1) }))
            }
            "resign" => self.step(Input::Log(own_log::Input::Resigned)),
            "replay" => self.replay(),
            "wait" => self.wait(duration(words.plain[1])),
            "pause" => {
                self.now = self.now + duration(words.plain[1]);
                self.step(Input::Tick)
            }
            "log" => self.answer_log(&words),
            "marker" => {
                let (batch, input) = transactions::marker(&words.plain);
                // Behind what the replay reads.
                if !words.plain.contains(&"unread") {
                    self.log.push(batch);
                }
                self.step(input)
            }
            "status" => {
                let status = self.groups.status();
                status.lines().map(|line| self.shorten(line)).collect()
            }
            "cancel" => {
                let request = words.plain[1].strip_prefix('r').expect("rN").parse().expect("rN");
                self.step(Input::Cancelled { request: RequestId(request) })
            }
            "topics" => {
                let news = self.consumer.topics(&words.pairs, words.plain.contains(&"all"));
                self.step(Input::Topics(news))
            }
            "topics-deleted" => {
                let topics = words.plain[1..].iter().map(|topic| (*topic).to_owned()).collect();
                self.step(Input::TopicsDeleted { topics })
            }
            _ => {
                self.requests += 1;
                let request = RequestId(self.requests);
                let input = self.request(request, &words);
                self.step(input)
            }
        }
    }

    fn request(&mut self, request: RequestId, words: &Words<'_>) -> Input {
        let name = |place: usize| words.plain[place].to_owned();
        match words.plain[0] {
            "join" => self.join(request, words),
            "sync" => Input::Sync(Sync {
                request,
                member: self.claim(words),
                protocol_type: words.named("type").map(str::to_owned),
                protocol: words.named("protocol").map(str::to_owned),
                assignments: words
                    .pairs
                    .iter()
                    .filter_map(|(client, text)| {
                        let member = self.clients.get(*client)?.member.clone();
                        Some((member, embedded::assignment(text)))
                    })
                    .collect(),
            }),
            "heartbeat" => Input::Heartbeat { request, member: self.claim(words) },
            "beat" => self.beat(request, words),
            "describe-consumer" => Input::DescribeConsumer { request, group: name(1) },
            "leave" => Input::Leave {
                request,
                group: name(1),
                members: words.plain[2..].iter().map(|client| self.leaving(client)).collect(),
            },
            "commit" => {
                let commit = self.commit(request, words);
                transactions::commit(commit, words.named("in"), words.number("guard"))
            }
            "fetch" => Input::FetchOffsets(FetchOffsets {
                request,
                group: name(1),
                member: None,
                partitions: (words.plain.len() > 2)
                    .then(|| words.plain[2..].iter().map(|text| partition(text)).collect()),
                require_stable: words.named("stable").is_some(),
            }),
            "describe" => Input::Describe { request, group: name(1) },
            "survey" => {
                Input::Survey { request, group: words.plain.get(1).map(|name| (*name).to_owned()) }
            }
            "list" => Input::List {
                request,
                states: words.plain[1..].iter().map(|state| (*state).to_owned()).collect(),
                types: words.named("type").into_iter().map(str::to_owned).collect(),
            },
            "delete" => Input::Delete { request, group: name(1) },
            "delete-offsets" => Input::DeleteOffsets {
                request,
                group: name(1),
                partitions: words.plain[2..].iter().map(|text| partition(text)).collect(),
            },
            other => panic!("there is no command {other}"),
        }
    }

    fn join(&mut self, request: RequestId, words: &Words<'_>) -> Input {
        let name = words.plain[2].to_owned();
        let version = words.number::<u32>("v").unwrap_or(3);
        let client = self.clients.entry(name.clone()).or_default();
        client.instance = words.named("instance").map(str::to_owned);
        let is_new = words.plain.contains(&"new");
        let member = if is_new { String::new() } else { client.member.clone() };
        self.asked.insert(request, name.clone());
        let topics = words.named("topics").unwrap_or("orders");
        let metadata = embedded::subscription(topics, words.named("owned"));
        let protocols = words.named("protocols").unwrap_or("range").split(',');
        Input::Join(Join {
            request,
            group: words.plain[1].to_owned(),
            member,
            instance: words.named("instance").map(str::to_owned),
            client_id: name,
            client_host: "/127.0.0.1".to_owned(),
            session_timeout: words.seconds("session", 10),
            rebalance_timeout: words.seconds("rebalance", 60),
            protocol_type: words.named("type").unwrap_or("consumer").to_owned(),
            protocols: protocols
                .filter(|name| !name.is_empty())
                .map(|name| Protocol { name: name.to_owned(), metadata: metadata.clone() })
                .collect(),
            member_id_required: version >= 4,
            skip_assignment: version >= 9,
        })
    }

    /// The clients of consumer groups bring their own ids: their names.
    fn beat(&mut self, request: RequestId, words: &Words<'_>) -> Input {
        let name = words.plain[2];
        let mut beat = self.consumer.beat(name, &words.plain[3..], &words.pairs);
        beat.request = request;
        beat.group = words.plain[1].to_owned();
        beat.rebalance_timeout = beat.rebalance_timeout.map(|_| words.seconds("rebalance", 60));
        self.asked.insert(request, name.to_owned());
        Input::ConsumerHeartbeat(beat)
    }

    fn claim(&self, words: &Words<'_>) -> MemberClaim {
        let client = match words.plain[2] {
            "-" => Client { generation: -1, ..Client::default() },
            name if self.consumer.epoch(name).is_some() => Client {
                member: name.to_owned(),
                generation: self.consumer.epoch(name).unwrap_or_default(),
                ..Client::default()
            },
            name => {
                let stranger = Client { member: name.to_owned(), ..Client::default() };
                self.clients.get(name).cloned().unwrap_or(stranger)
            }
        };
        let short = words.named("member");
        let other = self.names.iter().find(|(_, name)| Some(name.as_str()) == short);
        MemberClaim {
            group: words.plain[1].to_owned(),
            member: other.map_or(client.member, |(id, _)| id.clone()),
            instance: client.instance,
            generation: words.number("gen").unwrap_or(client.generation),
        }
    }

    fn leaving(&self, client: &str) -> Leaving {
        match client.strip_prefix("instance:") {
            Some(instance) => {
                Leaving { member: String::new(), instance: Some(instance.to_owned()) }
            }
            None => {
                let known = self.clients.get(client).cloned();
                let member = known.map_or_else(|| client.to_owned(), |client| client.member);
                Leaving { member, instance: None }
            }
        }
    }

    fn crash(&mut self) -> Vec<String> {
        self.lives += 1;
        self.groups =
            Groups::new(GroupLimits { groups_max: 3, ..GroupLimits::default() }, self.lives);
        self.in_flight.clear();
        Vec::new()
    }

    fn replay(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for batch in self.log.clone() {
            lines.extend(self.step(Input::Log(own_log::Input::Replayed { batch })));
        }
        lines.extend(self.step(Input::Log(own_log::Input::ReplayEnded)));
        assert_eq!(self.groups.unread_records(), 0);
        lines
    }

    fn answer_log(&mut self, words: &Words<'_>) -> Vec<String> {
        let refuse = words.plain.contains(&"refuse");
        let all = self.in_flight.len();
        let count = if words.plain.contains(&"one") { all.min(1) } else { all };
        let mut lines = Vec::new();
        for (append, batch) in self.in_flight.drain(..count).collect::<Vec<_>>() {
            if refuse {
                lines.extend(self.step(Input::Log(own_log::Input::AppendRefused { append })));
            } else {
                self.log.push(batch);
                lines.extend(self.step(Input::Log(own_log::Input::Appended { append })));
            }
        }
        lines
    }

    /// Lets time pass as a driver would: the machine is ticked at each of its deadlines.
    fn wait(&mut self, duration: Duration) -> Vec<String> {
        let until = self.now + duration;
        let mut lines = Vec::new();
        while let Some(deadline) = self.groups.deadline()
            && deadline <= until
        {
            self.now = self.now.max(deadline);
            let reports = self.step(Input::Tick);
            let after = self.groups.deadline();
            assert!(after.is_none_or(|after| after > self.now), "the driver would spin");
            lines.extend(reports.into_iter().map(|report| format!("{} {report}", self.now)));
        }
        self.now = until;
        lines
    }

    fn step(&mut self, input: Input) -> Vec<String> {
        let wall = 1_000_000 + i64::try_from(self.now.as_duration().as_millis()).unwrap();
        let now = Now { monotonic: self.now, wall: Timestamp(wall) };
        let mut effects = Vec::new();
        self.groups.step(now, input, &mut effects);
        self.groups.check();
        effects.into_iter().map(|effect| self.perform(effect)).collect()
    }

    fn perform(&mut self, effect: Effect) -> String {
        match effect {
            Effect::Log(own_log::Effect::Replay) => "replay wanted".to_owned(),
            Effect::Log(own_log::Effect::Append { append, batch }) => {
                batch.verify().unwrap();
                let report = format!("append {}", self.entries(&batch).join(" "));
                self.in_flight.push((append, batch));
                report
            }
            Effect::AppendTransactional { append, batch, guard } => {
                batch.verify().unwrap();
                let (header, guard) = (*batch.header(), guard.map_or(0, |guard| guard.0));
                assert!(header.is_transactional() && header.base_sequence() == -1);
                let (id, epoch) = (header.producer_id(), header.producer_epoch());
                let report = self.entries(&batch).join(" ");
                self.in_flight.push((append, batch));
                format!("append in p{id}@{epoch} guard={guard} {report}")
            }
            Effect::Reply { request, outcome } => {
                self.learn(request, &outcome);
                let report = self.outcome(outcome);
                format!("r{} {report}", request.0)
            }
        }
    }

    /// What a client remembers of an answer.
    fn learn(&mut self, request: RequestId, outcome: &Outcome) {
        if let (Some(name), Outcome::ConsumerAlive(alive)) = (self.asked.get(&request), outcome) {
            self.consumer.learn(name, alive);
        }
        let (
            Some(name),
            Outcome::Joined(Joined { member, .. })
            | Outcome::Refused(Refusal::MemberIdRequired { member }),
        ) = (self.asked.get(&request), outcome)
        else {
            return;
        };
        let client = self.clients.get_mut(name).expect("who asks is known");
        client.member.clone_from(member);
        if let Outcome::Joined(joined) = outcome {
            client.generation = joined.generation;
        }
        self.name(member);
    }

    /// A drawn id is too long to be read: the client's or instance's name, numbered.
    fn name(&mut self, id: &str) -> String {
        if let Some(name) = self.names.get(id) {
            return name.clone();
        }
        let Some(cut) = id.len().checked_sub(37) else { return id.to_owned() };
        let prefix = &id[..cut];
        let taken = self.names.keys().filter(|other| other[..other.len() - 37] == *prefix).count();
        let name = if taken == 0 { prefix.to_owned() } else { format!("{prefix}#{}", taken + 1) };
        self.names.insert(id.to_owned(), name.clone());
        name
    }

    fn shorten(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (id, name)| text.replace(id, name))
    }

    fn commit(&self, request: RequestId, words: &Words<'_>) -> CommitOffsets {
        let settings = ["gen", "meta", "in", "guard", "v"];
        let pairs = words.pairs.iter().filter(|(key, _)| !settings.contains(key));
        let offsets = pairs.map(|(key, offset)| {
            let offset = Offset(offset.parse().expect("an offset"));
            let metadata = words.named("meta").unwrap_or_default().to_owned();
            let leader_epoch = LeaderEpoch(3);
            (
                partition(key),
                CommittedOffset { offset, leader_epoch, metadata, topic: TopicId::NONE },
            )
        });
        let knows_epochs = words.number::<u32>("v").unwrap_or(9) >= 9;
        let member = self.claim(words);
        CommitOffsets { request, member, knows_epochs, offsets: offsets.collect() }
    }

    fn entries(&mut self, batch: &Batch) -> Vec<String> {
        let records = Records::new(batch.records(), batch.header().record_count());
        let entries: Vec<_> = records
            .map(|record| record.unwrap())
            .map(|record| Entry::decode(record.key.unwrap(), record.value).unwrap())
            .collect();
        entries.into_iter().map(|entry| self.entry(entry)).collect()
    }

    fn entry(&mut self, entry: Entry) -> String {
        match entry {
            Entry::Offset { group, partition, value } => {
                let value = value.map_or_else(
                    || "none".to_owned(),
                    |stored| stored.committed.offset.to_string(),
                );
                format!("[{group} {}-{}={value}]", partition.topic, partition.partition)
            }
            Entry::Consumer { group, entry } => {
                if let ConsumerEntry::Member(id, _)
                | ConsumerEntry::Target(id, _)
                | ConsumerEntry::Current(id, _) = &entry
                {
                    self.name(id);
                }
                self.shorten(&format!("[{group} {}]", self.consumer.entry(&entry)))
            }
            Entry::Group { group, value: None } => format!("[{group} forgotten]"),
            Entry::Group { group, value: Some(stored) } => {
                let members: Vec<_> = stored
                    .members
                    .iter()
                    .map(|member| {
                        let assignment = embedded::shown(&member.assignment);
                        format!("{}={assignment}", self.name(&member.member))
                    })
                    .collect();
                format!("[{group} gen={} {{{}}}]", stored.generation, members.join(" "))
            }
        }
    }

    fn outcome(&mut self, outcome: Outcome) -> String {
        match outcome {
            Outcome::Joined(joined) => {
                let leader = self.name(&joined.leader);
                let members: Vec<_> =
                    joined.members.iter().map(|member| self.name(&member.member)).collect();
                format!(
                    "joined as {} gen={} {} leader={leader}{}{}",
                    self.name(&joined.member),
                    joined.generation,
                    joined.protocol,
                    if members.is_empty() { String::new() } else { format!(" {members:?}") },
                    if joined.skip_assignment { " skip-assignment" } else { "" }
                )
            }
            Outcome::Synced { assignment, .. } => {
                format!("synced {:?}", embedded::shown(&assignment))
            }
            Outcome::Left { members } => {
                let results = members.into_iter().map(|(leaving, refusal)| {
                    let who = leaving.instance.unwrap_or_else(|| self.name(&leaving.member));
                    format!(" {who}:{}", verdict(refusal.as_ref()))
                });
                format!("left{}", results.collect::<String>())
            }
            Outcome::OffsetsCommitted { partitions } => format!("committed{}", each(&partitions)),
            Outcome::OffsetsDeleted { partitions } => format!("deleted{}", each(&partitions)),
            Outcome::OffsetsFetched { partitions } => {
                let offsets = partitions.into_iter().map(|(partition, committed)| {
                    let TopicPartition { topic, partition } = partition;
                    match committed {
                        Err(refusal) => format!(" {topic}-{partition}={}", verdict(Some(&refusal))),
                        Ok(None) => format!(" {topic}-{partition}=none"),
                        Ok(Some(CommittedOffset { offset, leader_epoch, metadata, .. })) => {
                            format!(" {topic}-{partition}={offset}@{leader_epoch}{metadata:?}")
                        }
                    }
                });
                format!("offsets{}", offsets.collect::<String>())
            }
            Outcome::Described(described) => {
                let members = described.members.iter().map(|member| {
                    let assignment = embedded::shown(&member.assignment);
                    format!(" {}={assignment}", self.name(&member.member))
                });
                let members = members.collect::<String>();
                format!("{} {:?}{members}", described.state, described.protocol)
            }
            Outcome::Listed { groups } => {
                groups.into_iter().fold("groups".to_owned(), |text, listed| {
                    format!("{text} {}:{}", listed.group, listed.state)
                })
            }
            Outcome::ConsumerAlive(alive) => {
                let name = self.name(&alive.member);
                self.consumer.alive(&name, &alive)
            }
            Outcome::ConsumerDescribed(described) => {
                self.shorten(&self.consumer.described(&described))
            }
            Outcome::Surveyed { groups } => surveyed(&groups),
            Outcome::Alive => "alive".to_owned(),
            Outcome::Deleted => "deleted".to_owned(),
            Outcome::Refused(refusal) => {
                let text = format!("refused {refusal:?}");
                self.shorten(&text)
            }
        }
    }
}

fn surveyed(groups: &[Surveyed]) -> String {
    groups.iter().fold("survey".to_owned(), |text, group| {
        let offsets = group.offsets.iter().map(|offset| {
            let SurveyedOffset { partition, offset, at, .. } = offset;
            format!(" {}-{}={offset} at {at}", partition.topic, partition.partition)
        });
        let offsets = offsets.collect::<String>();
        let (name, kind, state) = (&group.group, group.kind, group.state);
        format!("{text} [{name} {kind} {state} members={}{offsets}]", group.members)
    })
}

fn each(partitions: &[(TopicPartition, Option<Refusal>)]) -> String {
    partitions.iter().fold(String::new(), |text, (partition, refusal)| {
        let verdict = verdict(refusal.as_ref());
        format!("{text} {}-{}:{verdict}", partition.topic, partition.partition)
    })
}

fn verdict(refusal: Option<&Refusal>) -> String {
    refusal.map_or_else(|| "ok".to_owned(), |refusal| format!("{refusal:?}"))
}
