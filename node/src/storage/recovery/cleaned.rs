//! What compaction has made of a log that is being read, and which of its files count.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use quorate_core::id::Offset;
use quorate_core::segment::checkpoint::EnvelopeError;
use quorate_core::segment::cleaned::{CLEANED_FILE, Cleaned};
use quorate_core::segment::{FileKind, file_name, segment_file_name};

use super::Loading;
use crate::storage::directory::read;
use crate::storage::error::{LogError, StorageError};

impl Loading<'_> {
    pub(super) async fn remove(&self, base: Offset) -> Result<(), LogError> {
        let generation = self.generation(base).unwrap_or(0);
        self.shared.files.forget((self.partition, base, generation));
        for kind in [FileKind::Segment, FileKind::Index] {
            self.remove_file(Path::new(&segment_file_name(base, generation, kind))).await?;
        }
        self.remove_file(Path::new(&file_name(base, FileKind::Snapshot))).await
    }

    pub(super) async fn remove_file(&self, name: &Path) -> Result<(), LogError> {
        let path = self.directory.join(name);
        match self.shared.disk.remove(&path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => Ok(removed.map_err(StorageError::io("removing a file of a log", &path))?),
        }
    }

    /// What compaction says of the log, before anything else is looked at.
    pub(super) async fn read_cleaned(&mut self) -> Result<(), LogError> {
        let path = self.directory.join(CLEANED_FILE);
        let reading = StorageError::io("reading what compaction left", &path);
        let Some(bytes) = read(&*self.shared.disk, &path).await.map_err(reading)? else {
            return Ok(());
        };
        match Cleaned::decode(&bytes) {
            Ok(cleaned) => self.cleaned = Some(cleaned),
            Err(flaw @ EnvelopeError::Newer { .. }) => {
                return Err(StorageError::Newer { path, why: flaw.to_string() }.into());
            }
            // Which files count is not known any more.
            Err(flaw) => return Err(self.rot(path, 0, self.log_start(), &flaw.to_string())),
        }
        Ok(())
    }

    /// Which of the files with this base counts; `None`: none.
    pub(super) fn generation(&self, base: Offset) -> Option<u32> {
        self.cleaned.as_ref().map_or(Some(0), |cleaned| cleaned.generation(base))
    }

    /// The file of a segment that counts, or of its index.
    pub(super) fn file(&self, base: Offset, kind: FileKind) -> PathBuf {
        let generation = self.generation(base).unwrap_or(0);
        self.directory.join(segment_file_name(base, generation, kind))
    }
}
