//! `quorate consume --group`: as a member of a group. By default an offset is stored only after
//! the record has been written out, so a record may be printed twice and is never passed over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::Offset;
use quorate_core::time::Instant;
use quorate_net::client::{
    Client, Error, FetchOptions, GroupConfig, GroupConsumer, OnReset, Polled, Position,
    TopicPartition,
};
use quorate_net::kafka::error::Code;

use super::{Printer, STEP, parse_position};
use crate::args::ConsumeArgs;
use crate::command::Context;
use crate::failure::Failure;
use crate::nearest::nearest;
use crate::output::human::parse_duration;

/// When offsets are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commit {
    /// After the records before them have been written out.
    After,
    /// At intervals, of what has been written out by then.
    Auto(Duration),
    Never,
}

fn parse_commit(text: &str) -> Result<Commit, Failure> {
    let failure = || Failure::usage(format!("`--commit {text}` is not known"));
    match text {
        "after" => Ok(Commit::After),
        "none" => Ok(Commit::Never),
        "auto" => Ok(Commit::Auto(Duration::from_secs(5))),
        text => match text.strip_prefix("auto=") {
            Some(time) => match parse_duration(time) {
                Ok(time) if time > Duration::ZERO => Ok(Commit::Auto(time)),
                Ok(_) => Err(failure().hint("the time between two commits is not zero")),
                Err(wrong) => Err(failure().hint(wrong)),
            },
            None => Err(match nearest(text, ["after", "auto", "none"]) {
                Some(known) => failure().hint(format!("did you mean {known}?")),
                None => failure().hint("after, auto=5s, or none"),
            }),
        },
    }
}

/// A member, and what it has yet to commit.
struct Session {
    member: GroupConsumer,
    commit: Commit,
    /// The next offset of each partition with records that were printed since the last commit.
    done: BTreeMap<TopicPartition, Offset>,
    committed_at: Instant,
}

pub(super) async fn run(
    context: &Context,
    client: &Client,
    args: &ConsumeArgs,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let group = args.group.as_deref().unwrap_or_default();
    let on_reset = match args.offset.as_deref().map(|text| parse_position(text, context)) {
        None => OnReset::Beginning,
        Some(position) => match position? {
            Position::Beginning => OnReset::Beginning,
            Position::End => OnReset::End,
            _ => {
                let failure = Failure::usage("a group begins at its own offsets");
                return Err(
                    failure.hint("--offset says where it begins without any: beginning or end")
                );
            }
        },
    };
    let fetch = FetchOptions { isolation: args.isolation.of(), ..FetchOptions::default() };
    let config = GroupConfig { on_reset, fetch, ..GroupConfig::new(group, &[&args.topic]) };
    let mut session = Session {
        member: GroupConsumer::new(client, config),
        commit: parse_commit(&args.commit)?,
        done: BTreeMap::new(),
        committed_at: context.clock.now().monotonic,
    };
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let outcome = loop {
        if printer.is_full() || (args.exit && session.member.is_at_end()) {
            break Ok(());
        }
        let step = tokio::select! {
            biased;
            _ = &mut interrupted => break Ok(()),
            step = session.step(context, printer) => step,
        };
        if let Err(failure) = step {
            break Err(failure);
        }
    };
    // What was written out counts, also when something went wrong after it.
    let flushed = printer.flush();
    if flushed.is_ok() && session.commit != Commit::Never {
        session.store(context).await?;
    }
    let left = session.member.close().await;
    outcome?;
    flushed?;
    Ok(left?)
}

impl Session {
    /// One poll and what follows from it. What it printed and has not committed stays in `done`
    /// if it is dropped while it waits.
    async fn step(&mut self, context: &Context, printer: &mut Printer) -> Result<(), Failure> {
        match self.member.poll(STEP).await? {
            Polled::Nothing => printer.flush()?,
            Polled::Assigned(partitions) => {
                let (member, generation) = (self.member.member_id(), self.member.generation());
                tracing::info!(?partitions, member, ?generation, "joined");
            }
            Polled::Revoked { lost: true, .. } => {
                // Another member may have them already, and goes on from its own commits.
                self.done.clear();
                context.output.warn("the group went on without this member: records may repeat");
            }
            Polled::Revoked { lost: false, .. } => {
                printer.flush()?;
                if self.commit != Commit::Never {
                    self.store(context).await?;
                }
                self.done.clear();
            }
            Polled::Batches(batches) => {
                let next = printer.print(&batches, None)?;
                let place = (Arc::clone(&batches.topic), batches.partition);
                self.done.insert(place, next);
                printer.flush_if_watched()?;
            }
        }
        let now = context.clock.now().monotonic;
        match self.commit {
            Commit::Auto(every) if now.saturating_since(self.committed_at) < every => Ok(()),
            Commit::Never => Ok(()),
            Commit::After | Commit::Auto(_) if self.done.is_empty() => Ok(()),
            Commit::After | Commit::Auto(_) => {
                printer.flush()?;
                self.committed_at = now;
                self.store(context).await
            }
        }
    }

    async fn store(&mut self, context: &Context) -> Result<(), Failure> {
        let offsets: Vec<(Arc<str>, i32, Offset)> = self
            .done
            .iter()
            .map(|((topic, partition), offset)| (Arc::clone(topic), *partition, *offset))
            .collect();
        match self.member.commit(&offsets).await {
            Ok(()) => self.done.clear(),
            // The next poll says what is left of the membership.
            Err(error) if group_moved_on(&error) => {
                context.output.warn("the group moved on before a commit: records may repeat");
                self.done.clear();
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn group_moved_on(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(Code::RebalanceInProgress | Code::IllegalGeneration | Code::UnknownMemberId)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_read() {
        assert_eq!(parse_commit("after"), Ok(Commit::After));
        assert_eq!(parse_commit("auto=250ms"), Ok(Commit::Auto(Duration::from_millis(250))));
        assert_eq!(parse_commit("auto"), Ok(Commit::Auto(Duration::from_secs(5))));
        assert_eq!(parse_commit("none"), Ok(Commit::Never));
        for wrong in ["auto=0s", "auto=soon", "befor", "afer"] {
            assert!(parse_commit(wrong).is_err(), "{wrong}");
        }
    }
}
