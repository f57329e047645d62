//! Lookup of objects by an index over a field, which is read from the cached bytes.
//!
//! `cargo run -p examples --example index_by_field`

use std::error::Error;

use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;
use watchkeeper::store::Index;
use watchkeeper::{Env, Object, SharedInformerFactory};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = Env::system();
    let client = examples::client(&env);
    let pods = client.api::<Pod>();
    for (name, node) in [("a", "node-1"), ("b", "node-2"), ("c", "node-1")] {
        pods.create(&examples::pod(name, Some(node))?).await?;
    }

    let (factory, stop) = (SharedInformerFactory::builder(&client).build(), CancellationToken::new());
    let informer = factory.informer::<Pod>();
    // Before or after the start: an index that comes late is filled with what is there.
    informer.indexer().add_indexes([Index::field("node", "spec.nodeName")?])?;
    factory.start(&stop);
    factory.wait_for_sync(&stop).await?;

    // A snapshot is one moment: its items, its indexes and its version agree.
    let snapshot = informer.indexer().snapshot();
    let mut nodes: Vec<_> = snapshot.index_values("node")?.collect();
    nodes.sort_unstable();
    for node in nodes {
        let mut names: Vec<_> = snapshot.by_index("node", node)?.map(Object::name).collect();
        names.sort_unstable();
        println!("{node}: {}", names.join(", "));
    }
    stop.cancel();
    factory.join().await?;
    Ok(())
}

#[test]
fn it_runs_to_its_end() {
    assert!(main().is_ok());
}
