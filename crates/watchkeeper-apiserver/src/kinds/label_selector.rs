//! Label selectors of objects (`matchLabels`, `matchExpressions`) as text.

use serde_json::Value;

/// Formats a label selector object as a query string.
pub(crate) fn selector_text(selector: &Value) -> String {
    let plain = selector.get("matchLabels").or_else(|| {
        // The selector of a ReplicationController is a plain map of labels.
        selector.get("matchExpressions").is_none().then_some(selector)
    });
    let labels = plain.and_then(Value::as_object).into_iter().flatten();
    let mut terms: Vec<_> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten();
        let values: Vec<_> = values.filter_map(Value::as_str).collect();
        terms.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.sort();
    terms.join(",")
}

/// Returns whether a label selector object matches labels; one that is absent or empty matches all.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let mut plain = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    plain.all(|(key, value)| label(key) == Some(value.as_str().unwrap_or_default()))
        && expressions.all(|expression| {
            let found = label(expression["key"].as_str().unwrap_or_default());
            let among = |found: &str| {
                expression["values"].as_array().is_some_and(|values| values.iter().any(|it| it == found))
            };
            match expression["operator"].as_str() {
                Some("In") => found.is_some_and(among),
                Some("NotIn") => !found.is_some_and(among),
                Some("DoesNotExist") => found.is_none(),
                _ => found.is_some(),
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_selects_labels() {
        let selector = |operator: &str| {
            json!({"matchLabels": {"a": "b"}, "matchExpressions": [
                {"key": "c", "operator": operator, "values": ["1", "2"]}]})
        };
        for (labels, expected) in [
            (json!({"a": "b", "c": "1"}), [true, false, true, false]),
            (json!({"a": "b", "c": "3"}), [false, true, true, false]),
            (json!({"a": "b"}), [false, true, false, true]),
            (json!({"c": "1"}), [false; 4]),
            (json!(null), [false; 4]),
        ] {
            let found = ["In", "NotIn", "Exists", "DoesNotExist"].map(|it| selects(&selector(it), &labels));
            assert_eq!(found, expected, "{labels}");
        }
        assert!(selects(&json!({}), &json!(null)) && selects(&json!(null), &json!({"a": "b"})));
    }

    #[test]
    fn a_selector_is_printed_as_a_query_has_it() {
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["1", "2"]}, {"key": "d", "operator": "DoesNotExist"}]});
        assert_eq!(selector_text(&selector), "!d,a=b,c in (1,2)");
        assert_eq!(selector_text(&json!({"app": "x"})), "app=x");
    }
}
