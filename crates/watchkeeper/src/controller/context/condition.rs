//! Conditions of a status, set as Kubernetes users expect them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::Context;
use crate::object::Kind;

impl<K: Kind> Context<K> {
    /// A condition of type `kind` with the time of the context's clock and the generation of the main object. Its message is empty;
    /// set it if there is more to say than the `reason`, one CamelCase word.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    /// # use watchkeeper::controller::{Conditions, Context};
    /// # fn set(cx: Context<ConfigMap>, conditions: &mut Vec<Condition>) {
    /// conditions.set(cx.condition("Ready", true, "Available"));
    /// # }
    /// ```
    pub fn condition(&self, kind: &str, status: bool, reason: &str) -> Condition {
        // Stored in whole seconds.
        let now = Timestamp::from_second(self.env().clock.wall().as_second()).unwrap_or_default();
        Condition {
            type_: kind.to_owned(),
            status: if status { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            last_transition_time: Time(now),
            observed_generation: self
                .main()
                .map(|main| main.generation())
                .filter(|generation| *generation > 0),
        }
    }
}

/// A list of conditions, one of each type.
pub trait Conditions {
    /// Adds a condition, or replaces the one of its type. The time of the last transition stays if the status is the same.
    fn set(&mut self, condition: Condition);

    /// The condition of that type.
    fn find(&self, kind: &str) -> Option<&Condition>;

    /// Whether the condition of that type is there and true.
    fn is_true(&self, kind: &str) -> bool {
        self.find(kind).is_some_and(|condition| condition.status == "True")
    }
}

impl Conditions for Vec<Condition> {
    fn set(&mut self, mut condition: Condition) {
        match self.iter_mut().find(|known| known.type_ == condition.type_) {
            Some(known) => {
                if known.status == condition.status {
                    condition.last_transition_time = known.last_transition_time.clone();
                }
                *known = condition;
            }
            None => self.push(condition),
        }
    }

    fn find(&self, kind: &str) -> Option<&Condition> {
        self.iter().find(|condition| condition.type_ == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: &str, second: i64) -> Condition {
        Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: "R".to_owned(),
            message: String::new(),
            last_transition_time: Time(Timestamp::from_second(second).unwrap()),
            observed_generation: Some(second),
        }
    }

    #[test]
    fn the_time_of_a_transition_stays_while_the_status_is_the_same() {
        let mut conditions = Vec::new();
        assert!(!conditions.is_true("Ready"));
        conditions.set(ready("False", 1));
        conditions.set(ready("False", 2));
        assert_eq!((conditions.len(), conditions[0].last_transition_time.0.as_second()), (1, 1));
        assert_eq!(conditions[0].observed_generation, Some(2));
        conditions.set(ready("True", 3));
        assert_eq!((conditions.len(), conditions[0].last_transition_time.0.as_second()), (1, 3));
        assert!(conditions.is_true("Ready") && conditions.find("Other").is_none());
    }
}
