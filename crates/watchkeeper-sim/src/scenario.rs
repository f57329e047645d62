//! Scripted scenarios: a controller and a workload on a network that the workload controls.

use std::cell::Cell;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_controllers::{garbage_collector, namespace_controller};

use crate::net::Net;
use crate::script::Script;
use crate::trace::{Event, Trace};

/// One scenario for a test that needs full control: nothing goes wrong but what the workload makes go wrong, through [`Cluster::net`].
/// [`check`](crate::check) tries all faults instead.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::ObjectName;
/// use watchkeeper_sim::Scenario;
///
/// let run = Scenario::new(7).run(
///     async |client, stop| {
///         let _found = client.api::<ConfigMap>().get_opt(&ObjectName::namespaced("default", "a")).await;
///         stop.cancelled().await;
///     },
///     async |cluster| {
///         cluster.net.hold("pods"); // the controller's cache of Pods would become stale
///         cluster.env.clock.sleep(std::time::Duration::from_secs(3600)).await; // takes no time
///     },
/// );
/// assert_eq!(run.requests, [("get configmaps default/a".to_owned(), 404)]);
/// ```
#[derive(Clone, Debug)]
pub struct Scenario {
    seed: u64,
    collect_garbage: bool,
}

/// The result of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioRun {
    /// The requests of the controller that the server answered, with the status, in order.
    pub requests: Vec<(String, u16)>,
    /// The number of starts of the controller.
    pub lives: u32,
}

impl ScenarioRun {
    /// The number of requests that start with `what`, such as `create deployments.apps`, and were answered with `status`.
    pub fn count(&self, what: &str, status: u16) -> usize {
        self.requests
            .iter()
            .filter(|(request, answer)| request.starts_with(what) && *answer == status)
            .count()
    }
}

/// What the workload of a scenario works with: the server, over connections without faults, and the network of the controller.
#[derive(Debug)]
pub struct Cluster {
    /// Clock, generator and reporter of the workload.
    pub env: Env,
    /// The API server.
    pub server: ApiServer,
    /// Client of the simulated user.
    pub user: Client,
    /// The network between the server and the controller.
    pub net: Net,
}

impl Cluster {
    /// Waits until `holds`; returns false if that takes more than 15 minutes of virtual time.
    pub async fn converged(&self, mut holds: impl AsyncFnMut() -> bool) -> bool {
        for _ in 0..900 {
            if holds().await {
                return true;
            }
            self.env.clock.sleep(Duration::from_secs(1)).await;
        }
        false
    }

    /// Crashes the controller; it is started again.
    pub fn crash(&self) {
        self.net.kill(0);
    }
}

impl Scenario {
    /// A scenario whose randomness follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed, collect_garbage: false }
    }

    /// Runs a garbage collector, as a real cluster does.
    #[must_use]
    pub fn collect_garbage(mut self) -> Self {
        self.collect_garbage = true;
        self
    }

    /// Runs `controller` and `workload` on a new server, on virtual time. The controller is started again when it crashes, and stopped
    /// when the workload has ended.
    pub fn run<C, W>(&self, controller: C, workload: W) -> ScenarioRun
    where
        C: AsyncFn(Client, CancellationToken),
        W: AsyncFnOnce(&Cluster),
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        // A runtime without IO needs nothing that can fail.
        let runtime = runtime.expect("a paused runtime");
        runtime.block_on(self.run_here(controller, workload))
    }

    async fn run_here<C, W>(&self, controller: C, workload: W) -> ScenarioRun
    where
        C: AsyncFn(Client, CancellationToken),
        W: AsyncFnOnce(&Cluster),
    {
        let env = Env::simulated(self.seed);
        let trace = Trace::new(&env.clock);
        let server = ApiServer::new(&env.fork("server"));
        let net = Net::scripted(&server, &env.clock, Script::planned(&[]), &trace, 1);
        let user = Client::from_kube(server.client(), &env.fork("user"));
        let plane =
            ["collector", "namespaces"].map(|label| Client::from_kube(server.client(), &env.fork(label)));
        let cluster = Cluster { env: env.fork("workload"), server, user, net: net.clone() };
        let (stop, lives) = (CancellationToken::new(), Cell::new(0));
        let live = async {
            while !stop.is_cancelled() {
                lives.set(lives.get() + 1);
                let over = net.begin_life(0);
                let generator = env.generator.fork(&format!("life {}", lives.get()));
                let life_env = Env::new(env.clock.clone(), generator);
                let client = Client::from_kube(kube_client::Client::new(net.service(), "default"), &life_env);
                tokio::select! {
                    biased;
                    () = over.cancelled() => {}
                    () = controller(client, stop.clone()) => {}
                }
                net.kill(0);
                env.clock.sleep(Duration::from_secs(5).mul_f64(life_env.generator.unit())).await;
            }
        };
        let work = async {
            let _stop = stop.clone().drop_guard();
            workload(&cluster).await;
        };
        let collect = async {
            if self.collect_garbage {
                garbage_collector::run(&plane[0], stop.clone()).await;
            }
        };
        tokio::join!(live, work, collect, namespace_controller::run(&plane[1], stop.clone()));
        let requests = trace.take().into_iter().filter_map(|entry| match entry.event {
            Event::Acted { what, status, .. } => Some((what.to_string(), status)),
            _ => None,
        });
        ScenarioRun { requests: requests.collect(), lives: lives.get() }
    }
}
