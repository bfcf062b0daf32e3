//! Which node decides about a group, or about a transactional id.

use std::time::Duration;

use quorate_core::id::NodeId;

use super::admin::accepted;
use super::{Client, Error};
use crate::kafka::messages as m;
use crate::wire::Text;

/// What has a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coordinated {
    Group,
    Transaction,
}

impl Coordinated {
    /// The kind of key in FindCoordinator.
    const fn key_type(self) -> i8 {
        match self {
            Self::Group => 0,
            Self::Transaction => 1,
        }
    }

    fn named(self, name: &str) -> String {
        match self {
            Self::Group => format!("group {name}"),
            Self::Transaction => format!("transactional id {name}"),
        }
    }
}

impl Client {
    /// The node that coordinates `name`, and where it is reached. One attempt.
    pub(super) async fn coordinator_once(
        &self,
        kind: Coordinated,
        name: &str,
    ) -> Result<(NodeId, String), Error> {
        let request = m::FindCoordinatorRequest {
            key: Text::from(name),
            key_type: kind.key_type(),
            coordinator_keys: vec![Text::from(name)],
        };
        let response = self.ask_any(&request, Duration::ZERO).await?;
        let (code, message, node, host, port) = match response.coordinators.first() {
            Some(it) => (it.error_code, &it.error_message, it.node_id, &it.host, it.port),
            None => {
                let it = &response;
                (it.error_code, &it.error_message, it.node_id, &it.host, it.port)
            }
        };
        let what = format!("the coordinator of {}", kind.named(name));
        accepted(&what, code, message.as_ref())?;
        let host = host.as_str();
        let bracketed = host.contains(':');
        let address = if bracketed { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok((NodeId(node), address))
    }
}
