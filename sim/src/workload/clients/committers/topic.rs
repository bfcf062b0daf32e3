//! The topic of a client that commits offsets: deleted by its id, and created again by its name.

use std::io;

use quorate_core::id::TopicId;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::delete_topics::DeleteTopicState;
use quorate_net::kafka::messages::metadata::MetadataRequestTopic;
use quorate_net::kafka::messages::{CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest};
use quorate_net::wire::Text;

use super::super::super::client::{Link, within};
use super::super::setup;
use super::{AGAIN, Committer};
use crate::history::offsets::Event;

/// The versions in which topics have ids.
const CREATE: i16 = 7;
const DELETE: i16 = 6;
const METADATA: i16 = 12;

impl Committer {
    pub(super) fn topic_name(&self) -> Text {
        Text::from(format!("o{}", self.place))
    }

    /// Another topic has the name from here on. Whatever is asked for may happen late, or twice:
    /// what counts is that one has the name that never had it before.
    pub(super) async fn renew_topic(&mut self) {
        let before = self.topic;
        self.link = None;
        let invoked = self.now();
        if before != TopicId::NONE {
            self.scene.stage.may_delete(before);
        }
        while !self.is_over() {
            if before != TopicId::NONE {
                self.delete(before).await;
            }
            match self.create(before).await {
                Ok(topic) => {
                    self.gone.insert(before);
                    self.topic = topic;
                    if before != TopicId::NONE {
                        self.topics += 1;
                        self.tell(invoked, Event::TopicBegins);
                    }
                    return;
                }
                Err(error) => self.note(format!("has no topic: {error}")),
            }
            self.pause(AGAIN).await;
        }
    }

    async fn delete(&mut self, topic: TopicId) {
        let Some(mut link) = self.scene.connect(self.client).await else { return };
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState { name: None, topic_id: topic }],
            timeout_ms: self.scene.timeout().as_millis() as i32,
            ..Default::default()
        };
        let timeout = self.scene.timeout();
        // What became of it shows when the name is asked for.
        drop(within(&*self.scene.clock, timeout, link.call(DELETE, &request)).await);
    }

    /// The topic that has the name, which is not `before`.
    async fn create(&mut self, before: TopicId) -> io::Result<TopicId> {
        let nowhere = || io::Error::other("no node answers");
        let mut link = self.scene.connect(self.client).await.ok_or_else(nowhere)?;
        let topic = setup::plain(&self.scene.plan, self.topic_name(), self.spec.partitions);
        let timeout = self.scene.timeout();
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: timeout.as_millis() as i32,
            ..Default::default()
        };
        let response = within(&*self.scene.clock, timeout, link.call(CREATE, &request)).await?;
        let row = response.topics.first().ok_or_else(|| io::Error::other("an empty response"))?;
        let found = match Code::from_code(row.error_code) {
            Some(Code::None) => row.topic_id,
            Some(Code::TopicAlreadyExists) => self.named(&mut link).await?,
            _ => return Err(io::Error::other(format!("error {}", row.error_code))),
        };
        if found == before || found == TopicId::NONE || self.gone.contains(&found) {
            return Err(io::Error::other("the last one still has its name"));
        }
        Ok(found)
    }

    /// Which topic a node takes the name for.
    pub(super) async fn named(&mut self, link: &mut Link) -> io::Result<TopicId> {
        let name = Some(self.topic_name());
        let topic = MetadataRequestTopic { name, ..Default::default() };
        let request = MetadataRequest {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let timeout = self.scene.timeout();
        let response = within(&*self.scene.clock, timeout, link.call(METADATA, &request)).await?;
        let row = response.topics.first().ok_or_else(|| io::Error::other("an empty response"))?;
        Ok(if row.error_code == 0 { row.topic_id } else { TopicId::NONE })
    }
}
