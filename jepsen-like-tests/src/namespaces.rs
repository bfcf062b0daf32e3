//! A network of its own for each node, joined by a bridge, so that the way between two nodes can be
//! cut while clients reach both. Linux, and root, are needed for it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

const BRIDGE: &str = "quorate-bridge";
/// The bridge's own address, from which the clients come.
const CLIENTS: &str = "10.77.0.254/24";

/// The namespaces of nodes 1 to `count`; gone when it is dropped.
#[derive(Debug)]
pub struct Namespaces {
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

pub(crate) fn name(id: i32) -> String {
    format!("quorate-{id}")
}

fn host(id: i32) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, u8::try_from(id).expect("few nodes"))
}

impl Namespaces {
    /// # Errors
    /// If the machine does not grant them.
    pub fn new(count: i32) -> io::Result<Self> {
        let namespaces = Self { count };
        // What a run that was killed has left behind.
        namespaces.remove();
        ip(&format!("link add {BRIDGE} type bridge"))?;
        ip(&format!("addr add {CLIENTS} dev {BRIDGE}"))?;
        ip(&format!("link set {BRIDGE} up"))?;
        for id in 1..=count {
            let (name, port) = (name(id), format!("quorate-port{id}"));
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add {port} type veth peer name eth0 netns {name}"))?;
            ip(&format!("link set {port} master {BRIDGE} up"))?;
            ip(&format!("-n {name} addr add {}/24 dev eth0", host(id)))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(namespaces)
    }

    pub(crate) fn addresses(id: i32) -> (SocketAddr, SocketAddr) {
        (SocketAddr::from((host(id), 9092)), SocketAddr::from((host(id), 9093)))
    }

    /// Nothing that `from` sends reaches `to`. The way back is another one.
    ///
    /// # Errors
    /// If it is cut already.
    pub fn cut(&self, from: i32, to: i32) -> io::Result<()> {
        ip(&format!("-n {} route add blackhole {}/32", name(from), host(to)))
    }

    /// # Errors
    /// If it is not cut.
    pub fn heal(&self, from: i32, to: i32) -> io::Result<()> {
        ip(&format!("-n {} route del blackhole {}/32", name(from), host(to)))
    }

    fn remove(&self) {
        for id in 1..=self.count {
            let _ = ip(&format!("netns del {}", name(id)));
            let _ = ip(&format!("link del quorate-port{id}"));
        }
        let _ = ip(&format!("link del {BRIDGE}"));
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.remove();
    }
}
