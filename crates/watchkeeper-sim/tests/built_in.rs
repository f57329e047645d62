//! The built-in controllers of a cluster through every fault: here they are what is checked.
#![allow(clippy::unwrap_used, reason = "a test may")]

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube_core::params::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};
use watchkeeper::{Kind, ObjectName};
use watchkeeper_controllers::{garbage_collector, namespace_controller};
use watchkeeper_sim::{BuiltIn, Check, User};

/// An object with these owners.
async fn create<K>(user: &User, key: &str, owners: &[&ConfigMap], more: Value) -> K
where
    K: Kind<DynamicType: Default> + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let (namespace, name) = key.split_once('/').unwrap();
    let owners: Vec<Value> = owners.iter().map(|owner| owner_reference(owner)).collect();
    let mut metadata = json!({"name": name, "namespace": namespace, "ownerReferences": owners});
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    user.create(&serde_json::from_value::<K>(json!({ "metadata": metadata })).unwrap()).await
}

fn owner_reference(owner: &ConfigMap) -> Value {
    let (name, uid) = (&owner.metadata.name, &owner.metadata.uid);
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true})
}

async fn delete(user: &User, name: &str, policy: PropagationPolicy) {
    let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
    let key = ObjectName::namespaced("default", name);
    user.client().api::<ConfigMap>().delete_with(&key, &params).await.unwrap();
}

/// Owners are deleted in each of the three ways; one of two owners is deleted, and one is created again under its name.
async fn families(user: &User) {
    let root = create::<ConfigMap>(user, "default/root", &[], json!({})).await;
    let child = create::<ConfigMap>(user, "default/child", &[&root], json!({})).await;
    create::<Secret>(user, "default/grandchild", &[&child], json!({})).await;
    let other = create::<ConfigMap>(user, "default/other", &[], json!({})).await;
    create::<Secret>(user, "default/shared", &[&root, &other], json!({})).await;
    delete(user, "root", PropagationPolicy::Background).await;
    user.eventually_gone::<Secret>("default/grandchild").await;
    let has_one_owner = |it: &Secret| it.metadata.owner_references.as_ref().is_some_and(|all| all.len() == 1);
    user.eventually::<Secret>("default/shared", has_one_owner).await;

    create::<Secret>(user, "default/of-nobody", &[&root], json!({})).await;
    user.eventually_gone::<Secret>("default/of-nobody").await;
    let root = create::<ConfigMap>(user, "default/root", &[], json!({})).await;
    create::<Secret>(user, "default/held", &[&root], json!({"finalizers": ["example.dev/hold"]})).await;
    delete(user, "root", PropagationPolicy::Foreground).await;
    user.eventually::<Secret>("default/held", |it| it.metadata.deletion_timestamp.is_some()).await;
    user.patch::<Secret>("default/held", json!({"metadata": {"finalizers": null}})).await;
    user.eventually_gone::<ConfigMap>("default/root").await;

    create::<Secret>(user, "default/orphan", &[&other], json!({})).await;
    delete(user, "other", PropagationPolicy::Orphan).await;
    user.eventually_gone::<ConfigMap>("default/other").await;
    user.settle().await;
}

#[test]
fn through_every_fault_the_collector_takes_what_it_must_and_nothing_else() {
    let report = Check::builder()
        .name("collector")
        // A backup undid the last write, and the watch of its kind had nothing to notice.
        .schedule(
            "slow-answer(1811ms) @ get /api #1; set-back @ step 13; delay(306577ms) @ watch configmaps #1 event 9",
        )
        .without_built_in(BuiltIn::GarbageCollector)
        .pairs(20)
        .seeds(40)
        .run_program(
            |_| (),
            async |life, ()| {
                let mut options = garbage_collector::Options::default();
                options.only = Some(["configmaps", "secrets"].map(str::to_owned).into());
                garbage_collector::run_with(&life.client, options, life.stop).await;
            },
            families,
        )
        .unwrap();
    println!("{report}");
}

fn namespace(name: &str) -> Namespace {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// A namespace with contents is deleted, and created again.
async fn moves(user: &User) {
    user.create(&namespace("team")).await;
    create::<Secret>(user, "team/plain", &[], json!({})).await;
    create::<Secret>(user, "team/held", &[], json!({"finalizers": ["example.dev/hold"]})).await;
    user.delete::<Namespace>("team").await;
    user.eventually_gone::<Secret>("team/plain").await;
    user.patch::<Secret>("team/held", json!({"metadata": {"finalizers": null}})).await;
    user.eventually_gone::<Namespace>("team").await;
    user.create(&namespace("team")).await;
    create::<Secret>(user, "team/plain", &[], json!({})).await;
    user.settle().await;
}

#[test]
fn through_every_fault_a_namespace_is_emptied_and_its_successor_is_not() {
    let report = Check::builder()
        .name("namespaces")
        .without_built_in(BuiltIn::NamespaceController)
        // It asks for every kind there is: every single fault at all of these requests would show little.
        .singles(false)
        .pairs(20)
        .seeds(20)
        .run_program(|_| (), async |life, ()| namespace_controller::run(&life.client, life.stop).await, moves)
        .unwrap();
    println!("{report}");
}
