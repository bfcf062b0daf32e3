//! The steps of the quorum's specification in words, for whoever reads that one was refused. What
//! is of any length stands in brackets, where it is no part of a symptom's reason.

use std::fmt;

use super::{Action, Fact, Index, Member, Term, Voters};

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join { disk, term } => {
                let on_disk = of_disk(disk.term, disk.vote, disk.log.last());
                write!(f, "joins in term {term}, and {on_disk}")
            }
            Self::Found { voters } => write!(f, "founds a cluster of voters [{}]", names(voters)),
            Self::Follow { term } => write!(f, "goes to term {term}"),
            Self::Stand => f.write_str("stands for election"),
            Self::Vote { candidate } => write!(f, "votes for {candidate}"),
            Self::Lead => f.write_str("begins to lead"),
            Self::Write { voters: None } => f.write_str("writes an entry"),
            Self::Write { voters: Some(voters) } => {
                write!(f, "writes an entry that says who votes [{}]", names(voters))
            }
            Self::Cut { after } => write!(f, "cuts its log behind {after}"),
            Self::Take { through } => write!(f, "takes entries up to {through}"),
            Self::Install { through } => write!(f, "puts a snapshot up to {through} for its log"),
            Self::Persist { writes } => write!(f, "has its next {writes} writes on its disk"),
            Self::Restart { committed } => {
                write!(f, "begins another life, with {committed} as committed")
            }
            Self::Commit { through } => write!(f, "commits all up to {through}"),
            Self::Learn { through } => write!(f, "takes all up to {through} for committed"),
            Self::Apply { through } => write!(f, "applies all up to {through}"),
            Self::Resign => f.write_str("leads no more"),
            Self::Say(fact) => fact.fmt(f),
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Welcomes { candidate, term } => {
                write!(f, "would vote for {candidate} in term {term}")
            }
            Self::Asks { term, last: (of, index) } => {
                write!(f, "asks for votes in term {term}, with a log that ends at {index}@{of}")
            }
            Self::Grants { candidate, term } => write!(f, "votes for {candidate} in term {term}"),
            Self::Holds { term, through } => {
                write!(f, "says in term {term} that its disk has all up to {through}")
            }
            Self::Calls { member, term } => {
                write!(f, "has {member} stand for election behind term {term}")
            }
            Self::Speaks { term } => write!(f, "speaks in term {term}"),
            Self::Claims { member } => write!(f, "speaks as {member}"),
        }
    }
}

/// Entries are named by index and term, as members print them.
pub(super) fn of_disk(term: Term, vote: Option<Member>, (of, index): (Term, Index)) -> String {
    let vote = vote.map_or_else(|| "no vote".to_owned(), |member| format!("a vote for {member}"));
    format!("has on its disk term {term}, {vote}, and a log that ends at {index}@{of}")
}

pub(super) fn names(voters: &Voters) -> String {
    let names: Vec<String> = voters.iter().map(ToString::to_string).collect();
    if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
}

/// Terms, each with a number of entries.
pub(super) fn of_entries(wrote: &[(Term, u64)]) -> String {
    let entries = wrote.iter().map(|(term, count)| format!("{count} of term {term}"));
    format!("has new entries in its log [{}]", entries.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::Memory;
    use super::*;

    #[test]
    fn a_step_reads_as_a_sentence() {
        let voters: Voters = [Member(1, 0), Member(2, 1)].into();
        let told = [
            (Action::Write { voters: None }, "writes an entry"),
            (
                Action::Write { voters: Some(voters) },
                "writes an entry that says who votes [n1, n2 (disk 1)]",
            ),
            (
                Action::Join { disk: Memory::default(), term: 3 },
                "joins in term 3, and has on its disk term 0, no vote, and a log that ends at 0@0",
            ),
            (
                Action::Say(Fact::Asks { term: 4, last: (3, 17) }),
                "asks for votes in term 4, with a log that ends at 17@3",
            ),
        ];
        for (action, words) in told {
            assert_eq!(action.to_string(), words);
        }
    }
}
