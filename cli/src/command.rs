//! What each command does, one file a command, and what they share: a client made from the
//! options, topics looked up with a word for the mistyped.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod cluster;
pub(crate) mod consume;
pub(crate) mod generate;
pub(crate) mod group;
pub(crate) mod log;
pub(crate) mod produce;
pub(crate) mod topic;
pub(crate) mod txn;
pub(crate) mod up;

use std::sync::Arc;
use std::time::Duration;

use quorate_core::batch::Codec;
use quorate_core::partition::interface::Acks;
use quorate_net::client::{Client, ClientConfig, Error, Topic};
use quorate_net::clock::Clock;
use quorate_net::kafka::error::Code;
use quorate_net::transport::os::OsNetwork;
use quorate_node::clock::OsClock;

use crate::args::Global;
use crate::failure::Failure;
use crate::nearest::nearest;
use crate::output::Output;

/// What every command is given.
#[derive(Clone)]
pub(crate) struct Context {
    pub output: Output,
    pub clock: Arc<dyn Clock>,
    bootstrap: String,
    pub timeout: Duration,
}

impl Context {
    pub(crate) fn new(global: &Global, output: Output) -> Self {
        let clock = Arc::new(OsClock::new());
        Self { output, clock, bootstrap: global.bootstrap.clone(), timeout: global.timeout }
    }

    /// A client whose first node has answered: where nobody listens, a person wants to know it
    /// at once, and not after all the retries.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let client = self.client();
        client.api_versions().await?;
        Ok(client)
    }

    /// A client with connections of its own, which connects when it is first used.
    pub(crate) fn client(&self) -> Client {
        let wall = self.clock.now().wall.millis().unsigned_abs();
        let config = ClientConfig {
            client_id: "quorate-cli".to_owned(),
            connect_timeout: self.timeout.min(Duration::from_secs(5)),
            operation_timeout: self.timeout,
            // Different producers begin with different partitions.
            seed: wall.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id()),
            ..ClientConfig::new(&self.bootstrap)
        };
        Client::new(Arc::new(OsNetwork), Arc::clone(&self.clock), config)
    }
}

/// The topic, or a failure that names the one that was probably meant.
pub(crate) async fn existing_topic(client: &Client, name: &str) -> Result<Arc<Topic>, Failure> {
    let metadata = client.cluster().await?;
    match metadata.topics.get(name) {
        Some(topic) => match topic.error {
            None => Ok(client.topic(name).await?),
            Some(code) => Err(Failure::new(format!("topic {name}: {code}"))),
        },
        None => {
            let failure = Failure::new(format!("there is no topic {name}"));
            Err(match nearest(name, metadata.topics.keys().map(String::as_str)) {
                Some(known) => failure.hint(format!("did you mean {known}?")),
                None => failure.hint(format!("`quorate topic create {name}` makes it")),
            })
        }
    }
}

/// The failure of a request about `topic`, with the nearest name if it does not exist.
pub(crate) async fn about_topic(client: &Client, topic: &str, error: Error) -> Failure {
    if error.code() == Some(Code::UnknownTopicOrPartition)
        && let Err(failure) = existing_topic(client, topic).await
    {
        return failure;
    }
    error.into()
}

pub(crate) fn parse_acks(text: &str) -> Result<Acks, Failure> {
    match text {
        "all" | "-1" => Ok(Acks::All),
        "1" => Ok(Acks::Leader),
        "0" => Ok(Acks::None),
        text => match text.parse() {
            Ok(copies @ 2..) => Ok(Acks::AtLeast(copies)),
            _ => Err(Failure::usage(format!("`{text}` is no number of acknowledgements"))
                .hint("all, 1 (the leader alone), or 0 (no answer)")),
        },
    }
}

pub(crate) fn parse_codec(text: &str) -> Result<Codec, Failure> {
    Codec::from_name(&text.to_lowercase()).ok_or_else(|| {
        let names = Codec::ALL.map(Codec::name);
        let failure = Failure::usage(format!("`{text}` is no compression codec"));
        match nearest(text, names) {
            Some(known) => failure.hint(format!("did you mean {known}?")),
            None => failure.hint(names.join(", ")),
        }
    })
}

/// `KEY=VALUE`, the value's unit turned into Kafka's number.
pub(crate) fn parse_config(text: &str) -> Result<(String, String), Failure> {
    let (key, value) = text.split_once('=').ok_or_else(|| {
        Failure::usage(format!("`{text}` is no setting")).hint("write KEY=VALUE: retention.ms=7d")
    })?;
    let value = crate::output::human::config_from_human(key.trim(), value.trim());
    Ok((key.trim().to_owned(), value))
}
