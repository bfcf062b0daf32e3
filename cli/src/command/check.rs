//! `quorate check`: one word for monitors, in their forms. Exit codes are those of Nagios: 0 well,
//! 1 degraded, 2 something is not served, 3 nobody knows.

use super::Context;
use super::cluster::picture::Picture;
use crate::args::CheckForm;
use crate::failure::{FAILED, Failure};

const CRITICAL: u8 = 2;

struct Counts {
    nodes: usize,
    fenced: usize,
    partitions: usize,
    without_leader: usize,
    below_minimum: usize,
    under_replicated: usize,
    has_controller: bool,
}

pub(crate) async fn run(context: &Context, form: CheckForm) -> Result<(), Failure> {
    let client = context.connect().await?;
    let picture = Picture::of(&client).await?;
    let counts = counts(&picture);
    let exit = counts.exit();
    let word = ["OK", "WARNING", "CRITICAL"][usize::from(exit)];
    let output = context.output;
    if output.json || form == CheckForm::Json {
        output.json(&serde_json::json!({
            "status": word,
            "nodes": counts.nodes,
            "nodes_fenced": counts.fenced,
            "partitions": counts.partitions,
            "partitions_without_leader": counts.without_leader,
            "partitions_below_minimum": counts.below_minimum,
            "partitions_under_replicated": counts.under_replicated,
            "has_controller": counts.has_controller,
        }))?;
    } else {
        match form {
            CheckForm::Prometheus => {
                for (name, value) in counts.named() {
                    output.line(&format!("# TYPE quorate_check_{name} gauge"))?;
                    output.line(&format!("quorate_check_{name} {value}"))?;
                }
            }
            CheckForm::Nagios => {
                let named = counts.named();
                let figures: Vec<String> =
                    named.iter().map(|(name, value)| format!("{name}={value}")).collect();
                output.line(&format!(
                    "QUORATE {word} - {}|{}",
                    counts.words(),
                    figures.join(" ")
                ))?;
            }
            CheckForm::Text | CheckForm::Json => {
                output.line(&format!("{word}: {}", counts.words()))?;
            }
        }
    }
    match exit {
        0 => Ok(()),
        exit => Err(Failure { exit, ..Failure::new(format!("the cluster is {word}")) }),
    }
}

fn counts(picture: &Picture) -> Counts {
    let ailing: Vec<_> = picture.ailing().collect();
    let quorum = picture.quorum.as_ref();
    Counts {
        nodes: picture.cluster.nodes.len(),
        fenced: picture.cluster.nodes.values().filter(|node| node.fenced).count(),
        partitions: picture.topics.values().map(|topic| topic.partitions.len()).sum(),
        without_leader: ailing.iter().filter(|ailing| !ailing.has_leader()).count(),
        below_minimum: ailing.iter().filter(|ailing| ailing.is_below_least).count(),
        under_replicated: ailing.iter().filter(|ailing| !ailing.missing.is_empty()).count(),
        has_controller: quorum.is_none_or(|quorum| quorum.leader.is_some()),
    }
}

impl Counts {
    fn exit(&self) -> u8 {
        if self.without_leader > 0 || self.below_minimum > 0 || !self.has_controller {
            CRITICAL
        } else if self.under_replicated > 0 || self.fenced > 0 {
            FAILED
        } else {
            0
        }
    }

    fn named(&self) -> [(&'static str, usize); 7] {
        [
            ("nodes", self.nodes),
            ("nodes_fenced", self.fenced),
            ("partitions", self.partitions),
            ("partitions_without_leader", self.without_leader),
            ("partitions_below_minimum", self.below_minimum),
            ("partitions_under_replicated", self.under_replicated),
            ("has_controller", usize::from(self.has_controller)),
        ]
    }

    fn words(&self) -> String {
        format!(
            "{} of {} nodes, {} partitions, {} without leader, {} below minimum, {} \
             under-replicated",
            self.nodes - self.fenced,
            self.nodes,
            self.partitions,
            self.without_leader,
            self.below_minimum,
            self.under_replicated
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_served_is_worse_than_what_is_degraded() {
        let well = Counts {
            nodes: 3,
            fenced: 0,
            partitions: 10,
            without_leader: 0,
            below_minimum: 0,
            under_replicated: 0,
            has_controller: true,
        };
        assert_eq!(well.exit(), 0);
        let degraded = Counts { fenced: 1, under_replicated: 4, ..well };
        assert_eq!(degraded.exit(), FAILED);
        assert_eq!(Counts { below_minimum: 1, ..degraded }.exit(), CRITICAL);
    }
}
