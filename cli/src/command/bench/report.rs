//! What a run found: rates, and the distribution of latencies, for people and for programs.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::run::transactions::Phases;
use crate::command::Context;
use crate::failure::Failure;
use crate::output::{Style, human};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub bench: &'static str,
    pub records: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub records_per_second: f64,
    pub bytes_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<Transactions>,
}

/// How many, and where their time goes.
#[derive(Debug, Serialize)]
pub(super) struct Transactions {
    pub committed: u64,
    /// From the begin to the first acknowledgement.
    pub first_us: Latency,
    /// From the begin to the last record.
    pub fill_us: Latency,
    /// From there until all records are acknowledged.
    pub flush_us: Latency,
    /// From there until the commit is decided.
    pub commit_us: Latency,
}

/// Microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub mean: f64,
    pub min: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub p9999: u64,
    pub max: u64,
}

/// Latencies in microseconds, to three digits.
pub(super) fn histogram() -> Histogram<u64> {
    // Up to an hour.
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("bounds and digits are allowed")
}

/// Microseconds of a latency, at least one.
pub(super) fn micros(latency: Duration) -> u64 {
    u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1)
}

impl Report {
    pub(super) fn new(bench: &'static str, records: u64, bytes: u64, took: Duration) -> Self {
        let seconds = took.as_secs_f64();
        let rate = |amount: u64| amount as f64 / seconds.max(f64::EPSILON);
        let (records_per_second, bytes_per_second) = (rate(records), rate(bytes));
        let (latency_us, transactions) = (None, None);
        Self {
            bench,
            records,
            bytes,
            seconds,
            records_per_second,
            bytes_per_second,
            latency_us,
            transactions,
        }
    }

    #[must_use]
    pub(super) fn latencies(mut self, found: &Histogram<u64>) -> Self {
        self.latency_us = Some(Latency::of(found));
        self
    }

    #[must_use]
    pub(super) fn transactions(mut self, phases: &Phases) -> Self {
        self.transactions = Some(Transactions {
            committed: phases.commit.len(),
            first_us: Latency::of(&phases.first),
            fill_us: Latency::of(&phases.fill),
            flush_us: Latency::of(&phases.flush),
            commit_us: Latency::of(&phases.commit),
        });
        self
    }

    pub(super) fn print(&self, context: &Context) -> Result<(), Failure> {
        let output = context.output;
        let style = output.style;
        let rate = human::count(self.records_per_second as u64);
        let bytes = human::bytes(self.bytes_per_second as u64);
        output.line(&format!(
            "{}  {} records ({}) in {}",
            style.bold(self.bench),
            human::count(self.records),
            human::bytes(self.bytes),
            human::duration(Duration::from_secs_f64(self.seconds)),
        ))?;
        output.line(&format!("  {} records/s, {}/s", style.bold(&rate), style.bold(&bytes)))?;
        if let Some(latency) = &self.latency_us {
            output.line(&latency.line("latency", style))?;
        }
        let Some(transactions) = &self.transactions else { return Ok(()) };
        let committed = human::count(transactions.committed);
        output.line(&format!("  {} transactions", style.bold(&committed)))?;
        let phases = [
            ("begin to first acknowledgement", &transactions.first_us),
            ("begin to last record", &transactions.fill_us),
            ("flush", &transactions.flush_us),
            ("commit", &transactions.commit_us),
        ];
        for (name, latency) in phases {
            output.line(&latency.line(name, style))?;
        }
        Ok(())
    }
}

impl Latency {
    fn of(found: &Histogram<u64>) -> Self {
        Self {
            mean: found.mean(),
            min: found.min(),
            p50: found.value_at_quantile(0.5),
            p90: found.value_at_quantile(0.9),
            p99: found.value_at_quantile(0.99),
            p999: found.value_at_quantile(0.999),
            p9999: found.value_at_quantile(0.9999),
            max: found.max(),
        }
    }

    fn line(&self, name: &str, style: Style) -> String {
        let shown = [
            ("p50", self.p50),
            ("p90", self.p90),
            ("p99", self.p99),
            ("p99.9", self.p999),
            ("p99.99", self.p9999),
            ("max", self.max),
        ];
        let mut line = format!("  {}", style.dim(name));
        for (name, micros) in shown {
            let time = human::duration(Duration::from_micros(micros));
            line.push_str(&format!("  {} {time}", style.dim(name)));
        }
        line
    }
}
