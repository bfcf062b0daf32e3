//! Why a command did not do what it was asked: a sentence, what to do about it, and the exit code
//! that scripts go by: 1 refused or failed, 2 usage, 3 not reachable.

use std::fmt::Display;
use std::io;

use quorate_net::client::{EndError, Error, SendError};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub what: String,
    pub hint: Option<String>,
    pub exit: u8,
}

pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const UNREACHABLE: u8 = 3;

impl Failure {
    pub(crate) fn new(what: impl Display) -> Self {
        Self { what: what.to_string(), hint: None, exit: FAILED }
    }

    pub(crate) fn usage(what: impl Display) -> Self {
        Self { what: what.to_string(), hint: None, exit: USAGE }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Whether it is only that nobody reads our output any more.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.what == BROKEN_PIPE
    }
}

const BROKEN_PIPE: &str = "nobody reads the output";

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if error.is_unreachable() {
            let hint = "is a node running there? `quorate up` starts one; --bootstrap or \
                        QUORATE_BOOTSTRAP names another";
            return Self { exit: UNREACHABLE, ..Self::new(&error) }.hint(hint);
        }
        Self::new(error)
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        let what = error.to_string();
        Self { what, ..Self::from(error.error) }
    }
}

impl From<EndError> for Failure {
    fn from(error: EndError) -> Self {
        let what = error.to_string();
        Self { what, ..Self::from(error.error) }
    }
}

/// Errors of our own output; files name themselves where they are opened.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(BROKEN_PIPE),
            _ => Self::new(format!("writing the output: {error}")),
        }
    }
}
