//! A connection against a peer that answers late, in pieces, wrongly, or not at all.

use tokio::io::DuplexStream;

use super::*;

const ANSWER_MAX: usize = 1024;

/// A connection, and the broker's end of it.
fn connection() -> (Connection, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(64);
    (Connection::start(Box::new(ours), ANSWER_MAX), theirs)
}

/// A frame of a correlation id and some text, in two chunks.
fn frame(correlation: i32, text: &str) -> Vec<Bytes> {
    let length = u32::try_from(4 + text.len()).unwrap();
    let mut head = length.to_be_bytes().to_vec();
    head.extend(correlation.to_be_bytes());
    vec![Bytes::from(head), Bytes::copy_from_slice(text.as_bytes())]
}

async fn ask(connection: &Connection, text: &str) -> oneshot::Receiver<Result<Bytes, Lost>> {
    let correlation = connection.next_correlation();
    connection.send(correlation, frame(correlation, text), true).await.unwrap()
}

async fn read_request(broker: &mut DuplexStream) -> (i32, String) {
    let length = broker.read_u32().await.unwrap();
    let correlation = broker.read_i32().await.unwrap();
    let mut text = vec![0; usize::try_from(length - 4).unwrap()];
    broker.read_exact(&mut text).await.unwrap();
    (correlation, String::from_utf8(text).unwrap())
}

async fn answer(broker: &mut DuplexStream, correlation: i32, text: &str) {
    for chunk in frame(correlation, text) {
        for byte in chunk {
            broker.write_all(&[byte]).await.unwrap();
        }
    }
}

#[tokio::test]
async fn requests_go_out_at_once_and_answers_find_them_in_order() {
    let (connection, mut broker) = connection();
    let first = ask(&connection, "first").await;
    let second = ask(&connection, &"second ".repeat(100)).await;
    assert_eq!(read_request(&mut broker).await, (1, "first".to_owned()));
    assert_eq!(read_request(&mut broker).await, (2, "second ".repeat(100)));
    answer(&mut broker, 1, "one").await;
    answer(&mut broker, 2, "two").await;
    assert_eq!(&first.await.unwrap().unwrap()[4..], b"one");
    assert_eq!(&second.await.unwrap().unwrap()[4..], b"two");
}

#[tokio::test]
async fn without_an_answer_a_request_is_done_when_it_is_written() {
    let (connection, mut broker) = connection();
    let correlation = connection.next_correlation();
    let sent = connection.send(correlation, frame(correlation, "quiet"), false).await.unwrap();
    let asked = ask(&connection, "loud").await;
    assert_eq!(sent.await.unwrap().unwrap(), Bytes::new());
    assert_eq!(read_request(&mut broker).await.1, "quiet");
    assert_eq!(read_request(&mut broker).await.1, "loud");
    answer(&mut broker, 2, "heard").await;
    assert_eq!(&asked.await.unwrap().unwrap()[4..], b"heard");
}

#[tokio::test]
async fn what_left_may_have_been_done_what_did_not_has_not() {
    let (connection, mut broker) = connection();
    let asked = ask(&connection, "in flight").await;
    read_request(&mut broker).await;
    drop(broker);
    assert!(matches!(asked.await.unwrap(), Err(Lost::NoAnswer(_))));
    assert!(connection.is_closed());
    let correlation = connection.next_correlation();
    let refused = connection.send(correlation, frame(correlation, "late"), true).await;
    assert!(matches!(refused, Err(Lost::NotSent(_))));
}

#[tokio::test]
async fn a_wrong_answer_ends_the_connection() {
    for (correlation, length) in [(7, None), (1, Some(ANSWER_MAX + 1)), (1, Some(usize::MAX))] {
        let (connection, mut broker) = connection();
        let asked = ask(&connection, "question").await;
        read_request(&mut broker).await;
        match length {
            None => answer(&mut broker, correlation, "to somebody else").await,
            Some(length) => {
                let prefix = u32::try_from(length).unwrap_or(u32::MAX);
                broker.write_u32(prefix).await.unwrap();
            }
        }
        assert!(matches!(asked.await.unwrap(), Err(Lost::NoAnswer(_))));
        assert!(connection.is_closed());
    }
}

#[tokio::test]
async fn an_answer_to_no_question_ends_the_connection() {
    let (connection, mut broker) = connection();
    answer(&mut broker, 1, "unasked").await;
    assert_eq!(broker.read(&mut [0]).await.unwrap(), 0, "closed");
    assert!(connection.is_closed());
}

#[tokio::test]
async fn dropping_the_handle_closes_the_stream() {
    let (connection, mut broker) = connection();
    drop(connection);
    assert_eq!(broker.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn closing_loses_what_is_under_way() {
    let (connection, mut broker) = connection();
    let asked = ask(&connection, "question").await;
    read_request(&mut broker).await;
    connection.close("it took too long");
    assert!(matches!(asked.await.unwrap(), Err(Lost::NoAnswer(reason)) if reason.contains("long")));
}
