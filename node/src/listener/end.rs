//! How a connection ends, and whose doing it is.

use std::fmt;
use std::io;

use quorate_net::connection::FrameError;

#[derive(Debug)]
pub(crate) enum End {
    /// The client closed it.
    Left,
    /// No request for too long.
    Idle,
    /// The client stopped in the middle of a frame.
    SlowSender,
    /// The client stopped in the middle of a frame whose memory others wait for.
    InTheWay,
    /// The client does not read.
    SlowReader,
    /// A request had no answer in its time.
    TookTooLong,
    /// What was sent cannot be read, or not be answered.
    Garbage(String),
    /// A request whose only possible answer is to close.
    Refused(String),
    /// The node stops.
    Stopped,
    Io(io::Error),
}

impl End {
    pub(crate) fn garbage(error: impl fmt::Display) -> Self {
        Self::Garbage(error.to_string())
    }

    /// Whether the node gave the client up.
    pub(crate) const fn is_given_up(&self) -> bool {
        matches!(
            self,
            Self::SlowSender
                | Self::InTheWay
                | Self::SlowReader
                | Self::TookTooLong
                | Self::Garbage(_)
                | Self::Refused(_)
        )
    }
}

impl From<FrameError> for End {
    fn from(error: FrameError) -> Self {
        Self::garbage(error)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("the client left"),
            Self::Idle => f.write_str("idle for too long"),
            Self::SlowSender => f.write_str("a request did not come to its end in time"),
            Self::InTheWay => {
                f.write_str("a request was slow to come while others waited for its memory")
            }
            Self::SlowReader => f.write_str("the client did not read its answers in time"),
            Self::TookTooLong => f.write_str("a request took longer than any may"),
            Self::Garbage(why) => write!(f, "not understood: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Stopped => f.write_str("the node stops"),
            Self::Io(error) => write!(f, "the connection broke: {error}"),
        }
    }
}
