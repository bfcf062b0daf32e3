//! One event, taken apart and written as text or as JSON.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde::{Serialize, Serializer};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// What an event says.
#[derive(Serialize)]
pub(super) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(serialize_with = "as_text")]
    level: Level,
    target: Cow<'static, str>,
    message: String,
    #[serde(skip_serializing_if = "Fields::is_empty")]
    fields: Fields,
}

/// In the order in which they were named.
#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

#[derive(Serialize)]
struct Stamped {
    time: Value,
    #[serde(flatten)]
    line: Line,
}

impl Line {
    pub(super) fn new(event: &Event<'_>, node: Option<String>) -> Self {
        let level = *event.metadata().level();
        let target = short(event.metadata().target());
        let (message, fields) = (String::new(), Fields::default());
        let mut line = Self { node, level, target, message, fields };
        event.record(&mut line);
        line
    }

    /// `stamp node level target: message field=value ...`, whatever the values hold on one line.
    pub(super) fn text(&self, stamp: &str, color: bool) -> String {
        let mut text = stamp.to_owned();
        if let Some(node) = &self.node {
            let _ = write!(text, " {node:<3}");
        }
        let level = self.level.as_str();
        let _ = match (color, self.level) {
            (false, _) => write!(text, " {level:<5}"),
            (true, Level::ERROR) => write!(text, " \x1b[31m{level:<5}\x1b[0m"),
            (true, Level::WARN) => write!(text, " \x1b[33m{level:<5}\x1b[0m"),
            (true, Level::INFO) => write!(text, " \x1b[32m{level:<5}\x1b[0m"),
            (true, _) => write!(text, " \x1b[34m{level:<5}\x1b[0m"),
        };
        let _ = write!(text, " {}:", self.target);
        if !self.message.is_empty() {
            text.push(' ');
            push_on_one_line(&mut text, &self.message);
        }
        for (name, value) in &self.fields.0 {
            let _ = write!(text, " {name}=");
            match value {
                Value::String(value) if value.is_empty() => text.push_str("\"\""),
                Value::String(value) => push_on_one_line(&mut text, value),
                value => drop(write!(text, "{value}")),
            }
        }
        text
    }

    pub(super) fn json(self, time: Value) -> String {
        // Strings, numbers and truth values have a form in JSON, all of them.
        serde_json::to_string(&Stamped { time, line: self }).unwrap_or_default()
    }

    fn field(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(message)) => self.message = message,
            (name, value) => self.fields.0.push((name, value)),
        }
    }
}

impl Visit for Line {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.field(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field, format!("{value:?}").into());
    }
}

impl Fields {
    const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// `quorate_node::storage` is `node::storage`, and `quorate`, the command, is `cli`.
fn short(target: &'static str) -> Cow<'static, str> {
    match target.strip_prefix("quorate") {
        Some(inner) if inner.is_empty() || inner.starts_with("::") => {
            Cow::Owned(format!("cli{inner}"))
        }
        Some(inner) => Cow::Borrowed(inner.strip_prefix('_').unwrap_or(target)),
        None => Cow::Borrowed(target),
    }
}

/// A topic's name, or an error that quotes one, must not look like a line of ours.
fn push_on_one_line(text: &mut String, value: &str) {
    for character in value.chars() {
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
}

fn as_text<S: Serializer>(level: &Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(level.as_str())
}
