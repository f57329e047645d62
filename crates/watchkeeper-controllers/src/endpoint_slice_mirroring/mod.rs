//! The EndpointSlice mirroring controller: Endpoints that users write, as slices.

// `plan.rs` decides, and this file reads and writes.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::record::EventType;
use watchkeeper::{Object, ObjectName};

use self::plan::{MOST, Mirror, marks, mirror};
use crate::endpoint_slice::layout::layout;
use crate::endpoint_slice::{slices, write};

pub(crate) const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// The label of Endpoints that are not mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// The annotation of Endpoints that are the lock of an election.
const LOCK: &str = "control-plane.alpha.kubernetes.io/leader";
/// The number of Endpoints that are reconciled at the same time.
const WORKERS: usize = 5;

/// Registers the EndpointSlice mirroring controller with `manager`.
///
/// It keeps slices that mirror the Endpoints of each Service without a selector, which a user or another program has written.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<Endpoints>::new(manager)
        .named("endpointslicemirroring")
        .component("endpoint-slice-mirroring-controller")
        .owns(Watch::<EndpointSlice>::new())
        .watches(Watch::<Service>::new(), |service: &Object<Service>, endpoints| {
            let key: ObjectName = service.key();
            endpoints.get(&key).map(|_| key).into_iter().collect()
        })
        .workers(WORKERS)
        .reconcile(reconcile)
}

async fn reconcile(endpoints: Arc<Endpoints>, cx: Context<Endpoints>) -> Result<Action, Error> {
    let service = cx.get_at::<Service>(cx.key())?;
    let existing = slices(&cx, MANAGER)?;
    let is_selecting = |service: &Service| service.spec.as_ref().is_some_and(|spec| spec.selector.is_some());
    // One with a selector has slices of the other controller, and the old ones of this one are left to it.
    if service.as_deref().is_some_and(is_selecting) && existing.is_empty() {
        return Ok(Action::done());
    }
    let is_mirrored = service.is_some_and(|service| !is_selecting(&service)) && is_mirrored(&endpoints);
    let mirror = if is_mirrored { mirror(&endpoints) } else { Mirror::default() };
    report(&cx, &mirror);
    write(&cx, layout(&existing, mirror.groups, &marks(&endpoints))).await?;
    Ok(Action::done())
}

/// Whether Endpoints hold addresses that are to be mirrored.
fn is_mirrored(endpoints: &Endpoints) -> bool {
    let value = |of: &Option<BTreeMap<String, String>>, name: &str| -> Option<String> {
        of.as_ref().and_then(|of| of.get(name)).cloned()
    };
    value(&endpoints.metadata.labels, SKIP).is_none_or(|skip| skip != "true")
        && value(&endpoints.metadata.annotations, LOCK).is_none()
}

fn report(cx: &Context<Endpoints>, mirror: &Mirror) {
    if mirror.invalid > 0 {
        let message =
            format!("Skipped {} invalid IP addresses when mirroring to EndpointSlices", mirror.invalid);
        cx.event(EventType::Warning, "InvalidAddresses", &message);
    }
    if mirror.surplus > 0 {
        let message = format!(
            "A max of {MOST} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
            mirror.surplus
        );
        cx.event(EventType::Warning, "TooManyAddressesToMirror", &message);
    }
}
