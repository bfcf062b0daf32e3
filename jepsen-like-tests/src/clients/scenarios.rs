//! The scenarios, each a function from a client to a cell.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use serde_json::{Value, json};

use super::adapter::{Adapter, Failure, Record};
use super::samples;
use super::table::{Cell, Table};
use super::unless;
use crate::stopwatch::wall_milliseconds;

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
const ACKS: [&str; 3] = ["0", "1", "all"];
/// The client whose reading the others are compared with, and the one that writes for others.
const ORACLE: &str = "java";
const WRITER: &str = "confluent-kafka";
/// The key of the sample whose value is not text.
const BINARY: Option<&str> = Some("YmluYXJ5");
/// Times of the records of the topic `by-time`: one is out of order.
const TIMES: [i64; 8] = [0, 1000, 2000, 5000, 3000, 4000, 6000, 9000];

fn fail<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(text.into()))
}

/// What lies in each topic, in order of (partition, offset), as the oracle read it.
pub(super) type Truth = BTreeMap<String, Vec<Record>>;

/// A topic that was written, what went into it, and by whom.
struct Written {
    writer: String,
    topic: String,
    records: Vec<Record>,
}

pub(super) struct Scenarios<'a> {
    bootstrap: &'a str,
    every: &'a [Adapter],
    written: Mutex<Vec<Written>>,
    /// Makes topic names of one run differ from those of another on the same broker.
    run: i64,
}

impl<'a> Scenarios<'a> {
    /// Creates every topic, so that no client depends on automatic creation.
    pub(super) fn prepare(every: &'a [Adapter], bootstrap: &'a str) -> Result<Self, Failure> {
        let run = wall_milliseconds() / 1000 % 100_000;
        let scenarios = Scenarios { bootstrap, every, written: Vec::new().into(), run };
        // The samples' timestamps are years old, so retention must not see them.
        let topic = |name: String, partitions: i32, config: Option<(&str, &str)>| {
            let mut configs = BTreeMap::from([("retention.ms", "-1")]);
            configs.extend(config);
            json!({"name": name, "partitions": partitions, "config": configs})
        };
        let append_time = Some(("message.timestamp.type", "LogAppendTime"));
        let mut topics = vec![
            topic(scenarios.topic("any", "by-time"), 1, None),
            topic(scenarios.topic("any", "append-time"), 1, append_time),
        ];
        for client in every {
            let name = |what: &str| scenarios.topic(&client.name, what);
            for what in CODECS.iter().chain(&["acks-0", "acks-1", "acks-all", "idempotent"]) {
                topics.push(topic(name(what), 3, None));
            }
            topics.push(topic(name("null-header"), 1, None));
            topics.push(topic(name("group"), 4, None));
            topics.push(topic(name("transact"), 3, None));
            topics.push(topic(name("transact-out"), 3, None));
            topics.push(topic(name("large"), 1, Some(("max.message.bytes", "2097152"))));
            topics.push(topic(name("small"), 1, Some(("max.message.bytes", "10000"))));
        }
        let create = json!({"bootstrap": bootstrap, "topics": topics});
        scenarios.client(WRITER)?.call("create", &create, &[])?;
        scenarios.write_shared()?;
        Ok(scenarios)
    }

    fn written(&self) -> MutexGuard<'_, Vec<Written>> {
        self.written.lock().expect("no scenario panics")
    }

    fn topic(&self, client: &str, what: &str) -> String {
        format!("{client}-{what}-{}", self.run)
    }

    fn client(&self, name: &str) -> Result<&'a Adapter, Failure> {
        let found = self.every.iter().find(|client| client.name == name);
        found.ok_or_else(|| Failure(format!("the client {name} is not installed")))
    }

    /// Topics whose content is the same for every client.
    fn write_shared(&self) -> Result<(), Failure> {
        let times: Vec<i64> = TIMES.iter().map(|time| samples::FIRST_TIME + time).collect();
        let timed = samples::at_times(&times);
        self.write(self.client(WRITER)?, "by-time", "any", &timed, json!({"codec": "zstd"}))?;
        let plain = samples::plain(5, 1);
        self.write(self.client(WRITER)?, "append-time", "any", &plain, json!({}))?;
        Ok(())
    }

    /// Produces, checks that every record was acknowledged at a rising offset, and remembers.
    fn write(
        &self,
        writer: &Adapter,
        what: &str,
        owner: &str,
        records: &[Record],
        more: Value,
    ) -> Result<String, Failure> {
        let topic = self.topic(owner, what);
        let mut p = json!({"bootstrap": self.bootstrap, "topic": topic, "codec": "none",
            "acks": "all", "idempotent": false});
        for (name, value) in more.as_object().into_iter().flatten() {
            p[name] = value.clone();
        }
        let answers = writer.produce(&p, records)?;
        let mut next: BTreeMap<i32, i64> = BTreeMap::new();
        for (record, answer) in records.iter().zip(&answers) {
            let offset = match answer {
                Ok(offset) => *offset,
                Err(error) => return fail(format!("a record was refused: {error}")),
            };
            let expected = next.entry(record.p).or_default();
            if offset >= 0 && p["acks"] != "0" && offset != *expected {
                return fail(format!("acknowledged at {offset}, not at {expected}"));
            }
            *expected += 1;
        }
        self.written().push(Written {
            writer: writer.name.clone(),
            topic,
            records: records.to_vec(),
        });
        Ok(String::new())
    }

    /// Every scenario in which `writer` writes.
    pub(super) fn write_all(&self, writer: &Adapter, table: &mut Table) {
        let edges = samples::edges(writer);
        let own = |what: &str, records: &[Record], more: Value| {
            self.write(writer, what, &writer.name, records, more)
        };
        for codec in CODECS {
            let cannot = writer.cannot(&format!("codec-{codec}"));
            let cell = unless(cannot, || own(codec, &edges, json!({"codec": codec})));
            table.set(&writer.name, codec, cell);
        }
        let cell = unless(writer.cannot("write-null-header"), || {
            own("null-header", &samples::null_headers(), json!({}))
        });
        table.set(&writer.name, "null header", cell);
        for acks in ACKS {
            let what = format!("acks-{acks}");
            let cell = unless(writer.cannot(&what), || {
                own(&what, &samples::plain(9, 3), json!({"acks": acks}))
            });
            table.set(&writer.name, &format!("acks={acks}"), cell);
        }
        let cell = unless(writer.cannot("idempotent"), || {
            own("idempotent", &samples::plain(30, 3), json!({"idempotent": true, "codec": "lz4"}))
        });
        table.set(&writer.name, "idempotent", cell);
        let cell = unless(writer.cannot("write-large"), || {
            own("large", &samples::heavy(1 << 20), json!({"max_bytes": 4_000_000}))
        });
        table.set(&writer.name, "1 MiB", cell);
        let cell = unless(writer.cannot("write-large"), || self.too_large(writer));
        table.set(&writer.name, "too large", cell);
    }

    /// The broker refuses what exceeds the topic's bound, says why, and stays usable.
    fn too_large(&self, writer: &Adapter) -> Result<String, Failure> {
        let topic = self.topic(&writer.name, "small");
        let p = json!({"bootstrap": self.bootstrap, "topic": topic, "codec": "none",
            "acks": "all", "idempotent": false, "max_bytes": 4_000_000});
        let answers = writer.produce(&p, &samples::heavy(50_000))?;
        let Err(error) = &answers[0] else {
            return fail("50 kB were accepted by a topic with max.message.bytes=10000");
        };
        let plain = error.to_lowercase().replace(['_', ' '], "");
        let names = [
            "messagetoolarge",
            "messagesizetoolarge",
            "recordtoolarge",
            "largerthan",
            "messagewastoolarge",
        ];
        if !names.iter().any(|name| plain.contains(name)) {
            return fail(format!("refused, but with: {error}"));
        }
        match &writer.produce(&p, &samples::heavy(500))?[0] {
            Ok(_) => Ok(String::new()),
            Err(error) => fail(format!("a small record afterwards was refused: {error}")),
        }
    }

    /// Reads everything with the oracle and compares it with what was sent.
    pub(super) fn truth(&self, table: &mut Table) -> Result<Truth, Failure> {
        let written = self.written();
        let counts = written.iter().map(|w| (w.topic.clone(), w.records.len())).collect();
        let truth = self.client(ORACLE)?.consume(self.bootstrap, &counts)?;
        for w in written.iter() {
            let found = truth.get(&w.topic).map_or(&[][..], Vec::as_slice);
            let writer = self.client(&w.writer)?;
            if let Err(failure) = same_as_sent(writer, w, found) {
                table.set(&w.writer, "read back", Cell::Failed(failure.0));
            }
        }
        let appended = &truth[&self.topic("any", "append-time")];
        if let Some(old) = appended.iter().find(|r| (wall_milliseconds() - r.t).abs() > 300_000) {
            let why = format!("LogAppendTime is {}, which is not now", old.t);
            table.set(WRITER, "append time", Cell::Failed(why));
        }
        Ok(truth)
    }

    /// Everything that everybody wrote, compared with the oracle's reading.
    pub(super) fn read_all(&self, reader: &Adapter, truth: &Truth) -> Cell {
        let slow = reader.cannot("read-quickly").is_some();
        let wanted: BTreeMap<String, usize> = truth
            .iter()
            .filter(|(topic, _)| reader.can("read-null-header") || !topic.contains("null-header"))
            .filter(|(topic, _)| !slow || topic.contains("-zstd-") || topic.contains("any-"))
            .map(|(topic, records)| (topic.clone(), records.len()))
            .collect();
        unless(None, || {
            let found = reader.consume(self.bootstrap, &wanted)?;
            let mut count = 0;
            for topic in wanted.keys() {
                let text = |r: &&Record| reader.can("read-binary") || r.k.as_deref() != BINARY;
                let expected = truth[topic].iter().filter(text);
                let expected = expected.map(|r| as_read_by(reader, topic, r));
                let found = found.get(topic).map_or(&[][..], Vec::as_slice);
                let found = found.iter().map(|r| as_read_by(reader, topic, r));
                count += differing(topic, expected.collect(), found.collect())?;
            }
            Ok(format!("{count} in {}", wanted.len()))
        })
    }

    /// The first offset at or after a time, also between, before and after all records.
    pub(super) fn find_by_time(&self, client: &Adapter) -> Cell {
        unless(client.cannot("lookup"), || {
            let cases = [(0, 0), (1, 1), (1000, 1), (2500, 3), (5500, 6), (9000, 7), (9001, -1)];
            let times: Vec<i64> = cases.iter().map(|(t, _)| samples::FIRST_TIME + t).collect();
            let topic = self.topic("any", "by-time");
            let p = json!({"bootstrap": self.bootstrap, "topic": topic, "times": times});
            let found = client.call("lookup", &p, &[])?;
            for ((time, expected), line) in cases.iter().zip(&found) {
                if line["o"].as_i64() != Some(*expected) {
                    return fail(format!("at +{time} ms: {line}, expected {expected}"));
                }
            }
            if found.len() == cases.len() { Ok(String::new()) } else { fail("answers missing") }
        })
    }

    /// Two members share four partitions, each record once; a later member goes on behind them.
    pub(super) fn group(&self, client: &Adapter) -> (Cell, Cell) {
        let topic = self.topic(&client.name, "group");
        let run = |members: usize, count: usize, from: i64| {
            let p = json!({"bootstrap": self.bootstrap, "topic": topic, "members": members,
                "group": format!("{topic}-readers"), "count": count});
            let lines = client.follow("group", &p, &[], |_| {
                let write = json!({"bootstrap": self.bootstrap, "topic": topic, "acks": "all",
                    "codec": "none", "idempotent": false});
                let answers = self.client(WRITER)?.produce(&write, &samples::plain(count, 4))?;
                let refused = answers.into_iter().find_map(Result::err);
                refused.map_or(Ok(()), |error| fail(format!("writing for the group: {error}")))
            })?;
            once_each(&lines, members, count, from)
        };
        let first = unless(client.cannot("group"), || run(2, 40, 0));
        let second = unless(client.cannot("group"), || run(1, 8, 10));
        (first, second)
    }

    /// What was committed, and nothing else, is copied once and found once; whoever was replaced is
    /// fenced.
    pub(super) fn transact(&self, client: &Adapter) -> Cell {
        unless(client.cannot("transact"), || {
            let topic = self.topic(&client.name, "transact");
            let p = json!({"bootstrap": self.bootstrap, "topic": topic, "id": format!("{topic}-id"),
                "out": self.topic(&client.name, "transact-out"),
                "group": format!("{topic}-copies")});
            let lines = client.call("transact", &p, &[])?;
            for what in ["v", "out"] {
                committed_once(what, &lines)?;
            }
            let zombie = lines.iter().find_map(|line| line["zombie"].as_str());
            match zombie {
                Some("fenced") => Ok(String::new()),
                other => fail(format!("a replaced producer: {other:?}")),
            }
        })
    }

    /// Every administrative operation the adapter tries must have worked.
    pub(super) fn admin(&self, client: &Adapter) -> Cell {
        unless(client.cannot("admin"), || {
            let topic = self.topic(&client.name, "admin");
            let p = json!({"bootstrap": self.bootstrap, "topic": topic});
            let lines = client.call("admin", &p, &[])?;
            let refused: Vec<String> = lines
                .iter()
                .filter(|line| line["ok"] != true)
                .map(|line| format!("{} ({})", line["op"], line["why"]))
                .collect();
            if refused.is_empty() {
                Ok(format!("{} ok", lines.len()))
            } else {
                fail(refused.join("; "))
            }
        })
    }
}

/// Whether the lines with `what` are the records of transactions 0, 1, 3 and 4, each once.
fn committed_once(what: &str, lines: &[Value]) -> Result<(), Failure> {
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines.iter().filter_map(|line| line[what].as_str()) {
        *left.entry(line.to_owned()).or_default() += 1;
    }
    for number in (0..6).filter(|number| number % 3 != 2) {
        for i in 0..10 {
            let text = format!("{number}-{i}");
            match left.remove(&samples::base64(text.as_bytes())) {
                Some(1) => {}
                times => {
                    return fail(format!("{what}: {text} came {:?} times", times.unwrap_or(0)));
                }
            }
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    fail(format!("{what}: {} records of aborted transactions, or of a zombie", left.len()))
}

/// Whether each of `count` records, `count / 4` from offset `from` in each partition, came once.
fn once_each(lines: &[Value], members: usize, count: usize, from: i64) -> Result<String, Failure> {
    let mut seen: BTreeMap<(i64, i64), usize> = BTreeMap::new();
    let mut active = BTreeMap::new();
    for line in lines {
        let place = (line["p"].as_i64().unwrap_or(-1), line["o"].as_i64().unwrap_or(-1));
        *seen.entry(place).or_default() += 1;
        *active.entry(line["member"].to_string()).or_insert(0) += 1;
    }
    let each = i64::try_from(count / 4).expect("few");
    for partition in 0..4 {
        for offset in from..from + each {
            match seen.remove(&(partition, offset)) {
                Some(1) => {}
                Some(times) => return fail(format!("{partition}@{offset} came {times} times")),
                None => return fail(format!("{partition}@{offset} never came ({active:?})")),
            }
        }
    }
    if let Some(((partition, offset), _)) = seen.first_key_value() {
        return fail(format!("{partition}@{offset} came, which was consumed before"));
    }
    if active.len() == members {
        Ok(String::new())
    } else {
        fail(format!("not every member had partitions: {active:?}"))
    }
}

/// The oracle's reading against what the writer was given.
fn same_as_sent(writer: &Adapter, w: &Written, found: &[Record]) -> Result<(), Failure> {
    let stamped = !writer.can("write-timestamp") || w.topic.contains("append-time");
    let comparable = |record: &Record| {
        let mut record = record.clone();
        record.o = 0;
        record.topic.clear();
        if stamped {
            record.t = 0;
        }
        if !writer.can("write-partition") {
            record.p = 0;
        }
        record
    };
    let mut sent: Vec<Record> = w.records.iter().map(comparable).collect();
    let mut found: Vec<Record> = found.iter().map(comparable).collect();
    if !writer.can("write-partition") {
        sent.sort();
        found.sort();
    }
    differing(&w.topic, sent, found).map(|_| ())
}

/// A record without what this reader cannot see.
fn as_read_by(reader: &Adapter, topic: &str, record: &Record) -> Record {
    let mut record = record.clone();
    record.topic.clear();
    if !reader.can("read-duplicate-header") {
        let last: BTreeMap<_, _> = record.h.into_iter().collect();
        record.h = last.into_iter().collect();
    }
    if !reader.can("read-header-order") {
        record.h.sort_by(|a, b| a.0.cmp(&b.0));
    }
    if !reader.can("read-append-time") && topic.contains("append-time") {
        record.t = 0;
    }
    record
}

/// The number of records, or the first difference in words.
fn differing(topic: &str, expected: Vec<Record>, found: Vec<Record>) -> Result<usize, Failure> {
    if let Some((e, f)) = expected.iter().zip(&found).find(|(e, f)| e != f) {
        return fail(format!("{topic}: expected {}, found {}", brief(e), brief(f)));
    }
    if expected.len() != found.len() {
        return fail(format!("{topic}: {} records, {} expected", found.len(), expected.len()));
    }
    Ok(found.len())
}

fn brief(record: &Record) -> String {
    let mut text = serde_json::to_string(record).unwrap_or_default();
    if text.len() > 300 {
        text.truncate((0..300).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0));
        text.push('…');
    }
    text
}
