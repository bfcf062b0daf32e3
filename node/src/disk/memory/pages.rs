//! The bytes of one file in memory: pages that exist once written to, and, where power losses are
//! played, what of it a disk would have kept.

use std::io::{self, ErrorKind};

use bytes::{Bytes, BytesMut};

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = 1 << 14;
/// The least that a disk writes as a whole, or not.
pub(super) const SECTOR_BYTES: u64 = 512;

/// A sparse file.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    pages: Vec<Option<Box<[u8]>>>,
    len: u64,
}

impl Pages {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Pages that hold bytes.
    pub(super) fn held(&self) -> usize {
        self.pages.iter().flatten().count()
    }

    pub(super) fn read(&self, position: u64, bytes: usize) -> Bytes {
        let there = usize::try_from(self.len.saturating_sub(position)).unwrap_or(usize::MAX);
        let mut left = bytes.min(there);
        let mut at = position as usize;
        let mut out = BytesMut::with_capacity(left);
        while left > 0 {
            let (page, within) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let some = left.min(PAGE_BYTES - within);
            match self.pages.get(page).and_then(Option::as_deref) {
                Some(page) => out.extend_from_slice(&page[within..within + some]),
                None => out.resize(out.len() + some, 0),
            }
            (at, left) = (at + some, left - some);
        }
        out.freeze()
    }

    /// Pages that a write there would add.
    pub(super) fn new_pages(&self, position: u64, bytes: usize) -> usize {
        if bytes == 0 {
            return 0;
        }
        let first = position as usize / PAGE_BYTES;
        let last = (position as usize + bytes - 1) / PAGE_BYTES;
        (first..=last).filter(|&page| self.pages.get(page).is_none_or(Option::is_none)).count()
    }

    pub(super) fn write(&mut self, position: u64, mut bytes: &[u8]) {
        let mut at = position as usize;
        while !bytes.is_empty() {
            let (page, within) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let some = bytes.len().min(PAGE_BYTES - within);
            if self.pages.len() <= page {
                self.pages.resize(page + 1, None);
            }
            let held = self.pages[page].get_or_insert_with(|| vec![0; PAGE_BYTES].into());
            held[within..within + some].copy_from_slice(&bytes[..some]);
            bytes = &bytes[some..];
            at += some;
        }
        self.len = self.len.max(at as u64);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        let (pages, within) = (len as usize / PAGE_BYTES, len as usize % PAGE_BYTES);
        if len < self.len {
            self.pages.truncate(pages + usize::from(within > 0));
            if let Some(Some(last)) = self.pages.get_mut(pages) {
                last[within..].fill(0);
            }
        }
        self.len = len;
    }
}

/// A change of a file that no sync covers yet.
#[derive(Clone, Debug)]
enum Change {
    Write { position: u64, bytes: Bytes },
    SetLen { len: u64 },
}

/// A file as its readers see it, and as a power loss may leave it.
#[derive(Debug, Default)]
pub(super) struct Inode {
    pub(super) live: Pages,
    durable: Pages,
    unsynced: Vec<Change>,
    /// A sync failed: nothing written before it can be trusted to reach the disk any more.
    lost: bool,
}

impl Inode {
    /// A file that a power loss left.
    pub(super) fn restored(pages: Pages) -> Self {
        Self { live: pages.clone(), durable: pages, unsynced: Vec::new(), lost: false }
    }

    pub(super) fn write(&mut self, position: u64, bytes: &Bytes, tracked: bool) {
        self.live.write(position, bytes);
        if tracked {
            self.unsynced.push(Change::Write { position, bytes: bytes.clone() });
        }
    }

    pub(super) fn set_len(&mut self, len: u64, tracked: bool) {
        self.live.set_len(len);
        if tracked {
            self.unsynced.push(Change::SetLen { len });
        }
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.lost {
            return Err(ErrorKind::Other.into());
        }
        for change in std::mem::take(&mut self.unsynced) {
            match change {
                Change::Write { position, bytes } => self.durable.write(position, &bytes),
                Change::SetLen { len } => self.durable.set_len(len),
            }
        }
        Ok(())
    }

    /// A sync fails as Linux lets it fail: the dirty pages are dropped, silently from then on.
    pub(super) fn fail_sync(&mut self) {
        self.unsynced.clear();
        self.lost = true;
    }

    /// The file after a power loss: of each unsynced sector, `kept` says whether it got there.
    pub(super) fn after_power_loss(&self, kept: &mut dyn FnMut() -> bool) -> Pages {
        let mut pages = self.durable.clone();
        for change in &self.unsynced {
            match change {
                Change::Write { position, bytes } => keep_some(&mut pages, *position, bytes, kept),
                Change::SetLen { len } if kept() => pages.set_len(*len),
                Change::SetLen { .. } => {}
            }
        }
        pages
    }

    /// Turns one bit over, on the disk as in memory.
    pub(super) fn flip(&mut self, position: u64) {
        for pages in [&mut self.live, &mut self.durable] {
            if let Some(byte) = pages.read(position, 1).first() {
                pages.write(position, &[byte ^ 0x10]);
            }
        }
    }
}

fn keep_some(pages: &mut Pages, position: u64, bytes: &[u8], kept: &mut dyn FnMut() -> bool) {
    let end = position + bytes.len() as u64;
    let mut at = position;
    while at < end {
        let sector_end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
        let until = sector_end.min(end);
        if kept() {
            pages.write(at, &bytes[(at - position) as usize..(until - position) as usize]);
        }
        at = until;
    }
}
