//! What is shown of what the nodes of a run say themselves, beside the trace of its events.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use clap::{Args, ValueEnum};

/// The flags of a command that shows it.
#[derive(Clone, Debug, Args)]
pub struct Flags {
    /// Print what the nodes say, to standard error: -v info, -vv debug, -vvv everything.
    #[arg(short, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What of it: a level, or module=level[,...] such as node::storage=debug.
    #[arg(long, value_name = "FILTER", env = "QUORATE_LOG", hide_env_values = true)]
    pub log: Option<String>,
    /// How it is written.
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text)]
    pub log_format: Form,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A line an event.
    #[default]
    Text,
    /// An object an event.
    Json,
}

/// What a run shows, and where.
#[derive(Clone, Debug)]
pub struct Log {
    /// As `quorate_node::trace::subscriber` reads it.
    pub filter: String,
    pub form: Form,
    /// Standard error, if nothing keeps it.
    pub kept: Option<Kept>,
}

/// Lines that are kept.
#[derive(Clone, Debug, Default)]
pub struct Kept(Arc<Mutex<Vec<u8>>>);

impl Flags {
    /// Nothing, if nothing was asked for.
    pub fn log(&self) -> Option<Log> {
        let level = match self.verbose {
            0 => None,
            1 => Some("info"),
            2 => Some("debug"),
            _ => Some("trace"),
        };
        // The later of two levels counts, and modules have theirs all the same: -v wins over a
        // level of the environment.
        let filter = match (level, &self.log) {
            (Some(level), Some(filter)) => format!("{filter},{level}"),
            (Some(level), None) => level.to_owned(),
            (None, Some(filter)) => filter.clone(),
            (None, None) => return None,
        };
        Some(Log { filter, form: self.log_format, kept: None })
    }
}

impl Kept {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("one thread")
    }

    /// All that was written so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
