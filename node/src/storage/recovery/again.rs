//! What a start writes once more, or for the first time, of a log that it has read.

use std::io;

use quorate_core::id::Offset;
use quorate_core::segment::{FileKind, file_name};

use super::Loading;
use crate::disk::File;
use crate::storage::error::{LogError, StorageError};
use crate::storage::log::Segment;
use crate::storage::writer::write_side;

impl Loading<'_> {
    /// Writes what was found beyond the mark once more. After a failed sync the kernel takes the
    /// pages for clean: they can be read, and a later sync succeeds without writing them.
    pub(super) async fn write_again(
        &self,
        segment: &Segment,
        file: &dyn File,
    ) -> Result<(), LogError> {
        let path = self.file(segment.base, FileKind::Segment);
        let mut position = self.durable_bytes(segment.base, file);
        let writing = StorageError::io("writing a recovered tail again", &path);
        let written = async {
            while position < segment.bytes {
                let most = (segment.bytes - position).min(1 << 20) as usize;
                let bytes = file.read_at(position, most).await?;
                if bytes.is_empty() {
                    break;
                }
                let end = position + bytes.len() as u64;
                file.write_at(position, vec![bytes]).await?;
                position = end;
            }
            io::Result::Ok(())
        };
        Ok(written.await.map_err(writing)?)
    }

    /// What stands beside closed segments was written by a checkpoint, if one came. Without the
    /// state behind a segment, its producers would be forgotten once it is deleted.
    pub(super) async fn write_sides(&mut self) -> Result<(), LogError> {
        for (index, snapshot) in std::mem::take(&mut self.closed) {
            let at = self.segments.iter().position(|segment| segment.base == index.base());
            let next = at.and_then(|at| self.segments.get(at + 1));
            let Some(next) = next.map(|next| next.base) else { continue };
            let index_path = self.file(index.base(), FileKind::Index);
            let snapshot_path = self.directory.join(file_name(next, FileKind::Snapshot));
            for (path, bytes) in [(index_path, index.encode()), (snapshot_path, snapshot)] {
                let written = write_side(&*self.shared.disk, &path, 0, bytes).await;
                written.map_err(StorageError::io("writing what stands beside a segment", &path))?;
            }
            let key = (self.partition, index.base(), self.generation(index.base()).unwrap_or(0));
            self.shared.files.keep_index(key, index);
        }
        Ok(())
    }

    /// The state at a start behind which nothing is left: what it says of producers stands nowhere
    /// else once the segments go.
    pub(super) async fn write_state_at(&self, start: Offset) -> Result<(), LogError> {
        if self.bases.is_empty() {
            return Ok(());
        }
        let path = self.directory.join(file_name(start, FileKind::Snapshot));
        let written = async {
            let disk = &*self.shared.disk;
            write_side(disk, &path, 0, self.recovered.to_snapshot()).await?;
            disk.sync_directory(&self.directory).await
        };
        Ok(written.await.map_err(StorageError::io("writing a log's state", &path))?)
    }
}
