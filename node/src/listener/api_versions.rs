//! What a node says it speaks. Every client begins with this question.

use quorate_net::kafka::ApiKey;
use quorate_net::kafka::messages::ApiVersionsResponse;
use quorate_net::kafka::messages::api_versions::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};

/// Kafka's name for the protocol of consumer groups, KIP-848, and the level that we speak.
const GROUP_VERSION: (&str, i16) = ("group.version", 1);

/// Requests that we read but have no handler for: refused as if they were not in the table.
const UNSERVED: [ApiKey; 8] = [
    ApiKey::AddPartitionsToTxn,
    ApiKey::AddOffsetsToTxn,
    ApiKey::EndTxn,
    ApiKey::WriteTxnMarkers,
    ApiKey::TxnOffsetCommit,
    ApiKey::DescribeProducers,
    ApiKey::DescribeTransactions,
    ApiKey::ListTransactions,
];

/// Whether a request of this kind has a handler.
pub(crate) fn serves(key: ApiKey) -> bool {
    !UNSERVED.contains(&key)
}

/// What is served of the table. Clients pick the highest version that both sides know.
pub(crate) fn response() -> ApiVersionsResponse {
    let api_keys = ApiKey::ALL.iter().filter(|key| serves(**key)).map(|key| {
        let (min_version, max_version) = key.advertised();
        ApiVersion { api_key: key.code(), min_version, max_version }
    });
    let (name, level) = GROUP_VERSION;
    ApiVersionsResponse {
        api_keys: api_keys.collect(),
        supported_features: vec![SupportedFeatureKey {
            name: name.into(),
            // Clients below version 4 of this question do not bear a 0 here.
            min_version: level,
            max_version: level,
        }],
        finalized_features_epoch: 0,
        finalized_features: vec![FinalizedFeatureKey {
            name: name.into(),
            max_version_level: level,
            min_version_level: level,
        }],
        ..ApiVersionsResponse::default()
    }
}

/// Whether a client calls itself by a name that Kafka accepts: letters, digits, dashes and dots,
/// the first and last of them a letter or a digit. KIP-511.
pub(crate) fn is_software_name(name: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(name.chars().next())
        && edge(name.chars().next_back())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_handler_is_not_told() {
        let told = response().api_keys;
        assert!(told.iter().any(|row| row.api_key == ApiKey::InitProducerId.code()));
        for key in UNSERVED {
            assert!(told.iter().all(|row| row.api_key != key.code()), "{key}");
        }
        assert_eq!(told.len() + UNSERVED.len(), ApiKey::ALL.len());
    }

    #[test]
    fn names_are_as_in_kip_511() {
        for good in ["a", "librdkafka", "apache-kafka-java", "2.0.2-dev.1"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "ä", "a_b"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }
}
