//! `quorate log orphans`: the records that were cut off a log because its leader's log parted from
//! it there, as they were set aside (docs/decisions/0065).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use quorate_core::id::{PartitionId, TopicId};
use quorate_core::segment::directory_name;
use quorate_core::segment::orphan::{HEAD_BYTES, Orphan, OrphanName};
use quorate_core::time::Timestamp;
use serde::Serialize;

use super::walk::Place;
use super::{cannot_read, sorted, topic_names};
use crate::command::Context;
use crate::failure::Failure;
use crate::output::human;
use crate::output::table::Table;

/// A file of orphans as it is shown.
#[derive(Serialize)]
struct Shown {
    file: String,
    /// `None` if the metadata log does not tell.
    topic: Option<String>,
    topic_id: String,
    partition: i32,
    /// Of the last record.
    leader_epoch: i32,
    first_offset: i64,
    last_offset: i64,
    records: u64,
    bytes: u64,
    /// Whose log has something else there, and the epoch in which it was asked.
    parted_from: i32,
    parted_in_epoch: i32,
    /// When they were set aside; `None` if the node did not know the time.
    set_aside: Option<i64>,
}

/// Where the frames of an orphan file begin; `None` if it is not called one.
pub(super) fn place_of(path: &Path) -> Result<Option<Place>, Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if OrphanName::parse(&name).is_none() {
        return Ok(None);
    }
    let OrphanName { partition, first: base, .. } = head(path)?.name;
    Ok(Some(Place { partition, base, position: HEAD_BYTES as u64 }))
}

/// The head of an orphan file.
fn head(path: &Path) -> Result<Orphan, Failure> {
    let mut file = File::open(path).map_err(cannot_read(path))?;
    let mut bytes = Vec::new();
    file.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut bytes).map_err(cannot_read(path))?;
    Orphan::decode(&Bytes::from(bytes))
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

pub(super) fn list(context: &Context, directory: &Path) -> Result<(), Failure> {
    let orphans = directory.join("orphans");
    if !orphans.is_dir() {
        let failure = Failure::usage(format!("{} is no data directory", directory.display()));
        return Err(failure.hint("it has no orphans/ in it"));
    }
    let names = topic_names(&directory.join("logs").join(directory_name(PartitionId::METADATA)));
    let mut shown = Vec::new();
    for path in sorted(&orphans)? {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if OrphanName::parse(&file).is_some() {
            shown.push(show(file, &head(&path)?, &names));
        }
    }
    if context.output.json {
        return context.output.json(&shown);
    }
    let mut table = Table::new(&[
        "TOPIC",
        "PARTITION",
        "EPOCH",
        "FIRST",
        "LAST",
        "RECORDS",
        "SIZE",
        "AGE",
        "FILE",
    ]);
    for orphan in shown {
        table.row([
            orphan.topic.unwrap_or(orphan.topic_id),
            orphan.partition.to_string(),
            orphan.leader_epoch.to_string(),
            orphan.first_offset.to_string(),
            orphan.last_offset.to_string(),
            orphan.records.to_string(),
            human::bytes(orphan.bytes),
            age(orphan.set_aside),
            orphan.file,
        ]);
    }
    context.output.table(&table)
}

fn show(file: String, orphan: &Orphan, names: &BTreeMap<TopicId, String>) -> Shown {
    let name = orphan.name;
    Shown {
        file,
        topic: names.get(&name.partition.topic).cloned(),
        topic_id: name.partition.topic.to_string(),
        partition: name.partition.index,
        leader_epoch: name.epoch.0,
        first_offset: name.first.0,
        last_offset: name.end.0 - 1,
        records: orphan.records,
        bytes: orphan.bytes,
        parted_from: orphan.leader.0,
        parted_in_epoch: orphan.leader_epoch.0,
        set_aside: (orphan.at != Timestamp::NONE).then_some(orphan.at.0),
    }
}

/// Since it was set aside, by this machine's clock.
fn age(at: Option<i64>) -> String {
    let since = |at: i64| {
        let at = Duration::from_millis(u64::try_from(at).ok()?);
        SystemTime::UNIX_EPOCH.elapsed().ok()?.checked_sub(at)
    };
    at.and_then(since).map_or_else(|| "-".to_owned(), human::duration)
}
