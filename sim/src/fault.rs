//! Disturbances as data: each kind in one file, drawn from a seed, written on one line, carried
//! out by the worlds (`cores/inject.rs`, `world/inject.rs`).

pub mod add_partitions;
pub mod add_voter;
pub mod bit_flip;
pub mod blackout;
pub mod clock_jump;
pub mod crash;
pub mod cut;
pub mod cut_peers;
pub mod decommission;
pub mod disk_full;
pub mod disk_slow;
pub mod disk_stuck;
pub mod elect_preferred;
pub mod elect_unclean;
pub mod journal_gone;
pub mod lose_replies;
pub mod maintenance;
pub mod misdirected_write;
pub mod pause;
pub mod power_loss;
pub mod read_fails;
pub mod reassign;
pub mod remove_voter;
pub mod reset;
pub mod reset_peers;
pub mod restart;
pub mod rolling_restart;
pub mod slow_link;
pub mod slow_peers;
pub mod sync_fails;
pub mod wipe;
pub mod write_fails;

use std::time::Duration;

use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan::text::{Fields, Item, Line};

/// A disturbance and its time since the start of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at: Duration,
    /// Which node is struck, from 1 on.
    pub node: u32,
    pub kind: Kind,
}

/// One kind of disturbance.
pub trait Disturb: Item {
    /// In the text, and in the coverage table.
    const NAME: &'static str;

    /// Whether it may break more than one node promises to survive.
    const UNBUDGETED: bool = false;

    /// Whether it needs more than one node.
    const AMONG_NODES: bool = false;

    fn draw(chance: &mut Chance, plan: &Plan) -> Self;
}

macro_rules! kinds {
    ($($variant:ident($type:ty)),* $(,)?) => {
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Kind { $( $variant($type) ),* }

        impl Kind {
            /// The names of all kinds, and whether each is for unbudgeted runs only.
            pub const ALL: &[(&str, bool)] = &[
                $( (<$type as Disturb>::NAME, <$type as Disturb>::UNBUDGETED) ),*
            ];

            pub const fn name(&self) -> &'static str {
                match self { $( Self::$variant(_) => <$type as Disturb>::NAME ),* }
            }

            /// The names of the kinds that need more than one node.
            pub const AMONG_NODES: &[(&str, bool)] = &[
                $( (<$type as Disturb>::NAME, <$type as Disturb>::AMONG_NODES) ),*
            ];

            /// A fault of the kind called `name`.
            pub fn draw(name: &str, chance: &mut Chance, plan: &Plan) -> Option<Self> {
                $( if name == <$type as Disturb>::NAME {
                    return Some(Self::$variant(Disturb::draw(chance, plan)));
                } )*
                None
            }

            fn print(&self, line: &mut Line) {
                match self { $( Self::$variant(fault) => fault.print(line) ),* }
            }

            fn parse(name: &str, fields: &mut Fields) -> Result<Self, String> {
                $( if name == <$type as Disturb>::NAME {
                    return Item::parse(fields).map(Self::$variant);
                } )*
                Err(format!("fault {name:?} is not known"))
            }
        }
    };
}

kinds! {
    Crash(crash::Crash),
    PowerLoss(power_loss::PowerLoss),
    Restart(restart::Restart),
    Pause(pause::Pause),
    Cut(cut::Cut),
    SlowLink(slow_link::SlowLink),
    Reset(reset::Reset),
    LoseReplies(lose_replies::LoseReplies),
    DiskSlow(disk_slow::DiskSlow),
    DiskStuck(disk_stuck::DiskStuck),
    SyncFails(sync_fails::SyncFails),
    DiskFull(disk_full::DiskFull),
    BitFlip(bit_flip::BitFlip),
    ClockJump(clock_jump::ClockJump),
    ReadFails(read_fails::ReadFails),
    WriteFails(write_fails::WriteFails),
    CutPeers(cut_peers::CutPeers),
    SlowPeers(slow_peers::SlowPeers),
    ResetPeers(reset_peers::ResetPeers),
    RollingRestart(rolling_restart::RollingRestart),
    Blackout(blackout::Blackout),
    Wipe(wipe::Wipe),
    Reassign(reassign::Reassign),
    Decommission(decommission::Decommission),
    Maintenance(maintenance::Maintenance),
    RemoveVoter(remove_voter::RemoveVoter),
    AddVoter(add_voter::AddVoter),
    ElectPreferred(elect_preferred::ElectPreferred),
    ElectUnclean(elect_unclean::ElectUnclean),
    AddPartitions(add_partitions::AddPartitions),
    JournalGone(journal_gone::JournalGone),
    MisdirectedWrite(misdirected_write::MisdirectedWrite),
}

impl Kind {
    /// Whether an operator asks for it, as humans do: by the clients' way, with an answer.
    pub const fn is_operators(&self) -> bool {
        matches!(
            self,
            Self::Reassign(_)
                | Self::Decommission(_)
                | Self::Maintenance(_)
                | Self::RemoveVoter(_)
                | Self::AddVoter(_)
                | Self::ElectPreferred(_)
                | Self::ElectUnclean(_)
                | Self::AddPartitions(_)
        )
    }
}

impl Item for Fault {
    fn print(&self, line: &mut Line) {
        line.word(self.kind.name());
        line.put("at", &self.at);
        line.put_unless("node", &self.node, Some(1));
        self.kind.print(line);
    }

    fn parse(fields: &mut Fields) -> Result<Self, String> {
        let name = fields.word()?;
        let (at, node) = (fields.take("at")?, fields.take_or("node", Some(1))?);
        Ok(Self { at, node, kind: Kind::parse(&name, fields)? })
    }
}

/// A time that is mostly short and now and then long, in whole milliseconds.
pub(crate) fn draw_while(chance: &mut Chance) -> Duration {
    let scale = *chance.pick(&[10, 100, 1000, 4000]);
    Duration::from_millis(1 + chance.below(scale))
}
