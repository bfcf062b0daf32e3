//! The steps of a partition's specification in words, for whoever reads that one was refused. What
//! is of any length stands in brackets, where it is no part of a symptom's reason.

use std::fmt;

use super::witness::End;
use super::{Action, Epoch, Fact, Node, Offset, Word};

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hear { version: (leader, partition) } => {
                write!(f, "hears the controller's word of e{leader} (partition epoch {partition})")
            }
            Self::Lead => f.write_str("begins to lead"),
            Self::Append { base, next } => write!(f, "appends offsets {base} to {next}"),
            Self::Take { base, next, epoch } => {
                write!(f, "takes offsets {base} to {next} of e{epoch}")
            }
            Self::Cut { to } => write!(f, "cuts its log back to {to}"),
            Self::Reset { to } => write!(f, "begins its log anew at {to}"),
            Self::Delete { to } => write!(f, "deletes what is below {to}"),
            Self::Persist { writes } => write!(f, "has its next {writes} writes on its disk"),
            Self::PersistCut { writes, end } => {
                write!(f, "has its next {writes} writes on its disk, and is cut there to {end}")
            }
            Self::Restart => f.write_str("begins another life"),
            Self::Vanish => f.write_str("loses its log"),
            Self::Commit { to, min } => {
                write!(f, "commits all below {to} (min.insync.replicas {min})")
            }
            Self::Learn { to } => write!(f, "takes all below {to} for committed"),
            Self::Say(fact) => fact.fmt(f),
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compares { to } => write!(f, "tells n{to} where its epochs begin"),
            Self::Holds { life, through } => {
                write!(f, "says in its life {life} that its disk has all below {through}")
            }
            Self::Proposes { members } => {
                let names = members.iter().map(|(node, life)| format!("n{node} in life {life}"));
                write!(f, "wants in sync [{}]", names.collect::<Vec<_>>().join(", "))
            }
            Self::Answers { base, committed: true } => {
                write!(f, "tells a producer that offset {base} is committed")
            }
            Self::Answers { base, committed: false } => {
                write!(f, "tells a producer that offset {base} is written")
            }
        }
    }
}

fn names<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> String {
    let names: Vec<String> = nodes.into_iter().map(|node| format!("n{node}")).collect();
    if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} leads in e{} (partition epoch {}), in sync {}, eligible {}, copies on {}",
            names(self.leader.as_slice()),
            self.leader_epoch,
            self.partition_epoch,
            names(&self.in_sync),
            names(&self.eligible),
            names(&self.replicas)
        )
    }
}

pub(super) fn of_disk((start, end, last): End) -> String {
    match last {
        Some(epoch) => format!("has offsets {start} to {end} on its disk, the last of e{epoch}"),
        None => format!("has nothing on its disk, from {start} to {end}"),
    }
}

pub(super) fn of_epochs(epochs: &[(Epoch, Offset)]) -> String {
    let names = epochs.iter().map(|(epoch, base)| format!("e{epoch} from {base}"));
    format!("has epochs that begin so [{}]", names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reads_as_a_sentence() {
        let members = [(1, 8), (3, 9)].into();
        let told = [
            (Action::Take { base: 6, next: 7, epoch: 13 }, "takes offsets 6 to 7 of e13"),
            (
                Action::Hear { version: (3, 5) },
                "hears the controller's word of e3 (partition epoch 5)",
            ),
            (Action::Say(Fact::Proposes { members }), "wants in sync [n1 in life 8, n3 in life 9]"),
        ];
        for (action, words) in told {
            assert_eq!(action.to_string(), words);
        }
        let word = Word { leader_epoch: 2, replicas: [1, 2].into(), ..Word::default() };
        assert_eq!(
            word.to_string(),
            "nobody leads in e2 (partition epoch 0), in sync nobody, eligible nobody, \
             copies on n1, n2"
        );
    }
}
