//! The topics that there are, as coordinators are told of them; and the regular expressions that
//! members subscribe by.

use std::collections::{BTreeMap, BTreeSet};

use regex::bytes::{Regex, RegexBuilder};

use super::interface::{Refusal, TopicInfo, TopicsNews};
use crate::id::TopicId;

/// Of a pattern's text.
const PATTERN_BYTES_MAX: usize = 4096;
/// Of a compiled pattern, and of what matching may keep.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// All topics by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Topics {
    by_name: BTreeMap<String, TopicInfo>,
    names: BTreeMap<TopicId, String>,
    /// Whether it was ever told of any.
    pub(super) is_known: bool,
}

impl Topics {
    pub(super) fn get(&self, name: &str) -> Option<TopicInfo> {
        self.by_name.get(name).copied()
    }

    pub(super) fn name(&self, topic: TopicId) -> Option<&str> {
        self.names.get(&topic).map(String::as_str)
    }

    /// The names of which something has changed.
    pub(super) fn take(&mut self, news: TopicsNews) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        if news.is_all {
            changed.extend(std::mem::take(&mut self.by_name).into_keys());
            self.names.clear();
            self.is_known = true;
        }
        for (name, topic) in news.topics {
            let before = match topic {
                Some(topic) => {
                    self.names.insert(topic.id, name.clone());
                    self.by_name.insert(name.clone(), topic)
                }
                None => self.by_name.remove(&name),
            };
            if let Some(before) = before.filter(|before| Some(before.id) != topic.map(|now| now.id))
            {
                self.names.remove(&before.id);
            }
            changed.insert(name);
        }
        changed
    }
}

/// A pattern and the topics that it means. Matching takes time linear in a name's length, whatever
/// the pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    regex: Regex,
    pub(super) topics: BTreeSet<String>,
}

impl Pattern {
    /// # Errors
    ///
    /// `InvalidRegex` for what is no pattern, or too large a one.
    pub(super) fn new(text: &str, topics: &Topics) -> Result<Self, Refusal> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(Refusal::InvalidRegex);
        }
        // Alone first: what is no pattern by itself must not become one between parentheses.
        compile(text)?;
        let mut pattern =
            Self { regex: compile(&format!(r"\A(?:{text})\z"))?, topics: BTreeSet::new() };
        for name in topics.by_name.keys() {
            pattern.look_at(name, topics);
        }
        Ok(pattern)
    }

    /// Whether what is known of `name` changes what the pattern means.
    pub(super) fn look_at(&mut self, name: &str, topics: &Topics) -> bool {
        let means = topics.by_name.contains_key(name) && self.regex.is_match(name.as_bytes());
        if means { self.topics.insert(name.to_owned()) } else { self.topics.remove(name) }
    }
}

/// Names of topics are ASCII, and so are the classes of characters here.
fn compile(text: &str) -> Result<Regex, Refusal> {
    RegexBuilder::new(text)
        .unicode(false)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        .nest_limit(100)
        .build()
        .map_err(|_| Refusal::InvalidRegex)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics() -> Topics {
        let mut topics = Topics::default();
        let all = ["orders", "orders-eu", "bills", "__consumer_offsets"];
        let info = |place: usize| TopicInfo { id: TopicId([place as u8 + 1; 16]), partitions: 1 };
        let news =
            all.iter().enumerate().map(|(place, name)| (name.to_string(), Some(info(place))));
        topics.take(TopicsNews { is_all: true, topics: news.collect() });
        topics
    }

    #[test]
    fn a_pattern_means_whole_names() {
        let topics = topics();
        let means = |text| Pattern::new(text, &topics).map(|pattern| pattern.topics.len());
        assert_eq!(means("orders"), Ok(1));
        assert_eq!(means("orders.*"), Ok(2));
        assert_eq!(means(".*"), Ok(4), "internal topics are topics, as with Kafka");
        assert_eq!(means("bills|orders"), Ok(2));
        assert_eq!(means(r"\w+"), Ok(3));
        for wrong in ["(", "a)|(b", "[", "a{1000}{1000}", &"a".repeat(5000)] {
            assert_eq!(means(wrong), Err(Refusal::InvalidRegex), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_follows_the_topics() {
        let mut topics = topics();
        let mut pattern = Pattern::new("orders.*", &topics).unwrap();
        let news = vec![
            ("orders".to_owned(), None),
            ("orders-us".to_owned(), Some(TopicInfo { id: TopicId([9; 16]), partitions: 2 })),
        ];
        for name in topics.take(TopicsNews { is_all: false, topics: news }) {
            assert!(pattern.look_at(&name, &topics), "{name}");
        }
        assert!(pattern.topics.iter().eq(["orders-eu", "orders-us"]));
        assert_eq!(topics.name(TopicId([9; 16])), Some("orders-us"));
        assert_eq!(topics.name(TopicId([1; 16])), None);
    }
}
