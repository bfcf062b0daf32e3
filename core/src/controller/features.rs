//! Which features the cluster uses, and at which level, so that old and new builds can run side by
//! side. KIP-584.

use super::Controller;
use super::interface::{FeatureUpdate, Outcome, Problem, ProblemKind, RegisterNode};
use super::topics::problem;
use crate::metadata::{FeatureRange, Record};
use crate::reached;

impl Controller {
    pub(super) fn update_features(
        &mut self,
        updates: Vec<FeatureUpdate>,
        validate_only: bool,
    ) -> Outcome {
        let updated = updates.into_iter().map(|update| {
            let result = self.check_update(&update);
            let before = self.decided.features().get(&update.feature).copied().unwrap_or(0);
            if result.is_ok() && !validate_only && before != update.level {
                let (feature, level) = (update.feature.clone(), update.level);
                self.push(Record::FeatureLevelSet { feature, level });
            }
            (update.feature, result)
        });
        Outcome::FeaturesUpdated(updated.collect())
    }

    fn check_update(&self, update: &FeatureUpdate) -> Result<(), Problem> {
        let FeatureUpdate { feature, level, downgrade } = update;
        let before = self.decided.features().get(feature).copied().unwrap_or(0);
        if *level < 0 || feature.is_empty() || feature.len() > self.limits.name_bytes_max {
            return problem(ProblemKind::InvalidRequest, "a level counts from 0, and has a name");
        }
        if before == 0 && self.decided.features().len() >= self.limits.features_max {
            let message =
                format!("this cluster has room for {} features", self.limits.features_max);
            return problem(ProblemKind::Policy, message);
        }
        if *level < before && !downgrade {
            let message =
                format!("{feature} is at level {before}; going back to {level} must be asked for");
            return problem(ProblemKind::FeatureUpdateFailed, message);
        }
        for node in self.decided.nodes().filter(|_| *level > 0) {
            if let Err(message) = knows(&node.features, feature, *level) {
                reached!("feature-unknown");
                let message = format!("node {} {message}", node.id);
                return problem(ProblemKind::FeatureUpdateFailed, message);
            }
        }
        Ok(())
    }

    /// Whether a node knows what the cluster uses.
    pub(super) fn check_features(&self, register: &RegisterNode) -> Result<(), Problem> {
        for (feature, level) in self.decided.features() {
            if let Err(message) = knows(&register.features, feature, *level) {
                reached!("node-too-old-or-new");
                let message = format!(
                    "node {} {message}, which this cluster uses: another build is needed there",
                    register.node
                );
                return problem(ProblemKind::UnsupportedFeature, message);
            }
        }
        Ok(())
    }
}

fn knows(features: &[FeatureRange], feature: &str, level: i16) -> Result<(), String> {
    match features.iter().find(|known| known.name == *feature) {
        Some(known) if (known.min..=known.max).contains(&level) => Ok(()),
        Some(known) => {
            Err(format!("knows levels {} to {} of {feature}, not {level}", known.min, known.max))
        }
        None => Err(format!("does not know {feature} at level {level}")),
    }
}
