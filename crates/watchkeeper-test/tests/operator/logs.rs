//! Log lines of a controller: the span of a reconcile, and one line for an error that is not retried.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::Value;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use watchkeeper::Env;
use watchkeeper::controller::{Action, Controller, Error};
use watchkeeper_test::TestCluster;

/// Collects what is logged, a line of JSON for each event.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Collects what this thread logs, while the guard exists.
    fn start() -> (Self, DefaultGuard) {
        // Without a subscriber for all threads, those of other tests may switch log lines off for this one as well.
        let quiet = tracing_subscriber::registry().with(LevelFilter::INFO);
        let _is_set_once = tracing::subscriber::set_global_default(quiet);
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Returns the lines that contain `text`.
    fn lines(&self, text: &str) -> Vec<Value> {
        let log = self.0.lock();
        let lines = std::str::from_utf8(&log).unwrap().lines().filter(|line| line.contains(text));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A controller of ConfigMaps whose runs log "reconciling" and end with `outcome` of their attempt.
async fn cluster(outcome: fn(u32) -> Result<Action, Error>) -> TestCluster {
    let cluster = TestCluster::builder()
        .env(&Env::simulated(1))
        .start(|manager| {
            Controller::<ConfigMap>::new(manager).reconcile(move |_, cx| async move {
                tracing::info!("reconciling");
                outcome(cx.attempt())
            })
        })
        .await;
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}").await;
    cluster.client().env().clock.sleep(Duration::from_secs(60)).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_reconcile_has_its_key_attempt_and_newest_trigger() {
    let (log, _guard) = Log::start();
    let fails_once = |attempt| if attempt == 0 { Err(Error::message("not yet")) } else { Ok(Action::done()) };
    let cluster = cluster(fails_once).await;
    let spans: Vec<_> = log.lines("reconciling").iter().map(|line| line["span"].clone()).collect();
    let spans: Vec<_> = spans.iter().filter(|span| span["key"] == "default/web").collect();
    assert_eq!(spans.len(), 2, "{spans:?}");
    for (attempt, span) in spans.iter().enumerate() {
        assert_eq!((&span["name"], &span["controller"]), (&"reconcile".into(), &"configmap".into()));
        assert_eq!(span["attempt"], attempt);
    }
    let web = cluster.get::<ConfigMap>("default/web").await.unwrap();
    let changed = format!("the object changed (version {})", web.metadata.resource_version.unwrap());
    assert_eq!((&spans[0]["trigger"], &spans[1]["trigger"]), (&changed.into(), &"a retry was due".into()));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_not_retried_is_logged_once_as_its_event() {
    let (log, _guard) = Log::start();
    let cluster = cluster(|_| Err(Error::terminal("Hopeless", "a port is missing"))).await;
    let lines = log.lines("a port is missing");
    let lines: Vec<_> = lines.iter().filter(|line| line.to_string().contains("default/web")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(
        (&lines[0]["fields"]["reason"], &lines[0]["fields"]["type"]),
        (&"Hopeless".into(), &"Warning".into())
    );
    assert!(cluster.client().env().reporter.errors() > 0, "it is counted all the same");
    cluster.stop().await;
}
