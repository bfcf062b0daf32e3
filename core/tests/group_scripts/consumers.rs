//! The clients of consumer groups under a script: they remember what they were told, and say it in
//! their next heartbeat.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::group::interface::{
    Assignment, ConsumerAlive, ConsumerDescribed, ConsumerHeartbeat, NamedAssignment, TopicInfo,
    TopicsNews,
};
use quorate_core::group::record::ConsumerEntry;
use quorate_core::id::TopicId;

#[derive(Default)]
pub(crate) struct Consumers {
    clients: BTreeMap<String, Client>,
    topics: BTreeMap<String, TopicId>,
    created: u8,
}

#[derive(Clone, Default)]
struct Client {
    epoch: i32,
    instance: Option<String>,
    told: Assignment,
}

impl Consumers {
    pub(crate) fn epoch(&self, name: &str) -> Option<i32> {
        self.clients.get(name).map(|client| client.epoch)
    }

    pub(crate) fn topics(&mut self, pairs: &[(&str, &str)], is_all: bool) -> TopicsNews {
        let mut news = TopicsNews { is_all, topics: Vec::new() };
        for (name, partitions) in pairs {
            let partitions: i32 = partitions.parse().expect("a number of partitions");
            if partitions == 0 {
                self.topics.remove(*name);
                news.topics.push(((*name).to_owned(), None));
                continue;
            }
            let created = &mut self.created;
            let id = *self.topics.entry((*name).to_owned()).or_insert_with(|| {
                *created += 1;
                TopicId([*created; 16])
            });
            news.topics.push(((*name).to_owned(), Some(TopicInfo { id, partitions })));
        }
        news
    }

    pub(crate) fn beat(
        &mut self,
        name: &str,
        flags: &[&str],
        pairs: &[(&str, &str)],
    ) -> ConsumerHeartbeat {
        let named = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, text)| *text);
        let client = self.clients.entry(name.to_owned()).or_default();
        if let Some(instance) = named("instance") {
            client.instance = Some(instance.to_owned());
        }
        let joins = flags.contains(&"join");
        if joins {
            *client = Client { instance: client.instance.clone(), ..Client::default() };
        }
        let client = client.clone();
        let is_full = joins || flags.contains(&"full");
        let list = |text: &str| -> Vec<String> {
            text.split(',').filter(|text| !text.is_empty()).map(str::to_owned).collect()
        };
        let owned = match named("has") {
            Some(places) => Some(self.assignment(&list(places))),
            None if joins => Some(Assignment::default()),
            None if is_full || flags.contains(&"has") => Some(client.told.clone()),
            None => None,
        };
        let regex = named("regex").map(|regex| if regex == "-" { "" } else { regex });
        let topics = named("topics").map(list);
        let usual = || vec!["orders".to_owned()];
        ConsumerHeartbeat {
            member: name.to_owned(),
            epoch: match () {
                () if joins => 0,
                () if flags.contains(&"leave") => -1,
                () if flags.contains(&"away") => -2,
                () => named("epoch").map_or(client.epoch, |text| text.parse().expect("an epoch")),
            },
            instance: client.instance,
            client_id: name.to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            rebalance_timeout: is_full.then_some(Duration::from_secs(60)),
            topics: topics.or_else(|| (is_full && regex.is_none()).then(usual)),
            regex: regex.map(str::to_owned),
            assignor: named("assignor").map(str::to_owned),
            owned,
            ..ConsumerHeartbeat::default()
        }
    }

    fn assignment(&self, places: &[String]) -> Assignment {
        let place = |text: &String| {
            let (topic, partition) = text.rsplit_once('-').expect("topic-partition");
            (self.topics[topic], partition.parse().expect("a number"))
        };
        places.iter().map(place).collect()
    }

    pub(crate) fn learn(&mut self, name: &str, alive: &ConsumerAlive) {
        let client = self.clients.entry(name.to_owned()).or_default();
        client.epoch = alive.epoch;
        if let Some(told) = &alive.assignment {
            client.told = told.clone();
        }
    }

    fn list(&self, assignment: &Assignment) -> String {
        let places: Vec<_> = assignment
            .iter()
            .map(|(topic, partition)| {
                let name = self.topics.iter().find(|(_, id)| **id == topic);
                format!("{}-{partition}", name.map_or("?", |(name, _)| name.as_str()))
            })
            .collect();
        format!("{{{}}}", places.join(" "))
    }

    pub(crate) fn alive(&self, name: &str, alive: &ConsumerAlive) -> String {
        let told = alive.assignment.as_ref().map(|told| format!(" {}", self.list(told)));
        format!("{name} @{} again in {:?}{}", alive.epoch, alive.interval, told.unwrap_or_default())
    }

    pub(crate) fn described(&self, described: &ConsumerDescribed) -> String {
        let named = |assignment: &NamedAssignment| {
            let topics =
                assignment.iter().map(|(_, name, partitions)| format!("{name}{partitions:?}"));
            topics.collect::<Vec<_>>().join(" ")
        };
        let members = described.members.iter().map(|member| {
            let (assigned, target) = (named(&member.assigned), named(&member.target));
            format!(" [{} @{} {{{assigned}}} of {{{target}}}]", member.id, member.epoch)
        });
        let members: String = members.collect();
        let ConsumerDescribed { state, epoch, target_epoch, assignor, .. } = described;
        format!("{state} epoch={epoch} target={target_epoch} {assignor}{members}")
    }

    pub(crate) fn entry(&self, entry: &ConsumerEntry) -> String {
        match entry {
            ConsumerEntry::Epoch(epoch) => format!("epoch {epoch:?}"),
            ConsumerEntry::Topics(topics) => match topics {
                None => "topics none".to_owned(),
                Some(topics) => {
                    let each =
                        topics.iter().map(|(name, topic)| format!(" {name}:{}", topic.partitions));
                    format!("topics{}", each.collect::<String>())
                }
            },
            ConsumerEntry::Member(id, member) => match member {
                None => format!("{id} gone"),
                Some(member) => {
                    let regex = member.regex.as_ref().map(|regex| format!(" /{regex}/"));
                    format!("{id} wants {:?}{}", member.topics, regex.unwrap_or_default())
                }
            },
            ConsumerEntry::TargetEpoch(epoch) => format!("target epoch {epoch:?}"),
            ConsumerEntry::Target(id, target) => {
                let target = target.as_ref().map(|target| self.list(target));
                format!("{id} to have {}", target.unwrap_or_else(|| "none".to_owned()))
            }
            ConsumerEntry::Current(id, current) => match current {
                None => format!("{id} has none"),
                Some(current) => format!(
                    "{id} @{} {:?} has {} gives up {}",
                    current.epoch,
                    current.progress,
                    self.list(&current.assigned),
                    self.list(&current.revoking)
                ),
            },
        }
    }
}
