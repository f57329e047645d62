//! Lists in pages, which expire between one page and the next.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::Selector;
use serde_json::json;
use watchkeeper::informer::{Change, Lister, on_change};
use watchkeeper::reflector::ListMode;
use watchkeeper::{ObjectName, SharedInformerFactory};
use watchkeeper_sim::{Check, Life, Outside, User};

fn map(name: &str) -> ConfigMap {
    let metadata = json!({"name": name, "namespace": "default"});
    serde_json::from_value(json!({"metadata": metadata, "data": {"text": "one"}})).unwrap()
}

/// What the cache has.
fn cached(maps: &Lister<ConfigMap>) -> BTreeMap<String, Option<String>> {
    let text = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("text").cloned());
    let maps = maps.objects(&Selector::default());
    maps.iter().map(|map| (map.name().to_owned(), map.get().ok().and_then(|map| text(&map)))).collect()
}

/// Shows outside what its cache has. It reads three objects in pages of one: it waits for them before it lists.
async fn mirror(life: Life, outside: &Outside) {
    let Life { client, stop, .. } = life;
    let stop = stop.child_token();
    let _stops_with_this_life = stop.clone().drop_guard();
    let last = ObjectName::namespaced("default", "c");
    while !matches!(client.api::<ConfigMap>().get_opt(&last).await, Ok(Some(_))) {
        if stop.is_cancelled() {
            return;
        }
        client.env().clock.sleep(Duration::from_secs(1)).await;
    }
    let factory = SharedInformerFactory::builder(&client).list_mode(ListMode::Paged).build();
    let maps = factory.informer_with::<ConfigMap>((), |builder| builder.page_size(1).build());
    let (lister, outside) = (maps.lister(), outside.clone());
    let show = on_change(move |_: Change<'_, ConfigMap>| outside.show("maps", Some(json!(cached(&lister)))));
    maps.add_handler(show).unwrap();
    factory.start(&stop);
    stop.cancelled().await;
}

async fn users(user: &User) {
    for name in ["a", "b", "c"] {
        user.create(&map(name)).await;
    }
    user.settle().await;
    user.patch::<ConfigMap>("default/b", json!({"data": {"text": "two"}})).await;
    user.settle().await;
    user.delete::<ConfigMap>("default/a").await;
    user.settle().await;
}

#[test]
fn a_page_that_has_expired_loses_no_object() {
    let report = Check::builder()
        .name("pages")
        // A line whose fault finds no such page, or has no effect, ends the check.
        .schedule("expire @ list configmaps #2")
        .schedule("expire(Gone) @ list configmaps #3")
        .pairs(20)
        .seeds(20)
        .run_program(|outside| outside.clone(), mirror, users)
        .unwrap();
    println!("{report}");
    assert!(report.hits("expire".parse().unwrap()) >= 4, "{report}");
}
