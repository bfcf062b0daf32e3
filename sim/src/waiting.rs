//! Who waits when a run is over, by the operation that shows it: which one it is, since when it
//! waits, and how often it was sent. Whom it asks, a world says where it knows.
//!
//! All this stands in brackets at the end of the sentence, where it is no part of a symptom's
//! reason: the next run waits so with another operation.

use crate::history::{Call, History, Operation, Partition};

/// The sentence with the operation that waits, where it speaks of a client or a partition.
pub fn named(sentence: &str, history: &History) -> String {
    let what = match subject(sentence) {
        (Some(client), partition) => of_client(client, partition, history),
        (None, Some(partition)) => last(history, |it| it.call.partition() == partition),
        (None, None) => None,
    };
    match (what, sentence.strip_suffix(']')) {
        (None, _) => sentence.to_owned(),
        (Some(what), Some(before)) => format!("{before}; {what}]"),
        (Some(what), None) => format!("{sentence} [{what}]"),
    }
}

/// The client that it begins with and the partition that it names first, or the partition where
/// nobody answers.
fn subject(sentence: &str) -> (Option<u32>, Option<Partition>) {
    let told = sentence.split('[').next().unwrap_or_default();
    let mut words = told.split(|letter: char| letter.is_whitespace() || letter == ':');
    let first = words.next().unwrap_or_default();
    match first.strip_prefix('c').and_then(|number| number.parse().ok()) {
        Some(client) => (Some(client), words.find_map(partition)),
        None if told.contains("no leader") || told.contains("not served") => {
            (None, partition(first))
        }
        None => (None, None),
    }
}

fn partition(word: &str) -> Option<Partition> {
    let (topic, index) = word.strip_prefix('t')?.split_once('-')?;
    Some(Partition { topic: topic.parse().ok()?, index: index.parse().ok()? })
}

fn of_client(client: u32, partition: Option<Partition>, history: &History) -> Option<String> {
    let is_about = |it: &Operation| partition.is_none_or(|wanted| it.call.partition() == wanted);
    let own = last(history, |it| it.client == client && is_about(it));
    own.or_else(|| {
        let mut operations = history.groups.operations.iter().rev();
        let found = operations.find(|it| it.who.client == client && it.completed.is_none())?;
        let since = found.invoked.as_duration().as_secs_f64();
        Some(format!("{} {}, begun at {since:.6} s, has no answer", found.who, found.call))
    })
}

/// The last of these that has no answer, and what became of it.
fn last(history: &History, is_wanted: impl Fn(&Operation) -> bool) -> Option<String> {
    let operations = history.operations.iter().enumerate().rev();
    let mut open = operations.filter(|(_, it)| it.completed.is_none());
    let (place, found) = open.find(|(_, it)| is_wanted(it))?;
    let since = found.invoked.as_duration().as_secs_f64();
    let sent = match found.call {
        Call::Append { attempts, .. } if attempts > 1 => format!(", sent {attempts} times"),
        _ => String::new(),
    };
    let Operation { client, call, .. } = found;
    Some(format!(
        "operation {place} of c{client}, {call}, begun at {since:.6} s{sent}, has no answer"
    ))
}

#[cfg(test)]
mod tests {
    use quorate_core::time::Instant;

    use super::*;
    use crate::history::End;

    #[test]
    fn the_operation_that_waits_is_named() {
        let mut history = History::default();
        let at = |millis| Instant::ZERO + std::time::Duration::from_millis(millis);
        let read = |index| Call::Read { partition: Partition { topic: 0, index }, from: 7 };
        let answered = history.invoke(3, at(1), read(1));
        history.complete(answered, at(2), End::Failed);
        history.invoke(3, at(1500), read(1));
        history.invoke(3, at(1600), read(0));
        history.invoke(4, at(1700), read(1));
        let told = |sentence| named(sentence, &history);
        let own = "operation 1 of c3, read t0-1 from 7, begun at 1.500000 s, has no answer";
        assert_eq!(told("c3 got no answer on t0-1"), format!("c3 got no answer on t0-1 [{own}]"));
        assert_eq!(
            told("c3 got no answer on t0-1 [it asks n2]"),
            format!("c3 got no answer on t0-1 [it asks n2; {own}]")
        );
        // Whoever it is that waits for a partition.
        assert!(told("t0-1 has no leader").contains("operation 3 of c4"));
        let others = "t0-1 has copies that are not in sync";
        for nothing in ["n2 does not serve", "c5 cannot connect", "t1-0 has no leader", others] {
            assert_eq!(told(nothing), nothing);
        }
    }
}
