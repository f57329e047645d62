//! A handler that is added to a running informer misses nothing: it is notified of every object first.
//!
//! `cargo run -p examples --example late_handler`

use std::error::Error;

use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, HandlerOptions, on_change};
use watchkeeper::{Env, SharedInformerFactory};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = Env::system();
    let client = examples::client(&env);
    let pods = client.api::<Pod>();
    let (factory, stop) = (SharedInformerFactory::builder(&client).build(), CancellationToken::new());
    let informer = factory.informer::<Pod>();
    factory.start(&stop);
    factory.wait_for_sync(&stop).await?;
    for name in ["a", "b", "c"] {
        let version = pods.create(&examples::pod(name, None)?).await?.metadata.resource_version;
        informer.indexer().wait_until_fresh(&version.unwrap_or_default().as_str().into()).await;
    }

    println!("the informer has {} Pods; a handler joins", informer.indexer().snapshot().len());
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
    let options = HandlerOptions::default().name("late");
    let late = on_change(move |change: Change<'_, Pod>| {
        if let Change::Added { object, in_initial_list } = change {
            println!("  told of {}, in its initial list: {in_initial_list}", object.key());
            // The receiver may be gone when the last Pod is told; that is fine.
            let _closed = sender.send(object.key());
        }
    });
    let registration = informer.add_handler_with(late, options)?;
    registration.wait_until_synced().await;
    println!("it has been told of all that was there");

    pods.create(&examples::pod("d", None)?).await?;
    for _ in 0..4 {
        told.recv().await;
    }

    informer.remove_handler(&registration);
    registration.ended().await;
    println!("it is gone; the informer runs on with {} Pods", informer.indexer().snapshot().len());
    stop.cancel();
    factory.join().await?;
    Ok(())
}

#[test]
fn it_runs_to_its_end() {
    assert!(main().is_ok());
}
