//! Links and those who accept them, over streams in memory.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use quorate_core::id::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

use super::hello::{Answer, Hello, Known, Me, Refusal};
use super::inbound::{Inbound, NotAccepted};
use super::link::{GREETING, Link, State, Surroundings, Target, Told};
use super::{Channel, Limits, frame};
use crate::clock::running::TestClock;
use crate::transport::{Io, Listener, Network, Stream};

/// Whoever dials meets who holds the other end of this queue.
#[derive(Clone)]
struct Wires(mpsc::UnboundedSender<DuplexStream>, Arc<Mutex<u32>>);

impl Network for Wires {
    fn listen(&self, _: SocketAddr) -> Io<'_, Box<dyn Listener>> {
        Box::pin(async { Err(std::io::ErrorKind::Unsupported.into()) })
    }

    fn connect<'a>(&'a self, _: &'a str) -> Io<'a, Box<dyn Stream>> {
        *self.1.lock().unwrap() += 1;
        let (ours, theirs) = tokio::io::duplex(64);
        let sent = self.0.send(theirs).map_err(|_| std::io::ErrorKind::ConnectionRefused.into());
        Box::pin(async move { sent.map(|()| Box::new(ours) as Box<dyn Stream>) })
    }
}

static ONE: Me = Me {
    cluster: Some([1; 16]),
    node: NodeId(1),
    directory: [1; 16],
    start: 1,
    address: String::new(),
};
static TWO: Me = Me {
    cluster: Some([1; 16]),
    node: NodeId(2),
    directory: [2; 16],
    start: 5,
    address: String::new(),
};

fn limits() -> Limits {
    Limits {
        connect_timeout: Duration::from_secs(5),
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(4),
        pulse_interval: Duration::from_millis(20),
        silence_max: Duration::from_secs(5),
        ..Limits::default()
    }
}

struct Pair {
    link: Arc<Link>,
    around: Surroundings,
    dialled: mpsc::UnboundedReceiver<DuplexStream>,
    dials: Arc<Mutex<u32>>,
    limits: Limits,
    told: Arc<Mutex<Vec<Told>>>,
}

/// Node 1 dials node 2 with a link of these limits.
fn pair(limits: Limits) -> Pair {
    let (sender, dialled) = mpsc::unbounded_channel();
    let dials = Arc::new(Mutex::new(0));
    let network = Arc::new(Wires(sender, Arc::clone(&dials)));
    let around = Surroundings { network, clock: Arc::new(TestClock::start()) };
    let link = Arc::new(Link::new(limits.clone()));
    let (running, surroundings) = (Arc::clone(&link), around.clone());
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    tokio::spawn(async move {
        let address = "two:2".to_owned();
        let target = Target { node: TWO.node, address, channel: Channel::Data };
        let hear = |told| heard.lock().unwrap().push(told);
        running.run(&surroundings, &|| ONE.clone(), &target, 7, &hear).await;
    });
    Pair { link, around, dialled, dials, limits, told }
}

impl Pair {
    async fn accept(&mut self, known: Option<Known>) -> Result<Inbound, NotAccepted> {
        let stream = Box::new(self.dialled.recv().await.expect("the link dials"));
        let (around, limits) = (self.around.clone(), self.limits.clone());
        Inbound::accept(stream, around, limits, &TWO, |_: &Hello| known).await
    }

    /// Sends until a connection takes it.
    async fn send(&self, kind: u8, head: &[u8], tail: &[Bytes]) {
        while !self.link.send(kind, head, tail) {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn frames_arrive_in_order_and_pulses_between_them() {
    let mut pair = pair(limits());
    let mut inbound = pair.accept(None).await.unwrap();
    assert_eq!((inbound.hello.node, inbound.hello.channel), (NodeId(1), Channel::Data));
    // Far more than the stream in memory holds at once.
    let tail = [Bytes::from(vec![7; 10_000])];
    for head in [b"a", b"b", b"c"] {
        pair.send(9, head, &tail).await;
    }
    let mut heads = Vec::new();
    while heads.len() < 3 {
        let frame = inbound.next().await.unwrap().unwrap();
        if frame.kind == 9 {
            assert_eq!(frame.tail, tail[0]);
            heads.push(frame.head);
        }
    }
    assert_eq!(heads.concat(), b"abc");
    let pulse = inbound.next().await.unwrap().unwrap();
    assert_eq!((pulse.kind, pulse.head.len(), pulse.tail.len()), (frame::PULSE, 0, 0));
    assert_eq!(pair.link.state(), State::Connected { protocol: 1 });
}

#[tokio::test]
async fn a_broken_connection_is_dialled_again_and_old_news_is_not_sent() {
    let mut pair = pair(limits());
    let inbound = pair.accept(None).await.unwrap();
    pair.send(9, b"before", &[]).await;
    drop(inbound);
    let mut inbound = pair.accept(None).await.unwrap();
    pair.send(9, b"after", &[]).await;
    let frame = loop {
        let frame = inbound.next().await.unwrap().unwrap();
        if frame.kind == 9 {
            break frame;
        }
    };
    assert_eq!(frame.head, "after");
}

#[tokio::test]
async fn where_nobody_listens_any_more_a_process_is_gone() {
    let mut pair = pair(limits());
    let inbound = pair.accept(None).await.unwrap();
    pair.send(9, b"before", &[]).await;
    drop(inbound);
    // It ended, and is there again: nobody died.
    let inbound = pair.accept(None).await.unwrap();
    pair.send(9, b"after", &[]).await;
    drop(inbound);
    pair.dialled.close();
    let refused = || matches!(pair.link.state(), State::Dialling { attempts: 3.., .. });
    while !refused() {
        tokio::task::yield_now().await;
    }
    let (stands, ended) = (Told::Connected, Told::Ended);
    assert_eq!(*pair.told.lock().unwrap(), [stands, ended, stands, ended, Told::Gone]);
}

#[tokio::test]
async fn both_sides_hear_why_a_node_is_refused() {
    let mut pair = pair(limits());
    let newest = Known { directory: ONE.directory, start: ONE.start + 1 };
    let refused = pair.accept(Some(newest)).await.unwrap_err();
    let NotAccepted::Refused(hello, refusal) = refused else { panic!("{refused:?}") };
    assert_eq!(hello.start, ONE.start);
    assert_eq!(refusal, Refusal::OlderStart { node: NodeId(1), start: 1, newest: 2 });
    let reason = loop {
        match pair.link.state() {
            State::Dialling { attempts, reason } if attempts > 0 => break reason,
            _ => tokio::task::yield_now().await,
        }
    };
    assert_eq!(reason, refusal.to_string());
    assert!(!pair.link.send(9, b"lost", &[]));
    assert_eq!(pair.link.lost(), 1);
}

#[tokio::test]
async fn whoever_does_not_greet_is_not_listened_to() {
    let (around, limits) = {
        let pair = pair(limits());
        (pair.around, Limits { frame_bytes_max: 1 << 30, ..pair.limits })
    };
    let strange = async |bytes: &[u8]| {
        let (mut ours, theirs) = tokio::io::duplex(64);
        ours.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        let (accepted, _) = tokio::join!(
            Inbound::accept(Box::new(theirs), around.clone(), limits.clone(), &TWO, |_| None),
            async {
                ours.shutdown().await.unwrap();
                ours.read_to_end(&mut rest).await
            }
        );
        match accepted {
            Err(NotAccepted::Stranger(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(strange(b"GET / HTTP/1.1\r\n\r\n").await.contains("longer than"));
    assert!(strange(&[0, 0, 0, 5, 9, 0, 0, 0, 0]).await.contains("no greeting"));
    assert!(strange(&[0, 0, 0, 5, 1, 0, 0, 0, 0]).await.contains("there are no bytes"));
    assert!(strange(&[0, 0, 16, 1]).await.contains("longer than the 4096"), "4097 bytes");
    assert!(strange(&[0, 0, 16, 0]).await.contains("inside a frame"), "4096 are allowed");
}

#[tokio::test]
async fn a_silent_peer_is_given_up() {
    let silence_max = Duration::from_millis(30);
    let mut pair = pair(Limits { silence_max, pulse_interval: silence_max / 3, ..limits() });
    let inbound = pair.accept(None).await.unwrap();
    // This side takes nothing: the pulses fill the stream, and the link dials again.
    let again = pair.dialled.recv().await;
    assert!(again.is_some() && *pair.dials.lock().unwrap() == 2);
    drop((inbound, again));
    // A link that never pulses: the other side gives up.
    let (_ours, theirs) = tokio::io::duplex(1024);
    let mut greeting =
        frame::to_chunks(1, &Hello::new(&ONE, TWO.node, Channel::Data).encode(), &[]);
    let (mut dialling, accepting) = (_ours, theirs);
    dialling.write_all(&greeting.remove(0)).await.unwrap();
    let limits = Limits { silence_max, pulse_interval: silence_max / 3, ..limits() };
    let around = pair.around.clone();
    let accepted = Inbound::accept(Box::new(accepting), around, limits, &TWO, |_| None).await;
    let error = accepted.unwrap().next().await.unwrap_err();
    assert!(error.contains("silent"), "{error}");
}

/// Simulation found it (seed 23 on three nodes): a frame of a megabyte took longer than the silence
/// that is borne, the link was given up and dialled again, and the follower never caught up.
#[tokio::test]
async fn a_large_frame_may_take_longer_than_a_silence() {
    let silence_max = Duration::from_millis(150);
    let mut pair = pair(Limits { silence_max, pulse_interval: silence_max / 3, ..limits() });
    let (mut dialling, accepting) = tokio::io::duplex(64);
    let hello = Hello::new(&ONE, TWO.node, Channel::Data).encode();
    let greeting = frame::to_chunks(GREETING, &hello, &[]).remove(0);
    let (around, limits) = (pair.around.clone(), pair.limits.clone());
    let accept = Inbound::accept(Box::new(accepting), around, limits, &TWO, |_| None);
    let (greeted, accepted) = tokio::join!(dialling.write_all(&greeting), accept);
    greeted.unwrap();
    let mut inbound = accepted.unwrap();
    let clock = Arc::clone(&pair.around.clock);
    let sent = frame::to_chunks(9, b"head", &[Bytes::from(vec![7; 4096])]).concat();
    let trickle = async {
        for piece in sent.chunks(512) {
            dialling.write_all(piece).await.unwrap();
            clock.sleep(silence_max / 3).await;
        }
    };
    let ((), frame) = tokio::join!(trickle, inbound.next());
    assert_eq!(frame.unwrap().map(|frame| (frame.kind, frame.tail.len())), Some((9, 4096)));

    // And the other way: what is sent is taken in small pieces.
    let mut taking = pair.dialled.recv().await.unwrap();
    let mut greeting = vec![0; greeting.len()];
    taking.read_exact(&mut greeting).await.unwrap();
    let welcome = Answer::Welcome { protocol: 1 }.encode();
    taking.write_all(&frame::to_chunks(GREETING, &welcome, &[]).concat()).await.unwrap();
    pair.send(9, b"head", &[Bytes::from(vec![7; 4096])]).await;
    for _ in 0..8 {
        taking.read_exact(&mut [0; 512]).await.unwrap();
        clock.sleep(silence_max / 3).await;
    }
    assert_eq!(*pair.dials.lock().unwrap(), 1, "the link was given up");
}

#[test]
fn limits_that_cannot_be_kept_are_named() {
    assert_eq!(Limits::default().check(), Ok(()));
    let refused = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        limits.check().unwrap_err()
    };
    assert!(refused(|limits| limits.frame_bytes_max = 4095).contains("greeting"));
    assert!(refused(|limits| limits.queue_bytes_max = (64 << 20) - 1).contains("one frame"));
    assert!(refused(|limits| limits.queue_frames_max = 0).contains("one frame"));
    assert!(refused(|limits| limits.silence_max = Duration::from_millis(999)).contains("pulses"));
    assert!(refused(|limits| limits.backoff_max = Duration::from_millis(19)).contains("back-off"));
}
