//! An informer of a kind that is known only at run time, by its group, version and kind, as a `DynamicObject`.
//!
//! `cargo run -p examples --example dynamic`

use std::error::Error;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::discovery;
use kube_core::{ApiResource, DynamicObject, GroupVersionKind, Selector};
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use watchkeeper::{Client, Env, SharedInformerFactory};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = Env::system();
    let client = examples::client(&env);
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Lamp");
    install(&client, &gvk).await?;

    // The server knows the kind's plural name.
    let (lamps, _) = discovery::oneshot::pinned_kind(client.kube(), &gvk).await?;
    let requests = client.api_of::<DynamicObject>(lamps.clone());
    for (name, on) in [("desk", true), ("hall", false)] {
        let lamp = DynamicObject::new(name, &lamps).within("default").data(json!({"spec": {"on": on}}));
        requests.create(&lamp).await?;
    }

    let (factory, stop) = (SharedInformerFactory::builder(&client).build(), CancellationToken::new());
    let informer = factory.informer_of::<DynamicObject>(lamps);
    factory.start(&stop);
    factory.wait_for_sync(&stop).await?;
    for lamp in informer.lister().objects(&Selector::default()) {
        // Of a large object, only the fields that are asked for are decoded.
        let Lamp { spec } = lamp.view()?;
        println!("{} is {}", lamp.key(), if spec.on { "on" } else { "off" });
    }
    stop.cancel();
    factory.join().await?;
    Ok(())
}

#[derive(Deserialize)]
struct Lamp {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    on: bool,
}

/// Teaches the server the kind, and waits until it serves it.
async fn install(client: &Client, gvk: &GroupVersionKind) -> Result<(), Box<dyn Error>> {
    let kind = ApiResource::from_gvk(gvk);
    let on = json!({"type": "object", "properties": {"on": {"type": "boolean"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": on}}});
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group)},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.to_lowercase()},
            "versions": [{"name": kind.version, "served": true, "storage": true, "schema": schema}],
        },
    }))?;
    client.api::<CustomResourceDefinition>().create(&crd).await?;
    while discovery::oneshot::pinned_kind(client.kube(), gvk).await.is_err() {
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[test]
fn it_runs_to_its_end() {
    assert!(main().is_ok());
}
