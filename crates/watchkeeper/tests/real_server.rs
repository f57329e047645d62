//! Informers on a real API server: the cluster of `WATCHKEEPER_TEST_KUBECONFIG`, in real time, where every wait is for
//! an event.
//!
//! `WATCHKEEPER_TEST_RESTART` is a command that restarts the API server, `WATCHKEEPER_TEST_COMPACT` one that makes it
//! forget its history; the tests that need them fail without them.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::dynamic::{ApiResource, DynamicObject};
use kube_core::gvk::GroupVersionKind;
use kube_core::params::Patch;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use watchkeeper::process::ClientArgs;
use watchkeeper::queue::QueueKind;
use watchkeeper::reflector::ListMode;
use watchkeeper::source::{ApiSource, Scope, Selection};
use watchkeeper::wire::Class;
use watchkeeper::{Client, Env, Kind, ObjectName, ResourceVersion, SharedInformer};

struct RealCluster {
    client: Client,
    namespace: String,
}

const QUEUES: [QueueKind; 2] = [QueueKind::Ordered, QueueKind::Delta];

/// An informer that runs until it is dropped.
struct Running<K: Kind> {
    informer: SharedInformer<K>,
    _stop: tokio_util::sync::DropGuard,
}

impl RealCluster {
    async fn new(name: &str, kubeconfig: PathBuf) -> Self {
        let env = Env::system();
        let args = ClientArgs { kubeconfig: Some(kubeconfig), ..ClientArgs::default() };
        let client = args.connect(&env).await.unwrap();
        let suffix = &env.generator.uuid()[..8];
        let namespace = format!("watchkeeper-{name}-{suffix}");
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        client.api::<Namespace>().create(&object).await.unwrap();
        Self { client, namespace }
    }

    fn key(&self, name: &str) -> ObjectName {
        ObjectName::namespaced(&self.namespace, name)
    }

    fn config_map(&self, name: &str, value: u64) -> ConfigMap {
        let metadata =
            json!({"name": name, "namespace": self.namespace, "labels": {"value": value.to_string()}});
        serde_json::from_value(json!({"metadata": metadata, "data": {"value": value.to_string()}})).unwrap()
    }

    async fn create(&self, count: u64) {
        let creates = stream::iter(0..count).map(|n| async move {
            self.client.api().create(&self.config_map(&format!("o{n:04}"), n)).await.unwrap();
        });
        creates.buffer_unordered(16).collect::<()>().await;
    }

    /// Creates an object through a connection that may have broken meanwhile.
    async fn insist_on(&self, name: &str) {
        loop {
            match self.client.api().create(&self.config_map(name, 0)).await {
                Err(error)
                    if matches!(
                        error.class(),
                        Class::ConnectionLost | Class::ConnectionRefused | Class::Unreachable
                    ) => {}
                Err(error) if error.class() == Class::AlreadyExists => return,
                answer => return drop(answer.unwrap()),
            }
        }
    }

    fn informer<K: Kind>(&self, kind: K::DynamicType, queue: QueueKind, list: ListMode) -> Running<K> {
        let scope = Scope::Namespace(self.namespace.clone());
        let source = ApiSource::new::<K>(&self.client, &kind, &scope);
        let informer = SharedInformer::builder_of(kind, source, self.client.env())
            .queue(queue)
            .list_mode(list)
            .page_size(7)
            .build();
        let stop = CancellationToken::new();
        let (running, token) = (informer.clone(), stop.clone());
        tokio::spawn(async move { running.run(token).await });
        Running { informer, _stop: stop.drop_guard() }
    }

    /// What a list shows, straight from the server: versions by name.
    async fn listed(&self, path: &str) -> (BTreeMap<String, String>, String) {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let list: serde_json::Value = self.client.kube().request(request).await.unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let items = list["items"].as_array().unwrap().iter();
        let items =
            items.map(|item| (text(&item["metadata"]["name"]), text(&item["metadata"]["resourceVersion"])));
        (items.collect(), text(&list["metadata"]["resourceVersion"]))
    }

    /// The cache equals a list once it has reached the list's version.
    async fn assert_equal<K: Kind>(&self, running: &Running<K>, path: &str) {
        let (items, version) = self.listed(path).await;
        // A quiet kind learns of a version by a bookmark, a minute later at most; its newest object is enough.
        let newest =
            items.values().max_by_key(|version| version.parse::<u64>().unwrap()).unwrap_or(&version).clone();
        let newest = ResourceVersion::from(newest.as_str());
        self.within("fresh", running.informer.indexer().wait_until_fresh(&newest)).await;
        let snapshot = running.informer.indexer().snapshot();
        let cached: BTreeMap<_, _> =
            snapshot.iter().map(|object| (object.name().to_owned(), object.version().to_string())).collect();
        assert_eq!(cached, items);
    }

    async fn within<T>(&self, what: &str, wait: impl Future<Output = T>) -> T {
        let waited = self.client.env().clock.timeout(Duration::from_secs(90), wait).await;
        waited.unwrap_or_else(|_| panic!("not {what} within 90 s"))
    }

    fn config_maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }
}

async fn paged_and_streamed_lists_equal_the_servers(cluster: &RealCluster) {
    cluster.create(50).await;
    for queue in QUEUES {
        for list in [ListMode::Paged, ListMode::Stream] {
            let running = cluster.informer::<ConfigMap>((), queue, list);
            cluster.within("synced", running.informer.wait_until_synced()).await;
            cluster.assert_equal(&running, &cluster.config_maps()).await;
            assert_eq!(running.informer.health().lists, 1, "{queue:?} {list:?}");
        }
    }
}

async fn objects_of_a_custom_resource_are_mirrored(cluster: &RealCluster) {
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "widgets.watchkeeper.example"},
        "spec": {
            "group": "watchkeeper.example", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }}}],
        },
    }))
    .unwrap();
    let created = cluster.client.api().create(&crd).await;
    assert!(created.is_ok() || created.is_err_and(|error| error.class() == Class::AlreadyExists));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("watchkeeper.example", "v1", "Widget"));
    // The informer is there before the kind is served: it must find it by itself.
    let running = cluster.informer::<DynamicObject>(kind.clone(), QueueKind::Ordered, ListMode::Stream);
    let widgets = cluster.client.api_of::<DynamicObject>(kind.clone());
    for number in 0..20 {
        let mut widget = DynamicObject::new(&format!("w{number}"), &kind);
        widget.metadata.namespace = Some(cluster.namespace.clone());
        widget.data = json!({"spec": {"size": number}});
        while let Err(error) = widgets.create(&widget).await {
            assert!(error.is_not_found() || error.class() == Class::TooManyRequests, "{error}");
            tokio::task::yield_now().await;
        }
    }
    cluster.within("synced", running.informer.wait_until_synced()).await;
    let path = format!("/apis/watchkeeper.example/v1/namespaces/{}/widgets", cluster.namespace);
    cluster.assert_equal(&running, &path).await;
}

async fn five_thousand_random_changes_leave_the_cache_equal_to_a_list(cluster: &RealCluster) {
    let running: Vec<_> =
        QUEUES.map(|queue| cluster.informer::<ConfigMap>((), queue, ListMode::Stream)).into();
    let generator = cluster.client.env().generator.fork("changes");
    let steps: Vec<_> =
        (0..5000).map(|_| (generator.below(200), generator.below(5), generator.next_u64())).collect();
    let changes = stream::iter(steps).map(|(name, what, value)| async move {
        let (config_maps, name) = (cluster.client.api::<ConfigMap>(), format!("o{name:04}"));
        let answer = match what {
            0 => config_maps.delete(&cluster.key(&name)).await,
            1 | 2 => config_maps.create(&cluster.config_map(&name, value)).await.map(drop),
            _ => {
                let patch = Patch::Merge(json!({"data": {"value": value.to_string()}}));
                config_maps.patch(&cluster.key(&name), &patch).await.map(drop)
            }
        };
        if let Err(error) = answer {
            let usual = matches!(error.class(), Class::NotFound | Class::AlreadyExists | Class::Conflict);
            assert!(usual, "{error}");
        }
    });
    changes.buffer_unordered(16).collect::<()>().await;
    // The last change of all, so that both caches know when they have seen the others.
    cluster.client.api().create(&cluster.config_map("last", 0)).await.unwrap();
    for running in &running {
        cluster.assert_equal(running, &cluster.config_maps()).await;
    }
}

fn shell(variable: &str) {
    let command = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"));
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
}

async fn a_restart_and_a_compaction_are_survived(cluster: &RealCluster) {
    cluster.create(20).await;
    let running: Vec<_> =
        QUEUES.map(|queue| cluster.informer::<ConfigMap>((), queue, ListMode::Stream)).into();
    for running in &running {
        cluster.within("synced", running.informer.wait_until_synced()).await;
    }
    shell("WATCHKEEPER_TEST_RESTART");
    cluster.insist_on("after-restart").await;
    for running in &running {
        cluster.assert_equal(running, &cluster.config_maps()).await;
    }
    cluster.client.api::<ConfigMap>().delete(&cluster.key("o0003")).await.unwrap();
    shell("WATCHKEEPER_TEST_COMPACT");
    shell("WATCHKEEPER_TEST_RESTART");
    cluster.insist_on("after-compaction").await;
    for running in &running {
        cluster.assert_equal(running, &cluster.config_maps()).await;
        let health = running.informer.health();
        println!("     lists by reason: {:?}, watches: {}", health.lists_by_reason, health.watches);
    }
}

async fn requests_list_apply_and_name_the_program(cluster: &RealCluster) {
    // More than a page.
    cluster.create(510).await;
    let requests = cluster.client.clone().program("real-server-test", "1.0").requests().clone();
    let (maps, scope) = (requests.api::<ConfigMap>(), Scope::Namespace(cluster.namespace.clone()));
    assert_eq!(maps.list(&scope, &Selection::default()).await.unwrap().complete().unwrap().len(), 510);
    let selection = Selection { labels: "value in (3, 4)".into(), ..Selection::default() };
    assert_eq!(maps.list(&scope, &selection).await.unwrap().complete().unwrap().len(), 2);
    assert!(maps.get_opt(&cluster.key("o0001")).await.unwrap().is_some());
    // A name as no object has it: it must not become a query.
    assert!(maps.get_opt(&cluster.key("o0001?x#y z")).await.unwrap().is_none());
    let unknown = ApiResource::from_gvk(&GroupVersionKind::gvk("no.such.group", "v1", "Thing"));
    let things = requests.api_of::<DynamicObject>(unknown);
    assert!(things.get_opt(&ObjectName::cluster("a")).await.unwrap_err().is_not_found());
    let roles = requests.api::<ClusterRole>();
    assert!(roles.get_opt(&ObjectName::cluster("system:discovery")).await.unwrap().is_some());

    let manager_of = |map: &ConfigMap| map.metadata.managed_fields.as_ref().unwrap()[0].manager.clone();
    let mut map = maps.create(&cluster.config_map("named", 0)).await.unwrap();
    assert_eq!(manager_of(&map).as_deref(), Some("real-server-test"), "by the User-Agent");
    let fields = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "named"}, "data": {"value": value}});
    let (key, requests) = (cluster.key("named"), requests.manager("applier"));
    let maps = requests.api::<ConfigMap>();
    let conflict = maps.patch(&key, &Patch::Apply(fields("1"))).await.unwrap_err();
    assert_eq!(conflict.class(), Class::Conflict);
    map = maps.force_apply(&key, &fields("1")).await.unwrap();
    assert_eq!(map.data.unwrap()["value"], "1");
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(kubeconfig) = std::env::var_os("WATCHKEEPER_TEST_KUBECONFIG").map(PathBuf::from) else {
        println!(
            "skipped: WATCHKEEPER_TEST_KUBECONFIG names no cluster (docs/reference.md says how to have one)"
        );
        return ExitCode::SUCCESS;
    };
    let mut failed = 0;
    macro_rules! check {
        ($($name:ident)*) => {$({
            let kubeconfig = kubeconfig.clone();
            let test = tokio::spawn(async move {
                let cluster = RealCluster::new(&stringify!($name)[..8].replace('_', "-"), kubeconfig).await;
                $name(&cluster).await;
            });
            let passed = test.await.is_ok();
            failed += i32::from(!passed);
            println!("test {} ... {}", stringify!($name), if passed { "ok" } else { "FAILED" });
        })*};
    }
    check! {
        paged_and_streamed_lists_equal_the_servers
        objects_of_a_custom_resource_are_mirrored
        five_thousand_random_changes_leave_the_cache_equal_to_a_list
        requests_list_apply_and_name_the_program
        a_restart_and_a_compaction_are_survived
    }
    println!("{} passed, {failed} failed", 5 - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
