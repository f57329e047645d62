//! The role of the manifests: it grants what the controller does, and nothing else.
#![allow(clippy::unwrap_used, reason = "a test may")]

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use sample_controller::api::Foo;
use sample_controller::{CRD_STATUS_SUBRESOURCE, EXAMPLE, Options};
use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper_test::TestCluster;

const ROLE: &str = include_str!("../artifacts/deploy/rbac.yaml");

#[tokio::test(start_paused = true)]
async fn the_role_grants_what_the_controller_does_and_nothing_else() {
    let cluster = TestCluster::builder().env(&Env::simulated(1)).manifest(CRD_STATUS_SUBRESOURCE);
    let cluster = cluster.without_operator().await;
    let (client, stop) = (cluster.recorded_client(), CancellationToken::new());
    let token = stop.clone();
    let controller =
        tokio::spawn(async move { sample_controller::run(&client, &Options::default(), token).await });
    cluster.apply(EXAMPLE).await;
    cluster.eventually::<Foo>("default/example-foo", |foo| foo.status.is_some()).await;
    cluster.apply(&EXAMPLE.replace("replicas: 1", "replicas: 2")).await;
    let is_scaled = |deployment: &Deployment| deployment.spec.as_ref().unwrap().replicas == Some(2);
    cluster.eventually::<Deployment>("default/example-foo", is_scaled).await;
    // An event that comes again is patched.
    cluster.eventually_any::<Event>(|event| event.count > Some(1)).await;
    stop.cancel();
    controller.await.unwrap().unwrap();
    let permissions = cluster.permissions();
    // The plugin OwnerReferencesPermissionEnforcement asks for it, which the embedded server does not have.
    permissions.add("samplecontroller.k8s.io", "foos/finalizers", "update");
    permissions.check(ROLE).unwrap_or_else(|error| panic!("{error}"));

    let differs =
        |verbs: &str, others: &str| permissions.check(&ROLE.replacen(verbs, others, 1)).unwrap_err();
    let missing = differs("[list, watch, create, update]", "[list, watch, create]");
    assert!(missing.contains("missing: update deployments.apps\nwhat it needs"), "{missing}");
    let superfluous = differs("[list, watch]", "[get, list, watch]");
    assert!(superfluous.contains("superfluous: get foos.samplecontroller.k8s.io\n"), "{superfluous}");
    cluster.stop().await;
}
