//! Campaigns against mutants, several seeds at once: the earliest campaign that is not over gets
//! the next job. A seed counts only if the same seed passes without the mutant.
#![allow(clippy::print_stdout)]
#![allow(clippy::disallowed_methods)]

use std::io::{self, Read as _};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::{Hunt, Outcome, kept};
use crate::run::Verdict;
use crate::zoo::{Mutant, Place};

/// Real time after which a run counts as hung, on a busy machine too.
const HUNG: Duration = Duration::from_secs(120);

/// Between the first seeds of two campaigns.
const APART: u64 = 100_000;

/// A campaign while it runs.
struct Campaign {
    slug: &'static str,
    place: Place,
    campaign: u64,
    /// The next seed, counted from the campaign's first.
    next: u64,
    running: u32,
    /// The first seed, counted so, that caught it, and what was said.
    caught: Option<(u64, String)>,
    told: bool,
}

impl Campaign {
    fn wants_more(&self, hunt: &Hunt) -> bool {
        let budget = hunt.budget_at(self.place);
        self.next < self.caught.as_ref().map_or(budget, |(seed, _)| *seed)
    }

    /// Nothing comes of it any more.
    fn is_vain(&self, hunt: &Hunt) -> bool {
        self.running == 0 && self.caught.is_none() && !self.wants_more(hunt)
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.slug, self.campaign) == (other.slug, other.campaign)
    }

    fn outcome(&self) -> Outcome {
        let (seeds, sentence) = match &self.caught {
            Some((seed, sentence)) => (seed + 1, sentence.clone()),
            None => (self.next, String::new()),
        };
        let (slug, place, campaign) = (self.slug.to_owned(), self.place, self.campaign);
        Outcome { slug, place, campaign, seeds, sentence }
    }
}

/// Hunts what is not in `kept` yet, or was not looked at so often in vain. All outcomes.
pub(super) fn all(mutants: &[&'static Mutant], kept: Vec<Outcome>, hunt: &Hunt) -> Vec<Outcome> {
    let campaigns = Mutex::new(plan(mutants, &kept, hunt));
    let outcomes = Mutex::new(kept);
    thread::scope(|scope| {
        for _ in 0..hunt.jobs() {
            scope.spawn(|| {
                loop {
                    let mut guard = campaigns.lock().expect("a lock");
                    let Some(place) = open(&guard, hunt) else {
                        let is_over = guard.iter().all(|campaign| campaign.running == 0);
                        drop(guard);
                        if is_over {
                            break;
                        }
                        // What is under way decides whether there is more to do.
                        thread::sleep(Duration::from_millis(50));
                        continue;
                    };
                    let campaign = &mut guard[place];
                    let seed = campaign.next;
                    campaign.next += 1;
                    campaign.running += 1;
                    let (slug, at, first) =
                        (campaign.slug, campaign.place, campaign.campaign * APART);
                    drop(guard);
                    let caught = catches(slug, at, first + seed);
                    let mut guard = campaigns.lock().expect("a lock");
                    let campaign = &mut guard[place];
                    campaign.running -= 1;
                    if let Some(sentence) = caught
                        && campaign.caught.as_ref().is_none_or(|(before, _)| seed < *before)
                    {
                        campaign.caught = Some((seed, sentence));
                    }
                    let is_over = campaign.running == 0 && !campaign.wants_more(hunt);
                    if is_over && !std::mem::replace(&mut campaign.told, true) {
                        let outcome = campaign.outcome();
                        drop(guard);
                        tell(&outcome, hunt);
                        outcomes.lock().expect("a lock").push(outcome);
                    }
                }
            });
        }
    });
    outcomes.into_inner().expect("a lock")
}

/// The earliest campaign that wants a seed now.
fn open(campaigns: &[Campaign], hunt: &Hunt) -> Option<usize> {
    (0..campaigns.len()).find(|place| {
        let campaign = &campaigns[*place];
        let mut before = campaigns[..*place].iter().filter(|before| before.is_like(campaign));
        campaign.wants_more(hunt) && (!hunt.anywhere || before.all(|before| before.is_vain(hunt)))
    })
}

/// The campaigns to be made. One that was caught is not hunted again.
fn plan(mutants: &[&'static Mutant], kept: &[Outcome], hunt: &Hunt) -> Vec<Campaign> {
    let mut campaigns = Vec::new();
    for mutant in mutants {
        for place in mutant.places.iter().filter(|place| hunt.goes_to(**place)) {
            for campaign in 0..hunt.campaigns {
                let before = kept.iter().find(|kept| {
                    kept.slug == mutant.slug && kept.place == *place && kept.campaign == campaign
                });
                let is_caught = kept.iter().any(|kept| {
                    let is_here = hunt.anywhere || kept.place == *place;
                    let is_it = kept.slug == mutant.slug && kept.campaign == campaign;
                    is_it && is_here && !kept.sentence.is_empty()
                });
                if is_caught {
                    continue;
                }
                // It goes on where the last hunt has given up.
                let next = before.map_or(0, |before| before.seeds);
                campaigns.push(Campaign {
                    slug: mutant.slug,
                    place: *place,
                    campaign,
                    next,
                    running: 0,
                    caught: None,
                    told: false,
                });
            }
        }
    }
    campaigns
}

fn tell(outcome: &Outcome, hunt: &Hunt) {
    if !hunt.is_quiet() {
        let (slug, place) = (&outcome.slug, outcome.place.to_string());
        match outcome.sentence.as_str() {
            "" => println!("{slug:<40} {place:<8} NOT caught in {} seeds", outcome.seeds),
            said => println!("{slug:<40} {place:<8} caught, {} seeds, {said}", outcome.seeds),
        }
    }
    if let Some(file) = &hunt.keep
        && let Err(error) = kept::append(file, outcome)
    {
        println!("{}: {error}", file.display());
    }
}

/// What was wrong with the mutant, and is not without it.
fn catches(slug: &str, place: Place, seed: u64) -> Option<String> {
    let sentence = match run_apart(Some(slug), place, seed) {
        Ok(sentence) => sentence?,
        Err(error) => {
            println!("cannot run seed {seed}: {error}");
            return None;
        }
    };
    match run_apart(None, place, seed) {
        Ok(None) => Some(sentence),
        Ok(Some(without)) => {
            println!("{place}, seed {seed}: without any mutant: {without}");
            None
        }
        Err(error) => {
            println!("cannot run seed {seed}: {error}");
            None
        }
    }
}

/// Runs a seed in a process of its own, since a planted bug may never come to an end. What was
/// wrong, in a sentence.
fn run_apart(slug: Option<&str>, place: Place, seed: u64) -> io::Result<Option<String>> {
    let mut command = Command::new(std::env::current_exe()?);
    let (seed, nodes) = (seed.to_string(), place.nodes.to_string());
    command.args(["run", "--world", place.world.name(), "--nodes", &nodes, "--seed", &seed]);
    if let Some(only) = place.only {
        command.args(["--only", only.name()]);
    }
    if let Some(slug) = slug {
        command.args(["--mutant", slug]);
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > HUNG {
            child.kill()?;
            child.wait()?;
            return Ok(Some(format!("hanging for {} s", HUNG.as_secs())));
        }
        thread::sleep(Duration::from_millis(5));
    };
    let mut text = String::new();
    child.stdout.take().map(|mut stdout| stdout.read_to_string(&mut text)).transpose()?;
    Ok(wrong(status.code(), &text))
}

/// What was wrong with a run, by its exit code and what it printed. One that never came to the
/// planted bug is inconclusive: it passed.
fn wrong(code: Option<i32>, text: &str) -> Option<String> {
    let said_nothing = [Verdict::Passed, Verdict::Inconclusive].map(Verdict::exit_code);
    if code.is_some_and(|code| said_nothing.iter().any(|nothing| i32::from(*nothing) == code)) {
        return None;
    }
    // After what the run did comes what was wrong with it.
    let wrong = text.lines().skip(2).find(|line| !line.starts_with("  faults:"));
    Some(wrong.unwrap_or("without a word").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_that_no_run_came_to_is_not_caught() {
        let text = "seed 1 in cores: passed; ...\n  7 operations: ...\n  the line was never passed";
        assert_eq!(wrong(Some(4), text), None);
        assert_eq!(wrong(Some(0), text), None);
        let text =
            "seed 1 in cores: safety violated; ...\n  7 operations: ...\n  faults: crash 1\n  lost";
        assert_eq!(wrong(Some(1), text).as_deref(), Some("lost"));
        assert_eq!(wrong(None, "").as_deref(), Some("without a word"), "killed");
    }
}
