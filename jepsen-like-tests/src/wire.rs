//! A few of Kafka's requests, written by hand: the tests' own view of the protocol.
//!
//! Deliberately not our codec: a test that shares the broker's decoder shares its mistakes. Old
//! versions suffice, since these are tools to drive load and faults, not to try the protocol.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A blocking connection that answers requests in order.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    correlation: i32,
}

/// A record read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub offset: i64,
    pub value: Vec<u8>,
}

/// What Metadata says of a cluster and one topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// By node.
    pub addresses: std::collections::BTreeMap<i32, SocketAddr>,
    pub controller: i32,
    pub partitions: Vec<Placed>,
}

/// Where a partition is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub index: i32,
    /// -1 for none.
    pub leader: i32,
    pub replicas: Vec<i32>,
    pub in_sync: Vec<i32>,
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend(i16::try_from(text.len()).expect("a short string").to_be_bytes());
    out.extend(text.as_bytes());
}

fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// One batch of records without keys, as a producer without idempotence sends it.
///
/// # Panics
/// If the batch would exceed two gigabytes.
#[must_use]
pub fn batch(values: &[Vec<u8>], timestamp: i64) -> Vec<u8> {
    let mut records = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let mut record = vec![0];
        put_varint(&mut record, 0);
        put_varint(&mut record, index as i64);
        put_varint(&mut record, -1);
        put_varint(&mut record, value.len() as i64);
        record.extend(value);
        put_varint(&mut record, 0);
        put_varint(&mut records, record.len() as i64);
        records.extend(record);
    }
    let last = i32::try_from(values.len()).expect("a batch fits") - 1;
    let mut checked = Vec::with_capacity(records.len() + 40);
    checked.extend(0_i16.to_be_bytes());
    checked.extend(last.to_be_bytes());
    checked.extend(timestamp.to_be_bytes());
    checked.extend(timestamp.to_be_bytes());
    checked.extend((-1_i64).to_be_bytes());
    checked.extend((-1_i16).to_be_bytes());
    checked.extend((-1_i32).to_be_bytes());
    checked.extend((last + 1).to_be_bytes());
    checked.extend(records);
    let mut out = Vec::with_capacity(checked.len() + 21);
    out.extend(0_i64.to_be_bytes());
    out.extend(i32::try_from(checked.len() + 9).expect("a batch fits").to_be_bytes());
    out.extend((-1_i32).to_be_bytes());
    out.push(2);
    out.extend(crc32c::crc32c(&checked).to_be_bytes());
    out.extend(checked);
    out
}

/// Reads what remains of an answer; every length is checked against it.
struct Answer<'a>(&'a [u8]);

impl<'a> Answer<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        if count > self.0.len() {
            return Err(invalid(format!("{count} bytes wanted, {} remain", self.0.len())));
        }
        let (head, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(head)
    }

    fn int<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many bytes as asked"))
    }

    fn i16(&mut self) -> io::Result<i16> {
        Ok(i16::from_be_bytes(self.int()?))
    }

    fn i32(&mut self) -> io::Result<i32> {
        Ok(i32::from_be_bytes(self.int()?))
    }

    fn i64(&mut self) -> io::Result<i64> {
        Ok(i64::from_be_bytes(self.int()?))
    }

    fn string(&mut self) -> io::Result<&'a [u8]> {
        let length = self.i16()?;
        self.take(usize::try_from(length).unwrap_or(0))
    }

    fn numbers(&mut self) -> io::Result<Vec<i32>> {
        let count = self.i32()?;
        (0..count).map(|_| self.i32()).collect()
    }

    fn varint(&mut self) -> io::Result<i64> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let [byte] = self.int()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(invalid("a varint of more than ten bytes"))
    }
}

impl Connection {
    /// Connects with a limit of thirty seconds for each answer.
    ///
    /// # Errors
    /// If nothing listens there.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream, correlation: 0 })
    }

    /// As `open`, for a node that may be stopped or gone.
    ///
    /// # Errors
    /// If nothing listens there.
    pub fn brief(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        stream.set_write_timeout(Some(Duration::from_secs(3)))?;
        Ok(Self { stream, correlation: 0 })
    }

    /// Metadata v1 of one topic.
    ///
    /// # Errors
    /// If the connection ends, or the topic is not known.
    pub fn describe(&mut self, topic: &str) -> io::Result<Cluster> {
        let mut body = 1_i32.to_be_bytes().to_vec();
        put_string(&mut body, topic);
        let answer = self.call(3, 1, &body)?;
        let mut answer = Answer(&answer);
        let mut cluster = Cluster::default();
        for _ in 0..answer.i32()? {
            let id = answer.i32()?;
            let host = String::from_utf8_lossy(answer.string()?).into_owned();
            let port = answer.i32()?;
            answer.string()?;
            let address = format!("{host}:{port}").parse();
            let address = address.map_err(|_| invalid(format!("{host}:{port} is no address")))?;
            cluster.addresses.insert(id, address);
        }
        cluster.controller = answer.i32()?;
        for _ in 0..answer.i32()? {
            let code = answer.i16()?;
            answer.string()?;
            answer.take(1)?;
            for _ in 0..answer.i32()? {
                answer.i16()?;
                let (index, leader) = (answer.i32()?, answer.i32()?);
                let (replicas, in_sync) = (answer.numbers()?, answer.numbers()?);
                cluster.partitions.push(Placed { index, leader, replicas, in_sync });
            }
            if code != 0 {
                return Err(invalid(format!("Metadata refused with {code}")));
            }
        }
        cluster.partitions.sort_by_key(|partition| partition.index);
        Ok(cluster)
    }

    /// As `open`, for a client that takes so few bytes before it reads them.
    ///
    /// # Errors
    /// If nothing listens there.
    pub fn with_buffer(address: SocketAddr, bytes: usize) -> io::Result<Self> {
        let connection = Self::open(address)?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&connection.stream, bytes)?;
        Ok(connection)
    }

    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends a request and does not wait.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn send(&mut self, key: i16, version: i16, body: &[u8]) -> io::Result<()> {
        self.correlation += 1;
        let mut frame = Vec::with_capacity(body.len() + 32);
        frame.extend([0; 4]);
        frame.extend(key.to_be_bytes());
        frame.extend(version.to_be_bytes());
        frame.extend(self.correlation.to_be_bytes());
        put_string(&mut frame, "reality");
        frame.extend(body);
        let length = i32::try_from(frame.len() - 4).map_err(|_| invalid("a frame too long"))?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame)
    }

    /// The next answer, without its correlation id.
    ///
    /// # Errors
    /// If the connection ends or the answer is longer than 256 MiB.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 8];
        self.stream.read_exact(&mut head)?;
        let length = i32::from_be_bytes(head[..4].try_into().expect("four bytes"));
        let body = usize::try_from(length - 4).map_err(|_| invalid("a negative length"))?;
        if body > 256 << 20 {
            return Err(invalid(format!("an answer of {body} bytes")));
        }
        let mut answer = vec![0; body];
        self.stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    fn call(&mut self, key: i16, version: i16, body: &[u8]) -> io::Result<Vec<u8>> {
        self.send(key, version, body)?;
        self.receive()
    }

    /// ApiVersions v0: the number of APIs that the broker offers.
    ///
    /// # Errors
    /// If the connection ends, or the broker refuses.
    pub fn api_versions(&mut self) -> io::Result<usize> {
        let answer = self.call(18, 0, &[])?;
        let mut answer = Answer(&answer);
        match answer.i16()? {
            0 => Ok(usize::try_from(answer.i32()?).unwrap_or(0)),
            code => Err(invalid(format!("ApiVersions refused with {code}"))),
        }
    }

    /// CreateTopics v2, one replica. An existing topic is not an error.
    ///
    /// # Errors
    /// If the connection ends, or the broker refuses.
    pub fn create_topic(
        &mut self,
        topic: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> io::Result<()> {
        self.create_replicated(topic, partitions, 1, configs)
    }

    /// The same with so many replicas.
    ///
    /// # Errors
    /// If the connection ends, or the broker refuses.
    pub fn create_replicated(
        &mut self,
        topic: &str,
        partitions: i32,
        replicas: i16,
        configs: &[(&str, &str)],
    ) -> io::Result<()> {
        let mut body = 1_i32.to_be_bytes().to_vec();
        put_string(&mut body, topic);
        body.extend(partitions.to_be_bytes());
        body.extend(replicas.to_be_bytes());
        body.extend(0_i32.to_be_bytes());
        body.extend(i32::try_from(configs.len()).expect("few").to_be_bytes());
        for (name, value) in configs {
            put_string(&mut body, name);
            put_string(&mut body, value);
        }
        body.extend(10_000_i32.to_be_bytes());
        body.push(0);
        let answer = self.call(19, 2, &body)?;
        let mut answer = Answer(&answer);
        answer.i32()?;
        answer.i32()?;
        answer.string()?;
        match answer.i16()? {
            0 | 36 => Ok(()),
            code => Err(invalid(format!("CreateTopics refused with {code}"))),
        }
    }

    /// Sends Produce v3 (acks=all) without waiting.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn send_produce(&mut self, topic: &str, partition: i32, batch: &[u8]) -> io::Result<()> {
        let mut body = Vec::with_capacity(batch.len() + 64);
        body.extend((-1_i16).to_be_bytes());
        body.extend((-1_i16).to_be_bytes());
        body.extend(30_000_i32.to_be_bytes());
        body.extend(1_i32.to_be_bytes());
        put_string(&mut body, topic);
        body.extend(1_i32.to_be_bytes());
        body.extend(partition.to_be_bytes());
        body.extend(i32::try_from(batch.len()).expect("a batch fits").to_be_bytes());
        body.extend(batch);
        self.send(0, 3, &body)
    }

    /// The answer to one [`send_produce`](Self::send_produce): the base offset, or Kafka's code.
    ///
    /// # Errors
    /// If the connection ends.
    pub fn receive_produced(&mut self) -> io::Result<Result<i64, i16>> {
        let answer = self.receive()?;
        let mut answer = Answer(&answer);
        answer.i32()?;
        answer.string()?;
        answer.i32()?;
        answer.i32()?;
        let code = answer.i16()?;
        let base = answer.i64()?;
        Ok(if code == 0 { Ok(base) } else { Err(code) })
    }

    /// ListOffsets v1 with a special time: -1 latest, -2 earliest.
    ///
    /// # Errors
    /// If the connection ends, or the broker refuses.
    pub fn list_offset(&mut self, topic: &str, partition: i32, time: i64) -> io::Result<i64> {
        let mut body = (-1_i32).to_be_bytes().to_vec();
        put_timed(&mut body, topic, partition, time);
        let answer = self.call(2, 1, &body)?;
        listed(Answer(&answer))
    }

    /// ListOffsets v2, latest, of what is committed: the last stable offset.
    ///
    /// # Errors
    /// If the connection ends, or the broker refuses.
    pub fn last_stable(&mut self, topic: &str, partition: i32) -> io::Result<i64> {
        let mut body = (-1_i32).to_be_bytes().to_vec();
        body.push(1);
        put_timed(&mut body, topic, partition, -1);
        let answer = self.call(2, 2, &body)?;
        let mut answer = Answer(&answer);
        answer.i32()?;
        listed(answer)
    }

    /// FindCoordinator v1: the node that coordinates a group (kind 0) or a transactional id (1).
    ///
    /// # Errors
    /// If the connection ends, or nobody coordinates it now.
    pub fn coordinator(&mut self, name: &str, kind: u8) -> io::Result<i32> {
        let mut body = Vec::new();
        put_string(&mut body, name);
        body.push(kind);
        let answer = self.call(10, 1, &body)?;
        let mut answer = Answer(&answer);
        answer.i32()?;
        let code = answer.i16()?;
        answer.string()?;
        match code {
            0 => answer.i32(),
            code => Err(invalid(format!("FindCoordinator refused with {code}"))),
        }
    }

    /// Sends Fetch v4 without waiting.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn send_fetch(&mut self, topic: &str, partition: i32, offset: i64) -> io::Result<()> {
        let mut body = (-1_i32).to_be_bytes().to_vec();
        body.extend(500_i32.to_be_bytes());
        body.extend(1_i32.to_be_bytes());
        body.extend((8_i32 << 20).to_be_bytes());
        body.push(0);
        body.extend(1_i32.to_be_bytes());
        put_string(&mut body, topic);
        body.extend(1_i32.to_be_bytes());
        body.extend(partition.to_be_bytes());
        body.extend(offset.to_be_bytes());
        body.extend((4_i32 << 20).to_be_bytes());
        self.send(1, 4, &body)
    }

    /// Uncompressed records from `offset` on, as many as one answer holds.
    ///
    /// # Errors
    /// If the connection ends, the broker refuses, or a batch is damaged.
    pub fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> io::Result<Vec<Fetched>> {
        let mut found = Vec::new();
        for (base, batch) in self.batches(topic, partition, offset)? {
            records(Answer(&batch), base, &mut found)?;
        }
        found.retain(|record| record.offset >= offset);
        Ok(found)
    }

    /// Who wrote what, from `offset` on, as much as one answer holds; markers are among it.
    ///
    /// # Errors
    /// If the connection ends, the broker refuses, or a batch is too short.
    pub fn stamps(&mut self, topic: &str, partition: i32, offset: i64) -> io::Result<Vec<Stamp>> {
        let batches = self.batches(topic, partition, offset)?;
        batches.iter().map(|(base, batch)| Stamp::read(*base, Answer(batch))).collect()
    }

    /// Whole batches, each behind its base offset and without its length.
    fn batches(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> io::Result<Vec<(i64, Vec<u8>)>> {
        self.send_fetch(topic, partition, offset)?;
        let answer = self.receive()?;
        let mut answer = Answer(&answer);
        answer.i32()?;
        answer.i32()?;
        answer.string()?;
        answer.i32()?;
        answer.i32()?;
        let code = answer.i16()?;
        if code != 0 {
            return Err(invalid(format!("Fetch at {offset} refused with {code}")));
        }
        answer.i64()?;
        answer.i64()?;
        let aborted = answer.i32()?;
        for _ in 0..aborted {
            answer.take(16)?;
        }
        let length = usize::try_from(answer.i32()?).unwrap_or(0);
        let mut found = Vec::new();
        let mut batches = Answer(answer.take(length)?);
        while batches.0.len() >= 61 {
            let base = batches.i64()?;
            let size = usize::try_from(batches.i32()?).map_err(|_| invalid("a negative size"))?;
            if size > batches.0.len() {
                break; // Kafka may cut the last batch at the limit.
            }
            found.push((base, batches.take(size)?.to_vec()));
        }
        Ok(found)
    }
}

fn put_timed(body: &mut Vec<u8>, topic: &str, partition: i32, time: i64) {
    body.extend(1_i32.to_be_bytes());
    put_string(body, topic);
    body.extend(1_i32.to_be_bytes());
    body.extend(partition.to_be_bytes());
    body.extend(time.to_be_bytes());
}

/// The offset of the only partition that was asked for.
fn listed(mut answer: Answer<'_>) -> io::Result<i64> {
    answer.i32()?;
    answer.string()?;
    answer.i32()?;
    answer.i32()?;
    match answer.i16()? {
        0 => answer.i64().and_then(|_| answer.i64()),
        code => Err(invalid(format!("ListOffsets refused with {code}"))),
    }
}

/// The header of a batch, as far as it tells of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub base: i64,
    /// The last offset.
    pub last: i64,
    /// -1 for none.
    pub producer: i64,
    pub epoch: i16,
    pub sequence: i32,
    pub count: i32,
    /// Of the coordinator that wrote it, if it is a marker.
    pub coordinator_epoch: Option<i32>,
}

impl Stamp {
    fn read(base: i64, mut batch: Answer<'_>) -> io::Result<Self> {
        batch.take(9)?;
        let attributes = batch.i16()?;
        let last = base + i64::from(batch.i32()?);
        batch.take(16)?;
        let (producer, epoch, sequence) = (batch.i64()?, batch.i16()?, batch.i32()?);
        let count = batch.i32()?;
        let mut stamp =
            Self { base, last, producer, epoch, sequence, count, coordinator_epoch: None };
        if attributes & 0x20 != 0 {
            // The record's length, attributes, times, offset, a key of four bytes; then the value:
            // its length, a version, and the epoch.
            batch.varint()?;
            batch.take(1)?;
            batch.varint()?;
            batch.varint()?;
            let key = batch.varint()?;
            batch.take(usize::try_from(key).unwrap_or(0))?;
            batch.varint()?;
            batch.i16()?;
            stamp.coordinator_epoch = Some(batch.i32()?);
        }
        Ok(stamp)
    }
}

/// The records of one batch, after its length.
fn records(mut batch: Answer<'_>, base: i64, found: &mut Vec<Fetched>) -> io::Result<()> {
    batch.take(5)?;
    let crc = u32::from_be_bytes(batch.int()?);
    if crc != crc32c::crc32c(batch.0) {
        return Err(invalid(format!("the batch at {base} fails its checksum")));
    }
    if batch.i16()? & 7 != 0 {
        return Err(invalid("compressed records are not read here"));
    }
    batch.take(34)?;
    let count = batch.i32()?;
    for _ in 0..count {
        let size = usize::try_from(batch.varint()?).map_err(|_| invalid("a negative size"))?;
        let mut record = Answer(batch.take(size)?);
        record.take(1)?;
        record.varint()?;
        let delta = record.varint()?;
        let key = record.varint()?;
        record.take(usize::try_from(key).unwrap_or(0))?;
        let value = usize::try_from(record.varint()?).unwrap_or(0);
        found.push(Fetched { offset: base + delta, value: record.take(value)?.to_vec() });
    }
    Ok(())
}
