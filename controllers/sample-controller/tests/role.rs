//! The roles of the manifests: they grant what the controller does, and nothing else.
#![allow(clippy::unwrap_used, reason = "a test may")]

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use sample_controller::api::Foo;
use sample_controller::{CRD_STATUS_SUBRESOURCE, EXAMPLE, Options, RunError, role};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper::controller::{AccessCheck, Role};
use watchkeeper::process::{AdminAddress, AdminArgs};
use watchkeeper_test::TestCluster;

const ROLES: &str = include_str!("../artifacts/deploy/rbac.yaml");
const NAMESPACE: &str = include_str!("../artifacts/deploy/namespace.yaml");

/// The options of the Deployment, with another check.
fn deployed(access_check: AccessCheck) -> Options {
    Options {
        leader_elect: true,
        leader_election_namespace: Some("sample-controller".to_owned()),
        access_check,
        ..Options::default()
    }
}

#[tokio::test(start_paused = true)]
async fn the_controller_asks_for_its_permissions_at_the_start_and_names_those_that_are_missing() {
    let no_create = ROLES.replacen("[list, watch, create, update]", "[list, watch, update]", 1);
    let no_renewal = ROLES.replacen("[get, list, watch, update]", "[get, list, watch]", 1);
    for (roles, missing) in [
        (ROLES, None),
        (&no_create, Some("permissions are missing cluster-wide: create deployments.apps\n")),
        (
            &no_renewal,
            Some(
                "permissions are missing in namespace sample-controller: \
                 update leases.coordination.k8s.io sample-controller\n",
            ),
        ),
    ] {
        let cluster = TestCluster::builder().env(&Env::simulated(1)).manifest(CRD_STATUS_SUBRESOURCE);
        let cluster = cluster.manifest(NAMESPACE).role(roles).without_operator().await;
        let (client, stop) = (cluster.recorded_client(), CancellationToken::new());
        let options = deployed(AccessCheck::Fail);
        let run = sample_controller::run(&client, &options, stop.clone());
        let Some(missing) = missing else {
            let work = async {
                cluster.apply(EXAMPLE).await;
                cluster.eventually::<Foo>("default/example-foo", |foo| foo.status.is_some()).await;
                stop.cancel();
            };
            tokio::join!(run, work).0.unwrap();
            continue;
        };
        let error = run.await.unwrap_err();
        assert!(matches!(error, RunError::Access(_)) && error.to_string().starts_with(missing), "{error}");
    }
}

/// The permissions of the role of that kind for the controller's account.
fn granted(kind: &str) -> Role {
    let roles: Vec<Value> = serde_saphyr::from_multiple(ROLES).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let (mut granted, is_bound) =
        (Role::default(), |role: &&Value| !text(&role["metadata"]["name"]).ends_with("-reader"));
    for role in roles.iter().filter(|role| role["kind"] == kind).filter(is_bound) {
        for rule in role["rules"].as_array().unwrap() {
            for (group, resource) in all(&rule["apiGroups"]).iter().zip(all(&rule["resources"])) {
                for verb in all(&rule["verbs"]) {
                    match &all(&rule["resourceNames"])[..] {
                        [] => granted.add(group, &resource, &verb),
                        [name] => granted.add_named(group, &resource, name, &verb),
                        _ => panic!("several names: {rule}"),
                    }
                }
            }
        }
    }
    granted
}

#[test]
fn the_permissions_that_are_asked_for_at_the_start_are_those_of_the_roles() {
    let mut cluster_wide = role::controller();
    cluster_wide.extend(&role::pages());
    assert_eq!(cluster_wide, granted("ClusterRole"));
    assert_eq!(role::election(), granted("Role"));
}

#[tokio::test(start_paused = true)]
async fn only_a_program_whose_metrics_are_protected_needs_to_ask_who_reads_them() {
    let no_reviews = ROLES.replacen("[tokenreviews]", "[selfsubjectreviews]", 1);
    for is_secure in [false, true] {
        let cluster = TestCluster::builder().env(&Env::simulated(1)).manifest(CRD_STATUS_SUBRESOURCE);
        let cluster = cluster.manifest(NAMESPACE).role(&no_reviews).without_operator().await;
        let (client, stop) = (cluster.recorded_client(), CancellationToken::new());
        let options = deployed(AccessCheck::Fail);
        let mut admin = AdminArgs::default();
        admin.metrics_bind_address = AdminAddress::At(([127, 0, 0, 1], 0).into());
        admin.metrics_secure = Some(is_secure);
        let work = async {
            cluster.apply(EXAMPLE).await;
            cluster.eventually::<Foo>("default/example-foo", |foo| foo.status.is_some()).await;
            stop.cancel();
        };
        let run = sample_controller::serve(&client, &options, &admin, stop.clone());
        if is_secure {
            let error = run.await.unwrap_err().to_string();
            let missing = "permissions are missing cluster-wide: create tokenreviews.authentication.k8s.io\n";
            assert!(error.starts_with(missing), "{error}");
        } else {
            tokio::join!(run, work).0.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_roles_grant_what_the_controller_does_and_nothing_else() {
    let cluster = TestCluster::builder().env(&Env::simulated(1)).manifest(CRD_STATUS_SUBRESOURCE);
    let cluster = cluster.manifest(NAMESPACE).without_operator().await;
    let (client, stop) = (cluster.recorded_client(), CancellationToken::new());
    let (token, options) = (stop.clone(), deployed(AccessCheck::Off));
    let controller = tokio::spawn(async move { sample_controller::run(&client, &options, token).await });
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
    // The server of the metrics asks about those who scrape; nobody does here.
    permissions.add("authentication.k8s.io", "tokenreviews", "create");
    permissions.add("authorization.k8s.io", "subjectaccessreviews", "create");
    permissions.check(ROLES).unwrap_or_else(|error| panic!("{error}"));

    let differs =
        |verbs: &str, others: &str| permissions.check(&ROLES.replacen(verbs, others, 1)).unwrap_err();
    let missing = differs("[list, watch, create, update]", "[list, watch, create]");
    assert!(missing.contains("missing: update deployments.apps\nwhat it needs"), "{missing}");
    let superfluous = differs("[list, watch]", "[get, list, watch]");
    assert!(superfluous.contains("superfluous: get foos.samplecontroller.k8s.io\n"), "{superfluous}");
    let no_renewal = differs("[get, list, watch, update]", "[get, list, watch]");
    assert!(no_renewal.contains("missing: update leases.coordination.k8s.io\n"), "{no_renewal}");
    cluster.stop().await;
}

#[test]
fn leases_are_granted_in_the_namespace_of_the_controller_alone_and_only_its_own_can_be_changed() {
    let roles: Vec<Value> = serde_saphyr::from_multiple(ROLES).unwrap();
    let lease_rules = |kind: &str| -> Vec<&Value> {
        let of_kind = roles.iter().filter(|role| role["kind"] == kind);
        let rules = of_kind.filter_map(|role| role["rules"].as_array()).flatten();
        rules.filter(|rule| rule["resources"].to_string().contains("leases")).collect()
    };
    assert!(lease_rules("ClusterRole").is_empty(), "an election needs no Lease of another namespace");
    for rule in lease_rules("Role") {
        let is_create = rule["verbs"] == serde_json::json!(["create"]);
        assert!(is_create || rule["resourceNames"] == serde_json::json!(["sample-controller"]), "{rule}");
    }
    let is_elsewhere = |role: &&Value| {
        matches!(role["kind"].as_str(), Some("Role" | "RoleBinding"))
            && role["metadata"]["namespace"] != "sample-controller"
    };
    assert_eq!(roles.iter().find(is_elsewhere), None);
}
