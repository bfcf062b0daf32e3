//! Every limit and setting of a node in one place, each with its bounds, checked before anything
//! starts. A file in TOML, then the environment, then flags; the last word counts.

pub mod cluster;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cluster::{NodeRoles, Voters};
use quorate_core::group::interface::Migration;
use value::{Value, distance, time_within, within};

use crate::listener::permits::RequestPools;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// Describes sections of settings: name, type, default, and bounds where a value could break
/// something. Reading, checking and listing follow from it.
macro_rules! settings {
    ($(
        $(#[$section_doc:meta])*
        $section:ident: $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $key:ident: $type:ty = $default:expr $(, $check:ident $min:expr, $max:expr)?;
            )*
        }
    )*) => {
        /// All settings of one node.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct NodeConfig {
            $($(#[$section_doc])* pub $section: $name,)*
        }

        $(
            $(#[$section_doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $name {
                $($(#[doc = $doc])* pub $key: $type,)*
            }

            impl Default for $name {
                fn default() -> Self {
                    Self { $($key: $default,)* }
                }
            }
        )*

        impl NodeConfig {
            /// The names of all settings, `section.key`.
            pub const KEYS: &[&str] = &[
                $($(concat!(stringify!($section), ".", stringify!($key)),)*)*
            ];

            /// Sets one setting from text. The bounds are checked by `check`, since some depend on
            /// others.
            ///
            /// # Errors
            ///
            /// A sentence: there is no such setting, or the text is no value of it.
            pub fn set(&mut self, key: &str, text: &str) -> Result<(), ConfigError> {
                match key {
                    $($(concat!(stringify!($section), ".", stringify!($key)) => {
                        self.$section.$key = <$type as Value>::parse(text)
                            .map_err(|wanted| not_a_value(key, text, &wanted))?;
                    })*)*
                    _ => return Err(unknown(key)),
                }
                Ok(())
            }

            /// All settings as text that `set` takes.
            #[must_use]
            pub fn values(&self) -> BTreeMap<&'static str, String> {
                BTreeMap::from([$($((
                    concat!(stringify!($section), ".", stringify!($key)),
                    self.$section.$key.show(),
                ),)*)*])
            }

            /// What each setting means, in the words of the documentation above.
            #[must_use]
            pub fn descriptions() -> Vec<(&'static str, String)> {
                vec![$($((
                    concat!(stringify!($section), ".", stringify!($key)),
                    [$($doc,)*].concat().trim().to_owned(),
                ),)*)*]
            }

            fn check_bounds(&self) -> Result<(), String> {
                $($($($check(
                    concat!(stringify!($section), ".", stringify!($key)),
                    self.$section.$key, $min, $max,
                )?;)?)*)*
                Ok(())
            }
        }
    };
}

settings! {
    /// Who this node is and where its data lies.
    node: NodeSettings {
        /// The node's number in its cluster; Kafka's broker id.
        id: i32 = 1, within 0, i32::MAX;
        /// Where everything is kept.
        data: PathBuf = PathBuf::from("./quorate-data");
        /// `region/zone`; told to clients as the rack.
        rack: Option<String> = None;
        /// What the node does: `broker` (keeps partitions), `controller` (may vote on the
        /// metadata), or both.
        roles: NodeRoles = NodeRoles::BOTH;
        /// A node of a cluster that the controller has not heard of for so long is fenced, and its
        /// leaderships move (`broker.session.timeout.ms`). The same on all nodes.
        session_timeout: Duration = Duration::from_millis(1500), time_within
            Duration::from_millis(100), 10 * MINUTE;
        /// Shards, each a loop that owns its share of the partitions; 0 takes one a core, but
        /// leaves one core to the disk's threads.
        shards: usize = 0, within 0, 256;
        /// Inputs that may wait for one shard. When it is full, connections stop reading.
        shard_inbox_max: usize = 4096, within 16, 1 << 20;
        /// Inputs that a shard takes in one go.
        shard_batch_max: usize = 256, within 1, 1 << 16;
        /// How long a graceful stop may take. A third of it is for others to take over what this
        /// node leads; after half of the rest, connections are cut off that have not ended; after
        /// all of it, the node ends as if it were killed.
        stop_timeout: Duration = Duration::from_secs(30), time_within SECOND, HOUR;
    }

    /// The Kafka listener and its connections.
    network: NetworkSettings {
        /// Where to listen. Without TLS and SASL, loopback unless told otherwise.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 9092));
        /// `host:port` told to clients; empty takes the listening address.
        advertise: Option<String> = None;
        /// Where the other nodes of the cluster connect; empty: nowhere, this node is alone. Peers
        /// are trusted, so only a network of the cluster's own belongs here.
        peer_listen: Option<SocketAddr> = None;
        /// `host:port` told to the other nodes; empty takes what `quorum.voters` says of this node,
        /// then the listening address.
        peer_advertise: Option<String> = None;
        /// Connections at one time; one more is closed as it comes (`max.connections`).
        connections_max: usize = 12_000, within 1, 1_000_000;
        /// A connection without requests is closed after this time (`connections.max.idle.ms`).
        idle_timeout: Duration = Duration::from_secs(600), time_within SECOND, DAY;
        /// A request whose bytes stop coming half-way is given up after this time.
        receive_timeout: Duration = Duration::from_secs(30), time_within
            Duration::from_millis(100), HOUR;
        /// A client that does not read its answers is given up after this time.
        send_timeout: Duration = Duration::from_secs(30), time_within
            Duration::from_millis(100), HOUR;
        /// The same for a request that comes too slowly (below 64 KiB a second, or not as a whole
        /// at 1 MiB a second) while others wait for the memory that it holds.
        pressed_patience: Duration = Duration::from_millis(300), time_within
            Duration::from_millis(50), MINUTE;
        /// Requests of one connection that may wait for their answers.
        in_flight_max: usize = 64, within 1, 10_000;
    }

    /// Who votes on the metadata.
    quorum: QuorumSettings {
        /// The nodes that found the cluster and vote on its metadata, `id@host:port` each, where
        /// the port is their `network.peer_listen`; the same on all nodes. Empty: this node alone.
        voters: Voters = Voters::default();
        /// Voters that hear no leader for so long, and up to twice as long, elect another
        /// (`controller.quorum.election.timeout.ms`). The same on all nodes.
        election_timeout: Duration = Duration::from_millis(500), time_within
            Duration::from_millis(50), MINUTE;
        /// How often the leader says that it is there.
        heartbeat_interval: Duration = Duration::from_millis(100), time_within
            Duration::from_millis(5), 30 * SECOND;
        /// When the metadata log has grown by so much, a snapshot takes its place.
        snapshot_bytes: u64 = 4 << 20, within 1024, 1 << 30;
        /// Whether a voter that lost its disk votes again with another one, once it is registered
        /// with that and has the metadata. Otherwise a human says so (`cluster quorum --remove`,
        /// `--add`). The same on all nodes.
        restore_votes: bool = true;
        /// Entries in front of a snapshot that are kept for nodes that are a little behind; who
        /// needs older ones is sent the snapshot.
        entries_kept: u64 = 1000, within 0, 1 << 20;
    }

    /// What the links to other nodes cost.
    peer: PeerSettings {
        /// Connections from other nodes at one time; each node takes two.
        connections_max: usize = 512, within 4, 100_000;
        /// Bytes that wait for one link; what does not fit is lost, and sent again later. At least
        /// `request.bytes_max` and 1 MiB.
        queue_bytes_max: usize = 128 * MIB, within 2 * MIB, 4 * GIB;
        /// Messages that wait for one link.
        queue_frames_max: usize = 16 * 1024, within 16, 1 << 20;
        /// From dialling a node to the end of the greeting.
        connect_timeout: Duration = 3 * SECOND, time_within Duration::from_millis(50), MINUTE;
        /// The longest wait before a node is dialled again.
        backoff_max: Duration = SECOND, time_within Duration::from_millis(20), MINUTE;
        /// Something is sent at least so often.
        pulse_interval: Duration = Duration::from_millis(500), time_within
            Duration::from_millis(10), MINUTE;
        /// A connection on which nothing comes, or nothing is taken, for so long is given up.
        silence_max: Duration = 3 * SECOND, time_within Duration::from_millis(20), 10 * MINUTE;
        /// Requests for the controller that one node may have under way at another.
        requests_max: usize = 1000, within 1, 1 << 20;
        /// A replica that has not had all of its leader's log for so long is in sync no more
        /// (`replica.lag.time.max.ms`).
        lag_time_max: Duration = 10 * SECOND, time_within Duration::from_millis(100), HOUR;
        /// Reads at one time, a shard, for followers that are far behind.
        catch_up_max: usize = 2, within 1, 64;
    }

    /// When a node counts as lost.
    replace: ReplaceSettings {
        /// The replicas of a node that was away for so long are made anew on others
        /// (`quorate.replace.after`); 0: never.
        after: Duration = 10 * MINUTE, time_within Duration::ZERO, 365 * DAY;
    }

    /// What requests may cost.
    request: RequestSettings {
        /// Bytes of the longest request (`socket.request.max.bytes`).
        bytes_max: usize = 100 * MIB, within 64 * KIB, GIB;
        /// Bytes of all requests being read or worked on (`queued.max.request.bytes`).
        memory_max: usize = 256 * MIB, within 128 * KIB, 1 << 40;
        /// Bytes of all answers with records being read or sent. Of answers without records,
        /// clients that do not take them may hold a quarter more.
        answer_memory_max: usize = 256 * MIB, within MIB, 1 << 40;
        /// No request may take longer, whatever it waits for.
        time_max: Duration = Duration::from_secs(2400), time_within SECOND, DAY;
        /// The longest that Produce may wait for replicas (the client's timeout is cut to it).
        produce_wait_max: Duration = Duration::from_secs(300), time_within SECOND, HOUR;
        /// Bytes of one batch after decompression; more is refused as too large. Beyond 4 MiB, one
        /// batch at a time is decompressed.
        uncompressed_bytes_max: usize = 128 * MIB, within MIB, GIB;
    }

    /// Fetch.
    fetch: FetchSettings {
        /// Bytes of one answer (`fetch.max.bytes`); one batch goes out whatever its size.
        bytes_max: usize = 55 * MIB, within KIB, GIB;
        /// The longest that a fetch waits for data (the client's time is cut to it).
        wait_max: Duration = MINUTE, time_within Duration::ZERO, HOUR;
        /// Fetch sessions kept (`max.incremental.fetch.session.cache.slots`).
        sessions_max: usize = 1000, within 0, 1_000_000;
        /// Partitions in all fetch sessions together.
        session_partitions_max: usize = 1_000_000, within 0, 1 << 30;
        /// A session not used for this time may make room for a new one.
        session_idle: Duration = Duration::from_secs(120), time_within SECOND, DAY;
    }

    /// Topics that do not say otherwise.
    topic: TopicSettings {
        /// Partitions of a new topic (`num.partitions`).
        partitions: i32 = 1, within 1, 10_000;
        /// Replicas of a new topic (`default.replication.factor`); 0 takes min(3, nodes).
        replication: i16 = 0, within 0, 32;
        /// Whether asking for a topic creates it (`auto.create.topics.enable`).
        auto_create: bool = true;
        /// How often at most a log is searched for segments that are too old
        /// (`log.retention.check.interval.ms`).
        retention_check_interval: Duration = 5 * MINUTE, time_within
            Duration::from_millis(10), DAY;
        /// Partitions on this node, all topics together.
        partitions_max: usize = 100_000, within 1, 10_000_000;
    }

    /// Whether the wall clock is believed. While it is not, nothing is deleted by age.
    clock: ClockSettings {
        /// The longest that a stopped node may have been away. A start whose wall clock is further
        /// ahead, or behind, is not believed until the clock is put right or a human vouches.
        away_max: Duration = 3 * DAY, time_within Duration::ZERO, 3660 * DAY;
        /// A human vouches for the wall clock as it is at this start.
        trusted: bool = false;
    }

    /// Consumer groups.
    group: GroupSettings {
        /// The shortest session (`group.min.session.timeout.ms`).
        session_timeout_min: Duration = Duration::from_secs(6), time_within
            Duration::from_millis(1), DAY;
        /// The longest session (`group.max.session.timeout.ms`).
        session_timeout_max: Duration = Duration::from_secs(1800), time_within SECOND, DAY;
        /// How long the first member of an empty group waits for others
        /// (`group.initial.rebalance.delay.ms`).
        initial_rebalance_delay: Duration = Duration::from_secs(3), time_within
            Duration::ZERO, HOUR;
        /// Members of one group (`group.max.size`).
        members_max: usize = 1000, within 1, 1_000_000;
        /// Groups of one coordinator.
        groups_max: usize = 10_000, within 1, 10_000_000;
        /// Partitions of `__consumer_offsets` (`offsets.topic.num.partitions`).
        offsets_partitions: i32 = 50, within 1, 10_000;
        /// How long offsets of an empty group are kept (`offsets.retention.minutes`).
        offsets_retention: Duration = Duration::from_secs(7 * 86_400), time_within
            SECOND, Duration::from_secs(3650 * 86_400);
        /// How often it is looked for those whose time has passed
        /// (`offsets.retention.check.interval.ms`).
        offsets_check_interval: Duration = 10 * MINUTE, time_within
            Duration::from_millis(10), DAY;
        /// Bytes of the words that go with an offset (`offset.metadata.max.bytes`).
        offset_metadata_bytes_max: usize = 4 * KIB, within 0, MIB;
        /// Session of the members of consumer groups, KIP-848
        /// (`group.consumer.session.timeout.ms`).
        consumer_session_timeout: Duration = Duration::from_secs(45), time_within
            Duration::from_millis(10), DAY;
        /// How often they are to be heard (`group.consumer.heartbeat.interval.ms`); less than
        /// their session.
        consumer_heartbeat_interval: Duration = Duration::from_secs(5), time_within
            Duration::from_millis(1), HOUR;
        /// How often at most partitions are shared out anew
        /// (`group.consumer.assignment.interval.ms`).
        consumer_assignment_interval: Duration = SECOND, time_within Duration::ZERO, HOUR;
        /// Whether a group may change its protocol: bidirectional, upgrade, downgrade, disabled
        /// (`group.consumer.migration.policy`).
        consumer_migration: Migration = Migration::Bidirectional;
    }

    /// Transactions.
    transaction: TransactionSettings {
        /// Partitions of `__transaction_state` (`transaction.state.log.num.partitions`).
        state_partitions: i32 = 50, within 1, 10_000;
        /// The longest that a producer may ask for (`transaction.max.timeout.ms`).
        timeout_max: Duration = 15 * MINUTE, time_within Duration::from_millis(1),
            Duration::from_millis(i32::MAX as u64);
        /// How long an unused transactional id is kept (`transactional.id.expiration.ms`).
        id_expiration: Duration = Duration::from_secs(7 * 86_400), time_within
            MINUTE, Duration::from_secs(3650 * 86_400);
        /// Transactional ids of one coordinator.
        ids_max: usize = 100_000, within 1, 10_000_000;
        /// Partitions of one transaction.
        partitions_max: usize = 10_000, within 1, 1_000_000;
        /// How long a partition's leader is waited for that was sent a marker, before it is sent
        /// again.
        marker_patience: Duration = Duration::from_secs(30), time_within
            Duration::from_millis(1), HOUR;
    }

    /// Answers for monitors.
    http: HttpSettings {
        /// Where `/metrics`, `/lag` and the questions of health are answered, by HTTP; empty:
        /// nowhere. Usually 127.0.0.1:9644.
        listen: Option<SocketAddr> = None;
        /// How often it is measured how far the groups are behind that this node coordinates.
        lag_interval: Duration = 5 * SECOND, time_within Duration::from_millis(10), HOUR;
    }

    /// The storage engine.
    storage: StorageSettings {
        /// Nothing outlives the process: for a disk in memory, and for trying things out.
        ephemeral: bool = false;
        /// Writes that may wait for the disk; producers wait beyond.
        queue_max: usize = 4096, within 16, 1 << 20;
        /// Bytes of batches that wait for one sync together.
        group_bytes_max: u64 = 16 << 20, within 4 << 10, 1 << 30;
        /// Bytes of one journal file; all are made of this size and used again.
        journal_file_bytes: u64 = 64 << 20, within 64 << 10, 2 << 30;
        /// Journal files kept at most, before writes wait for segments to be synced.
        journal_files_max: usize = 8, within 2, 64;
        /// Bytes appended between two syncs of the segments, at least.
        checkpoint_bytes: u64 = 96 << 20, within 16 << 10, 64 << 30;
        /// Bytes written to one segment after which it is synced ahead of that.
        ahead_bytes: u64 = 1 << 20, within 4 << 10, 64 << 30;
        /// Bytes that stay free on the disk: below, producers are refused until there are more; 0
        /// does without.
        min_free: u64 = 64 << 20, within 0, 1 << 50;
        /// Segments held open.
        open_files_max: usize = 8192, within 4, 1_000_000;
        /// Bytes of records that were cut off a log and set aside; the oldest go beyond.
        orphan_bytes_max: u64 = 1 << 30, within 0, 1 << 50;
        /// How long they are kept.
        orphan_age_max: Duration = 30 * DAY, time_within MINUTE, 3660 * DAY;
        /// Bytes a second that compaction reads and writes at most
        /// (`log.cleaner.io.max.bytes.per.second`).
        clean_bytes_per_second: u64 = 64 << 20, within 1 << 10, 1 << 40;
        /// How often at most to look whether a log is to be compacted (`log.cleaner.backoff.ms`).
        clean_check_interval: Duration = Duration::from_secs(15), time_within
            Duration::from_millis(10), HOUR;
        /// Memory for the keys of the log that is being compacted
        /// (`log.cleaner.dedupe.buffer.size`); where they do not fit, it takes several passes.
        clean_key_bytes_max: usize = 128 << 20, within 1 << 10, 4 << 30;
        /// Bytes a second at which all logs are read through for rot; 0 does without.
        scrub_bytes_per_second: u64 = 2 << 20, within 0, 1 << 40;
        /// The pause before all logs are read through again.
        scrub_pause: Duration = HOUR, time_within Duration::from_millis(10), 366 * DAY;
    }
}

impl NodeConfig {
    /// Reads a TOML file's text: sections, and in them the settings above.
    ///
    /// # Errors
    ///
    /// A sentence that names the setting; for an unknown one, the nearest that exists.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| ConfigError(error.to_string()))?;
        for (section, settings) in table {
            let toml::Value::Table(settings) = settings else {
                return Err(unknown(&section));
            };
            for (key, value) in settings {
                let text = match value {
                    toml::Value::String(text) => text,
                    toml::Value::Integer(_) | toml::Value::Boolean(_) => value.to_string(),
                    toml::Value::Array(list) => joined(&list).ok_or_else(|| {
                        ConfigError(format!("{section}.{key} is a list of other things than texts"))
                    })?,
                    _ => {
                        return Err(ConfigError(format!(
                            "{section}.{key} is a text, a number, true, false or a list of texts"
                        )));
                    }
                };
                config.set(&format!("{section}.{key}"), &text)?;
            }
        }
        Ok(config)
    }

    /// Takes the variables `QUORATE_SECTION__KEY`; others that begin with `QUORATE_` and have no
    /// double underscore are somebody else's.
    ///
    /// # Errors
    ///
    /// As `set`.
    pub fn set_from_environment(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        // In order of their names, so that the error is the same each time.
        let sorted: BTreeMap<String, String> = variables.into_iter().collect();
        for (name, value) in sorted {
            let Some(rest) = name.strip_prefix("QUORATE_") else { continue };
            let Some((section, key)) = rest.split_once("__") else { continue };
            let key = format!("{}.{}", section.to_lowercase(), key.to_lowercase());
            self.set(&key, &value).map_err(|error| ConfigError(format!("{name}: {error}")))?;
        }
        Ok(())
    }

    /// Whether a node could run with these settings.
    ///
    /// # Errors
    ///
    /// A sentence that names the setting and its bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_bounds().map_err(ConfigError)?;
        let rules = [
            (
                self.request.bytes_max <= RequestPools::frame_bytes_max(self.request.memory_max),
                "request.bytes_max is more than three quarters of request.memory_max: the longest \
                 request could never be read",
            ),
            (
                self.group.session_timeout_min <= self.group.session_timeout_max,
                "group.session_timeout_min is more than group.session_timeout_max",
            ),
            (
                self.group.consumer_heartbeat_interval < self.group.consumer_session_timeout,
                "group.consumer_heartbeat_interval is not less than \
                 group.consumer_session_timeout",
            ),
            (!self.node.data.as_os_str().is_empty(), "node.data is empty"),
        ];
        for (holds, sentence) in rules {
            if !holds {
                return Err(ConfigError(sentence.to_owned()));
            }
        }
        let advertised = [
            ("network.advertise", &self.network.advertise),
            ("network.peer_advertise", &self.network.peer_advertise),
        ];
        for (key, address) in advertised {
            if let Some(address) = address {
                split_address(address)
                    .ok_or_else(|| ConfigError(format!("{key} is {address:?}, not host:port")))?;
            }
        }
        self.check_cluster().map_err(ConfigError)
    }
}

/// A list of texts as one text.
fn joined(list: &[toml::Value]) -> Option<String> {
    let texts: Option<Vec<&str>> = list.iter().map(toml::Value::as_str).collect();
    texts.map(|texts| texts.join(","))
}

/// `host:port`; an IPv6 host stands in brackets, which are taken off.
pub(crate) fn split_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|&port| port > 0)?;
    if host.is_empty() { None } else { Some((host, port)) }
}

fn not_a_value(key: &str, text: &str, wanted: &str) -> ConfigError {
    ConfigError(format!("{key} is {text:?}, not {wanted}"))
}

fn unknown(key: &str) -> ConfigError {
    let nearest = NodeConfig::KEYS.iter().min_by_key(|known| distance(known, key));
    let hint = nearest.map(|known| format!("; did you mean {known}?")).unwrap_or_default();
    ConfigError(format!("there is no setting {key}{hint}"))
}

/// Why a configuration is not one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_pass_their_own_check() {
        assert_eq!(NodeConfig::default().check(), Ok(()));
        assert!(NodeConfig::default().network.listen.ip().is_loopback());
        let mut again = NodeConfig::default();
        for (key, text) in NodeConfig::default().values() {
            again.set(key, &text).unwrap();
        }
        assert_eq!(again, NodeConfig::default(), "what is shown can be set");
        assert!(NodeConfig::descriptions().iter().all(|(_, words)| !words.is_empty()));
    }

    #[test]
    fn a_file_then_the_environment() {
        let file = "[network]\nlisten = \"0.0.0.0:19092\"\n[topic]\npartitions = 3\n\
                    [request]\nbytes_max = \"1MiB\"";
        let mut config = NodeConfig::from_toml(file).unwrap();
        assert_eq!(config.network.listen.port(), 19092);
        assert_eq!(config.request.bytes_max, MIB);
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        config
            .set_from_environment([
                variable("QUORATE_TOPIC__PARTITIONS", "7"),
                variable("QUORATE_LOG", "debug"),
                variable("HOME", "/"),
            ])
            .unwrap();
        assert_eq!(config.topic.partitions, 7);
        let wrong = config.set_from_environment([variable("QUORATE_TOPIC__PARTS", "7")]);
        assert!(wrong.unwrap_err().to_string().contains("topic.partitions"));
    }

    #[test]
    fn an_unknown_setting_names_its_nearest_neighbour() {
        let error = NodeConfig::from_toml("[network]\nlisen = \"x\"").unwrap_err().to_string();
        assert_eq!(error, "there is no setting network.lisen; did you mean network.listen?");
        let error = NodeConfig::from_toml("listen = \"x\"").unwrap_err().to_string();
        assert!(error.starts_with("there is no setting listen"), "{error}");
    }

    #[test]
    fn bounds_hold_at_their_edges() {
        let mut config = NodeConfig::default();
        config.set("topic.partitions", "0").unwrap();
        let error = config.check().unwrap_err().to_string();
        assert_eq!(error, "topic.partitions is 0; it may be 1 to 10000");
        config.set("topic.partitions", "10000").unwrap();
        assert_eq!(config.check(), Ok(()));
        config.set("request.memory_max", "1MiB").unwrap();
        assert!(config.check().unwrap_err().to_string().contains("request.memory_max"));
        let mut config = NodeConfig::default();
        config.set("network.advertise", "nowhere").unwrap();
        assert!(config.check().is_err());
        config.set("network.advertise", "[::1]:9092").unwrap();
        assert_eq!(config.check(), Ok(()));
        assert!(config.set("network.idle_timeout", "ten").unwrap_err().to_string().contains("7d"));
    }
}
