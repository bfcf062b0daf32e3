//! What can go wrong for a client, told apart by what the caller may conclude: the broker said no,
//! it was certainly never asked, or nobody knows whether it acted.

use std::fmt;
use std::time::Duration;

use crate::kafka::error::Code;
use crate::wire::WireError;

/// What is known about an operation that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has certainly had no effect.
    NotDone,
    /// It may have taken effect, now or later.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No connection could be made, or it was gone before the request left.
    Unreachable { address: String, reason: String },
    /// The request left and no answer came.
    Interrupted { address: String, reason: String },
    /// The broker answered with an error code; `what` names the thing that it is about.
    Refused { what: String, code: Code, message: Option<String> },
    /// The answer could not be understood.
    Malformed { address: String, reason: String },
    /// The broker speaks no version of the API that this client speaks.
    Unsupported { api: String, address: String },
    /// The time for the whole operation is over; `last` is what its last attempt met.
    Expired { what: String, after: Duration, last: Option<Box<Self>> },
    /// The caller asked for something impossible.
    Invalid { reason: String },
    /// The client, producer or consumer was closed.
    Closed,
}

impl Error {
    pub(crate) fn refused(what: impl Into<String>, code: Code, message: Option<&str>) -> Self {
        let message = message.filter(|text| !text.is_empty()).map(str::to_owned);
        Self::Refused { what: what.into(), code, message }
    }

    pub(crate) fn malformed(address: &str, error: &WireError) -> Self {
        Self::Malformed { address: address.to_owned(), reason: error.to_string() }
    }

    /// Whether the same request may succeed later, as Kafka's `RetriableException` has it.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Interrupted { .. } => true,
            Self::Refused { code, .. } => code.is_retriable(),
            Self::Malformed { .. }
            | Self::Unsupported { .. }
            | Self::Expired { .. }
            | Self::Invalid { .. }
            | Self::Closed => false,
        }
    }

    /// Whether the cached metadata may be to blame.
    pub(crate) fn blames_metadata(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Interrupted { .. } => true,
            Self::Refused { code, .. } => matches!(
                *code,
                Code::UnknownTopicOrPartition
                    | Code::LeaderNotAvailable
                    | Code::NotLeaderOrFollower
                    | Code::KafkaStorageError
                    | Code::FencedLeaderEpoch
                    | Code::UnknownTopicId
                    | Code::InconsistentTopicId
            ),
            _ => false,
        }
    }

    /// Whether an operation that met this error alone may nevertheless have taken effect.
    #[must_use]
    pub fn fate(&self) -> Fate {
        match self {
            Self::Unreachable { .. }
            | Self::Unsupported { .. }
            | Self::Invalid { .. }
            | Self::Closed => Fate::NotDone,
            Self::Interrupted { .. } | Self::Malformed { .. } => Fate::Unknown,
            Self::Expired { last, .. } => last.as_ref().map_or(Fate::NotDone, |last| last.fate()),
            Self::Refused { code, .. } => fate_of(*code),
        }
    }

    /// The broker's code, if it is what stands in the way, at last.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Expired { last: Some(last), .. } => last.code(),
            _ => None,
        }
    }

    /// Whether no broker could be reached.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Expired { last: Some(last), .. } => last.is_unreachable(),
            _ => false,
        }
    }
}

/// The codes that a leader may give after it has appended. A leader that loses its place while an
/// append waits for replicas says `NOT_LEADER_OR_FOLLOWER`, and the append may survive it.
fn fate_of(code: Code) -> Fate {
    match code {
        Code::UnknownServerError
        | Code::RequestTimedOut
        | Code::NotLeaderOrFollower
        | Code::NetworkException
        | Code::NotEnoughReplicasAfterAppend
        | Code::KafkaStorageError => Fate::Unknown,
        _ => Fate::NotDone,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { address, reason } => {
                write!(f, "cannot reach {address}: {reason}")
            }
            Self::Interrupted { address, reason } => {
                write!(f, "no answer from {address}: {reason}")
            }
            Self::Refused { what, code, message: Some(message) } => {
                write!(f, "{what}: {message} ({code})")
            }
            Self::Refused { what, code, message: None } => write!(f, "{what}: {code}"),
            Self::Malformed { address, reason } => {
                write!(f, "{address} gave an answer that cannot be read: {reason}")
            }
            Self::Unsupported { api, address } => {
                write!(f, "{address} does not know {api} in a version that this client speaks")
            }
            Self::Expired { what, after, last } => {
                write!(f, "{what} did not succeed within {} ms", after.as_millis())?;
                last.as_ref().map_or(Ok(()), |last| write!(f, "; at last, {last}"))
            }
            Self::Invalid { reason } => f.write_str(reason),
            Self::Closed => f.write_str("it was closed"),
        }
    }
}

impl std::error::Error for Error {}
