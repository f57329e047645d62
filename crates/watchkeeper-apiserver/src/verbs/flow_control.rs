//! The flow schemas and priority levels of a new server, and the condition of flow schemas.

use serde_json::{Value, json};

use crate::access::flow::{GROUP, LEVELS, SCHEMAS};
use crate::failure::quoted;
use crate::kinds::cells::{list, text};
use crate::kinds::conditions;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::store::Key;
use crate::verbs::write::Write;

/// The levels with queues: name, shares, lendable percent, queues and hand size.
const LIMITED: &[(&str, i64, i64, i64, i64)] = &[
    ("global-default", 20, 50, 128, 6),
    ("leader-election", 10, 0, 16, 4),
    ("node-high", 40, 25, 64, 6),
    ("system", 30, 33, 64, 6),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
];
const QUEUE_LENGTH: i64 = 50;

/// The group of leases.
const LEASES: &str = "coordination.k8s.io";

/// A flow schema: name, level, precedence, distinguisher, subjects separated by commas, and what it is about.
type Row = (&'static str, &'static str, i64, &'static str, &'static str, About);

/// What a flow schema is about.
#[derive(Clone, Copy, Debug)]
enum About {
    Everything,
    Health,
    Nodes,
    /// Reads and writes of single leases.
    Leases,
}

const EVERYBODY: &str = "group:system:unauthenticated,group:system:authenticated";

const ROWS: &[Row] = &[
    ("exempt", "exempt", 1, "", "group:system:masters", About::Everything),
    ("probes", "exempt", 2, "", EVERYBODY, About::Health),
    (
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        "user:system:kube-controller-manager,user:system:kube-scheduler,account:*",
        About::Leases,
    ),
    ("system-node-high", "node-high", 400, "ByUser", "group:system:nodes", About::Nodes),
    ("system-nodes", "system", 500, "ByUser", "group:system:nodes", About::Everything),
    (
        "kube-controller-manager",
        "workload-high",
        800,
        "ByNamespace",
        "user:system:kube-controller-manager",
        About::Everything,
    ),
    ("kube-scheduler", "workload-high", 800, "ByNamespace", "user:system:kube-scheduler", About::Everything),
    ("kube-system-service-accounts", "workload-high", 900, "ByNamespace", "account:*", About::Everything),
    ("service-accounts", "workload-low", 9000, "ByUser", "group:system:serviceaccounts", About::Everything),
    ("global-default", "global-default", 9900, "ByUser", EVERYBODY, About::Everything),
    ("catch-all", "catch-all", 10_000, "ByUser", EVERYBODY, About::Everything),
];

fn levels() -> Vec<(&'static str, Value)> {
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let limited = |shares: i64, lendable: i64, response: Value| {
        let limited = json!({"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response});
        json!({"type": "Limited", "limited": limited})
    };
    let mut all = vec![("exempt", exempt), ("catch-all", limited(5, 0, json!({"type": "Reject"})))];
    all.extend(LIMITED.iter().map(|(name, shares, lendable, queues, hand)| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH});
        (*name, limited(*shares, *lendable, json!({"type": "Queue", "queuing": queuing})))
    }));
    all
}

fn schema((_, level, precedence, distinguisher, subjects, about): &Row) -> Value {
    let subjects: Vec<_> = subjects.split(',').map(subject).collect();
    let mut rule = json!({"subjects": subjects});
    let resources = |verbs: Value, group: &str, resources: Value, of_cluster: bool| {
        let mut rule =
            json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
        if of_cluster {
            rule["clusterScope"] = true.into();
        }
        rule
    };
    let any = json!(["*"]);
    match about {
        About::Everything => {
            rule["resourceRules"] = json!([resources(any.clone(), "*", any.clone(), true)]);
            rule["nonResourceRules"] = json!([{"verbs": any, "nonResourceURLs": any}]);
        }
        About::Health => {
            let urls = json!(["/healthz", "/readyz", "/livez"]);
            rule["nonResourceRules"] = json!([{"verbs": ["get"], "nonResourceURLs": urls}]);
        }
        About::Nodes => {
            let leases = resources(any.clone(), LEASES, json!(["leases"]), false);
            let nodes = resources(any, "", json!(["nodes", "nodes/status"]), true);
            rule["resourceRules"] = json!([nodes, leases]);
        }
        About::Leases => {
            let verbs = json!(["get", "create", "update"]);
            rule["resourceRules"] = json!([resources(verbs, LEASES, json!(["leases"]), false)]);
        }
    }
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule]});
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({"type": distinguisher});
    }
    spec
}

/// Reads a subject; accounts are those of `kube-system`.
fn subject(text: &str) -> Value {
    match text.split_once(':') {
        Some(("group", name)) => json!({"kind": "Group", "group": {"name": name}}),
        Some(("user", name)) => json!({"kind": "User", "user": {"name": name}}),
        _ => {
            let name = text.trim_start_matches("account:");
            let account = json!({"namespace": "kube-system", "name": name});
            json!({"kind": "ServiceAccount", "serviceAccount": account})
        }
    }
}

/// The condition of a flow schema whose level exists or is missing.
fn dangling(level: &str, exists: bool, now: &str) -> Value {
    let (status, reason, rest) = match exists {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let level = quoted(level);
    let message =
        format!("This FlowSchema references the PriorityLevelConfiguration object named {level} {rest}");
    json!({"type": "Dangling", "status": status, "reason": reason, "message": message, "lastTransitionTime": now})
}

impl Core {
    /// Creates the flow schemas and priority levels of a new server that do not exist.
    pub(crate) fn create_flow_control(&mut self) {
        for (name, spec) in levels() {
            self.create_flow_object(LEVELS, name, spec);
        }
        for row in ROWS {
            self.create_flow_object(SCHEMAS, row.0, schema(row));
        }
        self.settle_flow_schemas();
    }

    fn create_flow_object(&mut self, plural: &str, name: &str, spec: Value) {
        let Some(kind) = self.registry.find(GROUP, "v1", plural).cloned() else { return };
        if self.store.get(&kind.storage, &Key::new("", name)).is_some() {
            return;
        }
        let mut object = kind.blank().clone();
        meta::set(&mut object, "name", name);
        object["metadata"]["annotations"] = json!({"apf.kubernetes.io/autoupdate-spec": "true"});
        object["spec"] = spec;
        let created = self.create(&kind, "", object, &Write::own());
        debug_assert!(created.is_ok(), "an object of flow control is valid: {created:?}");
    }

    /// Says in the status of each flow schema whether its priority level exists.
    pub(crate) fn settle_flow_schemas(&mut self) {
        let find = |plural| self.registry.find(GROUP, "v1", plural).cloned();
        let (Some(schemas), Some(levels)) = (find(SCHEMAS), find(LEVELS)) else { return };
        let all: Vec<_> = self.store.range(&schemas.storage, None, None).cloned().collect();
        for stored in all {
            let mut value = stored.value();
            let level = text(&value["spec"]["priorityLevelConfiguration"]["name"]).to_owned();
            let exists = self.store.get(&levels.storage, &Key::new("", &level)).is_some();
            let wanted = dangling(&level, exists, &self.now());
            let known = list(&value["status"]["conditions"]).iter().find(|known| known["type"] == "Dangling");
            let is_same =
                |known: &Value| ["status", "reason", "message"].iter().all(|it| known[*it] == wanted[*it]);
            if !known.is_some_and(is_same) {
                conditions::set(&mut value["status"], wanted);
                self.put_value(&schemas, &stored.key, value);
            }
        }
    }
}
