//! Which partitions of a group are meant.

use std::collections::BTreeSet;

use quorate_net::client::{Client, PartitionName};

use super::picture::Picture;
use crate::args::Partitions;
use crate::command::existing_topic;
use crate::failure::Failure;

impl Partitions {
    /// Those named, of topics that there are. Of a topic without numbers all that it has; with
    /// `--all-topics` all of which the group has an offset.
    pub(super) async fn of(
        &self,
        client: &Client,
        group: &Picture,
    ) -> Result<BTreeSet<PartitionName>, Failure> {
        let mut wanted = BTreeSet::new();
        if self.all_topics {
            let places = group.partitions.iter().filter(|(_, place)| place.committed.is_some());
            wanted.extend(places.map(|(name, _)| name.clone()));
            if wanted.is_empty() {
                let failure = format!("group {} has no offsets", group.description.group);
                return Err(Failure::new(failure).hint("--topic says of which topics it shall"));
            }
        }
        for text in &self.topic {
            let (topic, numbers) = parse(text)?;
            let count = existing_topic(client, topic).await?.partition_count();
            let numbers = numbers.unwrap_or_else(|| (0..count).collect());
            for partition in numbers {
                if !(0..count).contains(&partition) {
                    let failure =
                        Failure::new(format!("topic {topic} has no partition {partition}"));
                    return Err(failure.hint(format!("its partitions are 0 to {}", count - 1)));
                }
                wanted.insert(PartitionName { topic: topic.to_owned(), partition });
            }
        }
        Ok(wanted)
    }
}

/// `orders` or `orders:0,2`. No topic's name has a colon in it.
fn parse(text: &str) -> Result<(&str, Option<Vec<i32>>), Failure> {
    let Some((topic, numbers)) = text.split_once(':') else { return Ok((text, None)) };
    let parsed: Result<Vec<i32>, _> = numbers.split(',').map(|one| one.trim().parse()).collect();
    match parsed {
        Ok(numbers) if !topic.is_empty() => Ok((topic, Some(numbers))),
        _ => Err(Failure::usage(format!("`{text}` names no partitions"))
            .hint("write TOPIC, or TOPIC:0,1,2")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_with_or_without_numbers() {
        assert_eq!(parse("orders"), Ok(("orders", None)));
        assert_eq!(parse("orders:0, 2"), Ok(("orders", Some(vec![0, 2]))));
        for wrong in ["orders:", ":1", "orders:x", "orders:1:2"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
