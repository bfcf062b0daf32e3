//! Removed files on a real file system.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::leaving::PART_BYTES;
use super::*;

const LARGE: u64 = 3 * PART_BYTES + 5;

/// A file of random-looking bytes: each 8 say where they stand.
fn write(path: &Path, bytes: u64) -> Vec<u8> {
    let content: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(u64::to_be_bytes).collect();
    let content = content[..bytes as usize].to_vec();
    fs::write(path, &content).expect("there is room");
    content
}

/// Until the file behind the descriptor has neither bytes nor blocks.
async fn freed(descriptor: &Descriptor) {
    let is_freed = || {
        let found = descriptor.metadata().expect("is open");
        found.nlink() == 0 && (found.len(), found.blocks()) == (0, 0)
    };
    let patience = tokio::time::timeout(Duration::from_secs(20), async {
        while !is_freed() {
            tokio::task::yield_now().await;
        }
    });
    patience.await.expect("freed in time");
}

/// Removes a file that nobody has open. When it is freed, so is what left before it.
async fn remove_another(disk: &OsDisk, directory: &Path) {
    let path = directory.join("another");
    write(&path, LARGE);
    let watched = Descriptor::open(&path).expect("is there");
    disk.remove(&path).await.expect("is there");
    assert!(!path.exists());
    freed(&watched).await;
}

#[tokio::test]
async fn a_removed_file_is_read_to_its_last_byte_and_freed_with_its_last_handle() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = OsDisk::start().expect("threads");
    let path = directory.path().join("file");
    let content = write(&path, LARGE);
    let watched = Descriptor::open(&path).expect("is there");
    let reader = disk.open(&path, Open::Read).await.expect("is there");
    let writer = disk.open(&path, Open::Write).await.expect("is there");
    disk.remove(&path).await.expect("is there");
    for handle in [reader, writer] {
        remove_another(&disk, directory.path()).await;
        assert_eq!(handle.read_at(0, content.len() + 1).await.expect("is open"), content);
    }
    freed(&watched).await;
}

#[tokio::test]
async fn another_name_keeps_all_of_a_removed_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = OsDisk::start().expect("threads");
    let [path, backup] = ["file", "backup"].map(|name| directory.path().join(name));
    let content = write(&path, LARGE);
    fs::hard_link(&path, &backup).expect("a second name");
    disk.remove(&path).await.expect("is there");
    remove_another(&disk, directory.path()).await;
    assert_eq!(fs::read(&backup).expect("is there"), content);
    disk.remove(&backup).await.expect("is there");
    assert!(!backup.exists());
}

#[tokio::test]
async fn a_small_file_is_not_cut() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = OsDisk::start().expect("threads");
    let path = directory.path().join("file");
    write(&path, PART_BYTES);
    let watched = Descriptor::open(&path).expect("is there");
    disk.remove(&path).await.expect("is there");
    remove_another(&disk, directory.path()).await;
    let found = watched.metadata().expect("is open");
    assert_eq!((found.nlink(), found.len()), (0, PART_BYTES));
}

#[tokio::test]
async fn what_is_absent_or_no_file_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = OsDisk::start().expect("threads");
    let refused = disk.remove(&directory.path().join("absent")).await.expect_err("is absent");
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let refused = disk.remove(directory.path()).await.expect_err("is a directory");
    assert_eq!(refused.kind(), ErrorKind::IsADirectory);
}

/// Who removes more than the thread takes waits for it; all are freed.
#[tokio::test]
async fn many_files_leave_one_after_the_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = OsDisk::start().expect("threads");
    let mut watched = Vec::new();
    for number in 0..40 {
        let path = directory.path().join(number.to_string());
        let descriptor = Descriptor::create_new(&path).expect("a file");
        descriptor.set_len(LARGE).expect("grows");
        watched.push(descriptor);
    }
    for number in 0..40 {
        disk.remove(&directory.path().join(number.to_string())).await.expect("is there");
    }
    for descriptor in watched {
        freed(&descriptor).await;
    }
}
