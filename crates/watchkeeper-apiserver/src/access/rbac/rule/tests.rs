//! Table tests of single rules.

use serde_json::json;

use super::*;
use crate::access::attributes::Resource;

/// A rule as `verbs / groups / resources / names`, or `verbs / urls`; lists are separated by commas.
fn rule(text: &str) -> Rule {
    let mut parts = text.split(" / ").map(|part| -> Vec<String> {
        let words = part.split(',').map(|word| if word == "core" { "" } else { word });
        words.map(str::to_owned).collect()
    });
    let verbs = parts.next().unwrap_or_default();
    let second = parts.next().unwrap_or_default();
    if second.iter().any(|url| url.starts_with('/')) || parts.clone().next().is_none() {
        return Rule { verbs, urls: second, ..Rule::default() };
    }
    let (resources, names) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    Rule { verbs, groups: second, resources, names, urls: Vec::new() }
}

/// A request as `verb group resource[/subresource] [name]`, or `verb /path`.
fn allows(text: &str, asked: &str) -> bool {
    let words: Vec<_> = asked.split(' ').collect();
    let object = match words[1..] {
        [path] => Object::Path(path),
        [group, resource, ref name @ ..] => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let name = name.first().copied().unwrap_or_default();
            let group = if group == "core" { "" } else { group };
            Object::Resource(Resource { group, resource, subresource, namespace: "", name })
        }
        [] => panic!("{asked}"),
    };
    rule(text).allows(&Attributes { verb: words[0], object })
}

#[test]
fn a_rule_allows_what_all_its_fields_match() {
    let cases = [
        ("get,list / core / pods", "get core pods x", true),
        ("get,list / core / pods", "list core pods", true),
        ("get,list / core / pods", "watch core pods", false),
        ("get / core / pods", "get apps pods", false),
        ("get / core / pods", "get core pods/log x", false),
        ("get / core / pods/log", "get core pods/log x", true),
        ("get / core / pods/log", "get core pods x", false),
        ("get / core / */log", "get core pods/log x", true),
        ("get / core / */log", "get core pods/status x", false),
        ("get / core / */log", "get core pods x", false),
        ("get / core / *", "get core pods/log x", true),
        ("* / * / *", "impersonate x.dev things/part y", true),
        ("get / core / pods / a,b", "get core pods a", true),
        ("get / core / pods / a,b", "get core pods c", false),
        ("list / core / pods / a", "list core pods", false),
        ("list / core / pods / a", "list core pods a", true),
        ("GET / core / pods", "get core pods x", false),
        ("g* / core / pods", "get core pods x", false),
        ("get / core / po*", "get core pods x", false),
        ("get / /version", "get /version", true),
        ("get / /version", "post /version", false),
        ("get / /version", "get /version/x", false),
        ("get / /api/*", "get /api/v1", true),
        ("get / /api/*", "get /api", false),
        ("get / *", "get /anything", true),
        ("get / core / *", "get /version", false),
        ("get / /version", "get core pods", false),
    ];
    for (text, asked, expected) in cases {
        assert_eq!(allows(text, asked), expected, "{text}: {asked}");
    }
}

#[test]
fn a_rule_without_verbs_or_with_unknown_ones_allows_nothing() {
    assert!(!Rule::default().allows(&Attributes { verb: "get", object: Object::Path("/") }));
    assert!(!allows("frobnicate / core / pods", "get core pods"));
    assert!(allows("frobnicate / core / pods", "frobnicate core pods"), "any verb can be granted");
}

#[test]
fn what_is_missing_is_said_as_by_the_real_server() {
    let missing = |held: &[&str], wanted: &[&str]| {
        let rules = |texts: &[&str]| texts.iter().map(|text| rule(text)).collect::<Vec<_>>();
        missing(&rules(held), &rules(wanted))
    };
    let none: [&str; 0] = [];
    let cases: [(&[&str], &[&str], &[&str]); 11] = [
        (&["get,list / core / pods"], &["list,get / core / pods"], &none),
        (&["get / core / pods", "list / core / pods"], &["get,list / core / pods"], &none),
        (&["* / * / *"], &["get / a.dev / x/status / n"], &none),
        (&["* / * / *"], &["get / /version"], &[r#"{NonResourceURLs:["/version"], Verbs:["get"]}"#]),
        (&["get / /api/*"], &["get / /api/v1"], &none),
        (&["get / core / */log"], &["get / core / pods/log"], &none),
        (&["get / core / pods / a"], &["get / core / pods / a"], &none),
        (
            &["get / core / pods / a"],
            &["get / core / pods"],
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
        ),
        (&["get / core / pods"], &["get / core / pods / a"], &none),
        (
            &[],
            &["get,list / apps / deployments,replicasets / a"],
            &[
                r#"{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["a"], Verbs:["get" "list"]}"#,
                r#"{APIGroups:["apps"], Resources:["replicasets"], ResourceNames:["a"], Verbs:["get" "list"]}"#,
            ],
        ),
        (&["get / * / *"], &["* / * / *"], &[r#"{APIGroups:["*"], Resources:["*"], Verbs:["*"]}"#]),
    ];
    for (held, wanted, expected) in cases {
        assert_eq!(missing(held, wanted), expected, "{held:?} covers {wanted:?}");
    }
}

#[test]
fn a_role_with_nonsense_has_no_rules_that_allow_anything() {
    for role in [
        json!({}),
        json!({"rules": null}),
        json!({"rules": 7}),
        json!({"rules": [null, 1, {"verbs": "get"}]}),
    ] {
        let rules = Rule::all_of(&role);
        assert!(
            !rules.iter().any(|rule| rule.allows(&Attributes { verb: "get", object: Object::Path("/") }))
        );
    }
}
