//! The world of quorums: members of the metadata quorum alone, on disks and a network that an
//! adversary rules who sees everything. Storms and calms take turns, and every step is watched.
//!
//! What a node puts around its seat in the quorum is not here; the other worlds have it.

mod adversary;
mod calm;
mod disk;
mod links;
mod members;
mod shadow;
pub mod usurper;

use std::time::Duration;

use quorate_core::quorum::interface::Limits;

use self::adversary::Adversary;
use self::members::Members;
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan::draw::draw_quorum;
use crate::run::Observed;
use crate::trace::{self, Mark};

/// Steps of the adversary between two looks at all logs.
const LOOK_EVERY: u64 = 64;

/// Runs the quorum of a plan, or the one that its seed would have.
pub(crate) fn run(plan: &Plan, checks: bool) -> Observed {
    let drawn = || draw_quorum(plan.seed, 0).quorum.expect("it is drawn with one");
    let quorum = plan.quorum.clone().unwrap_or_else(drawn);
    let limits = draw_limits(&mut Chance::new(plan.seed, "quorum limits"));
    let chance = Chance::new(plan.seed, "quorum members");
    let mut members = Members::new(chance, quorum.voters, quorum.others, limits);
    members.checks = checks;
    members.shadow.is_off = !checks;
    let storms = quorum.storms;
    let mut adversary = Adversary::new(plan.seed, quorum, members);
    let mut stuck = None;
    for storm in 0..storms {
        adversary.rage(LOOK_EVERY);
        if adversary.members.shadow.is_blamed() {
            break;
        }
        let is_last = storm + 1 == storms;
        if let Err(sentence) = adversary.calm(is_last) {
            stuck = Some(sentence);
            break;
        }
    }
    end(adversary, stuck)
}

fn end(adversary: Adversary, stuck: Option<String>) -> Observed {
    let Adversary { mut members, counts, .. } = adversary;
    members.check_logs();
    members.shadow.check_once();
    let simulated = Duration::from_micros(members.time);
    let committed = members.shadow.last().0;
    let numbers = [committed, members.steps, 0];
    trace::event(simulated, Mark::Run, "all", numbers, || format!("ends, {committed} entries"));
    let violations = members.shadow.take();
    Observed {
        // What is stuck behind a wrong decision says nothing more.
        stuck: if violations.is_empty() { stuck.into_iter().collect() } else { Vec::new() },
        violations,
        faults: counts,
        simulated,
        steps: members.steps,
        ..Observed::default()
    }
}

/// Small ones, so that every bound is met.
fn draw_limits(chance: &mut Chance) -> Limits {
    let some = |chance: &mut Chance, most: [u64; 3]| {
        let most = *chance.pick(&most);
        1 + chance.below(most)
    };
    Limits {
        election_timeout: Duration::from_millis(500),
        heartbeat_interval: Duration::from_millis(50 + chance.below(100)),
        observer_timeout: Duration::from_secs(2),
        observers_max: 10,
        inflight_max: 1 + chance.below(6) as usize,
        inflight_bytes_max: 1 + chance.below(500),
        append_bytes_max: some(chance, [1, 100, 300]),
        entry_bytes_max: 100,
        uncommitted_bytes_max: 200 + chance.below(2000),
        requests_max: 1 + chance.below(20) as usize,
        snapshot_after_bytes: 100 + some(chance, [200, 2000, 20_000]),
        entries_kept: some(chance, [1, 6, 60]) - 1,
        snapshot_bytes_max: 1000,
        chunk_bytes: 8 + chance.below(30),
        catch_up_entries: chance.below(5),
        restores_votes: true,
    }
}
