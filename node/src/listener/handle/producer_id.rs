//! InitProducerId: ids for producers, out of blocks that the controller hands to this
//! node. An id is given once, for all time.

use std::sync::Arc;

use quorate_core::controller::interface::{Input, Outcome};
use quorate_core::id::ProducerId;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::{InitProducerIdRequest, InitProducerIdResponse};
use tokio::sync::Mutex;

use super::transactions;
use crate::controller_client::PATIENCE;
use crate::driver::ask::Stopped;
use crate::node::Node;

/// The ids that this node may still give.
#[derive(Debug, Default)]
pub(crate) struct ProducerIds {
    /// From the first to below the second. Held while the next block is asked for, so that
    /// waiting producers do not ask for a block each.
    block: Mutex<(i64, i64)>,
}

pub(crate) async fn init(
    node: &Arc<Node>,
    version: i16,
    request: &InitProducerIdRequest,
) -> Result<InitProducerIdResponse, Stopped> {
    if let Some(transactional_id) = &request.transactional_id {
        return transactions::init(node, version, transactional_id, request).await;
    }
    if (request.producer_id >= 0) != (request.producer_epoch >= 0) {
        // Half a name.
        return Ok(InitProducerIdResponse {
            error_code: Code::InvalidRequest.code(),
            producer_epoch: -1,
            ..InitProducerIdResponse::default()
        });
    }
    Ok(match fresh(node).await? {
        Some(id) => InitProducerIdResponse {
            producer_id: id.0,
            producer_epoch: 0,
            ..InitProducerIdResponse::default()
        },
        // Clients try again on this one, whatever the reason was.
        None => InitProducerIdResponse {
            error_code: Code::CoordinatorLoadInProgress.code(),
            producer_epoch: -1,
            ..InitProducerIdResponse::default()
        },
    })
}

/// An id that was never given to anybody. `None` where the controller gives none now.
pub(super) async fn fresh(node: &Node) -> Result<Option<ProducerId>, Stopped> {
    let mut block = node.producer_ids.block.lock().await;
    if block.0 >= block.1 {
        let node_id = node.id;
        let until = node.clock.now().monotonic + PATIENCE;
        let input = |request| Input::AllocateProducerIds { request, node: node_id };
        let outcome = node.controller.ask(until, input).await?;
        match outcome {
            Outcome::ProducerIds { first, end } => *block = (first.0, end.0),
            Outcome::Refused(problem) => {
                tracing::debug!(problem.message, "no producer ids");
                return Ok(None);
            }
            other => unreachable!("producer ids are allocated, not {other:?}"),
        }
    }
    let id = ProducerId(block.0);
    block.0 += 1;
    Ok(Some(id))
}
