//! Which versions a broker speaks (KIP-35), and its features (KIP-584).

use super::structs;
use crate::wire::Text;

structs! {
    ApiVersionsRequest {
        /// Letters, digits, dots and dashes, not at the ends; anything else is INVALID_REQUEST.
        /// KIP-511.
        client_software_name: Text [3..];
        client_software_version: Text [3..];
    }

    ApiVersionsResponse {
        error_code: i16 [0..];
        /// With UNSUPPORTED_VERSION it must have the row of ApiVersions itself.
        api_keys: Vec<ApiVersion> [0..];
        throttle_time_ms: i32 [1..];
        /// Below version 4, none whose lowest version is 0.
        supported_features: Vec<SupportedFeatureKey> [3..] tag 0;
        /// Rises with every change of the features; −1 for unknown.
        finalized_features_epoch: i64 [3..] tag 1 = -1;
        finalized_features: Vec<FinalizedFeatureKey> [3..] tag 2;
        zk_migration_ready: bool [3..] tag 3;
    }

    ApiVersion {
        api_key: i16 [0..];
        min_version: i16 [0..];
        max_version: i16 [0..];
    }

    SupportedFeatureKey {
        name: Text [3..];
        min_version: i16 [3..];
        max_version: i16 [3..];
    }

    FinalizedFeatureKey {
        name: Text [3..];
        max_version_level: i16 [3..];
        min_version_level: i16 [3..];
    }
}
