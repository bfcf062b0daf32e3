//! The node's own log lines, stamped with simulated time and the trace's ordinal instead of the
//! machine's clock. `RUST_LOG=quorate_node=debug cargo sim run --seed 7 --trace` shows both.

use std::fmt;

use madsim::time::TimeHandle;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::trace;

struct SimulatedTime;

impl FormatTime for SimulatedTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let now = TimeHandle::try_current().map(|time| time.elapsed()).unwrap_or_default();
        let (seconds, micros) = (now.as_secs(), now.subsec_micros());
        write!(writer, "[{seconds:>3}.{micros:06}s #{:<6}]", trace::ordinal())
    }
}

/// Shows log lines if `RUST_LOG` asks for some.
pub fn show_logs() {
    if let Ok(filter) = EnvFilter::try_from_default_env() {
        // Set twice only by a caller that has its own.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_timer(SimulatedTime)
            .with_writer(std::io::stderr)
            .try_init();
    }
}
