//! Client × scenario: what each foreign client writes, every other one must read the same.
//!
//! The thin programs in `clients/` do the talking (`clients/README.md`); here stands what is
//! expected. What a client cannot do at all is `n/a` with its reason, never a pass.

pub mod adapter;
pub mod samples;
mod scenarios;
pub mod table;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use adapter::{Adapter, Failure};
use scenarios::Scenarios;
use table::{Cell, Table};

use crate::stopwatch::Stopwatch;

/// Clients at once, once all is written.
const SIDE_BY_SIDE: usize = 2;

/// Runs every scenario with every client (or those named in `only`) against `bootstrap`.
///
/// # Errors
/// If an adapter's description cannot be read or the topics cannot be created; a scenario that
/// fails is a cell of the table.
pub fn run(
    root: &Path,
    bootstrap: &str,
    only: &[String],
    progress: impl Fn(&str) + Sync,
) -> Result<Table, Failure> {
    let every = adapter::all(root)?;
    let chosen: Vec<&Adapter> =
        every.iter().filter(|a| only.is_empty() || only.contains(&a.name)).collect();
    let scenarios = Scenarios::prepare(&every, bootstrap)?;
    let mut table = Table::default();
    let watch = Stopwatch::start();
    let at = |what: &str, client: &Adapter| {
        progress(&format!("{:4} s  {what} {}", watch.elapsed().as_secs(), client.name));
    };
    for writer in &chosen {
        at("writing with", writer);
        scenarios.write_all(writer, &mut table);
    }
    // Acks=0 promises nothing about when; half a second is long for a local broker.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let truth = scenarios.truth(&mut table)?;
    let play = |client: &Adapter| {
        at("reading with", client);
        let mut cells = vec![
            ("read all", scenarios.read_all(client, &truth)),
            ("find by time", scenarios.find_by_time(client)),
        ];
        at("grouping", client);
        let (group, resume) = scenarios.group(client);
        cells.extend([("group of two", group), ("resume", resume)]);
        at("transactions with", client);
        cells.push(("transactions", scenarios.transact(client)));
        at("administering with", client);
        cells.push(("admin", scenarios.admin(client)));
        cells
    };
    for (client, cells) in chosen.iter().zip(side_by_side(&chosen, play)) {
        for (scenario, cell) in cells {
            table.set(&client.name, scenario, cell);
        }
    }
    Ok(table)
}

/// What `play` gives for each client, in their order. Clients wait more than they work: for members
/// of groups, and for records that never come. Each has topics and groups of its own.
fn side_by_side<T: Send>(clients: &[&Adapter], play: impl Fn(&Adapter) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut played = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(client) = clients.get(place) else { return played };
            played.push((place, play(client)));
        }
    };
    let mut played: Vec<(usize, T)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..SIDE_BY_SIDE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no scenario panics")).collect()
    });
    played.sort_by_key(|(place, _)| *place);
    played.into_iter().map(|(_, result)| result).collect()
}

/// A cell for what the client cannot do, or the scenario's outcome.
fn unless(cannot: Option<&str>, scenario: impl FnOnce() -> Result<String, Failure>) -> Cell {
    match cannot {
        Some(reason) => Cell::NotApplicable(reason.to_owned()),
        None => match scenario() {
            Ok(note) => Cell::Passed(note),
            Err(failure) => Cell::Failed(failure.0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_is_played_once_and_they_stay_in_order() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let every = adapter::all(root).expect("descriptions");
        let all: Vec<&Adapter> = every.iter().collect();
        let names: Vec<&str> = all.iter().map(|client| client.name.as_str()).collect();
        assert_eq!(side_by_side(&all, |client| client.name.clone()), names);
    }
}
