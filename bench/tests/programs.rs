//! Each benchmark, with small inputs, runs to its end and prints its lines; speed is not asserted.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::path::Path;
use std::process::Command;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::{ApiServer, ListenOptions};

/// The lines that `bench` prints with these arguments.
fn bench(args: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_bench")).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::Deserializer::from_slice(&output.stdout).into_iter().map(Result::unwrap).collect()
}

/// The value of a field in each line.
fn each<'a>(lines: &'a [Value], field: &str) -> Vec<&'a Value> {
    lines.iter().map(|line| &line[field]).collect()
}

fn is_positive(value: &Value) -> bool {
    value.as_f64().unwrap() > 0.0
}

#[test]
fn latency_is_told_for_seldom_and_for_many_events() {
    let lines =
        bench(&["latency", "--objects=50", "--seldom=5", "--every=10", "--events=300", "--rate=1000"]);
    assert_eq!(each(&lines, "phase"), ["idle", "loaded"]);
    assert_eq!(each(&lines, "events"), [5, 300]);
    for field in ["p50_us", "p99_us", "max_us", "p99_from_due_us", "sent_per_s"] {
        assert!(each(&lines, field).into_iter().all(is_positive), "{field}");
    }
}

#[test]
fn idle_informers_are_measured_for_so_long() {
    let lines = bench(&["idle", "--informers=3", "--seconds=1", "--objects=5"]);
    assert_eq!(each(&lines, "informers"), [3]);
    assert!(lines[0]["seconds"].as_f64().unwrap() >= 1.0 && is_positive(&lines[0]["cpu_ms"]));
}

#[test]
fn a_standby_takes_over_and_reconciles() {
    let lines = bench(&["take-over", "--objects=20", "--writes=50", "--rest=0", "--runs=2"]);
    assert_eq!(each(&lines, "objects"), [20; 2]);
    for field in ["won_after_ms", "first_reconcile_ms"] {
        assert!(each(&lines, field).into_iter().all(is_positive), "{field}");
    }
}

#[test]
fn a_sleeping_handler_leaves_the_other_one_everything_and_waits_for_few() {
    let figure = tempfile::NamedTempFile::new().unwrap();
    let path = figure.path().to_str().unwrap();
    let lines = bench(&["behind", "--events=6000", "--objects=10", "--every=3000", "--svg", path]);
    let (curve, summaries): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line["phase"] == "behind");
    assert_eq!(each(&curve, "events"), [0, 3000, 6000, 0, 3000, 6000, 9000, 12_000]);
    // Past the bound of 4,096, what waits is one change of each object, beside the one in hand.
    assert!([2, 6, 7].iter().all(|place| curve[*place]["pending"].as_u64().unwrap() <= 11), "{curve:?}");
    assert_eq!(each(&summaries, "told_in_order"), [6000, 12_000]);
    assert!(std::fs::read_to_string(path).unwrap().starts_with("<svg"));
}

#[test]
fn points_of_a_scale_are_printed_and_drawn() {
    let figure = tempfile::NamedTempFile::new().unwrap();
    let path = figure.path().to_str().unwrap();
    for list in ["stream", "paged"] {
        let lines = bench(&["scale", "--objects=50,200", "--runs=1", "--list", list, "--svg", path]);
        assert_eq!(each(&lines, "objects"), [0, 50, 200]);
        assert!(each(&lines, "rss_mb").into_iter().all(is_positive));
        assert!(std::fs::read_to_string(path).unwrap().starts_with("<svg"));
    }
}

#[test]
fn relists_are_of_the_same_and_of_another_world() {
    for list in ["stream", "paged"] {
        let lines = bench(&["relist", "--objects=300", "--list", list]);
        assert_eq!(each(&lines, "objects"), [300; 3]);
        assert_eq!(each(&lines[1..], "world"), ["unchanged", "changed"]);
        assert_eq!(each(&lines[1..], "updates"), [0, 300]);
        assert!(each(&lines[1..], "peak_to_synced").into_iter().all(is_positive));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foos_are_counted_with_what_was_written_for_them() {
    let (env, stop) = (Env::system(), CancellationToken::new());
    let server = ApiServer::new(&env);
    let listening = server.listen(ListenOptions::default()).await.unwrap();
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), listening.kubeconfig()).unwrap();
    let client = Client::from_kube(server.client(), &env);
    client.api::<CustomResourceDefinition>().create(&sample_controller::api::crd()).await.unwrap();
    let options = sample_controller::Options::default();
    let controller = sample_controller::run(&client, &options, stop.clone());
    let path = kubeconfig.path().to_str().unwrap().to_owned();
    let measured = async {
        let _stop = stop.clone().drop_guard();
        let args = ["foos", "--kubeconfig", &path, "--count=20"].map(str::to_owned);
        tokio::task::spawn_blocking(move || bench(&args.each_ref().map(String::as_str))).await.unwrap()
    };
    let (ran, lines) = tokio::join!(controller, measured);
    ran.unwrap();
    assert_eq!(each(&lines, "count"), [20]);
    assert_eq!(each(&lines, "conflicts"), [0]);
    assert!(is_positive(&lines[0]["seconds"]));
    // A Deployment, a status and an event at least.
    assert!(lines[0]["writes_per_foo"].as_f64().unwrap() >= 3.0, "{lines:?}");
    listening.stop().await;
}

#[test]
fn reconciles_that_change_nothing_send_nothing_unless_told_to() {
    let args = ["--websites=20", "--rounds=2", "--warm-up=1", "--runs=1", "--many=20", "--idle=1"];
    let lines = bench(&[&["controller"], &args[..]].concat());
    assert_eq!(each(&lines, "phase"), ["reconcile", "reconcile", "reconcile", "memory"]);
    let reconciles = &lines[..3];
    assert_eq!(each(reconciles, "trigger"), ["event", "queue", "event"]);
    assert_eq!(each(reconciles, "reconciles"), [40; 3]);
    assert_eq!(each(reconciles, "requests_per_reconcile"), [0.0, 0.0, 3.0]);
    assert!(each(reconciles, "cpu_us_per_reconcile").into_iter().all(is_positive));
    assert!(is_positive(&lines[3]["rss_mb"]) && lines[3]["objects"] == 80);
}

#[test]
fn the_api_server_is_started_weighed_and_written_to() {
    // The command is of another package: cargo builds it for the tests of all, but not for those of this package alone.
    let profile = Path::new(env!("CARGO_BIN_EXE_bench")).parent().unwrap();
    if !profile.join("watchkeeper").with_extension(std::env::consts::EXE_EXTENSION).exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "watchkeeper-cli"]);
        if !profile.ends_with("debug") {
            build.arg("--profile").arg(profile.file_name().unwrap());
        }
        assert!(build.status().unwrap().success());
    }
    let lines = bench(&[
        "apiserver",
        "--starts=2",
        "--idle=1",
        "--creates=50",
        "--connections=3",
        "--watchers=20",
        "--changes=5",
    ]);
    assert_eq!(each(&lines, "phase"), ["ready", "ready", "idle", "creates", "creates", "ready", "fanout"]);
    assert!(each(&lines[..2], "p50_ms").into_iter().all(is_positive));
    assert!(is_positive(&lines[2]["rss_mb"]));
    assert_eq!(each(&lines[3..5], "kept"), ["memory", "disk"]);
    assert!(each(&lines[3..5], "cpu_us_per_create").into_iter().all(is_positive));
    assert_eq!((&lines[6]["watchers"], &lines[6]["encodings"]), (&20.into(), &1.0.into()));
}

#[test]
fn the_worst_request_of_every_family_is_searched_for() {
    let lines = bench(&["worst", "--size=10000", "--tries=1", "--runs=1", "--seed=7"]);
    let Some((summary, lines)) = lines.split_last() else { panic!("nothing was printed") };
    assert_eq!((&summary["phase"], &summary["requests"]), (&"worst".into(), &lines.len().into()));
    assert!(lines.len() > 30 && each(lines, "took_ms").into_iter().all(is_positive));
    assert!(each(lines, "family").contains(&&summary["worst"]));
}

#[test]
fn schedules_are_simulated_and_their_cost_is_told() {
    let lines = bench(&["sim", "--seeds=5", "--pairs=2"]);
    assert_eq!(each(&lines, "schedules"), [7]);
    for field in ["schedules_per_s", "cpu_us_per_request", "requests_per_schedule", "virtual_years_per_hour"]
    {
        assert!(each(&lines, field).into_iter().all(is_positive), "{field}");
    }
}
