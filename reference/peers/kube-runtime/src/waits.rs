//! What kube-rs can wait for, and what its recorder makes of repetitions: one object after the other is brought there.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::events::v1;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::wait::{Condition, await_condition, conditions, delete::delete_and_finalize};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};
use tokio::sync::mpsc;

use crate::Outcome;

const NAMESPACE: &str = "default";

/// Creates `object`, gives it each of `states`, and checks that the wait sees all of them and ends at the last.
async fn meets<K>(
    what: &str,
    client: &Client,
    object: Value,
    states: &[Value],
    condition: impl Condition<K>,
) -> Outcome
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + 'static,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let object: K = from_value(object)?;
    let name = object.name_any();
    let (sender, mut seen) = mpsc::unbounded_channel();
    let told = |object: Option<&K>| {
        let _ended = sender.send(object.and_then(ResourceExt::resource_version));
        condition.matches_object(object)
    };
    let act = async {
        let mut until =
            async |version: Option<String>| while seen.recv().await.is_some_and(|seen| seen != version) {};
        // First it is not there, and that is seen as well.
        until(None).await;
        let mut last = api.create(&PostParams::default(), &object).await?;
        for state in states {
            until(last.resource_version()).await;
            last = api
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": state})))
                .await?;
        }
        Ok::<_, kube::Error>(last)
    };
    let (met, last) = tokio::join!(await_condition(api.clone(), &name, told), act);
    let (met, last) = (met?.ok_or("it is gone")?, last?);
    if met.resource_version() != last.resource_version() {
        return Err(format!("{what}: met at {:?}, not at {:?}", met.meta(), last.meta()).into());
    }
    println!("met: {what}");
    Ok(())
}

pub(crate) async fn run(client: Client) -> Outcome {
    let container = json!([{"name": "main", "image": "image:1"}]);
    let pod = json!({"metadata": {"name": "pod"}, "spec": {"containers": container}});
    let phases = [json!({"phase": "Pending", "message": "it is scheduled"}), json!({"phase": "Running"})];
    meets::<Pod>("pod running", &client, pod, &phases, conditions::is_pod_running()).await?;

    let template = json!({"spec": {"containers": container, "restartPolicy": "Never"}});
    let job = json!({"metadata": {"name": "job"}, "spec": {"template": template}});
    let time = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time});
    let ends = [
        json!({"startTime": time, "active": 1}),
        json!({"active": 0, "succeeded": 1, "conditions": [condition("SuccessCriteriaMet")]}),
        json!({"completionTime": time, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}),
    ];
    meets::<Job>("job completed", &client, job, &ends, conditions::is_job_completed()).await?;

    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": container}});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    let deployment = json!({"metadata": {"name": "deployment"}, "spec": spec});
    let progress = |status: &str| {
        let reason = if status == "True" { "NewReplicaSetAvailable" } else { "ReplicaSetUpdated" };
        json!({"conditions": [{"type": "Progressing", "status": status, "reason": reason}]})
    };
    let rollout = [progress("Unknown"), progress("True")];
    meets::<Deployment>(
        "deployment completed",
        &client,
        deployment,
        &rollout,
        conditions::is_deployment_completed(),
    )
    .await?;

    let ports = json!([{"port": 80}]);
    let service = json!({"metadata": {"name": "service"}, "spec": {"type": "LoadBalancer", "ports": ports}});
    let balanced = [json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}})];
    let provisioned = conditions::is_service_loadbalancer_provisioned();
    meets::<Service>("load balancer provisioned", &client, service, &balanced, provisioned).await?;

    let backend = json!({"service": {"name": "service", "port": {"number": 80}}});
    let ingress = json!({"metadata": {"name": "ingress"}, "spec": {"defaultBackend": backend}});
    meets::<Ingress>(
        "ingress provisioned",
        &client,
        ingress,
        &balanced,
        conditions::is_ingress_provisioned(),
    )
    .await?;

    let settings = json!({"metadata": {"name": "settings"}, "data": {"a": "1"}});
    let either = conditions::is_created::<ConfigMap>()
        .and(conditions::is_deleted("another").or(conditions::is_created()));
    meets::<ConfigMap>("created", &client, settings, &[], either).await?;

    deletions(&client).await?;
    repetitions(&client).await
}

/// Deletion with and without a finalizer.
async fn deletions(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    delete_and_finalize(maps.clone(), "settings", &DeleteParams::default()).await?;
    println!("met: deleted at once");

    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    let uid = maps.create(&PostParams::default(), &from_value(held)?).await?.uid().ok_or("no uid")?;
    let marked =
        |object: Option<&ConfigMap>| object.is_some_and(|map| map.metadata.deletion_timestamp.is_some());
    let release = async {
        await_condition(maps.clone(), "held", marked).await?;
        println!("met: marked for deletion");
        let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        maps.patch("held", &PatchParams::default(), &none).await?;
        Outcome::Ok(())
    };
    let parameters = DeleteParams::default();
    let (deleted, released) = tokio::join!(delete_and_finalize(maps.clone(), "held", &parameters), release);
    released?;
    deleted?;
    await_condition(maps.clone(), "held", conditions::is_deleted(&uid)).await?;
    await_condition(maps, "held", conditions::is_created().not()).await?;
    println!("met: deleted after its finalizer");
    Ok(())
}

/// Three events of one kind become one object with a series, and one of another kind a second object.
async fn repetitions(client: &Client) -> Outcome {
    let pod = Api::<Pod>::namespaced(client.clone(), NAMESPACE).get("pod").await?;
    let recorder = Recorder::new(client.clone(), "waits".into());
    for reason in ["Pulled", "Pulled", "Started", "Pulled"] {
        let event = Event {
            type_: EventType::Normal,
            reason: reason.to_owned(),
            note: Some(reason.to_lowercase()),
            action: "Waiting".to_owned(),
            secondary: None,
        };
        recorder.publish(&event, &pod.object_ref(&())).await?;
    }
    let events: Api<v1::Event> = Api::namespaced(client.clone(), NAMESPACE);
    let of_pod = ListParams::default().fields("regarding.name=pod,regarding.kind=Pod");
    let mut counted: Vec<_> = events
        .list(&of_pod)
        .await?
        .into_iter()
        .map(|event| (event.reason.unwrap_or_default(), event.series.map_or(1, |series| series.count)))
        .collect();
    counted.sort();
    println!("events: {counted:?}");
    Ok(())
}
