//! What each request means to this node: one file an API or a family of them. Nothing here knows
//! of sockets, and nothing here decides what the machines of the core decide.

pub(crate) mod cluster;
pub(crate) mod configs;
mod consumers;
mod duty;
pub(crate) mod features;
pub(crate) mod fetch;
pub(crate) mod groups;
pub(crate) mod list_offsets;
pub(crate) mod log_dirs;
pub(crate) mod metadata;
pub(crate) mod moves;
pub(crate) mod offsets;
pub(crate) mod place;
pub(crate) mod produce;
pub(crate) mod producer_id;
mod producers;
pub(crate) mod quorum;
pub(crate) mod records;
pub(crate) mod repeated;
pub(crate) mod topics;
pub(crate) mod transactions;
mod verify;

use std::future::Future;
use std::sync::Arc;

use quorate_net::kafka::error::Code;
use quorate_net::kafka::header::RequestHeader;
use quorate_net::kafka::messages::{ApiVersionsRequest, ApiVersionsResponse};
use quorate_net::kafka::{Request, Response};

use super::api_versions;
use super::session::{Answer, Client, Serve, Started, Starting};
use crate::driver::ask::Stopped;
use crate::node::Node;

/// The requests of one node.
pub(crate) struct Handlers {
    pub(crate) node: Arc<Node>,
}

impl Serve for Handlers {
    fn begin(&self, client: &Arc<Client>, header: &RequestHeader, request: Request) -> Starting {
        let node = Arc::clone(&self.node);
        let version = header.version;
        match request {
            Request::Produce(request) => Box::pin(produce::begin(node, version, request)),
            Request::Fetch(request) => {
                Box::pin(
                    async move { Started::Answered(fetch::fetch(&node, version, request).await) },
                )
            }
            Request::ApiVersions(request) => {
                answer(std::future::ready(Ok(api_versions(&node, version, &request))))
            }
            Request::Metadata(request) => {
                answer(async move { metadata::metadata(&node, version, request).await })
            }
            Request::DescribeTopicPartitions(request) => {
                answer(std::future::ready(Ok(metadata::describe_topic_partitions(&node, &request))))
            }
            Request::DescribeCluster(request) => {
                answer(std::future::ready(Ok(cluster::describe_cluster(&node, &request))))
            }
            Request::ListOffsets(request) => {
                answer(async move { list_offsets::list_offsets(&node, version, request).await })
            }
            Request::OffsetForLeaderEpoch(request) => {
                answer(async move { records::offset_for_leader_epoch(&node, request).await })
            }
            Request::DeleteRecords(request) => {
                answer(async move { records::delete_records(&node, request).await })
            }
            Request::DescribeProducers(request) => {
                answer(async move { producers::describe(&node, request).await })
            }
            Request::InitProducerId(request) => {
                answer(async move { producer_id::init(&node, version, &request).await })
            }
            Request::DescribeLogDirs(request) => {
                answer(async move { Ok(log_dirs::describe(&node, request).await) })
            }
            Request::AddPartitionsToTxn(_)
            | Request::AddOffsetsToTxn(_)
            | Request::EndTxn(_)
            | Request::TxnOffsetCommit(_)
            | Request::WriteTxnMarkers(_)
            | Request::ListTransactions(_)
            | Request::DescribeTransactions(_) => transact(node, version, request),
            other => administer(node, client, header, other),
        }
    }
}

/// Requests of transactional producers, and of tools that look after them.
fn transact(node: Arc<Node>, version: i16, request: Request) -> Starting {
    match request {
        Request::AddPartitionsToTxn(request) => {
            answer(async move { transactions::add_partitions(&node, version, request).await })
        }
        Request::AddOffsetsToTxn(request) => {
            answer(async move { transactions::add_offsets(&node, version, request).await })
        }
        Request::EndTxn(request) => {
            answer(async move { transactions::end(&node, version, request).await })
        }
        Request::TxnOffsetCommit(request) => {
            answer(async move { transactions::offsets::commit(&node, version, request).await })
        }
        Request::WriteTxnMarkers(request) => {
            answer(async move { transactions::admin::write_markers(&node, version, request).await })
        }
        Request::ListTransactions(request) => {
            answer(async move { transactions::admin::list(&node, request).await })
        }
        Request::DescribeTransactions(request) => {
            answer(async move { transactions::admin::describe(&node, request).await })
        }
        other => unreachable!("{} is no request of transactions", other.key()),
    }
}

/// Requests of administrators, and those of groups.
fn administer(
    node: Arc<Node>,
    client: &Arc<Client>,
    header: &RequestHeader,
    request: Request,
) -> Starting {
    let version = header.version;
    match request {
        Request::CreateTopics(request) => {
            answer(async move { topics::create_topics(&node, request).await })
        }
        Request::DeleteTopics(request) => {
            answer(async move { topics::delete_topics(&node, version, request).await })
        }
        Request::CreatePartitions(request) => {
            answer(async move { topics::create_partitions(&node, request).await })
        }
        Request::DescribeConfigs(request) => {
            answer(std::future::ready(Ok(configs::describe(&node, request))))
        }
        Request::AlterConfigs(request) => {
            answer(async move { configs::replace(&node, request).await })
        }
        Request::IncrementalAlterConfigs(request) => {
            answer(async move { configs::edit(&node, request).await })
        }
        Request::AlterPartitionReassignments(request) => {
            answer(async move { moves::reassign(&node, request).await })
        }
        Request::ListPartitionReassignments(request) => {
            answer(async move { moves::list(&node, request).await })
        }
        Request::ElectLeaders(request) => {
            answer(async move { moves::elect(&node, version, request).await })
        }
        Request::UpdateFeatures(request) => {
            answer(async move { features::update(&node, version, request).await })
        }
        Request::DescribeQuorum(request) => {
            answer(async move { quorum::describe(&node, request).await })
        }
        Request::AddRaftVoter(request) => answer(async move { quorum::add(&node, request).await }),
        Request::RemoveRaftVoter(request) => {
            answer(async move { quorum::remove(&node, request).await })
        }
        Request::UnregisterBroker(request) => {
            answer(async move { features::unregister(&node, request).await })
        }
        group => groups::begin(node, client, header, group),
    }
}

/// A request that is answered before the next may begin.
pub(crate) fn answer<R: Into<Response> + 'static>(
    response: impl Future<Output = Result<R, Stopped>> + Send + 'static,
) -> Starting {
    Box::pin(async move {
        Started::Answered(match response.await {
            Ok(response) => Answer::Send(response.into(), None),
            Err(Stopped) => Answer::Close("the node stops".to_owned()),
        })
    })
}

fn api_versions(node: &Node, version: i16, request: &ApiVersionsRequest) -> ApiVersionsResponse {
    let mut response = api_versions::response(node.catalog.read().image.features());
    let named = [&request.client_software_name, &request.client_software_version];
    if version >= 3 && !named.iter().all(|name| api_versions::is_software_name(name)) {
        response.error_code = Code::InvalidRequest.code();
        response.api_keys.clear();
    }
    response
}

#[cfg(test)]
mod tests;
