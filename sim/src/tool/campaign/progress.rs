//! How far a campaign is: a bar on a terminal, a line now and then elsewhere.
#![allow(clippy::print_stdout)]

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use crate::campaign::Sum;

/// Of the bar, in characters.
const WIDTH: usize = 24;

/// How often something is said.
pub(super) fn every() -> Duration {
    let is_terminal = io::stdout().is_terminal();
    if is_terminal { Duration::from_millis(200) } else { Duration::from_secs(10) }
}

/// `part` is of 1.
pub(super) fn say(sum: &Sum, took: Duration, part: f64) {
    let seconds = took.as_secs_f64().max(0.001);
    let faults: u64 = sum.faults.values().sum();
    let line = format!(
        "{} seeds, {:.1}/s, {:.0} simulated s/s, {faults} faults, {} marks, {} failed",
        sum.seeds,
        sum.seeds as f64 / seconds,
        sum.simulated.as_secs_f64() / seconds,
        sum.marks.len(),
        sum.failed(),
    );
    let part = part.clamp(0.0, 1.0);
    if io::stdout().is_terminal() {
        let full = (part * WIDTH as f64) as usize;
        let (full, empty) = ("█".repeat(full), "░".repeat(WIDTH - full));
        print!("\r\x1b[2K{full}{empty} {line}");
        let _ = io::stdout().flush();
    } else {
        println!("{:.0} %: {line}", part * 100.0);
    }
}

/// Takes the bar away.
pub(super) fn clear() {
    if io::stdout().is_terminal() {
        print!("\r\x1b[2K");
        let _ = io::stdout().flush();
    }
}
