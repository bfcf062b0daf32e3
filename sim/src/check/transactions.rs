//! Whether what producers and readers of transactions did and were told may come from a correct
//! system. A transaction is there as a whole or not at all (`outcome.rs`), readers of committed
//! records see what is there and nothing else (`visibility.rs`), whoever was shut out commits
//! nothing (`fencing.rs`), each input is copied once (`copies.rs`), and a log tells of producers
//! what may be (`stamps.rs`).

mod copies;
mod fencing;
mod outcome;
mod stamps;
mod visibility;

#[cfg(test)]
mod story;

use std::collections::BTreeMap;

use super::{Evidence, Violation};
use crate::history::Value;
use crate::history::transactions::{Place, Transaction, Transactions};

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let survives = super::groups::offsets_survive(evidence.plan, evidence.struck);
    if evidence.history.transactions.lives.is_empty() || !survives {
        return;
    }
    let facts = Facts::new(&evidence.history.transactions);
    outcome::check(&facts, violations);
    visibility::check(&facts, violations);
    fencing::check(&facts, violations);
    copies::check(&facts, violations);
    stamps::check(&facts, violations);
}

/// What was done, sorted for the checkers.
struct Facts<'a> {
    all: &'a Transactions,
    /// Which transaction sent a value to a place.
    senders: BTreeMap<(Place, Value), usize>,
    /// Which value a copy was made of.
    originals: BTreeMap<Value, Value>,
    /// The offset at which readers of committed records see it at the end.
    visible: BTreeMap<(Place, Value), i64>,
    stored: BTreeMap<(Place, Value), i64>,
}

impl<'a> Facts<'a> {
    fn new(all: &'a Transactions) -> Self {
        let mut facts = Self {
            all,
            senders: BTreeMap::new(),
            originals: BTreeMap::new(),
            visible: BTreeMap::new(),
            stored: BTreeMap::new(),
        };
        for (place, transaction) in all.transactions.iter().enumerate() {
            for sent in &transaction.sent {
                facts.senders.entry((sent.place, sent.value)).or_insert(place);
                facts.originals.extend(sent.copy_of.map(|original| (sent.value, original)));
            }
        }
        for (place, last) in &all.last {
            let named = |seen: &crate::history::Seen| Some(((*place, seen.value?), seen.offset));
            facts.visible.extend(last.committed.iter().filter_map(named));
            facts.stored.extend(last.stored.iter().filter_map(named));
        }
        facts
    }

    fn transaction(&self, place: usize) -> &'a Transaction {
        &self.all.transactions[place]
    }

    /// A transaction's name in sentences.
    fn named(&self, place: usize) -> String {
        let life = &self.all.lives[self.transaction(place).life];
        format!("transaction {place} of {}", life.transactional_id)
    }
}

/// Adds a violation.
fn blame(
    violations: &mut Vec<Violation>,
    property: &'static str,
    place: impl std::fmt::Display,
    sentence: String,
) {
    violations.push(Violation { property, place: place.to_string(), sentence });
}
