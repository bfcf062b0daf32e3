//! A network of its own for each node, and for each client where one is to be cut off, joined by a
//! bridge, so that the way between any two can be cut. Linux, and root, are needed for it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// What tells the networks of two runs apart that go on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Everything is named by it; an interface's name has 15 bytes.
    pub word: &'static str,
    /// The third byte of their addresses.
    pub net: u8,
}

/// Of `rounds`.
pub const ROUNDS: Family = Family { word: "quorate", net: 0 };
/// Of `exactly-once`.
pub const EXACTLY_ONCE: Family = Family { word: "exactly", net: 1 };

impl Family {
    /// The namespace of one place.
    pub(crate) fn name(self, id: i32) -> String {
        format!("{}-{id}", self.word)
    }

    fn host(self, id: i32) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.net, u8::try_from(id).expect("few places"))
    }

    fn bridge(self) -> String {
        format!("{}-bridge", self.word)
    }

    fn port(self, id: i32) -> String {
        format!("{}-port{id}", self.word)
    }
}

/// The namespaces of places 1 to `count`; gone when it is dropped. The first are those of nodes,
/// others may be those of clients.
#[derive(Debug)]
pub struct Namespaces {
    family: Family,
    count: i32,
}

fn ip(line: &str) -> io::Result<()> {
    let output = Command::new("ip").args(line.split(' ')).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip {line}: {}", said.trim())))
}

impl Namespaces {
    /// # Errors
    /// If the machine does not grant them.
    pub fn new(family: Family, count: i32) -> io::Result<Self> {
        let namespaces = Self { family, count };
        // What a run that was killed has left behind.
        namespaces.remove();
        let bridge = family.bridge();
        ip(&format!("link add {bridge} type bridge"))?;
        // The bridge's own address, from which the harness comes.
        ip(&format!("addr add {}/24 dev {bridge}", family.host(254)))?;
        ip(&format!("link set {bridge} up"))?;
        for id in 1..=count {
            let (name, port) = (family.name(id), family.port(id));
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add {port} type veth peer name eth0 netns {name}"))?;
            ip(&format!("link set {port} master {bridge} up"))?;
            ip(&format!("-n {name} addr add {}/24 dev eth0", family.host(id)))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(namespaces)
    }

    pub(crate) fn addresses(&self, id: i32) -> (SocketAddr, SocketAddr) {
        let host = self.family.host(id);
        (SocketAddr::from((host, 9092)), SocketAddr::from((host, 9093)))
    }

    /// A command that runs `program` at a place.
    pub(crate) fn command(&self, id: i32, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.family.name(id)]).arg(program);
        command
    }

    /// Nothing that `from` sends reaches `to`. The way back is another one.
    ///
    /// # Errors
    /// If it is cut already.
    pub fn cut(&self, from: i32, to: i32) -> io::Result<()> {
        self.blackhole("add", from, to)
    }

    /// # Errors
    /// If it is not cut.
    pub fn heal(&self, from: i32, to: i32) -> io::Result<()> {
        self.blackhole("del", from, to)
    }

    fn blackhole(&self, what: &str, from: i32, to: i32) -> io::Result<()> {
        let (name, host) = (self.family.name(from), self.family.host(to));
        ip(&format!("-n {name} route {what} blackhole {host}/32"))
    }

    fn remove(&self) {
        for id in 1..=self.count {
            let _ = ip(&format!("netns del {}", self.family.name(id)));
            let _ = ip(&format!("link del {}", self.family.port(id)));
        }
        let _ = ip(&format!("link del {}", self.family.bridge()));
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.remove();
    }
}
