//! What a coordinator tells of its groups.

use std::fmt::Write as _;

use super::classic::{Group, Phase};
use super::interface::{
    Described, Effect, FetchOffsets, Listed, Outcome, Refusal, Surveyed, SurveyedOffset,
    TopicPartition,
};
use super::{Groups, refuse};
use crate::id::RequestId;

impl Groups {
    /// One line a group: what it is, who is in it, and how far it has come.
    pub fn status(&self) -> String {
        let mut out = String::new();
        for group in self.groups.values() {
            match &group.consumer {
                Some(consumer) => {
                    let _ = write!(out, "{} {}", group.name, consumer.status(&self.topics));
                }
                None => {
                    let (phase, generation) = (group.phase.name(), group.generation);
                    let _ = write!(out, "{} {phase} gen={generation}", group.name);
                }
            }
            if let (Some(protocol), Some(leader)) = (&group.protocol, &group.leader) {
                let _ = write!(out, " {protocol} leader={leader}");
            }
            for member in group.members.values() {
                let _ = write!(out, " [{}", member.id);
                if let Some(instance) = &member.instance {
                    let _ = write!(out, " instance={instance}");
                }
                let assignment = String::from_utf8_lossy(&member.assignment);
                let _ = write!(out, " {:?} {assignment:?}]", member.waits);
            }
            for (partition, stored) in &group.offsets {
                let (topic, offset) = (&partition.topic, stored.committed.offset);
                let _ = write!(out, " {topic}-{}={offset}", partition.partition);
            }
            for (producer, waiting) in &group.in_transactions {
                for (TopicPartition { topic, partition }, it) in waiting {
                    let offset = it.stored.committed.offset;
                    let _ = write!(out, " ({topic}-{partition}={offset} by p{producer})");
                }
            }
            out.push('\n');
        }
        out
    }

    pub(super) fn on_fetch(&mut self, fetch: FetchOffsets, effects: &mut Vec<Effect>) {
        if let Err(refusal) = self.admit(&fetch.group, true) {
            return refuse(effects, fetch.request, refusal);
        }
        let group = self.groups.get(&fetch.group);
        if let Some((member, epoch)) = &fetch.member
            && let Some(group) = group
            && let Err(refusal) = group.check_fetch(member, *epoch)
        {
            return refuse(effects, fetch.request, refusal);
        }
        let partitions = match group {
            Some(group) => group.fetch(fetch.partitions, fetch.require_stable),
            None => {
                let wanted = fetch.partitions.unwrap_or_default();
                wanted.into_iter().map(|partition| (partition, Ok(None))).collect()
            }
        };
        let outcome = Outcome::OffsetsFetched { partitions };
        effects.push(Effect::Reply { request: fetch.request, outcome });
    }

    pub(super) fn on_list(
        &self,
        request: RequestId,
        states: &[String],
        types: &[String],
        effects: &mut Vec<Effect>,
    ) {
        let outcome = match self.admit("", true) {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(()) => {
                let among = |wanted: &[String], name: &str| {
                    wanted.is_empty() || wanted.iter().any(|wish| wish.eq_ignore_ascii_case(name))
                };
                let groups = self
                    .groups
                    .values()
                    .filter(|group| among(states, group.state()) && among(types, group.kind()));
                let listed = |group: &Group| Listed {
                    group: group.name.clone(),
                    protocol_type: if group.consumer.is_some() {
                        "consumer".to_owned()
                    } else {
                        group.protocol_type.clone()
                    },
                    kind: group.kind(),
                    state: group.state(),
                };
                Outcome::Listed { groups: groups.map(listed).collect() }
            }
        };
        effects.push(Effect::Reply { request, outcome });
    }

    pub(super) fn on_survey(
        &self,
        request: RequestId,
        named: Option<&str>,
        effects: &mut Vec<Effect>,
    ) {
        let outcome = match self.admit("", true) {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(()) => {
                let groups: Vec<&Group> = match named {
                    Some(name) => self.groups.get(name).into_iter().collect(),
                    None => self.groups.values().collect(),
                };
                Outcome::Surveyed { groups: groups.into_iter().map(surveyed).collect() }
            }
        };
        effects.push(Effect::Reply { request, outcome });
    }

    pub(super) fn on_describe(&self, request: RequestId, name: String, effects: &mut Vec<Effect>) {
        let outcome = match self.admit(&name, false) {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(()) => Outcome::Described(self.describe(name)),
        };
        effects.push(Effect::Reply { request, outcome });
    }

    fn describe(&self, name: String) -> Described {
        // A consumer group is none of those that this describes.
        let group = self.groups.get(&name).filter(|group| group.consumer.is_none());
        let Some(group) = group else {
            return Described {
                group: name,
                state: "Dead",
                protocol_type: String::new(),
                protocol: String::new(),
                members: Vec::new(),
            };
        };
        let protocol = group.protocol.as_deref().filter(|_| group.phase == Phase::Stable);
        Described {
            group: name,
            state: group.phase.name(),
            protocol_type: group.protocol_type.clone(),
            protocol: protocol.unwrap_or_default().to_owned(),
            members: group.members.values().map(|member| member.described(protocol)).collect(),
        }
    }

    pub(super) fn on_describe_consumer(
        &self,
        request: RequestId,
        name: String,
        effects: &mut Vec<Effect>,
    ) {
        let found = self.admit(&name, false).and_then(|()| {
            let group = self.groups.get(&name).and_then(|group| group.consumer.as_ref());
            group.ok_or(Refusal::UnknownGroup)
        });
        let outcome = match found {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(consumer) => Outcome::ConsumerDescribed(consumer.describe(name, &self.topics)),
        };
        effects.push(Effect::Reply { request, outcome });
    }
}

fn surveyed(group: &Group) -> Surveyed {
    let offsets = group.offsets.iter().map(|(partition, stored)| SurveyedOffset {
        partition: partition.clone(),
        topic: stored.committed.topic,
        offset: stored.committed.offset,
        at: stored.at,
    });
    let members = group.consumer.as_ref().map_or(group.members.len(), |it| it.state.members.len());
    Surveyed {
        group: group.name.clone(),
        kind: group.kind(),
        state: group.state(),
        members,
        offsets: offsets.collect(),
    }
}
