//! How traces read: one line an event, or one JSON object, stamped with the time of the world.
//!
//! The same lines come from a process and from a simulated life; only the stamp differs:
//!
//! ```text
//! 2026-11-29T17:38:35.123456Z INFO  node::start: the node serves id=1 address=127.0.0.1:9092
//! [  0.013207s #41    ] n1  INFO  node::start: the node serves id=1 address=0.0.0.0:9092
//! ```
//!
//! Who speaks is the `name` of the innermost span called `node`, where there is one: processes hold
//! a single node and have none, the simulator has one for each node and client.

mod line;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber, span};
use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

use self::line::Line;

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line for people, with a coloured level or without.
    Text { color: bool },
    /// A JSON object a line: `time`, `node` (where there are several), `level`, `target`,
    /// `message`, `fields`.
    Json,
}

/// What time it is, in the world that is traced.
pub trait Stamp: Send + Sync + 'static {
    /// What a line of text begins with.
    fn text(&self) -> String;

    /// The value of `time` in JSON.
    fn json(&self) -> serde_json::Value;
}

/// Traces of `filter`, stamped by `stamp`, written to `writer`, each by one call.
///
/// A filter is a level, or `module=level`, or several of them with commas between; the modules'
/// names may be as they are printed, `node::storage` for `quorate_node::storage`.
///
/// # Errors
///
/// A filter that cannot be read.
pub fn subscriber<S, W>(
    filter: &str,
    form: Form,
    stamp: S,
    writer: W,
) -> Result<impl Subscriber + Send + Sync + 'static, ParseError>
where
    S: Stamp,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::builder().parse(whole_names(filter))?;
    Ok(Registry::default().with(filter).with(Lines { form, stamp, writer }))
}

/// Gives the crates of a filter their full names.
fn whole_names(filter: &str) -> String {
    // The fields of a span may hold anything.
    if filter.contains('[') {
        return filter.to_owned();
    }
    let whole = filter.split(',').map(|directive| {
        let directive = directive.trim();
        let name = directive.split([':', '=']).next().unwrap_or_default();
        let ours = ["cli", "core", "net", "node", "sim"].contains(&name);
        match name {
            "cli" => directive.replacen("cli", "quorate", 1),
            _ if ours => format!("quorate_{directive}"),
            _ => directive.to_owned(),
        }
    });
    whole.collect::<Vec<_>>().join(",")
}

/// Writes events as they happen.
struct Lines<S, W> {
    form: Form,
    stamp: S,
    writer: W,
}

/// The name of whoever speaks within a span.
struct Speaker(String);

impl<S, W, R> Layer<R> for Lines<S, W>
where
    S: Stamp,
    W: for<'a> MakeWriter<'a> + 'static,
    R: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, from: Context<'_, R>) {
        if attributes.metadata().name() != "node" {
            return;
        }
        let mut name = Name(None);
        attributes.record(&mut name);
        if let (Some(name), Some(span)) = (name.0, from.span(id)) {
            span.extensions_mut().insert(Speaker(name));
        }
    }

    fn on_event(&self, event: &Event<'_>, from: Context<'_, R>) {
        let speaker =
            from.event_scope(event).into_iter().flatten().find_map(|span| {
                span.extensions().get::<Speaker>().map(|speaker| speaker.0.clone())
            });
        let line = Line::new(event, speaker);
        let mut text = match self.form {
            Form::Text { color } => line.text(&self.stamp.text(), color),
            Form::Json => line.json(self.stamp.json()),
        };
        text.push('\n');
        // Nobody can be told that standard error is closed.
        let _ = self.writer.make_writer_for(event.metadata()).write_all(text.as_bytes());
    }
}

/// Finds the field `name`.
struct Name(Option<String>);

impl Visit for Name {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "name" {
            self.0 = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
