//! UpdateFeatures and UnregisterBroker: what the cluster uses, and who belongs to it no more.

use std::sync::Arc;

use quorate_core::controller::interface::{FeatureUpdate, Input, Outcome, Problem};
use quorate_core::id::NodeId;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::update_features::{FeatureUpdateKey, UpdatableFeatureResult};
use quorate_net::kafka::messages::{
    UnregisterBrokerRequest, UnregisterBrokerResponse, UpdateFeaturesRequest,
    UpdateFeaturesResponse,
};
use quorate_net::wire::Text;

use super::moves::told;
use crate::controller_client::PATIENCE;
use crate::driver::ask::Stopped;
use crate::node::Node;

/// From this version on there is one result for all.
const ALL_OR_NONE: i16 = 2;
/// The first version that says which way a level is to go.
const UPGRADE_TYPES: i16 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;

pub(crate) async fn update(
    node: &Arc<Node>,
    version: i16,
    request: UpdateFeaturesRequest,
) -> Result<UpdateFeaturesResponse, Stopped> {
    let until = node.until(request.timeout_ms);
    let validate_only = request.validate_only;
    let updates: Vec<FeatureUpdate> =
        request.feature_updates.into_iter().map(|asked| one(version, &asked)).collect();
    let input =
        |request| Input::UpdateFeatures { request, updates: updates.clone(), validate_only };
    let (rows, problem) = match node.controller.ask(until, input).await? {
        Outcome::FeaturesUpdated(rows) => (rows, None),
        Outcome::Refused(problem) => (Vec::new(), Some(problem)),
        other => unreachable!("features are updated, not {other:?}"),
    };
    let first = |rows: &[(String, Result<(), Problem>)]| {
        rows.iter().find_map(|(_, done)| done.as_ref().err().cloned())
    };
    let all = problem.or_else(|| first(&rows).filter(|_| version >= ALL_OR_NONE));
    let results = rows.into_iter().map(|(feature, done)| {
        let (error_code, error_message) = told(done);
        UpdatableFeatureResult { feature: feature.into(), error_code, error_message }
    });
    let (error_code, error_message) = told(all.map_or(Ok(()), Err));
    Ok(UpdateFeaturesResponse {
        error_code,
        error_message,
        results: if version < ALL_OR_NONE { results.collect() } else { Vec::new() },
        ..UpdateFeaturesResponse::default()
    })
}

fn one(version: i16, asked: &FeatureUpdateKey) -> FeatureUpdate {
    FeatureUpdate {
        feature: asked.feature.to_string(),
        level: asked.max_version_level,
        downgrade: if version < UPGRADE_TYPES {
            asked.allow_downgrade
        } else {
            matches!(asked.upgrade_type, SAFE_DOWNGRADE | UNSAFE_DOWNGRADE)
        },
    }
}

pub(crate) async fn unregister(
    node: &Arc<Node>,
    request: UnregisterBrokerRequest,
) -> Result<UnregisterBrokerResponse, Stopped> {
    let until = node.clock.now().monotonic + PATIENCE;
    let gone = NodeId(request.broker_id);
    let input = |request| Input::UnregisterNode { request, node: gone };
    let (code, why) = match node.controller.ask(until, input).await? {
        Outcome::NodeUnregistered => (Code::None, None),
        Outcome::Refused(problem) => (Code::from(problem.kind), Some(Text::from(problem.message))),
        other => unreachable!("a node is unregistered, not {other:?}"),
    };
    Ok(UnregisterBrokerResponse {
        error_code: code.code(),
        error_message: why,
        ..UnregisterBrokerResponse::default()
    })
}
