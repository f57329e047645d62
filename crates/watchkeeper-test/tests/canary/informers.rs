//! Informers of marked Secrets that cannot be read, from a server or a proxy that misbehaves.

use http::StatusCode;
use k8s_openapi::api::core::v1::Secret;
use kube_core::Selector;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, on_change};
use watchkeeper::source::{Reply, ScriptedSource};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Env, SharedInformer};

use crate::marks::{BODY, SECRET, UNREADABLE, encoded};
use crate::show;

/// Secrets with a mark where something else is expected, by their names.
fn unreadable() -> Vec<Value> {
    let object = |name: &str, field: &str, value: Value| {
        let mut object = json!({"metadata": {"name": name, "namespace": "ns", "resourceVersion": "5"}});
        object[field] = value;
        object
    };
    vec![
        object("data-is-text", "data", json!(UNREADABLE)),
        object("data-is-not-base64", "data", json!({"key": format!("{UNREADABLE}!")})),
        object("data-is-nested", "data", json!({"key": {"nested": UNREADABLE}})),
        object("data-is-a-list", "data", json!([UNREADABLE])),
        object("immutable-is-text", "immutable", json!(UNREADABLE)),
        object("type-is-a-map", "type", json!({"kind": UNREADABLE})),
        object("readable", "data", json!({"key": encoded(SECRET)})),
    ]
}

fn list(items: &[Value]) -> String {
    json!({"kind": "SecretList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": items})
        .to_string()
}

fn source() -> ScriptedSource {
    let source = ScriptedSource::new();
    let page = format!("<html>refused by a proxy {BODY}</html>");
    let refused = ApiError::from_response(StatusCode::BAD_GATEWAY, None, page.as_bytes());
    show("refused by a proxy", &refused);
    source
        .on_list(Reply::refuse(refused))
        .on_list(Reply::body(format!("{{\"kind\": \"SecretList\", {BODY}")))
        .on_list(Reply::body(format!("<html>{BODY}</html>")))
        .on_list(
            Reply::body(list(&unreadable())).cut_at(300, ApiError::new(Class::ConnectionLost, "cut off")),
        )
        .on_list(Reply::body(list(&unreadable())));
    let event = |text: String| Reply::body(text).then_hang();
    source
        .on_watch(event(format!("{{\"type\": \"ADDED\", \"object\": {{\"data\": \"{UNREADABLE}\"}}}}\n")))
        .on_watch(event(format!("{{\"type\": \"MODIFIED\", \"object\": {UNREADABLE}}}\n")))
        .on_watch(event(format!("{BODY}\n")))
        .on_watch(event(json!({"type": "ERROR", "object": {"reason": BODY, "kind": "Page"}}).to_string()));
    source
}

pub(crate) async fn run() {
    let (env, source) = (Env::simulated(1), source());
    env.reporter.add_hook(|report| println!("report: {report:?} {}", report.incident));
    let informer = SharedInformer::<Secret>::builder(source.clone(), &env).build();
    let log = on_change(|change: Change<'_, Secret>| {
        println!("changed: {change:?}");
        if let Change::Added { object, .. } = change
            && let Err(error) = object.get()
        {
            show("unreadable", &error);
        }
    });
    informer.add_handler(log).unwrap();
    let stop = CancellationToken::new();
    let (running, token) = (informer.clone(), stop.clone());
    let run = tokio::spawn(async move { running.run(token).await });
    informer.wait_until_synced().await;
    let (_, errors) = informer.lister().list(&Selector::default()).into_parts();
    assert_eq!(errors.len(), 6, "{errors:?}");
    errors.iter().for_each(|error| show("unreadable", error));
    if let Err(error) = informer.lister().list(&Selector::default()).complete() {
        show("unreadable", &error);
    }
    // Five lists, and the watches; after each of those there may be another list.
    source.until_asked(8).await;
    println!(
        "{informer:?} {:?} {:?} {:?}",
        informer.health(),
        informer.stats(),
        informer.indexer().snapshot()
    );
    stop.cancel();
    run.await.unwrap();
}
