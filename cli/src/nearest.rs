//! What somebody probably meant: the known word nearest to the one they wrote.

/// The candidate with the fewest edits to `word`, if those are few for its length.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let most = 1 + word.chars().count() / 3;
    candidates
        .into_iter()
        .map(|candidate| (edits(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(edits, _)| *edits <= most)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Optimal string alignment: insert, delete, replace, or swap two neighbours.
fn edits(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replace = row[j] + usize::from(a != b);
            let mut least = replace.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found() {
        let keys = ["retention.ms", "retention.bytes", "segment.bytes", "cleanup.policy"];
        assert_eq!(nearest("retension.ms", keys), Some("retention.ms"));
        assert_eq!(nearest("Retention.MS", keys), Some("retention.ms"));
        assert_eq!(nearest("clean.policy", keys), Some("cleanup.policy"));
        assert_eq!(nearest("color", keys), None);
        assert_eq!(nearest("ordesr", ["orders", "order-lines"]), Some("orders"));
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn edits_are_counted() {
        let counts = [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "ba", 1)];
        for (from, to, count) in counts {
            assert_eq!(edits(from, to), count, "{from} {to}");
        }
    }
}
