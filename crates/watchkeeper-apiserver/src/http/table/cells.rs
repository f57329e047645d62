//! What stands in a cell? The small texts that the columns of many kinds share.

use serde_json::Value;

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text, or another where it is empty.
pub(crate) fn or<'a>(text: &'a str, instead: &'a str) -> &'a str {
    if text.is_empty() { instead } else { text }
}

pub(crate) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

pub(crate) fn count(value: &Value) -> usize {
    value.as_array().map_or_else(|| value.as_object().map_or(0, serde_json::Map::len), Vec::len)
}

/// A number or a text, as it would be typed.
pub(crate) fn shown(value: &Value, absent: &str) -> String {
    match value {
        Value::Null => absent.to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `a=b,c=d`, or `<none>`.
pub(crate) fn labels(map: &Value) -> String {
    let pairs = map.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", text(value)));
    let pairs: Vec<_> = pairs.collect();
    or(&pairs.join(","), "<none>").to_owned()
}

/// A label selector as a query has it, or `<none>`.
pub(crate) fn selector(selector: &Value) -> String {
    or(&crate::verbs::scale::selector_text(selector), "<none>").to_owned()
}

/// The names or images of a template's containers.
pub(crate) fn containers(template: &Value, field: &str) -> String {
    let containers = list(&template["spec"]["containers"]).iter();
    containers.map(|container| text(&container[field])).collect::<Vec<_>>().join(",")
}

/// Access modes of volumes by their initials.
pub(crate) fn access_modes(modes: &Value) -> String {
    let short = |mode: &Value| match text(mode) {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    list(modes).iter().map(short).filter(|mode| !mode.is_empty()).collect::<Vec<_>>().join(",")
}

/// The first few of a list, and how many more there are.
pub(crate) fn some(texts: &[String], most: usize) -> String {
    match texts.len() {
        0 => "<none>".to_owned(),
        count if count > most => format!("{} + {} more...", texts[..most].join(","), count - most),
        _ => texts.join(","),
    }
}

/// The addresses that a load balancer has given.
pub(crate) fn balancer(status: &Value) -> String {
    let ingress = list(&status["loadBalancer"]["ingress"]).iter();
    let addresses = ingress.map(|entry| or(text(&entry["ip"]), text(&entry["hostname"])).to_owned());
    addresses.collect::<Vec<_>>().join(",")
}
