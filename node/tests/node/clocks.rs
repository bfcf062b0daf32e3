//! A node whose wall clock is wrong when it starts deletes nothing by age.

use std::path::Path;
use std::sync::Arc;

use quorate_core::partition::interface::Isolation;
use quorate_core::time::{Instant, Now};
use quorate_net::client::Position;
use quorate_net::clock::{Clock, Sleep};
use quorate_node::clock::OsClock;
use quorate_node::disk::os::OsDisk;
use quorate_node::node::{RunningNode, run};
use quorate_node::storage::Believed;

use crate::house::{client, config, pause, produce, world};

const DAY: i64 = 86_400_000;

/// The machine's clock, but for the date.
struct Shifted {
    clock: OsClock,
    millis: i64,
}

impl Clock for Shifted {
    fn now(&self) -> Now {
        let mut now = self.clock.now();
        now.wall.0 += self.millis;
        now
    }

    fn sleep_until(&self, at: Instant) -> Sleep {
        self.clock.sleep_until(at)
    }
}

async fn node(directory: &Path, days: i64, settings: &[(&str, &str)]) -> RunningNode {
    let mut config = config(settings);
    config.node.data = directory.to_path_buf();
    let mut world = world(Arc::new(OsDisk::start().unwrap()), 1);
    world.clock = Arc::new(Shifted { clock: OsClock::new(), millis: days * DAY });
    run(config, world).await.unwrap()
}

/// Where the log begins once the node has had time to delete.
async fn start_of(node: &RunningNode, expected: i64) -> i64 {
    let client = client(node);
    let start = async || {
        let isolation = Isolation::ReadUncommitted;
        let listed = client.list_offsets("orders", &[0], Position::Beginning, isolation).await;
        listed.unwrap()[0].offset.unwrap().0
    };
    for _ in 0..40 {
        if start().await == expected {
            break;
        }
        pause(25).await;
    }
    start().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_wrong_at_a_start_deletes_nothing_until_a_human_vouches() {
    let directory = tempfile::tempdir().unwrap();
    let first = node(directory.path(), 0, &[]).await;
    produce(&client(&first), "orders", 0..10).await;
    assert_eq!(first.report().believed, Believed::Never);
    first.shutdown().await.unwrap();
    // Retention is seven days. A month, and then a year; twice, since a life that was not believed
    // must not be what the next one is compared with.
    for days in [30, 365, 365, -365] {
        let wrong = node(directory.path(), days, &[]).await;
        pause(100).await;
        assert!(matches!(wrong.report().believed, Believed::At(_)));
        assert_eq!(start_of(&wrong, 0).await, 0, "{days} days");
        wrong.shutdown().await.unwrap();
    }
    let vouched = node(directory.path(), 30, &[("clock.trusted", "true")]).await;
    assert_eq!(start_of(&vouched, 10).await, 10, "a human said that a month has passed");
    vouched.shutdown().await.unwrap();
    let next = node(directory.path(), 30, &[]).await;
    let Believed::At(believed) = next.report().believed else { panic!("nothing was written") };
    let expected = OsClock::new().now().wall.0 + 30 * DAY;
    assert!((expected - 3_600_000..=expected).contains(&believed.0), "the human is remembered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_may_be_away_for_as_long_as_it_is_allowed_to() {
    let directory = tempfile::tempdir().unwrap();
    let first = node(directory.path(), 0, &[]).await;
    produce(&client(&first), "orders", 0..10).await;
    first.shutdown().await.unwrap();
    let away = node(directory.path(), 30, &[("clock.away_max", "31d")]).await;
    assert_eq!(start_of(&away, 10).await, 10);
}
