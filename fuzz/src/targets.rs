//! What is done with the bytes that a fuzzer draws: one function for each decoder that reads what
//! comes from outside or from a disk. A panic is a finding. The paths are spelled out because this
//! file is a module of two crates.

#[path = "targets/batch.rs"]
mod batch;
#[path = "targets/compression.rs"]
mod compression;
#[path = "targets/frames.rs"]
mod frames;
#[path = "targets/journal.rs"]
mod journal;
#[path = "targets/messages.rs"]
mod messages;
#[path = "targets/segment.rs"]
mod segment;
#[path = "targets/state.rs"]
mod state;

pub use batch::batch;
pub use compression::compression;
pub use frames::frames;
pub use journal::journal;
pub use messages::messages;
pub use segment::segment;
pub use state::state;

/// The first bytes steer; what is left is the matter.
struct Draw<'a>(&'a [u8]);

impl Draw<'_> {
    /// Zero when nothing is left.
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn place(&mut self) -> usize {
        usize::from(u16::from_be_bytes([self.byte(), self.byte()]))
    }
}
