//! The status of a ResourceQuota: a pure function of it and the objects that it counts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceQuota;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use watchkeeper_quota::{Quantity, Resource, amounts, covers, is_in_scope, usage};

use super::census::Objects;

/// The status of a quota.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) hard: BTreeMap<String, String>,
    pub(super) used: BTreeMap<String, String>,
}

/// The status of a quota that counts these objects.
pub(super) fn status(quota: &ResourceQuota, objects: &Objects, now: Timestamp) -> Status {
    let spec = serde_json::to_value(&quota.spec).unwrap_or_default();
    let hard = amounts(&spec["hard"]);
    let mut used: BTreeMap<&String, Quantity> = BTreeMap::new();
    for ((group, plural), objects) in objects {
        let resource = Resource { group, plural };
        let names: Vec<_> = hard.keys().filter(|name| covers(resource, name)).collect();
        used.extend(names.iter().map(|name| (*name, Quantity::default())));
        for object in objects.iter().filter(|object| is_in_scope(resource, object, &spec)) {
            let own = usage(resource, object, now);
            for name in &names {
                if let Some(amount) = own.get(*name) {
                    let sum = used.remove(name).unwrap_or_default() + amount.clone();
                    used.insert(name, sum);
                }
            }
        }
    }
    Status {
        hard: hard.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect(),
        used: used.into_iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect(),
    }
}

/// Whether two statuses say the same, in whatever form their quantities are.
pub(super) fn is_same(one: &Status, other: &Status) -> bool {
    let plain = |status: &Status| {
        let value: Value = json!(status);
        (amounts(&value["hard"]), amounts(&value["used"]))
    };
    plain(one) == plain(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(spec: Value) -> ResourceQuota {
        serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": spec})).unwrap()
    }

    fn objects(plural: &str, objects: Value) -> Objects {
        [((String::new(), plural.to_owned()), objects.as_array().unwrap().clone())].into()
    }

    fn shown(spec: Value, counted: &Objects) -> String {
        let status = status(&quota(spec), counted, Timestamp::UNIX_EPOCH);
        status.used.iter().map(|(name, used)| format!("{name}={used}")).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn a_quota_counts_what_it_limits() {
        let pod =
            |memory: &str| json!({"spec": {"containers": [{"resources": {"requests": {"memory": memory}}}]}});
        let pods = objects("pods", json!([pod("1Gi"), pod("512Mi"), {"spec": {"containers": [{}]}}]));
        let hard = json!({"pods": "5", "requests.memory": "2Gi", "cpu": "1", "services": "3"});
        assert_eq!(shown(json!({ "hard": hard }), &pods), "cpu=0,pods=3,requests.memory=1536Mi");
        let scoped = json!({"hard": {"pods": "5"}, "scopes": ["BestEffort"]});
        assert_eq!(shown(scoped, &pods), "pods=1");
    }

    #[test]
    fn an_unknown_limit_has_no_usage() {
        let none = objects("configmaps", json!([{}, {}]));
        assert_eq!(
            shown(json!({"hard": {"count/foos.example.com": "1", "configmaps": "3"}}), &none),
            "configmaps=2"
        );
    }

    #[test]
    fn the_form_of_a_quantity_does_not_matter() {
        let of =
            |used: &str| Status { used: [("cpu".to_owned(), used.to_owned())].into(), ..Status::default() };
        assert!(is_same(&of("1000m"), &of("1")) && !is_same(&of("1"), &of("2")));
    }
}
