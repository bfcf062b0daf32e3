//! The quorum's log against a twin of the storage engine: whatever prefix of the writes a power
//! loss leaves, the fold over it is what had been persisted there.

use quorate_core::batch::Batch;
use quorate_core::id::{NodeId, Offset, WriteId};
use quorate_core::partition::Recovered as LogState;
use quorate_core::partition::interface::LogOp;
use quorate_core::quorum::configuration::Configuration;
use quorate_core::quorum::identity::{ClusterId, DirectoryId, Index, Member, Position, Term};
use quorate_core::quorum::interface::{HardState, Recovered, Snapshot};
use quorate_core::quorum::log::{Entry, Payload};
use quorate_core::quorum::recovered::LogOp as Operation;
use quorate_core::quorum_log::{Fold, LogWrite, QuorumLog};
use quorate_core::rng::{Ratio, Rng};
use quorate_core::time::Timestamp;

/// What a disk holds of the log.
#[derive(Clone, Default)]
struct Disk {
    log: LogState,
    batches: Vec<Batch>,
}

impl Disk {
    fn write(&mut self, write: &LogWrite) {
        match &write.op {
            LogOp::Append { batch, .. } => {
                let bytes = 48 + batch.len() as u64;
                self.log.apply(batch, bytes).expect("in order");
                self.batches.push(batch.clone());
            }
            LogOp::Roll { base, .. } => self.log.roll(*base).expect("in order"),
            LogOp::DeleteBefore { offset } => self.log.delete_before(*offset),
            other => panic!("not written here: {other:?}"),
        }
    }

    fn fold(&self) -> Recovered {
        let mut fold = Fold::default();
        for batch in &self.batches {
            if batch.header().base_offset() >= self.log.log_start {
                fold.push(batch).expect("it was written so");
            }
        }
        fold.finish()
    }
}

/// Operations as a voter may ask for them, one after another.
struct Voter {
    rng: Rng,
    state: Recovered,
}

impl Voter {
    fn member(&mut self) -> Member {
        let node = NodeId(i32::try_from(self.rng.below(3)).unwrap());
        Member { node, directory: DirectoryId([7; 16]) }
    }

    fn configuration(&mut self) -> Configuration {
        let voters = (0..3).map(|_| self.member()).collect();
        Configuration { cluster: ClusterId([1; 16]), voters, ..Configuration::default() }
    }

    fn snapshot(&mut self, position: Position) -> Snapshot {
        let known = self.state.log.configuration_at(position.index).cloned();
        let configuration = known.expect("the first entry is one");
        let data = vec![9; usize::try_from(self.rng.below(200)).unwrap()].into();
        Snapshot { position, configuration, data }
    }

    fn next(&mut self) -> Operation {
        let (hard, last) = (self.state.hard, self.state.log.last());
        let op = match self.rng.below(10) {
            // A cluster begins with who votes.
            _ if last == Position::ZERO => {
                let payload = Payload::Configuration(self.configuration());
                let entry = Entry { index: Index(1), term: hard.term, payload };
                Operation::Append { entries: vec![entry] }
            }
            0 | 1 => {
                let term = Term(hard.term.0 + self.rng.below(2));
                let vote = self.rng.happens(Ratio::new(1, 2)).then(|| self.member());
                Operation::HardState(HardState { cluster: hard.cluster, term, vote })
            }
            2 if last.index > self.state.snapshot.position.index => {
                let low = self.state.snapshot.position.index.0;
                let after = Index((low + self.rng.below(last.index.0 - low)).max(1));
                Operation::Truncate { after }
            }
            3 if last.index > self.state.snapshot.position.index => {
                let low = self.state.snapshot.position.index.0;
                let index = Index(low + 1 + self.rng.below(last.index.0 - low));
                let term = self.state.log.term(index).unwrap();
                let snapshot = self.snapshot(Position::new(index, term));
                let base = self.state.log.base().index.0;
                let forget = Index(base + self.rng.below(index.0 - base + 1));
                Operation::Snapshot { snapshot, forget }
            }
            4 if self.rng.happens(Ratio::new(1, 4)) && hard.term > Term::ZERO => {
                let index = Index(last.index.0 + 1 + self.rng.below(5));
                let snapshot = self.snapshot(Position::new(index, hard.term));
                Operation::Install { snapshot }
            }
            _ => {
                let count = 1 + self.rng.below(3);
                let entries = (1..=count).map(|step| Entry {
                    index: last.index.plus(step),
                    term: hard.term.max(last.term),
                    payload: match self.rng.below(5) {
                        0 => Payload::LeaderChange,
                        1 => Payload::Configuration(self.configuration()),
                        _ => Payload::Data(vec![step as u8; 20].into()),
                    },
                });
                Operation::Append { entries: entries.collect() }
            }
        };
        self.state.apply(&op);
        op
    }
}

/// What is left to know of a state: entries that a snapshot covers need not come back.
fn essence(state: &Recovered) -> (HardState, Snapshot, Vec<Entry>, Option<Configuration>) {
    let covered = state.snapshot.position.index;
    let behind = state.log.entries().filter(|entry| entry.index > covered).cloned().collect();
    (state.hard, state.snapshot.clone(), behind, state.log.configuration().cloned())
}

#[test]
fn every_prefix_of_the_writes_is_what_was_persisted_there() {
    let (mut sums, mut restarts) = (0, 0);
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut voter = Voter { rng: Rng::new(rng.u64()), state: Recovered::default() };
        let mut disk = Disk::default();
        let mut log = QuorumLog::new(LogState::default(), Recovered::default(), 2000);
        // States by the write of the quorum that made each; the writes that storage has not done.
        let (mut expected, mut pending) = (vec![Recovered::default()], Vec::new());
        let mut persisted = WriteId(0);
        for step in 1..=60_u64 {
            let op = voter.next();
            log.persist(Timestamp(0), WriteId(step), &op, &mut pending);
            expected.push(voter.state.clone());
            log.check();
            assert_eq!(essence(log.sum()), essence(&voter.state));
            let done = usize::try_from(rng.below(pending.len() as u64 + 1)).unwrap();
            for write in pending.drain(..done).collect::<Vec<_>>() {
                disk.write(&write);
                sums += u32::from(matches!(write.op, LogOp::DeleteBefore { .. }));
                persisted = log.on_written(write.write, &mut pending).unwrap_or(persisted);
                let at = usize::try_from(persisted.0).unwrap();
                assert_eq!(essence(&disk.fold()), essence(&expected[at]), "seed {seed}");
            }
            if rng.happens(Ratio::new(1, 20)) {
                // A power loss: what was not written is gone, and the voter begins from the disk.
                restarts += 1;
                pending.clear();
                let at = usize::try_from(persisted.0).unwrap();
                expected[usize::try_from(step).unwrap()] = expected[at].clone();
                persisted = WriteId(step);
                voter.state = disk.fold();
                log = QuorumLog::new(disk.log.clone(), disk.fold(), 2000);
            }
        }
        assert!(disk.log.segments.len() <= 2 + disk.batches.len(), "segments are closed");
    }
    assert!(sums > 100 && restarts > 100, "{sums} sums and {restarts} restarts prove little");
}

#[test]
fn a_sum_deletes_what_it_replaces_once_it_is_durable() {
    let mut log = QuorumLog::new(LogState::default(), Recovered::default(), 1 << 20);
    let mut writes = Vec::new();
    let hard = HardState { term: Term(1), ..HardState::default() };
    log.persist(Timestamp(0), WriteId(1), &Operation::HardState(hard), &mut writes);
    let position = Position::new(Index(5), Term(1));
    let snapshot = Snapshot { position, ..Snapshot::default() };
    log.persist(Timestamp(0), WriteId(2), &Operation::Install { snapshot }, &mut writes);
    let kinds = |writes: &[LogWrite]| {
        let kind = |write: &LogWrite| match write.op {
            LogOp::Append { .. } => "append",
            LogOp::Roll { .. } => "roll",
            LogOp::DeleteBefore { .. } => "delete",
            _ => "other",
        };
        writes.iter().map(kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&writes), ["append", "roll", "append"]);
    writes.clear();
    assert_eq!(log.on_written(WriteId(2), &mut writes), Some(WriteId(1)));
    assert_eq!(kinds(&writes), [""; 0], "the sum is not durable yet");
    assert_eq!(log.on_written(WriteId(3), &mut writes), Some(WriteId(2)));
    assert_eq!(kinds(&writes), ["delete"]);
    assert_eq!((log.log().log_start, log.log().segments.len()), (Offset(1), 1));
    assert_eq!(log.on_written(WriteId(4), &mut writes), None);
    assert_eq!(log.writes_in_flight(), 0);
}

#[test]
fn what_cannot_be_read_is_an_error() {
    use quorate_core::batch::{BatchBuilder, Codec};
    for value in [None, Some(&[][..]), Some(&[99, 0][..]), Some(&[1, 99][..])] {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.append(Timestamp(0), None, value, []);
        let error = Fold::default().push(&builder.build()).unwrap_err();
        assert!(error.to_string().starts_with("the operation at 0 cannot be read"), "{error}");
    }
}
