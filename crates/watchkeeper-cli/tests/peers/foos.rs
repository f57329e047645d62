//! Kubernetes' sample-controller on our server: Foos from creation to deletion.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::params::Patch;
use sample_controller::api::{self, Foo, FooSpec};
use serde_json::json;
use watchkeeper::ObjectName;

use crate::PeerPrograms;
use crate::observer::Observer;

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

fn foo(name: &str, deployment: &str, replicas: i32) -> Foo {
    let mut foo = Foo::new(name, FooSpec { deployment_name: deployment.into(), replicas: Some(replicas) });
    foo.metadata.namespace = Some("default".into());
    foo
}

fn replicas(observer: &Observer, deployment: &str) -> Option<i32> {
    observer.seen::<Deployment>(deployment)?.spec.as_ref()?.replicas
}

fn available(observer: &Observer, foo: &str) -> Option<i32> {
    observer.seen::<Foo>(foo)?.status.as_ref().map(|status| status.available_replicas)
}

fn has_event(observer: &Observer, foo: &str, reason: &str) -> bool {
    let events = observer.factory.informer::<Event>().indexer().snapshot();
    events.iter().map(|event| event.get().unwrap()).any(|event| {
        event.involved_object.name.as_deref() == Some(foo) && event.reason.as_deref() == Some(reason)
    })
}

pub(crate) async fn the_sample_controller_of_go_serves_foos(programs: &PeerPrograms) {
    let server = programs.serve().await;
    let observer = Observer::connect(&programs.env, &programs.kubeconfig()).await;
    let requests = observer.client.requests();
    requests.api::<CustomResourceDefinition>().create(&api::crd()).await.unwrap();
    let mut controller = programs.peer("sample-controller", &[]);
    controller.until(&["Started workers"]).await;
    observer.observe::<Foo>().await;
    observer.observe::<Deployment>().await;
    observer.observe::<Event>().await;

    for number in 0..8 {
        let (name, deployment) = (format!("foo-{number}"), format!("web-{number}"));
        requests.api().create(&foo(&name, &deployment, number + 1)).await.unwrap();
    }
    observer
        .until("every Foo has its Deployment, status and event", |seen| {
            (0..8).all(|number| {
                replicas(seen, &format!("web-{number}")) == Some(number + 1)
                    && available(seen, &format!("foo-{number}")) == Some(0)
                    && has_event(seen, &format!("foo-{number}"), "Synced")
            })
        })
        .await;

    let scale = |replicas: i32| Patch::Merge(json!({"spec": {"replicas": replicas}}));
    requests.api::<Foo>().patch(&key("foo-0"), &scale(3)).await.unwrap();
    observer.until("the Deployment follows", |seen| replicas(seen, "web-0") == Some(3)).await;
    let edited = requests.api::<Deployment>().patch(&key("web-0"), &scale(9)).await.unwrap();
    observer
        .until("the hand-made edit is set back", |seen| {
            let deployment = seen.seen::<Deployment>("web-0").unwrap();
            replicas(seen, "web-0") == Some(3) && deployment.metadata.generation > edited.metadata.generation
        })
        .await;
    let status = Patch::Merge(json!({"status": {"availableReplicas": 2, "readyReplicas": 2, "replicas": 3}}));
    requests.api::<Deployment>().patch_status(&key("web-0"), &status).await.unwrap();
    observer.until("the status follows", |seen| available(seen, "foo-0") == Some(2)).await;

    let first = edited.metadata.uid;
    requests.api::<Deployment>().delete(&key("web-0")).await.unwrap();
    observer
        .until("a deleted Deployment comes back", |seen| {
            seen.seen::<Deployment>("web-0").is_some_and(|deployment| deployment.metadata.uid != first)
        })
        .await;

    requests.api().create(&foo("thief", "web-1", 1)).await.unwrap();
    observer.until("a stolen name is reported", |seen| has_event(seen, "thief", "ErrResourceExists")).await;
    requests.api::<Foo>().delete(&key("thief")).await.unwrap();

    for number in 0..8 {
        requests.api::<Foo>().delete(&key(&format!("foo-{number}"))).await.unwrap();
    }
    observer
        .until("Deployments go with their Foos", |seen| {
            (0..8).all(|number| seen.seen::<Deployment>(&format!("web-{number}")).is_none())
        })
        .await;

    controller.signal("TERM");
    let (status, lines) = controller.exit().await;
    assert!(status.success(), "{lines:#?}");
    server.signal("TERM");
    assert!(server.exit().await.0.success());
}
