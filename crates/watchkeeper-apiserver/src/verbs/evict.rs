//! The eviction subresource: deletes a pod unless a PodDisruptionBudget forbids it.
//!
//! The number of allowed disruptions comes from the budget's status, which a controller outside of this server writes.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::failure::{Cause, Details, Failure, Result};
use crate::kinds::conditions;
use crate::kinds::kind::Kind;
use crate::kinds::label_selector::selector_text;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::selector::Selector;
use crate::state::store::{Key, Stored};
use crate::verbs::delete::DeleteOptions;
use crate::verbs::update::Part;
use crate::verbs::write::Write;

/// A budget: its kind, its stored version, and the decoded value.
type Budget = (Arc<Kind>, Arc<Stored>, Value);

/// The Retry-After in seconds for a budget whose status is not yet computed.
const UNCOUNTED: u32 = 10;

impl Core {
    /// Deletes a pod unless a budget forbids the disruption.
    pub(crate) fn evict(&mut self, kind: &Arc<Kind>, key: &Key, options: &DeleteOptions) -> Result<()> {
        let pod = self.get(kind, key)?;
        let value = pod.value();
        let charged = match self.budget_of(&pod, &value)? {
            Some((kind, old, budget)) => Some((kind, old, charge(budget, key, &self.now())?)),
            None => None,
        };
        // Check first that the delete would succeed, so that a refused eviction writes nothing.
        self.delete(kind, key, &DeleteOptions { dry_run: true, ..options.clone() })?;
        if options.dry_run {
            return Ok(());
        }
        if let Some((kind, old, budget)) = charged {
            let draft = self.see(&kind, &old.key).change(&kind, &old, budget, Part::Status, &Write::own())?;
            self.store(&draft)?;
        }
        let mut evicted = value.clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": self.now(),
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        });
        conditions::set(&mut evicted["status"], condition);
        if evicted != value {
            self.put_value(kind, key, evicted);
        }
        // The precondition on resourceVersion has been checked; the new condition has changed the version since.
        self.delete(kind, key, &DeleteOptions { version: None, ..options.clone() }).map(drop)
    }

    /// Returns the budget that an eviction of the pod counts against, or `None` if the pod does not count.
    fn budget_of(&self, pod: &Stored, value: &Value) -> Result<Option<Budget>> {
        let phase = value["status"]["phase"].as_str().unwrap_or_default();
        if ["Pending", "Succeeded", "Failed"].contains(&phase) || pod.terminating {
            return Ok(None);
        }
        let Some(kind) = self.registry.disruption_budgets() else { return Ok(None) };
        let mut budgets = Vec::new();
        for stored in self.store.range(&kind.storage, Some(&pod.key.namespace), None) {
            let budget = stored.value();
            let selector = &budget["spec"]["selector"];
            if selector.is_object() && Selector::parse(&kind, &selector_text(selector), "")?.matches(pod) {
                budgets.push((kind.clone(), stored.clone(), budget));
            }
        }
        if budgets.len() > 1 {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Failure::internal(message));
        }
        Ok(budgets.pop().filter(|(_, _, budget)| !is_free(value, budget)))
    }
}

/// Returns whether a pod that is not ready may be evicted without counting.
fn is_free(pod: &Value, budget: &Value) -> bool {
    let healthy = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let is_met = healthy("desiredHealthy") > 0 && healthy("currentHealthy") >= healthy("desiredHealthy");
    !conditions::holds(&pod["status"], "Ready")
        && (is_met || budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow")
}

/// Returns the budget after one more disruption, or why it does not allow one.
fn charge(mut budget: Value, pod: &Key, now: &str) -> Result<Value> {
    let name = meta::text(&budget, "name");
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    if number("observedGeneration") < generation {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refused(why, UNCOUNTED));
    }
    let (wanted, healthy) = (number("desiredHealthy"), number("currentHealthy"));
    let allowed = number("disruptionsAllowed");
    if allowed <= 0 {
        let why = if healthy <= wanted {
            format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently")
        } else {
            format!("The disruption budget {name} does not allow evicting pods currently")
        };
        return Err(refused(why, 0));
    }
    budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
    budget["status"]["disruptedPods"][&pod.name] = now.into();
    if allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": generation, "lastTransitionTime": now,
            "reason": "InsufficientPods", "message": "",
        });
        conditions::set(&mut budget["status"], condition);
    }
    Ok(budget)
}

fn refused(why: String, retry_after: u32) -> Box<Failure> {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut failure = Failure::new(429, "TooManyRequests", message);
    let cause = Cause { reason: "DisruptionBudget", message: why, field: String::new() };
    failure.details = Some(Details { causes: vec![cause], retry_after, ..Details::default() });
    failure
}
