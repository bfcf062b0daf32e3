//! What requests may hold in memory, all connections together: bytes are permitted before they are
//! read.
//!
//! A frame earns its memory: the first 4 KiB of any frame are free (they fit the buffer that each
//! connection has anyway), the next need a permit from the small pool, and only a frame whose
//! first 64 KiB have come is granted all of its length, in one piece, from the large pool. So
//! thousands of announced and never sent megabytes hold almost nothing, small requests do not
//! queue behind large ones, and nobody holds a part of a permit while waiting for the rest.
//!
//! What was read ahead of a frame's length can turn out to be too little. It is given back before
//! the whole is asked for; until that is granted, the bytes read so far (64 KiB at most) are not
//! counted. Nobody reads ahead while somebody waits, so these are never more than the small pool.
//!
//! Taken apart, a frame may need thirty times its bytes (a list of one-letter names). These have
//! a pool of their own, and who has to wait for it waits as bytes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of a frame that need no permit.
pub(crate) const FREE_BYTES: usize = 4 * 1024;
/// Bytes of a frame up to which the small pool serves.
pub(crate) const SMALL_BYTES: usize = 64 * 1024;
/// Bytes that a frame's parts may hold without a permit; honest requests seldom need more.
pub(crate) const FREE_DECODED_BYTES: usize = 32 * 1024;

/// A pool of bytes. Clones are the same pool; who asks first is served first.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    bytes: Arc<Semaphore>,
    bytes_max: usize,
    /// Bytes that are waited for.
    waiting: Arc<AtomicUsize>,
}

/// Bytes taken from a pool; they return when this is dropped.
pub(crate) type Permit = OwnedSemaphorePermit;

/// A permit on its way.
pub(crate) type Granting = Pin<Box<dyn Future<Output = Permit> + Send>>;

impl Pool {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.min(Semaphore::MAX_PERMITS);
        Self { bytes: Arc::new(Semaphore::new(bytes_max)), bytes_max, waiting: Arc::default() }
    }

    /// The permit, if it is there at once.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Permit> {
        Arc::clone(&self.bytes).try_acquire_many_owned(self.clamp(bytes)).ok()
    }

    /// Waits for the permit. Never more than the whole pool, or it would wait for ever.
    pub(crate) fn take(&self, bytes: usize) -> Granting {
        let (pool, bytes) = (Arc::clone(&self.bytes), self.clamp(bytes));
        let waiting = Waiting::new(&self.waiting, bytes as usize);
        Box::pin(async move {
            let permit = pool.acquire_many_owned(bytes).await.expect("the pool is never closed");
            drop(waiting);
            permit
        })
    }

    /// Bytes that are waited for at this moment.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub(crate) const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes that are taken at this moment.
    pub(crate) fn taken(&self) -> usize {
        self.bytes_max - self.bytes.available_permits()
    }

    fn clamp(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.bytes_max)).unwrap_or(u32::MAX)
    }
}

/// Counted while somebody waits.
struct Waiting {
    counted: Arc<AtomicUsize>,
    bytes: usize,
}

impl Waiting {
    fn new(counted: &Arc<AtomicUsize>, bytes: usize) -> Self {
        counted.fetch_add(bytes, Ordering::SeqCst);
        Self { counted: Arc::clone(counted), bytes }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// The pools that frames are read into, and the one that they are taken apart into.
#[derive(Clone, Debug)]
pub(crate) struct RequestPools {
    small: Pool,
    large: Pool,
    decoded: Pool,
}

/// What must be permitted before a connection reads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Free,
    Small(usize),
    Large(usize),
}

impl Stage {
    /// Of a frame of `length` bytes of which `received` are there.
    pub(crate) const fn of(length: usize, received: usize) -> Self {
        if length <= FREE_BYTES || received < FREE_BYTES {
            Self::Free
        } else if length <= SMALL_BYTES {
            Self::Small(length)
        } else if received < SMALL_BYTES {
            Self::Small(SMALL_BYTES)
        } else {
            Self::Large(length)
        }
    }

    /// Whether what is held for `self` suffices for `other`.
    pub(crate) const fn covers(self, other: Self) -> bool {
        match (self, other) {
            (_, Self::Free) | (Self::Large(_), Self::Small(_)) => true,
            (Self::Small(held), Self::Small(asked)) | (Self::Large(held), Self::Large(asked)) => {
                held >= asked
            }
            (Self::Free | Self::Small(_), _) => false,
        }
    }

    /// Whether who holds this while waiting for `other` takes it from those who hold some of the
    /// same pool and wait as well. Who waits for the large pool keeps some of the small one: nobody
    /// who holds some of the large one waits for the small.
    pub(crate) const fn waits_in_the_way_of(self, other: Self) -> bool {
        matches!((self, other), (Self::Small(_), Self::Small(_)))
    }

    /// How far the frame may be read with this permitted, its length prefix not counted.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Free => FREE_BYTES,
            Self::Small(bytes) | Self::Large(bytes) => bytes,
        }
    }
}

impl RequestPools {
    /// A quarter of the memory is the small pool's. Taken apart, frames may hold a quarter more.
    pub(crate) fn new(memory_max: usize) -> Self {
        let small = memory_max / 4;
        Self {
            small: Pool::new(small),
            large: Pool::new(memory_max - small),
            decoded: Pool::new(small),
        }
    }

    /// For the parts of frames that have been taken apart.
    pub(crate) const fn decoded(&self) -> &Pool {
        &self.decoded
    }

    /// The longest frame that could ever be granted.
    pub(crate) const fn frame_bytes_max(memory_max: usize) -> usize {
        memory_max - memory_max / 4
    }

    /// The pool and the bytes that `stage` asks of it.
    pub(crate) fn of(&self, stage: Stage) -> Option<(&Pool, usize)> {
        match stage {
            Stage::Free => None,
            Stage::Small(bytes) => Some((&self.small, bytes)),
            Stage::Large(bytes) => Some((&self.large, bytes)),
        }
    }

    pub(crate) fn taken(&self) -> usize {
        self.small.taken() + self.large.taken() + self.decoded.taken()
    }
}

/// The frame with its permit, which returns when the last slice of the frame is dropped: what is
/// counted is what lies in memory, be it in a queue of the disk long after the answer.
pub(crate) fn hold(frame: Bytes, permit: Option<Permit>) -> Bytes {
    struct Held {
        frame: Bytes,
        _permit: Permit,
    }
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.frame
        }
    }
    match permit {
        Some(permit) => Bytes::from_owner(Held { frame, _permit: permit }),
        None => frame,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_earns_its_memory() {
        assert_eq!(Stage::of(FREE_BYTES, 10), Stage::Free);
        assert_eq!(Stage::of(1 << 30, FREE_BYTES - 1), Stage::Free);
        assert_eq!(Stage::of(FREE_BYTES + 1, FREE_BYTES), Stage::Small(FREE_BYTES + 1));
        assert_eq!(Stage::of(SMALL_BYTES, FREE_BYTES), Stage::Small(SMALL_BYTES));
        assert_eq!(Stage::of(1 << 20, SMALL_BYTES - 1), Stage::Small(SMALL_BYTES));
        assert_eq!(Stage::of(1 << 20, SMALL_BYTES), Stage::Large(1 << 20));
        assert!(Stage::Small(10).covers(Stage::Small(10)) && Stage::Large(9).covers(Stage::Free));
        assert!(!Stage::Small(SMALL_BYTES).covers(Stage::Large(5)));
        assert!(!Stage::Small(10).covers(Stage::Small(11)));
        assert!(Stage::Small(10).waits_in_the_way_of(Stage::Small(11)));
        assert!(!Stage::Small(SMALL_BYTES).waits_in_the_way_of(Stage::Large(1 << 20)));
    }

    #[tokio::test]
    async fn a_permit_lives_as_long_as_a_slice_of_its_frame() {
        let pool = Pool::new(100);
        let frame = hold(Bytes::from(vec![7; 60]), pool.try_take(60));
        let slice = frame.slice(10..20);
        drop(frame);
        assert_eq!(pool.taken(), 60);
        assert!(pool.try_take(41).is_none());
        drop(slice);
        assert_eq!(pool.taken(), 0);
        // More than there is: all of it, so that it is granted at all.
        assert_eq!(pool.take(1000).await.num_permits(), 100);
    }
}
