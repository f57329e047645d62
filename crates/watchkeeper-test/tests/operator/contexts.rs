//! What a context reads and writes, method by method.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::Selector;
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde_json::json;
use watchkeeper::controller::{
    Action, Context, Controller, Error, Manager, ReadError, SetupError, Watch, WriteError,
};
use watchkeeper::{Env, ObjectName};
use watchkeeper_test::TestCluster;

type Log = Arc<Mutex<Vec<String>>>;

fn secret(name: &str) -> Secret {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Secret { metadata, ..Secret::default() }
}

/// Runs `work` once, for the ConfigMap `default/main`, with all Secrets cached; returns what it logged.
async fn once<F, Fut>(watch: Watch<Secret>, before: &str, work: F) -> (TestCluster, Vec<String>)
where
    F: Fn(Context<ConfigMap>, Log) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Error>> + Send + 'static,
{
    let (env, log) = (Env::simulated(1), Log::default());
    let own = log.clone();
    let cluster = TestCluster::builder()
        .env(&env)
        .manifest(before)
        .start(|manager| {
            Controller::<ConfigMap>::new(manager).owns(watch).when(|_, _| false).reconcile(move |_, cx| {
                let (is_main, log) = (cx.key().name() == "main" && own.lock().is_empty(), own.clone());
                let work = is_main.then(|| work(cx, log.clone()));
                async move {
                    if let Some(work) = work {
                        match work.await {
                            Ok(()) => log.lock().push("done".to_owned()),
                            Err(error) => log.lock().push(error.to_string()),
                        }
                    }
                    Ok(Action::done())
                }
            })
        })
        .await;
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: main}}").await;
    cluster.client().env().clock.sleep(Duration::from_secs(10)).await;
    let log = log.lock().clone();
    (cluster, log)
}

#[tokio::test(start_paused = true)]
async fn a_run_sees_its_own_writes_at_once() {
    let (cluster, log) = once(Watch::new(), "", async |cx: Context<ConfigMap>, log: Log| {
        cx.create(&secret("a")).await?;
        let created = cx.get::<Secret>("a")?.is_some();
        let patch = Patch::Merge(json!({"stringData": {"k": "v"}, "metadata": {"labels": {"x": "y"}}}));
        cx.patch::<Secret, _>("a", &patch).await?;
        let labels = cx.get::<Secret>("a")?.and_then(|it| it.metadata.labels.clone()).unwrap_or_default();
        let owned = cx.owned::<Secret>()?.complete()?.len();
        let listed = cx.list::<Secret>(None, &Selector::from_iter([("x", "y")]))?.complete()?.len();
        let deleted = cx.delete::<Secret>("a").await?;
        let gone = cx.get::<Secret>("a")?.is_none() && cx.owned::<Secret>()?.complete()?.is_empty();
        let again = cx.delete::<Secret>("a").await?;
        log.lock().push(format!("{created} {labels:?} {owned} {listed} {deleted} {gone} {again}"));
        Ok(())
    })
    .await;
    assert_eq!(log, [r#"true {"x": "y"} 1 1 true true false"#, "done"]);
    assert!(cluster.get::<Secret>("default/a").await.is_none());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_replace_is_for_the_version_that_it_names() {
    let (cluster, log) = once(Watch::new(), "", async |cx: Context<ConfigMap>, log: Log| {
        let created = cx.create(&secret("a")).await?;
        let mut changed = Secret::clone(&created);
        changed.type_ = None;
        changed.metadata.labels = Some([("v".to_owned(), "2".to_owned())].into());
        let replaced = cx.replace(&changed).await?;
        log.lock().push((replaced.metadata.resource_version > created.metadata.resource_version).to_string());
        cx.replace(&changed).await?;
        Ok(())
    })
    .await;
    assert_eq!(log[0], "true");
    assert!(log[1].starts_with("cannot replace Secret default/a: "), "{log:?}");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_owned_or_named_is_refused_before_it_is_sent() {
    let (cluster, log) = once(Watch::new(), "", async |cx: Context<ConfigMap>, log: Log| {
        let elsewhere = || {
            let mut object = secret("a");
            object.metadata.namespace = Some("kube-system".to_owned());
            object
        };
        let say = |result: Result<Arc<Secret>, WriteError>| log.lock().push(result.unwrap_err().to_string());
        say(cx.apply(&elsewhere()).await);
        say(cx.create(&Secret::default()).await);
        cx.unowned().apply(&elsewhere()).await?;
        let node = Node { metadata: secret("n").metadata, ..Node::default() };
        let refused = cx.apply(&node).await.unwrap_err().to_string();
        log.lock().push(refused);
        let mut generated = Secret::default();
        generated.metadata.generate_name = Some("gen-".to_owned());
        let generated = cx.create_generated(&generated).await?;
        log.lock().push(generated.metadata.owner_references.is_some().to_string());
        Ok(())
    })
    .await;
    assert!(log[0].starts_with("ConfigMap default/main cannot own Secret kube-system/a"), "{log:?}");
    assert!(log[1].starts_with("Secret has no name: set metadata.name"), "{log:?}");
    assert!(log[2].starts_with("ConfigMap default/main cannot own Node n"), "{log:?}");
    assert_eq!(log[3..], ["true", "done"]);
    let foreign = cluster.get::<Secret>("kube-system/a").await.unwrap();
    assert_eq!(foreign.metadata.owner_references, None);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn metadata_and_live_reads_need_no_cached_bodies() {
    let before = "{apiVersion: v1, kind: Secret, metadata: {name: s, labels: {a: b}}, stringData: {k: v}}";
    let (cluster, log) =
        once(Watch::new().metadata_only(), before, async |cx: Context<ConfigMap>, log: Log| {
            let metadata = cx.metadata::<Secret>("s")?.unwrap();
            let live = cx.live().get::<Secret>(&ObjectName::namespaced("default", "s")).await?.unwrap();
            log.lock().push(format!("{:?} {}", metadata.labels(), live.data.is_some()));
            let error = cx.get::<Secret>("s").unwrap_err();
            log.lock().push(format!("{}", matches!(error, ReadError::MetadataOnly { .. })));
            Ok(())
        })
        .await;
    assert_eq!(log, [r#"{"a": "b"} true"#, "true", "done"]);
    assert!(!cluster.operator().mistakes().is_empty());
    drop(cluster);
}

#[tokio::test(start_paused = true)]
async fn namespaces_and_selectors_narrow_what_is_cached() {
    let before = "{apiVersion: v1, kind: Secret, metadata: {name: in, labels: {a: b}}}\n---\n\
                  {apiVersion: v1, kind: Secret, metadata: {name: out}}\n---\n\
                  {apiVersion: v1, kind: Secret, metadata: {name: in, namespace: kube-system, labels: {a: b}}}";
    let watch = Watch::new().labels("a=b").namespaces(["default", "kube-public"]);
    let (cluster, log) = once(watch, before, async |cx: Context<ConfigMap>, log: Log| {
        let names = cx.list::<Secret>(None, &Selector::default())?.complete()?;
        log.lock().push(format!("{} {}", names.len(), cx.get::<Secret>("out")?.is_none()));
        let elsewhere = cx.get_at::<Secret>(&ObjectName::namespaced("kube-system", "in")).unwrap_err();
        log.lock().push(elsewhere.to_string());
        // A write outside the selection is not waited for.
        cx.unowned()
            .patch::<Secret, _>("in", &Patch::Merge(json!({"metadata": {"labels": {"a": "c"}}})))
            .await?;
        Ok(())
    })
    .await;
    assert_eq!(log[0], "1 true");
    assert_eq!(log[1], "Secret kube-system/in is not cached: its namespace is not watched");
    assert_eq!(log[2], "done");
    drop(cluster);
}

/// A controller that counts its runs and reads an optional kind.
fn with_optional(manager: &mut Manager, log: Log) -> Result<(), SetupError> {
    Controller::<Namespace>::new(manager)
        .watches(Watch::<crate::website::Website>::new().optional(), |site, _| {
            vec![ObjectName::cluster(site.namespace().unwrap_or_default())]
        })
        .reconcile(move |namespace, cx| {
            let log = log.clone();
            async move {
                let sites = cx.list::<crate::website::Website>(
                    namespace.metadata.name.as_deref(),
                    &Selector::default(),
                )?;
                if cx.key().name() == "default" {
                    log.lock().push(sites.complete()?.len().to_string());
                }
                Ok(Action::done())
            }
        })
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_is_watched_while_its_definition_is_there() {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube_core::CustomResourceExt;
    let (env, log) = (Env::simulated(1), Log::default());
    let own = log.clone();
    let cluster = TestCluster::builder().env(&env).start(|manager| with_optional(manager, own)).await;
    let pass = async || env.clock.sleep(Duration::from_secs(30)).await;
    pass().await;
    assert_eq!(*log.lock(), ["0"], "without the kind there are no objects of it");
    cluster.client().api::<CustomResourceDefinition>().create(&crate::website::Website::crd()).await.unwrap();
    pass().await;
    cluster.apply(&crate::website::manifest("site", 1)).await;
    pass().await;
    assert_eq!(*log.lock(), ["0", "1"]);
    cluster.delete::<CustomResourceDefinition>("websites.example.dev").await;
    pass().await;
    assert_eq!(log.lock().last().map(String::as_str), Some("0"), "{:?}", log.lock());
    cluster.client().api::<CustomResourceDefinition>().create(&crate::website::Website::crd()).await.unwrap();
    pass().await;
    cluster.apply(&crate::website::manifest("site", 1)).await;
    pass().await;
    assert_eq!(log.lock().last().map(String::as_str), Some("1"), "{:?}", log.lock());
    cluster.stop().await;
}
