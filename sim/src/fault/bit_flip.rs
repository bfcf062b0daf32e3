//! One bit of one durable sector changes. With a single copy of everything this may destroy what
//! was acknowledged, so it is for unbudgeted runs: what is then checked is that nobody is served a
//! changed record as if it were good.

use std::path::Path;

use quorate_core::id::PartitionId;
use quorate_core::segment::directory_name;

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
        /// The log of the metadata: what topics there are.
        Metadata = "metadata",
    }
}

impl Files {
    /// Whether these are the files at `path`, or may be: only the newest of them where that is
    /// asked for.
    pub fn include(self, path: &Path) -> bool {
        let is_journal = path.to_string_lossy().contains("journal");
        let is_segment = path.extension().is_some_and(|kind| kind == "segment");
        let metadata = || path.parent().is_some_and(|log| log.ends_with(metadata_directory()));
        match self {
            Self::Any => true,
            Self::Journal => is_journal,
            Self::Segment | Self::Newest => is_segment,
            Self::Side => !is_journal && !is_segment,
            Self::Marks => path.ends_with("marks"),
            Self::Metadata => is_segment && metadata(),
        }
    }

    /// What kind of file stands at `path`.
    pub fn of(path: &Path) -> Self {
        let kinds = [Self::Journal, Self::Segment, Self::Side];
        kinds.into_iter().find(|kind| kind.include(path)).unwrap_or(Self::Any)
    }
}

fn metadata_directory() -> String {
    directory_name(PartitionId::METADATA)
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
