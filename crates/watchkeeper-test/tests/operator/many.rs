//! Many websites at once, their children edited and deleted at random, and the operator restarted in between.
//!
//! Runs on the embedded server and, if `WATCHKEEPER_TEST_KUBECONFIG` names a cluster, on that one too.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use kube_core::params::Patch;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::{Manager, ManagerHandle};
use watchkeeper::process::ClientArgs;
use watchkeeper::source::{Scope, Selection};
use watchkeeper::{Client, Env, Kind, ObjectName};
use watchkeeper_apiserver::ApiServer;

use crate::website::{Outside, Website, WebsiteSpec, register};

/// Requests of the user that are under way at once.
const AT_ONCE: usize = 50;

/// The versions of the children by kind and name.
type Versions = BTreeMap<(&'static str, String), Option<String>>;

struct World {
    client: Client,
    namespace: String,
    sites: usize,
}

impl World {
    fn name(&self, number: usize) -> ObjectName {
        ObjectName::namespaced(&self.namespace, &format!("site-{number}"))
    }

    /// Calls `work` for each of `numbers`, many at a time.
    async fn each(&self, numbers: impl IntoIterator<Item = usize>, work: impl AsyncFn(usize)) {
        stream::iter(numbers).for_each_concurrent(AT_ONCE, |number| work(number)).await;
    }

    async fn list<K: Kind<DynamicType: Default>>(&self) -> Vec<K> {
        let scope = Scope::Namespace(self.namespace.clone());
        self.client.api::<K>().list(&scope, &Selection::default()).await.unwrap().complete().unwrap()
    }

    /// Waits until every website has its children as it wants them, for ten minutes at most.
    async fn converged(&self, operator: &ManagerHandle) {
        let end = self.client.env().clock.now() + Duration::from_secs(600);
        loop {
            let (sites, deployments) = (self.list::<Website>().await, self.list::<Deployment>().await);
            let replicas: BTreeMap<_, _> = deployments
                .iter()
                .map(|it| (it.metadata.name.clone(), it.spec.as_ref().unwrap().replicas))
                .collect();
            let is_up = |site: &&Website| {
                site.is_ready() && replicas.get(&site.metadata.name) == Some(&Some(site.spec.replicas))
            };
            let up = sites.iter().filter(is_up).count();
            let others = (self.owned::<Service>().await.len(), self.owned::<ConfigMap>().await.len());
            if up == self.sites && others == (self.sites, self.sites) {
                return;
            }
            if self.client.env().clock.now() >= end {
                let late = sites.iter().find(|site| !is_up(site)).and_then(|site| site.metadata.name.clone());
                let late = ObjectName::namespaced(&self.namespace, &late.unwrap_or_default());
                let why = operator.explain("website", &late);
                panic!("{up} of {} are up, others {others:?}; {late}: {why:?}", self.sites);
            }
            self.client.env().clock.sleep(Duration::from_secs(1)).await;
        }
    }

    /// The objects that websites own: there may be others.
    async fn owned<K: Kind<DynamicType: Default>>(&self) -> Vec<K> {
        let mut owned = self.list::<K>().await;
        owned.retain(|object| object.meta().owner_references.is_some());
        owned
    }

    async fn versions(&self) -> Versions {
        fn of<K: Kind<DynamicType: Default>>(kind: &'static str, objects: Vec<K>) -> Versions {
            let entry = |object: K| {
                let meta = object.meta().clone();
                ((kind, meta.name.unwrap_or_default()), meta.resource_version)
            };
            objects.into_iter().map(entry).collect()
        }
        let mut versions = of("website", self.list::<Website>().await);
        versions.extend(of("service", self.owned::<Service>().await));
        versions.extend(of("configmap", self.owned::<ConfigMap>().await));
        versions
    }

    fn start(&self, outside: &Arc<Outside>) -> (ManagerHandle, impl AsyncFnOnce()) {
        let builder = Manager::builder("website-operator", &self.client).namespaces([self.namespace.clone()]);
        let mut manager = builder.build();
        register(&mut manager, outside).unwrap();
        let (handle, stop) = (manager.handle(), CancellationToken::new());
        let run = tokio::spawn(manager.run(stop.clone()));
        let end = async move || {
            stop.cancel();
            run.await.unwrap().unwrap();
        };
        (handle, end)
    }

    async fn story(self) {
        let outside = Arc::<Outside>::default();
        let (handle, end) = self.start(&outside);
        handle.wait_until_running().await;
        let sites = self.client.api::<Website>();
        self.each(0..self.sites, async |number| {
            let spec = WebsiteSpec { image: "nginx".to_owned(), replicas: 0, secret: String::new() };
            let mut site = Website::new(self.name(number).name(), spec);
            site.metadata.namespace = Some(self.namespace.clone());
            sites.create(&site).await.unwrap();
        })
        .await;
        self.converged(&handle).await;
        // Edits and deletes by hand, and a restart in the middle of them.
        let generator = self.client.env().generator.fork("vandal");
        let chosen: Vec<_> =
            (0..self.sites / 2).map(|_| generator.below(self.sites as u64) as usize).collect();
        let (first, second) = chosen.split_at(chosen.len() / 2);
        let vandalize = async |number: usize| {
            let name = self.name(number);
            let replicas = Patch::Merge(json!({"spec": {"replicas": 5}}));
            match number % 4 {
                0 => drop(self.client.api::<Deployment>().patch(&name, &replicas).await),
                1 => drop(self.client.api::<Service>().delete(&name).await),
                2 => drop(
                    self.client.api::<ConfigMap>().patch(&name, &Patch::Merge(json!({"data": null}))).await,
                ),
                _ => drop(self.client.api::<ConfigMap>().delete(&name).await),
            }
        };
        self.each(first.iter().copied(), vandalize).await;
        end().await;
        self.each(second.iter().copied(), vandalize).await;
        let (handle, end) = self.start(&outside);
        self.converged(&handle).await;
        self.client.env().clock.sleep(Duration::from_secs(2)).await;
        end().await;
        // At rest: a restart sends each apply at most once, and changes no version.
        let before = self.versions().await;
        let (handle, end) = self.start(&outside);
        handle.wait_until_running().await;
        while handle.figures()[0].reconciles[0].1 < self.sites as u64 {
            self.client.env().clock.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(self.versions().await, before, "a restart changes no version");
        end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_websites_converge_on_the_embedded_server() {
    let env = Env::simulated(7);
    let client = Client::from_kube(ApiServer::new(&env).client(), &env);
    World { client, namespace: "default".to_owned(), sites: 1_000 }.story().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_websites_converge_on_a_real_server() {
    let Some(file) = std::env::var_os("WATCHKEEPER_TEST_KUBECONFIG").map(PathBuf::from) else { return };
    let env = Env::system();
    let client = ClientArgs { kubeconfig: Some(file), ..ClientArgs::default() }.connect(&env).await.unwrap();
    let namespace = format!("websites-{}", env.generator.below(1 << 32));
    let made = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
    client.api::<Namespace>().create(&made).await.unwrap();
    World { client, namespace, sites: 1_000 }.story().await;
}
