//! Records that are cut off a log are set aside here first, whole and unaltered, for a human to
//! look at: one file a cut, bounded together by size and age (docs/decisions/0065).

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use quorate_core::id::{LeaderEpoch, TopicId};
use quorate_core::partition::interface::Parted;
use quorate_core::segment::orphan::{HEAD_BYTES, Orphan, OrphanName};
use quorate_core::segment::scan::{Depth, Scan, Step};
use quorate_core::segment::{FileKind, directory_name};
use quorate_core::time::Timestamp;
use quorate_core::{mutant, reached};

use super::Shared;
use super::directory::{create_empty, read_front};
use super::log::{Log, Place};
use super::walk::Window;
use super::writer::UNFINISHED;
use crate::disk::{Disk, File, Open};

pub(super) const ORPHANS: &str = "orphans";
/// Bytes that are copied at a time; one frame may be more.
const PIECE_BYTES: usize = 1 << 20;

/// What is known of the files without opening them; `None` until somebody has looked.
#[derive(Default)]
pub(super) struct Known(Mutex<Option<BTreeMap<OrphanName, (Timestamp, u64)>>>);

impl Known {
    fn with<T>(
        &self,
        act: impl FnOnce(&mut Option<BTreeMap<OrphanName, (Timestamp, u64)>>) -> T,
    ) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is copied, and what was found in it.
struct Copy<'a> {
    file: &'a dyn File,
    position: u64,
    chunks: Vec<Bytes>,
    chunk_bytes: usize,
    records: u64,
    epoch: LeaderEpoch,
}

impl Copy<'_> {
    async fn push(&mut self, bytes: Bytes) -> io::Result<()> {
        self.chunk_bytes += bytes.len();
        self.chunks.push(bytes);
        if self.chunk_bytes >= PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> io::Result<()> {
        let chunks = std::mem::take(&mut self.chunks);
        self.file.write_at(self.position, chunks).await?;
        self.position += std::mem::take(&mut self.chunk_bytes) as u64;
        Ok(())
    }
}

/// Copies all that stands in the log from `from` on into a file of its own. Durable when this
/// returns.
pub(super) async fn set_aside(
    shared: &Shared,
    log: &Log,
    from: Place,
    parted: Parted,
) -> io::Result<()> {
    let directory = shared.config.directory.join(ORPHANS);
    let fresh = directory.join(format!("{}.{UNFINISHED}", directory_name(log.partition)));
    let file = create_empty(&*shared.disk, &fresh).await?;
    let (segments, end) = {
        let state = log.state();
        (state.segments.clone(), state.end)
    };
    let (chunks, epoch) = (Vec::new(), LeaderEpoch(0));
    let position = HEAD_BYTES as u64;
    let mut copy = Copy { file: &*file, position, chunks, chunk_bytes: 0, records: 0, epoch };
    for segment in segments.iter().filter(|segment| segment.base >= from.segment) {
        let first = segment.base == from.segment;
        let (position, offset) =
            if first { (from.position, from.offset) } else { (0, segment.base) };
        let scan =
            Scan::new(log.partition, segment.base, segment.bytes, segment.bytes, Depth::Records);
        let scan = scan.from_position(position, offset);
        if segment.bytes > position {
            let path = log.file(segment.base, segment.generation, FileKind::Segment);
            let source = shared.disk.open(&path, Open::Read).await?;
            copy_segment(&mut copy, scan, Window::until(source, segment.bytes, PIECE_BYTES))
                .await?;
        }
    }
    copy.flush().await?;
    let Copy { position, records, epoch, .. } = copy;
    let name = OrphanName { partition: log.partition, first: from.offset, end, epoch };
    let orphan = Orphan {
        name,
        leader: parted.leader,
        leader_epoch: parted.leader_epoch,
        records,
        bytes: position - HEAD_BYTES as u64,
        at: shared.believed(),
    };
    file.write_at(0, vec![orphan.encode()]).await?;
    if !mutant!("cut-before-orphan-synced") {
        file.sync().await?;
    }
    reached!("orphan-synced-not-named");
    disk_rename(shared, &fresh, &directory.join(name.to_string())).await?;
    tracing::warn!(%name, records, "records that the leader's log lacks were set aside");
    shared
        .orphans
        .with(|known| known.as_mut().map(|known| known.insert(name, (orphan.at, position))));
    Ok(())
}

async fn disk_rename(shared: &Shared, from: &Path, to: &Path) -> io::Result<()> {
    shared.disk.rename(from, to).await?;
    if mutant!("cut-before-orphan-synced") {
        return Ok(());
    }
    shared.disk.sync_directory(&shared.config.directory.join(ORPHANS)).await
}

/// Copies the frames of one segment; where they are not whole, the rest as it is.
async fn copy_segment(copy: &mut Copy<'_>, mut scan: Scan, mut window: Window) -> io::Result<()> {
    loop {
        let at = scan.position();
        let bytes = window.at(at).await?;
        match scan.step(&bytes) {
            Step::Frame { frame, header, .. } => {
                copy.records += u64::try_from(header.record_count()).unwrap_or_default();
                copy.epoch = frame.leader_epoch;
                copy.push(bytes.slice(..frame.frame_bytes() as usize)).await?;
            }
            Step::More { bytes } => window.want(bytes),
            Step::End => return Ok(()),
            Step::Torn { .. } | Step::Rot { .. } => {
                reached!("orphan-with-rot-in-it");
                let mut at = at;
                loop {
                    let rest = window.at(at).await?;
                    if rest.is_empty() {
                        return Ok(());
                    }
                    at += rest.len() as u64;
                    copy.push(rest).await?;
                }
            }
        }
    }
}

/// What was not finished when the last life ended goes.
pub(super) async fn remove_unfinished(disk: &dyn Disk, data: &Path) -> io::Result<()> {
    let directory = data.join(ORPHANS);
    for name in disk.list(&directory).await? {
        if name.extension().is_some_and(|extension| extension == UNFINISHED) {
            disk.remove(&directory.join(name)).await?;
        }
    }
    Ok(())
}

async fn names(shared: &Shared) -> io::Result<Vec<OrphanName>> {
    let names = shared.disk.list(&shared.config.directory.join(ORPHANS)).await?;
    Ok(names.iter().filter_map(|name| OrphanName::parse(name.to_str()?)).collect())
}

/// Topics are gone, and what was set aside of them goes too. What a log that only moved to another
/// node had set aside stays.
pub(super) async fn remove_of(
    shared: &Shared,
    is_gone: impl Fn(TopicId) -> bool + Send,
) -> io::Result<()> {
    let gone = names(shared).await?.into_iter().filter(|name| is_gone(name.partition.topic));
    remove(shared, gone.collect()).await
}

async fn remove(shared: &Shared, names: Vec<OrphanName>) -> io::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let directory = shared.config.directory.join(ORPHANS);
    for name in names {
        reached!("orphan-removed");
        match shared.disk.remove(&directory.join(name.to_string())).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
        shared.orphans.with(|known| known.as_mut().map(|known| known.remove(&name)));
    }
    shared.disk.sync_directory(&directory).await
}

/// Removes what is too old, and the oldest of what is too much; the newest always stays.
pub(super) async fn tidy(shared: &Shared) -> io::Result<()> {
    let mut files = match shared.orphans.with(|known| known.clone()) {
        Some(known) => known,
        None => look(shared).await?,
    };
    let (now, config) = (shared.believed(), &shared.config);
    let mut by_age: Vec<_> = files.iter().map(|(name, &(at, _))| (at, *name)).collect();
    by_age.sort_unstable();
    by_age.pop();
    let mut bytes: u64 = files.values().map(|(_, bytes)| bytes).sum();
    let mut gone = Vec::new();
    for (at, name) in by_age {
        let age = u128::try_from(now.0.saturating_sub(at.0)).unwrap_or_default();
        let is_old = at != Timestamp::NONE && age > config.orphan_age_max.as_millis();
        if !is_old && bytes <= config.orphan_bytes_max {
            continue;
        }
        bytes -= files.remove(&name).map_or(0, |(_, bytes)| bytes);
        gone.push(name);
    }
    remove(shared, gone).await
}

/// Opens every file once.
async fn look(shared: &Shared) -> io::Result<BTreeMap<OrphanName, (Timestamp, u64)>> {
    let directory = shared.config.directory.join(ORPHANS);
    let mut found = BTreeMap::new();
    for name in names(shared).await? {
        let path: PathBuf = directory.join(name.to_string());
        let Some((front, bytes)) = read_front(&*shared.disk, &path, HEAD_BYTES).await? else {
            continue;
        };
        // One that cannot be read counts as the oldest.
        let at = Orphan::decode(&front).map_or(Timestamp::NONE, |orphan| orphan.at);
        found.insert(name, (at, bytes));
    }
    shared.orphans.with(|known| *known = Some(found.clone()));
    Ok(found)
}
