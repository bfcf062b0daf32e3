//! The journal's files: where the next group goes, and which file may be used again.
//!
//! Files are never renamed and never shrink while the node runs. A file is taken into use again by
//! writing its header page and the first new group in one write; until that write is synced the
//! groups in it prove nothing, and afterwards its old groups have numbers that are too small.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use quorate_core::reached;
use quorate_core::segment::journal::{FileHeader, GroupBuilder, JournalId, PAGE_BYTES};

use crate::disk::{Disk, File, Open};

const EXTENSION: &str = "journal";

/// One file of the journal.
pub(super) struct JournalFile {
    pub(super) ordinal: u32,
    pub(super) file: Arc<dyn File>,
    /// The number of the newest group in it that recovery may need; `None` if free.
    pub(super) newest: Option<u64>,
}

/// See the file's comment. Owned by whoever commits a group; one group at a time.
pub(super) struct Journal {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    id: JournalId,
    file_bytes: u64,
    files_max: usize,
    files: Vec<JournalFile>,
    /// The file that takes groups, and where the next one goes.
    current: Option<(usize, u64)>,
    next_sequence: u64,
}

pub(super) fn file_path(directory: &std::path::Path, ordinal: u32) -> PathBuf {
    directory.join(format!("{ordinal:04}.{EXTENSION}"))
}

/// `None` for a file that is not the journal's.
pub(super) fn parse_ordinal(name: &std::path::Path) -> Option<u32> {
    let (ordinal, extension) = name.to_str()?.split_once('.')?;
    if extension != EXTENSION || ordinal.len() != 4 {
        return None;
    }
    ordinal.parse().ok()
}

impl Journal {
    /// `files` hold nothing that is needed.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        directory: PathBuf,
        id: JournalId,
        limits: (u64, usize),
        files: Vec<JournalFile>,
        next_sequence: u64,
    ) -> Self {
        let (file_bytes, files_max) = limits;
        Self { disk, directory, id, file_bytes, files_max, files, current: None, next_sequence }
    }

    /// The number of the group that is committed next.
    pub(super) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Whether a group of so many bytes can be committed now, or must wait for a checkpoint.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.fits(bytes)
            || self.files.len() < self.files_max
            || self.files.iter().any(|file| self.is_free(file, bytes))
    }

    /// Groups below `sequence` are needed no more.
    pub(super) fn release(&mut self, sequence: u64) {
        for file in &mut self.files {
            if file.newest.is_some_and(|newest| newest < sequence) {
                file.newest = None;
            }
        }
    }

    /// Writes and syncs one group. It was durable before this returns `Ok`.
    pub(super) async fn commit(&mut self, group: GroupBuilder) -> io::Result<()> {
        let bytes = group.bytes();
        let mut chunks = group.finish();
        if !self.fits(bytes) {
            let place = self.take_file(bytes).await?;
            let header = FileHeader { first_sequence: self.next_sequence };
            chunks.insert(0, header.encode(self.id));
            self.current = Some((place, 0));
        }
        let (place, position) = self.current.expect("a file was just taken");
        let written: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let file = &mut self.files[place];
        file.newest = Some(self.next_sequence);
        file.file.write_at(position, chunks).await?;
        reached!("journal-written-not-synced");
        file.file.sync().await?;
        self.current = Some((place, position + written));
        self.next_sequence += 1;
        Ok(())
    }

    /// After a clean close nothing in it is needed: keeps one file.
    pub(super) async fn trim(&mut self) -> io::Result<()> {
        for spare in self.files.drain(1.min(self.files.len())..) {
            self.disk.remove(&file_path(&self.directory, spare.ordinal)).await?;
        }
        self.current = None;
        self.disk.sync_directory(&self.directory).await
    }

    fn fits(&self, bytes: usize) -> bool {
        self.current.is_some_and(|(place, position)| {
            position + bytes as u64 <= self.files[place].file.len()
        })
    }

    fn is_free(&self, file: &JournalFile, bytes: usize) -> bool {
        file.newest.is_none() && (PAGE_BYTES + bytes) as u64 <= file.file.len()
    }

    /// A free file that takes a group of so many bytes, or a new one.
    async fn take_file(&mut self, bytes: usize) -> io::Result<usize> {
        if let Some(place) = self.files.iter().position(|file| self.is_free(file, bytes)) {
            reached!("journal-file-used-again");
            return Ok(place);
        }
        if self.files.len() >= self.files_max {
            return Err(io::Error::other("the journal is full"));
        }
        let ordinal = self.files.iter().map(|file| file.ordinal + 1).max().unwrap_or_default();
        let path = file_path(&self.directory, ordinal);
        let file = self.disk.open(&path, Open::Create).await?;
        file.allocate(self.file_bytes.max((PAGE_BYTES + bytes) as u64)).await?;
        // The length is metadata that the groups' own syncs need to find in place.
        file.sync().await?;
        if !quorate_core::mutant!("new-file-dir-not-synced") {
            self.disk.sync_directory(&self.directory).await?;
        }
        self.files.push(JournalFile { ordinal, file, newest: None });
        Ok(self.files.len() - 1)
    }
}
