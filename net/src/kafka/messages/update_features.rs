//! Use other levels of features, or none. KIP-584.

use super::structs;
use crate::wire::Text;

structs! {
    UpdateFeaturesRequest {
        timeout_ms: i32 [0..] = 60_000;
        feature_updates: Vec<FeatureUpdateKey> [0..];
        validate_only: bool [1..];
    }

    FeatureUpdateKey {
        feature: Text [0..];
        /// 0: do not use it.
        max_version_level: i16 [0..];
        allow_downgrade: bool [0..=0];
        /// 1 a higher level, 2 a lower one, 3 a lower one even if something is lost.
        upgrade_type: i8 [1..] = 1;
    }

    UpdateFeaturesResponse {
        throttle_time_ms: i32 [0..];
        /// From version 2 on all are updated or none is, and this is of all.
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
        results: Vec<UpdatableFeatureResult> [0..=1];
    }

    UpdatableFeatureResult {
        feature: Text [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
    }
}
