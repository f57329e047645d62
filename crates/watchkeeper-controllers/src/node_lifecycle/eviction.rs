//! Eviction by taint: Pods that do not tolerate a `NoExecute` taint of their node are deleted, at once or after a time.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::record::EventType;
use watchkeeper::{Object, ObjectName};

use super::{node_of, pods_on};
use crate::pods::{node_name, since_then};
use crate::scheduler::fit::tolerates;

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
            let name = cx.key().name().to_owned();
            cx.delete::<Pod>(&name).await?;
            Ok(Action::done())
        }
    }
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
