//! The simulated disk as the node sees it: the medium's bytes and names, with latencies, stalls
//! and a guard against the dead: handles of an earlier life do nothing.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use madsim::task::NodeId;
use madsim::time::TimeHandle;
use quorate_node::disk::{DirectoryLock, Disk, File, Io, Open};

use super::clock::until;
use crate::chance::{Between, Chance};
use crate::fault::power_loss::Unsynced;
use crate::medium::names::FileId;
use crate::medium::{Medium, Misdirected, Synced, WriteKey};
use crate::plan;
use crate::trace::{self, Mark};

/// How often a stuck disk looks whether it was released.
const STUCK_LOOK: Duration = Duration::from_millis(50);

/// How a node dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Death {
    /// The process only.
    #[default]
    Crash,
    /// The machine.
    PowerLoss(Unsynced),
}

/// All simulated disks.
pub struct SimDisks {
    time: TimeHandle,
    disks: Mutex<BTreeMap<NodeId, Arc<NodeDisk>>>,
}

impl SimDisks {
    pub(super) fn new(time: TimeHandle) -> Self {
        Self { time, disks: Mutex::default() }
    }

    /// The node dies.
    pub(super) fn reset_node(&self, id: NodeId) {
        let disk = self.disks.lock().expect("one thread").get(&id).cloned();
        if let Some(disk) = disk {
            disk.die();
        }
    }

    /// A new, empty disk.
    pub fn add(&self, who: &'static str, model: plan::Disk, chance: Chance) -> Arc<NodeDisk> {
        let medium = Medium::new(chance, model.capacity);
        Arc::new(NodeDisk {
            who,
            time: self.time.clone(),
            model,
            medium: Mutex::new(medium),
            strain: Mutex::default(),
            rots: OnceLock::new(),
        })
    }

    /// The disk dies with this node from now on.
    pub fn attach(&self, node: NodeId, disk: &Arc<NodeDisk>) {
        self.disks.lock().expect("one thread").insert(node, Arc::clone(disk));
    }
}

/// What slows a disk down at present.
#[derive(Debug, Default)]
struct Strain {
    /// Latencies are multiplied by this; 0 is 1.
    times: u32,
    /// Nothing is written or synced before this time.
    stuck_until: Duration,
    death: Death,
}

/// One node's disk, through all its lives.
pub struct NodeDisk {
    who: &'static str,
    time: TimeHandle,
    model: plan::Disk,
    medium: Mutex<Medium>,
    strain: Mutex<Strain>,
    rots: OnceLock<Rots>,
}

/// Is told of files in which durable bytes are not what was written any more.
type Rots = Box<dyn Fn(&Path) + Send + Sync>;

impl NodeDisk {
    pub fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().expect("one thread")
    }

    fn strain(&self) -> MutexGuard<'_, Strain> {
        self.strain.lock().expect("one thread")
    }

    /// Who is told when the disk does by itself what makes files rot.
    pub fn on_rot(&self, told: impl Fn(&Path) + Send + Sync + 'static) {
        assert!(self.rots.set(Box::new(told)).is_ok(), "one is told");
    }

    /// Tells of a write that has just landed elsewhere.
    fn tell_misdirected(&self) {
        let Some(Misdirected { from, to }) = self.medium().take_misdirected() else { return };
        for (path, _) in [&from, &to] {
            if let Some(told) = self.rots.get() {
                told(path);
            }
        }
        trace::event(self.time.elapsed(), Mark::Fault, self.who, [from.1, to.1, 0], || {
            let (belongs, lands) = (from.0.display(), to.0.display());
            format!("a write to {belongs} at {} lands in {lands} at {}", from.1, to.1)
        });
    }

    /// How the node will die when it is killed next.
    pub fn set_death(&self, death: Death) {
        self.strain().death = death;
    }

    pub fn set_slow(&self, times: u32) {
        self.strain().times = times;
    }

    pub fn set_stuck(&self, until: Duration) {
        self.strain().stuck_until = until;
    }

    /// Ends everything that slows or fails it.
    pub fn heal(&self) {
        *self.strain() = Strain::default();
        let mut medium = self.medium();
        medium.full = false;
        medium.sync_fails = false;
        medium.write_fails = false;
        medium.reads_fail = 0;
        medium.misdirects = None;
    }

    fn die(&self) {
        let death = std::mem::take(&mut self.strain().death);
        let (loss, names) = match death {
            Death::Crash => {
                self.medium().crash();
                Default::default()
            }
            Death::PowerLoss(unsynced) => self.medium().lose_power(unsynced),
        };
        let numbers = [loss.kept, loss.lost, names];
        trace::event(self.time.elapsed(), Mark::Fault, self.who, numbers, || {
            format!(
                "dies, {death:?}: {} sectors kept, {} lost, {names} name changes lost",
                loss.kept, loss.lost
            )
        });
    }

    /// The disk for the node's present life.
    pub fn handle(self: &Arc<Self>) -> Arc<dyn Disk> {
        let incarnation = self.medium().incarnation();
        Arc::new(SimDisk { disk: Arc::clone(self), incarnation })
    }

    fn note(&self, what: &'static str, numbers: [u64; 3]) {
        let numbers = [numbers[0] ^ (what.len() as u64) << 56, numbers[1], numbers[2]];
        trace::event(self.time.elapsed(), Mark::Disk, self.who, numbers, || {
            format!("{what} file {} at {} ({})", numbers[0] & 0xffff, numbers[1], numbers[2])
        });
    }

    fn note_failure(&self, what: &'static str, file: FileId) {
        let numbers = [what.len() as u64, file, 0];
        trace::event(self.time.elapsed(), Mark::Fault, self.who, numbers, || {
            format!("a {what} of file {file} fails")
        });
    }

    /// Passes the time of one operation; `stalls` if it waits for a stuck disk.
    async fn spend(&self, range: Between<Duration>, stalls: bool) {
        let drawn = self.medium().chance().duration(range);
        let times = self.strain().times.max(1);
        let mut at = self.time.elapsed() + drawn * times;
        loop {
            if self.time.elapsed() < at {
                until(&self.time, at).await;
            }
            let stuck_until = self.strain().stuck_until;
            if !stalls || stuck_until <= self.time.elapsed() {
                return;
            }
            // Looked at anew now and then: healing releases it early.
            at = stuck_until.min(self.time.elapsed() + STUCK_LOOK);
        }
    }
}

struct SimDisk {
    disk: Arc<NodeDisk>,
    incarnation: u32,
}

/// Reaches the medium if the node that asks is still alive.
fn alive(disk: &NodeDisk, incarnation: u32) -> io::Result<MutexGuard<'_, Medium>> {
    let medium = disk.medium();
    if medium.incarnation() == incarnation {
        Ok(medium)
    } else {
        Err(io::Error::other("the node that opened this is dead"))
    }
}

impl SimDisk {
    /// One operation on names: its time, then its effect.
    fn operate<'a, T: Send + 'a>(
        &'a self,
        what: &'static str,
        path: &'a Path,
        range: Between<Duration>,
        operation: impl FnOnce(&mut Medium) -> io::Result<T> + Send + 'a,
    ) -> Io<'a, T> {
        Box::pin(async move {
            self.disk.spend(range, what != "list").await;
            let done = operation(&mut *alive(&self.disk, self.incarnation)?);
            let numbers = [what.len() as u64, u64::from(done.is_ok()), 0];
            trace::event(self.disk.time.elapsed(), Mark::Disk, self.disk.who, numbers, || {
                let outcome = if done.is_ok() { "" } else { " fails" };
                format!("{what} {}{outcome}", path.display())
            });
            done
        })
    }
}

impl Disk for SimDisk {
    fn open<'a>(&'a self, path: &'a Path, how: Open) -> Io<'a, Arc<dyn File>> {
        Box::pin(async move {
            self.disk.spend(self.disk.model.read, how == Open::Create).await;
            let id = alive(&self.disk, self.incarnation)?.open(path, how == Open::Create)?;
            let (time, numbers) = (self.disk.time.elapsed(), [id, 0, 1]);
            trace::event(time, Mark::Disk, self.disk.who, numbers, || {
                format!("open {} as file {id}", path.display())
            });
            let (disk, incarnation) = (Arc::clone(&self.disk), self.incarnation);
            let writable = how != Open::Read;
            Ok(Arc::new(SimFile { disk, incarnation, id, writable }) as Arc<dyn File>)
        })
    }

    fn list<'a>(&'a self, directory: &'a Path) -> Io<'a, Vec<PathBuf>> {
        self.operate("list", directory, self.disk.model.read, move |medium| medium.list(directory))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> Io<'a, ()> {
        self.operate("rename", to, self.disk.model.write, move |medium| medium.rename(from, to))
    }

    fn remove<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        self.operate("remove", path, self.disk.model.write, move |medium| medium.remove(path))
    }

    fn make_directory<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        let range = self.disk.model.write;
        self.operate("make directory", path, range, move |medium| medium.make_directory(path))
    }

    fn remove_directory<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        let range = self.disk.model.write;
        self.operate("remove directory", path, range, move |medium| medium.remove_directory(path))
    }

    fn sync_directory<'a>(&'a self, directory: &'a Path) -> Io<'a, ()> {
        let range = self.disk.model.sync;
        self.operate("sync directory", directory, range, move |medium| {
            medium.sync_directory(directory)
        })
    }

    fn free_space<'a>(&'a self, directory: &'a Path) -> Io<'a, u64> {
        self.operate(
            "free space",
            directory,
            self.disk.model.read,
            |medium| Ok(medium.free_space()),
        )
    }

    fn lock<'a>(&'a self, directory: &'a Path) -> Io<'a, Box<dyn DirectoryLock>> {
        Box::pin(async move {
            alive(&self.disk, self.incarnation)?.lock(directory)?;
            let (disk, incarnation) = (Arc::clone(&self.disk), self.incarnation);
            let directory = directory.to_owned();
            Ok(Box::new(SimLock { disk, incarnation, directory }) as Box<dyn DirectoryLock>)
        })
    }
}

struct SimLock {
    disk: Arc<NodeDisk>,
    incarnation: u32,
    directory: PathBuf,
}

impl DirectoryLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        if let Ok(mut medium) = alive(&self.disk, self.incarnation) {
            medium.unlock(&self.directory);
        }
    }
}

struct SimFile {
    disk: Arc<NodeDisk>,
    incarnation: u32,
    id: FileId,
    writable: bool,
}

/// A write under way. Dropped half way, it is done all the same: the kernel has it.
struct Writing<'a> {
    file: &'a SimFile,
    key: WriteKey,
}

impl Writing<'_> {
    fn complete(&self) -> io::Result<()> {
        let written = alive(&self.file.disk, self.file.incarnation)?.complete_write(self.key);
        self.file.disk.tell_misdirected();
        written
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Completed, or dead: then nothing happens. Otherwise nobody would hear of a failure.
        if let Ok(mut medium) = alive(&self.file.disk, self.file.incarnation) {
            let fails = std::mem::take(&mut medium.write_fails);
            let _ = medium.complete_write(self.key);
            medium.write_fails = fails;
            drop(medium);
            self.file.disk.tell_misdirected();
        }
    }
}

impl SimFile {
    fn writable(&self) -> io::Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading"))
        }
    }
}

impl File for SimFile {
    fn len(&self) -> u64 {
        alive(&self.disk, self.incarnation).map_or(0, |medium| medium.len(self.id))
    }

    fn read_at(&self, position: u64, bytes: usize) -> Io<'_, Bytes> {
        Box::pin(async move {
            self.disk.spend(self.disk.model.read, false).await;
            let read = alive(&self.disk, self.incarnation)?.read(self.id, position, bytes);
            match &read {
                Ok(read) => self.disk.note("read", [self.id, position, read.len() as u64]),
                Err(_) => self.disk.note_failure("read", self.id),
            }
            read
        })
    }

    fn write_at(&self, position: u64, chunks: Vec<Bytes>) -> Io<'_, ()> {
        Box::pin(async move {
            self.writable()?;
            let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
            let key = {
                let mut medium = alive(&self.disk, self.incarnation)?;
                medium.begin_write(self.id, position, chunks)
            };
            let writing = Writing { file: self, key };
            self.disk.spend(self.disk.model.write, true).await;
            let written = writing.complete();
            match &written {
                Ok(()) => self.disk.note("write", [self.id, position, bytes]),
                Err(_) => self.disk.note_failure("write", self.id),
            }
            written
        })
    }

    fn allocate(&self, len: u64) -> Io<'_, ()> {
        Box::pin(async move {
            self.writable()?;
            self.disk.spend(self.disk.model.write, true).await;
            alive(&self.disk, self.incarnation)?.allocate(self.id, len)?;
            self.disk.note("allocate", [self.id, len, 0]);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> Io<'_, ()> {
        Box::pin(async move {
            self.writable()?;
            self.disk.spend(self.disk.model.write, true).await;
            alive(&self.disk, self.incarnation)?.set_len(self.id, len);
            self.disk.note("set length", [self.id, len, 0]);
            Ok(())
        })
    }

    fn sync(&self) -> Io<'_, ()> {
        // Now, not at the first poll: it covers what completed before it was called.
        let begun =
            alive(&self.disk, self.incarnation).map(|mut medium| medium.begin_sync(self.id));
        Box::pin(async move {
            let captured = begun?;
            let sectors = captured.sectors() as u64;
            self.disk.spend(self.disk.model.sync, true).await;
            let synced = alive(&self.disk, self.incarnation)?.complete_sync(self.id, captured);
            self.disk.note("sync", [self.id, sectors, u64::from(synced == Synced::Done)]);
            match synced {
                Synced::Done => Ok(()),
                Synced::Failed => {
                    self.disk.note_failure("sync", self.id);
                    Err(io::Error::other("simulated: sync failed"))
                }
            }
        })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if let Ok(mut medium) = alive(&self.disk, self.incarnation) {
            medium.close(self.id);
        }
    }
}
