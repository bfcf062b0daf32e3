//! Several nodes of one cluster as processes, each with its own configuration and data: started,
//! killed, stopped for a while, wiped, replaced. They are ours, or Apache Kafka's as the oracle.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::java_load::JavaLoad;
use crate::namespaces::{Family, Namespaces};
use crate::process::{Kind, free_address};
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
    kind: Kind,
    root: PathBuf,
    binary: PathBuf,
    folder: PathBuf,
    settings: Vec<(String, String)>,
    members: BTreeMap<i32, Member>,
    /// Each node in a network of its own, if cuts are wanted.
    network: Option<Namespaces>,
    /// The only core that the nodes may use.
    core: Option<u32>,
}

/// Sends a signal by its name, with the hyphen.
pub(crate) fn signal(child: &Child, name: &str) -> io::Result<()> {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status()?;
    if sent.success() { Ok(()) } else { Err(io::Error::other(format!("kill {name}: {sent}"))) }
}

impl Trio {
    /// Plans `count` nodes; the first three are the voters. Nothing runs yet. Settings are
    /// `key=value` in the broker's own language (ours: `section.key`).
    ///
    /// # Errors
    /// If there are no free ports, or the folder cannot be written.
    pub fn new(
        kind: Kind,
        root: &Path,
        folder: &Path,
        count: i32,
        settings: &[String],
    ) -> io::Result<Self> {
        let mut members = BTreeMap::new();
        for id in 1..=count {
            let (address, peers) = (free_address()?, free_address()?);
            let data = folder.join(format!("node{id}"));
            members.insert(id, Member { address, peers, data, child: None });
        }
        let pairs = settings.iter().filter_map(|setting| setting.split_once('='));
        let trio = Self {
            kind,
            root: root.to_owned(),
            binary: root.join("target/release/quorate"),
            folder: folder.to_owned(),
            settings: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            members,
            network: None,
            core: None,
        };
        trio.configure()?;
        Ok(trio)
    }

    fn configure(&self) -> io::Result<()> {
        self.ids().into_iter().try_for_each(|id| fs::write(self.configuration(id), self.toml(id)))
    }

    /// The same with a network for each node, and behind those one for each of so many clients.
    ///
    /// # Errors
    /// If the machine does not grant them.
    pub fn in_namespaces(mut self, family: Family, clients: i32) -> io::Result<Self> {
        let count = self.ids().into_iter().max().unwrap_or(0);
        let network = Namespaces::new(family, count + clients)?;
        for (id, member) in &mut self.members {
            (member.address, member.peers) = network.addresses(*id);
        }
        self.network = Some(network);
        self.configure()?;
        Ok(self)
    }

    #[must_use]
    pub fn network(&self) -> Option<&Namespaces> {
        self.network.as_ref()
    }

    /// The same with another build of the node.
    #[must_use]
    pub fn with_binary(mut self, binary: &Path) -> Self {
        binary.clone_into(&mut self.binary);
        self
    }

    /// The same with all nodes on one core.
    #[must_use]
    pub const fn on_core(mut self, core: Option<u32>) -> Self {
        self.core = core;
        self
    }

    fn configuration(&self, id: i32) -> PathBuf {
        self.folder.join(format!("node{id}.toml"))
    }

    fn voters(&self) -> String {
        let voters = self.members.iter().take(VOTERS);
        let voters: Vec<String> =
            voters.map(|(id, voter)| format!("{id}@{}", voter.peers)).collect();
        voters.join(",")
    }

    /// A command that becomes the node.
    fn command(&self, id: i32) -> Command {
        let member = &self.members[&id];
        match self.kind {
            Kind::Quorate => {
                let mut command = match &self.network {
                    Some(network) => network.command(id, &self.binary),
                    None => Command::new(&self.binary),
                };
                command.arg("serve").arg("--config").arg(self.configuration(id));
                command
            }
            Kind::Kafka => {
                let script = self.root.join("jepsen-like-tests/setup/kafka-node.sh");
                let (port, peers) = (member.address.port(), member.peers.port());
                let mut command = Command::new(script);
                command.arg(&member.data).arg(id.to_string());
                command.args([port.to_string(), peers.to_string(), self.voters()]);
                command.args(self.settings.iter().map(|(key, value)| format!("{key}={value}")));
                command
            }
        }
    }

    fn toml(&self, id: i32) -> String {
        let member = &self.members[&id];
        let mut sections: BTreeMap<&str, String> = BTreeMap::new();
        let mut put = |section, key: &str, value: &str| {
            let _ = writeln!(sections.entry(section).or_default(), "{key} = {value}");
        };
        put("node", "id", &id.to_string());
        put("node", "data", &format!("{:?}", member.data.display().to_string()));
        put("network", "listen", &format!("\"{}\"", member.address));
        put("network", "peer_listen", &format!("\"{}\"", member.peers));
        put("quorum", "voters", &format!("\"{}\"", self.voters()));
        for (key, value) in &self.settings {
            let (section, key) = key.split_once('.').unwrap_or(("node", key));
            put(section, key, &format!("\"{value}\""));
        }
        let sections = sections.iter().map(|(name, lines)| format!("[{name}]\n{lines}"));
        sections.collect::<Vec<_>>().join("\n")
    }

    /// Our own command, for what it can tell of the directories; Kafka's are not ours to read.
    #[must_use]
    pub fn binary(&self) -> Option<&Path> {
        (self.kind == Kind::Quorate).then_some(&*self.binary)
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

    /// The process ids of the nodes that run.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let running = self.members.values().filter_map(|member| member.child.as_ref());
        running.map(Child::id).collect()
    }

    /// Starts every node and waits until a topic with a copy on each could be made.
    ///
    /// # Errors
    /// If there is no binary, or no cluster within `limit`.
    pub fn start_all(&mut self, limit: Duration, topic: &str) -> io::Result<()> {
        let copies = i16::try_from(self.members.len()).unwrap_or(i16::MAX);
        self.ids().into_iter().try_for_each(|id| self.start(id))?;
        let made = retry(limit, || {
            let mut connection = Connection::brief(self.addresses()[0]).ok()?;
            connection.create_replicated(topic, 1, copies, &[]).ok()
        });
        made.ok_or_else(|| io::Error::other(format!("no cluster\n{}", self.last_words())))
    }

    /// Starts a node that does not run; does not wait for it.
    ///
    /// # Errors
    /// If there is no binary.
    pub fn start(&mut self, id: i32) -> io::Result<()> {
        let log = self.folder.join(format!("node{id}.log"));
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = self.command(id);
        if let Some(core) = self.core {
            let mut pinned = Command::new("taskset");
            pinned.args(["-c", &core.to_string()]).arg(command.get_program());
            pinned.args(command.get_args());
            command = pinned;
        }
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
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

    /// A voter is known by its directory: with another one, it gets its vote back by itself.
    /// Returns once all voters vote and are heard of.
    ///
    /// # Errors
    /// If that does not come to be.
    pub fn all_vote(&self) -> io::Result<()> {
        let Some(binary) = self.binary() else { return Ok(()) };
        let bootstrap: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        let mut said = String::new();
        let voting = retry(Duration::from_secs(20), || {
            let mut command = Command::new(binary);
            command.args(["--bootstrap", &bootstrap.join(","), "--json", "cluster", "quorum"]);
            let output = command.output().ok()?;
            said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let quorum: serde_json::Value = serde_json::from_str(&said).ok()?;
            let voters = quorum["voters"].as_array()?;
            let heard = voters.iter().filter(|voter| voter["heard"] == true).count();
            (voters.len() == VOTERS && heard == VOTERS).then_some(())
        });
        voting.ok_or_else(|| io::Error::other(format!("not all vote: {said}")))
    }

    /// Kafka's own producer, which writes to `topic` from now on.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn java(&self, topic: &str, run: usize) -> io::Result<JavaLoad> {
        JavaLoad::start(&self.root, &self.folder, &self.addresses(), topic, run)
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
                // A Java process that ended in good order says which signal it heard.
                Some(status) if status.success() || status.code() == Some(143) => {}
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
