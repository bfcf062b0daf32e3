//! A broker as a process: started, measured through /proc, killed. It is ours, or Apache Kafka as
//! the oracle; the tests do not notice which.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::stopwatch::{Stopwatch, retry};
use crate::wire::Connection;

/// Whose broker to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Quorate,
    Kafka,
}

/// How to start a broker, so that it can be started again after it was killed.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub kind: Kind,
    /// The repository, for the binary and the scripts.
    pub root: PathBuf,
    /// Data; `None` keeps it in memory (ours only).
    pub data: Option<PathBuf>,
    pub address: SocketAddr,
    pub log: PathBuf,
    /// Further settings, `key=value`, in the broker's own language (ours: `section.key`).
    pub settings: Vec<String>,
    /// The only core it may use.
    pub core: Option<u32>,
}

/// A running broker; killed when dropped.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    pub address: SocketAddr,
    /// From `exec` until the first answered request.
    pub ready_after: Duration,
}

/// A port that was free a moment ago, with the next one free as well (Kafka's controller takes it).
///
/// # Errors
/// If the machine has no free ports.
pub fn free_address() -> io::Result<SocketAddr> {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0")?;
        let address = first.local_addr()?;
        // Below the ephemeral range nothing else comes in between; above, retries make up for it.
        if TcpListener::bind((address.ip(), address.port().saturating_add(1))).is_ok() {
            return Ok(address);
        }
    }
    Err(io::Error::other("no two neighbouring free ports"))
}

impl Recipe {
    /// A command that becomes the broker, pinned if asked for: its process id is the broker's.
    fn command(&self) -> Command {
        let (program, arguments) = self.line();
        let mut command = match self.core {
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &core.to_string()]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(arguments);
        if self.kind == Kind::Quorate {
            for (key, value) in self.settings.iter().filter_map(|setting| setting.split_once('=')) {
                let name = key.to_uppercase().replace('.', "__");
                command.env(format!("QUORATE_{name}"), value);
            }
        }
        command
    }

    fn line(&self) -> (PathBuf, Vec<OsString>) {
        let mut arguments: Vec<OsString> = Vec::new();
        match self.kind {
            Kind::Quorate => {
                let address = self.address.to_string();
                arguments.extend(["up", "--listen", &address].map(OsString::from));
                match &self.data {
                    Some(data) => arguments.extend(["--data".into(), data.into()]),
                    None => arguments.push("--ephemeral".into()),
                }
                (self.root.join("target/release/quorate"), arguments)
            }
            Kind::Kafka => {
                let data = self.data.clone().unwrap_or_else(|| self.log.with_extension("data"));
                arguments.extend([data.into(), self.address.port().to_string().into()]);
                arguments.extend(self.settings.iter().map(OsString::from));
                (self.root.join("jepsen-like-tests/setup/kafka-broker.sh"), arguments)
            }
        }
    }

    /// Starts the broker and waits until it answers.
    ///
    /// # Errors
    /// If it cannot be started, ends, or does not answer within `limit`.
    pub fn start(&self, limit: Duration) -> io::Result<Broker> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let watch = Stopwatch::start();
        let mut child = self
            .command()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| io::Error::other(format!("cannot start {:?}: {error}", self.kind)))?;
        let ready = retry(limit, || match child.try_wait() {
            Ok(Some(status)) => Some(Err(format!("it ended with {status}"))),
            _ => Connection::open(self.address).and_then(|mut c| c.api_versions()).ok().map(Ok),
        });
        let problem = match ready {
            Some(Ok(_)) => {
                return Ok(Broker { child, address: self.address, ready_after: watch.elapsed() });
            }
            Some(Err(problem)) => problem,
            None => format!("no answer within {limit:?}"),
        };
        let _ = child.kill();
        let _ = child.wait();
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(12).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        Err(io::Error::other(format!("{:?}: {problem}; its log ends with:\n{tail}", self.kind)))
    }
}

impl Broker {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL: no handler runs, nothing is flushed by the process.
    ///
    /// # Errors
    /// If the process cannot be waited for.
    pub fn kill_nine(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// SIGTERM, then waits for an orderly end.
    ///
    /// # Errors
    /// If it has not ended within `limit`.
    pub fn terminate(mut self, limit: Duration) -> io::Result<Duration> {
        let watch = Stopwatch::start();
        Command::new("kill").arg(self.pid().to_string()).status()?;
        retry(limit, || self.child.try_wait().ok().flatten())
            .map(|_| watch.elapsed())
            .ok_or_else(|| io::Error::other(format!("still running {limit:?} after SIGTERM")))
    }

    /// Whether the process still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Resident memory in bytes: (now, highest since start).
    #[must_use]
    pub fn resident(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.unwrap_or_default();
        let line = |name: &str| {
            let text = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
            text.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
        };
        (line("VmRSS:"), line("VmHWM:"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes of all files under `directory`, as `du` counts blocks.
#[must_use]
pub fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}
