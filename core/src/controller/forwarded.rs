//! Requests to the controller and its answers as bytes: a node hands on what it is asked to the one
//! that leads.

use super::interface::{Input, Outcome};
use crate::codec::{self, CodecError};
use crate::id::RequestId;

/// Of requests and of answers.
const VERSION: u8 = 1;

impl Input {
    /// The bytes of a request. Panics on an input that nobody waits for: it concerns one node.
    pub fn to_bytes(&self) -> Vec<u8> {
        assert!(self.request().is_some(), "{self:?} is no request");
        codec::encode(VERSION, self)
    }

    /// # Errors
    ///
    /// If the bytes are no request to the controller, or one of a later build.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        let (_, body) = codec::version(bytes, VERSION)?;
        let input: Self = codec::decode(body)?;
        if input.request().is_none() {
            let reason = "nobody would wait for the answer".to_owned();
            return Err(CodecError::Malformed { reason });
        }
        Ok(input)
    }

    /// The same request by another name. What is no request stays as it is.
    #[must_use]
    pub fn with_request(mut self, new: RequestId) -> Self {
        match &mut self {
            Self::RegisterNode(register) => register.request = new,
            Self::Heartbeat(heartbeat) => heartbeat.request = new,
            Self::ChangeInSync(change) => change.request = new,
            Self::ElectLeaders(elect) => elect.request = new,
            Self::SetDuty(set) => set.request = new,
            Self::Reassign { request, .. }
            | Self::ListReassignments { request, .. }
            | Self::DescribeNodes { request }
            | Self::UnregisterNode { request, .. }
            | Self::UpdateFeatures { request, .. }
            | Self::CreateTopics { request, .. }
            | Self::DeleteTopics { request, .. }
            | Self::CreatePartitions { request, .. }
            | Self::AlterConfigs { request, .. }
            | Self::AllocateProducerIds { request, .. } => *request = new,
            Self::Log(_) | Self::Gone { .. } | Self::Cancelled { .. } | Self::Tick => {}
        }
        self
    }

    /// Whether asking a second time, when nobody knows what became of the first, does no harm: it
    /// changes nothing, or the same again, or takes ids that are then never used.
    pub const fn is_repeatable(&self) -> bool {
        match self {
            Self::RegisterNode(_)
            | Self::Heartbeat(_)
            | Self::ChangeInSync(_)
            | Self::SetDuty(_)
            | Self::ListReassignments { .. }
            | Self::DescribeNodes { .. }
            | Self::AllocateProducerIds { .. } => true,
            Self::CreateTopics { validate_only, .. }
            | Self::CreatePartitions { validate_only, .. }
            | Self::AlterConfigs { validate_only, .. }
            | Self::UpdateFeatures { validate_only, .. } => *validate_only,
            Self::Reassign { .. }
            | Self::ElectLeaders(_)
            | Self::UnregisterNode { .. }
            | Self::DeleteTopics { .. }
            | Self::Cancelled { .. }
            | Self::Tick
            | Self::Gone { .. }
            | Self::Log(_) => false,
        }
    }
}

impl Outcome {
    /// Whether this is an answer to `input` at all: what another node says may be anything.
    pub const fn answers(&self, input: &Input) -> bool {
        matches!(
            (self, input),
            (Self::Refused(_), _)
                | (Self::NodeRegistered { .. }, Input::RegisterNode(_))
                | (Self::Heartbeat(_), Input::Heartbeat(_))
                | (Self::InSyncChanged(_), Input::ChangeInSync(_))
                | (Self::Reassigned(_), Input::Reassign { .. })
                | (Self::Reassignments(_), Input::ListReassignments { .. })
                | (Self::LeadersElected(_), Input::ElectLeaders(_))
                | (Self::DutySet, Input::SetDuty(_))
                | (Self::Nodes(_), Input::DescribeNodes { .. })
                | (Self::NodeUnregistered, Input::UnregisterNode { .. })
                | (Self::FeaturesUpdated(_), Input::UpdateFeatures { .. })
                | (Self::TopicsCreated(_), Input::CreateTopics { .. })
                | (Self::TopicsDeleted(_), Input::DeleteTopics { .. })
                | (Self::PartitionsCreated(_), Input::CreatePartitions { .. })
                | (Self::ConfigsAltered(_), Input::AlterConfigs { .. })
                | (Self::ProducerIds { .. }, Input::AllocateProducerIds { .. })
        )
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(VERSION, self)
    }

    /// # Errors
    ///
    /// If the bytes are no answer of a controller, or one of a later build.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        let (_, body) = codec::version(bytes, VERSION)?;
        codec::decode(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_something_else_is_none() {
        let input = Input::DescribeNodes { request: RequestId(1) };
        assert!(Outcome::Nodes(Vec::new()).answers(&input));
        assert!(!Outcome::DutySet.answers(&input));
        assert!(!Outcome::TopicsCreated(Vec::new()).answers(&input));
    }
}
