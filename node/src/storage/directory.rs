//! The data directory's own small files: whose it is, how far it can be trusted, and whether it
//! was closed cleanly.
//!
//! ```text
//! identity    format, node and directory ids; written once
//! marks       per log, how far its segments are synced, and which journal group comes next
//! clean       only between a clean close and the next start
//! clock       the last wall time that the node believed
//! starts      how often the node was started on this directory
//! journal/    0000.journal ...
//! orphans/    <topic id>-<partition>.<first>-<end>-<leader epoch>.orphan ...
//! logs/       <topic id>-<partition>/ 00000000000000000000.segment .index .snapshot ...
//! ```

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::id::NodeId;
use quorate_core::mutant;
use quorate_core::segment::checkpoint::{self, EnvelopeError, Marks};
use quorate_core::time::Timestamp;

use super::config::Identity;
use super::error::StorageError;
use crate::disk::{Disk, File, Open};

const IDENTITY: &str = "identity";
pub(super) const MARKS: &str = "marks";
const CLEAN: &str = "clean";
pub(super) const JOURNAL: &str = "journal";
pub(super) const LOGS: &str = "logs";

const IDENTITY_KIND: [u8; 4] = *b"QIDY";
/// The format of the data directory as a whole; any other is refused. In format 1, which was never
/// released, the metadata log held records of the metadata and not operations of the quorum.
pub const FORMAT: u16 = 2;
const CLEAN_KIND: [u8; 4] = *b"QCLN";
const CLEAN_VERSION: u16 = 1;
const CLOCK: &str = "clock";
const CLOCK_KIND: [u8; 4] = *b"QCLK";
const CLOCK_VERSION: u16 = 1;
const STARTS: &str = "starts";
const STARTS_KIND: [u8; 4] = *b"QSTA";
const STARTS_VERSION: u16 = 1;

/// What the last life on this directory knew of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Believed {
    /// There was none, or it never said.
    Never,
    At(Timestamp),
    /// It said, and that cannot be read any more.
    Lost,
}

/// Reads a whole file. `None` if there is none.
pub(super) async fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<Bytes>> {
    match disk.open(path, Open::Read).await {
        Ok(file) => {
            let bytes = usize::try_from(file.len()).unwrap_or(usize::MAX);
            Ok(Some(file.read_at(0, bytes).await?))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first `bytes` of a file, or all that it has, and how many that is. `None` if there is none.
pub(super) async fn read_front(
    disk: &dyn Disk,
    path: &Path,
    bytes: usize,
) -> io::Result<Option<(Bytes, u64)>> {
    match disk.open(path, Open::Read).await {
        Ok(file) => Ok(Some((file.read_at(0, bytes).await?, file.len()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a file, or empties the one that is there.
pub(super) async fn create_empty(disk: &dyn Disk, path: &Path) -> io::Result<Arc<dyn File>> {
    match disk.open(path, Open::Create).await {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let file = disk.open(path, Open::Write).await?;
            file.set_len(0).await?;
            Ok(file)
        }
        opened => opened,
    }
}

/// Puts a small file in place of another, such that a power loss leaves one of the two whole.
async fn replace(disk: &dyn Disk, directory: &Path, name: &str, bytes: Bytes) -> io::Result<()> {
    let fresh = directory.join(format!("{name}.new"));
    let file = create_empty(disk, &fresh).await?;
    file.write_at(0, vec![bytes]).await?;
    if !mutant!("side-file-not-forced") {
        file.sync().await?;
    }
    disk.rename(&fresh, &directory.join(name)).await?;
    disk.sync_directory(directory).await
}

pub(super) async fn write_marks(disk: &dyn Disk, data: &Path, marks: &Marks) -> io::Result<()> {
    replace(disk, data, MARKS, marks.encode()).await
}

/// `None` in a directory that was never checkpointed.
pub(super) async fn read_marks(
    disk: &dyn Disk,
    data: &Path,
) -> Result<Option<Marks>, StorageError> {
    let path = data.join(MARKS);
    let bytes = read(disk, &path).await.map_err(StorageError::io("reading the marks", &path))?;
    let marks = bytes.map(|bytes| Marks::decode(&bytes)).transpose();
    marks.map_err(|flaw| unusable(path, flaw))
}

pub(super) async fn write_clean(disk: &dyn Disk, data: &Path, sequence: u64) -> io::Result<()> {
    let marker = checkpoint::seal(CLEAN_KIND, CLEAN_VERSION, &sequence.to_be_bytes());
    replace(disk, data, CLEAN, marker).await
}

/// The journal sequence of a clean close. A marker that cannot be read is none.
pub(super) async fn read_clean(disk: &dyn Disk, data: &Path) -> io::Result<Option<u64>> {
    let Some(bytes) = read(disk, &data.join(CLEAN)).await? else { return Ok(None) };
    let opened = checkpoint::open(CLEAN_KIND, CLEAN_VERSION, &bytes).ok();
    Ok(opened.and_then(|(_, body)| body.get(..).and_then(to_array)).map(u64::from_be_bytes))
}

/// Durably removes the marker of a clean close.
pub(super) async fn remove_clean(disk: &dyn Disk, data: &Path) -> io::Result<()> {
    match disk.remove(&data.join(CLEAN)).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        removed => removed?,
    }
    disk.sync_directory(data).await
}

/// The bytes of the file that tells the time.
pub(super) fn encode_believed(at: Timestamp) -> Bytes {
    checkpoint::seal(CLOCK_KIND, CLOCK_VERSION, &at.0.to_be_bytes())
}

pub(super) async fn write_believed(disk: &dyn Disk, data: &Path, at: Timestamp) -> io::Result<()> {
    replace(disk, data, CLOCK, encode_believed(at)).await
}

pub(super) async fn read_believed(disk: &dyn Disk, data: &Path) -> Result<Believed, StorageError> {
    let path = data.join(CLOCK);
    let reading = StorageError::io("reading the last believed time", &path);
    let Some(bytes) = read(disk, &path).await.map_err(reading)? else {
        return Ok(Believed::Never);
    };
    match checkpoint::open(CLOCK_KIND, CLOCK_VERSION, &bytes) {
        Ok((_, body)) => Ok(to_array(&body)
            .map_or(Believed::Lost, |at| Believed::At(Timestamp(i64::from_be_bytes(at))))),
        Err(flaw @ EnvelopeError::Newer { .. }) => Err(unusable(path, flaw)),
        Err(_) => Ok(Believed::Lost),
    }
}

async fn write_starts(disk: &dyn Disk, data: &Path, starts: u64) -> io::Result<()> {
    let bytes = checkpoint::seal(STARTS_KIND, STARTS_VERSION, &starts.to_be_bytes());
    replace(disk, data, STARTS, bytes).await
}

/// Counts a start, durably: no two starts on one directory have the same number, and a later one
/// has a larger.
pub(super) async fn count_start(disk: &dyn Disk, data: &Path) -> Result<u64, StorageError> {
    let path = data.join(STARTS);
    let counting = || StorageError::io("counting the starts", &path);
    let bytes = read(disk, &path).await.map_err(counting())?;
    // It is as old as the identity.
    let bytes = bytes.ok_or_else(|| StorageError::Damaged {
        path: path.clone(),
        why: "the file is missing".to_owned(),
    })?;
    let opened = checkpoint::open(STARTS_KIND, STARTS_VERSION, &bytes);
    let (_, body) = opened.map_err(|flaw| unusable(path.clone(), flaw))?;
    let before = to_array(&body).map(u64::from_be_bytes);
    let before = before.ok_or_else(|| unusable(path.clone(), EnvelopeError::Body))?;
    write_starts(disk, data, before + 1).await.map_err(counting())?;
    Ok(before + 1)
}

/// The bytes of the identity file.
pub(super) fn encode_identity(identity: &Identity) -> Bytes {
    let mut body = Vec::with_capacity(20);
    body.extend_from_slice(&identity.node.0.to_be_bytes());
    body.extend_from_slice(&identity.directory);
    checkpoint::seal(IDENTITY_KIND, FORMAT, &body)
}

fn decode_identity(path: &Path, bytes: &Bytes) -> Result<Identity, StorageError> {
    let opened = checkpoint::open(IDENTITY_KIND, FORMAT, bytes);
    let (found, body) = opened.map_err(|flaw| unusable(path.to_path_buf(), flaw))?;
    if found < FORMAT {
        return Err(StorageError::Older { path: path.to_path_buf(), found, known: FORMAT });
    }
    let node = body.get(..4).and_then(to_array).map(i32::from_be_bytes);
    match (node, body.get(4..20).and_then(to_array)) {
        (Some(node), Some(directory)) => Ok(Identity { node: NodeId(node), directory }),
        _ => Err(unusable(path.to_path_buf(), EnvelopeError::Body)),
    }
}

fn to_array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// Whose directory this is. A fresh one becomes that of `expected`.
pub(super) async fn identify(
    disk: &dyn Disk,
    data: &Path,
    expected: &Identity,
) -> Result<(Identity, bool), StorageError> {
    let path = data.join(IDENTITY);
    let reading = |path: &Path| StorageError::io("reading the data directory", path);
    if let Some(bytes) = read(disk, &path).await.map_err(reading(&path))? {
        let found = decode_identity(&path, &bytes)?;
        if found.node != expected.node {
            let directory = data.to_path_buf();
            let (found, expected) = (found.node, expected.node);
            return Err(StorageError::OtherNode { directory, found, expected });
        }
        return Ok((found, false));
    }
    // A start that was cut short before the identity was durable leaves only these.
    let names = disk.list(data).await.map_err(reading(data))?;
    let parts = [MARKS, STARTS, IDENTITY];
    let unfinished = parts.map(|name| format!("{name}.new"));
    let unfinished = unfinished.into_iter().chain([MARKS.to_owned(), STARTS.to_owned()]);
    let unfinished: Vec<String> = unfinished.collect();
    if names.iter().any(|name| unfinished.iter().all(|known| name.to_str() != Some(known))) {
        return Err(StorageError::NotOurs { directory: data.to_path_buf() });
    }
    let writing = StorageError::io("writing the data directory", data);
    let written = async {
        // In this order, so that marks that are missing later on were lost.
        let marks = Marks { journal_sequence: 1, logs: Vec::new() };
        write_marks(disk, data, &marks).await?;
        write_starts(disk, data, 0).await?;
        replace(disk, data, IDENTITY, encode_identity(expected)).await
    };
    written.await.map_err(writing)?;
    Ok((*expected, true))
}

fn unusable(path: PathBuf, flaw: EnvelopeError) -> StorageError {
    match flaw {
        EnvelopeError::Newer { .. } => StorageError::Newer { path, why: flaw.to_string() },
        flaw => StorageError::Damaged { path, why: flaw.to_string() },
    }
}

/// Removes a log's directory and what is in it; one that is gone is fine.
pub(super) async fn remove_all(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    let names = match disk.list(directory).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        names => names?,
    };
    for name in names {
        disk.remove(&directory.join(name)).await?;
    }
    disk.remove_directory(directory).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_small_files_have_the_bytes_of_the_first_build() {
        let identity = Identity { node: NodeId(3), directory: [2; 16] };
        let bytes = encode_identity(&identity);
        let front = "51494459000200000000001465b83a89";
        assert_eq!(hex(&bytes), [front, "00000003", &"02".repeat(16)].concat());
        let path = Path::new("identity");
        assert_eq!(decode_identity(path, &bytes).expect("our own"), identity);
        let older = checkpoint::seal(IDENTITY_KIND, 1, &[0; 36]);
        let refused = decode_identity(path, &older).expect_err("nobody reads it any more");
        assert!(refused.to_string().contains("format 1"), "{refused}");
        let clock = "51434c4b000100000000000875bf952d0000019b76daa800";
        assert_eq!(hex(&encode_believed(Timestamp(1_767_225_600_000))), clock);
    }
}
