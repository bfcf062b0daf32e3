//! Traces: where they go, in which form, and how much of them. A node tells what it does; a
//! client command is silent unless asked.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::args::{Global, LogFormat};
use crate::failure::Failure;

/// Starts tracing to standard error, `usual` unless something else was asked for.
///
/// # Errors
///
/// A filter that cannot be read.
pub(crate) fn start(global: &Global, usual: &str) -> Result<(), Failure> {
    let filter = global.log.as_deref().unwrap_or(usual);
    let filter = EnvFilter::builder().parse(filter).map_err(|error| {
        Failure::usage(format!("`{filter}` is no trace filter: {error}"))
            .hint("a level (error, warn, info, debug, trace), or module=level[,...]")
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match global.log_format {
        LogFormat::Text => builder.with_target(false).init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}
