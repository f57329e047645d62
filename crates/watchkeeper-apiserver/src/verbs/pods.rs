//! What can be done with a pod beyond reading and writing it? Binding it to a node, evicting it, asking for its log.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::core::Core;
use crate::meta;
use crate::registry::Kind;
use crate::status::{Cause, Failure, Result};
use crate::store::{Key, Stored};
use crate::verbs::delete::DeleteOptions;
use crate::verbs::update::precondition_failed;

impl Core {
    /// Gives a pod its node, once; the pod with the uid and of the version that the binding names, if it does.
    pub(crate) fn bind(&mut self, kind: &Arc<Kind>, key: &Key, binding: &Value, dry_run: bool) -> Result<()> {
        let target = |field: &str| binding["target"][field].as_str().unwrap_or_default();
        let mut causes = Vec::new();
        if !["", "Node"].contains(&target("kind")) {
            causes.push(Cause::not_supported("target.kind", &target("kind").into(), &["Node", "<empty>"]));
        }
        if target("name").is_empty() {
            causes.push(Cause::required("target.name", ""));
        }
        if !causes.is_empty() {
            return Err(Failure::internal(Cause::text(&causes)));
        }
        let old = self.get(kind, key)?;
        let mut pod = old.value();
        let conflict = |why: &str| {
            let mut failure = Failure::conflict(kind, &key.name, why);
            failure.message = failure.message.replacen("pods ", "pods/binding ", 1);
            if let Some(details) = &mut failure.details {
                details.kind = "pods/binding".to_owned();
            }
            failure
        };
        for (field, shown, found) in [
            ("uid", "UID", old.uid.clone()),
            ("resourceVersion", "ResourceVersion", old.revision.to_string()),
        ] {
            let sent = meta::text(binding, field);
            if !sent.is_empty() && sent != found {
                let why = precondition_failed(kind, key, dry_run, (shown, sent, &found));
                return Err(Failure::conflict(kind, &key.name, &why));
            }
        }
        if old.terminating {
            return Err(conflict(&format!(
                "pod {} is being deleted, cannot be assigned to a host",
                key.name
            )));
        }
        let bound = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if !bound.is_empty() {
            return Err(conflict(&format!("pod {} is already assigned to node \"{bound}\"", key.name)));
        }
        if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return Err(conflict(&format!("pod {} has non-empty .spec.schedulingGates", key.name)));
        }
        pod["spec"]["nodeName"] = target("name").into();
        for field in ["annotations", "labels"] {
            for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
                pod["metadata"][field][key.as_str()] = value.clone();
            }
        }
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": self.now()});
        set_condition(&mut pod, scheduled);
        if !dry_run {
            self.commit(kind, key, pod);
        }
        Ok(())
    }

    /// Deletes a pod, unless a budget says that too few would be left.
    pub(crate) fn evict(&mut self, kind: &Arc<Kind>, key: &Key, options: &DeleteOptions) -> Result<()> {
        let pod = self.get(kind, key)?;
        let value = pod.value();
        let ended = ["Pending", "Succeeded", "Failed"]
            .contains(&value["status"]["phase"].as_str().unwrap_or_default());
        if !ended && !pod.terminating {
            self.check_budgets(&pod)?;
        }
        if !options.dry_run {
            // Nothing is written if the delete would be refused.
            self.delete(kind, key, &DeleteOptions { dry_run: true, ..options.clone() })?;
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
            let options = DeleteOptions { version: None, ..options.clone() };
            return self.delete(kind, key, &options).map(drop);
        }
        self.delete(kind, key, options).map(drop)
    }

    fn check_budgets(&self, pod: &Stored) -> Result<()> {
        let Some(kind) = self.registry.builtin("policy", "PodDisruptionBudget") else { return Ok(()) };
        for budget in self.store.range(&kind.storage, Some(&pod.key.namespace), None) {
            let budget = budget.value();
            let wanted = budget["spec"]["selector"]["matchLabels"].as_object();
            let labels = |key: &str| {
                pod.labels.iter().find(|(label, _)| label == key).map(|(_, value)| value.as_str())
            };
            let selects = wanted.is_some_and(|w| w.iter().all(|(key, value)| labels(key) == value.as_str()));
            let status = &budget["status"];
            if selects && status["disruptionsAllowed"].as_i64().unwrap_or(0) <= 0 {
                let message = "Cannot evict pod as it would violate the pod's disruption budget.";
                let mut failure = Failure::new(429, "TooManyRequests", message);
                let number = |field: &str| status[field].as_i64().unwrap_or(0);
                let cause = Cause {
                    reason: "DisruptionBudget",
                    message: format!(
                        "The disruption budget {} needs {} healthy pods and has {} currently",
                        meta::text(&budget, "name"),
                        number("desiredHealthy"),
                        number("currentHealthy")
                    ),
                    field: String::new(),
                };
                failure.details = Some(crate::status::Details { causes: vec![cause], ..Default::default() });
                return Err(failure);
            }
        }
        Ok(())
    }

    /// The log of a pod that has no node yet is empty. Nothing runs here that could write another one.
    pub(crate) fn log(&self, kind: &Arc<Kind>, key: &Key, container: &str) -> Result<()> {
        let pod = self.get(kind, key)?.value();
        let lists = ["containers", "initContainers", "ephemeralContainers"];
        let all = lists.iter().flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten());
        let names: Vec<_> = all.filter_map(|container| container["name"].as_str()).collect();
        if container.is_empty() && names.len() > 1 {
            let names = names.join(" ");
            let why =
                format!("a container name must be specified for pod {}, choose one of: [{names}]", key.name);
            return Err(Failure::bad_request(why));
        }
        if !container.is_empty() && !names.contains(&container) {
            return Err(Failure::bad_request(format!(
                "container {container} is not valid for pod {}",
                key.name
            )));
        }
        match pod["spec"]["nodeName"].as_str() {
            None | Some("") => Ok(()),
            Some(node) => {
                let nodes = self.registry.builtin("", "Node");
                let known =
                    nodes.is_some_and(|nodes| self.store.get(&nodes.storage, &Key::new("", node)).is_some());
                if !known {
                    return Err(Failure::not_found(kind, node));
                }
                Err(Failure::internal("no preferred addresses found; known addresses: []"))
            }
        }
    }
}

/// Says of a pod that something is so; since when, only if it was otherwise before.
fn set_condition(pod: &mut Value, mut condition: Value) {
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    match list.iter_mut().find(|other| other["type"] == condition["type"]) {
        Some(before) => {
            if before["status"] == condition["status"] {
                condition["lastTransitionTime"] = before["lastTransitionTime"].take();
            }
            *before = condition;
        }
        None => list.push(condition),
    }
}
