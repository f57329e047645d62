//! An operator with marked Secrets through the faults of the simulator.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_core::ObjectMeta;
use serde_json::json;
use watchkeeper::controller::{Action, Controller, Manager, SetupError, Watch};
use watchkeeper_sim::{Check, User};

use crate::marks::SECRET;

fn register(manager: &mut Manager, _: &()) -> Result<(), SetupError> {
    Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new()).reconcile(|map, cx| async move {
        let data = BTreeMap::from([("password".to_owned(), ByteString(SECRET.as_bytes().to_vec()))]);
        let metadata = ObjectMeta { name: map.metadata.name.clone(), ..ObjectMeta::default() };
        cx.apply(&Secret { metadata, data: Some(data), ..Secret::default() }).await?;
        Ok(Action::done())
    })
}

async fn users(user: &User) {
    let map = json!({"metadata": {"name": "a", "namespace": "default"}});
    user.create::<ConfigMap>(&serde_json::from_value(map).unwrap()).await;
    user.eventually::<Secret>("default/a", |secret| secret.data.is_some()).await;
    user.patch::<Secret>("default/a", json!({"stringData": {"password": format!("{SECRET}, changed")}}))
        .await;
    user.settle().await;
    user.delete::<Secret>("default/a").await;
    user.settle().await;
}

pub(crate) fn run() {
    let checked = Check::builder().name("canary").pairs(10).seeds(20).run(|_| (), register, users);
    checked.unwrap_or_else(|failure| panic!("{failure}"));
    println!("all schedules have passed");
}
