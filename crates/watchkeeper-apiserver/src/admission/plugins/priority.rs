//! `Priority`: resolves the priority class of a pod, and allows one default class.

use std::sync::Arc;

use serde_json::Value;

use crate::admission::attempt::{Attempt, Operation};
use crate::admission::plugin::Plugin;
use crate::failure::Result;
use crate::kinds::cells::text;
use crate::kinds::meta;
use crate::state::store::{Key, Stored};

const GROUP: &str = "scheduling.k8s.io";
const CLASSES: &str = "priorityclasses";

#[derive(Debug)]
pub(in crate::admission) struct Priority;

impl Plugin for Priority {
    fn mutate(&self, attempt: &Attempt<'_>, object: &mut Value) -> Result<()> {
        match attempt.operation {
            _ if !attempt.is_about("", "pods") => Ok(()),
            Operation::Create => resolve(attempt, object),
            Operation::Update => {
                keep(attempt, object);
                Ok(())
            }
            Operation::Delete => Ok(()),
        }
    }

    fn validate(&self, attempt: &Attempt<'_>, object: Option<&Value>) -> Result<()> {
        let Some(class) = object.filter(|_| attempt.is_about(GROUP, CLASSES)) else { return Ok(()) };
        if class["globalDefault"] != true {
            return Ok(());
        }
        match default_class(attempt) {
            Some((other, _)) if attempt.operation == Operation::Create || other.key.name != attempt.name => {
                let name = &other.key.name;
                let why =
                    format!("PriorityClass {name} is already marked as default. Only one default can exist");
                Err(attempt.forbidden(object, &why))
            }
            _ => Ok(()),
        }
    }
}

/// Sets the priority and the preemption policy of a new pod by its class.
fn resolve(attempt: &Attempt<'_>, pod: &mut Value) -> Result<()> {
    let name = text(&pod["spec"]["priorityClassName"]).to_owned();
    let class = match &*name {
        "" => default_class(attempt),
        name => {
            let found = attempt.find(GROUP, "v1", CLASSES, &Key::new("", name));
            let Some(found) = found else {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(attempt.forbidden(Some(pod), &why));
            };
            let class = found.value();
            Some((found, class))
        }
    };
    let (priority, policy) = match &class {
        Some((_, class)) => (class["value"].as_i64().unwrap_or(0), text(&class["preemptionPolicy"])),
        None => (0, ""),
    };
    let computed = |what: &str, sent: &str, computed: &str| {
        let why = format!(
            "the {what} ({sent}) must not be provided in pod spec; priority admission controller computed {computed} from \
             the given PriorityClass name"
        );
        attempt.forbidden(Some(pod), &why)
    };
    let spec = &pod["spec"];
    if let Some(sent) = spec["priority"].as_i64().filter(|sent| *sent != priority) {
        return Err(computed("integer value of priority", &sent.to_string(), &priority.to_string()));
    }
    if let Some(sent) = spec["preemptionPolicy"].as_str().filter(|sent| !policy.is_empty() && *sent != policy)
    {
        return Err(computed("string value of PreemptionPolicy", sent, policy));
    }
    let spec = &mut pod["spec"];
    if let (true, Some((stored, _))) = (name.is_empty(), &class) {
        spec["priorityClassName"] = stored.key.name.as_str().into();
    }
    spec["priority"] = priority.into();
    if !policy.is_empty() {
        spec["preemptionPolicy"] = policy.into();
    }
    Ok(())
}

/// Keeps the priority of a pod in an update that leaves it out.
fn keep(attempt: &Attempt<'_>, pod: &mut Value) {
    for field in ["priority", "preemptionPolicy"] {
        let before = attempt.old.and_then(|old| old["spec"].get(field));
        if let (Some(before), Some(spec)) = (before, pod["spec"].as_object_mut()) {
            spec.entry(field).or_insert_with(|| before.clone());
        }
    }
}

/// Returns the default class; the lowest one, if there are several.
fn default_class(attempt: &Attempt<'_>) -> Option<(Arc<Stored>, Value)> {
    let classes = attempt.list(GROUP, "v1", CLASSES, None).into_iter().map(|stored| {
        let class = stored.value();
        (stored, class)
    });
    let defaults = classes.filter(|(_, class)| class["globalDefault"] == true);
    defaults.min_by_key(|(_, class)| (class["value"].as_i64(), meta::text(class, "name").to_owned()))
}
