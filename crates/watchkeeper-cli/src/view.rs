//! What is happening? One line for each change of a Foo, a Deployment or an event, as an informer sees it.

use anstream::println;
use anstyle::Style;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use sample_controller::api::Foo;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::{Clock, Instant};
use watchkeeper::informer::{Change, on_change};
use watchkeeper::{Clients, Kind, Object, ObjectName, SharedInformerFactory};

use crate::front::{DIM, GREEN, YELLOW};

/// A view on a cluster, running.
pub(crate) struct View {
    factory: SharedInformerFactory,
}

impl View {
    /// Prints changes from now on, and first what is there, until `stop`.
    pub(crate) fn start(clients: &Clients, stop: &CancellationToken) -> Self {
        let factory = SharedInformerFactory::builder(clients).build();
        let clock = clients.env().clock.clone();
        let began = clock.now();
        show::<Foo>(&factory, &clock, began, "foo", foo);
        show::<Deployment>(&factory, &clock, began, "deployment", deployment);
        show::<Event>(&factory, &clock, began, "event", event);
        factory.start(stop);
        Self { factory }
    }

    /// Waits until nothing more is printed.
    pub(crate) async fn end(self) {
        self.factory.shut_down().await;
    }
}

/// What to say of a change, if anything: about which object, and in which style.
type Say<K> = fn(&Change<'_, K>) -> Option<(ObjectName, Style, String)>;

fn show<K: Kind<DynamicType: Default>>(
    factory: &SharedInformerFactory,
    clock: &Clock,
    began: Instant,
    kind: &'static str,
    say: Say<K>,
) {
    let clock = clock.clone();
    let handler = on_change(move |change: Change<'_, K>| {
        if !change.is_resync()
            && let Some((about, style, text)) = say(&change)
        {
            let seconds = (clock.now() - began).as_secs_f64();
            println!("{DIM}{seconds:>8.3}s{DIM:#}  {kind:<10}  {about:<28}  {style}{text}{style:#}");
        }
    });
    // A new factory's informers take handlers.
    if factory.informer::<K>().add_handler(handler).is_err() {
        tracing::warn!(kind, "not shown");
    }
}

fn foo(change: &Change<'_, Foo>) -> Option<(ObjectName, Style, String)> {
    let plain = Style::new();
    let (style, text) = match change {
        Change::Added { object, .. } => {
            let spec = &object.get().ok()?.spec;
            (plain, format!("wants Deployment {:?} with {}", spec.deployment_name, count(spec.replicas)))
        }
        Change::Updated { old, new } => {
            let (old, new) = (old.get().ok()?, new.get().ok()?);
            match &new.status {
                Some(status) if old.status != new.status => {
                    let available = status.available_replicas;
                    (GREEN, format!("status written: {available} of {} available", count(new.spec.replicas)))
                }
                _ if old.spec != new.spec => (
                    plain,
                    format!("now wants {}, was {}", count(new.spec.replicas), count(old.spec.replicas)),
                ),
                _ => return None,
            }
        }
        Change::Deleted(_) => (YELLOW, "deleted".to_owned()),
    };
    Some((change.last_known()?.key(), style, text))
}

fn deployment(change: &Change<'_, Deployment>) -> Option<(ObjectName, Style, String)> {
    let replicas = |object: &Object<Deployment>| Some(object.get().ok()?.spec.as_ref()?.replicas);
    let (style, text) = match change {
        Change::Added { object, .. } => (GREEN, format!("created with {}", count(replicas(object)?))),
        Change::Updated { old, new } if replicas(old) != replicas(new) => {
            (GREEN, format!("scaled from {} to {}", count(replicas(old)?), count(replicas(new)?)))
        }
        Change::Updated { .. } => return None,
        Change::Deleted(_) => (YELLOW, "deleted".to_owned()),
    };
    Some((change.last_known()?.key(), style, text))
}

/// Of an event the object it is about is of interest, not its own name.
fn event(change: &Change<'_, Event>) -> Option<(ObjectName, Style, String)> {
    let (Change::Added { object, .. } | Change::Updated { new: object, .. }) = change else { return None };
    let event = object.get().ok()?;
    let (kind, reason) = (event.type_.as_deref().unwrap_or(""), event.reason.as_deref().unwrap_or(""));
    let style = if kind == "Warning" { YELLOW } else { Style::new() };
    let about = object.key().sibling(event.involved_object.name.as_deref()?);
    let times = match event.count {
        Some(count) if count > 1 => format!(" (×{count})"),
        _ => String::new(),
    };
    Some((about, style, format!("{kind} {reason}: {}{times}", event.message.as_deref().unwrap_or(""))))
}

fn count(replicas: Option<i32>) -> String {
    match replicas {
        Some(1) => "1 replica".to_owned(),
        Some(number) => format!("{number} replicas"),
        None => "default replicas".to_owned(),
    }
}
