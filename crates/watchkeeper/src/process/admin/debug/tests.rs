//! Tests of the pages under `/debug`, on a program of low-level parts.

use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use serde_json::Value;

use super::*;
use crate::env::Env;
use crate::explain::{
    AnyWatched, Explain, Explained, Explanation, KeyState, KeyView, KeysPage, ProgramPhase, ViewRelation,
    Watched,
};
use crate::informer::SharedInformer;
use crate::object::{Object, ObjectName};
use crate::source::{Scope, ScriptedSource, Selection};
use crate::workqueue::{Priority, RateLimitingQueue, Trigger, limiter};

struct Program {
    explain: Explain,
    queue: RateLimitingQueue<ObjectName>,
}

fn program() -> Program {
    let env = Env::simulated(1);
    let queue = RateLimitingQueue::new("maps", limiter::default_controller(), &env);
    let informer = SharedInformer::<ConfigMap>::builder(ScriptedSource::new(), &env).build();
    let explain = Explain::new("test", &env);
    explain.add(Explained::new("maps", &queue, &informer));
    explain.set_phase(ProgramPhase::Running);
    Program { explain, queue }
}

async fn get(program: &Program, path: &str, query: &str) -> (StatusCode, Value) {
    let response = answer(&program.explain, path, query).unwrap();
    assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

fn named(number: usize) -> ObjectName {
    ObjectName::namespaced("default", &format!("map-{number:03}"))
}

#[tokio::test(start_paused = true)]
async fn keys_come_in_pages_that_continue_one_another() {
    let program = program();
    for number in 0..25 {
        program.queue.add_because(named(number), Priority::Normal, Trigger::External);
    }
    let (mut seen, mut from) = (Vec::new(), String::new());
    loop {
        let query = format!("limit=10&continue={from}");
        let (status, page) = get(&program, "controllers/maps/keys", &query).await;
        let page: KeysPage = serde_json::from_value(page).unwrap();
        assert_eq!((status, page.matched, page.counts.waiting), (StatusCode::OK, 25, 25));
        seen.extend(page.keys.into_iter().map(|key| key.key));
        match page.next {
            Some(next) => from = next.replace('/', "%2F"),
            None => break,
        }
    }
    assert!(seen.iter().cloned().eq((0..25).map(|number| named(number).to_string())));
    let (_, page) = get(&program, "controllers/maps/keys", "q=map-01&state=waiting&sort=since").await;
    assert_eq!(page["matched"], 10);
    let (_, page) = get(&program, "controllers/maps/keys", "state=failed").await;
    assert_eq!((&page["matched"], &page["continue"]), (&0.into(), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn keys_are_paged_and_sorted_both_ways() {
    let program = program();
    for number in 0..25 {
        program.queue.add_because(named(number), Priority::Normal, Trigger::External);
    }
    let names = |range: std::ops::Range<usize>| range.map(|number| named(number).to_string());
    let page = async |query: String| -> (Vec<String>, KeysPage) {
        let page = get(&program, "controllers/maps/keys", &query.replace('/', "%2F")).await.1;
        let page: KeysPage = serde_json::from_value(page).unwrap();
        (page.keys.iter().map(|key| key.key.clone()).collect(), page)
    };
    for (sort, is_reversed) in [("key", false), ("key", true), ("since", false), ("failures", true)] {
        let query = format!("limit=10&sort={sort}&reverse={is_reversed}");
        let turned = is_reversed && sort == "key";
        let expected: Vec<_> = if turned { names(0..25).rev().collect() } else { names(0..25).collect() };
        let (first, view) = page(query.clone()).await;
        assert_eq!((&first[..], &view.previous), (&expected[..10], &None), "{query}");
        let (second, view) = page(format!("{query}&continue={}", view.next.unwrap())).await;
        assert_eq!(second, expected[10..20], "{query}");
        let (back, again) = page(format!("{query}&continue={}", view.previous.unwrap())).await;
        assert_eq!((back, &again.previous), (first, &None), "{query}");
        let (third, last) = page(format!("{query}&continue={}", view.next.unwrap())).await;
        assert_eq!((&third[..], &last.next), (&expected[20..], &None), "{query}");
        let (back, again) = page(format!("{query}&continue={}", last.previous.unwrap())).await;
        assert_eq!((back, again.next.is_some()), (second, true), "{query}");
    }
}

fn object<K>(json: &str) -> Object<K> {
    Object::from_json(json.as_bytes()).unwrap()
}

/// A program with a related kind of which one object, `default/s`, is mapped to 250 keys.
fn related_to_many() -> Program {
    let (program, env) = (program(), Env::simulated(1));
    let informer = SharedInformer::<Secret>::builder(ScriptedSource::new(), &env).build();
    informer
        .indexer()
        .add(object(r#"{"metadata":{"name":"s","namespace":"default","resourceVersion":"7"}}"#));
    let mapping = |_: &Object<Secret>| (0..250).chain(0..10).map(named).collect();
    let watched: std::sync::Arc<dyn AnyWatched> = std::sync::Arc::new(Watched {
        informer,
        scope: Scope::Cluster,
        selection: Selection::default(),
        metadata_only: false,
        mapping: Some(Box::new(mapping)),
    });
    let maps = SharedInformer::<ConfigMap>::builder(ScriptedSource::new(), &env).build();
    program
        .explain
        .add(Explained::new("mapped", &program.queue, &maps).related(ViewRelation::Mapping, watched));
    program
}

#[tokio::test(start_paused = true)]
async fn a_mapping_to_many_keys_is_cut_and_says_so() {
    let (_, view) = get(&related_to_many(), "explain", "kind=Secret&key=default/s").await;
    let view: KeyView = serde_json::from_value(view["views"][0].clone()).unwrap();
    assert_eq!((view.maps_to.len(), view.maps_to_left_off), (100, 150));
    assert_eq!(view.maps_to[99], "default/map-099");
}

#[tokio::test(start_paused = true)]
async fn children_that_would_take_a_long_search_are_said_to_be_unknown() {
    let (program, env) = (program(), Env::simulated(1));
    let maps = SharedInformer::<ConfigMap>::builder(ScriptedSource::new(), &env).build();
    maps.indexer()
        .add(object(r#"{"metadata":{"name":"a","namespace":"default","uid":"u-1","resourceVersion":"7"}}"#));
    let secrets = SharedInformer::<Secret>::builder(ScriptedSource::new(), &env).build();
    program.explain.add(Explained::new("owner", &program.queue, &maps).owns(&secrets));
    let owned = r#""ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"u-1","controller":true}]"#;
    let view = async || -> KeyView {
        let (_, found) = get(&program, "explain", "kind=ConfigMap&key=default/a").await;
        let views: Vec<KeyView> = serde_json::from_value(found["views"].clone()).unwrap();
        views.into_iter().find(|view| view.controller == "owner").unwrap()
    };
    for number in 0..10_000 {
        let owners = if number == 0 { format!(",{owned}") } else { String::new() };
        let json = format!(
            r#"{{"metadata":{{"name":"s-{number}","namespace":"default","resourceVersion":"8"{owners}}}}}"#
        );
        secrets.indexer().add(object(&json));
    }
    let found = view().await;
    assert_eq!((found.children.len(), found.children_unknown.len()), (1, 0), "10,000 are searched");
    secrets.indexer().add(object(r#"{"metadata":{"name":"t","namespace":"default","resourceVersion":"8"}}"#));
    let found = view().await;
    assert_eq!((found.children.len(), &found.children_unknown[..]), (0, &["Secret".to_owned()][..]));
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_key_follows_its_runs() {
    let program = program();
    let key = named(1);
    program.queue.add_because(key.clone(), Priority::Normal, Trigger::External);
    let state = async || {
        let (_, view) = get(&program, "explain", "kind=configmaps&key=default/map-001").await;
        serde_json::from_value::<Explanation>(view).unwrap().views.remove(0).state
    };
    assert_eq!(state().await, KeyState::Waiting);
    let item = program.queue.get().await.unwrap();
    assert_eq!(state().await, KeyState::Running);
    item.retry("disk full");
    assert_eq!(state().await, KeyState::Retrying);
    let item = program.queue.get().await.unwrap();
    item.retry_after(std::time::Duration::from_secs(60));
    assert_eq!(state().await, KeyState::Delayed);
    let item = program.queue.get().await.unwrap();
    item.give_up("never");
    assert_eq!(state().await, KeyState::Failed);
    program.queue.add(key);
    program.queue.get().await.unwrap().forget();
    assert_eq!(state().await, KeyState::Idle);
}

#[tokio::test(start_paused = true)]
async fn misspelt_names_get_a_suggestion_and_bad_questions_an_answer() {
    let program = program();
    let env = Env::simulated(1);
    let spaces = SharedInformer::<Namespace>::builder(ScriptedSource::new(), &env).build();
    program.explain.add(Explained::new("spaces", &program.queue, &spaces));
    for (path, query, status, error) in [
        (
            "explain",
            "kind=ConfgMap&key=a/b",
            404,
            "no controller watches the kind \"ConfgMap\": did you mean ConfigMap?",
        ),
        ("explain", "kind=ConfigMap", 400, "the parameter key is missing"),
        ("explain", "kind=ConfigMap&key=a/b/c", 400, "\"a/b/c\" is not the key of an object"),
        ("explain", "kind=Namespace&key=a/b", 400, "Namespace has no namespaces: ask for b"),
        ("explain", "kind=ConfigMap&key=a/b&x=1", 400, "there is no parameter \"x\""),
        ("controllers/map/keys", "", 404, "there is no controller \"map\": did you mean maps?"),
        ("controllers/maps/keys", "state=lost", 400, "state=\"lost\" is not known"),
        ("controllers/maps/keys", "continue=zzz", 400, "continue=\"zzz\" is not known"),
    ] {
        let (found, body) = get(&program, path, query).await;
        let text = body["error"].as_str().unwrap();
        assert_eq!(found.as_u16(), status, "{query}");
        assert!(text.starts_with(error), "{text}");
    }
    assert!(answer(&program.explain, "nothing", "").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_key_is_explained_and_markup_and_huge_errors_do_no_harm() {
    let program = program();
    let (status, view) = get(&program, "explain", "kind=ConfigMap&key=default/%3Cscript%3E").await;
    assert_eq!((status, &view["key"]), (StatusCode::OK, &"default/<script>".into()));
    assert_eq!(view["views"][0]["state"], "unknown");
    program.queue.add(named(1));
    program.queue.get().await.unwrap().retry("x".repeat(1_000_000));
    let (_, view) = get(&program, "explain", "kind=ConfigMap&key=default/map-001").await;
    assert!(view.to_string().len() < 4_000, "the error is cut");
    let long = format!("kind={}&key=a", "k".repeat(10_000));
    assert!(get(&program, "explain", &long).await.1.to_string().len() < 500);
}

#[tokio::test(start_paused = true)]
async fn a_program_and_its_informers_are_shown() {
    let program = program();
    let (status, overview) = get(&program, "controllers", "").await;
    assert_eq!(
        (status, &overview["program"], &overview["phase"]),
        (StatusCode::OK, &"test".into(), &"running".into())
    );
    assert_eq!(overview["controllers"][0]["kind"]["plural"], "configmaps");
    assert_eq!(get(&program, "informers", "").await, (StatusCode::OK, Value::Array(Vec::new())));
}

#[tokio::test(start_paused = true)]
async fn controllers_of_another_group_are_not_asked() {
    use k8s_openapi::api::{core, events};
    let (program, env) = (program(), Env::simulated(1));
    let queue = RateLimitingQueue::new("events", limiter::default_controller(), &env);
    let old = SharedInformer::<core::v1::Event>::builder(ScriptedSource::new(), &env).build();
    let new = SharedInformer::<events::v1::Event>::builder(ScriptedSource::new(), &env).build();
    program.explain.add(Explained::new("old-events", &queue, &old));
    program.explain.add(Explained::new("new-events", &queue, &new));
    for (kind, controller) in [("Event", "old-events"), ("event.events.k8s.io", "new-events")] {
        let (status, body) = get(&program, "explain", &format!("kind={kind}&key=a/b")).await;
        assert_eq!((status, &body["views"][0]["controller"]), (StatusCode::OK, &controller.into()));
        assert_eq!(body["views"].as_array().unwrap().len(), 1);
    }
}
