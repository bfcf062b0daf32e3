//! Listening and connecting: a host's view of the network, with backlogs, refusals, and connects
//! that hang because nothing comes back.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quorate_net::transport::{Io, Listener, Network, Stream};

use super::connection::Connection;
use super::stream::SimStream;
use super::{BACKLOG_MAX, HostId, Listening, SimNetwork, State};
use crate::trace::{self, Mark};
use crate::world::clock::{Alarm, until};

/// Attempts to connect before giving up: after 1, 2, 4, ... seconds, 127 in all, as Linux does.
const ATTEMPTS: u32 = 7;

/// The network as one host, in one of its lives, sees it.
pub(super) struct HostNetwork {
    pub(super) network: Arc<SimNetwork>,
    pub(super) host: HostId,
    pub(super) incarnation: u32,
}

impl Network for HostNetwork {
    fn listen(&self, address: SocketAddr) -> Io<'_, Box<dyn Listener>> {
        Box::pin(async move {
            let mut state = self.network.state();
            let own = state.hosts[self.host].address;
            let ip = address.ip();
            if !(ip.is_unspecified() || ip.is_loopback() || ip == own) {
                return Err(io::ErrorKind::AddrNotAvailable.into());
            }
            let port =
                if address.port() == 0 { state.free_port(self.host) } else { address.port() };
            let address = SocketAddr::new(own, port);
            if state.listeners.contains_key(&address) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            let listening = Listening { host: self.host, backlog: VecDeque::new(), waker: None };
            state.listeners.insert(address, listening);
            drop(state);
            let network = Arc::clone(&self.network);
            let alarm = Alarm::new(network.time.clone());
            let incarnation = self.incarnation;
            Ok(Box::new(SimListener { network, address, incarnation, alarm }) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> Io<'a, Box<dyn Stream>> {
        Box::pin(async move {
            let (target, address) = self.resolve(address)?;
            for attempt in 0..ATTEMPTS {
                let begun = self.network.time.elapsed();
                if let Some(stream) = self.attempt(target, address).await? {
                    return Ok(Box::new(stream) as Box<dyn Stream>);
                }
                let again = begun + Duration::from_secs(1 << attempt);
                until(&self.network.time, again).await;
            }
            Err(io::ErrorKind::TimedOut.into())
        })
    }
}

impl HostNetwork {
    fn resolve(&self, address: &str) -> io::Result<(HostId, SocketAddr)> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidInput, format!("{address:?}"));
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let state = self.network.state();
        let is_loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let target =
            if is_loopback || host == "localhost" { Some(self.host) } else { state.host_of(host) };
        let target = target.ok_or(io::ErrorKind::HostUnreachable)?;
        Ok((target, SocketAddr::new(state.hosts[target].address, port)))
    }

    /// One request to connect; `None` if nothing comes back.
    async fn attempt(&self, target: HostId, address: SocketAddr) -> io::Result<Option<SimStream>> {
        let time = &self.network.time;
        let there = {
            let mut state = self.network.state();
            if state.is_cut(self.host, target) {
                return Ok(None);
            }
            state.arrival(self.host, target, 0)
        };
        until(time, there).await;
        let (back, refused) = {
            let mut state = self.network.state();
            let listening = state.listeners.get(&address);
            let full = listening.is_some_and(|found| found.backlog.len() >= BACKLOG_MAX);
            let refused = listening.is_none();
            if !state.hosts[target].up || full || state.is_cut(target, self.host) {
                return Ok(None);
            }
            (state.arrival(target, self.host, 0), refused)
        };
        until(time, back).await;
        if refused {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(self.establish(&mut self.network.state(), target, address))
    }

    fn establish(
        &self,
        state: &mut State,
        target: HostId,
        address: SocketAddr,
    ) -> Option<SimStream> {
        let ready = state.arrival(self.host, target, 0);
        let local = SocketAddr::new(state.hosts[self.host].address, state.free_port(self.host));
        let id = state.next_connection;
        let listening = state.listeners.get_mut(&address)?;
        listening.backlog.push_back((ready, id, local));
        if let Some(waker) = listening.waker.take() {
            waker.wake();
        }
        state.next_connection += 1;
        let connection = Connection::new([self.host, target]);
        state.connections.insert(id, connection);
        let who = state.hosts[self.host].name;
        trace::event(state.time.elapsed(), Mark::Connection, who, [id, 0, 0], || {
            format!("connection {id} to {address}")
        });
        Some(SimStream::new(Arc::clone(&self.network), id, 0, self.incarnation))
    }
}

struct SimListener {
    network: Arc<SimNetwork>,
    address: SocketAddr,
    incarnation: u32,
    alarm: Alarm,
}

impl SimListener {
    fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Box<dyn Stream>, SocketAddr)>> {
        loop {
            let mut state = self.network.state();
            let now = state.time.elapsed();
            let Some(listening) = state.listeners.get_mut(&self.address) else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            listening.waker = Some(cx.waker().clone());
            match listening.backlog.front().copied() {
                None => return Poll::Pending,
                Some((at, id, peer)) if at <= now => {
                    listening.backlog.pop_front();
                    let network = Arc::clone(&self.network);
                    let stream = SimStream::new(network, id, 1, self.incarnation);
                    return Poll::Ready(Ok((Box::new(stream), peer)));
                }
                Some((at, ..)) => {
                    drop(state);
                    if self.alarm.poll_until(at, cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl Listener for SimListener {
    fn accept(&mut self) -> Io<'_, (Box<dyn Stream>, SocketAddr)> {
        Box::pin(poll_fn(|cx| self.poll_accept(cx)))
    }

    fn local_address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut state = self.network.state();
        let Some(listening) = state.listeners.get(&self.address) else { return };
        let host = listening.host;
        if state.hosts[host].incarnation != self.incarnation {
            return;
        }
        let listening = state.listeners.remove(&self.address);
        for (_, id, _) in listening.into_iter().flat_map(|listening| listening.backlog) {
            state.close(id, 1);
        }
    }
}
