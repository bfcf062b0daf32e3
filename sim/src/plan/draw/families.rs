//! Named families of plans: what the independent draws hardly ever put together, each in its share
//! of the seeds and from a stream of its own, so that no other draw moves.

use std::time::Duration;

use super::super::{Codecs, Mode, Plan};
use crate::chance::{Between, Chance, Ratio};
use crate::fault::bit_flip::{BitFlip, Files};
use crate::fault::crash::Crash;
use crate::fault::journal_gone::JournalGone;
use crate::fault::misdirected_write::{Lands, MisdirectedWrite};
use crate::fault::power_loss::{PowerLoss, Unsynced};
use crate::fault::restart::Restart;
use crate::fault::{Fault, Kind};

pub(super) fn add(seed: u64, plan: &mut Plan) {
    let chance = |family: &str| Chance::new(seed, &format!("family {family}"));
    rot(&mut chance("rot"), plan);
    retention(&mut chance("retention"), plan);
    last_sequences(&mut chance("last sequences"), plan);
    youth(&mut chance("youth"), plan);
    marks(&mut chance("marks"), plan);
    ageless(&mut chance("ageless"), plan);
    compaction(&mut chance("compaction"), plan);
    catalogue(&mut chance("catalogue"), plan);
    drawer(&mut chance("drawer"), plan);
    misdirected(&mut chance("misdirected"), plan);
}

fn tell(plan: &mut Plan, story: &str) {
    plan.story.push(format!("family: {story}"));
}

/// Durable bytes rot while much lies below the marks, and the node has to read them soon: whatever
/// it serves afterwards must be whole.
fn rot(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(12) {
        return;
    }
    tell(plan, "rot below the marks, then a crash");
    plan.mode = Mode::Unbudgeted;
    plan.node.checkpoint_bytes = 16 << 10;
    for _ in 0..1 + chance.below(2) {
        let millis = plan.run.safety.as_millis() as u64;
        let at = Duration::from_millis(millis / 4 + chance.below(millis / 2));
        let files = *chance.pick(&[Files::Newest, Files::Newest, Files::Newest, Files::Side]);
        plan.faults.push(Fault { at, node: 1, kind: Kind::BitFlip(BitFlip { files }) });
        let at = at + Duration::from_millis(1 + chance.below(50));
        let down = Duration::from_millis(chance.below(100));
        plan.faults.push(Fault { at, node: 1, kind: Kind::Crash(Crash { down }) });
    }
    plan.faults.sort_by_key(|fault| fault.at);
}

/// Logs are kept short by size, by age or both, and some records have no age.
fn retention(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(6) {
        return;
    }
    tell(plan, "retention");
    for topic in &mut plan.topics {
        topic.retention_bytes = *chance.pick(&[None, Some(2048), Some(16 << 10)]);
        let time = *chance.pick(&[None, Some(200), Some(2000)]);
        topic.retention_time = time.map(Duration::from_millis);
        topic.segment_bytes = topic.segment_bytes.min(*chance.pick(&[1024, 4096]));
    }
    let undated = [Ratio::NEVER, Ratio::NEVER, Ratio::new(1, 2), Ratio::new(1, 1)];
    plan.workload.undated = *chance.pick(&undated);
}

/// Few keys, small segments: most records have had their time when they are read.
fn compaction(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(5) {
        return;
    }
    tell(plan, "compaction");
    for topic in &mut plan.topics {
        topic.compact = !chance.one_in(4);
        topic.cleanable = *chance.pick(&[Ratio::NEVER, Ratio::new(1, 3), Ratio::new(1, 2)]);
        topic.segment_bytes = topic.segment_bytes.min(*chance.pick(&[1024, 4096]));
    }
}

/// Producers soon use up their sequence numbers, and go on with 0.
fn last_sequences(chance: &mut Chance, plan: &mut Plan) {
    if plan.workload.idempotent && chance.one_in(8) {
        tell(plan, "the last sequence numbers");
        plan.workload.first_sequence = i32::MAX - chance.below(200) as i32;
    }
}

/// Power fails while topics are made and producers get their ids: what was promised then must be
/// remembered.
fn youth(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(12) {
        return;
    }
    tell(plan, "power fails in the first moments");
    for _ in 0..1 + chance.below(4) {
        let at = Duration::from_micros(chance.below(120_000));
        let unsynced = *chance.pick(&[Unsynced::Lost, Unsynced::Torn, Unsynced::Prefix]);
        let down = Duration::from_millis(chance.below(20));
        plan.faults.push(Fault {
            at,
            node: 1,
            kind: Kind::PowerLoss(PowerLoss { unsynced, down }),
        });
    }
    plan.faults.sort_by_key(|fault| fault.at);
}

/// The marks rot, and some of what they vouch for with them: a node that took them for none would
/// take the rest for a torn tail. One that notices does not start, and the run is excused.
fn marks(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(24) {
        return;
    }
    tell(plan, "rot in the marks and below them, between a stop and a start");
    plan.mode = Mode::Unbudgeted;
    let millis = plan.run.safety.as_millis() as u64;
    let mut at = Duration::from_millis((millis / 4 + chance.below(millis / 2)).min(millis - 1700));
    // Nothing else comes between.
    plan.faults.retain(|fault| fault.at + Duration::from_secs(5) < at);
    let down = Duration::from_secs(2);
    plan.faults.push(Fault { at, node: 1, kind: Kind::Restart(Restart { down }) });
    at += Duration::from_millis(1500);
    for files in [Files::Newest, Files::Newest, Files::Newest, Files::Marks] {
        plan.faults.push(Fault { at, node: 1, kind: Kind::BitFlip(BitFlip { files }) });
        at += Duration::from_micros(1);
    }
    plan.faults.sort_by_key(|fault| fault.at);
}

/// Records without a date, where only age deletes: none may ever go.
fn ageless(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(24) {
        return;
    }
    tell(plan, "records without a date");
    for topic in &mut plan.topics {
        topic.retention_bytes = None;
        topic.retention_time = Some(Duration::from_millis(*chance.pick(&[200, 2000])));
        topic.segment_bytes = topic.segment_bytes.min(4096);
        topic.log_append_time = false;
    }
    plan.workload.undated = Ratio::new(1, 1);
    plan.workload.delete_records = Ratio::NEVER;
}

/// The metadata rots between a stop and a start: a node that took what it cannot read for nothing
/// would know no topic, and take their logs for left behind.
fn catalogue(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(24) {
        return;
    }
    tell(plan, "rot in the metadata, between a stop and a start");
    plan.mode = Mode::Unbudgeted;
    let millis = plan.run.safety.as_millis() as u64;
    let at = Duration::from_millis((millis / 4 + chance.below(millis / 2)).min(millis - 1700));
    let down = Duration::from_secs(2);
    plan.faults.push(Fault { at, node: 1, kind: Kind::Restart(Restart { down }) });
    for _ in 0..1 + chance.below(3) {
        let at = at + Duration::from_millis(1500);
        let kind = Kind::BitFlip(BitFlip { files: Files::Metadata });
        plan.faults.push(Fault { at, node: 1, kind });
    }
    plan.faults.sort_by_key(|fault| fault.at);
}

/// The journal is taken away when much stands there alone: behind one sync of the segments, and
/// before the next.
fn drawer(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(24) {
        return;
    }
    tell(plan, "the journal is gone after a power loss");
    plan.mode = Mode::Unbudgeted;
    plan.node.checkpoint_bytes = *chance.pick(&[16 << 10, 64 << 10]);
    let millis = plan.run.safety.as_millis() as u64;
    let at = Duration::from_millis(millis / 4 + chance.below(millis / 2));
    let down = Duration::from_millis(chance.below(100));
    plan.faults.push(Fault { at, node: 1, kind: Kind::JournalGone(JournalGone { down }) });
    plan.faults.sort_by_key(|fault| fault.at);
}

/// Writes land in other logs, whose records look the same: of one size, and young.
fn misdirected(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(24) {
        return;
    }
    tell(plan, "writes land in other files");
    plan.mode = Mode::Unbudgeted;
    for topic in &mut plan.topics {
        topic.segment_bytes = topic.segment_bytes.min(*chance.pick(&[1024, 4096]));
        topic.partitions = 3;
    }
    plan.workload.records = Between { low: 1, high: 1 };
    plan.workload.value_bytes = Between { low: 8, high: 8 };
    plan.workload.codec = Codecs::Plain;
    let millis = *chance.pick(&[100, 500, plan.run.safety.as_millis() as u64]);
    for _ in 0..3 + chance.below(6) {
        let at = Duration::from_millis(chance.below(millis));
        let (files, lands) = (Files::Segment, Lands::OtherFile);
        let kind = Kind::MisdirectedWrite(MisdirectedWrite { files, lands });
        plan.faults.push(Fault { at, node: 1, kind });
    }
    plan.faults.sort_by_key(|fault| fault.at);
}
