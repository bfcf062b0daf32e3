//! Kafka's own producer as the load: `VerifiableProducer`, idempotent and with acks=all, which says
//! of each record where it was acknowledged. It sends again by itself what has no answer, so each
//! value stands once or not at all, and what it acknowledged stands where it said, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::stopwatch::retry;
use crate::wire::Fetched;

/// Records with one key come to one partition, in the order of their numbers.
const KEYS: u32 = 20;
/// Records a second.
const RATE: u32 = 2000;
/// All records that wait are sent, or given up, within this time (`delivery.timeout.ms` is one
/// minute).
const END_WITHIN: Duration = Duration::from_secs(90);

const SETTINGS: &str = "acks=all
enable.idempotence=true
retries=2147483647
delivery.timeout.ms=60000
request.timeout.ms=10000
max.block.ms=60000
";

/// An acknowledged record of one run: its number, and where it stands.
#[derive(Debug, Clone, Copy)]
struct Sent {
    number: u64,
    partition: i32,
    offset: i64,
}

/// A producer that runs. It is killed when it is dropped.
#[derive(Debug)]
pub struct JavaLoad {
    child: Child,
    run: usize,
    /// What it says, a line of JSON for each record.
    said: PathBuf,
}

/// What was acknowledged in all runs so far.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// By run, then by partition: offset and number.
    runs: BTreeMap<usize, BTreeMap<i32, BTreeMap<i64, u64>>>,
    pub count: usize,
    /// Records that the producer gave up; they may stand all the same.
    pub given_up: u64,
}

impl JavaLoad {
    /// Begins to write to `topic`. Runs have numbers of their own.
    ///
    /// # Errors
    /// If there is no Java, or the folder cannot be written.
    pub fn start(
        root: &Path,
        folder: &Path,
        addresses: &[SocketAddr],
        topic: &str,
        run: usize,
    ) -> io::Result<Self> {
        let kafka = root.join("target/foreign/kafka");
        let settings = folder.join("producer.properties");
        fs::write(&settings, SETTINGS)?;
        let bootstrap: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let log =
            fs::File::options().create(true).append(true).open(folder.join("java-producer.log"))?;
        let said = folder.join(format!("java-producer-{run}.json"));
        let child = Command::new("java")
            .arg("-Xmx256m")
            .arg(format!("-Dlog4j2.configurationFile={}", kafka.join("log4j2.yaml").display()))
            .arg("-cp")
            .arg(kafka.join("libs/*"))
            .arg("org.apache.kafka.tools.VerifiableProducer")
            .args(["--bootstrap-server", &bootstrap.join(","), "--topic", topic])
            .args(["--throughput", &RATE.to_string(), "--repeating-keys", &KEYS.to_string()])
            .args(["--value-prefix", &run.to_string(), "--acks", "-1"])
            .arg("--command-config")
            .arg(&settings)
            .stdin(Stdio::null())
            .stdout(fs::File::create(&said)?)
            .stderr(log)
            .spawn()?;
        Ok(Self { child, run, said })
    }

    /// Ends it in good order: what waits is sent first. Adds what it acknowledged.
    ///
    /// # Errors
    /// If it does not end.
    pub fn stop(mut self, all: &mut Acknowledged) -> io::Result<()> {
        Command::new("kill").arg(self.child.id().to_string()).status()?;
        let ended = retry(END_WITHIN, || self.child.try_wait().ok().flatten());
        if ended.is_none() {
            return Err(io::Error::other("the Java producer does not end"));
        }
        let mut sent = Vec::new();
        for line in BufReader::new(fs::File::open(&self.said)?).lines() {
            let Ok(said) = serde_json::from_str::<serde_json::Value>(&line?) else { continue };
            match said["name"].as_str() {
                Some("producer_send_success") => sent.extend(sent_of(&said)),
                Some("producer_send_error") => all.given_up += 1,
                _ => {}
            }
        }
        all.count += sent.len();
        let run = all.runs.entry(self.run).or_default();
        for Sent { number, partition, offset } in sent {
            run.entry(partition).or_default().insert(offset, number);
        }
        Ok(())
    }
}

impl Drop for JavaLoad {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sent_of(said: &serde_json::Value) -> Option<Sent> {
    let number = said["value"].as_str().and_then(parse)?.1;
    let partition = i32::try_from(said["partition"].as_i64()?).ok()?;
    Some(Sent { number, partition, offset: said["offset"].as_i64()? })
}

/// `run.number`.
fn parse(value: &str) -> Option<(usize, u64)> {
    let (run, number) = value.split_once('.')?;
    Some((run.parse().ok()?, number.parse().ok()?))
}

impl Acknowledged {
    /// What is wrong with what was found in `partition`: nothing acknowledged may be lost or stand
    /// elsewhere, nothing may stand twice, and the records of one run keep their order.
    #[must_use]
    pub fn verify(&self, topic: &str, partition: i32, found: &[Fetched]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut there = BTreeMap::new();
        let (mut last, mut seen) = (BTreeMap::<usize, u64>::new(), BTreeSet::new());
        for Fetched { offset, value } in found {
            let Some((run, number)) = std::str::from_utf8(value).ok().and_then(parse) else {
                wrong.push(format!("{topic}-{partition}@{offset}: a foreign record"));
                continue;
            };
            there.insert((run, *offset), number);
            if !seen.insert((run, number)) {
                wrong.push(format!("{topic}-{partition}@{offset}: {run}.{number} stands twice"));
            }
            if let Some(before) = last.insert(run, number).filter(|before| *before > number) {
                wrong.push(format!(
                    "{topic}-{partition}@{offset}: {run}.{number} stands behind {run}.{before}"
                ));
            }
        }
        for (run, partitions) in &self.runs {
            for (offset, number) in partitions.get(&partition).into_iter().flatten() {
                let found = there.get(&(*run, *offset));
                if found != Some(number) {
                    wrong.push(format!(
                        "{topic}-{partition}@{offset}: acknowledged {run}.{number}, found {found:?}"
                    ));
                }
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[&str]) -> Vec<Fetched> {
        let fetched =
            |(offset, value): (i64, &&str)| Fetched { offset, value: value.as_bytes().to_vec() };
        (0..).zip(values).map(fetched).collect()
    }

    #[test]
    fn what_is_lost_doubled_or_out_of_order_is_told() {
        let mut all = Acknowledged::default();
        let run = all.runs.entry(1).or_default();
        run.insert(0, BTreeMap::from([(0, 4), (2, 9)]));
        assert_eq!(all.verify("t", 0, &found(&["1.4", "1.6", "1.9"])), [""; 0]);
        assert_eq!(all.verify("t", 0, &found(&["1.4", "1.6"])).len(), 1, "9 is lost");
        assert_eq!(all.verify("t", 0, &found(&["1.4", "1.6", "1.8"])).len(), 1, "another one");
        assert_eq!(all.verify("t", 0, &found(&["1.4", "1.6", "1.9", "1.6"])).len(), 2, "twice");
        assert_eq!(all.verify("t", 0, &found(&["1.4", "1.6", "1.9", "1.7"])).len(), 1, "late");
        assert_eq!(all.verify("t", 0, &found(&["1.4", "1.6", "1.9", "x"])).len(), 1, "foreign");
    }
}
