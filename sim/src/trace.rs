//! The trace of a run: each event in order, hashed as it happens, printed when somebody looks.
//!
//! One run lives on one thread, so the trace is the thread's. Two runs of one seed must give the
//! same trace, event by event; that is what `--twice` compares.

use std::cell::RefCell;
use std::collections::BTreeMap;
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
    /// Kept as they are printed.
    Lines(Vec<String>),
    /// Kept as they are, and asides too.
    Events(Kept),
}

/// What is kept of a run that somebody will look at.
#[derive(Debug, Default)]
pub struct Kept {
    pub events: Vec<Event>,
    pub asides: Vec<(Moment, &'static str, Aside)>,
    /// The last that was said of a node's copy of a partition.
    views: BTreeMap<(&'static str, String), Aside>,
}

/// When something was, and which event came last before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub at: Duration,
    pub ordinal: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub moment: Moment,
    pub mark: Mark,
    /// A node or a client.
    pub who: String,
    pub text: String,
}

/// What can be seen of the system from outside, beside the events: no part of the hash, so a run
/// that nobody looks at is the same run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aside {
    /// A node's copy of a partition.
    Copy { partition: String, leads: bool, leader_epoch: i32, log_start: i64, high_watermark: i64 },
    /// A node leads the metadata.
    Controls { term: u64 },
    /// Something was seen to be wrong.
    Blames { property: &'static str },
}

/// What is left of a trace.
#[derive(Debug, Default)]
pub struct Finished {
    pub hash: u64,
    pub events: u64,
    /// Events by mark, in the order of `Mark`.
    pub counts: [u64; 10],
    pub lines: Vec<String>,
    pub kept: Kept,
    pub names: Names,
}

/// What nodes call by an id that says nothing, and plans by a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<(String, String)>);

impl Names {
    /// A text with the plan's names of partitions.
    pub fn named(&self, text: String) -> String {
        let known = self.0.iter().filter(|(id, _)| text.contains(id.as_str()));
        let known: Vec<_> = known.collect();
        known.into_iter().fold(text, |text, (id, name)| text.replace(id.as_str(), name))
    }
}

#[derive(Default)]
struct Trace {
    finished: Finished,
    now: Duration,
    sink: Sink,
    /// What happens is no part of the run any more.
    is_closed: bool,
}

thread_local! {
    static TRACE: RefCell<Trace> = RefCell::default();
}

impl Mark {
    pub const fn sign(self) -> char {
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
    TRACE.set(Trace { finished, sink, ..Trace::default() });
}

/// The run is over: what follows clears away after it, and is no event.
pub fn close() {
    TRACE.with_borrow_mut(|trace| trace.is_closed = true);
}

/// Ends the thread's trace.
pub fn end() -> Finished {
    let mut trace = TRACE.take();
    match trace.sink {
        Sink::Lines(lines) => trace.finished.lines = lines,
        Sink::Events(kept) => trace.finished.kept = kept,
        Sink::Nowhere | Sink::Print { .. } => {}
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
        if trace.is_closed {
            return;
        }
        trace.now = now;
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
            Sink::Lines(_) | Sink::Events(_) => true,
        };
        if let Sink::Events(kept) = &mut trace.sink {
            let moment = Moment { at: now, ordinal: finished.events };
            let (who, text) = (who.to_owned(), finished.names.named(text().to_string()));
            kept.events.push(Event { moment, mark, who, text });
        } else if wanted {
            let moment = Moment { at: now, ordinal: finished.events };
            let text = finished.names.named(text().to_string());
            let line = line_of(moment, mark, who, &text);
            match &mut trace.sink {
                Sink::Lines(lines) => lines.push(line),
                // A reader who closed the pipe has seen enough.
                _ => drop(writeln!(std::io::stdout().lock(), "{line}")),
            }
        }
    });
}

/// From here on, partitions of this topic are printed by the topic's name.
pub fn name_topic(id: &impl fmt::Display, name: &str) {
    TRACE.with_borrow_mut(|trace| {
        let (id, name) = (format!("{id}/"), format!("{name}-"));
        let names = &mut trace.finished.names.0;
        if !names.iter().any(|(known, _)| *known == id) {
            names.push((id, name));
        }
    });
}

/// Says something that is no event, on `who`, if somebody will look at the run.
pub fn aside(who: &'static str, what: impl FnOnce() -> Aside) {
    aside_at(Duration::ZERO, who, what);
}

/// As `aside`, of what was at `at` or at the last event, whichever is later.
pub fn aside_at(at: Duration, who: &'static str, what: impl FnOnce() -> Aside) {
    TRACE.with_borrow_mut(|trace| {
        let moment = Moment { at: at.max(trace.now), ordinal: trace.finished.events };
        if let Sink::Events(kept) = &mut trace.sink {
            let what = what();
            let about = match &what {
                Aside::Copy { partition, .. } => partition.clone(),
                Aside::Controls { .. } => String::from("the quorum"),
                Aside::Blames { property } => format!("{property}!"),
            };
            let before = kept.views.insert((who, about), what.clone());
            if before.as_ref() != Some(&what) {
                kept.asides.push((moment, who, what));
            }
        }
    });
}

/// An event as it is printed.
pub fn line(event: &Event) -> String {
    line_of(event.moment, event.mark, &event.who, &event.text)
}

fn line_of(moment: Moment, mark: Mark, who: &str, text: &impl fmt::Display) -> String {
    let (stamp, sign) = (stamp(moment.at, moment.ordinal), mark.sign());
    format!("{stamp} {who:<3} {sign} {text}")
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

    #[test]
    fn partitions_have_their_topics_name_once_it_is_known() {
        begin(Sink::Lines(Vec::new()));
        let tell = || event(Duration::ZERO, Mark::Segment, "n1", [0; 3], || "of 0a-1b/3: 5");
        tell();
        name_topic(&"0a-1b", "t1");
        name_topic(&"0a-1b", "t1");
        tell();
        let (ended, unknown) = (end(), "of 0c/3".to_owned());
        let texts = ended.lines.iter().map(|line| line.split(" · ").nth(1).expect("a text"));
        assert_eq!(texts.collect::<Vec<_>>(), ["of 0a-1b/3: 5", "of t1-3: 5"]);
        assert_eq!(ended.names.named(unknown.clone()), unknown);
    }

    #[test]
    fn looking_changes_nothing_and_sees_each_change_once() {
        let run = |sink| {
            begin(sink);
            for term in [1, 1, 2] {
                event(Duration::from_micros(term), Mark::Node, "n1", [term, 0, 0], || "x");
                aside("n1", || Aside::Controls { term });
            }
            end()
        };
        let (seen, unseen) = (run(Sink::Events(Kept::default())), run(Sink::Nowhere));
        assert_eq!((seen.hash, seen.events), (unseen.hash, unseen.events));
        assert_eq!(seen.kept.events.len(), 3);
        let (at, ordinal) = (Duration::from_micros(2), 3);
        let last = (Moment { at, ordinal }, "n1", Aside::Controls { term: 2 });
        assert_eq!(seen.kept.asides.len(), 2);
        assert_eq!(seen.kept.asides[1], last);
    }
}
