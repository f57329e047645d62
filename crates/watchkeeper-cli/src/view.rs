//! What `watchkeeper up` shows: one line per change of a Foo, its Deployment or its events, and the live view below.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anstyle::Style;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use kube_client::core::Selector;
use parking_lot::Mutex;
use sample_controller::api::Foo;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, InformerPanicked, Lister, on_change};
use watchkeeper::workqueue::QueueFigures;
use watchkeeper::{Client, Kind, Object, ObjectName, RateLimitingQueue, SharedInformerFactory};

use crate::front::{GREEN, YELLOW};
use crate::next::{Deed, Next};
use crate::pen::{self, Pen};
use crate::picture::{FooRow, picture, queue_line, trouble};
use crate::screen::Screen;

/// How often the live view is drawn and, without one, how often the queue is printed.
const DRAWN: Duration = Duration::from_millis(200);
const PRINTED: Duration = Duration::from_secs(1);

/// A running view of a cluster.
pub(crate) struct View {
    factory: SharedInformerFactory,
    foos: Lister<Foo>,
    deployments: Lister<Deployment>,
    queue: RateLimitingQueue<ObjectName>,
    notes: Arc<Mutex<Notes>>,
    pen: Pen,
}

/// What the handlers have seen.
struct Notes {
    foos: Lister<Foo>,
    /// The last event of each Foo.
    events: BTreeMap<ObjectName, String>,
    next: Next,
    /// Whether the rows must be computed again.
    changed: bool,
    /// Whether there is a live view. It shows how often an event was repeated, so the lines omit repetitions.
    has_picture: bool,
}

impl View {
    /// Prints existing objects and then changes, until `stop`.
    pub(crate) fn start(
        client: &Client,
        screen: &Screen,
        queue: &RateLimitingQueue<ObjectName>,
        next: Next,
        stop: &CancellationToken,
    ) -> Self {
        let factory = SharedInformerFactory::builder(client).build();
        let pen = Pen::new(screen, &client.env().clock);
        let (foos, deployments) = (factory.lister::<Foo>(), factory.lister::<Deployment>());
        let notes = Notes {
            foos: foos.clone(),
            events: BTreeMap::new(),
            next,
            changed: true,
            has_picture: screen.is_live(),
        };
        let notes = Arc::new(Mutex::new(notes));
        show::<Foo>(&factory, &pen, &notes, "foo", foo);
        show::<Deployment>(&factory, &pen, &notes, "deployment", deployment);
        show::<Event>(&factory, &pen, &notes, "event", event);
        factory.start(stop);
        Self { factory, foos, deployments, queue: queue.clone(), notes, pen }
    }

    /// Waits until the existing Foos and Deployments are known, so that later ones count as new.
    pub(crate) async fn has_begun(&self) {
        self.foos.wait_until_synced().await;
        self.deployments.wait_until_synced().await;
    }

    /// Draws the view until `stop`, and returns when nothing more is printed.
    pub(crate) async fn run(&self, stop: &CancellationToken) -> Result<(), InformerPanicked> {
        let (mut rows, mut printed) = (Vec::new(), QueueFigures::default());
        let period = if self.pen.screen.is_live() { DRAWN } else { PRINTED };
        loop {
            let rested = stop.run_until_cancelled(self.pen.clock.sleep(period)).await;
            let ended = match rested {
                Some(()) => None,
                None => Some(self.factory.join().await),
            };
            if let Some(metrics) = self.queue.metrics().upgrade() {
                let figures = metrics.figures();
                match self.pen.screen.is_live() {
                    true => self.draw(&mut rows, &figures),
                    false if counts(&figures) != counts(&printed) => {
                        self.pen.write("queue", self.queue.name(), Style::new(), &queue_line(&figures));
                        printed = figures;
                    }
                    false => {}
                }
            }
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    fn draw(&self, rows: &mut Vec<FooRow>, figures: &QueueFigures) {
        let (mut notes, now) = (self.notes.lock(), self.pen.clock.now());
        if std::mem::take(&mut notes.changed) {
            *rows = self.rows(&notes);
        }
        // Failing keys are delayed, and slow ones are running.
        let has_trouble = figures.delayed > 0 || figures.running.count > 0;
        let records = has_trouble.then(|| self.queue.records()).into_iter().flatten();
        let size = Screen::size();
        let troubles: Vec<_> = records.filter_map(|record| trouble(&record, now, size.0)).collect();
        let (screen, queue) = (&self.pen.screen, (self.queue.name(), figures));
        screen.draw(&picture(size, rows, queue, &troubles, &notes.next.command()));
    }

    fn rows(&self, notes: &Notes) -> Vec<FooRow> {
        let row = |object: Object<Foo>| {
            let (key, foo) = (object.key(), object.get().ok()?);
            let deployment = self.deployments.object(&key.sibling(&foo.spec.deployment_name)).ok();
            let deployment = deployment.filter(|object| object.controller_of::<Foo>().as_ref() == Some(&key));
            Some(FooRow {
                wanted: foo.spec.replicas,
                deployment: foo.spec.deployment_name.clone(),
                has: deployment.and_then(|object| object.get().ok()?.spec.as_ref()?.replicas),
                available: foo.status.as_ref().map(|status| status.available_replicas),
                last_event: notes.events.get(&key).cloned().unwrap_or_default(),
                key,
            })
        };
        let mut rows: Vec<_> = self.foos.objects(&Selector::default()).into_iter().filter_map(row).collect();
        rows.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        rows
    }
}

/// What must change for another line about the queue.
fn counts(figures: &QueueFigures) -> (u64, u64, usize) {
    (figures.adds, figures.retries, figures.depth.iter().sum::<usize>() + figures.running.count)
}

/// Describes a change: the object, the style and the text, or `None`. Updates the notes for the view.
type Say<K> = fn(&Change<'_, K>, &mut Notes) -> Option<(ObjectName, Style, String)>;

fn show<K: Kind<DynamicType: Default>>(
    factory: &SharedInformerFactory,
    pen: &Pen,
    notes: &Arc<Mutex<Notes>>,
    kind: &'static str,
    say: Say<K>,
) {
    let (pen, notes) = (pen.clone(), notes.clone());
    let handler = on_change(move |change: Change<'_, K>| {
        if change.is_resync() {
            return;
        }
        let said = {
            let mut notes = notes.lock();
            notes.changed = true;
            say(&change, &mut notes)
        };
        if let Some((about, style, text)) = said {
            pen.write(kind, &about.to_string(), style, &text);
        }
    });
    // The informers of a new factory accept handlers.
    if factory.informer::<K>().add_handler(handler).is_err() {
        tracing::warn!(kind, "cannot add handler");
    }
}

fn foo(change: &Change<'_, Foo>, notes: &mut Notes) -> Option<(ObjectName, Style, String)> {
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
                _ if old.spec != new.spec => {
                    notes.next.saw(Deed::FooChanged);
                    (
                        plain,
                        format!("now wants {}, was {}", count(new.spec.replicas), count(old.spec.replicas)),
                    )
                }
                _ => return None,
            }
        }
        Change::Deleted(deleted) => {
            notes.events.remove(&deleted.key());
            notes.next.saw(Deed::FooDeleted);
            (YELLOW, "deleted".to_owned())
        }
    };
    Some((change.last_known()?.key(), style, text))
}

/// Describes changes of Deployments that Foos control.
fn deployment(change: &Change<'_, Deployment>, notes: &mut Notes) -> Option<(ObjectName, Style, String)> {
    let owner = change.last_known()?.controller_of::<Foo>()?;
    let replicas = |object: &Object<Deployment>| Some(object.get().ok()?.spec.as_ref()?.replicas);
    let (style, text) = match change {
        Change::Added { object, in_initial_list: true } => {
            (Style::new(), format!("exists with {}", count(replicas(object)?)))
        }
        Change::Added { object, .. } => (GREEN, format!("created with {}", count(replicas(object)?))),
        Change::Updated { old, new } if replicas(old) != replicas(new) => {
            if notes.foos.get(&owner).is_ok_and(|foo| Some(foo.spec.replicas) != replicas(new)) {
                notes.next.saw(Deed::DeploymentEdited);
            }
            (GREEN, format!("scaled from {} to {}", count(replicas(old)?), count(replicas(new)?)))
        }
        Change::Updated { .. } => return None,
        Change::Deleted(_) => {
            notes.next.saw(Deed::DeploymentDeleted);
            (YELLOW, "deleted".to_owned())
        }
    };
    Some((change.last_known()?.key(), style, text))
}

/// Describes events on Foos, under the name of the Foo.
fn event(change: &Change<'_, Event>, notes: &mut Notes) -> Option<(ObjectName, Style, String)> {
    let (Change::Added { object, .. } | Change::Updated { new: object, .. }) = change else { return None };
    let event = object.get().ok()?;
    if event.involved_object.kind.as_deref() != Some("Foo") {
        return None;
    }
    let (style, text) = pen::event(&event);
    let about = object.key().sibling(event.involved_object.name.as_deref()?);
    notes.events.insert(about.clone(), text.clone());
    let is_repeat = matches!(change, Change::Updated { .. });
    (!is_repeat || !notes.has_picture).then_some((about, style, text))
}

fn count(replicas: Option<i32>) -> String {
    match replicas {
        Some(1) => "1 replica".to_owned(),
        Some(number) => format!("{number} replicas"),
        None => "default replicas".to_owned(),
    }
}
