//! The clients of the walk that speak the classic protocol: they join, sync and heartbeat; one that
//! leads a classic group shares out.

use std::time::Duration;

use quorate_core::group::interface::{
    Assignment, Input, Join, Leaving, MemberClaim, Outcome, Protocol, Refusal, Sync,
};
use quorate_core::id::TopicId;
use rand::Rng;

use super::{Walk, embedded};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Join,
    Sync,
    In,
}

#[derive(Clone, Debug)]
pub(super) struct Classic {
    phase: Phase,
    /// It gives everything up before it joins.
    is_eager: bool,
    /// Among whom it shares out, if it leads.
    led: Vec<String>,
}

impl Classic {
    pub(super) fn new(is_eager: bool) -> Self {
        Self { phase: Phase::Join, is_eager, led: Vec::new() }
    }

    pub(super) fn is_joining(&self) -> bool {
        self.phase != Phase::In
    }
}

impl Walk {
    pub(super) fn join_again(&mut self, client: usize) {
        if let Some(classic) = &mut self.clients[client].classic {
            classic.phase = Phase::Join;
        }
    }

    pub(super) fn classic_turn(&mut self, client: usize) {
        // One request at a time; at times it gives up waiting.
        if self.asked.values().any(|(other, _)| *other == client) {
            if !self.losses || !self.rng.random_ratio(1, 5) {
                return;
            }
            self.asked.retain(|_, (other, _)| *other != client);
            self.join_again(client);
        }
        let request = self.ask(client);
        let state = self.clients[client].clone();
        let classic = state.classic.expect("it speaks the classic protocol");
        let member = MemberClaim {
            group: "g".to_owned(),
            member: state.member.clone(),
            instance: None,
            generation: state.epoch,
        };
        let input = match classic.phase {
            Phase::In => Input::Heartbeat { request, member },
            Phase::Sync => {
                let assignments = self.share_out(&classic.led);
                Input::Sync(Sync {
                    request,
                    member,
                    protocol_type: None,
                    protocol: None,
                    assignments,
                })
            }
            Phase::Join => {
                let topics = if state.wishes == 0 { "a" } else { "a,b" };
                if classic.is_eager {
                    self.clients[client].has = Assignment::default();
                }
                let owned = listed(&self.clients[client].has);
                Input::Join(Join {
                    request,
                    group: "g".to_owned(),
                    member: state.member,
                    instance: None,
                    client_id: "c".to_owned(),
                    client_host: String::new(),
                    session_timeout: Duration::from_secs(10),
                    rebalance_timeout: Duration::from_secs(20),
                    protocol_type: "consumer".to_owned(),
                    protocols: vec![Protocol {
                        name: "range".to_owned(),
                        metadata: embedded::subscription(topics, Some(&owned)),
                    }],
                    member_id_required: true,
                    skip_assignment: true,
                })
            }
        };
        self.step(input);
    }

    /// Every partition to one of them, whoever had it before.
    fn share_out(&mut self, led: &[String]) -> Vec<(String, bytes::Bytes)> {
        if led.is_empty() {
            return Vec::new();
        }
        let mut parts = vec![Vec::new(); led.len()];
        for (name, topic) in &self.topics {
            for partition in 0..topic.partitions {
                let to = self.rng.random_range(0..led.len());
                parts[to].push(format!("{name}-{partition}"));
            }
        }
        let encoded = |part: Vec<String>| embedded::assignment(&format!("@{}", part.join(",")));
        led.iter().cloned().zip(parts.into_iter().map(encoded)).collect()
    }

    pub(super) fn on_classic_reply(&mut self, client: usize, member: &str, outcome: Outcome) {
        let is_lost = self.losses && self.rng.random_ratio(1, 10);
        let state = &mut self.clients[client];
        if state.member != member {
            return;
        }
        let (now, epoch) = (self.now, state.epoch);
        if let Outcome::Synced { assignment, .. } = &outcome {
            let told = read(&embedded::shown(assignment));
            self.note(&told, epoch, member);
        }
        let state = &mut self.clients[client];
        let classic_phase = |state: &mut super::Client, phase| {
            state.classic.as_mut().expect("it still does").phase = phase;
        };
        state.is_unsure = false;
        if is_lost {
            return classic_phase(state, Phase::Join);
        }
        match outcome {
            Outcome::Joined(joined) => {
                let leads = joined.leader == joined.member;
                let led = joined.members.iter().map(|member| member.member.clone());
                let led = if leads { led.collect() } else { Vec::new() };
                (state.member, state.epoch) = (joined.member, joined.generation);
                let classic = state.classic.as_mut().expect("it still does");
                (classic.phase, classic.led) = (Phase::Sync, led);
            }
            Outcome::Synced { assignment, .. } => {
                state.told = read(&embedded::shown(&assignment));
                state.has = state.told.clone();
                state.beat_at = now + Duration::from_secs(1);
                classic_phase(state, Phase::In);
            }
            Outcome::Alive => state.beat_at = now + Duration::from_secs(1),
            Outcome::Refused(Refusal::MemberIdRequired { member }) => state.member = member,
            Outcome::Refused(Refusal::RebalanceInProgress) => classic_phase(state, Phase::Join),
            Outcome::Refused(refusal) => {
                let is_gone = matches!(refusal, Refusal::UnknownMember | Refusal::FencedInstance);
                if is_gone {
                    state.member.clear();
                }
                if is_gone || refusal == Refusal::IllegalGeneration {
                    state.has = Assignment::default();
                    classic_phase(state, Phase::Join);
                }
            }
            _ => {}
        }
    }

    pub(super) fn classic_leave(&mut self, client: usize) {
        let member = self.clients[client].member.clone();
        if member.is_empty() {
            return;
        }
        let request = self.ask(client);
        let members = vec![Leaving { member, instance: None }];
        self.step(Input::Leave { request, group: "g".to_owned(), members });
    }
}

const NAMES: [&str; 2] = ["a", "b"];

/// As the other clients of the scripts write partitions; `-` for none.
fn listed(assignment: &Assignment) -> String {
    let name = |topic: TopicId| NAMES[usize::from(topic.0[0]) - 1];
    let places: Vec<String> =
        assignment.iter().map(|(topic, at)| format!("{}-{at}", name(topic))).collect();
    if places.is_empty() { "-".to_owned() } else { places.join(",") }
}

fn read(shown: &str) -> Assignment {
    let places = shown.trim_matches(['{', '}']).split(' ').filter(|place| !place.is_empty());
    let place = |place: &str| {
        let (topic, partition) = place.rsplit_once('-').expect("topic-partition");
        let index = NAMES.iter().position(|name| *name == topic).expect("a or b");
        (TopicId([index as u8 + 1; 16]), partition.parse().expect("a number"))
    };
    places.map(place).collect()
}
