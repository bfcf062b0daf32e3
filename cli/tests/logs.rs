//! `quorate log` on the files that a node left behind.

#[path = "started/node.rs"]
#[allow(dead_code)]
mod node;

use std::fs;
use std::path::{Path, PathBuf};

use node::{Node, run};
use quorate_core::batch::{BatchBuilder, Codec, Levels};
use quorate_core::id::{LeaderEpoch, NodeId, Offset, PartitionId, TopicId};
use quorate_core::segment::frame::frame_chunks;
use quorate_core::segment::orphan::{Orphan, OrphanName};
use quorate_core::time::Timestamp;
use serde_json::Value;

/// The segment with the most records in it, of all logs.
fn largest_segment(data: &Path) -> PathBuf {
    let logs = fs::read_dir(data.join("logs")).unwrap();
    let files = logs.flat_map(|log| fs::read_dir(log.unwrap().path()).unwrap());
    let segments = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "segment"));
    let batches = |path: &PathBuf| {
        let shown = run(&["log", "inspect", "--json", path.to_str().unwrap()]);
        let shown: Value = serde_json::from_str(&shown.out).unwrap_or(Value::Null);
        shown
            .as_array()
            .map_or(0, |batches| batches.iter().filter_map(|batch| batch["records"].as_i64()).sum())
    };
    segments.max_by_key(batches).expect("a segment")
}

/// The metadata log is told by operations, and knows the topics' records.
fn metadata_is_shown(data: &Path) {
    let log = data.join("logs/00000000-0000-0000-0000-000000000001-0");
    let segment = log.join("00000000000000000000.segment");
    let name = segment.to_str().unwrap();
    let shown = run(&["log", "inspect", name]);
    assert_eq!(shown.exit, 0, "{}", shown.err);
    for word in ["hard-state", "append", "a leader begins", "voters 1/", "TopicCreated"] {
        assert!(shown.out.contains(word), "{word} is not in\n{}", shown.out);
    }
    let shown = run(&["log", "inspect", name, "--records", "--json"]);
    let operations: Value = serde_json::from_str(&shown.out).unwrap();
    let operations = operations.as_array().unwrap();
    let created = operations.iter().find(|shown| shown["holds"]["TopicCreated"] == 1).unwrap();
    assert_eq!(created["operation"], "append");
    let records = created["records"].as_array().unwrap();
    assert!(records.iter().any(|record| record["TopicCreated"]["name"] == "orders"), "{created}");
}

#[test]
fn a_damaged_byte_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let node = Node::on_disk(data);
    let input: String = (0..1000).map(|number| format!("{number}:value {number}\n")).collect();
    node.ok_with(&input, &["produce", "orders", "-k", ":", "--priority", "7"]);
    assert_eq!(node.stop().0, 0);

    let path = data.to_str().unwrap();
    let verified = run(&["log", "verify", path]);
    assert_eq!(verified.exit, 0, "{}{}", verified.out, verified.err);
    assert!(verified.out.contains("whole") && verified.out.contains("orders"), "{}", verified.out);

    let segment = largest_segment(data);
    let name = segment.to_str().unwrap();
    let inspected = run(&["log", "inspect", name, "--records", "--json"]);
    assert_eq!(inspected.exit, 0, "{}", inspected.err);
    let batches: Value = serde_json::from_str(&inspected.out).unwrap();
    let first = &batches[0];
    assert_eq!((&first["base_offset"], &first["levels"][0]), (&Value::from(0), &Value::from(7)));
    assert_eq!(first["contents"][0]["payload"], "value 0");
    let table = run(&["log", "inspect", name]);
    assert!(table.out.starts_with("POSITION"), "{}", table.out);
    metadata_is_shown(data);

    // The last byte of the first batch, however many records found room in that.
    let last = usize::try_from(first["bytes"].as_u64().unwrap()).unwrap() - 1;
    let mut bytes = fs::read(&segment).unwrap();
    bytes[last] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let verified = run(&["log", "verify", path]);
    assert_eq!(verified.exit, 1, "{}", verified.out);
    assert!(verified.out.contains("damaged at byte 0"), "{}", verified.out);
    assert!(verified.err.contains("1 of"), "{}", verified.err);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn copies_are_the_same_as_far_as_both_go() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let produce = |data: &Path, values: std::ops::Range<u32>| {
        let node = Node::on_disk(data);
        let input: String = values.map(|number| format!("value {number}\n")).collect();
        node.ok_with(&input, &["produce", "orders"]);
        assert_eq!(node.stop().0, 0);
    };
    let verify = || {
        let (one, other) = (one.to_str().unwrap(), other.to_str().unwrap());
        let verified = run(&["log", "verify", "--json", one, other]);
        let report: Value = serde_json::from_str(&verified.out).unwrap();
        let compared = report["compared"].as_array().unwrap();
        let orders = compared.iter().find(|log| log["topic"] == "orders").cloned().unwrap();
        (verified.exit, orders)
    };
    produce(&one, 0..100);
    copy(&one, &other);
    let (exit, orders) = verify();
    assert_eq!((exit, &orders["to"], &orders["ahead"]), (0, &Value::from(100), &Value::from(0)));
    produce(&one, 100..110);
    let (exit, orders) = verify();
    assert_eq!((exit, &orders["to"], &orders["ahead"]), (0, &Value::from(100), &Value::from(10)));
    produce(&other, 200..205);
    let (exit, orders) = verify();
    assert_eq!((exit, &orders["same"]), (1, &Value::from(false)));
    assert!(orders["found"].as_str().unwrap().ends_with("differ at offset 100"), "{orders}");
}

/// A file of orphans as the storage engine writes it: a head, and frames.
fn set_aside(orphans: &Path) -> PathBuf {
    let partition = PartitionId { topic: TopicId([5; 16]), index: 2 };
    let mut frames = Vec::new();
    for (at, value) in [(7, "one"), (8, "other")] {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.append(Timestamp(1_000), None, Some(value.as_bytes()), []);
        let mut batch = builder.build();
        batch.stamp(Offset(at), LeaderEpoch(3));
        for chunk in frame_chunks(partition, &batch, Levels::DEFAULT) {
            frames.extend_from_slice(&chunk);
        }
    }
    let orphan = Orphan {
        name: OrphanName { partition, first: Offset(7), end: Offset(9), epoch: LeaderEpoch(3) },
        leader: NodeId(1),
        leader_epoch: LeaderEpoch(4),
        records: 2,
        bytes: frames.len() as u64,
        at: Timestamp(1_767_225_600_000),
    };
    fs::create_dir_all(orphans).unwrap();
    let path = orphans.join(orphan.name.to_string());
    fs::write(&path, [orphan.encode().to_vec(), frames].concat()).unwrap();
    path
}

#[test]
fn orphans_are_listed_and_their_records_shown() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let file = set_aside(&data.join("orphans"));
    let listed = run(&["log", "orphans", "--json", data.to_str().unwrap()]);
    assert_eq!(listed.exit, 0, "{}", listed.err);
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let first = &listed[0];
    assert_eq!((&first["first_offset"], &first["last_offset"]), (&7.into(), &8.into()));
    assert_eq!((&first["records"], &first["partition"]), (&2.into(), &2.into()));
    let table = run(&["log", "orphans", data.to_str().unwrap()]);
    assert!(table.out.starts_with("TOPIC"), "{}", table.out);

    let shown = run(&["log", "inspect", "--records", "--json", file.to_str().unwrap()]);
    assert_eq!(shown.exit, 0, "{}", shown.err);
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(shown[1]["contents"][0]["payload"], "other");
    let nowhere = run(&["log", "orphans", file.to_str().unwrap()]);
    assert_eq!(nowhere.exit, 2, "{}", nowhere.err);
}
