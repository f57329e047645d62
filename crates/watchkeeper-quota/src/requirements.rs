//! The requests and limits of a Pod as a whole.

use serde_json::Value;

use crate::amounts::{Amounts, add, amounts, raise};

/// Which requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Side {
    /// What is reserved for the Pod.
    Requests,
    /// What the Pod may use at most.
    Limits,
}

impl Side {
    /// The name of the field.
    pub fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// The requests or limits of a container.
pub fn of_container(container: &Value, side: Side) -> Amounts {
    amounts(&container["resources"][side.field()])
}

/// The requests or limits of a Pod with this spec: of its containers together, or of the init container that needs more, and its
/// overhead. Requirements of the Pod itself come first.
pub fn of_pod(spec: &Value, side: Side) -> Amounts {
    let mut total = Amounts::new();
    for container in list(&spec["containers"]) {
        add(&mut total, &of_container(container, side));
    }
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in list(&spec["initContainers"]) {
        let own = of_container(container, side);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut most, &sidecars);
        } else {
            let mut needed = sidecars.clone();
            add(&mut needed, &own);
            raise(&mut most, &needed);
        }
    }
    raise(&mut total, &most);
    total.extend(amounts(&spec["resources"][side.field()]));
    let mut overhead = amounts(&spec["overhead"]);
    if side == Side::Limits {
        overhead.retain(|name, _| total.contains_key(name));
    }
    add(&mut total, &overhead);
    total
}

/// The containers of a Pod with this spec, and then its init containers.
pub fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    list(&spec["containers"]).iter().chain(list(&spec["initContainers"]))
}

/// Whether no container of a Pod with this spec has requests or limits of CPU or memory.
pub fn is_best_effort(spec: &Value) -> bool {
    let is_free = |of: &Value| {
        [Side::Requests, Side::Limits].iter().all(|side| {
            let amounts = amounts(&of["resources"][side.field()]);
            ["cpu", "memory"].iter().all(|name| amounts.get(*name).is_none_or(|amount| amount.is_zero()))
        })
    };
    is_free(spec) && containers(spec).all(is_free)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::shown;

    fn container(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn a_pod_needs_what_its_containers_need_together_or_one_before_them() {
        let mut spec = json!({"containers": [container("1"), container("500m")]});
        assert_eq!(shown(&of_pod(&spec, Side::Requests)), "cpu=1500m");
        spec["initContainers"] = json!([container("2")]);
        assert_eq!(shown(&of_pod(&spec, Side::Requests)), "cpu=2");
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = json!("Always");
        spec["initContainers"] = json!([sidecar, container("2")]);
        assert_eq!(shown(&of_pod(&spec, Side::Requests)), "cpu=3");
        spec["overhead"] = json!({"cpu": "100m", "memory": "1Mi"});
        assert_eq!(shown(&of_pod(&spec, Side::Requests)), "cpu=3100m,memory=1Mi");
        assert_eq!(shown(&of_pod(&spec, Side::Limits)), "");
        spec["resources"] = json!({"requests": {"cpu": "4"}});
        assert_eq!(shown(&of_pod(&spec, Side::Requests)), "cpu=4100m,memory=1Mi");
    }

    #[test]
    fn a_pod_without_requirements_of_cpu_and_memory_is_best_effort() {
        assert!(is_best_effort(&json!({"containers": [{"resources": {"limits": {"a.example/b": "1"}}}]})));
        assert!(is_best_effort(&json!({"containers": [container("0")]})));
        assert!(!is_best_effort(&json!({"containers": [container("1")]})));
        assert!(!is_best_effort(&json!({"containers": [{}], "resources": {"limits": {"memory": "1"}}})));
    }
}
