//! From a broker to a live connection, and from a request to its answer: dialling, the version
//! handshake, deadlines. Each use of a broker has a connection of its own, since a broker answers
//! in order and a fetch that waits would hold up everything behind it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use quorate_core::time::Instant;

use super::connection::{Connection, Lost};
use super::{ClientConfig, Error};
use crate::clock::Clock;
use crate::kafka::error::Code;
use crate::kafka::frame::{decode_response, encode_request};
use crate::kafka::header::RequestHeader;
use crate::kafka::messages::{ApiVersionsRequest, ApiVersionsResponse};
use crate::kafka::{ApiKey, Call};
use crate::transport::Network;
use crate::wire::Text;

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Ask,
    Produce,
    Fetch,
    Group,
}

/// All connections of one client.
pub(crate) struct Routes {
    network: Arc<dyn Network>,
    clock: Arc<dyn Clock>,
    client_id: Text,
    connect_timeout: Duration,
    request_timeout: Duration,
    answer_bytes_max: usize,
    peers: Mutex<BTreeMap<(String, Lane), Arc<Peer>>>,
}

/// One address and lane. The lock is held while dialling, so that only one task dials. Whoever may
/// have it, or wait for it, must be polled until that is over: nobody else gets it meanwhile.
#[derive(Default)]
struct Peer {
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
}

/// A connection whose versions are known.
struct Link {
    connection: Connection,
    versions: BTreeMap<i16, (i16, i16)>,
    /// The levels of what the cluster has agreed to use, by Kafka's names. KIP-584.
    features: BTreeMap<String, i16>,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

impl Routes {
    pub(crate) fn new(
        network: Arc<dyn Network>,
        clock: Arc<dyn Clock>,
        config: &ClientConfig,
    ) -> Self {
        Self {
            network,
            clock,
            client_id: Text::from(config.client_id.as_str()),
            connect_timeout: config.connect_timeout,
            request_timeout: config.request_timeout,
            answer_bytes_max: config.answer_bytes_max,
            peers: Mutex::default(),
        }
    }

    /// Asks `address` and waits for the answer. `patience` is how long the broker may hold the
    /// request on purpose, beyond the usual time for an answer.
    pub(crate) async fn call<R: Call>(
        &self,
        address: &str,
        lane: Lane,
        request: &R,
        patience: Duration,
    ) -> Result<R::Response, Error> {
        let link = self.link(address, lane).await?;
        let version = link.version(R::KEY, address)?;
        let within = self.request_timeout + patience;
        self.exchange(&link.connection, address, request, version, within).await
    }

    /// Sends what has no answer: returns once it is written.
    pub(crate) async fn tell<R: Call>(
        &self,
        address: &str,
        lane: Lane,
        request: &R,
    ) -> Result<(), Error> {
        let link = self.link(address, lane).await?;
        let version = link.version(R::KEY, address)?;
        let deadline = self.clock.now().monotonic + self.request_timeout;
        self.transfer(&link.connection, address, request, version, (false, deadline)).await?;
        Ok(())
    }

    /// The versions that the broker at `address` told, by API number.
    pub(crate) async fn versions(&self, address: &str) -> Result<BTreeMap<i16, (i16, i16)>, Error> {
        Ok(self.link(address, Lane::Ask).await?.versions.clone())
    }

    /// The level of a feature that the cluster has agreed to use, as `address` tells it; 0 for
    /// none.
    pub(crate) async fn feature(&self, address: &str, name: &str) -> Result<i16, Error> {
        let link = self.link(address, Lane::Ask).await?;
        Ok(link.features.get(name).copied().unwrap_or_default())
    }

    async fn exchange<R: Call>(
        &self,
        connection: &Connection,
        address: &str,
        request: &R,
        version: i16,
        within: Duration,
    ) -> Result<R::Response, Error> {
        let deadline = self.clock.now().monotonic + within;
        let frame = self.transfer(connection, address, request, version, (true, deadline)).await?;
        match decode_response::<R>(&frame, version) {
            Ok((_, response)) => Ok(response),
            Err(error) => {
                // Whatever follows cannot be trusted either.
                connection.close("an answer could not be read");
                Err(Error::malformed(address, &error))
            }
        }
    }

    async fn transfer<R: Call>(
        &self,
        connection: &Connection,
        address: &str,
        request: &R,
        version: i16,
        (answered, deadline): (bool, Instant),
    ) -> Result<Bytes, Error> {
        let correlation_id = connection.next_correlation();
        let client_id = Some(self.client_id.clone());
        let header = RequestHeader { key: R::KEY, version, correlation_id, client_id };
        let chunks = encode_request(&header, request)
            .map_err(|error| Error::Invalid { reason: format!("{} request: {error}", R::KEY) })?;
        let exchange = async {
            let reply = connection.send(correlation_id, chunks, answered).await?;
            let gone = || Err(Lost::NoAnswer("the connection's task ended".to_owned()));
            reply.await.unwrap_or_else(|_| gone())
        };
        let outcome = tokio::select! {
            biased;
            outcome = exchange => outcome,
            () = self.clock.sleep_until(deadline) => {
                // An answer that comes after all would be taken for the next one's.
                connection.close("an answer was overdue");
                Err(Lost::NoAnswer(format!("no answer to {} in time", R::KEY)))
            }
        };
        outcome.map_err(|lost| {
            let address = address.to_owned();
            match lost {
                Lost::NotSent(reason) => Error::Unreachable { address, reason },
                Lost::NoAnswer(reason) => Error::Interrupted { address, reason },
            }
        })
    }

    async fn link(&self, address: &str, lane: Lane) -> Result<Arc<Link>, Error> {
        let peer = {
            let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(peers.entry((address.to_owned(), lane)).or_default())
        };
        let mut link = peer.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.connection.is_closed()) {
            return Ok(Arc::clone(link));
        }
        *link = None;
        let unreachable =
            |reason: String| Error::Unreachable { address: address.to_owned(), reason };
        let dialled = tokio::select! {
            biased;
            dialled = self.dial(address) => dialled,
            () = self.clock.sleep(self.connect_timeout) => {
                Err(unreachable("it did not answer in time".to_owned()))
            }
        };
        // Nothing but the handshake has been sent, so the caller's request has not.
        let fresh = dialled.map_err(|error| match error {
            Error::Interrupted { reason, .. } => unreachable(reason),
            error => error,
        })?;
        Ok(Arc::clone(link.insert(Arc::new(fresh))))
    }

    async fn dial(&self, address: &str) -> Result<Link, Error> {
        let stream = self.network.connect(address).await.map_err(|error| Error::Unreachable {
            address: address.to_owned(),
            reason: error.to_string(),
        })?;
        let connection = Connection::start(stream, self.answer_bytes_max);
        let request = ApiVersionsRequest {
            client_software_name: Text::from_static("quorate"),
            client_software_version: Text::from_static(env!("CARGO_PKG_VERSION")),
        };
        let newest = *ApiKey::ApiVersions.versions().end();
        let within = self.connect_timeout;
        let mut response = self.exchange(&connection, address, &request, newest, within).await?;
        if response.error_code == Code::UnsupportedVersion.code() {
            // The refusal says which version to ask in; a very old broker says nothing.
            let theirs = ranges(&response).get(&ApiKey::ApiVersions.code()).copied();
            let version = theirs.map_or(0, |(_, max)| max.clamp(0, newest));
            response = self.exchange(&connection, address, &request, version, within).await?;
        }
        match response.error_code {
            0 => {
                Ok(Link { connection, versions: ranges(&response), features: finalized(&response) })
            }
            code => {
                let code = Code::from_code(code).unwrap_or(Code::UnknownServerError);
                Err(Error::refused(format!("the handshake with {address}"), code, None))
            }
        }
    }
}

fn ranges(response: &ApiVersionsResponse) -> BTreeMap<i16, (i16, i16)> {
    let keys = response.api_keys.iter();
    keys.map(|key| (key.api_key, (key.min_version, key.max_version))).collect()
}

fn finalized(response: &ApiVersionsResponse) -> BTreeMap<String, i16> {
    let features = response.finalized_features.iter();
    features.map(|feature| (feature.name.to_string(), feature.max_version_level)).collect()
}

impl Link {
    /// The newest version that both sides speak.
    fn version(&self, key: ApiKey, address: &str) -> Result<i16, Error> {
        let ours = key.versions();
        let theirs = self.versions.get(&key.code()).copied();
        theirs
            .map(|(min, max)| (min.max(*ours.start()), max.min(*ours.end())))
            .filter(|(min, max)| min <= max)
            .map(|(_, max)| max)
            .ok_or_else(|| Error::Unsupported { api: key.to_string(), address: address.to_owned() })
    }
}
