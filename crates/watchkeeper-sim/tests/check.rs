//! Checks of small operators, right and wrong ones.
#![allow(clippy::unwrap_used, reason = "a test may")]

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use watchkeeper::controller::{Action, Controller, Manager, SetupError, Watch};
use watchkeeper_sim::{Check, User};

/// Keeps a Secret for each ConfigMap.
fn mirror(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new()).reconcile(|map, cx| async move {
        let mut secret = Secret::default();
        secret.metadata.name = map.metadata.name.clone();
        secret.string_data = map.data.clone();
        cx.apply(&secret).await?;
        Ok(Action::done())
    })
}

fn map(name: &str, text: &str) -> ConfigMap {
    serde_json::from_value(
        json!({"metadata": {"name": name, "namespace": "default"}, "data": {"text": text}}),
    )
    .unwrap()
}

async fn story(user: &User) {
    user.create(&map("a", "one")).await;
    user.create(&map("b", "one")).await;
    user.eventually::<Secret>("default/a", |_| true).await;
    user.delete::<Secret>("default/a").await;
    user.patch::<ConfigMap>("default/b", json!({"data": {"text": "two"}})).await;
    user.settle().await;
    user.delete::<ConfigMap>("default/b").await;
}

#[test]
fn an_operator_that_is_right_passes() {
    let report = Check::builder().name("mirror").run(|_| (), |manager, ()| mirror(manager), story).unwrap();
    println!("{report}");
    assert!(report.schedules() > 500, "{report}");
}
