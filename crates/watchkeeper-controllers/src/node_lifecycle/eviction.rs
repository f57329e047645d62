//! Eviction by taint: Pods that do not tolerate a `NoExecute` taint of their node are deleted, at once or after a time.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition, PodStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::record::EventType;
use watchkeeper::{Object, ObjectName};

use super::{node_of, pods_on};
use crate::now;
use crate::pods::{node_name, since_then};
use crate::scheduler::fit::tolerates;

/// The condition of Pods that are deleted because of their node.
const TARGET: &str = "DisruptionTarget";

/// Registers the controller that evicts Pods by taint.
pub(super) fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let on_node = pods_on(manager);
    Controller::<Pod>::new(manager)
        .named("taint-eviction")
        .component("taint-eviction-controller")
        .when(|old, new| node_of(old) != node_of(new))
        .watches(Watch::<Node>::new().when(|old, new| evicting(old) != evicting(new)), on_node)
        .reconcile(reconcile)
}

fn evicting(node: &Object<Node>) -> Vec<Taint> {
    node.get().map(|node| no_execute(&node)).unwrap_or_default()
}

fn no_execute(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

async fn reconcile(pod: Arc<Pod>, cx: Context<Pod>) -> Result<Action, Error> {
    let name = node_name(&pod);
    if name.is_empty() || pod.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    let Some(node) = cx.get_at::<Node>(&ObjectName::cluster(name))? else { return Ok(Action::done()) };
    match time_left(&pod, &no_execute(&node), cx.env().clock.wall()) {
        None => Ok(Action::done()),
        Some(left) if !left.is_zero() => Ok(Action::requeue_after(left)),
        Some(_) => {
            let message = format!("Marking for deletion Pod {}", cx.key());
            cx.event(EventType::Normal, "TaintManagerEviction", &message);
            let at = Time(now(&cx));
            cx.status_as::<PodStatus>(|status| say_why(status, at)).await?;
            let name = cx.key().name().to_owned();
            cx.delete::<Pod>(&name).await?;
            Ok(Action::done())
        }
    }
}

/// Sets the condition that says why a Pod is deleted, for controllers that count its failure.
fn say_why(status: &mut PodStatus, at: Time) {
    let conditions = status.conditions.get_or_insert_default();
    if conditions.iter().any(|condition| condition.type_ == TARGET && condition.status == "True") {
        return;
    }
    conditions.retain(|condition| condition.type_ != TARGET);
    conditions.push(PodCondition {
        type_: TARGET.to_owned(),
        status: "True".to_owned(),
        reason: Some("DeletionByTaintManager".to_owned()),
        message: Some("Taint manager: deleting due to NoExecute taint".to_owned()),
        last_transition_time: Some(at),
        ..PodCondition::default()
    });
}

/// How long a Pod stays on a node with these taints; none for ever.
fn time_left(pod: &Pod, taints: &[Taint], now: Timestamp) -> Option<Duration> {
    let tolerations = pod.spec.as_ref()?.tolerations.as_deref().unwrap_or_default();
    let mut least = None;
    for taint in taints {
        let mut matching = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).peekable();
        if matching.peek().is_none() {
            return Some(Duration::ZERO);
        }
        let Some(seconds) = matching.filter_map(|toleration| toleration.toleration_seconds).min() else {
            continue;
        };
        let since = taint.time_added.as_ref().map_or(now, |added| added.0);
        let whole = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let left = whole.saturating_sub(since_then(since, now));
        least = Some(least.map_or(left, |least: Duration| least.min(left)));
    }
    least
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn left(tolerations: Value) -> Option<u64> {
        let pod: Pod =
            serde_json::from_value(json!({"spec": {"containers": [], "tolerations": tolerations}})).unwrap();
        let taint = json!({"key": "down", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        time_left(&pod, &[serde_json::from_value(taint).unwrap()], now).map(|left| left.as_secs())
    }

    #[test]
    fn an_evicted_pod_says_why_once() {
        let at = |second| Time(Timestamp::from_second(second).unwrap());
        let mut status = PodStatus::default();
        say_why(&mut status, at(1));
        let said = status.clone();
        say_why(&mut status, at(2));
        assert_eq!(status, said);
        assert_eq!(said.conditions.unwrap()[0].reason.as_deref(), Some("DeletionByTaintManager"));
    }

    #[test]
    fn a_pod_stays_for_as_long_as_it_tolerates_a_taint() {
        let exists =
            |seconds: Value| json!({"key": "down", "operator": "Exists", "tolerationSeconds": seconds});
        assert_eq!(left(json!([])), Some(0));
        assert_eq!(left(json!([exists(json!(300))])), Some(240));
        assert_eq!(left(json!([exists(json!(30))])), Some(0));
        assert_eq!(left(json!([exists(Value::Null)])), None);
        assert_eq!(time_left(&Pod::default(), &[], Timestamp::UNIX_EPOCH), None);
    }
}
