//! A world that does nothing by itself: connections in memory, and a clock that can be stopped and
//! moved by hand. What happens in it happens because of what was sent.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::time::Now;
use quorate_net::clock::{Clock, Sleep};
use quorate_net::transport::{Io, Listener, Network, Stream};
use quorate_node::clock::OsClock;
use quorate_node::disk::memory::MemoryDisk;
use quorate_node::disk::{DirectoryLock, Disk, File, Io as DiskIo, Open};
use quorate_node::node::{RunningNode, run};
use quorate_node::world::World;
use tokio::io::DuplexStream;
use tokio::sync::{Notify, mpsc};

use crate::house::{MIB, config};

/// Bytes that a connection takes before anybody reads them: a poor socket buffer.
const BUFFER_BYTES: usize = 4096;

/// One door, and any number of connections through it.
#[derive(Default)]
pub(crate) struct MemoryNetwork {
    door: Mutex<Option<mpsc::UnboundedSender<DuplexStream>>>,
}

struct MemoryDoor(mpsc::UnboundedReceiver<DuplexStream>);

impl MemoryNetwork {
    pub(crate) fn open(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        self.door.lock().unwrap().as_ref().unwrap().send(far).unwrap();
        near
    }
}

impl Network for MemoryNetwork {
    fn listen(&self, _: SocketAddr) -> Io<'_, Box<dyn Listener>> {
        let (door, inside) = mpsc::unbounded_channel();
        *self.door.lock().unwrap() = Some(door);
        Box::pin(async move { Ok(Box::new(MemoryDoor(inside)) as Box<dyn Listener>) })
    }

    fn connect<'a>(&'a self, _: &'a str) -> Io<'a, Box<dyn Stream>> {
        Box::pin(async move { Ok(Box::new(self.open()) as Box<dyn Stream>) })
    }
}

impl Listener for MemoryDoor {
    fn accept(&mut self) -> Io<'_, (Box<dyn Stream>, SocketAddr)> {
        Box::pin(async move {
            let stream = self.0.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
            Ok((Box::new(stream) as Box<dyn Stream>, self.local_address()))
        })
    }

    fn local_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 9))
    }
}

/// The machine's clock until it is stopped.
pub(crate) struct StillClock {
    running: OsClock,
    stopped: Mutex<Option<Now>>,
    changed: Notify,
}

/// Handles of one clock.
#[derive(Clone)]
pub(crate) struct Hand(Arc<StillClock>);

impl Hand {
    pub(crate) fn stop(&self) {
        let now = self.now();
        *self.0.stopped.lock().unwrap() = Some(now);
        self.0.changed.notify_waiters();
    }

    pub(crate) fn advance(&self, time: Duration) {
        if let Some(now) = &mut *self.0.stopped.lock().unwrap() {
            now.monotonic = now.monotonic + time;
        }
        self.0.changed.notify_waiters();
    }
}

impl Clock for Hand {
    fn now(&self) -> Now {
        self.0.stopped.lock().unwrap().unwrap_or_else(|| self.0.running.now())
    }

    fn sleep_until(&self, at: quorate_core::time::Instant) -> Sleep {
        let hand = self.clone();
        Box::pin(async move {
            loop {
                let changed = hand.0.changed.notified();
                if hand.now().monotonic >= at {
                    return;
                }
                let is_stopped = hand.0.stopped.lock().unwrap().is_some();
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = hand.0.running.sleep_until(at), if !is_stopped => {}
                }
            }
        })
    }
}

/// A node in a world that stands still from now on.
pub(crate) async fn still(settings: &[(&str, &str)]) -> (RunningNode, Arc<MemoryNetwork>, Hand) {
    still_on(MemoryDisk::ephemeral(512 * MIB), settings).await
}

pub(crate) async fn still_on(
    disk: impl Disk,
    settings: &[(&str, &str)],
) -> (RunningNode, Arc<MemoryNetwork>, Hand) {
    let network = Arc::new(MemoryNetwork::default());
    let clock =
        StillClock { running: OsClock::new(), stopped: Mutex::new(None), changed: Notify::new() };
    let hand = Hand(Arc::new(clock));
    let disk = Arc::new(disk);
    let (near, clock) = (Arc::clone(&network), Arc::new(hand.clone()));
    let node = run(config(settings), World { disk, network: near, clock, seed: 1 }).await.unwrap();
    hand.stop();
    (node, network, hand)
}

/// A disk on which, from a certain point on, nothing that concerns names comes to an end.
#[derive(Clone)]
pub(crate) struct StuckDisk {
    disk: MemoryDisk,
    is_stuck: Arc<AtomicBool>,
}

impl StuckDisk {
    pub(crate) fn new() -> Self {
        Self { disk: MemoryDisk::tracked(512 * MIB), is_stuck: Arc::default() }
    }

    pub(crate) fn stick(&self) {
        self.is_stuck.store(true, Ordering::SeqCst);
    }

    fn unless_stuck<'a, T: Send + 'a>(&'a self, operation: DiskIo<'a, T>) -> DiskIo<'a, T> {
        if self.is_stuck.load(Ordering::SeqCst) {
            Box::pin(std::future::pending())
        } else {
            operation
        }
    }
}

impl Disk for StuckDisk {
    fn open<'a>(&'a self, path: &'a Path, how: Open) -> DiskIo<'a, Arc<dyn File>> {
        self.unless_stuck(self.disk.open(path, how))
    }

    fn list<'a>(&'a self, directory: &'a Path) -> DiskIo<'a, Vec<PathBuf>> {
        self.unless_stuck(self.disk.list(directory))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> DiskIo<'a, ()> {
        self.unless_stuck(self.disk.rename(from, to))
    }

    fn remove<'a>(&'a self, path: &'a Path) -> DiskIo<'a, ()> {
        self.unless_stuck(self.disk.remove(path))
    }

    fn make_directory<'a>(&'a self, path: &'a Path) -> DiskIo<'a, ()> {
        self.unless_stuck(self.disk.make_directory(path))
    }

    fn remove_directory<'a>(&'a self, path: &'a Path) -> DiskIo<'a, ()> {
        self.unless_stuck(self.disk.remove_directory(path))
    }

    fn sync_directory<'a>(&'a self, directory: &'a Path) -> DiskIo<'a, ()> {
        self.unless_stuck(self.disk.sync_directory(directory))
    }

    fn free_space<'a>(&'a self, directory: &'a Path) -> DiskIo<'a, u64> {
        self.unless_stuck(self.disk.free_space(directory))
    }

    fn lock<'a>(&'a self, directory: &'a Path) -> DiskIo<'a, Box<dyn DirectoryLock>> {
        self.unless_stuck(self.disk.lock(directory))
    }
}

/// Lets everybody go as far as they can without time passing.
pub(crate) async fn settle() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}
