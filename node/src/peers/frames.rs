//! What the frames between nodes carry, and how it looks as bytes. Whatever arrives is checked to
//! its last byte before anybody acts on it.

use bytes::Bytes;
use quorate_core::batch::{Batch, Levels};
use quorate_core::codec;
use quorate_core::controller::interface::{Input, Outcome};
use quorate_core::id::PartitionId;
use quorate_core::partition::interface::Message;
use quorate_core::quorum;
use quorate_core::quorum::interface::Question;
use quorate_net::peer::frame::Frame;
use serde::{Deserialize, Serialize};

use crate::transactions::errand::{Done, Errand};

/// One message of the quorum. Control.
pub(super) const QUORUM: u8 = 2;
/// Messages between replicas, what one round of a shard has for one node. Data.
pub(super) const REPLICAS: u8 = 3;
/// A request for the controller. Control.
pub(super) const REQUEST: u8 = 4;
/// Its answer. Control, the other way.
pub(super) const REPLY: u8 = 5;
/// A question for whoever leads the quorum; the answer is a `REPLY`. Control.
pub(super) const QUESTION: u8 = 6;
/// What a coordinator of transactions and partitions have to say to one another; the answer is a
/// `REPLY`. Control.
pub(super) const ERRAND: u8 = 7;

/// Of all heads but the quorum's, which has its own.
const VERSION: u8 = 1;
/// Batches of several messages travel together up to so many bytes.
const TOGETHER_BYTES_MAX: usize = 1 << 20;
/// Messages in one frame.
const TOGETHER_MAX: usize = 4096;

/// A head and a tail, for `Link::send`.
pub(super) type Parts = (Vec<u8>, Vec<Bytes>);

/// A message between replicas, its batches named by their length in the tail and their levels.
#[derive(Serialize, Deserialize)]
struct Part {
    partition: PartitionId,
    message: Message,
    batches: Vec<(u32, u16)>,
}

/// What becomes of a request at another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Outcome(Outcome),
    Quorum(quorum::interface::Outcome),
    Errand(Done),
    /// The node does not lead, so nothing was done.
    NotHere,
}

#[derive(Serialize, Deserialize)]
enum Said {
    Outcome,
    NotHere,
    Quorum(quorum::interface::Outcome),
    Errand(Done),
}

/// The messages of one round to one node, in their order, in as few frames as bounds allow.
pub(super) fn replicas(messages: Vec<(PartitionId, Message)>) -> Vec<Parts> {
    let (mut frames, mut parts) = (Vec::new(), Vec::new());
    let (mut tail, mut tail_bytes) = (Vec::new(), 0);
    for (partition, message) in messages {
        let entries: &[(Batch, Levels)] = match &message {
            Message::Replicate(replicate) => &replicate.entries,
            Message::Follow(_)
            | Message::Lead(_)
            | Message::Replicated(_)
            | Message::Confirm(_)
            | Message::Confirmed(_) => &[],
        };
        let bytes: usize = entries.iter().map(|(batch, _)| batch.len()).sum();
        let is_full = tail_bytes + bytes > TOGETHER_BYTES_MAX || parts.len() == TOGETHER_MAX;
        if is_full && !parts.is_empty() {
            frames.push((codec::encode(VERSION, &parts), std::mem::take(&mut tail)));
            parts.clear();
            tail_bytes = 0;
        }
        let mut batches = Vec::with_capacity(entries.len());
        for (batch, levels) in entries {
            let length = u32::try_from(batch.len()).expect("batches are bounded");
            batches.push((length, levels.0));
            tail.extend(batch.chunks());
        }
        tail_bytes += bytes;
        parts.push(Part { partition, message, batches });
    }
    if !parts.is_empty() {
        frames.push((codec::encode(VERSION, &parts), tail));
    }
    frames
}

/// What `replicas` has put into a frame; the batches have passed `Batch::verify`.
pub(super) fn parse_replicas(frame: Frame) -> Result<Vec<(PartitionId, Message)>, String> {
    let parts: Vec<Part> = decode(&frame.head)?;
    let mut tail = frame.tail;
    let mut messages = Vec::with_capacity(parts.len());
    for Part { partition, mut message, batches } in parts {
        let mut entries = Vec::with_capacity(batches.len());
        for (length, levels) in batches {
            let length = length as usize;
            if length > tail.len() {
                return Err(format!(
                    "a batch of {length} bytes, of which {} are there",
                    tail.len()
                ));
            }
            let batch = Batch::parse(tail.split_to(length)).map_err(|error| error.to_string())?;
            batch.verify().map_err(|error| format!("a batch of {partition}: {error}"))?;
            entries.push((batch, Levels(levels)));
        }
        match &mut message {
            Message::Replicate(replicate) => replicate.entries = entries,
            _ if entries.is_empty() => {}
            _ => return Err("batches with a message that carries none".to_owned()),
        }
        messages.push((partition, message));
    }
    if tail.is_empty() { Ok(messages) } else { Err(format!("{} bytes too many", tail.len())) }
}

pub(super) fn parse_quorum(frame: &Frame) -> Result<quorum::interface::Message, String> {
    quorum::interface::Message::from_bytes(&frame.head).map_err(|error| error.to_string())
}

pub(super) fn request(id: u64, input: &Input) -> Parts {
    (codec::encode(VERSION, &id), vec![input.to_bytes().into()])
}

pub(super) fn parse_request(frame: &Frame) -> Result<(u64, Input), String> {
    let input = Input::from_bytes(&frame.tail).map_err(|error| error.to_string())?;
    Ok((decode(&frame.head)?, input))
}

pub(super) fn question(id: u64, question: Question) -> Parts {
    (codec::encode(VERSION, &(id, question)), Vec::new())
}

pub(super) fn parse_question(frame: &Frame) -> Result<(u64, Question), String> {
    decode(&frame.head)
}

pub(super) fn errand(id: u64, errand: &Errand) -> Parts {
    (codec::encode(VERSION, &(id, errand)), Vec::new())
}

pub(super) fn parse_errand(frame: &Frame) -> Result<(u64, Errand), String> {
    decode(&frame.head)
}

pub(super) fn reply(id: u64, reply: &Reply) -> Parts {
    let (said, tail) = match reply {
        Reply::Outcome(outcome) => (Said::Outcome, vec![outcome.to_bytes().into()]),
        Reply::NotHere => (Said::NotHere, Vec::new()),
        Reply::Quorum(outcome) => (Said::Quorum(outcome.clone()), Vec::new()),
        Reply::Errand(done) => (Said::Errand(done.clone()), Vec::new()),
    };
    (codec::encode(VERSION, &(id, said)), tail)
}

pub(super) fn parse_reply(frame: &Frame) -> Result<(u64, Reply), String> {
    let (id, said) = decode(&frame.head)?;
    let reply = match said {
        Said::Outcome => {
            Reply::Outcome(Outcome::from_bytes(&frame.tail).map_err(|error| error.to_string())?)
        }
        Said::NotHere => Reply::NotHere,
        Said::Quorum(outcome) => Reply::Quorum(outcome),
        Said::Errand(done) => Reply::Errand(done),
    };
    Ok((id, reply))
}

fn decode<T: serde::de::DeserializeOwned>(head: &[u8]) -> Result<T, String> {
    let decoded = codec::version(head, VERSION).and_then(|(_, body)| codec::decode(body));
    decoded.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use quorate_core::batch::{BatchBuilder, Codec};
    use quorate_core::id::{
        LeaderEpoch, NodeEpoch, Offset, ProducerEpoch, ProducerId, RequestId, TopicId,
    };
    use quorate_core::partition::interface::{Replicate, Replicated};
    use quorate_core::time::Timestamp;

    use super::*;
    use crate::transactions::errand::Join;

    fn batch(base: i64, bytes: usize) -> Batch {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.append(Timestamp(1), None, Some(&vec![7; bytes]), []);
        let mut batch = builder.build();
        batch.stamp(Offset(base), LeaderEpoch(3));
        batch
    }

    fn partition(index: i32) -> PartitionId {
        PartitionId { topic: TopicId([7; 16]), index }
    }

    fn replicate(batches: Vec<Batch>) -> Message {
        Message::Replicate(Replicate {
            leader_epoch: LeaderEpoch(3),
            base: Offset(5),
            entries: batches.into_iter().map(|batch| (batch, Levels::DEFAULT)).collect(),
            high_watermark: Offset(4),
            log_start: Offset(0),
            ask: true,
        })
    }

    fn replicated() -> Message {
        Message::Replicated(Replicated {
            leader_epoch: LeaderEpoch(3),
            node_epoch: NodeEpoch(9),
            end: Offset(7),
            high_watermark: Offset(4),
            log_start: Offset(0),
            resume: None,
        })
    }

    fn frame((head, tail): &Parts) -> Frame {
        Frame { kind: REPLICAS, head: head.clone().into(), tail: tail.concat().into() }
    }

    #[test]
    fn a_round_travels_in_few_frames_and_in_order() {
        let mut round = vec![(partition(0), replicated())];
        round.extend((1..5).map(|index| (partition(index), replicate(vec![batch(5, 400_000)]))));
        round.push((partition(5), replicate(vec![batch(5, 10), batch(6, 2 << 20)])));
        round.push((partition(6), replicated()));
        let frames = replicas(round.clone());
        assert_eq!(
            frames.len(),
            4,
            "two large ones each, the one that is larger than all, the rest"
        );
        let parsed: Vec<_> =
            frames.iter().flat_map(|parts| parse_replicas(frame(parts)).unwrap()).collect();
        assert_eq!(parsed, round);
        let many = (0..=TOGETHER_MAX).map(|_| (partition(0), replicated())).collect();
        let frames = replicas(many);
        let counts = frames.iter().map(|parts| parse_replicas(frame(parts)).unwrap().len());
        assert_eq!(counts.collect::<Vec<_>>(), [TOGETHER_MAX, 1]);
    }

    #[test]
    fn what_is_cut_or_lies_is_refused() {
        let parts = &replicas(vec![(partition(1), replicate(vec![batch(5, 20), batch(6, 30)]))])[0];
        let whole = frame(parts);
        assert!(parse_replicas(whole.clone()).is_ok());
        for cut in 0..whole.head.len() {
            let cut = Frame { head: whole.head.slice(..cut), ..whole.clone() };
            assert!(parse_replicas(cut).is_err());
        }
        for cut in 0..whole.tail.len() {
            let cut = Frame { tail: whole.tail.slice(..cut), ..whole.clone() };
            assert!(parse_replicas(cut).is_err());
        }
        let longer = Frame { tail: [&whole.tail[..], b"x"].concat().into(), ..whole.clone() };
        assert!(parse_replicas(longer).unwrap_err().contains("1 bytes too many"));
        let mut rotten = whole.tail.to_vec();
        *rotten.last_mut().unwrap() ^= 1;
        let rotten = Frame { tail: rotten.into(), ..whole.clone() };
        assert!(parse_replicas(rotten).unwrap_err().contains("a batch of"));
        let part = Part { partition: partition(1), message: replicated(), batches: vec![(0, 0)] };
        let lie = frame(&(codec::encode(VERSION, &vec![part]), vec![]));
        assert!(parse_replicas(lie).is_err());
    }

    #[test]
    fn requests_and_replies_are_what_was_sent() {
        let input = Input::DescribeNodes { request: RequestId(0) };
        let (head, tail) = request(77, &input);
        let sent = Frame { kind: REQUEST, head: head.into(), tail: tail.concat().into() };
        assert_eq!(parse_request(&sent), Ok((77, input)));
        assert!(parse_request(&Frame { tail: Bytes::new(), ..sent.clone() }).is_err());
        assert!(parse_reply(&sent).is_err());
        let transferred = quorum::interface::Outcome::Transferred;
        let joined = Reply::Errand(Done::Joined(Ok(vec![true, false])));
        let duty = Reply::Outcome(Outcome::DutySet);
        let all = [Reply::NotHere, duty, Reply::Quorum(transferred), joined];
        for said in all {
            let (head, tail) = reply(78, &said);
            let sent = Frame { kind: REPLY, head: head.into(), tail: tail.concat().into() };
            assert_eq!(parse_reply(&sent), Ok((78, said)));
        }
        let (head, _) = question(79, Question::Describe);
        let sent = Frame { kind: QUESTION, head: head.into(), tail: Bytes::new() };
        assert_eq!(parse_question(&sent), Ok((79, Question::Describe)));
        let asked = Errand::Join(Join {
            coordinator: partition(3),
            transactional_id: "x".to_owned(),
            producer: ProducerId(7),
            epoch: ProducerEpoch(1),
            partitions: vec![("orders".to_owned(), 4)],
            version: 2,
            add: true,
        });
        let (head, _) = errand(80, &asked);
        let sent = Frame { kind: ERRAND, head: head.into(), tail: Bytes::new() };
        assert_eq!(parse_errand(&sent), Ok((80, asked)));
        assert!(parse_errand(&Frame { head: sent.head.slice(..9), ..sent }).is_err());
    }
}
