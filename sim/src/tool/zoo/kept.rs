//! What hunts have found out, in a file: a line a campaign, the last one counts. So a hunt can be
//! interrupted, and goes on where it was.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use super::Outcome;
use crate::plan::draw::Only;
use crate::run::World;
use crate::zoo::Place;

/// # Errors
///
/// If the file is there and cannot be read, or a line is not one of ours.
pub(super) fn read(file: &Path) -> Result<Vec<Outcome>, String> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", file.display())),
    };
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = || format!("{}: line {number} is not understood", file.display());
        let outcome = parse(line).ok_or_else(wrong)?;
        outcomes.retain(|before| {
            (&before.slug, before.place, before.campaign)
                != (&outcome.slug, outcome.place, outcome.campaign)
        });
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn parse(line: &str) -> Option<Outcome> {
    let mut words = line.splitn(6, ' ');
    let slug = words.next()?.to_owned();
    let world = match words.next()? {
        "cores" => World::Cores,
        "nodes" => World::Nodes,
        "quorum" => World::Quorum,
        _ => return None,
    };
    // `3`, or `3+transactions`.
    let mut place = words.next()?.split('+');
    let nodes = place.next()?.parse().ok()?;
    let only = match place.next() {
        None => None,
        Some(name) => Some(*Only::ALL.iter().find(|only| only.name() == name)?),
    };
    let campaign = words.next()?.parse().ok()?;
    let seeds = words.next()?.parse().ok()?;
    let sentence = words.next().unwrap_or_default().to_owned();
    Some(Outcome { slug, place: Place { world, nodes, only }, campaign, seeds, sentence })
}

pub(super) fn append(file: &Path, outcome: &Outcome) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    let Outcome { slug, place, campaign, seeds, sentence } = outcome;
    let (world, nodes) = (place.world.name(), place.nodes);
    let only = place.only.map(|only| format!("+{}", only.name())).unwrap_or_default();
    writeln!(
        file,
        "{slug} {world} {nodes}{only} {campaign} {seeds} {}",
        sentence.replace('\n', " ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_campaign_counts() {
        let file = std::env::temp_dir().join(format!("zoo-kept-{}", std::process::id()));
        let only = Some(Only::Transactions);
        let place = Place { world: World::Nodes, nodes: 3, only };
        let outcome = |campaign, seeds, sentence: &str| Outcome {
            slug: "a-bug".to_owned(),
            place,
            campaign,
            seeds,
            sentence: sentence.to_owned(),
        };
        let told = [outcome(0, 40, ""), outcome(1, 7, "panic x: y z"), outcome(0, 55, "late: it")];
        for outcome in &told {
            append(&file, outcome).expect("a folder for what passes");
        }
        let kept = read(&file);
        let _ = fs::remove_file(&file);
        assert_eq!(kept, Ok(vec![told[1].clone(), told[2].clone()]));
        assert_eq!(read(Path::new("/nowhere/zoo")), Ok(Vec::new()));
        assert_eq!(parse("a-bug somewhere 3 0 1"), None);
    }
}
