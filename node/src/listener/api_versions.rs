//! What a node says it speaks. Every client begins with this question.

use std::collections::BTreeMap;

use quorate_core::metadata::FeatureRange;
use quorate_net::kafka::ApiKey;
use quorate_net::kafka::messages::ApiVersionsResponse;
use quorate_net::kafka::messages::api_versions::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};

/// The protocol of consumer groups (KIP-848), and that of transactions (KIP-890), in Kafka's names:
/// from which level to which we speak it.
const FEATURES: [(&str, i16, i16); 2] =
    [("group.version", 1, 1), (TRANSACTION_VERSION, 1, TRANSACTION_LEVEL)];
const TRANSACTION_VERSION: &str = "transaction.version";
/// Producers give every transaction an epoch of its own where this is the cluster's level. It is,
/// unless an operator has set another one.
const TRANSACTION_LEVEL: i16 = 2;

/// What this node can do, as it tells the controller.
pub(crate) fn features() -> Vec<FeatureRange> {
    let range = |(name, min, max): &(&str, i16, i16)| FeatureRange {
        name: (*name).to_owned(),
        min: *min,
        max: *max,
    };
    FEATURES.iter().map(range).collect()
}

/// What is served of the table. Clients pick the highest version that both sides know.
/// `levels` are those of the cluster, where they were set.
pub(crate) fn response(levels: &BTreeMap<String, i16>) -> ApiVersionsResponse {
    let api_keys = ApiKey::ALL.iter().map(|key| {
        let (min_version, max_version) = key.advertised();
        ApiVersion { api_key: key.code(), min_version, max_version }
    });
    ApiVersionsResponse {
        api_keys: api_keys.collect(),
        supported_features: FEATURES.map(supported).to_vec(),
        finalized_features_epoch: 0,
        finalized_features: FEATURES.map(|feature| finalized(feature, levels)).to_vec(),
        ..ApiVersionsResponse::default()
    }
}

/// Clients below version 4 of this question do not bear a 0 as the lowest level.
fn supported((name, min_version, max_version): (&str, i16, i16)) -> SupportedFeatureKey {
    SupportedFeatureKey { name: name.into(), min_version, max_version }
}

fn finalized(
    (name, min, max): (&str, i16, i16),
    levels: &BTreeMap<String, i16>,
) -> FinalizedFeatureKey {
    let level = levels.get(name).copied().filter(|level| (min..=max).contains(level));
    let level = level.unwrap_or(max);
    FinalizedFeatureKey { name: name.into(), max_version_level: level, min_version_level: level }
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
    fn names_are_as_in_kip_511() {
        for good in ["a", "librdkafka", "apache-kafka-java", "2.0.2-dev.1"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "ä", "a_b"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }
}
