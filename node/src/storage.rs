//! All logs of a node: one journal that makes appends durable, a segment file per stretch of each
//! log, one writer task, and readers that never wait for it.
//!
//! ```text
//! Storage::open(disk: Arc<dyn Disk>, config: StorageConfig, completions: Arc<dyn Completions>)
//!     -> Result<(Storage, OpenReport), StorageError>
//! storage.open_log(partition)   -> Result<(Recovered, LogReader), LogError>   (async; once a log)
//! storage.writer()              -> WriteQueue
//! storage.remove_log(partition) -> Result<(), StorageError>                   (async)
//! storage.close()               -> Result<(), StorageError>  (async; after the Checkpoint ops)
//! reader.read(from, up_to, bytes_max, at_least_one) -> Result<Vec<Batch>, ReadError>  (async)
//! reader.offset_for_timestamp(timestamp, start, end)
//!     -> Result<Option<(Offset, Timestamp, LeaderEpoch)>, ReadError>          (async)
//! reader.bytes() -> u64
//! ```

pub mod config;
pub mod error;
pub mod queue;

pub use self::config::{Identity, StorageConfig};
pub use self::error::{LogError, ReadError, Rot, StorageError};
pub use self::queue::{Completions, WriteQueue, WriteRequest};
