//! One foreign client behind its thin program: how it is started, what it can do, its lines.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Seconds after which a client that says nothing more is killed.
const PATIENCE: &str = "150";

/// Why a scenario failed, in a sentence or two.
#[derive(Debug, Clone)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// A record as the adapters print and read it; bytes are base64.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    pub p: i32,
    #[serde(default)]
    pub o: i64,
    pub k: Option<String>,
    pub v: Option<String>,
    pub h: Vec<(String, Option<String>)>,
    pub t: i64,
    #[serde(default, skip_serializing)]
    pub topic: String,
}

/// `client.json`: how to start the adapter, and what it cannot do, with the reasons.
#[derive(Debug, Deserialize)]
struct Description {
    run: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cannot: BTreeMap<String, String>,
}

#[derive(Debug)]
pub struct Adapter {
    pub name: String,
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    cannot: BTreeMap<String, String>,
}

/// Every client under `clients/`, in alphabetical order.
///
/// # Errors
/// If a description cannot be read.
pub fn all(root: &Path) -> Result<Vec<Adapter>, Failure> {
    let mut every = Vec::new();
    for entry in std::fs::read_dir(root.join("jepsen-like-tests/clients"))? {
        let here = entry?.path();
        let Ok(text) = std::fs::read_to_string(here.join("client.json")) else { continue };
        let description: Description = serde_json::from_str(&text)?;
        let foreign = root.join("target/foreign");
        let fill = |text: &String| {
            text.replace("{foreign}", &foreign.display().to_string())
                .replace("{here}", &here.display().to_string())
        };
        every.push(Adapter {
            name: here.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            command: description.run.iter().map(fill).collect(),
            environment: description.env.iter().map(|(k, v)| (k.clone(), fill(v))).collect(),
            cannot: description.cannot,
        });
    }
    every.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(every)
}

impl Adapter {
    /// The reason why the client cannot do this, or `None` if it can.
    #[must_use]
    pub fn cannot(&self, what: &str) -> Option<&str> {
        self.cannot.get(what).map(String::as_str)
    }

    #[must_use]
    pub fn can(&self, what: &str) -> bool {
        !self.cannot.contains_key(what)
    }

    fn start(&self, verb: &str, parameters: &Value) -> Result<Child, Failure> {
        Command::new("timeout")
            .args(["--kill-after=5", PATIENCE])
            .args(&self.command)
            .arg(verb)
            .arg(parameters.to_string())
            .envs(&self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failure(format!("cannot start {}: {error}", self.name)))
    }

    /// Runs one verb to its end: its lines, or what it complained about.
    ///
    /// # Errors
    /// If the program fails, or prints something that is not JSON.
    pub fn call(&self, verb: &str, p: &Value, input: &[Record]) -> Result<Vec<Value>, Failure> {
        self.follow(verb, p, input, |_| Ok(()))
    }

    /// As [`call`](Self::call); `on_ready` runs when the client reports itself ready.
    ///
    /// # Errors
    /// If the program or `on_ready` fails.
    pub fn follow(
        &self,
        verb: &str,
        parameters: &Value,
        input: &[Record],
        mut on_ready: impl FnMut(&Self) -> Result<(), Failure>,
    ) -> Result<Vec<Value>, Failure> {
        let mut child = self.start(verb, parameters)?;
        let mut stdin = child.stdin.take().expect("piped");
        let mut stderr = child.stderr.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for record in input {
                    let line = serde_json::to_string(record).expect("a record is JSON");
                    if writeln!(stdin, "{line}").is_err() {
                        return; // It died; its exit says so.
                    }
                }
            });
            let complaints = scope.spawn(move || {
                let mut text = String::new();
                let _ = stderr.read_to_string(&mut text);
                text
            });
            let mut lines = Vec::new();
            for line in stdout.lines() {
                let line = line?;
                let value: Value = serde_json::from_str(&line)
                    .map_err(|error| Failure(format!("{error} in the line {line:?}")))?;
                if value.get("ready").is_some() {
                    on_ready(self)?;
                } else {
                    lines.push(value);
                }
            }
            let status = child.wait()?;
            let complaints = complaints.join().unwrap_or_default();
            if status.success() {
                return Ok(lines);
            }
            let what = if status.code() == Some(124) { "hung" } else { "failed" };
            let last = complaints.lines().rev().find(|line| !line.trim().is_empty());
            Err(Failure(format!("{verb} {what}: {}", last.unwrap_or("no complaint"))))
        })
    }

    /// Produces `records`; an offset (or -1 where the client does not tell) or an error for each.
    ///
    /// # Errors
    /// If the program fails as a whole.
    pub fn produce(
        &self,
        parameters: &Value,
        records: &[Record],
    ) -> Result<Vec<Result<i64, String>>, Failure> {
        let lines = self.call("produce", parameters, records)?;
        if lines.len() != records.len() {
            let (sent, told) = (records.len(), lines.len());
            return Err(Failure(format!("{sent} records sent, {told} answers")));
        }
        Ok(lines
            .iter()
            .map(|line| match line["error"].as_str() {
                Some(error) => Err(error.to_owned()),
                None => Ok(line["o"].as_i64().unwrap_or(-1)),
            })
            .collect())
    }

    /// Everything in `topics`, each with the number of records expected there.
    ///
    /// # Errors
    /// If the program fails or prints something that is not a record.
    pub fn consume(
        &self,
        bootstrap: &str,
        topics: &BTreeMap<String, usize>,
    ) -> Result<BTreeMap<String, Vec<Record>>, Failure> {
        let names: Vec<&String> = topics.keys().collect();
        let parameters = json!({"bootstrap": bootstrap, "topics": names, "counts": topics});
        let mut found: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for line in self.call("consume", &parameters, &[])? {
            let record: Record = serde_json::from_value(line)?;
            found.entry(record.topic.clone()).or_default().push(record);
        }
        for records in found.values_mut() {
            records.sort_by_key(|record| (record.p, record.o));
        }
        Ok(found)
    }
}
