//! The metadata log as it is shown: operations of the quorum, and the records of the metadata that
//! its entries and snapshots hold.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use quorate_core::batch::{Batch, Records};
use quorate_core::metadata::Record;
use quorate_core::metadata::payload::records_in;
use quorate_core::quorum::interface::{Configuration, Entry, HardState, LogOp, Payload, Snapshot};
use serde::Serialize;

use crate::output::table::Table;

/// No batch of the log is larger when decompressed: it is not compressed.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// A line of what is shown: an operation, or one entry of those that append several.
#[derive(Debug, Serialize)]
pub(super) struct Operation {
    pub(super) position: u64,
    offset: i64,
    /// `hard-state`, `append`, `truncate`, `snapshot`, `install`.
    operation: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    term: Option<u64>,
    /// Who votes, who has the vote, where is cut; for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    says: String,
    /// Records of the metadata by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    holds: BTreeMap<String, usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) records: Vec<Record>,
}

impl Operation {
    pub(super) const HEADINGS: [&'static str; 6] =
        ["POSITION", "OFFSET", "OPERATION", "INDEX", "TERM", "HOLDS"];

    pub(super) fn row(&self, table: &mut Table) {
        let number =
            |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let mut holds = self.says.clone();
        for (kind, count) in &self.holds {
            let comma = if holds.is_empty() { "" } else { ", " };
            let _ = match count {
                1 => write!(holds, "{comma}{kind}"),
                count => write!(holds, "{comma}{count} {kind}"),
            };
        }
        table.row([
            self.position.to_string(),
            self.offset.to_string(),
            self.operation.to_owned(),
            number(self.index),
            number(self.term),
            holds,
        ]);
    }
}

/// What the operations in `batch`, which stands at `position`, say.
///
/// # Errors
///
/// Why this build cannot read them, in a sentence.
pub(super) fn operations(position: u64, batch: &Batch) -> Result<Vec<Operation>, String> {
    let mut shown = Vec::new();
    let mut add = |offset, operation, said: Said| {
        let Said { index, term, says, records } = said;
        let mut holds = BTreeMap::new();
        for record in &records {
            *holds.entry(kind(record)).or_default() += 1;
        }
        shown.push(Operation { position, offset, operation, index, term, says, holds, records });
    };
    for (offset, operation) in read(batch)? {
        match operation {
            LogOp::HardState(hard) => add(offset, "hard-state", of_hard_state(&hard)),
            LogOp::Append { entries } => {
                for entry in entries {
                    add(offset, "append", of_entry(&entry)?);
                }
            }
            LogOp::Truncate { after } => {
                let says = format!("nothing behind {after} counts");
                add(offset, "truncate", Said { index: Some(after.0), says, ..Said::default() });
            }
            LogOp::Snapshot { snapshot, .. } => add(offset, "snapshot", of_snapshot(&snapshot)?),
            LogOp::Install { snapshot } => add(offset, "install", of_snapshot(&snapshot)?),
        }
    }
    Ok(shown)
}

#[derive(Default)]
struct Said {
    index: Option<u64>,
    term: Option<u64>,
    says: String,
    records: Vec<Record>,
}

fn read(batch: &Batch) -> Result<Vec<(i64, LogOp)>, String> {
    let bytes = batch.uncompressed(BATCH_BYTES_MAX).map_err(|error| error.to_string())?;
    let records = Records::new(&bytes, batch.header().record_count());
    let operation = |record: quorate_core::batch::Record<'_>| {
        let operation = LogOp::from_bytes(record.value.unwrap_or_default());
        let offset = batch.offset_of(&record).0;
        operation.map(|operation| (offset, operation)).map_err(|error| error.to_string())
    };
    records.map(|record| operation(record.map_err(|error| error.to_string())?)).collect()
}

fn of_hard_state(hard: &HardState) -> Said {
    let mut says = match hard.vote {
        Some(vote) => format!("votes for {vote}"),
        None => "no vote".to_owned(),
    };
    if let Some(cluster) = hard.cluster {
        let _ = write!(says, ", cluster {cluster}");
    }
    Said { term: Some(hard.term.0), says, ..Said::default() }
}

fn of_entry(entry: &Entry) -> Result<Said, String> {
    let (says, records) = match &entry.payload {
        Payload::Data(data) => (String::new(), records_in(data)?),
        Payload::Configuration(configuration) => (voters(configuration), Vec::new()),
        Payload::LeaderChange => ("a leader begins".to_owned(), Vec::new()),
    };
    Ok(Said { index: Some(entry.index.0), term: Some(entry.term.0), says, records })
}

fn of_snapshot(snapshot: &Snapshot) -> Result<Said, String> {
    let (index, term) = (Some(snapshot.position.index.0), Some(snapshot.position.term.0));
    let says = voters(&snapshot.configuration);
    Ok(Said { index, term, says, records: records_in(&snapshot.data)? })
}

fn voters(configuration: &Configuration) -> String {
    let voters = configuration.voters.iter().map(ToString::to_string);
    format!("voters {}", voters.collect::<Vec<_>>().join(" "))
}

/// `TopicCreated`.
fn kind(record: &Record) -> String {
    let shown = format!("{record:?}");
    let end = shown.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(shown.len());
    shown[..end].to_owned()
}

/// Calls `visit` with all records of the metadata that the frame in front of `bytes` holds, as far
/// as they can be read.
pub(super) fn each_record(bytes: &Bytes, mut visit: impl FnMut(Record)) {
    let Ok(Some(frame)) = quorate_core::segment::frame::Frame::decode(bytes) else { return };
    for shown in operations(0, &frame.batch).unwrap_or_default() {
        shown.records.into_iter().for_each(&mut visit);
    }
}
