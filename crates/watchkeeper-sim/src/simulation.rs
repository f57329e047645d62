//! How is a controller run through a schedule? A world of its own, a workload, faults, and then a calm in which it must converge.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures::FutureExt;
use kube_client::Client;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use watchkeeper::clock::Clock;
use watchkeeper::{Clients, Env};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_controllers::garbage_collector;

use crate::net::{Moment, Net, Rates};
use crate::trace::Trace;

/// A schedule of faults that follows from a seed.
///
/// ```
/// use watchkeeper_sim::{Rates, Simulation};
///
/// let run = Simulation::new(7).rates(Rates::CALM).run(
///     async |_clients, stop| stop.cancelled().await,
///     async |world| assert!(world.converged(async || true).await),
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

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Every request, fault, crash and start, in order.
    pub trace: Vec<String>,
    /// How often the controller was started.
    pub lives: u64,
}

/// What a workload works on: the server itself, on a connection that nothing disturbs.
#[derive(Debug)]
pub struct World {
    /// Time, chance and reports of the workload.
    pub env: Env,
    /// The API server.
    pub server: ApiServer,
    /// Clients of the user, beside the controller's.
    pub user: Clients,
    /// What is between the server and the controller.
    pub net: Net,
}

impl World {
    /// Ends all faults and waits until `holds`; false when it does not within a quarter of an hour of virtual time.
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

    /// Waits for some time, up to `most`, before the next thing happens.
    pub async fn pause(&self, most: Duration) {
        self.env.clock.sleep(most.mul_f64(self.env.generator.unit())).await;
    }
}

impl Simulation {
    /// The schedule of `seed`, with much going wrong.
    pub fn new(seed: u64) -> Self {
        Self { seed, rates: Rates::STORM, crash: None, collect_garbage: false }
    }

    /// Faults come at these rates.
    #[must_use]
    pub fn rates(mut self, rates: Rates) -> Self {
        self.rates = rates;
        self
    }

    /// Crashes the controller over its request number `request`, the first being 1, beside what the rates bring.
    #[must_use]
    pub fn crash_at(mut self, request: u64, moment: Moment) -> Self {
        self.crash = Some((request, moment));
        self
    }

    /// Collects garbage as a real cluster does: objects whose owners are gone go too. Its own requests are neither disturbed nor traced.
    #[must_use]
    pub fn collect_garbage(mut self) -> Self {
        self.collect_garbage = true;
        self
    }

    /// Runs `controller` and `workload` in a world of their own. The controller is started again whenever it crashes, and is stopped when
    /// the workload has ended.
    ///
    /// # Panics
    ///
    /// Where the workload or the controller does. The end of the trace is then printed, with the name of a file that has all of it.
    pub fn run<C, W>(&self, controller: C, workload: W) -> Run
    where
        C: AsyncFn(Clients, CancellationToken),
        W: AsyncFnOnce(&World),
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

    /// How many lives the controller had.
    async fn run_in<C, W>(&self, env: &Env, trace: &Trace, controller: C, workload: W) -> u64
    where
        C: AsyncFn(Clients, CancellationToken),
        W: AsyncFnOnce(&World),
    {
        let server = ApiServer::new(&env.fork("server"));
        let net = Net::new(&server, &env.clock, env.generator.fork("net"), trace);
        let user = Clients::from_client(server.client(), &env.fork("user"));
        let collector = Clients::from_client(unhurried(&server, &env.clock), &env.fork("collector"));
        let world = World { env: env.fork("workload"), server, user, net: net.clone() };
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
                let clients = Clients::from_client(
                    Client::new(net.service(), "default"),
                    &Env::new(env.clock.clone(), generator.clone()),
                );
                let end = tokio::select! {
                    biased;
                    () = over.cancelled() => "crashes",
                    () = controller(clients, stop.clone()) => "ends",
                };
                trace.add(format_args!("life {lives} {end}"));
                over.cancel();
                env.clock.sleep(Duration::from_secs(5).mul_f64(generator.unit())).await;
            }
        };
        let work = async {
            let _stop = stop.clone().drop_guard();
            workload(&world).await;
        };
        let collect = async {
            if self.collect_garbage {
                garbage_collector::run(&collector, stop.clone()).await;
            }
        };
        tokio::join!(live, work, collect);
        lives
    }
}

/// A client whose requests take 50 ms each, as if it kept to the 20 requests a second of a controller manager. Without it a collector and a
/// controller that has not heard of a deletion yet could delete and create one object again and again, and no time would pass.
fn unhurried(server: &ApiServer, clock: &Clock) -> Client {
    let (service, clock) = (server.service(), clock.clone());
    let service = tower::service_fn(move |request| {
        let (service, clock) = (service.clone(), clock.clone());
        async move {
            clock.sleep(Duration::from_millis(50)).await;
            service.oneshot(request).await
        }
    });
    Client::new(service, "default")
}
