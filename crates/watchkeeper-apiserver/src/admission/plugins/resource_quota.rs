//! `ResourceQuota`: charges what a write uses to the quotas of its namespace, or refuses it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use watchkeeper_quota::{
    Amounts, Quantity, Resource, amounts, constraints, covers, is_in_scope, shown, usage,
};

use crate::admission::attempt::{Attempt, Operation};
use crate::admission::plugin::{Charge, Plugin};
use crate::failure::{Failure, Result};
use crate::state::core::Core;
use crate::state::store::{Key, Stored};

const QUOTAS: &str = "resourcequotas";

#[derive(Debug)]
pub(in crate::admission) struct ResourceQuota;

impl Plugin for ResourceQuota {
    fn validate(&self, attempt: &Attempt<'_>, object: Option<&Value>) -> Result<()> {
        let Some(object) = object else { return Ok(()) };
        let resource = Resource { group: &attempt.kind.group, plural: &attempt.kind.plural };
        if attempt.namespace.is_empty() || !attempt.subresource.is_empty() || !is_charged(attempt, resource) {
            return Ok(());
        }
        let quotas = attempt.list("", "v1", QUOTAS, Some(attempt.namespace));
        let quotas: Vec<_> = quotas.iter().map(|stored| (stored.key.clone(), stored.value())).collect();
        let mut charged = Vec::new();
        for (key, quota) in quotas {
            let limited = limited(resource, &quota);
            if !is_in_scope(resource, object, &quota["spec"]) || limited.is_empty() {
                continue;
            }
            if let Err(missing) = constraints(resource, object, &limited) {
                let why = format!("failed quota: {}: {missing}", key.name);
                return Err(attempt.forbidden(Some(object), &why));
            }
            let used = amounts(&quota["status"]["used"]);
            if !limited.iter().all(|name| used.contains_key(name)) {
                let names = limited.into_iter().collect::<Vec<_>>().join(",");
                let why = format!("status unknown for quota: {}, resources: {names}", key.name);
                return Err(attempt.forbidden(Some(object), &why));
            }
            charged.push(key);
        }
        let added = added(attempt, resource, object)?;
        if charged.is_empty() || added.is_empty() {
            return Ok(());
        }
        // The refusal is made here, where the kind and the name are known; its text comes from the state at the commit.
        let refusal = attempt.forbidden(Some(object), "");
        attempt.charge(Use { quotas: charged, added, refusal });
        Ok(())
    }
}

/// Whether a write may use more: services and claims grow, all other objects are counted when they are created.
fn is_charged(attempt: &Attempt<'_>, resource: Resource<'_>) -> bool {
    match attempt.operation {
        Operation::Create => true,
        Operation::Update => {
            resource.group.is_empty() && ["persistentvolumeclaims", "services"].contains(&resource.plural)
        }
        Operation::Delete => false,
    }
}

/// The limits of a quota that are in force for a resource.
fn limited(resource: Resource<'_>, quota: &Value) -> BTreeSet<String> {
    amounts(&quota["status"]["hard"]).into_keys().filter(|name| covers(resource, name)).collect()
}

/// What a write uses more than before.
fn added(attempt: &Attempt<'_>, resource: Resource<'_>, object: &Value) -> Result<Amounts> {
    let now = attempt.session.now();
    let mut added = usage(resource, object, now);
    let negative: Vec<_> =
        added.iter().filter(|(_, amount)| amount.is_negative()).map(|(name, _)| name.as_str()).collect();
    if !negative.is_empty() {
        let why = format!("quota usage is negative for resource(s): {}", negative.join(","));
        return Err(attempt.forbidden(Some(object), &why));
    }
    if let Some(old) = attempt.old {
        for (name, before) in usage(resource, old, now) {
            if let Some(amount) = added.remove(&name) {
                added.insert(name, amount - before);
            }
        }
    }
    added.retain(|_, amount| !amount.is_zero() && !amount.is_negative());
    Ok(added)
}

/// What a write uses of some quotas.
#[derive(Debug)]
struct Use {
    quotas: Vec<Key>,
    added: Amounts,
    refusal: Box<Failure>,
}

impl Use {
    /// The present state of a quota.
    fn find(core: &Core, key: &Key) -> Option<Value> {
        let kind = core.registry.find("", "v1", QUOTAS)?;
        core.store.get(&kind.storage, key).map(|stored| stored.value())
    }

    /// What is added to a quota, and what is used of it then.
    fn after(&self, quota: &Value) -> (Amounts, Amounts) {
        let hard = amounts(&quota["status"]["hard"]);
        let used = amounts(&quota["status"]["used"]);
        let mut added = self.added.clone();
        added.retain(|name, _| hard.contains_key(name));
        let after = added.iter().map(|(name, amount)| {
            let before = used.get(name).cloned().unwrap_or_default();
            (name.clone(), before + amount.clone())
        });
        let after = after.collect();
        (added, after)
    }
}

impl Charge for Use {
    fn check(&self, core: &Core) -> Result<()> {
        for key in &self.quotas {
            let Some(quota) = Self::find(core, key) else { continue };
            let (added, after) = self.after(&quota);
            let hard = amounts(&quota["status"]["hard"]);
            let is_exceeded = |name: &String| {
                let most = hard.get(name).cloned().unwrap_or_default();
                after.get(name).is_some_and(|after: &Quantity| *after > most)
            };
            let only = |of: Amounts| -> String {
                shown(&of.into_iter().filter(|(name, _)| is_exceeded(name)).collect())
            };
            if added.keys().any(is_exceeded) {
                let used = only(amounts(&quota["status"]["used"]));
                let why = format!(
                    "exceeded quota: {}, requested: {}, used: {used}, limited: {}",
                    key.name,
                    only(added),
                    only(hard.clone())
                );
                let mut refusal = self.refusal.clone();
                refusal.message.push_str(&why);
                return Err(refusal);
            }
        }
        Ok(())
    }

    fn book(&self, core: &mut Core) {
        let Some(kind) = core.registry.find("", "v1", QUOTAS).cloned() else { return };
        for key in &self.quotas {
            let Some(mut quota) = Self::find(core, key) else { continue };
            for (name, used) in self.after(&quota).1 {
                quota["status"]["used"][name] = json!(used.to_string());
            }
            core.store.put_encoded(&kind.storage, &Stored::encode(&kind, key.clone(), 0, &quota));
        }
    }
}
