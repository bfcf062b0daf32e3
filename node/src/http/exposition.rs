//! Prometheus's text format, version 0.0.4: families of samples, each with its help and type.

use std::fmt::{Display, Write as _};

/// Metrics on their way out.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
}

/// Whether a number may fall.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Gauge,
    Counter,
}

impl Exposition {
    /// One family, which must be told once. One without samples is left out.
    pub(super) fn family<'a, V: Display>(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        samples: impl IntoIterator<Item = (Vec<(&'static str, &'a str)>, V)>,
    ) {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        for (at, (labels, value)) in samples.into_iter().enumerate() {
            if at == 0 {
                let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            }
            self.text.push_str(name);
            for (at, (label, value)) in labels.iter().enumerate() {
                let before = if at == 0 { '{' } else { ',' };
                let _ = write!(self.text, "{before}{label}=\"{}\"", escaped(value));
            }
            let end = if labels.is_empty() { "" } else { "}" };
            let _ = writeln!(self.text, "{end} {value}");
        }
    }

    /// A family of one sample without labels.
    pub(super) fn one(&mut self, family: (&str, Kind, &str), value: impl Display) {
        self.family(family, [(Vec::new(), value)]);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Names of groups may hold anything.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_samples_have_prometheus_form() {
        let mut told = Exposition::default();
        told.one(("up", Kind::Gauge, "Whether it is up."), 1);
        told.family::<i32>(("none", Kind::Gauge, "Nothing."), []);
        let samples = [
            (vec![("group", "a\"b\\c\nd"), ("topic", "t")], 1.5),
            (vec![("group", "g"), ("topic", "u")], 2.0),
        ];
        told.family(("lag", Kind::Counter, "Lag."), samples);
        let expected = "# HELP up Whether it is up.\n# TYPE up gauge\nup 1\n# HELP lag Lag.\n\
                        # TYPE lag counter\nlag{group=\"a\\\"b\\\\c\\nd\",topic=\"t\"} 1.5\n\
                        lag{group=\"g\",topic=\"u\"} 2\n";
        assert_eq!(told.finish(), expected);
    }
}
