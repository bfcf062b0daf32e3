//! Traces of this process: what is traced, in which form, stamped with the wall clock. A node tells
//! what it does; a client command is silent unless asked.

use std::io::IsTerminal;

use quorate_node::trace::{Form, Stamp, subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::{Global, LogFormat};
use crate::failure::Failure;

/// The time in UTC with microseconds, as RFC 3339 writes it.
struct WallTime;

impl Stamp for WallTime {
    fn text(&self) -> String {
        let mut text = String::new();
        // A string takes everything.
        let _ = SystemTime.format_time(&mut Writer::new(&mut text));
        text
    }

    fn json(&self) -> serde_json::Value {
        self.text().into()
    }
}

/// Starts tracing to standard error, `usual` unless something else was asked for.
///
/// # Errors
///
/// A filter that cannot be read.
pub(crate) fn start(global: &Global, usual: &str) -> Result<(), Failure> {
    let filter = global.log.as_deref().unwrap_or(usual);
    let form = match global.log_format {
        LogFormat::Text => Form::Text { color: std::io::stderr().is_terminal() },
        LogFormat::Json => Form::Json,
    };
    let subscriber = subscriber(filter, form, WallTime, std::io::stderr).map_err(|error| {
        Failure::usage(format!("`{filter}` is no trace filter: {error}")).hint(
            "a level (error, warn, info, debug, trace), or module=level[,...] such as \
             node::storage=debug",
        )
    })?;
    subscriber.init();
    Ok(())
}
