//! Running a controller through a fault schedule: a workload with faults, then a calm phase in which it must converge.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use watchkeeper::clock::Clock;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_controllers::{garbage_collector, namespace_controller};

use crate::net::{Moment, Net, Rates};
use crate::trace::Trace;

/// A schedule of faults that follows from a seed.
///
/// ```
/// use watchkeeper_sim::{Rates, Simulation};
///
/// let run = Simulation::new(7).rates(Rates::CALM).run(
///     async |_client, stop| stop.cancelled().await,
///     async |cluster| assert!(cluster.converged(async || true).await),
/// );
/// assert!(!run.trace.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Simulation {
    seed: u64,
    rates: Rates,
    crash: Option<(u64, Moment)>,
    collect_garbage: bool,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Every request, fault, crash and start, in order.
    pub trace: Vec<String>,
    /// Number of starts of the controller.
    pub lives: u64,
}

/// The view of a workload: the server, over connections without faults.
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
    /// Ends all faults and waits until `holds`; returns false if that takes more than 15 minutes of virtual time.
    pub async fn converged(&self, mut holds: impl AsyncFnMut() -> bool) -> bool {
        self.net.set_rates(Rates::CALM);
        for _ in 0..900 {
            if holds().await {
                return true;
            }
            self.env.clock.sleep(Duration::from_secs(1)).await;
        }
        false
    }

    /// Sleeps for a random time of up to `most`.
    pub async fn pause(&self, most: Duration) {
        self.env.clock.sleep(most.mul_f64(self.env.generator.unit())).await;
    }
}

impl Simulation {
    /// Returns the schedule of `seed`, with frequent faults.
    pub fn new(seed: u64) -> Self {
        Self { seed, rates: Rates::STORM, crash: None, collect_garbage: false }
    }

    /// Sets the rates of faults.
    #[must_use]
    pub fn rates(mut self, rates: Rates) -> Self {
        self.rates = rates;
        self
    }

    /// Crashes the controller at its request number `request`, counted from 1, in addition to the rates.
    #[must_use]
    pub fn crash_at(mut self, request: u64, moment: Moment) -> Self {
        self.crash = Some((request, moment));
        self
    }

    /// Runs a garbage collector, as a real cluster does. Its requests have no faults and are not traced.
    #[must_use]
    pub fn collect_garbage(mut self) -> Self {
        self.collect_garbage = true;
        self
    }

    /// Runs `controller` and `workload` on a new server. The controller is restarted whenever it crashes, and stopped when the workload has
    /// ended. The built-in namespace controller runs beside them; its requests are neither disturbed nor traced.
    ///
    /// # Panics
    ///
    /// If the workload or the controller panics. The end of the trace is then printed, with the path of a file that holds all of it.
    pub fn run<C, W>(&self, controller: C, workload: W) -> Run
    where
        C: AsyncFn(Client, CancellationToken),
        W: AsyncFnOnce(&Cluster),
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        // A runtime without IO needs nothing that can fail.
        let runtime = runtime.expect("a paused runtime");
        runtime.block_on(async {
            let env = Env::simulated(self.seed);
            let trace = Trace::new(&env.clock);
            match AssertUnwindSafe(self.run_in(&env, &trace, controller, workload)).catch_unwind().await {
                Ok(lives) => Run { trace: trace.lines(), lives },
                Err(panic) => {
                    trace.add(format_args!("panicked: seed {}", self.seed));
                    trace.print_end();
                    resume_unwind(panic)
                }
            }
        })
    }

    /// Returns the number of lives of the controller.
    async fn run_in<C, W>(&self, env: &Env, trace: &Trace, controller: C, workload: W) -> u64
    where
        C: AsyncFn(Client, CancellationToken),
        W: AsyncFnOnce(&Cluster),
    {
        let server = ApiServer::new(&env.fork("server"));
        let net = Net::new(&server, &env.clock, env.generator.fork("net"), trace);
        let user = Client::from_kube(server.client(), &env.fork("user"));
        let collector = Client::from_kube(unhurried(&server, &env.clock), &env.fork("collector"));
        let namespaces = Client::from_kube(unhurried(&server, &env.clock), &env.fork("namespaces"));
        let cluster = Cluster { env: env.fork("workload"), server, user, net: net.clone() };
        net.set_rates(self.rates);
        if let Some((request, moment)) = self.crash {
            net.crash_at(request, moment);
        }
        let stop = CancellationToken::new();
        let mut lives = 0;
        let live = async {
            while !stop.is_cancelled() {
                lives += 1;
                trace.add(format_args!("life {lives} begins"));
                let over = net.new_life();
                let generator = env.generator.fork(&format!("life {lives}"));
                let client = Client::from_kube(
                    kube_client::Client::new(net.service(), "default"),
                    &Env::new(env.clock.clone(), generator.clone()),
                );
                let end = tokio::select! {
                    biased;
                    () = over.cancelled() => "crashes",
                    () = controller(client, stop.clone()) => "ends",
                };
                trace.add(format_args!("life {lives} {end}"));
                over.cancel();
                env.clock.sleep(Duration::from_secs(5).mul_f64(generator.unit())).await;
            }
        };
        let work = async {
            let _stop = stop.clone().drop_guard();
            workload(&cluster).await;
        };
        let collect = async {
            if self.collect_garbage {
                garbage_collector::run(&collector, stop.clone()).await;
            }
        };
        let empty_namespaces = namespace_controller::run(&namespaces, stop.clone());
        tokio::join!(live, work, collect, empty_namespaces);
        lives
    }
}

/// Returns a client whose requests take 50 ms each, like the 20 requests per second of a controller manager. Without
/// this delay, a collector and a controller with a stale cache could delete and create one object over and over, and
/// virtual time would not advance.
fn unhurried(server: &ApiServer, clock: &Clock) -> kube_client::Client {
    let (service, clock) = (server.service(), clock.clone());
    let service = tower::service_fn(move |request| {
        let (service, clock) = (service.clone(), clock.clone());
        async move {
            clock.sleep(Duration::from_millis(50)).await;
            service.oneshot(request).await
        }
    });
    kube_client::Client::new(service, "default")
}
