//! The Pod controller through every fault, in process and on virtual time: what it printed last of each Pod must be as without faults.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use pod_controller::{Controller, Options, Output};
use serde_json::json;
use watchkeeper::ObjectName;
use watchkeeper::queue::QueueKind;
use watchkeeper::source::{ApiSource, Scope};
use watchkeeper::store::Indexer;
use watchkeeper_sim::{Check, Life, Outside, User};

/// What the controller has printed of each Pod, in all its lives.
struct Screen {
    outside: Outside,
    shown: Mutex<BTreeSet<String>>,
}

/// The output of one life.
struct Lines {
    screen: Arc<Screen>,
    /// The cache from which the controller prints.
    pods: Arc<OnceLock<Indexer<Pod>>>,
    /// The beginning of a line, which comes in pieces.
    rest: String,
}

impl Screen {
    /// A new life prints everything again.
    fn clear(&self) {
        for name in std::mem::take(&mut *self.shown.lock()) {
            self.outside.show(&name, None);
        }
    }
}

impl Lines {
    fn line(&self, line: &str) {
        let synced = line.strip_prefix("Sync/Add/Update for Pod ");
        let gone =
            line.strip_prefix("Pod default/").and_then(|line| line.strip_suffix(" does not exist anymore"));
        let Some(pod) = synced.or(gone) else { return };
        let name = format!("pod {pod}");
        // The state that it had when it was printed: an update that is missed leaves an old one.
        let key = ObjectName::namespaced("default", pod);
        let cached = self.pods.get().and_then(|pods| pods.get(&key));
        let value = synced.map(|_| json!(cached.map(|pod| pod.labels().to_map())));
        self.screen.outside.show(&name, value);
        self.screen.shown.lock().insert(name);
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.push_str(&String::from_utf8_lossy(bytes));
        while let Some(end) = self.rest.find('\n') {
            let line: String = self.rest.drain(..=end).collect();
            self.line(line.trim_end());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn live(life: Life, screen: &Arc<Screen>, queue: QueueKind) {
    screen.clear();
    let pods = Arc::new(OnceLock::new());
    let output = Output::to(Lines { screen: screen.clone(), pods: pods.clone(), rest: String::new() });
    let options = Options {
        namespace: "default".to_owned(),
        selector: String::new(),
        field_selector: String::new(),
        workers: 1.try_into().unwrap(),
        queue,
        fail: None,
    };
    let source = ApiSource::new::<Pod>(&life.client, &(), &Scope::Namespace("default".to_owned()));
    let controller = Controller::new(source, &options, output, life.client.env());
    let _is_set_once = pods.set(controller.indexer().clone());
    // One that was stopped before its cache has synced is started again, as by a kubelet.
    controller.run(1, life.stop).await.unwrap_or_default();
}

fn pod(name: &str) -> Pod {
    let container = json!({"name": "web", "image": "nginx"});
    let meta = json!({"name": name, "namespace": "default", "labels": {"step": "created"}});
    serde_json::from_value(json!({"metadata": meta, "spec": {"containers": [container]}})).unwrap()
}

/// Users create, label, delete and recreate Pods.
async fn users(user: &User) {
    let label = async |key: &str, step: &str| {
        user.patch::<Pod>(key, json!({"metadata": {"labels": {"step": step}}})).await;
    };
    for name in ["a", "b", "c"] {
        user.create(&pod(name)).await;
    }
    user.settle().await;
    label("default/a", "changed").await;
    label("default/a", "changed-twice").await;
    user.delete::<Pod>("default/b").await;
    user.eventually_gone::<Pod>("default/b").await;
    label("default/c", "changed").await;
    user.delete::<Pod>("default/c").await;
    user.eventually_gone::<Pod>("default/c").await;
    user.create(&pod("c")).await;
    user.settle().await;
}

fn check(queue: QueueKind) {
    let report = Check::builder()
        .name(&format!("pod-controller {queue:?}"))
        .pairs(20)
        .seeds(40)
        .run_program(
            |outside| Arc::new(Screen { outside: outside.clone(), shown: Mutex::default() }),
            async move |life, screen| live(life, screen, queue).await,
            users,
        )
        .unwrap();
    println!("{report}");
}

#[test]
fn through_every_fault_the_last_line_of_each_pod_is_as_it_is_without() {
    check(QueueKind::Ordered);
}

#[test]
fn through_every_fault_the_last_line_of_each_pod_is_as_it_is_without_on_a_delta_fifo() {
    check(QueueKind::Delta);
}
