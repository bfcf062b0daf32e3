//! The machine's own disk: writes inline into the page cache, syncs and cold reads on threads.
//!
//! A write into the page cache takes about 2 us, a hop to a thread 50 us: so writes, and reads of
//! what is cached, stay on the task that asks. What may wait for the device goes to one of two
//! small pools, so that a slow read never stands in the way of a sync; and one thread frees large
//! files that were removed (`os/leaving.rs`). These are the only threads of the code base, beside
//! the runtime's.

mod leaving;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs::{self, File as Descriptor, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use bytes::{Buf, Bytes};
use rustix::fs::{Advice, FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::oneshot;

use self::leaving::{Handle, Inodes};
use super::{DirectoryLock, Disk, File, Io, Open};

/// Threads that wait for syncs, and for changes of names.
const SYNC_THREADS: usize = 4;
/// Threads that wait for reads of what is not in the page cache.
const READ_THREADS: usize = 4;
/// What Linux takes in one vectored write (`IOV_MAX`).
const CHUNKS_MAX: usize = 1024;
/// The file whose lock stands for its directory's.
const LOCK_NAME: &str = "lock";

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs from one queue until it is closed. The queue is as long as there are
/// operations awaited, which their callers bound.
#[derive(Clone)]
struct Pool {
    jobs: mpsc::Sender<Job>,
}

impl Pool {
    fn start(name: &str, threads: usize) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads {
            let queue = Arc::clone(&queue);
            start_thread(name, move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = job else { return };
                    job();
                }
            })?;
        }
        Ok(Self { jobs })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (done, wait) = oneshot::channel();
        let job = Box::new(move || {
            // Nobody waits any more if the asking task is gone: the work was done all the same.
            let _ = done.send(work());
        });
        let gone = || io::Error::other("the disk's threads are gone");
        self.jobs.send(job).map_err(|_| gone())?;
        wait.await.map_err(|_| gone())?
    }
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(|_| ())
}

/// The file system of this machine.
pub struct OsDisk {
    syncs: Pool,
    reads: Pool,
    inodes: Arc<Inodes>,
}

impl OsDisk {
    /// Starts the threads, and takes as many descriptors as the system lets the process have.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread.
    pub fn start() -> io::Result<Self> {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        // Where that is refused, the limit stays what it was, and the settings must fit it.
        let _ = setrlimit(Resource::Nofile, limit);
        let (inodes, free_all) = Inodes::new();
        start_thread("quorate-free", free_all)?;
        Ok(Self {
            syncs: Pool::start("quorate-sync", SYNC_THREADS)?,
            reads: Pool::start("quorate-read", READ_THREADS)?,
            inodes,
        })
    }

    /// A change of names, on a thread: it may wait for the file system's own journal.
    fn change<T: Send + 'static>(
        &self,
        paths: [&Path; 2],
        work: impl FnOnce([PathBuf; 2]) -> io::Result<T> + Send + 'static,
    ) -> Io<'_, T> {
        let paths = paths.map(Path::to_path_buf);
        Box::pin(self.syncs.run(move || work(paths)))
    }
}

impl Disk for OsDisk {
    fn open<'a>(&'a self, path: &'a Path, how: Open) -> Io<'a, Arc<dyn File>> {
        Box::pin(async move {
            let mut options = OpenOptions::new();
            options.read(true).write(how != Open::Read).create_new(how == Open::Create);
            let (descriptor, len) = self.inodes.hold(options.open(path)?, path)?;
            if how == Open::Read {
                // What is read ahead over room that was never written counts as data afterwards.
                // Advice may be refused.
                let _ = rustix::fs::fadvise(&*descriptor, 0, None, Advice::Random);
            }
            Ok(Arc::new(OsFile {
                descriptor: Arc::new(descriptor),
                len: AtomicU64::new(len),
                syncs: self.syncs.clone(),
                reads: self.reads.clone(),
            }) as Arc<dyn File>)
        })
    }

    fn list<'a>(&'a self, directory: &'a Path) -> Io<'a, Vec<PathBuf>> {
        Box::pin(async move {
            let mut names = Vec::new();
            for entry in fs::read_dir(directory)? {
                let name = entry?.file_name();
                if name != OsStr::from_bytes(LOCK_NAME.as_bytes()) {
                    names.push(PathBuf::from(name));
                }
            }
            names.sort();
            Ok(names)
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> Io<'a, ()> {
        self.change([from, to], |[from, to]| fs::rename(from, to))
    }

    fn remove<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        let (removed, inodes) = (path.to_path_buf(), Arc::clone(&self.inodes));
        Box::pin(async move {
            let leaving = self.syncs.run(move || inodes.remove(&removed)).await?;
            if let Some(descriptor) = leaving {
                self.inodes.free(descriptor).await;
            }
            Ok(())
        })
    }

    fn make_directory<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        self.change([path, path], |[path, _]| fs::create_dir_all(path))
    }

    fn remove_directory<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        self.change([path, path], |[path, _]| fs::remove_dir(path))
    }

    fn sync_directory<'a>(&'a self, directory: &'a Path) -> Io<'a, ()> {
        self.change([directory, directory], |[path, _]| Descriptor::open(path)?.sync_all())
    }

    fn free_space<'a>(&'a self, directory: &'a Path) -> Io<'a, u64> {
        Box::pin(async move {
            let space = rustix::fs::statvfs(directory)?;
            Ok(space.f_bavail.saturating_mul(space.f_frsize))
        })
    }

    fn lock<'a>(&'a self, directory: &'a Path) -> Io<'a, Box<dyn DirectoryLock>> {
        Box::pin(async move {
            let path = directory.join(LOCK_NAME);
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(Box::new(Lock { _descriptor: file }) as Box<dyn DirectoryLock>)
        })
    }
}

/// The system gives the lock up with the descriptor, however the process ends.
struct Lock {
    _descriptor: Descriptor,
}

impl DirectoryLock for Lock {}

struct OsFile {
    descriptor: Arc<Handle>,
    len: AtomicU64,
    syncs: Pool,
    reads: Pool,
}

impl OsFile {
    fn on_thread(
        &self,
        work: impl FnOnce(&Descriptor) -> io::Result<()> + Send + 'static,
    ) -> impl Future<Output = io::Result<()>> + Send + '_ {
        let descriptor = Arc::clone(&self.descriptor);
        self.syncs.run(move || work(&descriptor))
    }
}

impl File for OsFile {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn read_at(&self, position: u64, bytes: usize) -> Io<'_, Bytes> {
        Box::pin(async move {
            let there = self.len().saturating_sub(position);
            let wanted = bytes.min(usize::try_from(there).unwrap_or(usize::MAX));
            let mut buffer = vec![0; wanted];
            let mut filled = 0;
            while filled < wanted {
                let slices = &mut [IoSliceMut::new(&mut buffer[filled..])];
                let at = position + filled as u64;
                let flags = ReadWriteFlags::NOWAIT;
                match rustix::io::preadv2(&**self.descriptor, slices, at, flags) {
                    Ok(0) => {
                        buffer.truncate(filled);
                        return Ok(Bytes::from(buffer));
                    }
                    Ok(read) => filled += read,
                    Err(Errno::INTR) => {}
                    // Not in the page cache, or a file system that cannot say (`OPNOTSUPP`).
                    Err(Errno::AGAIN | Errno::OPNOTSUPP) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            if filled == wanted {
                return Ok(Bytes::from(buffer));
            }
            let descriptor = Arc::clone(&self.descriptor);
            self.reads.run(move || read_waiting(&descriptor, position, buffer, filled)).await
        })
    }

    fn data_from(&self, position: u64) -> Io<'_, Option<u64>> {
        let descriptor = Arc::clone(&self.descriptor);
        let len = self.len();
        Box::pin(self.reads.run(move || {
            if position >= len {
                return Ok(None);
            }
            // Nobody uses the descriptor's own place, which this moves.
            match rustix::fs::seek(&**descriptor, SeekFrom::Data(position)) {
                Ok(at) => Ok(Some(at).filter(|&at| at < len)),
                Err(Errno::NXIO) => Ok(None),
                Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(position)),
                Err(error) => Err(error.into()),
            }
        }))
    }

    fn write_at(&self, position: u64, chunks: Vec<Bytes>) -> Io<'_, ()> {
        Box::pin(async move {
            let end = write_all(&self.descriptor, position, chunks)?;
            self.len.fetch_max(end, Ordering::AcqRel);
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> Io<'_, ()> {
        Box::pin(async move {
            let from = self.len();
            if len <= from {
                return Ok(());
            }
            self.on_thread(move |descriptor| grow(descriptor, from, len)).await?;
            self.len.fetch_max(len, Ordering::AcqRel);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> Io<'_, ()> {
        Box::pin(async move {
            self.on_thread(move |descriptor| descriptor.set_len(len)).await?;
            self.len.store(len, Ordering::Release);
            Ok(())
        })
    }

    fn sync(&self) -> Io<'_, ()> {
        Box::pin(self.on_thread(Descriptor::sync_data))
    }
}

/// The part of a read that the page cache does not have.
fn read_waiting(
    descriptor: &Descriptor,
    position: u64,
    mut buffer: Vec<u8>,
    mut filled: usize,
) -> io::Result<Bytes> {
    while filled < buffer.len() {
        match rustix::io::pread(descriptor, &mut buffer[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    buffer.truncate(filled);
    Ok(Bytes::from(buffer))
}

/// Writes all chunks, resuming after a partial write; returns where they end.
fn write_all(descriptor: &Descriptor, mut at: u64, chunks: Vec<Bytes>) -> io::Result<u64> {
    let mut chunks = chunks.into_iter().filter(|chunk| !chunk.is_empty()).peekable();
    while chunks.peek().is_some() {
        let mut some: Vec<Bytes> = chunks.by_ref().take(CHUNKS_MAX).collect();
        let mut first = 0;
        while first < some.len() {
            let slices: Vec<IoSlice<'_>> =
                some[first..].iter().map(|chunk| IoSlice::new(chunk)).collect();
            let mut written = match rustix::io::pwritev(descriptor, &slices, at) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            at += written as u64;
            while first < some.len() && written >= some[first].len() {
                written -= some[first].len();
                first += 1;
            }
            if written > 0 {
                some[first].advance(written);
            }
        }
    }
    Ok(at)
}

/// Backs the file with blocks up to `len`, where the file system can; else writes zeros there.
fn grow(descriptor: &Descriptor, from: u64, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(descriptor, FallocateFlags::empty(), from, len - from) {
        Ok(()) => return Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(error) => return Err(error.into()),
    }
    let zeros = Bytes::from_static(&[0; 1 << 16]);
    let mut at = from;
    while at < len {
        let bytes = (len - at).min(zeros.len() as u64);
        at = write_all(descriptor, at, vec![zeros.slice(..bytes as usize)])?;
    }
    Ok(())
}
