//! Rot in records that nobody reads is found all the same.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_node::disk::os::OsDisk;
use quorate_node::node::run;

use crate::house::{client, config, pause, produce, until, world};
use crate::requests::create;

fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(segments(&path));
        } else if path.extension().is_some_and(|extension| extension == "segment") {
            found.push(path);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rot_that_nobody_reads_is_counted_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(&[("storage.scrub_pause", "20ms")]);
    config.node.data = directory.path().to_path_buf();
    let node = run(config, world(Arc::new(OsDisk::start().unwrap()), 1)).await.unwrap();
    let client = client(&node);
    for number in 0..20 {
        produce(&client, "orders", number * 10..number * 10 + 10).await;
    }
    pause(200).await;
    assert_eq!(node.metrics().rot_found.value(), 0);
    let orders = segments(directory.path());
    let largest = orders.iter().max_by_key(|path| {
        let bytes = std::fs::read(path).unwrap();
        bytes.iter().filter(|&&byte| byte != 0).count()
    });
    let file = std::fs::OpenOptions::new().read(true).write(true).open(largest.unwrap()).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 700).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], 700).unwrap();
    until(|| node.metrics().rot_found.value() > 0).await;
    pause(200).await;
    assert_eq!(node.metrics().rot_found.value(), 1, "it is told once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_read_on_behind_its_first_rot() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(&[("storage.scrub_pause", "20ms")]);
    config.node.data = directory.path().to_path_buf();
    let node = run(config, world(Arc::new(OsDisk::start().unwrap()), 1)).await.unwrap();
    let client = client(&node);
    create(&client, "orders", 1, &[("segment.bytes", "1024")]).await;
    for number in 0..40 {
        produce(&client, "orders", number * 10..number * 10 + 10).await;
    }
    let mut orders = segments(directory.path());
    orders.retain(|path| std::fs::metadata(path).unwrap().len() > 300);
    orders.sort();
    assert!(orders.len() > 4, "{orders:?}");
    for path in [&orders[1], &orders[3]] {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 200).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], 200).unwrap();
    }
    until(|| node.metrics().rot_found.value() >= 2).await;
    pause(200).await;
    assert_eq!(node.metrics().rot_found.value(), 2, "each is told once");
}
