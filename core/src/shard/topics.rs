//! What a node has told the coordinators of its groups of the topics, and what is new to them: for
//! whoever follows the metadata, in every world.

use std::collections::{BTreeMap, BTreeSet};

use crate::group::interface::{TopicInfo, TopicsNews};
use crate::id::TopicId;
use crate::metadata::Image;

/// Names and partition counts of the topics that coordinators know; `None` before the first word.
#[derive(Debug, Default)]
pub struct Told(Option<BTreeMap<TopicId, (String, i32)>>);

impl Told {
    /// What is new, where something of the `touched` topics may have changed. The first time:
    /// everything.
    pub fn news(&mut self, image: &Image, touched: &BTreeSet<TopicId>) -> Option<TopicsNews> {
        let is_all = self.0.is_none();
        let told = self.0.get_or_insert_default();
        let (mut gone, mut there) = (Vec::new(), Vec::new());
        let mut look_at = |id: TopicId| {
            let now = image.topic(id).map(|topic| {
                let partitions = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
                (topic.name.clone(), partitions)
            });
            let before = match &now {
                Some(now) => told.insert(id, now.clone()),
                None => told.remove(&id),
            };
            if before == now {
                return;
            }
            match (before, now) {
                (_, Some((name, partitions))) => {
                    there.push((name, Some(TopicInfo { id, partitions })))
                }
                (Some((name, _)), None) => gone.push((name, None)),
                (None, None) => {}
            }
        };
        if is_all {
            image.topics().for_each(|topic| look_at(topic.id));
        } else {
            touched.iter().for_each(|topic| look_at(*topic));
        }
        // A name may have gone to another topic.
        gone.extend(there);
        (is_all || !gone.is_empty()).then_some(TopicsNews { is_all, topics: gone })
    }
}

#[cfg(test)]
mod tests {
    use crate::metadata::{Placement, Record};

    use super::*;

    #[test]
    fn news_are_told_once_and_names_go_from_one_topic_to_the_next() {
        let (mut image, mut told) = (Image::default(), Told::default());
        let (first, second) = (TopicId([1; 16]), TopicId([2; 16]));
        let nothing = BTreeSet::new();
        assert_eq!(told.news(&image, &nothing), Some(TopicsNews { is_all: true, topics: vec![] }));
        let create = |topic| Record::TopicCreated {
            topic,
            name: "orders".to_owned(),
            partitions: vec![Placement::default(); 2],
            configs: Vec::new(),
        };
        image.apply(&create(first));
        let info = |id| Some(TopicInfo { id, partitions: 2 });
        let news = |topics| Some(TopicsNews { is_all: false, topics });
        let orders = || "orders".to_owned();
        assert_eq!(told.news(&image, &[first].into()), news(vec![(orders(), info(first))]));
        assert_eq!(told.news(&image, &[first].into()), None);
        image.apply(&Record::TopicDeleted { topic: first });
        image.apply(&create(second));
        assert_eq!(
            told.news(&image, &[first, second].into()),
            news(vec![(orders(), None), (orders(), info(second))])
        );
    }
}
