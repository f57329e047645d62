//! The conditions of a Pod on a node, from its phase and its containers.

use k8s_openapi::api::core::v1::{PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The conditions that a kubelet writes.
const OWN: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// Notes of which generation of the Pod the status is.
pub(super) fn observe(status: &mut PodStatus, generation: Option<i64>) {
    status.observed_generation = generation;
    let conditions = status.conditions.iter_mut().flatten();
    for condition in conditions.filter(|condition| OWN.contains(&condition.type_.as_str())) {
        condition.observed_generation = generation;
    }
}

/// Brings the conditions in line with the phase and the containers. The transition time of a condition stays while its status does.
pub(super) fn update(status: &mut PodStatus, spec: &PodSpec, now: &Time) {
    let phase = status.phase.clone().unwrap_or_default();
    let ended = match phase.as_str() {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => None,
    };
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let unready: Vec<_> =
        containers.iter().filter(|status| !status.ready).map(|status| status.name.as_str()).collect();
    let is_initialized = status.init_container_statuses.iter().flatten().all(|status| status.ready);
    let has_sandbox = ended.is_none() && phase == "Running";
    let unready = match ended {
        Some(reason) => Some((reason, None)),
        None if unready.is_empty() => None,
        None => Some((
            "ContainersNotReady",
            Some(format!("containers with unready status: [{}]", unready.join(" "))),
        )),
    };
    let gates = unmet_gate(status, spec);
    let mut set = |of: &str, why_not: Option<(&str, Option<String>)>| {
        put(status, of, why_not, now);
    };
    set("PodReadyToStartContainers", (!has_sandbox).then_some(("", None)));
    match ended {
        Some("PodCompleted") => put_true(status, "Initialized", Some("PodCompleted"), now),
        _ => put(status, "Initialized", (!is_initialized).then_some(("ContainersNotInitialized", None)), now),
    }
    put(status, "Ready", unready.clone().or(gates), now);
    put(status, "ContainersReady", unready, now);
    put(status, "PodScheduled", None, now);
}

/// The first readiness gate whose condition is not true.
fn unmet_gate<'a>(status: &PodStatus, spec: &PodSpec) -> Option<(&'a str, Option<String>)> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    for gate in spec.readiness_gates.iter().flatten() {
        let of = &gate.condition_type;
        let why = match conditions.iter().find(|condition| condition.type_ == *of) {
            None => format!("corresponding condition of pod readiness gate \"{of}\" does not exist."),
            Some(known) if known.status != "True" => {
                format!("the status of pod readiness gate \"{of}\" is not \"True\", but {}", known.status)
            }
            Some(_) => continue,
        };
        return Some(("ReadinessGatesNotReady", Some(why)));
    }
    None
}

fn put(status: &mut PodStatus, of: &str, why_not: Option<(&str, Option<String>)>, now: &Time) {
    match why_not {
        None => put_true(status, of, None, now),
        Some((reason, message)) => {
            let reason = (!reason.is_empty()).then(|| reason.to_owned());
            write(status, of, "False", reason, message, now);
        }
    }
}

fn put_true(status: &mut PodStatus, of: &str, reason: Option<&str>, now: &Time) {
    write(status, of, "True", reason.map(str::to_owned), None, now);
}

fn write(
    status: &mut PodStatus,
    of: &str,
    value: &str,
    reason: Option<String>,
    message: Option<String>,
    now: &Time,
) {
    let conditions = status.conditions.get_or_insert_default();
    let known = conditions.iter_mut().find(|condition| condition.type_ == of);
    match known {
        Some(known) => {
            if known.status != value {
                known.status = value.to_owned();
                known.last_transition_time = Some(now.clone());
            }
            (known.reason, known.message) = (reason, message);
        }
        None => conditions.push(PodCondition {
            type_: of.to_owned(),
            status: value.to_owned(),
            reason,
            message,
            last_transition_time: Some(now.clone()),
            ..PodCondition::default()
        }),
    }
}
