//! Hostile and unlucky clients: the broker keeps its memory bounded and serves the others.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::process::Broker;
use crate::stopwatch::{Stopwatch, wall_milliseconds};
use crate::wire::{Connection, batch};

const TOPIC: &str = "canary";
const MIB: u64 = 1 << 20;
/// A well-behaved client must be served within this, whatever the others do. On a machine that does
/// nothing else it takes well below one second.
const SERVED_WITHIN: Duration = Duration::from_secs(2);

/// One attack and how the broker bore it.
#[derive(Debug)]
pub struct Trial {
    pub name: &'static str,
    pub resident: u64,
    /// Highest resident memory since the broker started.
    pub highest: u64,
    /// How long a well-behaved client waited for a write and a read meanwhile.
    pub served: Duration,
    pub note: String,
    pub problems: Vec<String>,
}

#[derive(Debug)]
pub struct Report {
    pub bound: u64,
    pub trials: Vec<Trial>,
}

impl Report {
    #[must_use]
    pub fn passed(&self) -> bool {
        self.trials.iter().all(|trial| trial.problems.is_empty())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "| attack | resident (MiB) | highest (MiB) | others served in | |")?;
        writeln!(out, "|---|---|---|---|---|")?;
        for trial in &self.trials {
            let verdict = match trial.problems.as_slice() {
                [] => format!("ok: {}", trial.note),
                problems => format!("FAILED: {}", problems.join("; ")),
            };
            let (now, highest) = (trial.resident / MIB, trial.highest / MIB);
            let served = trial.served.as_millis();
            writeln!(out, "| {} | {now} | {highest} | {served} ms | {verdict} |", trial.name)?;
        }
        writeln!(out, "\nBound: {} MiB resident.", self.bound / MIB)
    }
}

/// What an attack leaves open while the broker is judged, and a note for the table.
struct Attack {
    held: Vec<TcpStream>,
    note: String,
    problems: Vec<String>,
}

impl Attack {
    fn of(held: Vec<TcpStream>, note: impl Into<String>) -> Self {
        Self { held, note: note.into(), problems: Vec::new() }
    }
}

type Attacker = fn(SocketAddr) -> io::Result<Attack>;

const ATTACKS: [(&str, Attacker); 10] = [
    ("10,000 idle connections", idle),
    ("half-written frames", half_written),
    ("length prefix of 2 GiB and below zero", long_prefix),
    ("array lengths of a terabyte", long_arrays),
    ("garbage instead of frames", garbage),
    ("a gzip bomb", bomb),
    ("readers that do not read", slow_readers),
    ("writers that do not read", deaf_writers),
    ("writers that stop half-way", stalled_writers),
    ("one byte at a time", drip),
];

/// Runs every attack against a running broker.
///
/// # Errors
/// If the broker cannot be reached before the first attack.
pub fn run(broker: &mut Broker, bound: u64, progress: impl Fn(&str)) -> io::Result<Report> {
    let address = broker.address;
    let mut connection = Connection::open(address)?;
    connection.create_topic(TOPIC, 1, &[])?;
    served(address)?;
    fill(&mut connection)?;
    let mut report = Report { bound, trials: Vec::new() };
    for (name, attack) in ATTACKS {
        progress(name);
        let attack =
            attack(address).unwrap_or_else(|error| Attack::of(Vec::new(), format!("({error})")));
        std::thread::sleep(Duration::from_millis(300));
        let mut problems = attack.problems;
        let took = served(address).unwrap_or_else(|error| {
            problems.push(format!("others are not served: {error}"));
            Duration::ZERO
        });
        if took > SERVED_WITHIN {
            problems.push(format!("others waited {took:?}"));
        }
        let (resident, highest) = broker.resident();
        if highest > bound {
            problems.push(format!("{} MiB resident at the highest", highest / MIB));
        }
        if !broker.alive() {
            problems.push("the broker is gone".to_owned());
        }
        let note = attack.note;
        report.trials.push(Trial { name, resident, highest, served: took, note, problems });
        drop(attack.held);
    }
    Ok(report)
}

/// One write and one read by a well-behaved client: a small one, and one that needs memory.
fn served(address: SocketAddr) -> io::Result<Duration> {
    let small = write_and_read(address, format!("canary {}", wall_milliseconds()).into_bytes())?;
    Ok(small.max(write_and_read(address, vec![b'c'; 300_000])?))
}

fn write_and_read(address: SocketAddr, value: Vec<u8>) -> io::Result<Duration> {
    let watch = Stopwatch::start();
    let mut connection = Connection::open(address)?;
    let values = [value];
    connection.send_produce(TOPIC, 0, &batch(&values, wall_milliseconds()))?;
    let base = connection.receive_produced()?;
    let base = base.map_err(|code| io::Error::other(format!("refused with {code}")))?;
    let found = connection.fetch(TOPIC, 0, base)?;
    match found.first() {
        Some(record) if record.value == values[0] => Ok(watch.elapsed()),
        other => Err(io::Error::other(format!("read back {other:?}"))),
    }
}

/// Sixty-four megabytes, so that slow readers have something not to read.
fn fill(connection: &mut Connection) -> io::Result<()> {
    connection.create_topic("filled", 1, &[])?;
    let values: Vec<Vec<u8>> = (0..8).map(|i| vec![i; 100_000]).collect();
    let batch = batch(&values, wall_milliseconds());
    for _ in 0..80 {
        connection.send_produce("filled", 0, &batch)?;
        let answer = connection.receive_produced()?;
        answer.map_err(|code| io::Error::other(format!("filling refused with {code}")))?;
    }
    Ok(())
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    Ok(stream)
}

fn idle(address: SocketAddr) -> io::Result<Attack> {
    let mut held = Vec::new();
    while held.len() < 10_000 {
        match connect(address) {
            Ok(stream) => held.push(stream),
            Err(error) => {
                let mut attack = Attack::of(Vec::new(), "");
                attack.problems.push(format!("connection {} failed: {error}", held.len() + 1));
                attack.held = held;
                return Ok(attack);
            }
        }
    }
    Ok(Attack::of(held, "all stay open"))
}

/// A header that promises a megabyte, and a little of it.
fn half_written(address: SocketAddr) -> io::Result<Attack> {
    let mut held = Vec::new();
    for _ in 0..1000 {
        let mut stream = connect(address)?;
        stream.write_all(&(1_i32 << 20).to_be_bytes())?;
        stream.write_all(&[0, 0, 0, 3, 0, 0, 0, 1])?;
        held.push(stream);
    }
    Ok(Attack::of(held, "1,000 connections with 8 of 1,048,576 bytes"))
}

/// Whether the broker ended the connection; waits up to ten seconds.
fn closed(stream: &mut TcpStream) -> bool {
    let mut some = [0; 4096];
    loop {
        match stream.read(&mut some) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

fn long_prefix(address: SocketAddr) -> io::Result<Attack> {
    let mut attack = Attack::of(Vec::new(), "all closed by the broker");
    for length in [i32::MAX, i32::MAX - 4, 1 << 30, -1, i32::MIN, 0] {
        let mut stream = connect(address)?;
        stream.write_all(&length.to_be_bytes())?;
        let _ = stream.write_all(&[0; 64]);
        if !closed(&mut stream) {
            attack.problems.push(format!("a frame of {length} bytes is waited for"));
        }
    }
    Ok(attack)
}

/// Arrays whose announced length times the size of an element passes a terabyte.
fn long_arrays(address: SocketAddr) -> io::Result<Attack> {
    let long = i32::MAX.to_be_bytes().to_vec();
    let compact = vec![0xff, 0xff, 0xff, 0xff, 0x0f];
    let produce = [&[0xff, 0xff, 0, 1, 0, 0, 0, 1][..], &long].concat();
    let produce = [&[0xff, 0xff], &produce[..]].concat();
    let fetch_head = [&(-1_i32).to_be_bytes()[..], &[0; 8], &[0, 0, 0, 9], &[0]].concat();
    let fetch = [&fetch_head[..], &long].concat();
    let mut flexible = vec![0];
    flexible.extend(&compact);
    let bodies: [(i16, i16, &[u8]); 8] = [
        (3, 1, &long),
        (3, 9, &flexible),
        (0, 3, &produce),
        (1, 4, &fetch),
        (19, 2, &long),
        (11, 0, &[0, 1, b'g', 0, 0, 0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]),
        (32, 1, &long),
        (20, 1, &long),
    ];
    let mut attack = Attack::of(Vec::new(), "all refused");
    for (key, version, body) in bodies {
        let mut connection = Connection::open(address)?;
        connection.send(key, version, body)?;
        let stream = connection.stream().try_clone()?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        // Closing is right, and so is an answer; waiting for a terabyte is not.
        if let Err(error) = connection.receive() {
            let timed_out = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
            if timed_out.contains(&error.kind()) {
                attack.problems.push(format!("api {key} v{version} is left hanging"));
            }
        }
    }
    Ok(attack)
}

fn garbage(address: SocketAddr) -> io::Result<Attack> {
    let noise = crate::clients::samples::noise(4096, 99);
    let hello = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];
    let starts: [&[u8]; 4] = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", &hello, &noise, &[0; 512]];
    let mut held = Vec::new();
    for turn in 0..400 {
        let mut stream = connect(address)?;
        let _ = stream.write_all(starts[turn % starts.len()]);
        held.push(stream);
    }
    Ok(Attack::of(held, "400 connections"))
}

/// A batch whose records are a gigabyte of zeros after decompression.
fn bomb(address: SocketAddr) -> io::Result<Attack> {
    let shell = "head -c 1073741824 /dev/zero | gzip -1 -n";
    let zipped = Command::new("sh").args(["-c", shell]).output()?.stdout;
    let mut bomb = batch(&[Vec::new()], wall_milliseconds());
    bomb.truncate(61);
    bomb.extend(&zipped);
    let length = i32::try_from(bomb.len() - 12).map_err(io::Error::other)?;
    bomb[8..12].copy_from_slice(&length.to_be_bytes());
    bomb[21..23].copy_from_slice(&1_i16.to_be_bytes());
    let crc = crc32c::crc32c(&bomb[21..]);
    bomb[17..21].copy_from_slice(&crc.to_be_bytes());
    let mut connection = Connection::open(address)?;
    connection.create_topic("bombed", 1, &[("max.message.bytes", "16777216")])?;
    connection.send_produce("bombed", 0, &bomb)?;
    let outcome = match connection.receive_produced() {
        Ok(Ok(_)) => "accepted unopened".to_owned(),
        Ok(Err(code)) => format!("refused with {code}"),
        Err(error) => format!("closed ({error})"),
    };
    Ok(Attack::of(Vec::new(), format!("{} kB for 1 GiB: {outcome}", zipped.len() / 1000)))
}

/// Ours holds 256 MiB of answers; here, 4 GiB are asked for at once, through receive buffers so
/// small that almost all of it stays with the broker.
fn slow_readers(address: SocketAddr) -> io::Result<Attack> {
    let mut held = Vec::new();
    for _ in 0..1000 {
        let mut connection = Connection::with_buffer(address, 4096)?;
        for _ in 0..20 {
            connection.send_fetch("filled", 0, 0)?;
        }
        held.push(connection.stream().try_clone()?);
    }
    Ok(Attack::of(held, "1,000 connections with 20 fetches of 4 MiB each, none read"))
}

/// Ours holds 256 MiB of requests; here, 400 MiB are announced and begun.
fn stalled_writers(address: SocketAddr) -> io::Result<Attack> {
    let mut held = Vec::new();
    for _ in 0..400 {
        let mut stream = connect(address)?;
        stream.write_all(&(1_i32 << 20).to_be_bytes())?;
        // What the broker does not take stays in the buffers of its sockets.
        stream.write_all(&vec![0; 200_000])?;
        held.push(stream);
    }
    Ok(Attack::of(held, "400 connections with 200,000 of 1,048,576 bytes"))
}

/// They fill the broker's answers, and its socket buffers, and never look at them.
fn deaf_writers(address: SocketAddr) -> io::Result<Attack> {
    let batch = batch(&[vec![1; 500_000]], wall_milliseconds());
    let mut held = Vec::new();
    for _ in 0..50 {
        let mut connection = Connection::open(address)?;
        connection.stream().set_write_timeout(Some(Duration::from_millis(200)))?;
        for _ in 0..20 {
            if connection.send_produce("filled", 0, &batch).is_err() {
                break;
            }
        }
        held.push(connection.stream().try_clone()?);
    }
    Ok(Attack::of(held, "50 connections with up to 20 writes of 500 kB each"))
}

/// A valid request in single bytes is answered all the same.
fn drip(address: SocketAddr) -> io::Result<Attack> {
    let mut stream = connect(address)?;
    stream.set_nodelay(true)?;
    for byte in [0, 0, 0, 11, 0, 18, 0, 0, 0, 0, 0, 7, 0, 1, b'd'] {
        stream.write_all(&[byte])?;
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut head = [0; 10];
    stream.read_exact(&mut head)?;
    let mut attack = Attack::of(Vec::new(), "answered");
    if head[4..] != [0, 0, 0, 7, 0, 0] {
        attack.problems.push(format!("answered with {head:?}"));
    }
    Ok(attack)
}
