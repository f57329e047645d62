//! The EndpointSlice controller: the Pods behind each Service, in slices.

// `plan.rs` has the endpoints of a Service, `layout.rs` spreads them over slices; this file reads and writes.

pub(crate) mod layout;
mod plan;

use std::sync::Arc;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::{Kind, Object};

use self::layout::Layout;
use self::plan::Place;
use crate::pods::template::generated_name;
use crate::services::{Backends, selected};

/// The label that says which controller a slice belongs to.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The label that says which Service a slice belongs to.
pub(crate) const SERVICE: &str = "kubernetes.io/service-name";
/// The label of a node that says where it is.
const ZONE: &str = "topology.kubernetes.io/zone";
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// The number of Services that are reconciled at the same time.
const WORKERS: usize = 5;

/// Registers the EndpointSlice controller with `manager`.
///
/// For each Service with a selector it keeps slices with the addresses and ports of the Pods that the selector matches, at most 100 in a
/// slice. A Service without such Pods has an empty slice. A change of Pods changes as few slices as possible.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let backends = Backends::of(manager);
    let selecting = backends.clone();
    Controller::<Service>::new(manager)
        .named("endpointslice")
        .component("endpoint-slice-controller")
        .owns(Watch::<EndpointSlice>::new())
        .watches(Watch::<Pod>::new(), move |pod, _| selecting.services(pod))
        .watches(Watch::<Node>::new().when(|old, new| zone(old) != zone(new)), |_, services| services.keys())
        .workers(WORKERS)
        .reconcile(move |service, cx| reconcile(service, cx, backends.clone()))
}

fn zone(node: &Object<Node>) -> Option<String> {
    node.labels().to_map().remove(ZONE)
}

async fn reconcile(service: Arc<Service>, cx: Context<Service>, backends: Backends) -> Result<Action, Error> {
    if selected(&service).is_none() {
        return Ok(Action::done());
    }
    let pods = backends.pods(&service)?;
    let existing = slices(&cx, MANAGER)?;
    // A node that cannot be decoded is there all the same.
    let place = |node: &str| {
        let node = cx.metadata::<Node>(node).ok()??;
        Some(Place { zone: zone(&node) })
    };
    let groups = plan::groups(&service, &pods, place);
    write(&cx, layout::layout(&existing, groups, &plan::marks(&service, MANAGER))).await?;
    Ok(Action::done())
}

/// The slices of the main object that this controller keeps.
pub(crate) fn slices<K: Kind>(cx: &Context<K>, manager: &str) -> Result<Vec<Arc<EndpointSlice>>, Error> {
    let mut slices = cx.owned::<EndpointSlice>()?.complete()?;
    slices.retain(|slice| {
        let labels = slice.metadata.labels.as_ref();
        let is_its = labels.and_then(|labels| labels.get(MANAGED_BY)).is_none_or(|by| by == manager);
        is_its && slice.metadata.deletion_timestamp.is_none()
    });
    Ok(slices)
}

/// Writes what has changed in the slices of the main object.
pub(crate) async fn write<K: Kind>(cx: &Context<K>, layout: Layout) -> Result<(), Error> {
    let prefix = format!("{}-", cx.key().name());
    let create = layout.create.into_iter().map(|mut slice| {
        slice.metadata.name = Some(generated_name(&prefix, &cx.env().generator));
        slice.metadata.generate_name = Some(prefix.clone());
        slice
    });
    try_join_all(create.map(|slice| async move { cx.create(&slice).await })).await?;
    try_join_all(layout.replace.iter().map(|slice| cx.replace(slice))).await?;
    try_join_all(layout.delete.iter().map(|name| cx.delete::<EndpointSlice>(name))).await?;
    Ok(())
}
