//! One bit of one durable sector changes. With a single copy of everything this may destroy what
//! was acknowledged, so it is for unbudgeted runs: what is then checked is that nobody is served a
//! changed record as if it were good.

use super::Disturb;
use crate::chance::Chance;
use crate::plan::Plan;
use crate::{plan_item, plan_words};

plan_words! {
    /// Which files may be struck.
    Files {
        Any = "any",
        Journal = "journal",
        Segment = "segment",
        /// The newest segment of a log.
        Newest = "newest",
        /// What is neither journal nor segment: marks, snapshots, indexes, identity.
        Side = "side",
        /// The marks: how far each log is durable, and where it starts.
        Marks = "marks",
    }
}

plan_item! {
    BitFlip {
        files: Files,
    }
}

impl Disturb for BitFlip {
    const NAME: &'static str = "bit-flip";
    const UNBUDGETED: bool = true;

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { files: *chance.pick(&[Files::Any, Files::Journal, Files::Segment]) }
    }
}
