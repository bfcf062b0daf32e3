//! Several nodes of one cluster as processes, each with its own configuration and data: started,
//! killed, stopped for a while, wiped, replaced.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::process::free_address;
use crate::stopwatch::retry;
use crate::wire::{Cluster, Connection};

/// The nodes that found the cluster and vote on its metadata.
const VOTERS: usize = 3;

#[derive(Debug)]
struct Member {
    address: SocketAddr,
    peers: SocketAddr,
    data: PathBuf,
    child: Option<Child>,
}

/// Nodes by their number, from 1 on. All are killed when it is dropped.
#[derive(Debug)]
pub struct Trio {
    binary: PathBuf,
    folder: PathBuf,
    settings: Vec<(String, String)>,
    members: BTreeMap<i32, Member>,
}

fn signal(child: &Child, name: &str) -> io::Result<()> {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status()?;
    if sent.success() { Ok(()) } else { Err(io::Error::other(format!("kill {name}: {sent}"))) }
}

impl Trio {
    /// Plans `count` nodes; the first three are the voters. Nothing runs yet. Settings are
    /// `section.key=value`.
    ///
    /// # Errors
    /// If there are no free ports, or the folder cannot be written.
    pub fn new(root: &Path, folder: &Path, count: i32, settings: &[String]) -> io::Result<Self> {
        let mut members = BTreeMap::new();
        for id in 1..=count {
            let (address, peers) = (free_address()?, free_address()?);
            let data = folder.join(format!("node{id}"));
            members.insert(id, Member { address, peers, data, child: None });
        }
        let pairs = settings.iter().filter_map(|setting| setting.split_once('='));
        let trio = Self {
            binary: root.join("target/release/quorate"),
            folder: folder.to_owned(),
            settings: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            members,
        };
        for id in trio.ids() {
            fs::write(trio.configuration(id), trio.toml(id))?;
        }
        Ok(trio)
    }

    /// The same with another build of the node.
    #[must_use]
    pub fn with_binary(mut self, binary: &Path) -> Self {
        binary.clone_into(&mut self.binary);
        self
    }

    fn configuration(&self, id: i32) -> PathBuf {
        self.folder.join(format!("node{id}.toml"))
    }

    fn toml(&self, id: i32) -> String {
        let member = &self.members[&id];
        let voters = self.members.iter().take(VOTERS);
        let voters: Vec<String> =
            voters.map(|(id, voter)| format!("{id}@{}", voter.peers)).collect();
        let mut sections: BTreeMap<&str, String> = BTreeMap::new();
        let mut put = |section, key: &str, value: &str| {
            let _ = writeln!(sections.entry(section).or_default(), "{key} = {value}");
        };
        put("node", "id", &id.to_string());
        put("node", "data", &format!("{:?}", member.data.display().to_string()));
        put("network", "listen", &format!("\"{}\"", member.address));
        put("network", "peer_listen", &format!("\"{}\"", member.peers));
        put("quorum", "voters", &format!("\"{}\"", voters.join(",")));
        for (key, value) in &self.settings {
            let (section, key) = key.split_once('.').unwrap_or(("node", key));
            put(section, key, &format!("\"{value}\""));
        }
        let sections = sections.iter().map(|(name, lines)| format!("[{name}]\n{lines}"));
        sections.collect::<Vec<_>>().join("\n")
    }

    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    #[must_use]
    pub fn ids(&self) -> Vec<i32> {
        self.members.keys().copied().collect()
    }

    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.values().map(|member| member.address).collect()
    }

    #[must_use]
    pub fn data(&self, id: i32) -> &Path {
        &self.members[&id].data
    }

    /// Starts a node that does not run; does not wait for it.
    ///
    /// # Errors
    /// If there is no binary.
    pub fn start(&mut self, id: i32) -> io::Result<()> {
        let log = self.folder.join(format!("node{id}.log"));
        let log = File::options().create(true).append(true).open(log)?;
        let child = Command::new(&self.binary)
            .arg("serve")
            .arg("--config")
            .arg(self.configuration(id))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.member(id).child = Some(child);
        Ok(())
    }

    fn member(&mut self, id: i32) -> &mut Member {
        self.members.get_mut(&id).expect("a node of this cluster")
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// If the process cannot be waited for.
    pub fn kill(&mut self, id: i32) -> io::Result<()> {
        let Some(mut child) = self.member(id).child.take() else { return Ok(()) };
        child.kill()?;
        child.wait().map(|_| ())
    }

    /// SIGSTOP or SIGCONT.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn signal(&mut self, id: i32, name: &str) -> io::Result<()> {
        match &self.member(id).child {
            Some(child) => signal(child, name),
            None => Err(io::Error::other(format!("node {id} does not run"))),
        }
    }

    /// Removes what a node that does not run has on its disk.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn wipe(&mut self, id: i32) -> io::Result<()> {
        fs::remove_dir_all(self.data(id))
    }

    /// SIGTERM to all, then waits for their orderly end. Says who ended badly.
    ///
    /// # Errors
    /// If a process cannot be signalled.
    pub fn stop(&mut self, limit: Duration) -> io::Result<Vec<String>> {
        let mut wrong = Vec::new();
        for member in self.members.values() {
            if let Some(child) = &member.child {
                signal(child, "-TERM")?;
            }
        }
        for (id, member) in &mut self.members {
            let Some(mut child) = member.child.take() else { continue };
            match retry(limit, || child.try_wait().ok().flatten()) {
                Some(status) if status.success() => {}
                Some(status) => wrong.push(format!("node {id} stopped with {status}")),
                None => {
                    wrong.push(format!("node {id} still runs {limit:?} after SIGTERM"));
                    child.kill()?;
                    child.wait()?;
                }
            }
        }
        Ok(wrong)
    }

    /// The cluster as one of the running nodes describes it; `None` if none answers.
    #[must_use]
    pub fn describe(&self, topic: &str) -> Option<Cluster> {
        let running = self.members.values().filter(|member| member.child.is_some());
        let mut answers = running.filter_map(|member| {
            let mut connection = Connection::brief(member.address).ok()?;
            connection.describe(topic).ok()
        });
        answers.next()
    }

    /// What the nodes said last, for a report of failure.
    #[must_use]
    pub fn last_words(&self) -> String {
        let mut words = String::new();
        for id in self.members.keys() {
            let log = fs::read_to_string(self.folder.join(format!("node{id}.log")));
            let log = log.unwrap_or_default();
            let lines: Vec<&str> = log.lines().rev().take(5).collect();
            for line in lines.into_iter().rev() {
                let _ = writeln!(words, "node {id}: {line}");
            }
        }
        words
    }
}

impl Drop for Trio {
    fn drop(&mut self) {
        for member in self.members.values_mut() {
            if let Some(mut child) = member.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
