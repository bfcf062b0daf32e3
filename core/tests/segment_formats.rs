//! The storage engine's formats: their bytes as the first build wrote them, and what a reader says
//! of bytes that were torn, changed, left over or written to the wrong place.

use bytes::Bytes;
use quorate_core::batch::{Batch, BatchBuilder, Codec, Levels};
use quorate_core::id::{LeaderEpoch, Offset, PartitionId, TopicId};
use quorate_core::segment::checkpoint::{Cut, EnvelopeError, Mark, Marks, open, seal};
use quorate_core::segment::frame::{
    FRAME_FRONT_BYTES, FRAME_HEADER_BYTES, Frame, FrameFlaw, FrameHeader, frame_chunks,
};
use quorate_core::segment::index::{ENTRY_BYTES, INTERVAL_BYTES, Index};
use quorate_core::segment::journal::{
    Entry, FileHeader, Found, GroupBuilder, GroupFlaw, JournalId, PAGE_BYTES, find_group,
    later_group,
};
use quorate_core::segment::scan::{Depth, Scan, Step};
use quorate_core::time::Timestamp;

const PARTITION: PartitionId = PartitionId { topic: TopicId([7; 16]), index: 3 };
const OTHER: PartitionId = PartitionId { topic: TopicId([7; 16]), index: 4 };
const JOURNAL: JournalId = JournalId([9; 16]);

fn batch(base: i64, records: i64, value_bytes: usize) -> Batch {
    let mut builder = BatchBuilder::new(Codec::None);
    for record in 0..records {
        let value = vec![b'v'; value_bytes];
        builder.append(Timestamp(1000 + base + record), None, Some(&value), []);
    }
    let mut batch = builder.build();
    batch.stamp(Offset(base), LeaderEpoch(5));
    batch
}

fn concat(chunks: &[Bytes]) -> Vec<u8> {
    chunks.concat()
}

fn frame(base: i64, records: i64, value_bytes: usize) -> Vec<u8> {
    concat(&frame_chunks(PARTITION, &batch(base, records, value_bytes), Levels::DEFAULT))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_frame_has_the_bytes_of_the_first_build() {
    let bytes = frame(42, 1, 3);
    assert_eq!(
        hex(&bytes[..FRAME_HEADER_BYTES]),
        "5146524d0100001000000047\
         07070707070707070707070707070707\
         00000003000000000000002a0000000543e431d7"
    );
    let decoded = Frame::decode(&Bytes::from(bytes)).unwrap().unwrap();
    assert_eq!(decoded.header.partition, PARTITION);
    assert_eq!(decoded.header.levels, Levels::DEFAULT);
    assert_eq!(decoded.batch, batch(42, 1, 3));
}

#[test]
fn no_changed_byte_of_a_frame_goes_unnoticed() {
    let bytes = frame(42, 2, 9);
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 0x10;
        assert!(Frame::decode(&Bytes::from(changed)).is_err(), "byte {place}");
    }
}

fn walk(scan: &mut Scan, file: &Bytes) -> Step {
    loop {
        let position = usize::try_from(scan.position()).unwrap();
        // As a reader with a small window would: first too little, then what is asked for.
        let mut window = file.len().min(position + 10);
        loop {
            match scan.step(&file.slice(position.min(file.len())..window)) {
                Step::More { bytes } => {
                    assert!(position + bytes > window, "asks for what it has");
                    assert!(position + bytes <= file.len(), "asks for more than the file has");
                    window = position + bytes;
                }
                Step::Frame { .. } => break,
                end => return end,
            }
        }
    }
}

fn scan(file: &[u8], durable: u64, depth: Depth) -> (Step, u64, i64) {
    let mut scan = Scan::new(PARTITION, Offset(0), file.len() as u64, durable, depth);
    let step = walk(&mut scan, &Bytes::copy_from_slice(file));
    (step, scan.position(), scan.next_offset().0)
}

#[test]
fn a_scan_ends_where_nothing_was_written() {
    let mut file = [frame(0, 2, 10), frame(2, 1, 10)].concat();
    let written = file.len() as u64;
    for zeros in [0, 1, FRAME_HEADER_BYTES - 1, FRAME_HEADER_BYTES, 5000] {
        file.resize(written as usize + zeros, 0);
        for depth in [Depth::Headers, Depth::Records] {
            assert_eq!(scan(&file, written, depth), (Step::End, written, 3), "{zeros} zeros");
        }
    }
    let missing = Step::Rot { flaw: FrameFlaw::Missing };
    assert_eq!(scan(&file, written + 1, Depth::Records).0, missing);
}

#[test]
fn a_tail_cut_anywhere_is_torn_above_the_mark_and_rot_below() {
    let (first, second) = (frame(0, 2, 10), frame(2, 1, 300));
    let durable = first.len() as u64;
    // The last byte of a batch without record headers is a zero, which cannot be missed.
    for kept in 1..second.len() - 1 {
        let mut file = [&first[..], &second[..kept]].concat();
        for preallocated in [false, true] {
            if preallocated {
                file.resize(first.len() + second.len() + 4096, 0);
            }
            let (step, position, next) = scan(&file, durable, Depth::Records);
            let nothing = kept < FRAME_HEADER_BYTES && step == Step::End;
            assert!(matches!(step, Step::Torn { .. }) || nothing, "{kept}: {step:?}");
            assert_eq!((position, next), (durable, 2));
            let step = scan(&file, durable + 1, Depth::Records).0;
            assert!(matches!(step, Step::Rot { .. }), "{kept}: {step:?}");
        }
    }
}

#[test]
fn frames_of_other_places_are_told_apart() {
    let elsewhere = concat(&frame_chunks(OTHER, &batch(0, 1, 5), Levels::DEFAULT));
    let (step, ..) = scan(&elsewhere, 0, Depth::Headers);
    assert_eq!(step, Step::Torn { flaw: FrameFlaw::Partition { found: OTHER } });
    let (step, ..) = scan(&elsewhere, 1, Depth::Headers);
    assert_eq!(step, Step::Rot { flaw: FrameFlaw::Partition { found: OTHER } });

    let flaw = FrameFlaw::Offset { expected: Offset(2), found: Offset(3) };
    let gap = [frame(0, 2, 5), frame(3, 1, 5)].concat();
    assert_eq!(scan(&gap, 0, Depth::Headers).0, Step::Torn { flaw });

    let mut older = batch(2, 1, 5);
    older.stamp(Offset(2), LeaderEpoch(4));
    let older = concat(&frame_chunks(PARTITION, &older, Levels::DEFAULT));
    let flaw = FrameFlaw::LeaderEpoch { before: LeaderEpoch(5), found: LeaderEpoch(4) };
    let file = [frame(0, 2, 5), older].concat();
    assert_eq!(scan(&file, 0, Depth::Headers).0, Step::Torn { flaw });
}

#[test]
fn rotten_records_are_seen_by_a_deep_scan_only() {
    let mut file = frame(0, 1, 100);
    let last = file.len() - 1;
    file[last] ^= 1;
    assert_eq!(scan(&file, file.len() as u64, Depth::Headers).0, Step::End);
    let (step, position, _) = scan(&file, file.len() as u64, Depth::Records);
    assert!(matches!(step, Step::Rot { flaw: FrameFlaw::Batch(_) }), "{step:?}");
    assert_eq!(position, 0);
}

#[test]
fn a_frame_longer_than_its_file_is_not_waited_for() {
    let mut file = frame(0, 1, 300);
    file.truncate(FRAME_FRONT_BYTES + 20);
    for depth in [Depth::Headers, Depth::Records] {
        assert_eq!(scan(&file, 0, depth), (Step::Torn { flaw: FrameFlaw::Short }, 0, 0));
        let rot = Step::Rot { flaw: FrameFlaw::Short };
        assert_eq!(scan(&file, 1, depth).0, rot);
    }
}

#[test]
fn what_a_newer_build_wrote_is_never_cut() {
    let mut bytes = FrameHeader::of(PARTITION, &batch(0, 1, 5), Levels::DEFAULT).encode();
    bytes[4] = 2;
    let checksum = quorate_core::batch::checksum::checksum(&bytes[..44]);
    bytes[44..].copy_from_slice(&checksum.to_be_bytes());
    let (step, ..) = scan(&[&bytes[..], &[0; 100]].concat(), 0, Depth::Headers);
    assert_eq!(step, Step::Rot { flaw: FrameFlaw::Version { found: 2 } });
}

fn group(sequence: u64, batches: &[Batch]) -> Bytes {
    let mut group = GroupBuilder::new(JOURNAL, sequence);
    for batch in batches {
        let written = group.append(PARTITION, batch, Levels::DEFAULT);
        assert_eq!(concat(&written), concat(&frame_chunks(PARTITION, batch, Levels::DEFAULT)));
    }
    let announced = group.bytes();
    let bytes = Bytes::from(concat(&group.finish()));
    assert_eq!(bytes.len(), announced);
    assert_eq!(bytes.len() % PAGE_BYTES, 0);
    bytes
}

fn find(expected: u64, bytes: &Bytes) -> Found {
    find_group(JOURNAL, expected, bytes, bytes.len() as u64)
}

#[test]
fn a_group_comes_back_with_every_kind_of_entry() {
    let notes = [
        Entry::Roll { partition: PARTITION, base: Offset(4) },
        Entry::DeleteBefore { partition: OTHER, offset: Offset(2) },
        Entry::TruncateTo { partition: PARTITION, offset: Offset(1) },
        Entry::Remove { partition: OTHER },
    ];
    let mut builder = GroupBuilder::new(JOURNAL, 7);
    let mut expected = Vec::new();
    for (base, note) in (0..).zip(&notes) {
        let batch = batch(base, 1, 2000);
        let header = FrameHeader::of(PARTITION, &batch, Levels(1));
        builder.append(PARTITION, &batch, Levels(1));
        builder.note(note);
        expected.extend([Entry::Append(Frame { header, batch }), note.clone()]);
    }
    let bytes = Bytes::from(concat(&builder.finish()));
    let Found::Group(group) = find(7, &bytes) else { panic!("no group") };
    assert_eq!((group.sequence, group.bytes), (7, bytes.len()));
    assert_eq!(group.entries, expected);
    assert_eq!(
        hex(&bytes[..32]),
        "51475250010000000000000000000007000021c000000008a857373e76ea6085"
    );
}

#[test]
fn no_changed_byte_of_a_group_goes_unnoticed_but_padding() {
    let bytes = group(7, &[batch(0, 1, 5), batch(1, 1, 5)]);
    let body_end = 32 + 2 * (8 + FRAME_FRONT_BYTES + 12);
    for place in 0..bytes.len() {
        let mut changed = bytes.to_vec();
        changed[place] ^= 0x10;
        let found = find(7, &Bytes::from(changed));
        assert_eq!(matches!(found, Found::Group(_)), place >= body_end, "byte {place}: {found:?}");
    }
}

#[test]
fn a_short_window_is_told_how_much_is_needed() {
    let bytes = group(7, &[batch(0, 1, 10_000)]);
    let left = bytes.len() as u64;
    let Found::More { bytes: first } = find_group(JOURNAL, 7, &bytes.slice(..3), left) else {
        panic!("three bytes cannot be enough")
    };
    let window = bytes.slice(..first);
    let Found::More { bytes: second } = find_group(JOURNAL, 7, &window, left) else {
        panic!("the header cannot be enough")
    };
    assert!(matches!(find_group(JOURNAL, 7, &bytes.slice(..second), left), Found::Group(_)));
    let short = find_group(JOURNAL, 7, &bytes.slice(..first), second as u64 - 1);
    assert_eq!(short, Found::Nothing(GroupFlaw::Short), "the file ends before the group does");
}

#[test]
fn a_later_group_proves_that_a_broken_one_was_durable() {
    let first = group(7, &[batch(0, 1, 5000)]);
    let second = group(8, &[batch(1, 1, 5)]);
    let mut file = [&first[..], &second[..]].concat();
    file[200] ^= 1;
    let found = find(7, &Bytes::copy_from_slice(&file));
    assert!(matches!(found, Found::Nothing(_)), "{found:?}");
    assert_eq!(later_group(JOURNAL, 7, &file), Some(8), "rot");

    // The same bytes in the last place of the journal, or before groups of an earlier life.
    file[first.len()..].fill(0);
    assert_eq!(later_group(JOURNAL, 7, &file), None, "a torn tail");
    let stale = group(3, &[batch(9, 1, 5)]);
    file[first.len()..].copy_from_slice(&stale);
    assert_eq!(later_group(JOURNAL, 7, &file), None, "a torn tail");
    let flaw = GroupFlaw::Sequence { expected: 7, found: 3 };
    assert_eq!(find(7, &stale), Found::Nothing(flaw));
}

#[test]
fn a_record_that_imitates_a_group_proves_nothing() {
    let mut imitation = GroupBuilder::new(JournalId([0; 16]), 99);
    imitation.note(&Entry::Remove { partition: PARTITION });
    let imitation = concat(&imitation.finish());
    assert_eq!(later_group(JOURNAL, 7, &imitation), None);
    assert_eq!(later_group(JournalId([0; 16]), 7, &imitation), Some(99));
}

#[test]
fn a_journal_file_says_whose_it_is() {
    let page = FileHeader { first_sequence: 12 }.encode(JOURNAL);
    assert_eq!(page.len(), PAGE_BYTES);
    assert_eq!(FileHeader::decode(JOURNAL, &page), Ok(FileHeader { first_sequence: 12 }));
    assert_eq!(FileHeader::decode(JournalId([1; 16]), &page), Err(GroupFlaw::Stranger));
    assert_eq!(FileHeader::decode(JOURNAL, &[0; PAGE_BYTES]), Err(GroupFlaw::Magic));
    assert_eq!(FileHeader::decode(JOURNAL, &page[..20]), Err(GroupFlaw::Short));
    let mut changed = page.to_vec();
    changed[30] ^= 1;
    assert_eq!(FileHeader::decode(JOURNAL, &changed), Err(GroupFlaw::HeaderChecksum));
    assert_eq!(
        hex(&page[..36]),
        "514a4e4c0100000009090909090909090909090909090909000000000000000c309cd760"
    );
}

#[test]
fn an_index_leads_to_the_frame_or_shortly_before_it() {
    let mut index = Index::new(Offset(100));
    let mut frames = Vec::new();
    for number in 0..200 {
        let mut batch = batch(100 + 2 * number, 2, 100);
        // Time runs backwards now and then.
        let time = 1000 + 10 * (number - 7 * (number % 3));
        batch.set_log_append_time(Timestamp(time));
        let levels = Levels(1 << (number % 10));
        let frame_bytes = FrameHeader::of(PARTITION, &batch, levels).frame_bytes();
        frames.push((index.bytes(), *batch.header(), levels));
        index.push(batch.header(), levels, frame_bytes);
    }
    assert!(index.len() > 5 && index.len() as u64 <= index.bytes() / INTERVAL_BYTES + 1);
    for offset in 90..510 {
        let (position, first) = index.seek(Offset(offset));
        let (exact, ..) = *frames
            .iter()
            .rfind(|(_, header, _)| header.base_offset().0 <= offset.max(100))
            .unwrap();
        assert!(position <= exact && exact < position + INTERVAL_BYTES + 500, "offset {offset}");
        assert!(
            frames.iter().any(|(at, header, _)| (*at, header.base_offset()) == (position, first))
        );
    }
    for time in 900..3100 {
        let wanted = frames.iter().find(|(_, header, _)| header.max_timestamp().0 >= time);
        let found = index.seek_timestamp(Timestamp(time));
        assert_eq!(found.is_some(), wanted.is_some(), "time {time}");
        if let (Some((position, _)), Some((exact, ..))) = (found, wanted) {
            assert!(position <= *exact, "time {time}");
        }
    }
    assert_eq!(index.levels_from(Offset(0)), Levels(0x3ff));
    assert!(index.levels_from(Offset(498)).contains(9));

    let bytes = index.encode();
    assert_eq!(Index::decode(&bytes), Ok(index.clone()));
    assert_eq!(bytes.len(), 16 + 24 + index.len() * ENTRY_BYTES);
    let mut changed = bytes.to_vec();
    changed[60] ^= 1;
    assert_eq!(Index::decode(&changed.into()), Err(EnvelopeError::Checksum));
    let mut small = Index::new(Offset(5));
    small.push(batch(5, 1, 5).header(), Levels(1), 200);
    assert_eq!(
        hex(&small.encode()),
        "51494458000100000000002a38dcbc14000000000000000500000000000003ed00000000\
         000000c80000000000000000ffffffffffffffff0001"
    );
    let empty = Index::new(Offset(5));
    assert_eq!(Index::decode(&empty.encode()), Ok(empty.clone()));
    assert_eq!((empty.seek(Offset(9)), empty.seek_timestamp(Timestamp(0))), ((0, Offset(5)), None));
}

#[test]
fn marks_survive_and_an_envelope_is_checked() {
    let mark = |partition| Mark {
        partition,
        log_start: Offset(1),
        segment: Offset(10),
        segment_bytes: 500,
        end: Offset(12),
        from_sequence: 2,
        cut: Cut::Tail,
    };
    let marks = Marks { journal_sequence: 3, logs: vec![mark(PARTITION), mark(OTHER)] };
    assert_eq!(
        hex(&marks.encode()[..85]),
        "514d524b000200000000008221cdcef00000000000000003070707070707070707070707\
         07070707000000030000000000000001000000000000000a00000000000001f400000000\
         0000000c000000000000000201"
    );
    assert_eq!(Marks::decode(&marks.encode()), Ok(marks));
    let twice = Marks { journal_sequence: 3, logs: vec![mark(OTHER), mark(OTHER)] };
    assert_eq!(Marks::decode(&twice.encode()), Err(EnvelopeError::Body));

    let sealed = seal(*b"TEST", 2, b"body");
    assert_eq!(hex(&sealed), "5445535400020000000000042b1b942a626f6479");
    assert_eq!(open(*b"TEST", 2, &sealed), Ok((2, Bytes::from_static(b"body"))));
    assert_eq!(
        open(*b"TEST", 1, &sealed),
        Err(EnvelopeError::Newer { found: 2, known: 1 }),
        "a later build's file is told from a broken one"
    );
    assert_eq!(open(*b"ELSE", 2, &sealed), Err(EnvelopeError::Kind));
    for end in 0..sealed.len() {
        assert_eq!(open(*b"TEST", 2, &sealed.slice(..end)), Err(EnvelopeError::Short));
    }
    for place in 4..sealed.len() {
        let mut changed = sealed.to_vec();
        changed[place] ^= 1;
        assert!(open(*b"TEST", 2, &changed.into()).is_err(), "byte {place}");
    }
}

#[test]
fn an_index_file_grows_in_parts_and_is_cut_where_it_is_known() {
    let frames = |index: &mut Index, numbers: std::ops::Range<i64>| {
        for number in numbers {
            let mut batch = batch(2 * number, 2, 700);
            batch.set_log_append_time(Timestamp(1000 + number));
            let levels = Levels(1 << (number % 10));
            let frame_bytes = FrameHeader::of(PARTITION, &batch, levels).frame_bytes();
            index.push(batch.header(), levels, frame_bytes);
        }
    };
    let mut index = Index::new(Offset(0));
    let (mut file, mut known) = (Vec::new(), 0);
    let mut states: Vec<(i64, usize, Index)> = Vec::new();
    for end in [0, 1, 2, 9, 10, 50, 50, 90] {
        frames(&mut index, states.last().map_or(0, |(end, ..)| *end)..end);
        file.extend_from_slice(&index.encode_from(known));
        known = index.len();
        assert_eq!(Index::decode(&Bytes::from(file.clone())), Ok(index.clone()), "up to {end}");
        states.push((end, file.len(), index.clone()));
    }
    // A part that is torn, or of another life, is passed over with all behind it.
    for (_, len, state) in &states {
        let torn = Bytes::from(file[..(len + 20).min(file.len())].to_vec());
        assert_eq!(Index::decode(&torn), Ok(state.clone()));
        let mut stranger = Index::new(Offset(1));
        frames(&mut stranger, 5..7);
        let strange = [&file[..*len], &stranger.encode()].concat();
        if !state.is_empty() {
            assert_eq!(Index::decode(&strange.into()), Ok(state.clone()));
        }
    }
    // Cut, it goes on as the one that was never longer.
    for (end, _, state) in &states {
        let cut = index.clone().cut(state.bytes(), state.max_timestamp()).expect("indexed");
        let mut on = cut;
        frames(&mut on, *end..100);
        let mut whole = state.clone();
        frames(&mut whole, *end..100);
        for offset in 0..200 {
            assert_eq!(on.seek(Offset(offset)), whole.seek(Offset(offset)));
        }
        assert_eq!((on.len(), on.max_timestamp()), (whole.len(), whole.max_timestamp()));
    }
    assert_eq!(index.clone().cut(index.bytes() + 1, Timestamp(5000)), None);
    assert_eq!(index.clone().cut(index.bytes(), Timestamp(0)), None, "that cannot be");
}
