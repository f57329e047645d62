//! An informer that prints every Pod that is added, changed and deleted, from one watch and one cache.
//!
//! `cargo run -p examples --example informer`

use std::error::Error;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube_core::params::Patch;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Handler, Lister};
use watchkeeper::queue::Deleted;
use watchkeeper::{Env, Object, ObjectName, SharedInformerFactory};

struct Printer {
    deleted: Arc<Notify>,
}

impl Handler<Pod> for Printer {
    fn add(&mut self, pod: &Object<Pod>, in_initial_list: bool) {
        println!("add     {}{}", pod.key(), if in_initial_list { ", which was there already" } else { "" });
    }

    fn update(&mut self, old: &Object<Pod>, new: &Object<Pod>) {
        println!("update  {} from version {} to {}", new.key(), old.version(), new.version());
    }

    fn delete(&mut self, pod: &Deleted<Pod>) {
        println!("delete  {}", pod.key());
        self.deleted.notify_one();
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = Env::system();
    let client = examples::client(&env);
    let pods = client.api::<Pod>();
    pods.create(&examples::pod("first", None)?).await?;

    let (factory, stop) = (SharedInformerFactory::builder(&client).build(), CancellationToken::new());
    let informer = factory.informer::<Pod>();
    let deleted = Arc::new(Notify::new());
    let registration = informer.add_handler(Printer { deleted: deleted.clone() })?;
    factory.start(&stop);
    factory.wait_for_sync(&stop).await?;
    registration.wait_until_synced().await;

    let key = ObjectName::namespaced("default", "second");
    pods.create(&examples::pod("second", None)?).await?;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "db"}}}));
    let patched = pods.patch(&key, &patch).await?;

    // The cache follows the server; whoever needs to can wait until it has seen a version.
    let version = patched.metadata.resource_version.unwrap_or_default();
    informer.indexer().wait_until_fresh(&version.as_str().into()).await;
    print_labels(&informer.lister(), &key)?;
    pods.delete(&key).await?;
    deleted.notified().await;

    stop.cancel();
    factory.join().await?;
    Ok(())
}

/// A lister reads typed objects from the cache; nothing is asked of the server.
fn print_labels(pods: &Lister<Pod>, key: &ObjectName) -> Result<(), Box<dyn Error>> {
    println!("cached  {key} with labels {:?}", pods.get(key)?.metadata.labels.as_ref());
    Ok(())
}

#[test]
fn it_runs_to_its_end() {
    assert!(main().is_ok());
}
