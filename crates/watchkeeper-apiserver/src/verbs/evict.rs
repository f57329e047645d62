//! May a pod be taken from its node? An eviction is a delete that a disruption budget may refuse.
//!
//! How many pods may go is said by the status of the budget, which a controller writes; none runs here.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::core::Core;
use crate::registry::Kind;
use crate::selector::Selector;
use crate::status::{Cause, Details, Failure, Result};
use crate::store::{Key, Stored};
use crate::verbs::delete::DeleteOptions;
use crate::verbs::pods::set_condition;
use crate::verbs::scale::selector_text;
use crate::verbs::update::Part;
use crate::write::Write;

/// The seconds after which to ask again about a budget that nobody has counted yet.
const UNCOUNTED: u32 = 10;

impl Core {
    /// Deletes a pod, unless a budget says that too few would be left.
    pub(crate) fn evict(&mut self, kind: &Arc<Kind>, key: &Key, options: &DeleteOptions) -> Result<()> {
        let pod = self.get(kind, key)?;
        let value = pod.value();
        let budget = self.budget_of(&pod, &value)?;
        let charged = budget.as_ref().map(|(_, budget)| charge(budget, key, &self.now())).transpose()?;
        // Nothing is written if the delete would be refused.
        self.delete(kind, key, &DeleteOptions { dry_run: true, ..options.clone() })?;
        if options.dry_run {
            return Ok(());
        }
        if let Some(((kind, budget), charged)) = budget.zip(charged) {
            self.change(&kind, &budget, charged, Part::Status, &Write::own())?;
        }
        let mut evicted = value.clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": self.now(),
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        });
        set_condition(&mut evicted, condition);
        if evicted != value {
            self.commit(kind, key, evicted);
        }
        // The version that was asked for was there: the condition has just given it another.
        self.delete(kind, key, &DeleteOptions { version: None, ..options.clone() }).map(drop)
    }

    /// The budget that an eviction of the pod is charged to; none if the pod does not count.
    fn budget_of(&self, pod: &Stored, value: &Value) -> Result<Option<(Arc<Kind>, Arc<Stored>)>> {
        let phase = value["status"]["phase"].as_str().unwrap_or_default();
        if ["Pending", "Succeeded", "Failed"].contains(&phase) || pod.terminating {
            return Ok(None);
        }
        let Some(kind) = self.registry.builtin("policy", "PodDisruptionBudget") else { return Ok(None) };
        let mut budgets = Vec::new();
        for budget in self.store.range(&kind.storage, Some(&pod.key.namespace), None) {
            let selector = &budget.value()["spec"]["selector"];
            if selector.is_object() && Selector::parse(&kind, &selector_text(selector), "")?.matches(pod) {
                budgets.push(budget.clone());
            }
        }
        if budgets.len() > 1 {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Failure::internal(message));
        }
        let charged = |budget: &Arc<Stored>| !is_free(value, &budget.value());
        Ok(budgets.pop().filter(charged).map(|budget| (kind, budget)))
    }
}

/// Whether a pod that is not ready may go without being counted.
fn is_free(pod: &Value, budget: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let is_ready = conditions.clone().any(|one| one["type"] == "Ready" && one["status"] == "True");
    let healthy = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let is_met = healthy("desiredHealthy") > 0 && healthy("currentHealthy") >= healthy("desiredHealthy");
    !is_ready && (is_met || budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow")
}

/// The budget after the eviction of a pod, or why it does not allow it.
fn charge(budget: &Stored, pod: &Key, now: &str) -> Result<Value> {
    let mut value = budget.value();
    let name = &budget.key.name;
    let number = |field: &str| value["status"][field].as_i64().unwrap_or(0);
    let generation = value["metadata"]["generation"].as_i64().unwrap_or(0);
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
    value["status"]["disruptionsAllowed"] = (allowed - 1).into();
    value["status"]["disruptedPods"][&pod.name] = now.into();
    if allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": generation, "lastTransitionTime": now,
            "reason": "InsufficientPods", "message": "",
        });
        set_condition(&mut value, condition);
    }
    Ok(value)
}

fn refused(why: String, retry_after: u32) -> Box<Failure> {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut failure = Failure::new(429, "TooManyRequests", message);
    let cause = Cause { reason: "DisruptionBudget", message: why, field: String::new() };
    failure.details = Some(Details { causes: vec![cause], retry_after, ..Details::default() });
    failure
}
