//! The view of kinds that `--watch` names: follows them, their events and the definitions that add or remove them.

mod board;
mod follow;
mod rows;

use std::sync::Arc;
use std::time::Duration;

use anstyle::Style;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, Handler, InformerPanicked, on_change};
use watchkeeper::{Client, Kind, SharedInformerFactory};

use crate::discovery::{Found, Kinds};
use crate::front::YELLOW;
use crate::pen::{self, Pen};
use crate::screen::Screen;
use board::{Board, Section};
use follow::Follower;

/// How often the live view is drawn.
const DRAWN: Duration = Duration::from_millis(200);
/// How often discovery runs beside each change of a definition: a server may publish a kind later than its definition.
const MISSING: Duration = Duration::from_secs(5);
const COMPLETE: Duration = Duration::from_secs(30);

/// Shows the kinds of these names until `stop`. `commands` stand below the live view.
pub(crate) async fn run(
    client: &Client,
    screen: &Screen,
    names: &[String],
    commands: Vec<String>,
    stop: &CancellationToken,
) -> Result<(), InformerPanicked> {
    let pen = Pen::new(screen, &client.env().clock);
    let board = Arc::new(Mutex::new(Board::new(names, commands)));
    let factory = SharedInformerFactory::builder(client).build();
    let changed = Arc::new(Notify::new());
    let told = changed.clone();
    handle(&factory, on_change(move |_: Change<'_, CustomResourceDefinition>| told.notify_one()));
    let (theirs, their_board) = (pen.clone(), board.clone());
    handle(&factory, on_change(move |change: Change<'_, Event>| show_event(&change, &their_board, &theirs)));
    factory.start(stop);
    let viewer = Viewer { client, pen: &pen, board: &board };
    let (followed, ()) = tokio::join!(viewer.follow(names, &changed, stop), viewer.draw(stop));
    followed.and(factory.join().await)
}

fn handle<K: Kind<DynamicType: Default>>(factory: &SharedInformerFactory, handler: impl Handler<K>) {
    // The informers of a new factory accept handlers.
    if factory.informer::<K>().add_handler(handler).is_err() {
        tracing::warn!(kind = factory.informer::<K>().name(), "cannot add handler");
    }
}

struct Viewer<'a> {
    client: &'a Client,
    pen: &'a Pen,
    board: &'a Arc<Mutex<Board>>,
}

impl Viewer<'_> {
    /// Follows each kind as long as the server has it.
    async fn follow(
        &self,
        names: &[String],
        changed: &Notify,
        stop: &CancellationToken,
    ) -> Result<(), InformerPanicked> {
        let mut followers: Vec<Option<Follower>> = names.iter().map(|_| None).collect();
        let mut last_error = String::new();
        while !stop.is_cancelled() {
            match stop.run_until_cancelled(Kinds::discover(self.client)).await {
                None => break,
                Some(Ok(kinds)) => {
                    for (section, (name, follower)) in names.iter().zip(&mut followers).enumerate() {
                        self.update(section, name, kinds.find(name), follower, stop).await?;
                    }
                    last_error.clear();
                }
                // An unreachable server is reported once.
                Some(Err(error)) if last_error != error.to_string() => {
                    last_error = error.to_string();
                    tracing::warn!(error = %crate::front::reason(&error), "cannot discover kinds");
                }
                Some(Err(_)) => {}
            }
            let pause = if followers.iter().all(Option::is_some) { COMPLETE } else { MISSING };
            let again = self.client.env().clock.timeout(pause, changed.notified());
            let _change_or_timeout = stop.run_until_cancelled(again).await;
        }
        for follower in followers.into_iter().flatten() {
            follower.stop().await?;
        }
        Ok(())
    }

    /// Starts or ends a follower if what its name stands for has changed.
    async fn update(
        &self,
        section: usize,
        name: &str,
        found: Found,
        follower: &mut Option<Follower>,
        stop: &CancellationToken,
    ) -> Result<(), InformerPanicked> {
        if let (Some(follower), Found::Kind(served)) = (&*follower, &found)
            && follower.served == **served
            && !follower.has_ended()
        {
            return Ok(());
        }
        if let Some(old) = follower.take() {
            old.stop().await?;
        }
        let (style, text) = match &found {
            Found::Kind(served) => (Style::new(), format!("served as {}", served.api.api_version)),
            Found::Nothing => (YELLOW, "not served yet".to_owned()),
            Found::Several(names) => (YELLOW, format!("ambiguous: use {}", names.join(" or "))),
        };
        let is_new = self.board.lock().set(section, Section::of(&found));
        if is_new {
            self.pen.write("kind", name, style, &text);
        }
        if let Found::Kind(served) = found {
            *follower = Some(Follower::start(self.client, *served, section, self.board, self.pen, stop));
        }
        Ok(())
    }

    /// Draws the live view, also once after the stop.
    async fn draw(&self, stop: &CancellationToken) {
        if !self.pen.screen.is_live() {
            return;
        }
        loop {
            let ended = stop.run_until_cancelled(self.pen.clock.sleep(DRAWN)).await.is_none();
            let picture = self.board.lock().picture(Screen::size(), self.pen.clock.wall());
            self.pen.screen.draw(&picture);
            if ended {
                return;
            }
        }
    }
}

/// Prints an event on an object of a watched kind, and notes it for the table.
fn show_event(change: &Change<'_, Event>, board: &Mutex<Board>, pen: &Pen) {
    if change.is_resync() {
        return;
    }
    let Some(Ok(event)) = change.last_known().map(|object| object.get()) else { return };
    let involved = &event.involved_object;
    let (Some(object), Some(name)) = (change.last_known(), &involved.name) else { return };
    let kind = board::KindName::new(
        involved.api_version.as_deref().unwrap_or_default(),
        involved.kind.as_deref().unwrap_or_default(),
    );
    let about = match &involved.namespace {
        Some(namespace) => watchkeeper::ObjectName::namespaced(namespace, name),
        None => watchkeeper::ObjectName::cluster(name),
    };
    let (style, text) = pen::event(&event);
    let is_shown = {
        let mut board = board.lock();
        match change {
            Change::Deleted(_) => {
                board.forget_event(&kind, &about, object.name());
                false
            }
            _ => board.note_event(&kind, &about, object.name(), &text),
        }
    };
    // The live view shows how often an event was repeated, so the lines omit repetitions.
    let is_repeat = matches!(change, Change::Updated { .. });
    if is_shown && !(is_repeat && pen.screen.is_live()) {
        pen.write("event", &about.to_string(), style, &text);
    }
}
