//! Settings that are as plain as can be, so that what is left in a shrunk plan is what matters.
//! They are found in the plan's text, by their names.

use std::ops::Range;

use crate::plan::Plan;

/// A line's keyword, a name on it, and its plain value. Those behind each other on the list become
/// plain together first.
const PLAIN: &[(&str, &str, &str)] = &[
    ("clock", "wall_offset", "0"),
    ("clock", "drift", "0"),
    ("link", "fragment", "0/1"),
    ("link", "bandwidth", "0"),
    ("link", "window", "262144"),
    ("link", "latency", "50us..100us"),
    ("disk", "read", "0s..0s"),
    ("disk", "write", "0s..0s"),
    ("disk", "sync", "300us..3ms"),
    ("node", "shards", "1"),
    ("node", "shard_batch", "256"),
    ("node", "in_flight", "64"),
    ("node", "request_memory", "67108864"),
    ("node", "journal_file_bytes", "1048576"),
    ("node", "journal_files", "8"),
    ("node", "checkpoint_bytes", "100663296"),
    ("node", "group_bytes", "16777216"),
    ("node", "open_files", "2048"),
    ("node", "queue", "4096"),
    ("topic", "segment_bytes", "1048576"),
    ("topic", "segment_time", "604800s"),
    ("topic", "log_append_time", "no"),
    ("topic", "retention_bytes", "none"),
    ("topic", "retention_time", "none"),
    ("workload", "codec", "none"),
    ("workload", "undated", "0/1"),
    ("workload", "first_sequence", "0"),
    ("workload", "idempotent", "no"),
    ("workload", "wait", "0s"),
    ("workload", "read_bytes", "65536"),
    ("group", "migrate", "0/1"),
    ("cluster", "replace_after", "600s"),
    ("cluster", "entries_kept", "1000"),
    ("cluster", "lag_time", "10s"),
];

/// A setting that is not plain: its line, and its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unplain {
    line: usize,
    place: usize,
}

/// The settings of a plan that are not plain.
pub fn unplain(plan: &Plan) -> Vec<Unplain> {
    let text = plan.print();
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (place, (keyword, name, plain)) in PLAIN.iter().enumerate() {
        for (line, text) in lines.iter().enumerate() {
            let mut words = text.split_whitespace();
            let is_other = |word: &str| {
                word.split_once('=').is_some_and(|(key, value)| key == *name && value != *plain)
            };
            if words.next() == Some(keyword) && words.any(is_other) {
                found.push(Unplain { line, place });
            }
        }
    }
    found
}

/// The plan with those settings made plain; `None` if that is no plan.
pub(super) fn make_plain(plan: &Plan, settings: Range<usize>) -> Option<Plan> {
    let text = plan.print();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for Unplain { line, place } in unplain(plan).get(settings)? {
        let (_, name, plain) = PLAIN[*place];
        let words = lines[*line].split(' ').map(|word| match word.split_once('=') {
            Some((key, _)) if key == name => format!("{name}={plain}"),
            _ => word.to_owned(),
        });
        lines[*line] = words.collect::<Vec<String>>().join(" ");
    }
    Plan::parse(&(lines.join("\n") + "\n")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::draw::draw_cluster;

    /// Each name stands in a plan, and its plain value is one.
    #[test]
    fn all_plain_is_a_plan_with_nothing_left() {
        let mut seen = vec![false; PLAIN.len()];
        for seed in 0..400 {
            let plan = draw_cluster(seed, 0);
            let found = unplain(&plan);
            for unplain in &found {
                seen[unplain.place] = true;
            }
            let plain = make_plain(&plan, 0..found.len()).expect("plain values are values");
            assert_eq!(unplain(&plain), [], "seed {seed}");
            assert_eq!(plain.faults, plan.faults);
        }
        let missing = seen.iter().zip(PLAIN).filter(|(seen, _)| !**seen);
        let missing: Vec<&str> = missing.map(|(_, (_, name, _))| *name).collect();
        // No draw changes it yet.
        assert!(missing.iter().all(|name| ["retention_time"].contains(name)), "{missing:?}");
    }
}
