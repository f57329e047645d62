//! Validation rules are checked against the schema when a definition is written.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::*;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const AT: &str = "spec.validation.openAPIV3Schema.x-kubernetes-validations[0]";

/// A schema with a field of each kind of type.
fn schema() -> Value {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let elements = json!({"type": "object", "properties": {"k": {"type": "string", "maxLength": 9}}});
    json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "s": {"type": "string", "maxLength": 9}, "d": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "l": {"type": "array", "maxItems": 9, "items": elements},
        "m": {"type": "object", "maxProperties": 9, "additionalProperties": {"type": "integer"}},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "open": anything,
        "port": {"x-kubernetes-int-or-string": true},
        "a-b": {"type": "boolean"}, "namespace": {"type": "string", "maxLength": 9}}})
}

/// Creates a definition with this rule in a dry run; returns the code and the causes.
async fn judge(server: &Server, schema: &Value, rule: &Value) -> (u16, Vec<Value>) {
    let mut schema = schema.clone();
    schema["x-kubernetes-validations"] = json!([rule]);
    let definition = json!({"metadata": {"name": "bars.wktest.io"}, "spec": {
        "group": "wktest.io", "scope": "Namespaced", "names": {"kind": "Bar", "plural": "bars"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let (code, status) = call(server, "POST", &format!("{DEFINITIONS}?dryRun=All"), &definition).await;
    (code, status["details"]["causes"].as_array().cloned().unwrap_or_default())
}

/// Returns the message of the only cause, and asserts where it is.
async fn refused(server: &Server, schema: &Value, rule: &Value, field: &str) -> String {
    let (code, causes) = judge(server, schema, rule).await;
    assert_eq!(code, 422, "{rule}");
    assert_eq!(causes.len(), 1, "{rule}: {causes:?}");
    assert_eq!(causes[0]["field"], format!("{AT}.{field}"), "{rule}: {causes:?}");
    causes[0]["message"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_unknown_field_is_shown_where_it_stands() {
    let server = Server::start().await;
    let told =
        async |rule: &str| refused(&server, &schema(), &json!({"rule": rule, "message": "m"}), "rule").await;
    let shown = r#"{"Rule":"self.x \u003e 0","Message":"m","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}"#;
    let problem = "compilation failed: ERROR: <input>:1:5: undefined field 'x'\n | self.x > 0\n | ....^";
    assert_eq!(told("self.x > 0").await, format!("Invalid value: {shown}: {problem}"));
    let second = told("self.s == 'ä' &&\n  self.l.all(e, e.k != '' && e.z)").await;
    let mark = "ERROR: <input>:2:31: undefined field 'z'\n |   self.l.all(e, e.k != '' && e.z)\n | ..............................^";
    assert!(second.contains(mark), "{second}");
    let both = told("self.x == self.y").await;
    assert!(
        both.contains(":5: undefined field 'x'\n") && both.contains(":15: undefined field 'y'\n"),
        "{both}"
    );
    for (rule, field) in [
        ("has(self.metadata.labels)", "labels"),
        ("self.any == 1", "any"),
        ("self.open.x == 1", "x"),
        ("self.namespace == ''", "namespace"),
        ("has(self.x)", "x"),
    ] {
        let message = told(rule).await;
        assert!(message.contains(&format!("undefined field '{field}'")), "{rule}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_the_wrong_type_is_refused() {
    let server = Server::start().await;
    for (rule, problem) in [
        ("self.n == 'a'", "1:8: found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.s.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
        ("self.n.k", "type 'int' does not support field selection"),
        ("self.n + 1", "cel expression must evaluate to a bool"),
        ("foo == 1", "1:1: undeclared reference to 'foo' (in container '')"),
        ("frob(self.n)", "undeclared reference to 'frob' (in container '')"),
        ("self.n in ['a']", "found no matching overload for '@in' applied to '(int, list(string))'"),
        ("self.n in [1, 'a']", "expected type 'int' but found 'string'"),
        ("self.s.all(c, c != '')", "expression of type 'string' cannot be range of a comprehension"),
        ("self.n == 1.0", "applied to '(int, double)'"),
        ("self.n == null", "applied to '(int, null)'"),
        ("self.n >", "Syntax error"),
    ] {
        let message = refused(&server, &schema(), &json!({"rule": rule}), "rule").await;
        assert!(message.contains(problem), "{rule}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_right_or_unknown_passes() {
    let server = Server::start().await;
    for rule in [
        "self.n > 1 && self.n < 2.5 && self.d >= self.n",
        "self.port == 1 || self.port == 'a' || self.port.x.y == 2",
        "self.a__dash__b && self.__namespace__ != ''",
        "self.metadata.name == self.kind + self.apiVersion",
        "self.l.map(e, e.k).filter(k, k != '').exists(k, k.startsWith('a')) && self.l.exists_one(e, e.k == 'b')",
        "self.m.all(k, self.m[k] > 0) && 'a' in self.m && size(self.m) == self.l.size() && self.m.a > 1",
        "self.at > timestamp('2024-01-01T00:00:00Z') && self.at - self.at < duration('1h') && self.at.getFullYear() > 2000",
        "self.l[0].k == oldSelf.l[0].k && self.l == oldSelf.l",
        "quantity(self.s).isGreaterThan(quantity('1')) && isIP(self.s) && cidr(self.s).containsIP(ip(self.s))",
        "type(self.n) == int && string(self.n) == self.s && url(self.s).getQuery()['a'][0] == ''",
        "[].all(x, x == 1) && {} == {'a': 1} && (self.n == 1 ? [] : ['a']).size() == 0",
        "sets.contains(['a'], [self.s]) && optional.of(self.s).orValue('a') == 'a'",
        "dyn(self.n) == 'a' && self.s.split(',').join('') == self.s.lowerAscii() && self.s.find('[0-9]+') == '1'",
        "self.s.matches('^a$') ? self.at == null : !has(self.open)",
        "semver(self.s).isLessThan(semver('1.2.3')) && !format.dns1123Label().validate(self.s).hasValue()",
    ] {
        let (code, causes) = judge(&server, &schema(), &json!({"rule": rule})).await;
        assert_eq!(code, 201, "{rule}: {causes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_old_self_may_be_optional_and_a_message_is_text() {
    let server = Server::start().await;
    let schema = schema();
    let rule = "!oldSelf.hasValue() || oldSelf.value().n == self.n || oldSelf.orValue(self).n == 1";
    let (code, causes) = judge(&server, &schema, &json!({"rule": rule, "optionalOldSelf": true})).await;
    assert_eq!(code, 201, "{causes:?}");
    let told = async |rule: Value, field: &str| refused(&server, &schema, &rule, field).await;
    let message = told(json!({"rule": "oldSelf.n.hasValue()"}), "rule").await;
    assert!(message.contains("found no matching overload for 'hasValue' applied to 'int.()'"), "{message}");
    let message =
        told(json!({"rule": "true", "messageExpression": "self.n == 1"}), "messageExpression").await;
    assert!(message.contains("messageExpression must evaluate to a string"), "{message}");
    let message = told(json!({"rule": "true", "messageExpression": "self.x"}), "messageExpression").await;
    assert!(
        message.contains(": messageExpression compilation failed: ERROR: <input>:1:5: undefined"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rule_needs_a_text_and_messages_are_one_line() {
    let server = Server::start().await;
    for (rule, field, problem) in [
        (json!({"rule": " "}), "rule", "Required value: rule is not specified"),
        (
            json!({"rule": "true", "message": " "}),
            "message",
            "Invalid value: \" \": message must be non-empty if specified",
        ),
        (
            json!({"rule": "true", "message": "a\nb"}),
            "message",
            "Invalid value: \"a\\nb\": message must not contain line breaks",
        ),
        (json!({"rule": "true\n"}), "", ""),
        (
            json!({"rule": "true\n&& true"}),
            "message",
            "Required value: message must be specified if rule contains line breaks",
        ),
        (
            json!({"rule": "true", "reason": "FieldValueOdd"}),
            "reason",
            "Unsupported value: \"FieldValueOdd\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
        ),
    ] {
        if field.is_empty() {
            assert_eq!(judge(&server, &schema(), &rule).await.0, 201, "{rule}");
        } else {
            assert_eq!(refused(&server, &schema(), &rule, field).await, problem);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn elements_without_keys_have_no_old_self() {
    let server = Server::start().await;
    let list = |keys: Value| {
        let rules = json!([{"rule": "self.k == oldSelf.k"}]);
        let items = json!({"type": "object", "required": ["k"], "x-kubernetes-validations": rules,
            "properties": {"k": {"type": "string", "maxLength": 9}}});
        let mut list = json!({"type": "array", "maxItems": 9, "items": items});
        list.as_object_mut().unwrap().append(&mut keys.as_object().unwrap().clone());
        json!({"type": "object", "properties": {"l": list}})
    };
    let rule = json!({"rule": "true"});
    let keys = json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]});
    assert_eq!(judge(&server, &list(keys), &rule).await.0, 201);
    let (code, causes) = judge(&server, &list(json!({})), &rule).await;
    assert_eq!(code, 422, "{causes:?}");
    let at = "spec.validation.openAPIV3Schema.properties[l]";
    let problem = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {at}");
    assert_eq!(causes[0]["message"], format!("Invalid value: \"self.k == oldSelf.k\": {problem}"));
    assert_eq!(causes[0]["field"], format!("{at}.items.x-kubernetes-validations[0].rule"));
}

#[tokio::test(start_paused = true)]
async fn an_optional_old_self_has_no_value_when_the_field_is_new() {
    let server = Server::start().await;
    let changed = json!({"rule": "!oldSelf.hasValue() || self != oldSelf.value()", "optionalOldSelf": true});
    let field = json!({"type": "string", "maxLength": 9, "x-kubernetes-validations": [changed]});
    let keyed = json!({"type": "object", "properties": {"field": field}});
    let schema = json!({"type": "object", "properties": {
        "field": field, "map": {"type": "object", "maxProperties": 9, "additionalProperties": keyed}}});
    let definition = json!({"metadata": {"name": "bars.wktest.io"}, "spec": {
        "group": "wktest.io", "scope": "Namespaced", "names": {"kind": "Bar", "plural": "bars"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    post(&server, DEFINITIONS, &definition).await;
    let bars = "/apis/wktest.io/v1/namespaces/wktest/bars";
    server.until("served", async || (get(&server, bars).await.0 == 200).then_some(())).await;
    let bar = |text: &str| {
        json!({"apiVersion": "wktest.io/v1", "kind": "Bar", "metadata": {"name": "one"},
            "field": text, "map": {"key": {"field": text}}})
    };
    post(&server, bars, &bar("a")).await;
    let own = format!("{bars}/one");
    let (code, status) = patch(&server, &own, MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(code, 422, "{status}");
    let fields: Vec<_> =
        status["details"]["causes"].as_array().unwrap().iter().map(|it| &it["field"]).collect();
    assert_eq!(fields, ["field", "map[key].field"]);
    let message = "Invalid value: \"a\": failed rule: !oldSelf.hasValue() || self != oldSelf.value()";
    assert_eq!(status["details"]["causes"][0]["message"], message);
    let change = json!({"field": "b", "map": {"key": {"field": "b"}, "other": {"field": "c"}}});
    let (code, answer) = patch(&server, &own, MERGE, &change).await;
    assert_eq!(code, 200, "{answer}");
}
