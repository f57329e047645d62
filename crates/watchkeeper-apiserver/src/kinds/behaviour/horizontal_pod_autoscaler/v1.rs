//! The view `autoscaling/v1`: a target for the CPU, and annotations with everything that it has no fields for.

use serde_json::{Map, Value, json};

use crate::kinds::cells::{list, text};
use crate::kinds::meta;
use crate::types;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// Annotations of tolerances, which only the fields of `autoscaling/v2` say.
const TOLERANCES: [&str; 2] = [
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// Percent of the requested CPU, where a client gives no metric.
const DEFAULT_UTILIZATION: i64 = 80;

/// The source of each type of metric.
const SOURCES: [(&str, &str); 5] = [
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
    ("Pods", "pods"),
    ("Object", "object"),
    ("External", "external"),
];

/// Converts a stored object into `autoscaling/v1`.
pub(super) fn from_stored(object: &mut Value) {
    let (spec, status) = (object["spec"].take(), object["status"].take());
    let is_cpu = |metric: &&Value| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
    let utilization = |metric: &Value| metric["resource"]["target"].get("averageUtilization").cloned();
    let cpu = list(&spec["metrics"]).iter().filter(is_cpu).find_map(utilization);
    let others = list(&spec["metrics"]).iter().filter(|it| !is_cpu(it) || utilization(it).is_none());
    let current = list(&status["currentMetrics"]).iter().filter(is_cpu);
    let current_cpu =
        current.filter_map(|metric| metric["resource"]["current"].get("averageUtilization").cloned()).next();
    drop_annotations(object);
    annotate(object, METRICS, &others.map(|metric| to_v1(metric, "target")).collect());
    let currents = list(&status["currentMetrics"]).iter().map(|metric| to_v1(metric, "current"));
    annotate(object, CURRENT_METRICS, &currents.collect());
    annotate(object, BEHAVIOR, &recased(&spec["behavior"], char::to_ascii_uppercase));
    annotate(object, CONDITIONS, &status["conditions"]);
    object["spec"] = spec;
    object["status"] = status;
    for (part, names, field, value) in [
        ("spec", ["metrics", "behavior"], "targetCPUUtilizationPercentage", cpu),
        ("status", ["currentMetrics", "conditions"], "currentCPUUtilizationPercentage", current_cpu),
    ] {
        let Some(map) = object[part].as_object_mut() else { continue };
        names.iter().for_each(|name| drop(map.remove(*name)));
        map.extend(value.map(|value| (field.to_owned(), value)));
    }
    normalize("autoscaling/v1", object);
}

/// Converts an object of `autoscaling/v1` into its stored form. Annotations that do not fit are ignored.
pub(super) fn to_stored(object: &mut Value) {
    let kept = [METRICS, CURRENT_METRICS, BEHAVIOR, CONDITIONS].map(|name| annotation(object, name));
    drop_annotations(object);
    let plain = stored_with(object.clone(), [const { Value::Null }; 4]).unwrap_or_default();
    *object = stored_with(object.take(), kept).unwrap_or(plain);
}

/// The stored form, with the content of the annotations; `None` if it is not valid.
fn stored_with(mut object: Value, kept: [Value; 4]) -> Option<Value> {
    let [metrics, current_metrics, behavior, conditions] = kept;
    let mut take = |part: &str, field: &str| object[part].as_object_mut().and_then(|map| map.remove(field));
    let cpu = take("spec", "targetCPUUtilizationPercentage");
    let current_cpu = take("status", "currentCPUUtilizationPercentage");
    let mut all: Vec<_> = list(&metrics).iter().map(|metric| from_v1(metric, "target")).collect();
    if cpu.is_some() || all.is_empty() {
        let utilization = cpu.unwrap_or_else(|| DEFAULT_UTILIZATION.into());
        let target = json!({"type": "Utilization", "averageUtilization": utilization});
        all.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    object["spec"]["metrics"] = all.into();
    if behavior.is_object() {
        object["spec"]["behavior"] = recased(&behavior, char::to_ascii_lowercase);
    }
    let current: Vec<_> = match (current_metrics, current_cpu) {
        (Value::Array(all), _) => all.iter().map(|metric| from_v1(metric, "current")).collect(),
        (_, Some(utilization)) => {
            let current = json!({"averageUtilization": utilization});
            vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": current}})]
        }
        _ => Vec::new(),
    };
    if !current.is_empty() {
        object["status"]["currentMetrics"] = current.into();
    }
    if conditions.is_array() {
        object["status"]["conditions"] = conditions;
    }
    object["apiVersion"] = "autoscaling/v2".into();
    let id = types::of_kind("autoscaling/v2", "HorizontalPodAutoscaler")?;
    types::normalize::normalize(id, &mut object).ok()?;
    Some(object)
}

fn normalize(api_version: &str, object: &mut Value) {
    if let Some(id) = types::of_kind(api_version, "HorizontalPodAutoscaler") {
        // Each field was converted from one of the same type, so normalization cannot fail.
        let _fits = types::normalize::normalize(id, object);
    }
}

/// Converts a metric into `autoscaling/v1`; `values` holds its numbers: `target` or `current`.
fn to_v1(metric: &Value, values: &str) -> Value {
    let Some((sort, name)) = source(metric) else { return metric.clone() };
    let (found, numbers) = (&metric[name], &metric[name][values]);
    let mut fields: Vec<(String, &Value)> = match sort {
        "Resource" | "ContainerResource" => vec![
            ("name".to_owned(), &found["name"]),
            ("container".to_owned(), &found["container"]),
            (format!("{values}AverageUtilization"), &numbers["averageUtilization"]),
        ],
        _ => vec![("metricName".to_owned(), &found["metric"]["name"])],
    };
    let (average, value) = (&numbers["averageValue"], &numbers["value"]);
    let selector = &found["metric"]["selector"];
    match sort {
        "Object" => fields.extend([
            ("target".to_owned(), &found["describedObject"]),
            (format!("{values}Value"), value),
            ("averageValue".to_owned(), average),
            ("selector".to_owned(), selector),
        ]),
        "External" => fields.extend([
            ("metricSelector".to_owned(), selector),
            (format!("{values}Value"), value),
            (format!("{values}AverageValue"), average),
        ]),
        _ => fields.extend([("selector".to_owned(), selector), (format!("{values}AverageValue"), average)]),
    }
    json!({"type": sort, name: object_of(fields)})
}

/// Converts a metric from `autoscaling/v1`, the reverse of [`to_v1`].
fn from_v1(metric: &Value, values: &str) -> Value {
    let Some((sort, name)) = source(metric) else { return metric.clone() };
    let found = &metric[name];
    let field = |suffix: &str| &found[format!("{values}{suffix}")];
    let utilization = field("AverageUtilization");
    let average = if sort == "Object" { &found["averageValue"] } else { field("AverageValue") };
    // An object with an average has a value of zero as well, as the field is no pointer in v1.
    let is_filler = !average.is_null() && field("Value") == "0";
    let value = if is_filler { &Value::Null } else { field("Value") };
    let mut numbers = object_of([
        ("averageUtilization".to_owned(), utilization),
        ("averageValue".to_owned(), average),
        ("value".to_owned(), value),
    ]);
    if values == "target" {
        let kind = match sort {
            _ if !utilization.is_null() => "Utilization",
            "External" if !value.is_null() => "Value",
            "Object" if average.is_null() => "Value",
            _ => "AverageValue",
        };
        numbers["type"] = kind.into();
    }
    let selector = if sort == "External" { &found["metricSelector"] } else { &found["selector"] };
    let identifier =
        object_of([("name".to_owned(), &found["metricName"]), ("selector".to_owned(), selector)]);
    let mut fields = vec![(values.to_owned(), &numbers)];
    match sort {
        "Resource" | "ContainerResource" => {
            fields
                .extend([("name".to_owned(), &found["name"]), ("container".to_owned(), &found["container"])]);
        }
        _ => fields.push(("metric".to_owned(), &identifier)),
    }
    if sort == "Object" {
        fields.push(("describedObject".to_owned(), &found["target"]));
    }
    json!({"type": sort, name: object_of(fields)})
}

/// The type of a metric, and the field of its source.
fn source(metric: &Value) -> Option<(&'static str, &'static str)> {
    SOURCES.into_iter().find(|(sort, name)| metric["type"] == *sort && metric[*name].is_object())
}

/// An object with the fields that have a value.
fn object_of<'a>(fields: impl IntoIterator<Item = (String, &'a Value)>) -> Value {
    let present = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(present.map(|(name, value)| (name, value.clone())).collect())
}

/// Changes the first letter of all field names: the real server writes the names of Go into this annotation.
fn recased(value: &Value, case: fn(&char) -> char) -> Value {
    match value {
        Value::Object(map) => {
            let field = |(name, value): (&String, &Value)| {
                let mut letters = name.chars();
                let first = letters.next().map(|first| case(&first));
                (first.into_iter().chain(letters).collect(), recased(value, case))
            };
            Value::Object(map.iter().map(field).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| recased(item, case)).collect(),
        other => other.clone(),
    }
}

fn annotation(object: &Value, name: &str) -> Value {
    serde_json::from_str(text(&object["metadata"]["annotations"][name])).unwrap_or_default()
}

/// Sets an annotation to the JSON of a value that is not empty.
fn annotate(object: &mut Value, name: &str, value: &Value) {
    let is_empty = match value {
        Value::Array(items) => items.is_empty(),
        other => !other.is_object(),
    };
    if !is_empty {
        let annotations = meta::metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
        annotations[name] = value.to_string().into();
    }
}

fn drop_annotations(object: &mut Value) {
    let metadata = meta::metadata_mut(object);
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    for name in [METRICS, CURRENT_METRICS, BEHAVIOR, CONDITIONS].iter().chain(&TOLERANCES) {
        annotations.remove(*name);
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::registry::Registry;

    fn views() -> (Registry, Value) {
        let quantity = |value: &str| json!({"type": "AverageValue", "averageValue": value});
        let metric = json!({"name": "hits", "selector": {"matchLabels": {"a": "b"}}});
        let metrics = json!([
            {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"}, "metric": metric,
                "target": {"type": "Value", "value": "7"}}},
            {"type": "Pods", "pods": {"metric": {"name": "load"}, "target": quantity("3")}},
            {"type": "External", "external": {"metric": metric, "target": quantity("4")}},
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
                "target": {"type": "Utilization", "averageUtilization": 60}}},
            {"type": "Resource", "resource": {"name": "memory", "target": quantity("1Gi")}},
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
        ]);
        let rules = json!({"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}]});
        let mut stored = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a", "annotations": {"own": "1"}},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 2, "maxReplicas": 5,
                "metrics": metrics, "behavior": {"scaleDown": rules}},
            "status": {"desiredReplicas": 3,
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "current": {"averageUtilization": 40, "averageValue": "10m"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True"}]},
        });
        normalize("autoscaling/v2", &mut stored);
        (Registry::new(), stored)
    }

    #[test]
    fn an_autoscaler_has_two_views_and_loses_nothing() {
        let (registry, stored) = views();
        let old = registry.find("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        let seen = old.to_served(stored.clone());
        assert_eq!(seen["apiVersion"], "autoscaling/v1");
        assert_eq!(seen["spec"]["targetCPUUtilizationPercentage"], 50);
        assert_eq!(seen["status"]["currentCPUUtilizationPercentage"], 40);
        assert_eq!((&seen["spec"]["metrics"], &seen["spec"]["behavior"]), (&Value::Null, &Value::Null));
        let annotations = seen["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.len(), 5, "{annotations:?}");
        let behavior = annotations[BEHAVIOR].as_str().unwrap();
        assert!(behavior.contains(r#""ScaleDown":{"Policies":[{"PeriodSeconds":5"#), "{behavior}");
        assert_eq!(old.to_storage(seen), stored);
    }

    #[test]
    fn an_autoscaler_without_metrics_watches_the_cpu() {
        let (registry, _) = views();
        let old = registry.find("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        let object = |metrics: &str| {
            json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a", "annotations": {METRICS: metrics}}, "spec": {"maxReplicas": 1}})
        };
        for broken in
            ["", "{", "[]", r#"[{"type": 5}]"#, r#"[{"type":"Pods","pods":{"targetAverageValue":"much"}}]"#]
        {
            let stored = old.to_storage(object(broken));
            let target = &stored["spec"]["metrics"][0]["resource"]["target"];
            assert_eq!(target["averageUtilization"], DEFAULT_UTILIZATION, "{broken}: {stored}");
            assert_eq!(stored["metadata"].get("annotations"), None, "{broken}");
            assert_eq!(stored["apiVersion"], "autoscaling/v2");
        }
    }
}
