//! How many Pods a rollout may have too many, and how many may be unavailable.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::spec;

/// The replicas and limits of a Deployment, in Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) replicas: i32,
    pub(super) surge: i32,
    pub(super) unavailable: i32,
    pub(super) is_recreate: bool,
}

impl Limits {
    pub(super) fn of(deployment: &Deployment) -> Self {
        let Some(spec) = spec(deployment) else {
            return Self { replicas: 0, surge: 0, unavailable: 0, is_recreate: false };
        };
        let replicas = spec.replicas.unwrap_or(1);
        let is_recreate = strategy(spec) == "Recreate";
        if is_recreate {
            return Self { replicas, surge: 0, unavailable: 0, is_recreate };
        }
        let rolling = spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        let surge = resolve(surge, replicas, true);
        let mut unavailable = resolve(unavailable, replicas, false);
        // Nothing could move if both were zero.
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Self { replicas, surge, unavailable: unavailable.min(replicas), is_recreate }
    }

    /// The most Pods that there may be during a rollout.
    pub(super) fn most(&self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }

    /// The fewest Pods that must be available during a rollout.
    pub(super) fn fewest(&self) -> i32 {
        self.replicas - self.unavailable
    }
}

fn strategy(spec: &DeploymentSpec) -> &str {
    spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate")
}

/// A number, or a percentage of `total`; 25 % if there is none.
fn resolve(value: Option<&IntOrString>, total: i32, rounds_up: bool) -> i32 {
    let percentage = match value {
        Some(IntOrString::Int(number)) => return (*number).max(0),
        Some(IntOrString::String(text)) => {
            text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok()).unwrap_or_default()
        }
        None => 25,
    };
    let hundredths = i64::from(total) * percentage.max(0);
    let pods = if rounds_up { (hundredths + 99) / 100 } else { hundredths / 100 };
    i32::try_from(pods).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn limits(replicas: i32, rolling: Value) -> (i32, i32) {
        let spec = json!({"replicas": replicas, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}});
        let limits = Limits::of(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap());
        (limits.surge, limits.unavailable)
    }

    #[test]
    fn percentages_of_surge_are_rounded_up_and_those_of_unavailable_down() {
        assert_eq!(limits(10, json!({"maxSurge": "25%", "maxUnavailable": "25%"})), (3, 2));
        assert_eq!(limits(3, json!({"maxSurge": 1, "maxUnavailable": 0})), (1, 0));
        assert_eq!(limits(1, json!({"maxSurge": "0%", "maxUnavailable": "0%"})), (0, 1));
        assert_eq!(limits(2, json!({"maxSurge": 0, "maxUnavailable": 9})), (0, 2));
        assert_eq!(limits(0, json!({"maxSurge": 0, "maxUnavailable": 9})), (0, 0));
    }
}
