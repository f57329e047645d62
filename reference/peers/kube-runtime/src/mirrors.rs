//! Reflectors of every flavour, which compare their stores with a list when they are told to on standard input.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::PartialObjectMeta;
use kube::core::gvk::GroupVersionKind;
use kube::runtime::watcher::Config;
use kube::{Api, Client, api::DynamicObject, discovery};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::Outcome;
use crate::mirror::Mirror;

/// Answers each line of standard input with one line per mirror and the line "compared"; the end of the input ends the program.
pub(crate) async fn run(client: Client) -> Outcome {
    let mirrors = start(&client).await?;
    println!("synced");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while lines.next_line().await?.is_some() {
        for mirror in &mirrors {
            println!("{}", mirror.catch_up().await);
        }
        println!("compared");
    }
    Ok(())
}

async fn start(client: &Client) -> Result<Vec<Mirror>, Box<dyn std::error::Error + Send + Sync>> {
    let custom = GroupVersionKind::gvk("samplecontroller.k8s.io", "v1alpha1", "Foo");
    let (foos, _) = discovery::pinned_kind(client, &custom).await?;
    let all = Config::default;
    Ok(vec![
        Mirror::start("paged", Api::<ConfigMap>::all(client.clone()), all().page_size(20), ()).await,
        Mirror::start("streamed", Api::<ConfigMap>::all(client.clone()), all().streaming_lists(), ()).await,
        Mirror::start("any", Api::<Secret>::all(client.clone()), all().any_semantic(), ()).await,
        Mirror::start("unmarked", Api::<Secret>::all(client.clone()), all().disable_bookmarks(), ()).await,
        Mirror::start("labelled", Api::<Pod>::all(client.clone()), all().labels("value"), ()).await,
        Mirror::start(
            "streamed-label",
            Api::<Pod>::all(client.clone()),
            all().labels("!value").streaming_lists(),
            (),
        )
        .await,
        Mirror::start(
            "field",
            Api::<Pod>::all(client.clone()),
            all().fields("metadata.namespace=kube-public,spec.restartPolicy=Always"),
            (),
        )
        .await,
        // Watches end and are made again every second.
        Mirror::start("short", Api::<Deployment>::all(client.clone()), all().timeout(1), ()).await,
        Mirror::start("metadata", Api::<PartialObjectMeta<Deployment>>::all(client.clone()), all(), ()).await,
        Mirror::start(
            "streamed-metadata",
            Api::<PartialObjectMeta<Deployment>>::all(client.clone()),
            all().streaming_lists(),
            (),
        )
        .await,
        Mirror::start("dynamic", Api::<DynamicObject>::all_with(client.clone(), &foos), all(), foos).await,
        Mirror::start_shared("shared", Api::<ConfigMap>::namespaced(client.clone(), "default")).await,
    ])
}
