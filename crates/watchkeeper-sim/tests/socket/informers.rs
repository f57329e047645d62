//! Informers of this toolkit, on a socket with all kinds of faults.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Config;
use kube_core::Selector;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, on_change};
use watchkeeper::{Client, ObjectName, SharedInformerFactory};
use watchkeeper_sim::FaultLayer;

use crate::Faulty;

#[tokio::test]
async fn a_cache_becomes_as_the_server_in_spite_of_the_faults() {
    let mut faults = Vec::new();
    for seed in 1..=5 {
        // Objects of 17 MiB take their time in a test build.
        let kinds = FaultLayer::KINDS.into_iter().filter(|kind| kind.name() != "oversized");
        let faulty = Faulty::seeded(seed, |faults| faults.rate(0.2).kinds(kinds)).await;
        let config = Config::new(faulty.listening.url().parse().unwrap());
        let client = Client::from_config(config, &faulty.env).unwrap().program("observer", "1");
        let factory = SharedInformerFactory::builder(&client).build();
        let (changed, mut changes) = mpsc::unbounded_channel();
        let handler = on_change(move |_: Change<'_, ConfigMap>| changed.send(()).unwrap_or_default());
        factory.informer::<ConfigMap>().add_handler(handler).unwrap();
        let stop = CancellationToken::new();
        factory.start(&stop);
        let user = Client::from_kube(faulty.server.client(), &faulty.env);
        for number in 0..30 {
            faulty.create(&format!("map-{number}")).await;
            if number % 3 == 0 {
                let name = ObjectName::namespaced("default", &format!("map-{number}"));
                user.api::<ConfigMap>().delete(&name).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
        let expected: BTreeSet<String> = faulty.names().into_iter().collect();
        let lister = factory.lister::<ConfigMap>();
        let names = || {
            lister
                .objects(&Selector::default())
                .iter()
                .map(|map| map.name().to_owned())
                .collect::<BTreeSet<_>>()
        };
        let same = async {
            while names() != expected {
                changes.recv().await.unwrap();
            }
        };
        let result = faulty.env.clock.timeout(Duration::from_secs(120), same).await;
        assert!(result.is_ok(), "seed {seed}: {:?}, not {expected:?}; {:#?}", names(), faulty.faults());
        stop.cancel();
        faults.extend(faulty.faults());
    }
    assert!(faults.len() > 20, "{faults:#?}");
}
