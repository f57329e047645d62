//! How is a pod doing, in one line? Ready containers, a word for its state, restarts.

use jiff::Timestamp;
use serde_json::Value;

use super::age;
use super::cells::{list, text};
use crate::kinds::conditions;

/// The cells Ready, Status and Restarts.
pub(crate) struct Summary {
    pub(crate) ready: String,
    pub(crate) status: String,
    pub(crate) restarts: String,
}

pub(crate) fn summary(pod: &Value, now: Timestamp) -> Summary {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let mut reason = first(&[text(&status["reason"]), text(&status["phase"])]);
    for condition in list(&status["conditions"]) {
        if condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated" {
            reason = "SchedulingGated".to_owned();
        }
    }
    let sidecar = |name: &Value| {
        list(&spec["initContainers"]).iter().any(|c| c["name"] == *name && c["restartPolicy"] == "Always")
    };
    let sidecars = list(&spec["initContainers"]).iter().filter(|c| c["restartPolicy"] == "Always").count();
    let total = list(&spec["containers"]).len() + sidecars;
    let (mut ready, mut restarts, mut last) = (0, 0, None);
    let restarted =
        |container: &Value| container["lastState"]["terminated"]["finishedAt"].as_str().map(str::to_owned);
    let initial = list(&status["initContainerStatuses"]);
    let mut initializing = false;
    for (at, container) in initial.iter().enumerate() {
        restarts += container["restartCount"].as_i64().unwrap_or(0);
        last = last.max(restarted(container));
        let state = &container["state"];
        if state["terminated"]["exitCode"] == 0 {
            continue;
        }
        if sidecar(&container["name"]) && container["started"] == true {
            ready += i64::from(container["ready"] == true);
            continue;
        }
        reason = if state["terminated"].is_object() {
            format!("Init:{}", ended(&state["terminated"]))
        } else {
            match text(&state["waiting"]["reason"]) {
                "" | "PodInitializing" => format!("Init:{at}/{}", list(&spec["initContainers"]).len()),
                waiting => format!("Init:{waiting}"),
            }
        };
        initializing = true;
        break;
    }
    if !initializing {
        let mut running = false;
        (restarts, last) = (0, None);
        for container in list(&status["containerStatuses"]).iter().rev() {
            restarts += container["restartCount"].as_i64().unwrap_or(0);
            last = last.max(restarted(container));
            let state = &container["state"];
            let waiting = text(&state["waiting"]["reason"]);
            if !waiting.is_empty() {
                reason = waiting.to_owned();
            } else if state["terminated"].is_object() {
                reason = ended(&state["terminated"]);
            } else if container["ready"] == true && state["running"].is_object() {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" && running {
            reason = if conditions::holds(status, "Ready") { "Running" } else { "NotReady" }.to_owned();
        }
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        let lost = status["reason"] == "NodeLost";
        if lost {
            reason = "Unknown".to_owned();
        } else if !["Succeeded", "Failed"].contains(&text(&status["phase"])) {
            reason = "Terminating".to_owned();
        }
    }
    let restarts = match last.filter(|_| restarts > 0) {
        Some(last) => format!("{restarts} ({} ago)", age::since(&last.into(), now)),
        None => restarts.to_string(),
    };
    Summary { ready: format!("{ready}/{total}"), status: reason, restarts }
}

/// Why a container is no longer running.
fn ended(terminated: &Value) -> String {
    let (reason, signal) = (text(&terminated["reason"]), terminated["signal"].as_i64().unwrap_or(0));
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0))
    }
}

fn first(texts: &[&str]) -> String {
    texts.iter().find(|text| !text.is_empty()).copied().unwrap_or_default().to_owned()
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
