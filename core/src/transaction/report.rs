//! What a coordinator tells of its transactions without changing any: whether partitions are in
//! one, and what there is, for tools. KIP-664, KIP-890 part 1, KIP-994.

use std::fmt::Write as _;

use regex::{Regex, RegexBuilder};

use super::interface::{Claim, Described, Effect, List, Listed, Outcome, Refusal};
use super::state::{State, TopicPartition};
use super::{Transactions, refuse, rules};
use crate::id::RequestId;
use crate::time::{Now, Timestamp};

/// Bytes that a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 256 << 10;

fn compile(pattern: &str) -> Result<Regex, Refusal> {
    let build = |text: &str| {
        let mut builder = RegexBuilder::new(text);
        let bounded = builder.size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
        bounded.nest_limit(100).build().map_err(|_| Refusal::InvalidPattern)
    };
    // Alone first: what is no pattern by itself must not become one between parentheses.
    build(pattern)?;
    build(&format!(r"\A(?:{pattern})\z"))
}

impl Transactions {
    pub(super) fn on_verify(
        &mut self,
        request: RequestId,
        claim: &Claim,
        partitions: &[TopicPartition],
        effects: &mut Vec<Effect>,
    ) {
        if let Err(refusal) = self.admit() {
            return refuse(effects, request, refusal);
        }
        let identity = self.identities.get(&claim.transactional_id);
        let state = identity.and_then(|identity| identity.state.as_ref());
        let outcome = match state {
            None => Outcome::Refused(Refusal::InvalidProducerIdMapping),
            // Its end may be decided any moment.
            Some(_) if identity.is_some_and(|identity| identity.is_ending()) => {
                Outcome::Refused(Refusal::ConcurrentTransactions)
            }
            Some(state) => rules::verify(state, claim, partitions),
        };
        effects.push(Effect::Reply { request, outcome });
    }

    pub(super) fn on_list(&mut self, now: Now, list: &List, effects: &mut Vec<Effect>) {
        if let Err(refusal) = self.admit() {
            return refuse(effects, list.request, refusal);
        }
        let pattern = match list.pattern.as_deref().map(compile).transpose() {
            Ok(pattern) => pattern,
            Err(refusal) => return refuse(effects, list.request, refusal),
        };
        let named = |name: &str| pattern.as_ref().is_none_or(|pattern| pattern.is_match(name));
        let wanted = |state: &State| {
            let producers = &list.producers;
            (list.phases.is_empty() || list.phases.contains(&state.phase))
                && (producers.is_empty() || producers.contains(&state.producer))
                && list.longer_than.is_none_or(|least| {
                    let age = now.wall.0.saturating_sub(state.started.0);
                    let least = i64::try_from(least.as_millis()).unwrap_or(i64::MAX);
                    !state.phase.is_idle() && state.started != Timestamp::NONE && age > least
                })
        };
        let listed = self.identities.values().filter_map(|identity| {
            let state = identity.state.as_ref().filter(|state| wanted(state))?;
            if !named(&identity.name) {
                return None;
            }
            Some(Listed {
                transactional_id: identity.name.clone(),
                producer: state.producer,
                phase: state.phase,
            })
        });
        let outcome = Outcome::Listed(listed.collect());
        effects.push(Effect::Reply { request: list.request, outcome });
    }

    pub(super) fn on_describe(
        &mut self,
        request: RequestId,
        transactional_id: &str,
        effects: &mut Vec<Effect>,
    ) {
        if let Err(refusal) = self.admit() {
            return refuse(effects, request, refusal);
        }
        let identity = self.identities.get(transactional_id);
        let Some((identity, state)) =
            identity.and_then(|identity| Some((identity, identity.state.as_ref()?)))
        else {
            return refuse(effects, request, Refusal::UnknownId);
        };
        let partitions = match state.phase.prepared() {
            Some(_) => identity.markers.left().cloned().collect(),
            None => state.partitions.iter().cloned().collect(),
        };
        let outcome = Outcome::Described(Described {
            producer: state.producer,
            epoch: state.epoch,
            phase: state.phase,
            timeout: state.timeout,
            started: if state.phase.is_idle() { Timestamp::NONE } else { state.started },
            partitions,
        });
        effects.push(Effect::Reply { request, outcome });
    }

    /// A transactional id a line: who has it, and where it stands.
    pub fn status(&self) -> String {
        let mut out = String::new();
        for identity in self.identities.values() {
            let _ = write!(out, "{}", identity.name);
            if let Some(state) = &identity.state {
                let (producer, epoch, phase) = (state.producer, state.epoch, state.phase.name());
                let _ = write!(out, " {producer}/{epoch} {phase}");
                if state.next_producer.is_some() {
                    let _ = write!(out, " next={}", state.next_producer);
                }
                for TopicPartition { topic, partition } in &state.partitions {
                    let _ = write!(out, " {topic}-{partition}");
                }
            }
            if identity.writing.is_some() {
                out.push_str(" (writing)");
            }
            out.push('\n');
        }
        out
    }
}
