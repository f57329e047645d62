//! Following one kind: an informer says what has changed, and the server's Table how it is shown.

use std::sync::Arc;
use std::time::Duration;

use anstyle::Style;
use kube_client::core::{DynamicObject, Selector};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, InformerPanicked, Lister, on_change};
use watchkeeper::{Client, SharedInformerFactory};

use super::board::Board;
use super::rows::{Rows, Table};
use crate::discovery::Served;
use crate::front::{GREEN, YELLOW};
use crate::pen::Pen;

/// The pause between two tables: changes in between are shown together.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause after a table that could not be fetched.
const AGAIN: Duration = Duration::from_secs(1);

/// An informer of one kind, and the task that keeps its section of the board up to date.
pub(super) struct Follower {
    pub(super) served: Served,
    factory: SharedInformerFactory,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Follower {
    pub(super) fn start(
        client: &Client,
        served: Served,
        section: usize,
        board: &Arc<Mutex<Board>>,
        pen: &Pen,
        stop: &CancellationToken,
    ) -> Self {
        let stop = stop.child_token();
        let factory = SharedInformerFactory::builder(client).build();
        let informer = factory.informer_of::<DynamicObject>(served.api.clone());
        let changed = Arc::new(Notify::new());
        let (told, theirs, kind) = (changed.clone(), pen.clone(), served.api.kind.to_lowercase());
        let handler = on_change(move |change: Change<'_, DynamicObject>| {
            if let Some((style, text)) = described(&change) {
                let about = change.last_known().map(|object| object.key().to_string());
                theirs.write(&kind, &about.unwrap_or_default(), style, &text);
            }
            told.notify_one();
        });
        // The informers of a new factory accept handlers.
        if informer.add_handler(handler).is_err() {
            tracing::warn!(kind = informer.name(), "cannot add handler");
        }
        factory.start(&stop);
        let updates = Updates {
            client: client.clone(),
            served: served.clone(),
            section,
            objects: informer.lister(),
            board: board.clone(),
            pen: pen.clone(),
        };
        let until = stop.clone();
        let task = tokio::spawn(async move {
            until.run_until_cancelled(updates.run(&changed)).await;
        });
        Self { served, factory, stop, task }
    }

    /// Whether the informer was ended by a panic: its rows do not change any more.
    pub(super) fn has_ended(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Returns when nothing more is printed about the kind.
    pub(super) async fn stop(self) -> Result<(), InformerPanicked> {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(kind = self.served.full_name(), %error, "the view of a kind failed");
        }
        self.factory.join().await
    }
}

/// A line about an object; other changes are shown by the cells of its row.
fn described(change: &Change<'_, DynamicObject>) -> Option<(Style, String)> {
    Some(match change {
        Change::Added { in_initial_list: true, .. } => (Style::new(), "exists".to_owned()),
        Change::Added { .. } => (GREEN, "created".to_owned()),
        Change::Updated { old, new } if new.is_deleting() && !old.is_deleting() => {
            (YELLOW, format!("is being deleted, and waits for {}", new.finalizers().join(", ")))
        }
        Change::Updated { old, new } if new.generation() != old.generation() => {
            (Style::new(), format!("changed to generation {}", new.generation()))
        }
        Change::Updated { .. } => return None,
        Change::Deleted(_) => (YELLOW, "deleted".to_owned()),
    })
}

struct Updates {
    client: Client,
    served: Served,
    section: usize,
    objects: Lister<DynamicObject>,
    board: Arc<Mutex<Board>>,
    pen: Pen,
}

impl Updates {
    /// Brings the section up to date after each change of an object.
    async fn run(&self, changed: &Notify) {
        self.objects.wait_until_synced().await;
        loop {
            let clock = &self.pen.clock;
            let table = Table::fetch(&self.client, &self.served.api).await;
            let failed = table.inspect_err(|error| tracing::debug!(%error, "cannot fetch a table"));
            let (table, again) = match failed {
                Ok(table) => (Some(table), None),
                Err(_) => (None, Some(AGAIN)),
            };
            let rows = Rows::new(&self.objects.objects(&Selector::default()), table);
            let lines = self.board.lock().update(self.section, rows);
            for (key, text) in lines {
                self.pen.write(&self.served.api.kind.to_lowercase(), &key.to_string(), Style::new(), &text);
            }
            match again {
                Some(again) => clock.sleep(again).await,
                None => {
                    changed.notified().await;
                    clock.sleep(PAUSE).await;
                }
            }
        }
    }
}
