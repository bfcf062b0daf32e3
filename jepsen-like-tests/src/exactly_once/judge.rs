//! A history of real clients before the simulator's checkers.

use quorate_sim::check::{Struck, Violation, check};
use quorate_sim::history::History;
use quorate_sim::history::transactions::Transactions;
use quorate_sim::plan::draw::draw;
use quorate_sim::plan::{Nodes, Plan};

/// The only thing that checkers ask of a plan here is what may be lost: on three nodes, two of
/// which have what is acknowledged, nothing.
fn plan() -> Plan {
    let mut plan = draw(1);
    plan.cluster = Nodes { nodes: 3, voters: 3, replication: 3, in_sync_min: 2, ..Nodes::ONE };
    plan.faults.clear();
    plan.groups.clear();
    plan
}

/// The history again, and what is wrong with it.
pub(super) fn judge(transactions: Transactions) -> (Transactions, Vec<Violation>) {
    let history = History { transactions, ..History::default() };
    let violations = check(&history, &plan(), Struck::default());
    (history.transactions, violations)
}
