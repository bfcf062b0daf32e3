//! The simulated network and disk, under the runtime: `cargo simtest`.
#![cfg(madsim)]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use madsim::plugin::simulator;
use madsim::runtime::{Handle, Runtime};
use madsim::time::TimeHandle;
use quorate_net::transport::Stream;
use quorate_node::disk::Open;
use quorate_sim::chance::{Between, Chance, Ratio};
use quorate_sim::fault::power_loss::Unsynced;
use quorate_sim::plan::{self, Plan, draw::draw};
use quorate_sim::world::Surroundings;
use quorate_sim::world::clock::until;
use quorate_sim::world::disk::Death;
use quorate_sim::world::network::{HostId, SimNetwork};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn link() -> plan::Link {
    let latency = Between { low: Duration::from_micros(100), high: Duration::from_micros(100) };
    plan::Link { latency, bandwidth: 0, window: 4096, fragment: Ratio::NEVER }
}

/// Runs a test on a fresh thread, in a runtime with our plugin.
fn simulate<F: Future<Output = ()> + 'static>(test: impl FnOnce() -> F + Send + 'static) {
    let thread = std::thread::Builder::new().spawn(move || {
        let runtime = Runtime::with_seed_and_config(1, madsim::Config::default());
        runtime.add_simulator::<Surroundings>();
        runtime.block_on(test());
    });
    thread.expect("a thread").join().expect("the test passes");
}

struct Pair {
    network: Arc<SimNetwork>,
    client: HostId,
    server: HostId,
    node: madsim::task::NodeId,
}

fn pair() -> Pair {
    let network = Arc::clone(&simulator::<Surroundings>().network);
    network.configure(1, link());
    let node = Handle::current().create_node().name("n1").build().id();
    let server = network.add("n1");
    network.attach(node, server);
    let client = network.add("c0");
    Pair { network, client, server, node }
}

impl Pair {
    async fn connected(&self) -> (Box<dyn Stream>, Box<dyn Stream>) {
        let server = self.network.of(self.server);
        let mut listener =
            server.listen("0.0.0.0:9092".parse().expect("an address")).await.expect("listens");
        let client = self.network.of(self.client);
        let connected = client.connect("n1:9092").await.expect("connects");
        let (accepted, _) = listener.accept().await.expect("accepts");
        (connected, accepted)
    }
}

fn now() -> Duration {
    TimeHandle::current().elapsed()
}

#[test]
fn a_round_trip_takes_two_latencies_and_pieces_come_in_order() {
    simulate(|| async {
        let (mut one, mut other) = pair().connected().await;
        let begun = now();
        one.write_all(b"ping").await.expect("writes");
        let mut buffer = [0; 4];
        other.read_exact(&mut buffer).await.expect("reads");
        other.write_all(b"pong").await.expect("writes");
        one.read_exact(&mut buffer).await.expect("reads");
        let took = now() - begun;
        assert!(took >= Duration::from_micros(200), "{took:?}");
        assert!(took < Duration::from_micros(220), "{took:?}");
        one.shutdown().await.expect("ends");
        assert_eq!(other.read(&mut buffer).await.expect("the end"), 0);
    });
}

#[test]
fn a_writer_waits_for_its_reader() {
    simulate(|| async {
        let (mut one, mut other) = pair().connected().await;
        let sent = one.write(&[7; 10_000]).await.expect("writes");
        assert_eq!(sent, 4096);
        let clock = TimeHandle::current();
        let blocked = tokio::select! {
            biased;
            _ = one.write(&[7; 10]) => false,
            () = until(&clock, now() + Duration::from_secs(1)) => true,
        };
        assert!(blocked);
        let mut buffer = [0; 4096];
        other.read_exact(&mut buffer).await.expect("reads");
        assert_eq!(one.write(&[7; 10]).await.expect("writes"), 10);
    });
}

#[test]
fn nothing_passes_a_cut_and_all_of_it_afterwards() {
    simulate(|| async {
        let pair = pair();
        let (mut one, mut other) = pair.connected().await;
        pair.network.cut(pair.client, pair.server);
        one.write_all(b"late").await.expect("the kernel takes it");
        drop(one);
        let clock = TimeHandle::current();
        let mut buffer = [0; 4];
        let silent = tokio::select! {
            biased;
            _ = other.read(&mut buffer) => false,
            () = until(&clock, now() + Duration::from_secs(5)) => true,
        };
        assert!(silent);
        pair.network.heal(pair.client, pair.server);
        other.read_exact(&mut buffer).await.expect("reads");
        assert_eq!(&buffer, b"late");
        assert_eq!(other.read(&mut buffer).await.expect("the end"), 0);
    });
}

#[test]
fn connecting_into_a_cut_hangs_and_to_a_closed_port_is_refused() {
    simulate(|| async {
        let pair = pair();
        let client = pair.network.of(pair.client);
        let refused = client.connect("n1:9092").await.err().expect("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        pair.network.cut(pair.server, pair.client);
        let begun = now();
        let hung = client.connect("n1:9092").await.err().expect("nothing comes back");
        assert_eq!(hung.kind(), io::ErrorKind::TimedOut);
        assert!(now() - begun >= Duration::from_secs(127));
    });
}

#[test]
fn a_crash_is_heard_and_a_power_loss_is_not() {
    simulate(|| async {
        let pair = pair();
        let (mut one, other) = pair.connected().await;
        std::mem::forget(other);
        let mut buffer = [0; 4];
        pair.network.set_loses_power(pair.server, true);
        Handle::current().kill(pair.node);
        let clock = TimeHandle::current();
        let silent = tokio::select! {
            biased;
            _ = one.read(&mut buffer) => false,
            () = until(&clock, now() + Duration::from_secs(60)) => true,
        };
        assert!(silent);
        one.write_all(b"lost").await.expect("the kernel takes it");
        pair.network.power_on(pair.server);
        let error = one.read(&mut buffer).await.expect_err("the host knows nothing of it");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

        let (mut one, other) = pair.connected().await;
        std::mem::forget(other);
        Handle::current().kill(pair.node);
        assert_eq!(one.read(&mut buffer).await.expect("the end"), 0);
    });
}

#[test]
fn a_reset_lets_a_part_through() {
    simulate(|| async {
        let pair = pair();
        let (mut one, mut other) = pair.connected().await;
        one.write_all(&[1; 4000]).await.expect("writes");
        pair.network.reset(pair.client, pair.server);
        let mut read = 0;
        let mut buffer = [0; 4096];
        let error = loop {
            match other.read(&mut buffer).await {
                Ok(bytes) => read += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(read < 4000, "{read}");
        assert!(one.write(b"x").await.is_err());
    });
}

#[test]
fn a_dead_nodes_handles_do_nothing() {
    simulate(|| async {
        let surroundings = simulator::<Surroundings>();
        let disks = &surroundings.disks;
        let node = Handle::current().create_node().name("n1").build().id();
        let plan: Plan = draw(1);
        let disk = disks.add("n1", plan.disk, Chance::new(1, "disk"));
        disks.attach(node, &disk);
        let life = disk.handle();
        life.make_directory(Path::new("/data")).await.expect("makes");
        life.sync_directory(Path::new("/")).await.expect("syncs");
        let path = Path::new("/data/file");
        let file = life.open(path, Open::Create).await.expect("creates");
        life.sync_directory(Path::new("/data")).await.expect("syncs");
        file.write_at(0, vec![Bytes::from_static(b"synced")]).await.expect("writes");
        file.sync().await.expect("syncs");
        file.write_at(0, vec![Bytes::from_static(b"cached")]).await.expect("writes");
        let lock = life.lock(Path::new("/data")).await.expect("locks");
        disk.set_death(Death::PowerLoss(Unsynced::Lost));
        Handle::current().kill(node);
        assert!(file.write_at(0, vec![Bytes::from_static(b"ghost")]).await.is_err());
        drop((file, lock));
        let life = disk.handle();
        let file = life.open(path, Open::Read).await.expect("opens");
        assert_eq!(file.read_at(0, 10).await.expect("reads"), &b"synced"[..]);
        let _ = life.lock(Path::new("/data")).await.expect("the lock died with its node");
    });
}
