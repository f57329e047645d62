//! A candidate for a Lease on our toolkit, as a process of its own: it writes as long as it leads.

use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::Patch;
use serde_json::json;
use watchkeeper::leader::{LeaderElection, LeaseTimes};
use watchkeeper::process::{ClientArgs, signals};
use watchkeeper::{Env, ObjectName};

/// The first argument of a process that is a candidate.
pub(crate) const NAME: &str = "candidate-of-ours";

/// The times of the candidate in Go.
const TIMES: LeaseTimes = LeaseTimes {
    lease_duration: Duration::from_secs(10),
    renew_deadline: Duration::from_secs(8),
    retry_period: Duration::from_millis(500),
};

/// Runs with the kubeconfig and the identity of the arguments until a signal or the loss.
pub(crate) async fn run() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(2).collect();
    let [kubeconfig, identity] = &arguments[..] else { return ExitCode::FAILURE };
    let env = Env::system();
    let stop = signals::install(&env).unwrap();
    let args = ClientArgs { kubeconfig: Some(kubeconfig.into()), ..ClientArgs::default() };
    let client = args.connect(&env).await.unwrap();
    let election = LeaderElection::builder(&client, "default", "leader").identity(identity).times(TIMES);
    let election = election.build().unwrap();
    let (guarded, stopped) = (election.guard(&client), stop.clone());
    let work = |_| async move {
        println!("leading");
        let key = ObjectName::namespaced("default", "work");
        while !stopped.is_cancelled() {
            let patch =
                Patch::Merge(json!({"data": {"writer": identity, "at": env.clock.wall().to_string()}}));
            if let Err(error) = guarded.api::<ConfigMap>().patch(&key, &patch).await {
                println!("refused: {error}");
            }
            env.clock.sleep(Duration::from_millis(20)).await;
        }
    };
    match election.run(stop, work).await {
        Ok(_) => {
            println!("stopped");
            ExitCode::SUCCESS
        }
        Err(lost) => {
            println!("{lost}");
            ExitCode::FAILURE
        }
    }
}
