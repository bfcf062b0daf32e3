//! A connection's bytes in pieces of any size: the same frames come out, within the limits.

use bytes::{BufMut, Bytes};
use proptest::prelude::*;
use quorate_net::connection::{FrameError, Frames, Wants};
use quorate_net::kafka::frame::{RequestError, decode_request, encode_response};
use quorate_net::kafka::header::RequestHeader;
use quorate_net::kafka::{ApiKey, Request, Response};
use quorate_net::wire::sample::Source;
use quorate_net::wire::{Text, Writer};

const SOURCE: [u8; 64] = [3; 64];

/// One request of each kind in its newest version, as a client sends them.
fn requests() -> Vec<(RequestHeader, Request, Bytes)> {
    let all = ApiKey::ALL.iter().enumerate();
    all.map(|(place, key)| {
        let version = *key.versions().end();
        let header = RequestHeader {
            key: *key,
            version,
            correlation_id: place as i32,
            client_id: Some(Text::from_static("fragments")),
        };
        let body = Request::sample(*key, &mut Source::new(&SOURCE), version);
        let mut writer = Writer::framed();
        header.encode(&mut writer);
        body.encode(&mut writer, version);
        let bytes = writer.finish().expect("samples are short").concat();
        (header, body, bytes.into())
    })
    .collect()
}

/// Feeds `stream` in pieces of `size` bytes and decodes what comes out.
fn received(stream: &[u8], size: usize) -> Vec<(RequestHeader, Request)> {
    let mut frames = Frames::new(64 * 1024);
    let mut found = Vec::new();
    for piece in stream.chunks(size) {
        let room = frames.room().expect("no frame is too long");
        room.put_slice(piece);
        while let Some(frame) = frames.next_frame().expect("no frame is too long") {
            found.push(decode_request(&frame).expect("what we write we read"));
        }
    }
    assert!(frames.at_boundary());
    found
}

#[test]
fn fragments_of_any_size_give_the_same_requests() {
    let sent = requests();
    let stream: Vec<u8> = sent.iter().flat_map(|(_, _, bytes)| bytes.to_vec()).collect();
    let sent: Vec<_> = sent.into_iter().map(|(header, body, _)| (header, body)).collect();
    for size in [1, 2, 3, 5, 7, 64, 1000, stream.len()] {
        assert_eq!(received(&stream, size), sent, "in pieces of {size}");
    }
}

#[test]
fn responses_come_back_with_their_correlation_id() {
    for key in ApiKey::ALL {
        for version in key.versions() {
            let body = Response::sample(*key, &mut Source::new(&SOURCE), version);
            let chunks = encode_response(7, version, &body).expect("samples are short").chunks;
            let bytes = chunks.concat();
            let mut frames = Frames::new(64 * 1024);
            frames.receive(&bytes);
            let frame = frames.next_frame().expect("short").expect("whole");
            assert_eq!(i32::from_be_bytes(frame[..4].try_into().expect("four bytes")), 7);
            assert!(frames.at_boundary());
        }
    }
}

#[test]
fn a_frame_is_announced_before_it_is_whole() {
    let mut frames = Frames::new(10);
    assert_eq!(frames.wants(), Ok(Wants::Length));
    frames.receive(&[0, 0, 0]);
    assert_eq!(frames.wants(), Ok(Wants::Length));
    frames.receive(&[10, 1]);
    assert_eq!(frames.wants(), Ok(Wants::Body { length: 10, missing: 9 }));
    frames.receive(&[2; 9]);
    assert_eq!(frames.wants(), Ok(Wants::Frame));
    let frame = frames.next_frame().expect("not too long").expect("whole");
    assert_eq!(frame[..], [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(frames.next_frame(), Ok(None));
}

#[test]
fn lengths_are_refused_before_any_room_is_made() {
    for (length, error) in [
        (11, FrameError::TooLong { length: 11, max: 10 }),
        (i32::MAX, FrameError::TooLong { length: 0x7fff_ffff, max: 10 }),
        (-1, FrameError::Negative { length: -1 }),
        (i32::MIN, FrameError::Negative { length: i32::MIN }),
    ] {
        let mut frames = Frames::new(10);
        frames.receive(&length.to_be_bytes());
        assert_eq!(frames.wants(), Err(error));
        assert_eq!(frames.next_frame(), Err(error));
        assert_eq!(frames.room().map(|_| ()), Err(error));
    }
}

#[test]
fn memory_follows_what_was_received_not_what_was_announced() {
    let mut frames = Frames::new(100 << 20);
    frames.receive(&(100i32 << 20).to_be_bytes());
    assert!(frames.room().expect("allowed").capacity() < 256 * 1024);
    frames.receive(&vec![0; 1 << 20]);
    assert!(frames.room().expect("allowed").capacity() <= 4 << 20);
}

#[test]
fn an_empty_frame_is_a_frame() {
    let mut frames = Frames::new(10);
    frames.receive(&[0, 0, 0, 0]);
    assert_eq!(frames.next_frame(), Ok(Some(Bytes::new())));
    assert!(matches!(
        decode_request(&Bytes::new()),
        Err(RequestError::Malformed { prefix: None, .. })
    ));
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_end_in_frames_or_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        size in 1usize..50,
    ) {
        let mut frames = Frames::new(200);
        let mut given = 0;
        'stream: for piece in bytes.chunks(size) {
            frames.receive(piece);
            loop {
                match frames.next_frame() {
                    Ok(Some(frame)) => given += 4 + frame.len(),
                    Ok(None) => break,
                    Err(_) => break 'stream,
                }
            }
            prop_assert!(frames.buffered() <= 204 + size);
        }
        prop_assert!(given + frames.buffered() <= bytes.len());
    }
}
