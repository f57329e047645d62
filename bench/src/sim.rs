//! Cost of simulated schedules: the sample controller's story through faults, on one thread.

use std::time::Duration;

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use sample_controller::api::{self, Foo, FooSpec};
use serde::Serialize;
use serde_json::json;
use watchkeeper::clock::Clock;
use watchkeeper_sim::{Check, Report, User};

use crate::informer::Failure;
use crate::measure::{Phase, megabytes, print, rounded};

/// Run the sample controller's story through fault schedules on one thread.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// Number of schedules with faults drawn from a seed
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Number of pairs of faults
    #[arg(long, value_name = "N", default_value_t = 0)]
    pairs: usize,
    /// Also run every single fault at every place
    #[arg(long)]
    singles: bool,
}

/// What schedules cost one core.
#[derive(Debug, Serialize)]
struct Line {
    phase: &'static str,
    schedules: u64,
    schedules_per_s: f64,
    cpu_us_per_schedule: f64,
    /// Requests of the controller; those of the user and of the built-in controllers are not counted.
    requests_per_schedule: f64,
    cpu_us_per_request: f64,
    virtual_minutes_per_schedule: f64,
    virtual_years_per_hour: f64,
    peak_mb: f64,
}

/// Runs the benchmark and prints its line.
pub fn run(args: &SimArgs) -> Result<(), Failure> {
    let check = Check::builder()
        .name("sample-controller")
        .definition(api::crd())
        .threads(1)
        .singles(args.singles)
        .pairs(args.pairs)
        .seeds(args.seeds);
    let phase = Phase::start(&Clock::system())?;
    let report = check.run_program(
        |_| (),
        async |life, ()| {
            sample_controller::run(&life.client, &sample_controller::Options::default(), life.stop)
                .await
                .unwrap_or_default();
        },
        tell,
    )?;
    let cost = phase.cost()?;
    print(&line(&report, cost.cpu, cost.memory.peak))?;
    Ok(())
}

fn line(report: &Report, cpu: Duration, peak: u64) -> Line {
    let (schedules, requests) = (report.schedules() as f64, report.requests() as f64);
    let (cpu, passed) = (cpu.as_secs_f64(), report.virtual_time().as_secs_f64());
    Line {
        phase: "sim",
        schedules: report.schedules(),
        schedules_per_s: rounded(schedules / cpu, 1),
        cpu_us_per_schedule: rounded(cpu / schedules * 1e6, 1),
        requests_per_schedule: rounded(requests / schedules, 1),
        cpu_us_per_request: rounded(cpu / requests * 1e6, 2),
        virtual_minutes_per_schedule: rounded(passed / schedules / 60.0, 1),
        virtual_years_per_hour: rounded(passed / cpu / 8766.0, 2),
        peak_mb: megabytes(peak),
    }
}

fn foo(name: &str) -> Foo {
    let mut foo = Foo::new(name, FooSpec { deployment_name: format!("{name}-d"), replicas: Some(1) });
    foo.metadata.namespace = Some("default".into());
    foo
}

/// The story of the controller's own check: users create, scale and delete, and delete Deployments by hand.
async fn tell(user: &User) {
    for name in ["a", "b", "c"] {
        user.create(&foo(name)).await;
    }
    user.eventually::<Deployment>("default/b-d", |_| true).await;
    user.patch::<Foo>("default/a", json!({"spec": {"replicas": 3}})).await;
    user.delete::<Deployment>("default/b-d").await;
    let is_scaled = |it: &Deployment| it.spec.as_ref().is_some_and(|spec| spec.replicas == Some(3));
    user.eventually::<Deployment>("default/a-d", is_scaled).await;
    let status = json!({"status": {"replicas": 3, "readyReplicas": 3, "availableReplicas": 3}});
    user.patch_status::<Deployment>("default/a-d", status).await;
    user.delete::<Foo>("default/c").await;
    user.settle().await;
}
