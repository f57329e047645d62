//! The Foos and their Deployments: what users and kubelets change, and what must have become of it in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::core::params::Patch;
use kube_client::core::{ApiResource, DynamicObject, GroupVersionKind};
use parking_lot::Mutex;
use sample_controller::api::{Foo, FooSpec};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::on_apply;
use watchkeeper::source::{Scope, Selection};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Client, Env, Object, ObjectName, SharedInformerFactory};

use crate::informer::Failure;

/// The namespace of the Foos.
const NAMESPACE: &str = "weather";
/// The roles of the controller, as they are deployed.
const ROLES: &str = include_str!("../../../controllers/sample-controller/artifacts/deploy/rbac.yaml");
/// The namespace of the controller.
const OPERATORS: &str =
    include_str!("../../../controllers/sample-controller/artifacts/deploy/namespace.yaml");

/// The objects on the server, as their users see them.
#[derive(Debug)]
pub(super) struct World {
    client: Client,
    env: Env,
    foos: u64,
    /// The uids of all Deployments of a name that a watch has shown.
    uids: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
    pub(super) changes: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl World {
    /// Installs the kind, the namespaces and the roles.
    pub(super) async fn new(client: &Client, env: &Env, foos: u64) -> Result<Self, Failure> {
        client.api::<CustomResourceDefinition>().create(&sample_controller::api::crd()).await?;
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        client.api::<Namespace>().create(&namespace).await?;
        for manifest in [OPERATORS, ROLES] {
            for object in serde_saphyr::from_multiple::<Value>(manifest)? {
                apply(client, &object).await?;
            }
        }
        Ok(Self {
            client: client.clone(),
            env: env.clone(),
            foos,
            uids: Arc::default(),
            changes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Notes the uid of every Deployment that a watch shows, until `stop`.
    pub(super) fn observe(&self, stop: &CancellationToken) -> Result<SharedInformerFactory, Failure> {
        let factory = SharedInformerFactory::builder(&self.client).namespace(NAMESPACE).build();
        let uids = self.uids.clone();
        factory.informer::<Deployment>().add_handler(on_apply(move |deployment: &Object<Deployment>| {
            let (name, uid) = (deployment.name().to_owned(), deployment.uid().to_owned());
            uids.lock().entry(name).or_default().insert(uid);
        }))?;
        factory.start(stop);
        Ok(factory)
    }

    /// Creates all Foos.
    pub(super) async fn create(&self) -> Result<(), Failure> {
        let creates = stream::iter(0..self.foos).map(|number| async move {
            let spec = FooSpec { deployment_name: name(number), replicas: Some(1) };
            let mut foo = Foo::new(&name(number), spec);
            foo.metadata.namespace = Some(NAMESPACE.to_owned());
            self.client.api::<Foo>().create(&foo).await.map(drop)
        });
        Ok(creates.buffer_unordered(32).try_collect().await?)
    }

    /// Changes something at random, as users, a kubelet and others do, each `pause`, until `stop`.
    pub(super) async fn change_until(&self, stop: &CancellationToken, pause: Duration) {
        while stop.run_until_cancelled(self.env.clock.sleep(pause)).await.is_some() {
            self.changes.fetch_add(1, Relaxed);
            if self.change().await.is_err() {
                self.refused.fetch_add(1, Relaxed);
            }
        }
    }

    async fn change(&self) -> Result<(), ApiError> {
        let dice = &self.env.generator;
        let name = name(dice.below(self.foos));
        let (key, count) = (ObjectName::namespaced(NAMESPACE, &name), dice.below(10) + 1);
        let scale = Patch::Merge(json!({"spec": {"replicas": count}}));
        let deployments = self.client.api::<Deployment>();
        match dice.below(100) {
            0..60 => self.client.api::<Foo>().patch(&key, &scale).await.map(drop),
            // A kubelet's: the controller copies it to the Foo.
            60..80 => {
                let status = json!({"replicas": count, "readyReplicas": count, "availableReplicas": count});
                deployments.patch_status(&key, &Patch::Merge(json!({"status": status}))).await.map(drop)
            }
            // Not for others to decide: the controller sets it back.
            80..95 => deployments.patch(&key, &scale).await.map(drop),
            _ => deployments.delete(&key).await,
        }
    }

    /// Waits until every Foo is as wished; returns how long that took.
    pub(super) async fn settle(&self, patience: Duration) -> Result<Duration, Failure> {
        let start = self.env.clock.now();
        loop {
            // A server that does not answer is a problem that passes.
            let problems = self.problems().await.unwrap_or_else(|error| vec![error.to_string()]);
            let took = self.env.clock.now() - start;
            match problems.first() {
                None => return Ok(took),
                Some(first) if took > patience => {
                    return Err(format!(
                        "after {took:?}, {} Foos are not as wished: {first}",
                        problems.len()
                    )
                    .into());
                }
                Some(_) => self.env.clock.sleep(Duration::from_secs(1)).await,
            }
        }
    }

    /// What is not as wished, read from the server.
    async fn problems(&self) -> Result<Vec<String>, Failure> {
        let (scope, all) = (Scope::Namespace(NAMESPACE.to_owned()), Selection::default());
        let foos = self.client.api::<Foo>().list(&scope, &all).await?.complete()?;
        let deployments = self.client.api::<Deployment>().list(&scope, &all).await?.complete()?;
        let by_name: BTreeMap<_, _> =
            deployments.iter().filter_map(|it| Some((it.metadata.name.clone()?, it))).collect();
        let mut problems: Vec<_> = foos.iter().filter_map(|foo| problem(foo, &by_name)).collect();
        if foos.len() as u64 != self.foos || by_name.len() as u64 != self.foos {
            problems.push(format!("there are {} Foos and {} Deployments", foos.len(), by_name.len()));
        }
        Ok(problems)
    }

    /// The number of Deployments that were created.
    ///
    /// `logged` are those that the server has logged. A watch may miss what comes and goes quickly; the log, what was written when
    /// the server was killed.
    pub(super) fn created(&self, logged: &BTreeMap<String, BTreeSet<String>>) -> u64 {
        let mut uids = self.uids.lock().clone();
        for (name, more) in logged {
            uids.entry(name.clone()).or_default().extend(more.iter().cloned());
        }
        uids.values().map(|uids| uids.len() as u64).sum()
    }
}

fn name(number: u64) -> String {
    format!("foo-{number:05}")
}

/// What is wrong with one Foo.
fn problem(foo: &Foo, deployments: &BTreeMap<String, &Deployment>) -> Option<String> {
    let name = &foo.spec.deployment_name;
    let Some(deployment) = deployments.get(name) else { return Some(format!("{name} has no Deployment")) };
    let owners = deployment.metadata.owner_references.as_deref().unwrap_or_default();
    if !owners.iter().any(|owner| Some(&owner.uid) == foo.metadata.uid.as_ref()) {
        return Some(format!("the Deployment {name} is not its own"));
    }
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    if replicas != foo.spec.replicas {
        return Some(format!("{name} has {replicas:?} replicas instead of {:?}", foo.spec.replicas));
    }
    let available =
        deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default();
    let told = foo.status.as_ref().map(|status| status.available_replicas);
    (told != Some(available))
        .then(|| format!("{name} says {told:?} available replicas instead of {available}"))
}

/// Applies an object of a manifest; its kind is one that kube knows the plural of.
pub(super) async fn apply(client: &Client, object: &Value) -> Result<(), ApiError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    let key = ObjectName::namespaced(&namespace, &name);
    let requests = client.requests().clone().manager("kubectl");
    requests.api_of::<DynamicObject>(kind).force_apply(&key, object).await.map(drop)
}

/// Tries again until the server has done it: it is killed now and then.
pub(super) async fn insist<T, F>(env: &Env, mut attempt: impl FnMut() -> F) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let mut left = 60;
    loop {
        match attempt().await {
            Err(error) if left > 0 && error.class() != Class::Invalid => {
                left -= 1;
                env.clock.sleep(Duration::from_millis(500)).await;
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(replicas: i32, available: i32, owner: &str) -> Deployment {
        let owner = json!({"apiVersion": "a/v1", "kind": "Foo", "name": "f", "uid": owner});
        serde_json::from_value(json!({
            "metadata": {"name": "f", "ownerReferences": [owner]},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
            "status": {"availableReplicas": available},
        }))
        .unwrap()
    }

    #[test]
    fn a_foo_is_as_wished_if_its_own_deployment_and_its_status_are() {
        let foo = json!({"metadata": {"name": "f", "uid": "u"}, "spec": {"deploymentName": "f", "replicas": 2},
            "status": {"availableReplicas": 1}});
        let foo: Foo = serde_json::from_value(foo).unwrap();
        let found = |deployment: &Deployment| problem(&foo, &BTreeMap::from([("f".to_owned(), deployment)]));
        assert_eq!(found(&deployment(2, 1, "u")), None);
        assert!(found(&deployment(3, 1, "u")).unwrap().contains("3"));
        assert!(found(&deployment(2, 0, "u")).unwrap().contains("available"));
        assert!(found(&deployment(2, 1, "v")).unwrap().contains("not its own"));
        assert!(problem(&foo, &BTreeMap::new()).unwrap().contains("no Deployment"));
    }
}
