//! Traces of the reflector: what it asks the server, and what it puts into the queue.
//!
//! | step | does |
//! |---|---|
//! | `start`, `start streaming` | runs it, on a server that cannot or can stream lists |
//! | `answer list 7: a@1 b@2` | answers a list that is asked for, now or later |
//! | `answer page 7 next: a@1` | the same with one page, and `next` as the token of the page behind it |
//! | `answer list refused Expired` | refuses it, by the class of the error |
//! | `answer watch` | opens a watch that is asked for |
//! | `answer watch refused Expired` | refuses it |
//! | `added a@1`, `modified a@2`, `deleted a@3` | an event of the open watch |
//! | `bookmark 7`, `list ends 7` | a bookmark; the one at the end of a streamed list |
//! | `error 410 Expired` | an event that ends the watch with an error |
//! | `close`, `break` | ends the watch as planned, or by a connection that breaks |
//! | `wait 2s` | lets time pass |
//! | `stop` | stops it |
//!
//! Results are requests, deltas as they are processed, reported errors, and the sync. The time of a step passes in an
//! instant; what happens later during a `wait` shows how much later.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper::clock::Instant;
use watchkeeper::informer::DeltaController;
use watchkeeper::queue::Popped;
use watchkeeper::source::{
    ByteStream, Feed, ListOptions, ListerWatcher, Reply, ScriptedSource, WatchOptions,
};
use watchkeeper::wire::{ApiError, Class};

use crate::queues::show;
use crate::trace::{Step, check, replay};

/// What happened since the step began, each with its time where that is later than the step.
#[derive(Clone)]
struct Happened {
    env: Env,
    step: Arc<Mutex<(Instant, Vec<String>)>>,
}

impl Happened {
    fn new(env: &Env) -> Self {
        Self { env: env.clone(), step: Arc::new(Mutex::new((env.clock.now(), Vec::new()))) }
    }

    fn add(&self, line: impl std::fmt::Display) {
        let (began, lines) = &mut *self.step.lock();
        let later = self.env.clock.now().saturating_duration_since(*began);
        let later =
            if later < INSTANT { String::new() } else { format!("after {:.1}s: ", later.as_secs_f64()) };
        lines.push(format!("{later}{line}"));
    }

    /// The lines of the step that ends; the next one begins.
    fn take(&self) -> Vec<String> {
        let (began, lines) = &mut *self.step.lock();
        *began = self.env.clock.now();
        std::mem::take(lines)
    }
}

/// How long the clock is let go on for what is ready to happen.
const INSTANT: Duration = Duration::from_millis(2);

/// A source that shows what it is asked.
struct Shown {
    source: ScriptedSource,
    happened: Happened,
}

impl ListerWatcher for Shown {
    async fn list(&self, options: &ListOptions) -> Result<ByteStream, ApiError> {
        let page = match &options.continue_token[..] {
            "" => "the newest state".to_owned(),
            token => format!("the page behind {token}"),
        };
        self.happened.add(format_args!("? list {page}, up to {} items", options.limit));
        self.source.list(options).await
    }

    async fn watch(&self, options: &WatchOptions) -> Result<ByteStream, ApiError> {
        if options.initial_events {
            self.happened.add("? watch from the beginning, with a list");
        } else {
            self.happened.add(format_args!("? watch from {}", options.version));
        }
        self.source.watch(options).await
    }

    fn streams_lists(&self) -> bool {
        self.source.streams_lists()
    }
}

fn object(item: &str) -> Value {
    let (name, version) = item.split_once('@').unwrap();
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "resourceVersion": version}})
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn bookmark(version: &str, ends_list: bool) -> String {
    let annotations = if ends_list { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
    event("BOOKMARK", &json!({"metadata": {"resourceVersion": version, "annotations": annotations}}))
}

fn list(version: &str, token: &str, items: &[&str]) -> Reply {
    let items: Vec<_> = items.iter().map(|item| object(item)).collect();
    let metadata = json!({"resourceVersion": version, "continue": token});
    Reply::body(json!({"kind": "ConfigMapList", "metadata": metadata, "items": items}).to_string())
}

fn refusal(step: &Step, class: &str) -> ApiError {
    let class = match class {
        "Expired" => Class::Expired,
        "TooManyRequests" => Class::TooManyRequests,
        "ConnectionRefused" => Class::ConnectionRefused,
        "Forbidden" => Class::Forbidden,
        "Invalid" => Class::Invalid,
        _ => step.refuse("no such class of errors here"),
    };
    ApiError::new(class, "scripted")
}

struct Run {
    env: Env,
    source: ScriptedSource,
    happened: Happened,
    stop: CancellationToken,
    watch: Option<Feed>,
}

impl Run {
    fn new() -> Self {
        let env = Env::simulated(1);
        let happened = Happened::new(&env);
        let reports = happened.clone();
        env.reporter.add_hook(move |report| reports.add(format_args!("! {}", report.incident)));
        let (source, stop) = (ScriptedSource::new(), CancellationToken::new());
        Self { env, source, happened, stop, watch: None }
    }

    fn start(&mut self, streaming: bool) {
        if streaming {
            self.source = self.source.clone().streaming();
        }
        let source = Shown { source: self.source.clone(), happened: self.happened.clone() };
        let happened = self.happened.clone();
        let process = move |popped: &Popped<ConfigMap>| {
            popped.deltas.iter().for_each(|delta| happened.add(show(delta)));
            Ok::<(), Infallible>(())
        };
        let controller = DeltaController::builder(source, process, &self.env).build();
        let (running, stop) = (controller.clone(), self.stop.clone());
        let stopped = self.happened.clone();
        tokio::spawn(async move {
            running.run(stop).await;
            stopped.add("stopped");
        });
        let synced = self.happened.clone();
        tokio::spawn(async move {
            if controller.synced_or_stopped().await {
                synced.add("synced");
            }
        });
    }

    async fn step(&mut self, step: &Step) -> Vec<String> {
        let mut pause = INSTANT / 2;
        match step.words() {
            ("start", words) => self.start(words == ["streaming"]),
            ("answer", words) => self.answer(step, &words),
            ("added", items) => self.send(step, event("ADDED", &object(items[0]))),
            ("modified", items) => self.send(step, event("MODIFIED", &object(items[0]))),
            ("deleted", items) => self.send(step, event("DELETED", &object(items[0]))),
            ("bookmark", words) => self.send(step, bookmark(words[0], false)),
            ("list", words) => self.send(step, bookmark(words[1], true)),
            ("error", words) => {
                let (code, reason) = (words[0].parse::<u16>().unwrap(), words[1]);
                let status = json!({"kind": "Status", "code": code, "reason": reason, "message": "scripted"});
                self.send(step, event("ERROR", &status));
            }
            ("close", _) => drop(self.watch.take()),
            ("break", _) => match self.watch.take() {
                Some(feed) => feed.fail(ApiError::new(Class::ConnectionLost, "scripted")),
                None => step.refuse("no watch is open"),
            },
            ("wait", words) => {
                let seconds = words[0].trim_end_matches('s').parse::<f64>().unwrap();
                pause = Duration::from_secs_f64(seconds);
            }
            ("stop", _) => self.stop.cancel(),
            _ => step.refuse("no such step"),
        }
        self.env.clock.sleep(pause).await;
        self.happened.take()
    }

    fn answer(&mut self, step: &Step, words: &[&str]) {
        match words {
            ["list", "refused", class] => _ = self.source.on_list(Reply::refuse(refusal(step, class))),
            ["list", at, items @ ..] => _ = self.source.on_list(list(at.trim_end_matches(':'), "", items)),
            ["page", at, token, items @ ..] => {
                self.source.on_list(list(at, token.trim_end_matches(':'), items));
            }
            ["watch", "refused", class] => _ = self.source.on_watch(Reply::refuse(refusal(step, class))),
            ["watch"] => {
                let (reply, feed) = Reply::live();
                self.source.on_watch(reply);
                self.watch = Some(feed);
            }
            _ => step.refuse("no such answer"),
        }
    }

    fn send(&self, step: &Step, text: String) {
        match &self.watch {
            Some(feed) => _ = feed.send(text),
            None => step.refuse("no watch is open"),
        }
    }
}

#[test]
fn the_reflector_does_what_its_traces_say() {
    check("reflector", |steps| replay(steps, Run::new, Run::step));
}
