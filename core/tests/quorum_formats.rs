//! The bytes of the quorum's messages and of what its disk remembers: old builds wrote them, and
//! other builds read them.

use std::collections::BTreeSet;

use bytes::Bytes;
use quorate_core::codec::CodecError;
use quorate_core::id::NodeId;
use quorate_core::quorum::interface::{
    Body, ClusterId, Configuration, DirectoryId, Entry, HardState, Index, LogOp, Member, Message,
    Payload, Position, Snapshot, Term,
};

fn member(node: i32) -> Member {
    Member { node: NodeId(node), directory: DirectoryId([u8::try_from(node).unwrap(); 16]) }
}

fn configuration() -> Configuration {
    let voters = BTreeSet::from([member(1), member(2)]);
    Configuration { cluster: ClusterId([9; 16]), voters, ..Configuration::default() }
}

fn entries() -> Vec<Entry> {
    let payloads = [
        Payload::LeaderChange,
        Payload::Data(Bytes::from_static(b"abc")),
        Payload::Configuration(configuration()),
    ];
    let entry = |(index, payload)| Entry { index: Index(index), term: Term(3), payload };
    (7..).zip(payloads).map(entry).collect()
}

fn message(body: Body) -> Message {
    Message {
        cluster: Some(ClusterId([9; 16])),
        from: member(1),
        to: Some(DirectoryId([2; 16])),
        term: Term(3),
        body,
    }
}

fn position() -> Position {
    Position::new(Index(6), Term(2))
}

fn bodies() -> Vec<Body> {
    let voters = BTreeSet::from([NodeId(1), NodeId(2)]);
    vec![
        Body::Ask { voters: voters.clone() },
        Body::Answer { voters: voters.clone() },
        Body::PreVote { term: Term(4), last: position() },
        Body::PreVoteReply { term: Term(4), granted: true },
        Body::Vote { last: position(), transfer: false },
        Body::VoteReply { granted: true },
        Body::Append { previous: position(), entries: entries(), committed: Index(5), round: 1 },
        Body::Appended { through: Index(6), round: 1 },
        Body::Mismatch { previous: position(), hint: position(), round: 1 },
        Body::Heartbeat { committed: Index(5), round: 1 },
        Body::HeartbeatReply { round: 1, through: Index(5), received: Index(6) },
        Body::Chunk {
            position: position(),
            configuration: configuration(),
            bytes_total: 10,
            offset: 4,
            data: Bytes::from_static(b"piece"),
            round: 1,
        },
        Body::ChunkReply { position: position(), received: 9, round: 1 },
        Body::TimeoutNow,
        Body::Outdated,
        Body::Leads { leader: member(2), address: "host:9192".to_owned() },
        Body::Bare { voters },
        Body::Take { instead_of: Some(ClusterId([8; 16])), cluster: ClusterId([9; 16]) },
    ]
}

fn ops() -> Vec<LogOp> {
    let data = Bytes::from_static(b"state");
    let snapshot = Snapshot { position: position(), configuration: configuration(), data };
    vec![
        LogOp::HardState(HardState {
            cluster: Some(ClusterId([9; 16])),
            term: Term(3),
            vote: Some(member(2)),
        }),
        LogOp::Append { entries: entries() },
        LogOp::Truncate { after: Index(7) },
        LogOp::Snapshot { snapshot: snapshot.clone(), forget: Index(4) },
        LogOp::Install { snapshot },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `UPDATE_GOLDENFILES=1` writes them anew: only when a new version is meant.
#[test]
fn the_bytes_are_those_of_old_builds() {
    let mut text = String::new();
    for body in bodies() {
        let message = message(body);
        let bytes = message.to_bytes();
        assert!(message.is_sound(), "{message:?}");
        assert_eq!(Message::from_bytes(&bytes), Ok(message));
        text += &format!("message {}\n", hex(&bytes));
    }
    for op in ops() {
        let bytes = op.to_bytes();
        assert_eq!(LogOp::from_bytes(&bytes), Ok(op));
        text += &format!("op {}\n", hex(&bytes));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/quorum/formats_1");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

#[test]
fn what_is_cut_or_of_a_later_build_is_refused() {
    for body in bodies() {
        let mut bytes = message(body).to_bytes();
        for cut in 0..bytes.len() {
            assert!(Message::from_bytes(&bytes[..cut]).is_err(), "{cut}");
        }
        bytes[0] = 2;
        let later = CodecError::Version { found: 2, known: 1 };
        assert_eq!(Message::from_bytes(&bytes), Err(later));
    }
}

#[test]
fn messages_that_nobody_correct_sends_are_not_believed() {
    let append = |entries| {
        let previous = position();
        message(Body::Append { previous, entries, committed: Index(0), round: 0 }).is_sound()
    };
    let mut gap = entries();
    gap.remove(0);
    assert!(!append(gap));
    let mut from_the_future = entries();
    from_the_future[2].term = Term(4);
    assert!(!append(from_the_future));
    let mut falling = entries();
    falling[1].term = Term(2);
    assert!(!append(falling));
    let chunk = |offset, bytes_total| {
        let data = Bytes::from_static(b"piece");
        let (position, configuration, round) = (position(), configuration(), 0);
        message(Body::Chunk { position, configuration, bytes_total, offset, data, round })
            .is_sound()
    };
    assert!(chunk(5, 10) && !chunk(6, 10) && !chunk(u64::MAX, 10));
}
