//! Nothing is read that was never written there, with exactly those bytes; nothing is read that
//! surely failed.

use super::{Evidence, Violation, blame};
use crate::history::{End, Seen};

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    for reading in evidence.reads() {
        for seen in reading.records {
            if let Some((property, sentence)) = judge(evidence, reading.partition, seen) {
                let sentence = format!("operation {} read {sentence}", reading.id.0);
                blame(violations, property, reading.partition, sentence);
            }
        }
    }
}

fn judge(
    evidence: &Evidence<'_>,
    partition: crate::history::Partition,
    seen: &Seen,
) -> Option<(&'static str, String)> {
    let offset = seen.offset;
    let Some(value) = seen.value else {
        return Some(("invented", format!("bytes at {offset} that nobody wrote")));
    };
    let Some(writer) = evidence.writers.get(value) else {
        return Some(("invented", format!("{value:x} at {offset}, which nobody wrote")));
    };
    let operation = &evidence.history.operations[writer.0];
    if operation.call.partition() != partition {
        let there = operation.call.partition();
        return Some(("invented", format!("{value:x} at {offset}, which belongs to {there}")));
    }
    if operation.end == End::Failed {
        return Some(("G1a", format!("{value:x} at {offset}, whose append failed")));
    }
    None
}
