//! A failure told in the order in which it came about: what struck, who was there and who led, and
//! the operations that show it. The page has everything; this is what one would point at.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{Draft, Picture, Wrong};
use crate::plan::Plan;
use crate::run::{Report, Verdict, World};

/// Lines of one failure, at most: what is nearest to its end counts.
const LINES_MAX: usize = 60;
/// Failures of one run that are named, at most: later ones often follow from the first.
const WRONGS_MAX: usize = 8;

/// One thing that happened.
#[derive(Debug)]
struct Line {
    /// Microseconds.
    at: u64,
    sign: char,
    who: String,
    text: String,
}

/// The story of a run that was watched (`Sink::Events`).
pub fn story(plan: &Plan, world: World, mutant: Option<&str>, report: &Report) -> String {
    let picture = Draft::new(plan, report).picture(plan, world, mutant, report);
    picture.story(report.verdict)
}

fn seconds(micros: u64) -> String {
    format!("{}.{:06}s", micros / 1_000_000, micros % 1_000_000)
}

impl Picture {
    fn story(&self, verdict: Verdict) -> String {
        let mut told = format!("{}: {verdict}", self.title);
        if let Some(mutant) = &self.mutant {
            let _ = write!(told, ", with {mutant} planted");
        }
        told.push('\n');
        if self.wrong.is_empty() {
            let _ =
                writeln!(told, "Nothing is wrong with this run, so there is nothing to explain.");
            return told;
        }
        told.push('\n');
        for wrong in self.wrong.iter().take(WRONGS_MAX) {
            let Wrong { property, place, sentence, .. } = wrong;
            let of = if place.is_empty() { String::new() } else { format!(" of {place}") };
            let _ = writeln!(told, "{property}{of}: {sentence}");
        }
        let more = self.wrong.len().saturating_sub(WRONGS_MAX);
        if more > 0 {
            let _ = writeln!(told, "{more} more things are wrong; `replay` names them.");
        }
        self.tell(&mut told);
        told
    }

    /// Those whose way is told: the first, and behind what a specification refused, what came of
    /// it.
    fn main(&self) -> &[Wrong] {
        let refusals = self.wrong.iter().take_while(|wrong| wrong.is_refusal()).count();
        &self.wrong[..self.wrong.len().min(refusals + 1)]
    }

    /// One timeline for all of them.
    fn tell(&self, told: &mut String) {
        let main = self.main();
        told.push('\n');
        let mut lines: Vec<Line> = main.iter().flat_map(|wrong| self.lines(wrong)).collect();
        // Causes were pushed before effects, and stay there.
        lines.sort_by_key(|line| line.at);
        let mut known = BTreeSet::new();
        lines.retain(|line| known.insert((line.at, line.who.clone(), line.text.clone())));
        let left_out = lines.len().saturating_sub(LINES_MAX);
        lines.drain(..left_out);
        lines.extend(main.iter().map(|wrong| self.seen(wrong)));
        // What shows it was there before it was seen.
        lines.sort_by_key(|line| line.at);
        if left_out > 0 {
            let _ = writeln!(told, "  {left_out} earlier lines are left out");
        }
        for Line { at, sign, who, text } in lines {
            let _ = writeln!(told, "{:>14}  {who:<3} {sign} {text}", seconds(at));
        }
        for Wrong { place, log, .. } in main.iter().filter(|wrong| !wrong.log.is_empty()) {
            let _ = writeln!(told, "  in {place} at the end:");
            log.iter().for_each(|batch| {
                let _ = writeln!(told, "    {batch}");
            });
        }
        let until = main.iter().map(|wrong| wrong.until).max().unwrap_or_default();
        let later = self.faults.iter().filter(|fault| fault.from > until).count();
        if later > 0 {
            let _ = writeln!(told, "  {later} later faults have no part in it");
        }
    }

    /// The line that says when it could be seen.
    fn seen(&self, wrong: &Wrong) -> Line {
        let Wrong { property, at, event, lane, until, .. } = wrong;
        let (at, text) = match property.as_str() {
            "liveness" => (*until, "still so at the end".to_owned()),
            _ if wrong.is_refusal() => {
                (*at, format!("makes the step that {property} refuses (#{event})"))
            }
            _ if at == until => (*at, format!("{property} is seen to be wrong (#{event})")),
            _ => (*until, format!("{property} is seen to be wrong in the end")),
        };
        Line { at, sign: '✘', who: self.name(*lane), text }
    }

    /// What happened until then, and has to do with it.
    fn lines(&self, wrong: &Wrong) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut say = |at: u64, sign: char, who: String, text: String| {
            if at <= wrong.until {
                lines.push(Line { at, sign, who, text });
            }
        };
        if let Some(healed) = self.healed {
            say(healed, '■', String::new(), "everything is healed".to_owned());
        }
        for fault in &self.faults {
            say(fault.from, '✗', self.name(fault.lane), fault.text.clone());
        }
        for life in self.lives.iter().filter(|life| life.lane >= 0) {
            if life.from > 0 {
                say(life.from, '★', self.name(life.lane), "starts again".to_owned());
            }
            if life.to < self.end {
                say(life.to, '★', self.name(life.lane), "is gone".to_owned());
            }
        }
        for band in &self.bands {
            let what = usize::try_from(band.partition).ok().map(|place| &self.partitions[place]);
            let matters = match what {
                Some(partition) => *partition == wrong.place || self.is_of(wrong, band.lane),
                None => true,
            };
            if matters {
                let what = what.map_or("the metadata", |partition| partition);
                let text = format!("leads {what} in epoch {}", band.epoch);
                say(band.from, '▲', self.name(band.lane), text);
            }
        }
        for &witness in &wrong.witnesses {
            let operation = &self.operations[witness];
            for step in &operation.steps {
                let text = match step.event {
                    0 => step.text.clone(),
                    event => format!("#{event} {}", step.text),
                };
                say(step.at, step.sign, self.name(operation.lane), text);
            }
        }
        lines
    }

    /// Whether the failure is that of the node in this lane.
    fn is_of(&self, wrong: &Wrong, lane: i32) -> bool {
        wrong.place == self.name(lane)
    }

    fn name(&self, lane: i32) -> String {
        let lane = usize::try_from(lane).ok().and_then(|lane| self.lanes.get(lane));
        lane.map_or_else(String::new, |lane| lane.name.clone())
    }
}
