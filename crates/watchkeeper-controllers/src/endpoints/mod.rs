//! The Endpoints controller: the Pods behind each Service, in one object of the same name.

// `plan.rs` decides, and this file reads and writes.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::{Object, ObjectName};

use self::plan::{MANAGED_BY, MANAGER};
use crate::services::{Backends, selected};

/// The number of Services that are reconciled at the same time.
const WORKERS: usize = 5;

/// Registers the Endpoints controller with `manager`.
///
/// For each Service with a selector it keeps Endpoints with the addresses and ports of the Pods that the selector matches, at most 1,000.
/// The Endpoints of a deleted Service are deleted.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    let backends = Backends::of(manager);
    let selecting = backends.clone();
    Controller::<Service>::new(manager)
        .named("endpoints")
        .component(MANAGER)
        .watches(Watch::<Endpoints>::new(), |endpoints, _| own(endpoints))
        .watches(Watch::<Pod>::new(), move |pod, _| selecting.services(pod))
        .workers(WORKERS)
        .reconcile_deleted(clean_up)
        .reconcile(move |service, cx| reconcile(service, cx, backends.clone()))
}

/// The Service of Endpoints that this controller has made. Others belong to users.
fn own(endpoints: &Object<Endpoints>) -> Vec<ObjectName> {
    let labels = endpoints.labels().to_map();
    let is_own = labels.get(MANAGED_BY).is_some_and(|by| by == MANAGER);
    is_own.then(|| endpoints.key()).into_iter().collect()
}

async fn reconcile(service: Arc<Service>, cx: Context<Service>, backends: Backends) -> Result<Action, Error> {
    if selected(&service).is_none() {
        return Ok(Action::done());
    }
    let pods = backends.pods(&service)?;
    let found = cx.get_at::<Endpoints>(cx.key())?;
    let mut endpoints = found.as_deref().cloned().unwrap_or_default();
    plan::update(&mut endpoints, &service, &pods);
    let cx = cx.unowned();
    match found {
        Some(found) if *found == endpoints => return Ok(Action::done()),
        Some(_) => cx.replace(&endpoints).await?,
        None => {
            endpoints.metadata.name = service.metadata.name.clone();
            endpoints.metadata.namespace = service.metadata.namespace.clone();
            cx.create(&endpoints).await?
        }
    };
    Ok(Action::done())
}

/// Deletes the Endpoints of a Service that is gone.
async fn clean_up(service: ObjectName, cx: Context<Service>) -> Result<Action, Error> {
    cx.unowned().delete::<Endpoints>(service.name()).await?;
    Ok(Action::done())
}
