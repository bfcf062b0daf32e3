//! Requests at the edges, and the error codes that Apache Kafka 4.4 answers: ours are the same.
//!
//! The codes are Kafka's own: with `AS_KAFKA=127.0.0.1:9092` the table is asked of a fresh Kafka
//! of node id 1 that listens there, instead of a node of ours. Where the two are meant to differ
//! (acks above 1, transactions) the table is silent.

#[path = "node/house.rs"]
#[allow(dead_code)]
mod house;

#[path = "as_kafka/admin.rs"]
mod admin;
#[path = "as_kafka/data.rs"]
mod data;
#[path = "as_kafka/groups.rs"]
mod groups;

use std::time::Duration;

use quorate_net::clock::Clock;
use quorate_net::connection::Frames;
use quorate_net::kafka::header::RequestHeader;
use quorate_net::kafka::{Request, Response};
use quorate_net::wire::{Reader, Text, Writer};
use quorate_node::clock::OsClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One request, and the error codes in its answer, in the order in which they stand there.
struct Case {
    what: &'static str,
    version: i16,
    request: Request,
    codes: &'static [i16],
}

fn case(
    what: &'static str,
    version: i16,
    request: impl Into<Request>,
    codes: &'static [i16],
) -> Case {
    Case { what, version, request: request.into(), codes }
}

fn text(text: &str) -> Text {
    text.into()
}

async fn ask(stream: &mut TcpStream, case: &Case) -> Response {
    let key = case.request.key();
    let header = RequestHeader {
        key,
        version: case.version,
        correlation_id: 7,
        client_id: Some(text("as-kafka")),
    };
    let mut writer = Writer::framed();
    header.encode(&mut writer);
    case.request.encode(&mut writer, case.version);
    let bytes = writer.finish().expect("requests are short").concat();
    stream.write_all(&bytes).await.expect("the broker reads");
    let mut frames = Frames::new(16 << 20);
    loop {
        if let Some(frame) = frames.next_frame().expect("answers have a length") {
            let mut reader = Reader::new(&frame);
            assert_eq!(reader.i32(), Ok(7));
            if key.response_header_is_flexible(case.version) {
                assert_eq!(reader.i8(), Ok(0));
            }
            return Response::decode(key, &mut reader, case.version).expect("a good answer");
        }
        let read = stream.read_buf(frames.room().expect("answers have a length")).await;
        assert_ne!(read.expect("the broker answers"), 0, "closed on: {}", case.what);
    }
}

/// The numbers of all fields of this name, in the order in which they are printed.
fn codes(response: &Response) -> Vec<i16> {
    let printed = format!("{response:?}");
    let fields = printed.split("error_code: ");
    let after = fields.clone().skip(1);
    let named = fields.zip(after).filter(|(before, _)| !before.ends_with('_'));
    let numbers = named.map(|(_, after)| {
        let end = after.find([',', ' ']).expect("a field ends");
        after[..end].parse().expect("a code is a number")
    });
    numbers.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_codes_are_those_of_kafka() {
    let foreign = std::env::var("AS_KAFKA").ok();
    let node = match foreign {
        Some(_) => None,
        None => Some(house::in_memory(&[("node.id", "1")]).await),
    };
    let address = foreign.or_else(|| Some(node.as_ref()?.address().to_string()));
    let clock = OsClock::new();
    let mut wrong = Vec::new();
    let mut stream = TcpStream::connect(address.expect("one of them")).await.expect("it listens");
    let cases = admin::creating().into_iter().chain(data::cases()).chain(groups::cases());
    for case in cases.chain(admin::changing()) {
        let mut found = codes(&ask(&mut stream, &case).await);
        for _ in 0..20 {
            // Kafka serves what it has created, and loads what it coordinates, some time later.
            if node.is_some() || found == case.codes {
                break;
            }
            clock.sleep(Duration::from_millis(500)).await;
            found = codes(&ask(&mut stream, &case).await);
        }
        if found != case.codes {
            wrong.push(format!("{}: {found:?} instead of {:?}", case.what, case.codes));
        }
    }
    assert!(wrong.is_empty(), "\n  {}\n", wrong.join("\n  "));
    if let Some(node) = node {
        node.shutdown().await.expect("the node stops in good order");
    }
}
