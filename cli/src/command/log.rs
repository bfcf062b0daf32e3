//! `quorate log`: what stands in a segment, and whether a data directory is whole. It reads the
//! files itself, so it works where a node does not start.

mod compare;
mod operations;
mod orphans;
mod walk;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use quorate_core::batch::Header;
use quorate_core::id::{Offset, PartitionId, TopicId};
use quorate_core::metadata::record::Record;
use quorate_core::segment::checkpoint::Marks;
use quorate_core::segment::cleaned::{CLEANED_FILE, Cleaned};
use quorate_core::segment::frame::{Frame, FrameHeader};
use quorate_core::segment::{
    FileKind, directory_name, parse_directory_name, parse_file_name, parse_segment_file_name,
};
use quorate_net::client::records_of;
use serde::Serialize;

use self::compare::{Batches, Compared, compare, fingerprint};
use self::operations::{Operation, each_record, operations};
use self::walk::{Ending, Place, walk, walk_from};
use super::Context;
use crate::args::LogCommand;
use crate::failure::{FAILED, Failure};
use crate::output::human;
use crate::output::table::Table;

pub(crate) async fn run(context: &Context, command: LogCommand) -> Result<(), Failure> {
    match command {
        LogCommand::Inspect { file, records } => inspect(context, &file, records),
        LogCommand::Verify { directories } => verify_all(context, &directories),
        LogCommand::Orphans { directory } => orphans::list(context, &directory),
    }
}

fn cannot_read(path: &Path) -> impl FnOnce(std::io::Error) -> Failure + '_ {
    move |error| Failure::new(format!("{} cannot be read: {error}", path.display()))
}

/// A batch as it is shown.
#[derive(Serialize)]
struct Shown {
    position: u64,
    base_offset: i64,
    last_offset: i64,
    records: i32,
    bytes: u64,
    codec: &'static str,
    leader_epoch: i32,
    max_timestamp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    producer: Option<Producer>,
    levels: Vec<u8>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contents: Vec<crate::record_json::JsonRecord>,
}

#[derive(Serialize)]
struct Producer {
    id: i64,
    epoch: i16,
    first_sequence: i32,
}

impl Shown {
    fn new(position: u64, frame: &FrameHeader, header: &Header) -> Self {
        let producer = header.producer_id();
        let levels = (0..=9).filter(|&level| frame.levels.contains(level));
        Self {
            position,
            base_offset: header.base_offset().0,
            last_offset: header.last_offset().0,
            records: header.record_count(),
            bytes: frame.frame_bytes(),
            codec: header.codec().name(),
            leader_epoch: frame.leader_epoch.0,
            max_timestamp: header.max_timestamp().0,
            producer: producer.is_some().then(|| Producer {
                id: producer.0,
                epoch: header.producer_epoch().0,
                first_sequence: header.base_sequence(),
            }),
            levels: levels.collect(),
            contents: Vec::new(),
        }
    }

    fn row(&self, table: &mut Table) {
        let producer = self.producer.as_ref().map_or_else(
            || "-".to_owned(),
            |producer| format!("{}/{} #{}", producer.id, producer.epoch, producer.first_sequence),
        );
        let levels: Vec<String> = self.levels.iter().map(u8::to_string).collect();
        table.row([
            self.position.to_string(),
            self.base_offset.to_string(),
            self.last_offset.to_string(),
            self.records.to_string(),
            self.bytes.to_string(),
            self.codec.to_owned(),
            self.leader_epoch.to_string(),
            self.max_timestamp.to_string(),
            producer,
            levels.join(","),
        ]);
    }
}

fn inspect(context: &Context, file: &Path, with_records: bool) -> Result<(), Failure> {
    let place = place_of(file)?;
    let partition = place.partition;
    if partition == PartitionId::METADATA {
        return inspect_metadata(context, file, place.base, with_records);
    }
    let mut shown = Vec::new();
    let mut broken: Option<Failure> = None;
    let ending = walk_from(file, place, 0, |position, frame, header, bytes| {
        let mut batch = Shown::new(position, frame, header);
        if with_records {
            match contents(partition, bytes) {
                Ok(contents) => batch.contents = contents,
                Err(failure) => broken = broken.take().or(Some(failure)),
            }
        }
        shown.push(batch);
    })
    .map_err(cannot_read(file))?;
    if context.output.json {
        context.output.json(&shown)?;
    } else {
        print(context, partition, &shown)?;
        let sentence = ending.sentence();
        context.output.note(&context.output.notes.dim(&sentence));
    }
    judge(file, &ending, broken)
}

fn judge(file: &Path, ending: &Ending, broken: Option<Failure>) -> Result<(), Failure> {
    match (ending, broken) {
        (Ending::Untouched { .. }, None) => Ok(()),
        (_, Some(failure)) => Err(failure),
        (ending, None) => Err(Failure::new(format!("{}: {}", file.display(), ending.sentence()))),
    }
}

/// Whose frames a file holds, and from where on.
fn place_of(file: &Path) -> Result<Place, Failure> {
    if let Some(place) = orphans::place_of(file)? {
        return Ok(place);
    }
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let parsed = name(file).as_deref().and_then(parse_segment_file_name);
    let Some((base, _, FileKind::Segment)) = parsed else {
        let failure = Failure::usage(format!("{} is no segment", file.display()));
        return Err(failure.hint("segments are DATA/logs/TOPIC-PARTITION/OFFSET.segment"));
    };
    let directory = file.canonicalize().ok();
    let log = directory.and_then(|path| path.parent().and_then(name));
    let partition = log.and_then(|log| parse_directory_name(&log)).unwrap_or_default();
    Ok(Place { partition, base, position: 0 })
}

/// The metadata log holds what the quorum wrote down: a line an operation.
fn inspect_metadata(
    context: &Context,
    file: &Path,
    base: Offset,
    with_records: bool,
) -> Result<(), Failure> {
    let mut shown: Vec<Operation> = Vec::new();
    let mut broken: Option<Failure> = None;
    let ending = walk(file, PartitionId::METADATA, base, 0, |position, _, _, bytes| {
        let Ok(Some(frame)) = Frame::decode(bytes) else { return };
        match operations(position, &frame.batch) {
            Ok(read) => shown.extend(read),
            Err(why) => {
                let failure = format!("{}: at byte {position}: {why}", file.display());
                broken = broken.take().or_else(|| Some(Failure::new(failure)));
            }
        }
    })
    .map_err(cannot_read(file))?;
    if !with_records {
        shown.iter_mut().for_each(|operation| operation.records.clear());
    }
    let output = context.output;
    if output.json {
        output.json(&shown)?;
    } else {
        output.note("the metadata log: what the quorum wrote down");
        let mut table = Table::new(&Operation::HEADINGS);
        for operation in &shown {
            operation.row(&mut table);
        }
        output.table(&table)?;
        for record in shown.iter().flat_map(|operation| &operation.records) {
            output.line(&format!("  {record:?}"))?;
        }
        output.note(&output.notes.dim(&ending.sentence()));
    }
    judge(file, &ending, broken)
}

/// The records of the frame that `bytes` begin with.
fn contents(
    partition: PartitionId,
    bytes: &Bytes,
) -> Result<Vec<crate::record_json::JsonRecord>, Failure> {
    let Ok(Some(frame)) = Frame::decode(bytes) else { return Ok(Vec::new()) };
    let records = records_of(&frame.batch, Offset::ZERO)?;
    let topic = partition.topic.to_string();
    let json = records
        .iter()
        .map(|record| crate::record_json::JsonRecord::new(&topic, partition.index, record));
    Ok(json.collect())
}

fn print(context: &Context, partition: PartitionId, shown: &[Shown]) -> Result<(), Failure> {
    let output = context.output;
    output.note(&format!("topic id {}, partition {}", partition.topic, partition.index));
    let mut table = Table::new(&[
        "POSITION", "FIRST", "LAST", "RECORDS", "BYTES", "CODEC", "EPOCH", "NEWEST", "PRODUCER",
        "LEVELS",
    ]);
    if shown.iter().all(|batch| batch.contents.is_empty()) {
        shown.iter().for_each(|batch| batch.row(&mut table));
        return output.table(&table);
    }
    for batch in shown {
        let mut table = Table::new(&[
            "POSITION", "FIRST", "LAST", "RECORDS", "BYTES", "CODEC", "EPOCH", "NEWEST",
            "PRODUCER", "LEVELS",
        ]);
        batch.row(&mut table);
        output.table(&table)?;
        for record in &batch.contents {
            let line = serde_json::to_string(record).map_err(std::io::Error::from)?;
            output.line(&format!("  {line}"))?;
        }
    }
    Ok(())
}

/// What was found of one log.
#[derive(Serialize)]
struct Verified {
    /// `None` if the metadata log does not tell.
    topic: Option<String>,
    topic_id: String,
    partition: i32,
    segments: usize,
    batches: u64,
    records: i64,
    bytes: u64,
    whole: bool,
    /// What is wrong, or how the log ends if it was not closed.
    found: Option<String>,
}

/// What `--json` prints of several directories.
#[derive(Serialize)]
struct Report {
    directories: Vec<Checked>,
    compared: Vec<Compared>,
}

#[derive(Serialize)]
struct Checked {
    directory: PathBuf,
    logs: Vec<Verified>,
    #[serde(skip)]
    batches: BTreeMap<PartitionId, Batches>,
    #[serde(skip)]
    names: BTreeMap<TopicId, String>,
}

fn verify_all(context: &Context, directories: &[PathBuf]) -> Result<(), Failure> {
    let mut checked = Vec::new();
    for directory in directories {
        checked.push(check(directory)?);
    }
    let held = checked
        .iter_mut()
        .map(|checked| (checked.directory.clone(), std::mem::take(&mut checked.batches)));
    let mut compared = compare(&held.collect::<Vec<_>>());
    for log in &mut compared {
        let mut names = checked.iter().flat_map(|checked| &checked.names);
        let name = names.find(|(id, _)| id.to_string() == log.topic_id);
        log.topic = name.map(|(_, name)| name.clone());
    }
    let rotten = checked.iter().flat_map(|checked| &checked.logs).filter(|log| !log.whole).count();
    let of = checked.iter().map(|checked| checked.logs.len()).sum::<usize>();
    let differ = compared.iter().filter(|log| !log.same).count();
    if let [checked] = &checked[..] {
        print_verified(context, &checked.logs)?;
    } else if context.output.json {
        context.output.json(&Report { directories: checked, compared })?;
    } else {
        for Checked { directory, logs, .. } in &checked {
            context.output.note(&directory.display().to_string());
            print_verified(context, logs)?;
        }
        print_compared(context, &compared)?;
    }
    let failed = |sentence| Failure { exit: FAILED, ..Failure::new(sentence) };
    match (rotten, differ) {
        (0, 0) => Ok(()),
        (0, count) => Err(failed(format!("{count} logs are not the same everywhere"))),
        (count, _) => Err(failed(format!("{count} of {of} logs are damaged"))
            .hint("a node keeps them offline rather than serve or cut them")),
    }
}

fn print_verified(context: &Context, verified: &[Verified]) -> Result<(), Failure> {
    if context.output.json {
        return context.output.json(&verified);
    }
    let mut table = Table::new(&["TOPIC", "PARTITION", "SEGMENTS", "RECORDS", "SIZE", "FOUND"]);
    for log in verified {
        table.row([
            log.topic.clone().unwrap_or_else(|| log.topic_id.clone()),
            log.partition.to_string(),
            log.segments.to_string(),
            log.records.to_string(),
            human::bytes(log.bytes),
            log.found.clone().unwrap_or_else(|| "whole".to_owned()),
        ]);
    }
    context.output.table(&table)
}

fn print_compared(context: &Context, compared: &[Compared]) -> Result<(), Failure> {
    let mut table = Table::new(&["TOPIC", "PARTITION", "COPIES", "FROM", "TO", "AHEAD", "FOUND"]);
    for log in compared {
        table.row([
            log.topic.clone().unwrap_or_else(|| log.topic_id.clone()),
            log.partition.to_string(),
            log.copies.to_string(),
            log.from.to_string(),
            log.to.to_string(),
            log.ahead.to_string(),
            log.found.clone().unwrap_or_else(|| "the same".to_owned()),
        ]);
    }
    context.output.table(&table)
}

fn check(directory: &Path) -> Result<Checked, Failure> {
    let logs = directory.join("logs");
    if !logs.is_dir() {
        let failure = Failure::usage(format!("{} is no data directory", directory.display()));
        return Err(
            failure.hint("it has no logs/ in it; `quorate up` keeps its own in quorate-data")
        );
    }
    let durable = durable_bytes(directory)?;
    let names = topic_names(&logs.join(directory_name(PartitionId::METADATA)));
    let mut checked = Checked {
        directory: directory.to_path_buf(),
        logs: Vec::new(),
        batches: BTreeMap::new(),
        names,
    };
    for log in sorted(&logs)? {
        let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(partition) = parse_directory_name(&name) {
            let mark = durable.get(&partition).copied();
            let (mut found, batches) = verify_log(&log, partition, mark)?;
            found.topic = checked.names.get(&partition.topic).cloned();
            checked.logs.push(found);
            checked.batches.insert(partition, batches);
        }
    }
    Ok(checked)
}

/// The names that topics were given, as far as the metadata log can be read; names are a courtesy
/// here, so what cannot be read has none.
fn topic_names(log: &Path) -> BTreeMap<TopicId, String> {
    let mut names = BTreeMap::from([(TopicId::METADATA, "__cluster_metadata".to_owned())]);
    for path in sorted(log).unwrap_or_default() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some((base, FileKind::Segment)) = parse_file_name(&name) else { continue };
        let walked = walk(&path, PartitionId::METADATA, base, 0, |_, _, _, bytes| {
            each_record(bytes, |record| {
                if let Record::TopicCreated { topic, name, .. } = record {
                    names.insert(topic, name);
                }
            });
        });
        tracing::debug!(?walked, "looked for names");
    }
    names
}

/// How far each log's newest segment was known to be synced: below that nothing may be missing.
fn durable_bytes(directory: &Path) -> Result<BTreeMap<PartitionId, (Offset, u64)>, Failure> {
    let path = directory.join("marks");
    let bytes = match fs::read(&path) {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(cannot_read(&path)(error)),
    };
    let marks = Marks::decode(&bytes)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    let logs = marks.logs.iter();
    Ok(logs.map(|mark| (mark.partition, (mark.segment, mark.segment_bytes))).collect())
}

fn sorted(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(directory).map_err(cannot_read(directory))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(cannot_read(directory))?.path());
    }
    paths.sort();
    Ok(paths)
}

fn verify_log(
    log: &Path,
    partition: PartitionId,
    mark: Option<(Offset, u64)>,
) -> Result<(Verified, Batches), Failure> {
    let mut batches = Batches::new();
    let mut verified = Verified {
        topic: None,
        topic_id: partition.topic.to_string(),
        partition: partition.index,
        segments: 0,
        batches: 0,
        records: 0,
        bytes: 0,
        whole: true,
        found: None,
    };
    let mut due: Option<Offset> = None;
    let cleaned = read_cleaned(log)?;
    for path in sorted(log)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some((base, generation, FileKind::Segment)) = parse_segment_file_name(&name) else {
            continue;
        };
        let counts = cleaned.as_ref().map_or(Some(0), |cleaned| cleaned.generation(base));
        if counts != Some(generation) {
            // Compaction has replaced it, or did not get to it: a start removes it.
            continue;
        }
        verified.segments += 1;
        let durable = match mark {
            Some((segment, bytes)) if segment == base => bytes,
            _ => 0,
        };
        let ending = walk(&path, partition, base, durable, |_, frame, header, bytes| {
            let frame_bytes = usize::try_from(frame.frame_bytes()).unwrap_or(usize::MAX);
            let print = fingerprint(&bytes[..frame_bytes.min(bytes.len())]);
            batches.push((header.base_offset(), header.next_offset(), print));
            verified.batches += 1;
            verified.records += i64::from(header.record_count());
            verified.bytes += frame.frame_bytes();
        })
        .map_err(cannot_read(&path))?;
        if let Some(due) = due.filter(|due| *due != base) {
            verified.whole = false;
            verified.found = Some(format!("{name} follows where offset {due} is due"));
        }
        due = Some(ending.next_offset());
        if !matches!(ending, Ending::Untouched { .. }) {
            verified.whole &= !matches!(ending, Ending::Rot { .. });
            verified.found.get_or_insert_with(|| format!("{name}: {}", ending.sentence()));
        }
    }
    // Each copy is compacted by itself: they are equal only beyond.
    let until = cleaned.map_or(Offset::ZERO, |cleaned| cleaned.until);
    batches.retain(|(base, ..)| *base >= until);
    Ok((verified, batches))
}

/// What compaction has made of a log; `None` if it never did.
fn read_cleaned(log: &Path) -> Result<Option<Cleaned>, Failure> {
    let path = log.join(CLEANED_FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot_read(&path)(error)),
    };
    let cleaned = Cleaned::decode(&bytes);
    cleaned.map(Some).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}
