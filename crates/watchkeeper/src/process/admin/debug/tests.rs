//! Tests of the pages under `/debug`, on a program of low-level parts.

use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::*;
use crate::env::Env;
use crate::explain::{Explain, Explained, Explanation, KeyState, KeysPage, ProgramPhase};
use crate::informer::SharedInformer;
use crate::object::ObjectName;
use crate::source::ScriptedSource;
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
    for (path, query, status, error) in [
        (
            "explain",
            "kind=ConfgMap&key=a/b",
            404,
            "no controller watches the kind \"ConfgMap\": did you mean ConfigMap?",
        ),
        ("explain", "kind=ConfigMap", 400, "the parameter key is missing"),
        ("explain", "kind=ConfigMap&key=a/b/c", 400, "\"a/b/c\" is not the key of an object"),
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
