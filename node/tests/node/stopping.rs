//! A graceful stop has its bound, whatever does not come to an end.

use std::future::Future;
use std::time::Duration;

use quorate_node::node::NodeError;

use crate::connections::{Raw, fetch_request, metadata, produce_request};
use crate::still::{Hand, StuckDisk, settle, still, still_on};

/// The outcome of `stopping`, and how long it took.
async fn within<T>(clock: &Hand, stopping: impl Future<Output = T>) -> (T, Duration) {
    tokio::pin!(stopping);
    let mut waited = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            done = &mut stopping => return (done, waited),
            () = settle() => {}
        }
        assert!(waited <= Duration::from_secs(60), "it does not stop");
        clock.advance(Duration::from_millis(500));
        waited += Duration::from_millis(500);
    }
}

#[tokio::test]
async fn who_does_not_read_is_cut_off_after_half_the_time() {
    let (node, network, clock) = still(&[("node.stop_timeout", "10s")]).await;
    let mut raw = Raw::over(network.open());
    raw.ask(9, &metadata("t")).await;
    raw.ask(9, &produce_request("t", -1, &vec![b'x'; 100_000])).await;
    raw.send(1, 11, &fetch_request("t", 0)).await;
    settle().await;
    let (stopped, waited) = within(&clock, node.shutdown()).await;
    stopped.unwrap();
    let expected = Duration::from_secs(5)..=Duration::from_secs(6);
    assert!(expected.contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn who_has_nothing_to_wait_for_stops_at_once() {
    let (node, network, clock) = still(&[("node.stop_timeout", "10s")]).await;
    let mut raw = Raw::over(network.open());
    raw.ask(9, &metadata("t")).await;
    for id in 0..20 {
        raw.send(id, 9, &produce_request("t", -1, b"a")).await;
    }
    // It waits for more, and would for a minute.
    let mut waiting = Raw::over(network.open());
    let mut request = fetch_request("t", 60_000);
    request.min_bytes = 1 << 20;
    waiting.send(1, 12, &request).await;
    settle().await;
    let (stopped, waited) = within(&clock, node.shutdown()).await;
    stopped.unwrap();
    assert_eq!(waited, Duration::ZERO);
}

#[tokio::test]
async fn a_disk_that_stands_still_does_not_hold_up_a_stop() {
    let disk = StuckDisk::new();
    let (node, network, clock) = still_on(disk.clone(), &[("node.stop_timeout", "10s")]).await;
    let mut raw = Raw::over(network.open());
    raw.ask(9, &metadata("t")).await;
    raw.ask(9, &produce_request("t", -1, b"a")).await;
    disk.stick();
    let (stopped, waited) = within(&clock, node.shutdown()).await;
    assert!(matches!(stopped, Err(NodeError::SlowStop(_))), "{stopped:?}");
    assert_eq!(waited, Duration::from_secs(10));
}
