//! The state of a pod in one line: ready containers, a word for its state, restarts.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::age;
use crate::kinds::cells::{list, number, or, text};
use crate::kinds::conditions;

/// The cells Ready, Status and Restarts.
pub(super) struct Summary {
    pub(super) ready: String,
    pub(super) status: String,
    pub(super) restarts: String,
}

/// The sum of the statuses of some containers.
#[derive(Default)]
struct Tally {
    ready: usize,
    restarts: i64,
    /// When a container ended last, to be restarted.
    last: Option<String>,
    /// The reason that replaces the pod's phase.
    reason: Option<String>,
}

impl Tally {
    fn count_restarts(&mut self, container: &Value) {
        self.restarts += number(&container["restartCount"]);
        let ended = container["lastState"]["terminated"]["finishedAt"].as_str().map(str::to_owned);
        self.last = self.last.take().max(ended);
    }
}

pub(super) fn summary(pod: &Value, now: Timestamp) -> Summary {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let sidecars = list(&spec["initContainers"]).iter().filter(|c| c["restartPolicy"] == "Always").count();
    let total = list(&spec["containers"]).len() + sidecars;
    let initial = initial(spec, status);
    let tally = if initial.reason.is_some() { initial } else { running(status, initial.ready) };
    let restarts = match tally.last.filter(|_| tally.restarts > 0) {
        Some(last) => format!("{} ({} ago)", tally.restarts, age::since(&last.into(), now)),
        None => tally.restarts.to_string(),
    };
    let state = ending(pod).or(tally.reason).unwrap_or_else(|| phase(status));
    Summary { ready: format!("{}/{total}", tally.ready), status: state, restarts }
}

/// The status of a pod whose containers report none.
fn phase(status: &Value) -> String {
    let gated = |c: &Value| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated";
    if list(&status["conditions"]).iter().any(gated) {
        return "SchedulingGated".to_owned();
    }
    or(text(&status["reason"]), text(&status["phase"])).to_owned()
}

/// The status of a pod that is being deleted.
fn ending(pod: &Value) -> Option<String> {
    let status = &pod["status"];
    if !pod["metadata"]["deletionTimestamp"].is_string() {
        None
    } else if status["reason"] == "NodeLost" {
        Some("Unknown".to_owned())
    } else {
        let ended = ["Succeeded", "Failed"].contains(&text(&status["phase"]));
        (!ended).then(|| "Terminating".to_owned())
    }
}

/// The init containers, up to the first that keeps the others waiting: it gives the reason.
fn initial(spec: &Value, status: &Value) -> Tally {
    let containers = list(&spec["initContainers"]);
    let sidecar =
        |name: &Value| containers.iter().any(|c| c["name"] == *name && c["restartPolicy"] == "Always");
    let mut tally = Tally::default();
    for (at, container) in list(&status["initContainerStatuses"]).iter().enumerate() {
        tally.count_restarts(container);
        let state = &container["state"];
        if state["terminated"]["exitCode"] == 0 {
            continue;
        }
        if sidecar(&container["name"]) && container["started"] == true {
            tally.ready += usize::from(container["ready"] == true);
            continue;
        }
        tally.reason = Some(if state["terminated"].is_object() {
            format!("Init:{}", ended(&state["terminated"]))
        } else {
            match text(&state["waiting"]["reason"]) {
                "" | "PodInitializing" => format!("Init:{at}/{}", containers.len()),
                waiting => format!("Init:{waiting}"),
            }
        });
        break;
    }
    tally
}

/// The containers of an initialized pod of which so many sidecars are ready.
fn running(status: &Value, sidecars: usize) -> Tally {
    let mut tally = Tally { ready: sidecars, ..Tally::default() };
    let mut running = false;
    for container in list(&status["containerStatuses"]).iter().rev() {
        tally.count_restarts(container);
        let state = &container["state"];
        let waiting = text(&state["waiting"]["reason"]);
        if !waiting.is_empty() {
            tally.reason = Some(waiting.to_owned());
        } else if state["terminated"].is_object() {
            tally.reason = Some(ended(&state["terminated"]));
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
            tally.ready += 1;
        }
    }
    let reason = tally.reason.clone().unwrap_or_else(|| phase(status));
    if reason == "Completed" && running {
        let ready = conditions::holds(status, "Ready");
        tally.reason = Some(if ready { "Running" } else { "NotReady" }.to_owned());
    }
    tally
}

/// Why a container is no longer running.
fn ended(terminated: &Value) -> String {
    let (reason, signal) = (text(&terminated["reason"]), number(&terminated["signal"]));
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", number(&terminated["exitCode"]))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(pod: &Value) -> (String, String, String) {
        let summary = summary(pod, Timestamp::UNIX_EPOCH);
        (summary.ready, summary.status, summary.restarts)
    }

    #[test]
    fn a_pods_state_is_that_of_its_worst_container() {
        let running = json!({"name": "a", "ready": true, "restartCount": 0, "state": {"running": {}}});
        let crashing = json!({"name": "b", "ready": false, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
        let mut pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]},
                             "status": {"phase": "Running", "containerStatuses": [running, crashing]}});
        assert_eq!(shown(&pod), ("1/2".into(), "CrashLoopBackOff".into(), "3".into()));
        pod["metadata"]["deletionTimestamp"] = "x".into();
        assert_eq!(shown(&pod).1, "Terminating");
        let done = json!({"spec": {"containers": [{"name": "a"}]}, "status": {"phase": "Succeeded", "containerStatuses": [
            {"name": "a", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}});
        assert_eq!(shown(&done), ("0/1".into(), "Completed".into(), "0".into()));
        let waiting = json!({"spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]},
                             "status": {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"waiting": {}}}]}});
        assert_eq!(shown(&waiting).1, "Init:0/1");
    }
}
