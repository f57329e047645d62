//! `watchkeeper serve --faults`, with real processes and sockets.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![cfg(unix)]

mod program;

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::params::Patch;
use sample_controller::api::{self, Foo};
use serde_json::json;
use watchkeeper::{Client, Env, ObjectName};

use program::{Program, connect, folder};

/// Waits until the Deployment of the example has so many replicas and the Foo says so.
async fn converged(user: &Client, replicas: i32) {
    let (clock, name) = (Env::system().clock, ObjectName::namespaced("default", "example-foo"));
    let deadline = clock.now() + Duration::from_secs(120);
    loop {
        let deployment = user.api::<Deployment>().get_opt(&name).await.unwrap();
        if deployment.and_then(|found| found.spec?.replicas) == Some(replicas) {
            return;
        }
        assert!(clock.now() < deadline, "no Deployment with {replicas} replicas");
        clock.sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_sample_controller_converges_behind_faults_and_each_is_logged() {
    let (_folder, kubeconfig) = folder();
    let file = kubeconfig.to_str().unwrap();
    let faults = ["--faults", "7", "--fault-rate", "0.12", "--fault-delay", "0.1"];
    // Connections that hang do so for a minute.
    let kinds = "lose-request,lose-answer,refuse,refuse-after,slow-request,slow-answer,double,expire,expire-later,too-large,cut,delay,duplicate,hide,no-bookmarks,restart,compact,unreachable";
    let flags = [&["serve", "--kubeconfig-out", file, "--fault-kinds", kinds][..], &faults].concat();
    let mut server = Program::start(&flags);
    server.until(&["faults of seed 7 at 12 % of requests and events"]);
    // No faults happen to kubectl.
    let user = connect(&kubeconfig).await.program("kubectl", "v1.36.3");
    user.api::<CustomResourceDefinition>().create(&api::crd()).await.unwrap();
    let controller =
        Program::start(&["sample-controller", "--kubeconfig", file, "--admin-address", "127.0.0.1:0"]);
    user.api::<Foo>().create(&sample_controller::example()).await.unwrap();
    let name = ObjectName::namespaced("default", "example-foo");
    converged(&user, 1).await;
    for replicas in [3, 5, 2] {
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        user.api::<Foo>().patch(&name, &scale).await.unwrap();
        converged(&user, replicas).await;
    }
    user.api::<Deployment>().delete(&name).await.unwrap();
    converged(&user, 2).await;
    controller.signal("TERM");
    let (status, errors) = controller.exit();
    assert!(status.success(), "{errors}");
    server.signal("TERM");
    let (status, log) = server.exit();
    assert!(status.success(), "{log}");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("fault injected")).collect();
    assert!(lines.len() > 1, "{log}");
    assert!(lines.iter().all(|line| line.contains("sample-controller: ")), "{lines:#?}");
}

#[test]
fn faults_are_part_of_the_embedded_control_plane() {
    let refused = Program::start(&["up", "--master", "http://127.0.0.1:1", "--faults", "1"]);
    let (status, errors) = refused.exit();
    assert!(!status.success());
    assert!(errors.contains("--faults") && errors.contains("use one or the other"), "{errors}");
}
