//! The trace of a run: each event in order, hashed as it happens, printed when somebody looks.
//!
//! One run lives on one thread, so the trace is the thread's. Two runs of one seed must give the
//! same trace, event by event; that is what `--twice` compares.

use std::cell::RefCell;
use std::fmt;
use std::io::Write as _;
use std::time::Duration;

/// What kind of event, and how it is marked in the printed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// Something the simulator does to the system.
    Fault,
    /// A node starts, is ready, stops.
    Node,
    /// A client's operation begins.
    Invoke,
    /// A client's operation ends.
    Complete,
    /// A segment arrives.
    Segment,
    /// A connection begins or ends.
    Connection,
    /// The disk did something.
    Disk,
    /// A timer fires.
    Timer,
    /// A machine steps.
    Step,
    /// The run as a whole.
    Run,
}

/// Where printed events go.
#[derive(Debug, Default)]
pub enum Sink {
    /// Only the hash is wanted.
    #[default]
    Nowhere,
    /// To standard output; all events, or only changes of state.
    Print { all: bool },
    /// Kept.
    Lines(Vec<String>),
}

/// What is left of a trace.
#[derive(Debug, Default)]
pub struct Finished {
    pub hash: u64,
    pub events: u64,
    /// Events by mark, in the order of `Mark`.
    pub counts: [u64; 10],
    pub lines: Vec<String>,
}

#[derive(Default)]
struct Trace {
    finished: Finished,
    sink: Sink,
}

thread_local! {
    static TRACE: RefCell<Trace> = RefCell::default();
}

impl Mark {
    const fn sign(self) -> char {
        match self {
            Self::Fault => '✗',
            Self::Node => '★',
            Self::Invoke => '→',
            Self::Complete => '←',
            Self::Segment => '·',
            Self::Connection => '⇄',
            Self::Disk => '▪',
            Self::Timer => '◷',
            Self::Step => '⋯',
            Self::Run => '■',
        }
    }

    /// Whether it is worth a line for a reader who does not look for a difference.
    const fn is_change(self) -> bool {
        !matches!(self, Self::Segment | Self::Disk | Self::Timer | Self::Step)
    }
}

/// Begins the thread's trace anew.
pub fn begin(sink: Sink) {
    let finished = Finished { hash: 0x243f_6a88_85a3_08d3, ..Finished::default() };
    TRACE.set(Trace { finished, sink });
}

/// Ends the thread's trace.
pub fn end() -> Finished {
    let mut trace = TRACE.take();
    if let Sink::Lines(lines) = trace.sink {
        trace.finished.lines = lines;
    }
    trace.finished
}

/// Records an event at `now` since the start of the run, on `who` (a node or a client), with up to
/// three numbers that say what happened; `text` says it to people and is only called for them.
pub fn event<T: fmt::Display>(
    now: Duration,
    mark: Mark,
    who: &str,
    numbers: [u64; 3],
    text: impl FnOnce() -> T,
) {
    TRACE.with_borrow_mut(|trace| {
        let finished = &mut trace.finished;
        finished.events += 1;
        finished.counts[mark as usize] += 1;
        let mut hash = mix(finished.hash ^ (mark as u64), now.as_nanos() as u64);
        for byte in who.bytes() {
            hash = hash.rotate_left(8) ^ u64::from(byte);
        }
        finished.hash = numbers.into_iter().fold(hash, mix);
        let wanted = match trace.sink {
            Sink::Nowhere => false,
            Sink::Print { all } => all || mark.is_change(),
            Sink::Lines(_) => true,
        };
        if wanted {
            let (stamp, sign) = (stamp(now, finished.events), mark.sign());
            let line = format!("{stamp} {who:<3} {sign} {}", text());
            match &mut trace.sink {
                Sink::Lines(lines) => lines.push(line),
                // A reader who closed the pipe has seen enough.
                _ => drop(writeln!(std::io::stdout().lock(), "{line}")),
            }
        }
    });
}

/// The simulated time, and the place among the events.
pub fn stamp(now: Duration, ordinal: u64) -> String {
    let (seconds, micros) = (now.as_secs(), now.subsec_micros());
    format!("[{seconds:>3}.{micros:06}s #{ordinal:<6}]")
}

/// How many events there were so far.
pub fn ordinal() -> u64 {
    TRACE.with_borrow(|trace| trace.finished.events)
}

/// One round of a 64-bit finalizer (Stafford's variant 13 of MurmurHash3's).
fn mix(hash: u64, value: u64) -> u64 {
    let mut mixed = hash ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_sees_order_and_numbers() {
        let run = |events: &[(u64, u64)]| {
            begin(Sink::Lines(Vec::new()));
            for (at, number) in events {
                let at = Duration::from_micros(*at);
                event(at, Mark::Disk, "n1", [*number, 0, 0], || format!("sync {number}"));
            }
            end()
        };
        let (one, same) = (run(&[(1, 5), (2, 6)]), run(&[(1, 5), (2, 6)]));
        assert_eq!((one.hash, &one.lines), (same.hash, &same.lines));
        assert_ne!(one.hash, run(&[(1, 6), (2, 5)]).hash);
        assert_eq!(one.lines[1], "[  0.000002s #2     ] n1  ▪ sync 6");
    }
}
