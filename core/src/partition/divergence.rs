//! Where two replicas' logs part: a pure comparison of their leader epochs. KIP-101, KIP-279.

use super::message::Lead;
use super::recovered::Recovered;
use crate::id::{LeaderEpoch, Offset};
use crate::mutant;

/// What a follower learns from its leader's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// Below this, its log is the leader's; at or above it nothing is.
    At(Offset),
    /// No record is known to be common.
    Everywhere,
    /// The answer does not reach back far enough: ask about this epoch.
    Older(LeaderEpoch),
}

/// Where `log` parts from the leader's that `lead` describes: at the end, in either log, of the
/// largest epoch that both have, since an epoch has one leader, and what it wrote is one sequence.
pub fn parting(log: &Recovered, lead: &Lead) -> Parting {
    if log.log_start == log.end {
        return Parting::At(log.end);
    }
    // zoo A2: equal offsets taken for equal records.
    if mutant!("two-lineages-after-power-loss") {
        return Parting::At(log.end.min(lead.end));
    }
    let theirs = &lead.epochs;
    let end_of = |place: usize, epochs: &[(LeaderEpoch, Offset)], end: Offset| {
        epochs.get(place + 1).map_or(end, |&(_, start)| start)
    };
    // zoo A3: the end of a smaller epoch taken for the end of the one that was asked for.
    if mutant!("epoch-answer-skips-gap") {
        return Parting::At(log.end.min(lead.epochs_end));
    }
    let own = log.leader_epochs.starts();
    for (place, &(epoch, _)) in own.iter().enumerate().rev() {
        if let Ok(there) = theirs.binary_search_by_key(&epoch, |&(epoch, _)| epoch) {
            let own_end = end_of(place, own, log.end);
            return Parting::At(own_end.min(end_of(there, theirs, lead.epochs_end)));
        }
        if lead.is_cut && theirs.first().is_some_and(|&(oldest, _)| epoch < oldest) {
            return Parting::Older(epoch);
        }
    }
    Parting::Everywhere
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeEpoch;

    fn log(starts: &[(i32, i64)], end: i64) -> Recovered {
        let mut log = Recovered { end: Offset(end), ..Recovered::default() };
        for &(epoch, start) in starts {
            log.leader_epochs.note(LeaderEpoch(epoch), Offset(start));
        }
        log
    }

    /// What a leader with these epochs answers about the newest epoch of `follower`.
    fn asked(starts: &[(i32, i64)], end: i64, follower: &Recovered, epochs_max: usize) -> Parting {
        let mut last = follower.leader_epochs.latest();
        loop {
            let below = starts.partition_point(|&(epoch, _)| Some(LeaderEpoch(epoch)) <= last);
            let first = below.saturating_sub(epochs_max);
            let lead = Lead {
                leader_epoch: LeaderEpoch(100),
                node_epoch: NodeEpoch(1),
                attempt: 1,
                epochs: starts[first..below]
                    .iter()
                    .map(|&(e, o)| (LeaderEpoch(e), Offset(o)))
                    .collect(),
                epochs_end: Offset(starts.get(below).map_or(end, |&(_, start)| start)),
                is_cut: first > 0,
                log_start: Offset(0),
                end: Offset(end),
                high_watermark: Offset(0),
            };
            match parting(follower, &lead) {
                Parting::Older(epoch) => last = Some(epoch),
                found => return found,
            }
        }
    }

    #[test]
    fn logs_part_where_the_largest_common_epoch_ends() {
        type Log<'a> = (&'a [(i32, i64)], i64);
        let cases: [(Log<'_>, Log<'_>, Parting); 8] = [
            ((&[(0, 0)], 10), (&[(0, 0)], 7), Parting::At(Offset(7))),
            ((&[(0, 0)], 7), (&[(0, 0)], 10), Parting::At(Offset(7))),
            ((&[(0, 0), (2, 5)], 9), (&[(0, 0), (1, 4)], 8), Parting::At(Offset(4))),
            ((&[(0, 0), (2, 5)], 9), (&[(0, 0), (1, 7)], 8), Parting::At(Offset(5))),
            ((&[(0, 0), (1, 4)], 9), (&[(0, 0), (2, 5)], 8), Parting::At(Offset(4))),
            ((&[(3, 0)], 9), (&[(2, 0)], 8), Parting::Everywhere),
            ((&[], 0), (&[(2, 0)], 8), Parting::Everywhere),
            ((&[(3, 0)], 9), (&[], 0), Parting::At(Offset(0))),
        ];
        for ((theirs, their_end), (own, own_end), expected) in cases {
            let follower = log(own, own_end);
            for epochs_max in [1, 2, 10] {
                let found = asked(theirs, their_end, &follower, epochs_max);
                assert_eq!(found, expected, "{theirs:?} {own:?} {epochs_max}");
            }
        }
    }

    #[test]
    fn a_short_answer_is_asked_about_again() {
        let theirs = (0..10).map(|place| (place * 2, i64::from(place) * 10)).collect::<Vec<_>>();
        let follower = log(&[(0, 0), (2, 10), (5, 15), (7, 17), (9, 19)], 25);
        for epochs_max in [1, 2, 3, 100] {
            let found = asked(&theirs, 100, &follower, epochs_max);
            assert_eq!(found, Parting::At(Offset(15)), "{epochs_max}");
        }
    }
}
