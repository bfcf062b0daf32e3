//! The anomalies that Jepsen's checkers of queues and of Kafka know, by their names, and what
//! became of each: what looks for it here, under which name, or why nothing does yet.

/// One of Jepsen's anomalies.
#[derive(Clone, Copy, Debug)]
pub struct Anomaly {
    /// As Jepsen has it.
    pub name: &'static str,
    /// The properties that fail then; none if nothing looks for it.
    pub here: &'static [&'static str],
    /// Why it is so, or what differs.
    pub why: &'static str,
}

const fn anomaly(name: &'static str, here: &'static [&'static str], why: &'static str) -> Anomaly {
    Anomaly { name, here, why }
}

pub const ANOMALIES: &[Anomaly] = &[
    anomaly("lost-write", &["lost-write", "lost-read"], "the last reading reads everything"),
    anomaly("unseen", &["lost-write"], "the last reading goes to the end, so unseen is lost"),
    anomaly("duplicate", &["duplicate"], "but for unnumbered retries and decision 0085's price"),
    anomaly("inconsistent-offsets", &["inconsistent-offsets"], "acknowledgements and all readers"),
    anomaly("precommitted-read", &["precommitted-read"], "at or above the watermark of the answer"),
    anomaly("G1a", &["G1a"], "what surely failed, or was aborted, was read"),
    anomaly("G1b", &["torn-transaction"], "a part of a transaction is there, a part is not"),
    anomaly("G0", &["inconsistent-offsets"], "a log has one order, so it is that or none"),
    anomaly("G0-process", &["nonmonotonic-send"], "of one client's appends"),
    anomaly("G0-realtime", &["realtime-order"], "of all clients' appends"),
    anomaly("G1c", &["G1c"], "cycles within one partition, outside of transactions"),
    anomaly("G1c-process", &["G1c-process"], "as G1c"),
    anomaly("G1c-realtime", &["G1c-realtime"], "as G1c"),
    anomaly("G2", &[], "a reader of a log may be behind, so a write it has not seen is no edge"),
    anomaly("int-poll-skip", &["poll-skip"], "within one answer"),
    anomaly("int-nonmonotonic-poll", &["nonmonotonic-poll"], "within one answer"),
    anomaly("poll-skip", &["poll-skip", "lost-read"], "our readers name the offset they want next"),
    anomaly("nonmonotonic-poll", &["nonmonotonic-poll"], "as poll-skip"),
    anomaly("int-send-skip", &["torn-batch"], "a batch is the only unit that is sent together"),
    anomaly("int-nonmonotonic-send", &["torn-batch"], "as int-send-skip"),
    anomaly("nonmonotonic-send", &["nonmonotonic-send"], "by offsets and by sequence numbers"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_looked_for_says_why() {
        for anomaly in ANOMALIES {
            assert!(!anomaly.why.is_empty(), "{}", anomaly.name);
        }
        let sources = [
            include_str!("survival.rs"),
            include_str!("order.rs"),
            include_str!("duplicates.rs"),
            include_str!("invented.rs"),
            include_str!("polls.rs"),
            include_str!("cycles.rs"),
            include_str!("transactions/outcome.rs"),
        ];
        for property in ANOMALIES.iter().flat_map(|anomaly| anomaly.here) {
            let named = format!("\"{property}\"");
            assert!(sources.iter().any(|source| source.contains(&named)), "{property}");
        }
    }
}
