//! From exec to the first acknowledged record, measured the same way for every broker.

use std::io;
use std::time::Duration;

use crate::process::{Broker, Recipe};
use crate::stopwatch::{Stopwatch, retry, wall_milliseconds};
use crate::wire::{Connection, batch};

/// Starts the broker and writes one record as soon as it can be written.
///
/// # Errors
/// If the broker does not start, or acknowledges nothing within a minute.
pub fn first_acknowledgement(recipe: &Recipe) -> io::Result<(Broker, Duration)> {
    let limit = Duration::from_secs(60);
    let watch = Stopwatch::start();
    let broker = recipe.start(limit)?;
    let attempt = || -> io::Result<Result<i64, i16>> {
        let mut connection = Connection::open(recipe.address)?;
        connection.create_topic("first", 1, &[])?;
        connection.send_produce("first", 0, &batch(&[b"first".to_vec()], wall_milliseconds()))?;
        connection.receive_produced()
    };
    match retry(limit, || attempt().ok().and_then(Result::ok)) {
        Some(_) => Ok((broker, watch.elapsed())),
        None => Err(io::Error::other(format!("nothing acknowledged within {limit:?}"))),
    }
}
