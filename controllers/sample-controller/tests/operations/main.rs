//! The page for operators, the alerts and the dashboard know every metric and every flag, and no others.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod promql;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};

use clap::{Args, Command};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Config;
use kube_client::config::Kubeconfig;
use promql::Series;
use sample_controller::Options;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::{Action, Controller, Manager, ManagerArgs};
use watchkeeper::informer::{Change, on_change};
use watchkeeper::leader::LeaderElection;
use watchkeeper::process::{AdminAddress, AdminArgs};
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::{ApiServer, ListenOptions};

/// Series that a program has only in trouble, or with other credentials, with their labels.
const IN_TROUBLE: [(&str, &[&str]); 2] = [
    ("informer_degraded_seconds", &["name", "group", "version", "resource", "cause"]),
    ("watchkeeper_credential_expiry_timestamp_seconds", &[]),
];
/// What `...` stands for on the page.
const OF_AN_INFORMER: [&str; 4] = ["name", "group", "version", "resource"];

fn read(file: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(file)).unwrap()
}

/// The metrics of a program with everything that has metrics, after an error and a panic.
async fn metrics() -> String {
    let env = Env::system();
    let server = ApiServer::new(&env);
    let listening = server.listen(ListenOptions::default()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&listening.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    config.proxy_url = None;
    let client = Client::from_config(config, &env).unwrap();

    let election = LeaderElection::builder(&client, "default", "operator").build().unwrap();
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut manager = Manager::builder("operator", &client)
        .leader_election(election)
        .admin(AdminAddress::At(address), AdminAddress::At(address))
        .build();
    Controller::<ConfigMap>::new(&mut manager).reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
    let handler = on_change(|_: Change<'_, ConfigMap>| {});
    manager.factory().informer::<ConfigMap>().add_handler(handler).unwrap();
    let (handle, stop) = (manager.handle(), CancellationToken::new());
    let running = tokio::spawn(manager.run(stop.clone()));
    handle.wait_until_running().await;
    env.reporter.error("test", "test", &std::io::Error::other("on purpose"));
    env.reporter.guard("test", "test", || panic!("on purpose"));

    let page = get(address).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    listening.stop().await;
    page
}

async fn get(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    page.to_owned()
}

/// The series of a page with their labels.
fn series(page: &str) -> Series {
    let mut series = Series::new();
    for line in page.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, labels) = line.split_once(['{', ' ']).unwrap();
        let labels = if line.contains('{') { labels.split_once('}').unwrap().0 } else { "" };
        let names =
            labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
        series.entry(name.to_owned()).or_default().extend(names);
    }
    for (name, labels) in IN_TROUBLE {
        let labels = labels.iter().map(|label| (*label).to_owned());
        series.entry(name.to_owned()).or_default().extend(labels);
    }
    series
}

/// The metrics of the page for operators: in the first column of its tables, with their labels.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = read("docs/operations.md");
    let section = text.split("\n## ").find(|section| section.starts_with("Metrics\n")).unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split("`, `")).map(|name| name.trim_matches('`'));
    let labelled = |name: &str| {
        let (name, labels) = name.split_once('{').unwrap_or((name, ""));
        let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
        let labels = labels.flat_map(|label| match label {
            "..." => OF_AN_INFORMER.to_vec(),
            label => vec![label],
        });
        (name.to_owned(), labels.map(str::to_owned).collect())
    };
    names.map(labelled).collect()
}

/// The metrics of a program: histograms count as one, without the label of their buckets.
fn families(series: &Series) -> BTreeMap<String, BTreeSet<String>> {
    let mut families = BTreeMap::<_, BTreeSet<_>>::new();
    for (name, labels) in series {
        let is_histogram = |base: &str| series.contains_key(&format!("{base}_bucket"));
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let name = base.filter(|base| is_histogram(base)).unwrap_or(name);
        let labels = labels.iter().filter(|label| *label != "le").cloned();
        families.entry(name.to_owned()).or_default().extend(labels);
    }
    families
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_is_explained_and_the_alerts_and_the_dashboard_use_no_others() {
    let series = series(&metrics().await);
    let (families, documented) = (families(&series), documented());
    assert!(families.len() > 40, "{families:?}");
    for (name, labels) in &families {
        assert_eq!(documented.get(name), Some(labels), "docs/operations.md on {name}");
    }
    let unknown: Vec<_> = documented.keys().filter(|name| !families.contains_key(*name)).collect();
    assert!(unknown.is_empty(), "docs/operations.md explains what does not exist: {unknown:?}");

    let alerts: Value = serde_saphyr::from_str(&read("docs/monitoring/alerts.yaml")).unwrap();
    let dashboard: Value = serde_json::from_str(&read("docs/monitoring/dashboard.json")).unwrap();
    let all = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let rules = all(&alerts, "groups").into_iter().flat_map(|group| all(&group, "rules"));
    let targets = all(&dashboard, "panels").into_iter().flat_map(|panel| all(&panel, "targets"));
    let expressions: Vec<_> =
        rules.chain(targets).map(|one| one["expr"].as_str().unwrap().to_owned()).collect();
    assert!(expressions.len() > 60);
    for expression in &expressions {
        let problems = promql::problems(expression, &series);
        assert!(problems.is_empty(), "{expression}: does not exist: {problems:?}");
    }
}

#[test]
fn every_alert_has_a_summary_and_a_first_step() {
    let alerts: Value = serde_saphyr::from_str(&read("docs/monitoring/alerts.yaml")).unwrap();
    let page = read("docs/operations.md");
    let rules =
        alerts["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let mut names = BTreeSet::new();
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(names.insert(name), "{name} is there twice");
        assert!(page.contains(&format!("`{name}`")), "docs/operations.md has no first step for {name}");
        assert!(rule["annotations"]["summary"].is_string() && rule["annotations"]["description"].is_string());
        assert!(rule["labels"]["severity"].is_string(), "{name}");
    }
    let named = page.split('`').filter(|word| word.starts_with("Watchkeeper"));
    let gone: Vec<_> = named.filter(|name| !names.contains(name)).collect();
    assert!(gone.is_empty(), "docs/operations.md names alerts that do not exist: {gone:?}");
}

#[test]
fn every_flag_is_explained() {
    let page = read("docs/operations.md");
    let operator = ManagerArgs::augment_args(Command::new("operator"));
    let controller = AdminArgs::augment_args(Options::augment_args(Command::new("controller")));
    for command in [operator, controller] {
        let flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
        for flag in flags.filter_map(|flag| flag.get_long()) {
            assert!(page.contains(&format!("`--{flag}")), "docs/operations.md does not explain --{flag}");
        }
    }
}
