//! `LimitRanger`: gives containers the defaults of the limit ranges of their namespace, and refuses what is out of range.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use watchkeeper_quota::requirements::{Side, of_container, of_pod};
use watchkeeper_quota::{Amounts, Quantity, amounts};

use crate::admission::attempt::{Attempt, Operation};
use crate::admission::plugin::Plugin;
use crate::failure::Result;
use crate::kinds::cells::{list, text};
use crate::kinds::meta;

/// The annotation that says what was set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// A ratio is compared in thousandths up to this value.
const FINE: i128 = 1_000_000;

#[derive(Debug)]
pub(in crate::admission) struct LimitRanger;

impl Plugin for LimitRanger {
    fn mutate(&self, attempt: &Attempt<'_>, object: &mut Value) -> Result<()> {
        if is_limited_pod(attempt) {
            ranges(attempt).iter().for_each(|range| set_defaults(range, object));
        }
        Ok(())
    }

    fn validate(&self, attempt: &Attempt<'_>, object: Option<&Value>) -> Result<()> {
        let Some(object) = object else { return Ok(()) };
        let is_claim = attempt.is_about("", "persistentvolumeclaims");
        if !is_limited_pod(attempt) && !is_claim {
            return Ok(());
        }
        for range in ranges(attempt) {
            let mut problems = Problems::default();
            for limit in list(&range["spec"]["limits"]) {
                if is_claim { claim(limit, object, &mut problems) } else { pod(limit, object, &mut problems) }
            }
            if let Some(message) = problems.message() {
                return Err(attempt.forbidden(Some(object), &message));
            }
        }
        Ok(())
    }
}

/// The requirements of a pod cannot change later.
fn is_limited_pod(attempt: &Attempt<'_>) -> bool {
    attempt.operation == Operation::Create && attempt.is_about("", "pods")
}

fn ranges(attempt: &Attempt<'_>) -> Vec<Value> {
    if attempt.namespace.is_empty() {
        return Vec::new();
    }
    let found = attempt.list("", "v1", "limitranges", Some(attempt.namespace));
    found.iter().map(|range| range.value()).collect()
}

/// Sets what the containers of a pod do not say themselves.
fn set_defaults(range: &Value, pod: &mut Value) {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for limit in list(&range["spec"]["limits"]).iter().filter(|limit| limit["type"] == "Container") {
        let members = |field: &str| limit[field].as_object().cloned().unwrap_or_default();
        requests.extend(members("defaultRequest"));
        limits.extend(members("default"));
    }
    let mut notes = Vec::new();
    for (field, title) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod["spec"].get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            let name = text(&container["name"]).to_owned();
            for (side, defaults) in [("requests", &requests), ("limits", &limits)] {
                let set = merge(container, side, defaults);
                if !set.is_empty() {
                    let what = side.trim_end_matches('s');
                    notes.push(format!("{} {what} for {title} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        let metadata = meta::metadata_mut(pod);
        let annotations = metadata.entry("annotations").or_insert_with(|| Map::new().into());
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(ANNOTATION.to_owned(), note.into());
        }
    }
}

/// Adds the defaults that a container lacks, and returns their names.
fn merge(container: &mut Value, side: &str, defaults: &Map<String, Value>) -> Vec<String> {
    let mut set = Vec::new();
    for (name, amount) in defaults {
        if container["resources"][side].get(name).is_none() {
            container["resources"][side][name] = amount.clone();
            set.push(name.clone());
        }
    }
    set.sort_unstable();
    set
}

fn pod(limit: &Value, pod: &Value, problems: &mut Problems) {
    let spec = &pod["spec"];
    match text(&limit["type"]) {
        "Container" => {
            for container in watchkeeper_quota::requirements::containers(spec) {
                let own = |side| of_container(container, side);
                check(limit, "Container", &own(Side::Requests), &own(Side::Limits), problems);
            }
        }
        "Pod" => check(limit, "Pod", &of_pod(spec, Side::Requests), &of_pod(spec, Side::Limits), problems),
        _ => {}
    }
}

fn claim(limit: &Value, claim: &Value, problems: &mut Problems) {
    const TYPE: &str = "PersistentVolumeClaim";
    if text(&limit["type"]) != TYPE {
        return;
    }
    let requests = amounts(&claim["spec"]["resources"]["requests"]);
    for (name, least) in amounts(&limit["min"]) {
        minimum(TYPE, &name, &least, &requests, &Amounts::new(), problems);
    }
    for (name, most) in amounts(&limit["max"]) {
        let about = format!("maximum {name} usage per {TYPE} is {most}");
        match requests.get(&name) {
            None => problems.add(format!("{about}.  No request is specified")),
            Some(request) if *request > most => problems.add(format!("{about}, but request is {request}")),
            Some(_) => {}
        }
    }
}

fn check(limit: &Value, of: &str, requests: &Amounts, limits: &Amounts, problems: &mut Problems) {
    for (name, least) in amounts(&limit["min"]) {
        minimum(of, &name, &least, requests, limits, problems);
    }
    for (name, most) in amounts(&limit["max"]) {
        let about = format!("maximum {name} usage per {of} is {most}");
        match (limits.get(&name), requests.get(&name)) {
            (None, _) => problems.add(format!("{about}.  No limit is specified")),
            (Some(limit), _) if *limit > most => problems.add(format!("{about}, but limit is {limit}")),
            (_, Some(request)) if *request > most => {
                problems.add(format!("{about}, but request is {request}"))
            }
            _ => {}
        }
    }
    for (name, most) in amounts(&limit["maxLimitRequestRatio"]) {
        ratio(of, &name, &most, requests.get(&name), limits.get(&name), problems);
    }
}

fn minimum(
    of: &str,
    name: &str,
    least: &Quantity,
    requests: &Amounts,
    limits: &Amounts,
    problems: &mut Problems,
) {
    let about = format!("minimum {name} usage per {of} is {least}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => problems.add(format!("{about}.  No request is specified")),
        (Some(request), _) if request < least => problems.add(format!("{about}, but request is {request}")),
        (_, Some(limit)) if limit < least => problems.add(format!("{about}, but limit is {limit}")),
        _ => {}
    }
}

fn ratio(
    of: &str,
    name: &str,
    most: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
    problems: &mut Problems,
) {
    let about = format!("{name} max limit to request ratio per {of} is {most}");
    let Some(request) = request.filter(|request| !request.is_zero()) else {
        return problems.add(format!("{about}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
        return problems.add(format!("{about}, but no limit is specified or limit is 0"));
    };
    let is_fine = [limit, request, most].iter().all(|amount| amount.whole() <= FINE);
    // Beyond the range in which thousandths are compared, whole numbers are exact enough.
    let part = |amount: &Quantity| if is_fine { amount.milli() } else { amount.whole() };
    let observed = part(limit) as f64 / part(request) as f64;
    let allowed = if is_fine { most.milli() as f64 / 1000.0 } else { most.whole() as f64 };
    if observed > allowed {
        problems.add(format!("{about}, but provided ratio is {observed:.6}"));
    }
}

/// Problems of one range, each once.
#[derive(Debug, Default)]
struct Problems {
    all: Vec<String>,
    known: BTreeSet<String>,
}

impl Problems {
    fn add(&mut self, problem: String) {
        if self.known.insert(problem.clone()) {
            self.all.push(problem);
        }
    }

    fn message(&self) -> Option<String> {
        match &*self.all {
            [] => None,
            [one] => Some(one.clone()),
            all => Some(format!("[{}]", all.join(", "))),
        }
    }
}
