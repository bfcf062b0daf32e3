//! Client × scenario: what each foreign client writes, every other one must read the same.
//!
//! The thin programs in `clients/` do the talking (`clients/README.md`); here stands what is
//! expected. What a client cannot do at all is `n/a` with its reason, never a pass.

pub mod adapter;
pub mod samples;
mod scenarios;
pub mod table;

use std::path::Path;

use adapter::{Adapter, Failure};
use scenarios::Scenarios;
use table::{Cell, Table};

use crate::stopwatch::Stopwatch;

/// Runs every scenario with every client (or those named in `only`) against `bootstrap`.
///
/// # Errors
/// If an adapter's description cannot be read or the topics cannot be created; a scenario that
/// fails is a cell of the table.
pub fn run(
    root: &Path,
    bootstrap: &str,
    only: &[String],
    progress: impl Fn(&str),
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
    for client in &chosen {
        at("reading with", client);
        table.set(&client.name, "read all", scenarios.read_all(client, &truth));
        table.set(&client.name, "find by time", scenarios.find_by_time(client));
        at("grouping", client);
        let (group, resume) = scenarios.group(client);
        table.set(&client.name, "group of two", group);
        table.set(&client.name, "resume", resume);
        at("transactions with", client);
        table.set(&client.name, "transactions", scenarios.transact(client));
        at("administering with", client);
        table.set(&client.name, "admin", scenarios.admin(client));
    }
    Ok(table)
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
