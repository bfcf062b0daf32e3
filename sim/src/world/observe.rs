//! The nodes' own traces, with simulated time and the place in the run's trace instead of the
//! machine's clock: `cargo sim run --seed 7 -v --trace` shows both in one order.

use std::io;

use madsim::time::TimeHandle;
use quorate_node::trace::{Form, Stamp, subscriber};
use tracing::Span;
use tracing::dispatcher::{DefaultGuard, Dispatch, set_default};
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::history::client_name;
use crate::log::{self, Log};
use crate::trace;

/// The runtime's own traces tell of tasks and timers and are seldom wanted; its spans are, because
/// they say which node runs.
const USUAL: &str = "madsim=error,sim=error";

/// The simulated time, and how many events of the trace came before.
struct SimulatedTime;

impl Stamp for SimulatedTime {
    fn text(&self) -> String {
        let now = TimeHandle::try_current().map(|time| time.elapsed()).unwrap_or_default();
        trace::stamp(now, trace::ordinal())
    }

    fn json(&self) -> serde_json::Value {
        let now = TimeHandle::try_current().map(|time| time.elapsed()).unwrap_or_default();
        (now.as_micros() as f64 / 1e6).into()
    }
}

/// Shows the traces of this thread for as long as the guard lives.
///
/// # Errors
///
/// A filter that cannot be read.
pub fn show(log: &Log) -> Result<DefaultGuard, ParseError> {
    let form = match log.form {
        log::Form::Text => Form::Text { color: false },
        log::Form::Json => Form::Json,
    };
    let writer = match log.kept.clone() {
        Some(kept) => BoxMakeWriter::new(move || kept.clone()),
        None => BoxMakeWriter::new(io::stderr),
    };
    let filter = format!("{USUAL},{}", log.filter);
    let subscriber = subscriber(&filter, form, SimulatedTime, writer)?;
    Ok(set_default(&Dispatch::new(subscriber)))
}

/// Within it, a client speaks. The runtime has such a span for each node.
pub fn client_span(client: u32) -> Span {
    tracing::error_span!(parent: None, "node", name = client_name(client))
}
