//! One write lands at a wrong place, and the disk says that it is done: where it belongs stands
//! what stood there before, and elsewhere something is overwritten. What is written so is whole:
//! only a checksum over where it belongs tells. It counts as rot in both places.

use super::Disturb;
use super::bit_flip::Files;
use crate::chance::Chance;
use crate::plan::Plan;
use crate::{plan_item, plan_words};

plan_words! {
    /// Where it lands.
    Lands {
        /// Other sectors of the same file.
        SameFile = "same-file",
        /// Another file of the same kind, often at the same position.
        OtherFile = "other-file",
    }
}

plan_item! {
    /// The next write to one of the files.
    MisdirectedWrite {
        files: Files,
        lands: Lands,
    }
}

impl Disturb for MisdirectedWrite {
    const NAME: &'static str = "misdirected-write";
    const UNBUDGETED: bool = true;

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self {
            files: *chance.pick(&[Files::Any, Files::Journal, Files::Segment, Files::Side]),
            lands: *chance.pick(Lands::ALL),
        }
    }
}
