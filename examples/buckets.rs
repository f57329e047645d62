//! A controller of something outside the cluster: finalizer, conditions, requeue, a child that the server has defaulted,
//! read-your-writes, and a test with faults. The guide quotes it.
//!
//! `cargo run -p examples --example buckets`

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_core::params::Patch;
use kube_core::{CustomResourceExt, Resource};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::Writes;
use watchkeeper::informer::{InformerStopped, Lister};
use watchkeeper::process::run_workers;
use watchkeeper::workqueue::{RateLimitingQueue, WorkItem, enqueue, enqueue_mapped, limiter};
use watchkeeper::{Client, Env, Object, ObjectName, SharedInformerFactory};

type Failure = Box<dyn Error + Send + Sync>;

/// What a Bucket asks for.
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(
    group = "storage.example.com",
    version = "v1",
    kind = "Bucket",
    namespaced,
    status = "BucketStatus",
    crates(kube_core = "kube_core")
)]
struct BucketSpec {
    size: u32,
}

/// What became of it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
struct BucketStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// Stands for a service outside the cluster that keeps buckets by uid.
#[derive(Clone, Default)]
struct Cloud(Arc<Mutex<BTreeMap<String, u32>>>);

impl Cloud {
    fn put(&self, uid: &str, size: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned(), size);
    }

    fn remove(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    fn sizes(&self) -> Vec<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }
}

struct Controller {
    buckets: Lister<Bucket>,
    services: Lister<Service>,
    queue: RateLimitingQueue<ObjectName>,
    writes: Writes,
    client: Client,
    cloud: Cloud,
}

const FINALIZER: &str = "storage.example.com/bucket";

impl Controller {
    /// Whether the finalizer had to be added: before anything is made outside, so that nothing can be left there.
    async fn add_finalizer(&self, key: &ObjectName, bucket: &Bucket) -> Result<bool, Failure> {
        let mut finalizers = bucket.metadata.finalizers.clone().unwrap_or_default();
        if finalizers.iter().any(|name| name == FINALIZER) {
            return Ok(false);
        }
        finalizers.push(FINALIZER.to_owned());
        self.set_finalizers(key, bucket, finalizers).await?;
        Ok(true)
    }

    /// Removes what is outside, and only then the finalizer, with which the Bucket goes.
    async fn clean_up(&self, key: &ObjectName, bucket: &Bucket) -> Result<(), Failure> {
        let finalizers = bucket.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|name| name == FINALIZER) {
            return Ok(()); // It waits for the finalizers of others.
        }
        self.cloud.remove(bucket.metadata.uid.as_deref().unwrap_or_default());
        let others = finalizers.into_iter().filter(|name| name != FINALIZER).collect();
        self.set_finalizers(key, bucket, others).await
    }

    /// With the version that was read: where others have changed the list meanwhile, the server refuses.
    async fn set_finalizers(
        &self,
        key: &ObjectName,
        bucket: &Bucket,
        finalizers: Vec<String>,
    ) -> Result<(), Failure> {
        let version = &bucket.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let written = self.client.api::<Bucket>().patch(key, &Patch::Merge(patch)).await?;
        self.writes.wrote(key, self.buckets.indexer(), &written);
        Ok(())
    }
}

/// Sets a condition, and says whether that changes anything. The time is that of the last change of its status.
fn set_condition(conditions: &mut Vec<Condition>, mut wanted: Condition) -> bool {
    let Some(found) = conditions.iter_mut().find(|found| found.type_ == wanted.type_) else {
        conditions.push(wanted);
        return true;
    };
    if found.status == wanted.status {
        wanted.last_transition_time = found.last_transition_time.clone();
    }
    let is_new = *found != wanted;
    *found = wanted;
    is_new
}

impl Controller {
    /// Writes the condition where it is not there yet: a status that is written each time brings the key back each time.
    async fn set_ready(&self, key: &ObjectName, bucket: &Bucket, message: &str) -> Result<(), Failure> {
        let ready = Condition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            reason: "Stored".to_owned(),
            message: message.to_owned(),
            // Which wish this is about: whoever waits for "Ready" must compare it with metadata.generation.
            observed_generation: bucket.metadata.generation,
            last_transition_time: Time(self.client.env().clock.wall()),
        };
        let mut status = bucket.status.clone().unwrap_or_default();
        if set_condition(&mut status.conditions, ready) {
            let changed = Bucket { status: Some(status), ..bucket.clone() };
            let written = self.client.api::<Bucket>().replace_status(&changed).await?;
            self.writes.wrote(key, self.buckets.indexer(), &written);
        }
        Ok(())
    }
}

/// The Service of a Bucket: only what we want of it.
fn service_of(bucket: &Bucket) -> Value {
    let meta = &bucket.metadata;
    json!({
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "spec": {"selector": {"bucket": meta.name}, "ports": [{"port": 9000}]},
    })
}

/// Whether this very Bucket controls it: a Bucket of the same name that was deleted before had another uid.
fn is_controlled_by(service: &Service, bucket: &Bucket) -> bool {
    let mut owners = service.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && bucket.metadata.uid.as_ref() == Some(&owner.uid))
}

/// Whether `found` has all that `wanted` says. What the server or others have added does not count.
fn has_all(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| found.get(name).is_some_and(|found| has_all(found, wanted)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| has_all(found, wanted))
        }
        _ => found == wanted,
    }
}

impl Controller {
    /// Makes the Service, or sets back what differs from what we want. One that is not this Bucket's is left alone.
    async fn sync_service(&self, key: &ObjectName, bucket: &Bucket) -> Result<(), Failure> {
        let (wanted, requests) = (service_of(bucket), self.client.api::<Service>());
        let written = match self.services.get(key) {
            Ok(found) if !is_controlled_by(&found, bucket) => {
                return Err(format!("Service {key} exists, and Bucket {key} does not control it").into());
            }
            Ok(found) if has_all(&serde_json::to_value(&*found)?, &wanted) => return Ok(()),
            // A merge leaves alone what it does not name: further owners, for example.
            Ok(_) => requests.patch(key, &Patch::Merge(&wanted)).await?,
            Err(error) if error.is_not_found() => {
                let mut service: Service = serde_json::from_value(wanted)?;
                service.metadata.owner_references = bucket.controller_owner_ref(&()).map(|owner| vec![owner]);
                requests.create(&service).await?
            }
            Err(error) => return Err(error.into()),
        };
        self.writes.wrote(key, self.services.indexer(), &written);
        Ok(())
    }
}

impl Controller {
    /// Reconciles the Bucket of that key, and returns when to look again though nothing has changed.
    async fn sync(&self, key: &ObjectName) -> Result<Option<Duration>, Failure> {
        // As this controller's own writes left it, whether the cache has seen them or not.
        let Some(bucket) = self.writes.get(key, self.buckets.indexer(), key) else { return Ok(None) };
        let bucket = bucket.get()?;
        if bucket.metadata.deletion_timestamp.is_some() {
            self.clean_up(key, &bucket).await?;
            return Ok(None);
        }
        if self.add_finalizer(key, &bucket).await? {
            return Ok(None); // The news of that write brings the key back.
        }
        self.cloud.put(bucket.metadata.uid.as_deref().unwrap_or_default(), bucket.spec.size);
        self.sync_service(key, &bucket).await?;
        self.set_ready(key, &bucket, &format!("{} GiB", bucket.spec.size)).await?;
        Ok(Some(Duration::from_secs(60)))
    }

    async fn work(self: Arc<Self>, item: WorkItem<ObjectName>) {
        // A key whose last writes are not cached yet goes back to the queue.
        let Some(item) = self.writes.admit(item) else { return };
        match self.sync(item.key()).await {
            Ok(None) => item.forget(),
            // No informer sees the cloud: it is looked at again from time to time.
            Ok(Some(later)) => item.retry_after(later),
            Err(error) => item.retry(error),
        }
    }
}

impl Controller {
    fn new(
        client: &Client,
        factory: &SharedInformerFactory,
        cloud: &Cloud,
    ) -> Result<Arc<Self>, InformerStopped> {
        let (buckets, services) = (factory.informer::<Bucket>(), factory.informer::<Service>());
        let queue = RateLimitingQueue::new("buckets", limiter::default_controller(), client.env());
        buckets.add_handler(enqueue(queue.clone()))?;
        services.add_handler(enqueue_mapped(queue.clone(), Object::<Service>::controller_of::<Bucket>))?;
        let writes = Writes::new(&queue, client.env());
        let (buckets, services) = (buckets.lister(), services.lister());
        let (client, cloud) = (client.clone(), cloud.clone());
        Ok(Arc::new(Self { buckets, services, queue, writes, client, cloud }))
    }
}

/// The program, until `stop`.
async fn run(client: &Client, cloud: &Cloud, stop: &CancellationToken) -> Result<(), Failure> {
    let factory = SharedInformerFactory::builder(client).build();
    let controller = Controller::new(client, &factory, cloud)?;
    // An informer that panics ends the others, and the workers, by this token.
    let stop = &stop.child_token();
    factory.start(stop);
    let work = async {
        factory.wait_for_sync(stop).await?;
        let queue = controller.queue.clone();
        run_workers(2, &queue, stop.clone(), client.env(), move |item| controller.clone().work(item)).await;
        Ok(())
    };
    let result = work.await;
    // An informer that panicked is why anything else ended.
    factory.join().await?;
    result
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (env, cloud, stop) = (Env::system(), Cloud::default(), CancellationToken::new());
    let client = examples::client(&env);
    client.api::<CustomResourceDefinition>().create(&Bucket::crd()).await?;
    let story = async {
        let _stop = stop.clone().drop_guard();
        let (buckets, key) = (client.api::<Bucket>(), ObjectName::namespaced("default", "photos"));
        buckets.create(&bucket("photos", 10)).await?;
        let is_ready =
            |bucket: &Bucket| bucket.status.as_ref().is_some_and(|status| !status.conditions.is_empty());
        while !is_ready(&buckets.get(&key).await?) {
            env.clock.sleep(Duration::from_millis(10)).await;
        }
        println!("stored outside: {:?}", cloud.sizes());
        buckets.delete(&key).await?;
        while !cloud.sizes().is_empty() {
            env.clock.sleep(Duration::from_millis(10)).await;
        }
        println!("and gone with its Bucket");
        Ok(())
    };
    let (told, ran) = tokio::join!(story, run(&client, &cloud, &stop));
    told.and(ran)
}

fn bucket(name: &str, size: u32) -> Bucket {
    let mut bucket = Bucket::new(name, BucketSpec { size });
    bucket.metadata.namespace = Some("default".to_owned());
    bucket
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use watchkeeper_sim::{Cluster, Rates, Simulation};

    use super::*;

    #[test]
    fn it_runs_to_its_end() {
        main().unwrap();
    }

    /// Users make two Buckets, enlarge one, delete the other, and edit a Service.
    async fn users(cluster: &Cluster) {
        let requests = cluster.user.requests();
        requests.api::<CustomResourceDefinition>().create(&Bucket::crd()).await.unwrap();
        for name in ["photos", "films"] {
            cluster.pause(Duration::from_secs(10)).await;
            requests.api().create(&bucket(name, 10)).await.unwrap();
        }
        cluster.pause(Duration::from_secs(30)).await;
        let larger = Patch::Merge(json!({"spec": {"size": 20}}));
        requests.api::<Bucket>().patch(&key("photos"), &larger).await.unwrap();
        requests.api::<Bucket>().delete(&key("films")).await.unwrap();
        let edit = Patch::Merge(json!({"spec": {"selector": {"bucket": "another"}}}));
        let _may_not_be_there_yet = requests.api::<Service>().patch(&key("photos"), &edit).await;
    }

    /// One Bucket, ready, with its Service as it should be; nothing else is left, in the cluster or outside.
    async fn is_as_asked(cluster: &Cluster, cloud: &Cloud) -> bool {
        let requests = cluster.user.requests();
        let photos = requests.api::<Bucket>().get(&key("photos")).await.unwrap();
        let Ok(service) = requests.api::<Service>().get(&key("photos")).await else { return false };
        let ready = photos.status.iter().flat_map(|status| &status.conditions);
        has_all(&serde_json::to_value(&service).unwrap(), &service_of(&photos))
            && ready.map(|ready| ready.observed_generation).eq([photos.metadata.generation])
            && cloud.sizes() == [20]
            && requests.api::<Bucket>().get(&key("films")).await.is_err()
    }

    #[test]
    fn through_fifty_schedules_of_faults_nothing_is_left_behind() {
        let mut lost = 0;
        for seed in 0..50 {
            let cloud = Cloud::default();
            let run = Simulation::new(seed).rates(Rates::STORM).run(
                async |client, stop| run(&client, &cloud, &stop).await.unwrap_or_default(),
                async |cluster| {
                    users(cluster).await;
                    let converged = cluster.converged(async || is_as_asked(cluster, &cloud).await).await;
                    assert!(converged, "seed {seed}: {:?}", cloud.sizes());
                },
            );
            lost += run.trace.iter().filter(|line| line.contains(" lost")).count();
        }
        assert!(lost > 50, "the faults were there: {lost} requests or answers lost");
    }

    #[test]
    fn a_service_of_others_is_left_alone_and_further_owners_of_its_own_are_kept() {
        let cloud = Cloud::default();
        Simulation::new(1).rates(Rates::CALM).run(
            async |client, stop| run(&client, &cloud, &stop).await.unwrap_or_default(),
            async |cluster| {
                let (requests, clock) = (cluster.user.requests(), &cluster.env.clock);
                requests.api::<CustomResourceDefinition>().create(&Bucket::crd()).await.unwrap();
                let (services, photos) = (requests.api::<Service>(), key("photos"));
                let foreign = json!({
                    "metadata": {"name": "photos", "namespace": "default"},
                    "spec": {"selector": {"app": "another"}, "ports": [{"port": 80}]},
                });
                let foreign = services.create(&serde_json::from_value(foreign).unwrap()).await.unwrap();
                let bucket = requests.api().create(&bucket("photos", 10)).await.unwrap();
                clock.sleep(Duration::from_secs(60)).await;
                assert_eq!(services.get(&photos).await.unwrap(), foreign);
                assert_eq!(cloud.sizes(), [10], "the controller got as far as the Service");

                services.delete(&photos).await.unwrap();
                assert!(cluster.converged(async || services.get(&photos).await.is_ok()).await);
                let made = services.get(&photos).await.unwrap();
                let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"});
                let mut owners = serde_json::to_value(&made.metadata.owner_references).unwrap();
                owners.as_array_mut().unwrap().push(other);
                let edit =
                    json!({"metadata": {"ownerReferences": owners}, "spec": {"selector": {"bucket": "b"}}});
                services.patch(&photos, &Patch::Merge(edit)).await.unwrap();
                let is_set_back = async || {
                    let found = services.get(&photos).await.unwrap();
                    let owners = found.metadata.owner_references.as_ref().unwrap().len();
                    owners == 2 && has_all(&serde_json::to_value(&found).unwrap(), &service_of(&bucket))
                };
                assert!(cluster.converged(is_set_back).await);
            },
        );
    }

    fn key(name: &str) -> ObjectName {
        ObjectName::namespaced("default", name)
    }
}
