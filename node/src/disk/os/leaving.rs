//! Large files that were removed are freed in parts, on a thread of their own.
//!
//! Whoever frees a gibibyte at once holds up the syncs of everybody else for a tenth of a second
//! (docs/decisions/0165 has the numbers). So a large file is opened before its name goes, and then
//! cut from its end. Nobody may read it any more by then: not through a handle of this disk, which
//! are counted for that, and not by another name.

use std::collections::BTreeMap;
use std::fs::{self, File as Descriptor, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

/// What is freed at once. A shorter file is removed as it is.
pub(super) const PART_BYTES: u64 = 4 << 20;
/// Between two parts others have the device: so at most 1.3 GiB go in a second.
const PAUSE: Duration = Duration::from_millis(3);
/// Files that wait to be freed, each of which has a descriptor. What they take is freed by the end
/// of the process as well, which waits for it.
const WAITING_MAX: usize = 16;

/// A file, whatever names it has. The number is given to another one only once nobody has it open.
type Inode = (u64, u64);

fn inode(found: &Metadata) -> Inode {
    (found.dev(), found.ino())
}

/// What one disk has open. What another one has is not known here, of this process or of others: a
/// data directory is one's alone, by its lock.
pub(super) struct Inodes {
    open: Mutex<BTreeMap<Inode, Opened>>,
    leaving: mpsc::Sender<Descriptor>,
}

#[derive(Default)]
struct Opened {
    handles: usize,
    /// The name is gone: to be freed when the last handle is.
    leaving: Option<Descriptor>,
}

impl Inodes {
    /// The table, and what is to run on a thread: it ends when the table and all handles are gone.
    pub(super) fn new() -> (Arc<Self>, impl FnOnce() + Send + 'static) {
        let (leaving, mut queue) = mpsc::channel(WAITING_MAX);
        let inodes = Arc::new(Self { open: Mutex::default(), leaving });
        let free_all = move || {
            while let Some(descriptor) = queue.blocking_recv() {
                free(&descriptor, || thread::sleep(PAUSE));
            }
        };
        (inodes, free_all)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Inode, Opened>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what was just opened as `path`, and tells its length.
    ///
    /// # Errors
    ///
    /// `NotFound` if it was removed in the meantime: it may be on its way to be freed.
    pub(super) fn hold(
        self: &Arc<Self>,
        descriptor: Descriptor,
        path: &Path,
    ) -> io::Result<(Handle, u64)> {
        let mut open = self.lock();
        // Asked under the lock. Who removes a file takes the name, and then looks here for handles:
        // he has not looked yet, and will find this one, or the name is gone now.
        let found = descriptor.metadata()?;
        let inode = inode(&found);
        if found.nlink() == 0 && !leads_to(path, inode) {
            return Err(ErrorKind::NotFound.into());
        }
        open.entry(inode).or_default().handles += 1;
        Ok((Handle { descriptor, inode, inodes: Arc::clone(self) }, found.len()))
    }

    /// Removes the name; waits for the device. What is returned is to be freed in parts.
    pub(super) fn remove(&self, path: &Path) -> io::Result<Option<Descriptor>> {
        let found = fs::symlink_metadata(path)?;
        let is_large = found.is_file() && found.len() > PART_BYTES;
        // Where that is refused, the file goes as a small one does.
        let descriptor = is_large.then(|| OpenOptions::new().write(true).open(path).ok()).flatten();
        fs::remove_file(path)?;
        Ok(descriptor.and_then(|descriptor| self.leave(descriptor)))
    }

    /// Returns what may be freed now: nobody has it open, and it has no name.
    fn leave(&self, descriptor: Descriptor) -> Option<Descriptor> {
        let found = descriptor.metadata().ok()?;
        if found.nlink() > 0 {
            return None;
        }
        match self.lock().get_mut(&inode(&found)) {
            Some(opened) => {
                opened.leaving = Some(descriptor);
                None
            }
            None => Some(descriptor),
        }
    }

    /// Gives a file to the thread; while that has many before it, waits about as long as the file
    /// would take to be freed here.
    pub(super) async fn free(&self, descriptor: Descriptor) {
        // Without a thread, it is freed here and now.
        let _ = self.leaving.send(descriptor).await;
    }
}

/// A file system that does not count names says 0 of all files.
fn leads_to(path: &Path, wanted: Inode) -> bool {
    fs::metadata(path).is_ok_and(|found| inode(&found) == wanted)
}

/// Cuts the file from its end, part by part. What cannot be cut is freed by the close.
fn free(descriptor: &Descriptor, mut pause: impl FnMut()) {
    let Ok(found) = descriptor.metadata() else { return };
    let mut len = found.len();
    while len > 0 {
        len = (len - 1) / PART_BYTES * PART_BYTES;
        if descriptor.set_len(len).is_err() {
            return;
        }
        pause();
    }
}

/// An open file, counted until it is closed.
pub(super) struct Handle {
    descriptor: Descriptor,
    inode: Inode,
    inodes: Arc<Inodes>,
}

impl Deref for Handle {
    type Target = Descriptor;

    fn deref(&self) -> &Descriptor {
        &self.descriptor
    }
}

impl Drop for Handle {
    /// The descriptor is closed afterwards: while the table has the number, no other file gets it.
    fn drop(&mut self) {
        let mut open = self.inodes.lock();
        let Some(opened) = open.get_mut(&self.inode) else { return };
        opened.handles -= 1;
        if opened.handles > 0 {
            return;
        }
        let opened = open.remove(&self.inode);
        drop(open);
        if let Some(descriptor) = opened.and_then(|opened| opened.leaving) {
            // A handle goes without waiting: with too many files before it, the close frees it.
            let _ = self.inodes.leaving.try_send(descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(directory: &Path, bytes: u64) -> (std::path::PathBuf, Descriptor) {
        let path = directory.join("file");
        let descriptor = Descriptor::create_new(&path).expect("a file");
        descriptor.set_len(bytes).expect("grows");
        (path, descriptor)
    }

    #[test]
    fn a_file_is_freed_in_parts_from_its_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let (_, descriptor) = file(directory.path(), 2 * PART_BYTES + 1);
        let mut lens = Vec::new();
        free(&descriptor, || lens.push(descriptor.metadata().expect("is open").len()));
        assert_eq!(lens, [2 * PART_BYTES, PART_BYTES, 0]);
    }

    #[test]
    fn what_was_removed_while_it_was_opened_is_not_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let (inodes, _) = Inodes::new();
        let (path, descriptor) = file(directory.path(), 2 * PART_BYTES);
        let opened = Descriptor::open(&path).expect("is there");
        drop(descriptor);
        let leaving = inodes.remove(&path).expect("is there");
        assert!(leaving.is_some(), "nobody is known to have it open");
        let held = inodes.hold(opened, &path).map(|_| ());
        assert_eq!(held.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
        assert!(inodes.lock().is_empty());
    }

    /// As on a file system that does not count names.
    #[test]
    fn what_has_no_names_by_count_is_held_if_its_name_leads_to_it() {
        use std::os::fd::AsRawFd;

        let directory = tempfile::tempdir().expect("a directory");
        let (inodes, _) = Inodes::new();
        let (path, descriptor) = file(directory.path(), 7);
        fs::remove_file(path).expect("is there");
        let name = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let opened = Descriptor::open(&name).expect("the system has this name for it");
        let (handle, len) = inodes.hold(opened, name.as_ref()).expect("it is what is named");
        assert_eq!(len, 7);
        drop(handle);
        assert!(inodes.lock().is_empty(), "no handle, no entry");
    }
}
