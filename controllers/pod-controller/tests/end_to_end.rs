//! The Pod controller end to end: in process on the paused clock, and over a socket in real time, there also on a real API
//! server (`WATCHKEEPER_TEST_KUBECONFIG`); on both queues.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::Write;
use std::process::Command;
use std::sync::Arc;

use clap::Parser;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube_client::Config;
use kube_client::config::Kubeconfig;
use parking_lot::Mutex;
use pod_controller::{Options, Output};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::process::ClientArgs;
use watchkeeper::report::Incident;
use watchkeeper::{Client, Env, ObjectName};
use watchkeeper_apiserver::{ApiServer, ListenOptions};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn options(flags: &[&str]) -> Options {
    Args::parse_from(["pod-controller"].iter().chain(flags)).options
}

/// What was printed, and a signal with each line.
#[derive(Clone, Default)]
struct Printed(Arc<(Mutex<String>, Notify)>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.0.lock().push_str(std::str::from_utf8(bytes).unwrap());
        self.0.1.notify_one();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Printed {
    fn lines(&self) -> Vec<String> {
        self.0.0.lock().lines().map(str::to_owned).collect()
    }

    async fn until(&self, line: &str) {
        while !self.lines().iter().any(|printed| printed == line) {
            self.0.1.notified().await;
        }
    }
}

struct PodControllerTest {
    env: Env,
    client: Client,
    namespace: String,
    printed: Printed,
    stop: CancellationToken,
    running: JoinHandle<Result<(), pod_controller::RunError>>,
}

impl PodControllerTest {
    fn start(env: Env, client: Client, namespace: &str, options: Options) -> Self {
        let (printed, stop) = (Printed::default(), CancellationToken::new());
        let (theirs, output, token) = (client.clone(), Output::to(printed.clone()), stop.clone());
        let running =
            tokio::spawn(async move { pod_controller::run(&theirs, &options, output, token).await });
        Self { env, client, namespace: namespace.into(), printed, stop, running }
    }

    fn in_process(options: Options) -> Self {
        let env = Env::simulated(1);
        let client = Client::from_kube(ApiServer::builder(&env).build().client(), &env);
        Self::start(env, client, "default", options)
    }

    /// On the server of `WATCHKEEPER_TEST_KUBECONFIG` or, without it, on an embedded one that listens.
    async fn over_a_socket(queue: &str) -> Self {
        let env = Env::system();
        let client = if let Some(path) = std::env::var_os("WATCHKEEPER_TEST_KUBECONFIG") {
            let args = ClientArgs { kubeconfig: Some(path.into()), ..ClientArgs::default() };
            args.connect(&env).await.unwrap()
        } else {
            let listening = ApiServer::new(&env).listen(ListenOptions::default()).await.unwrap();
            let kubeconfig = Kubeconfig::from_yaml(&listening.kubeconfig()).unwrap();
            let mut config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
            config.proxy_url = None;
            // Serves until the test ends.
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(listening);
            });
            Client::from_config(config, &env).unwrap()
        };
        let namespace = format!("pods-{}", &env.generator.uuid()[..8]);
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        client.api::<Namespace>().create(&object).await.unwrap();
        let options = options(&["--queue", queue, "--namespace", &namespace]);
        Self::start(env, client, &namespace, options)
    }

    fn key(&self, name: &str) -> ObjectName {
        ObjectName::namespaced(&self.namespace, name)
    }

    async fn create(&self, name: &str, app: &str) {
        let metadata = json!({"name": name, "namespace": self.namespace, "labels": {"app": app}});
        let spec = json!({"containers": [{"name": "c", "image": "nginx"}]});
        let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        self.client.api::<Pod>().create(&pod).await.unwrap();
    }

    async fn delete(&self, name: &str) {
        self.client.api::<Pod>().delete(&self.key(name)).await.unwrap();
    }

    async fn stop(self) -> Vec<String> {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
        self.printed.lines()
    }
}

async fn the_story_of_a_pod(test: PodControllerTest) {
    // The Pod of an earlier run that the cluster does not have.
    test.printed.until("delete pod:mypod").await;
    test.printed.until(&format!("Pod {} does not exist anymore", test.key("mypod"))).await;
    test.create("a", "web").await;
    test.printed.until("add pod:a").await;
    test.printed.until("Sync/Add/Update for Pod a").await;
    let patch = kube_client::api::Patch::Merge(json!({"metadata": {"labels": {"app": "db"}}}));
    test.client.api::<Pod>().patch(&test.key("a"), &patch).await.unwrap();
    test.printed.until("update pod:a").await;
    test.delete("a").await;
    test.printed.until("delete pod:a").await;
    test.printed.until(&format!("Pod {} does not exist anymore", test.key("a"))).await;
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_comes_changes_and_goes_on_both_queues() {
    for queue in ["ordered", "delta"] {
        the_story_of_a_pod(PodControllerTest::in_process(options(&["--queue", queue]))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_comes_changes_and_goes_over_a_socket() {
    for queue in ["ordered", "delta"] {
        the_story_of_a_pod(PodControllerTest::over_a_socket(queue).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_is_retried_five_times_and_then_dropped_with_a_report() {
    for queue in ["ordered", "delta"] {
        let test = PodControllerTest::in_process(options(&["--queue", queue, "--fail", "default/bad"]));
        let (reports, dropped): (Arc<Mutex<Vec<String>>>, Arc<Notify>) = Default::default();
        let (log, done) = (reports.clone(), dropped.clone());
        test.env.reporter.add_hook(move |report| {
            if let Incident::Error(_) = report.incident {
                log.lock().push(report.incident.to_string());
                if report.incident.to_string().starts_with("dropped") {
                    done.notify_one();
                }
            }
        });
        test.create("bad", "web").await;
        dropped.notified().await;
        assert_eq!(
            *reports.lock(),
            [
                "failed on purpose, because of --fail",
                "failed on purpose, because of --fail",
                "failed on purpose, because of --fail",
                "failed on purpose, because of --fail",
                "failed on purpose, because of --fail",
                "dropped out of the queue after 5 retries: failed on purpose, because of --fail",
            ]
        );
        // The others go on, and so does the key with its next change.
        test.create("good", "web").await;
        test.printed.until("Sync/Add/Update for Pod good").await;
        test.delete("bad").await;
        test.printed.until("delete pod:bad").await;
        let lines = test.stop().await;
        assert!(!lines.iter().any(|line| line.contains("for Pod bad")), "{lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_selected_pods_of_the_namespace_are_seen() {
    let test = PodControllerTest::in_process(options(&["--selector", "app=web"]));
    test.printed.until("Pod default/mypod does not exist anymore").await;
    test.create("db", "db").await;
    test.create("web", "web").await;
    test.printed.until("Sync/Add/Update for Pod web").await;
    let lines = test.stop().await;
    assert!(!lines.iter().any(|line| line.contains("db")), "{lines:?}");

    let test = PodControllerTest::in_process(options(&["--namespace", "other"]));
    test.printed.until("Pod other/mypod does not exist anymore").await;
    test.create("here", "web").await;
    test.env.clock.sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(test.stop().await, ["delete pod:mypod", "Pod other/mypod does not exist anymore"]);
}

#[test]
fn why_it_did_not_run_is_logged_with_the_causes() {
    for format in ["text", "json"] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_pod-controller"));
        program.args(["--kubeconfig", "/is/not/there", "--log-format", format]).env_remove("RUST_LOG");
        let output = program.output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{log}");
        assert!(log.contains("cannot read the kubeconfig /is/not/there: No such file"), "{log}");
    }
}
