//! What humans want of a node, as a configuration of it: `quorate.duty` is `serve`, `maintenance`
//! or `leave`. Kafka has no request for it, and its tools know configurations
//! (docs/decisions/0077).

use quorate_core::controller::interface::{
    AlterConfig, ConfigChange, ConfigOp, Input, Outcome, Resource, SetDuty,
};
use quorate_core::id::NodeId;
use quorate_core::metadata::Duty;
use quorate_net::kafka::error::Code;
use quorate_net::wire::Text;

use crate::controller_client::PATIENCE;
use crate::driver::ask::Stopped;
use crate::node::Node;

pub(super) const NAME: &str = "quorate.duty";
pub(super) const DOC: &str = "What the node is for: serve; maintenance (it leads nothing and keeps \
                              its copies); leave (its copies move to other nodes).";

const DUTIES: &[(&str, Duty)] =
    &[("serve", Duty::Serve), ("maintenance", Duty::Maintenance), ("leave", Duty::Leave)];

pub(super) fn value(duty: Duty) -> &'static str {
    DUTIES.iter().find(|(_, known)| *known == duty).map_or("serve", |(name, _)| name)
}

type Wanted = Result<(NodeId, Duty), (Code, Text)>;

/// The node and its duty, if that is what a change of configurations is about.
pub(super) fn wanted(change: &AlterConfig) -> Option<Wanted> {
    let Resource::Node(Some(node)) = change.resource else { return None };
    let invalid = |why: &str| Some(Err((Code::InvalidConfig, Text::from(why))));
    let value = match &change.change {
        ConfigChange::Edit(edits) => {
            let (_, op) = edits.iter().find(|(name, _)| name == NAME)?;
            match op {
                _ if edits.len() > 1 => return invalid("quorate.duty is changed alone"),
                ConfigOp::Set(value) => value.as_deref(),
                ConfigOp::Delete => Some("serve"),
                ConfigOp::Append(_) | ConfigOp::Subtract(_) => {
                    return invalid("quorate.duty is not a list");
                }
            }
        }
        ConfigChange::Replace(all) => {
            let (_, value) = all.iter().find(|(name, _)| name == NAME)?;
            if all.len() > 1 {
                return invalid("quorate.duty is changed alone");
            }
            value.as_deref()
        }
    };
    match DUTIES.iter().find(|(name, _)| Some(*name) == value) {
        Some((_, duty)) => Some(Ok((node, *duty))),
        None => invalid("a duty is serve, maintenance or leave"),
    }
}

pub(super) async fn set(
    node: &Node,
    wanted: Wanted,
    validate_only: bool,
) -> Result<(Code, Option<Text>), Stopped> {
    let (of, duty) = match wanted {
        Ok(wanted) => wanted,
        Err((code, why)) => return Ok((code, Some(why))),
    };
    if validate_only {
        let is_known = node.catalog.read().image.node(of).is_some();
        let code = if is_known { Code::None } else { Code::BrokerIdNotRegistered };
        return Ok((code, None));
    }
    let until = node.clock.now().monotonic + PATIENCE;
    let input = |request| Input::SetDuty(SetDuty { request, node: of, duty });
    Ok(match node.controller.ask(until, input).await? {
        Outcome::DutySet => (Code::None, None),
        Outcome::Refused(problem) => (problem.kind.into(), Some(problem.message.into())),
        other => unreachable!("a duty is set, not {other:?}"),
    })
}
