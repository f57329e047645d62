//! The simulated network between replicas of a controller and the API server.
//!
//! `carry.rs` carries one request and its answer, `stream.rs` the events of a watch, `connections.rs` breaks connections, `behind.rs`
//! reads an old state, `strike.rs` and `windows.rs` have the faults that are not about one request, `effects.rs` which had an effect, and
//! `nudge.rs` makes a controller look again.

mod behind;
mod carry;
mod connections;
mod effects;
mod nudge;
mod stream;
mod strike;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use http_body_util::combinators::UnsyncBoxBody;
use kube_client::client::Body;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tower::Service;
use watchkeeper::clock::{Clock, Instant, Pauses};
use watchkeeper_apiserver::{ApiServer, ApiService};

use crate::answers::Answer;
use crate::fault::{Fault, Planned};
use crate::objects::{Invariant, Objects};
use crate::script::{Details, Script};
use crate::site::Site;
use crate::trace::{Event, Trace};
use crate::violation::{Violation, panic_message};
pub(crate) use carry::TOUCHED;
use connections::Connections;
use effects::Effects;
use windows::Windows;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// The network between a controller and an API server, without faults of its own. Clones share it.
///
/// [`check`](crate::check) uses one with faults. On its own, it cuts a controller off, or makes its cache stale:
///
/// ```
/// use watchkeeper::Env;
/// use watchkeeper_apiserver::ApiServer;
/// use watchkeeper_sim::Net;
///
/// let env = Env::simulated(1);
/// let net = Net::new(&ApiServer::new(&env), &env.clock);
/// net.hold("pods"); // the controller's cache of Pods becomes stale
/// net.release();
/// net.cut_off(); // requests fail
/// net.restore();
/// ```
#[derive(Clone)]
pub struct Net(Arc<Shared>);

pub(crate) struct Shared {
    server: ApiServer,
    /// What answers the requests.
    service: ApiService,
    clock: Clock,
    trace: Trace,
    /// How long a connection hangs before it breaks. `None` in a simulation, where it does so for ever.
    longest_stall: Option<Duration>,
    state: Mutex<State>,
}

impl Shared {
    fn new(server: &ApiServer, clock: &Clock, script: Script, trace: &Trace, replicas: usize) -> Self {
        let state = State {
            script,
            replicas: (0..replicas.max(1)).map(|_| Replica::default()).collect(),
            windows: Windows::default(),
            effects: Effects::default(),
            held: None,
            is_cut_off: false,
            connections: Connections::default(),
            spoiled: BTreeSet::new(),
            resources: Vec::new(),
            steps: Vec::new(),
            in_flight: 0,
            last_activity: clock.now(),
            last_change: clock.now(),
            requests: 0,
            runaway: CancellationToken::new(),
            invariants: Arc::new([]),
            violation: None,
            is_mended_by_nudge: false,
        };
        let (server, clock, trace) = (server.clone(), clock.clone(), trace.clone());
        let service = server.service();
        let state = Mutex::new(state);
        Self { server, service, clock, trace, longest_stall: None, state }
    }
}

struct State {
    script: Script,
    replicas: Vec<Replica>,
    windows: Windows,
    effects: Effects,
    /// The resource whose watches are held back, and the token that releases them.
    held: Option<(String, CancellationToken)>,
    is_cut_off: bool,
    connections: Connections,
    /// The paths of objects that were spoiled in transit, and are to be changed later.
    spoiled: BTreeSet<String>,
    /// The resources that replicas have used, in the order of their first use.
    resources: Vec<String>,
    /// The revision after each step of the story.
    steps: Vec<u64>,
    /// Requests that are not watches, not about Events or Leases, and not answered yet.
    in_flight: u32,
    /// When a replica last sent such a request or got its answer.
    last_activity: Instant,
    /// When a replica last changed anything but Events and Leases.
    last_change: Instant,
    requests: u64,
    /// Cancelled when a replica makes requests without end.
    runaway: CancellationToken,
    /// What must hold after every change.
    invariants: Arc<[Invariant]>,
    violation: Option<Violation>,
    is_mended_by_nudge: bool,
}

/// More requests than any story needs.
const MOST_REQUESTS: u64 = 100_000;

/// The most names of requests that are counted apart, and the most resources that are known to be used.
const MOST_NAMES: usize = 100_000;
const MOST_RESOURCES: usize = 1000;

/// What the network knows of a replica.
#[derive(Default)]
pub(crate) struct Replica {
    /// Cancelled at the end of the current life, after which its clients cannot reach the server.
    life: CancellationToken,
    /// It has been started.
    has_begun: bool,
    /// How often each request was made, over all lives.
    counts: BTreeMap<Arc<str>, u32>,
    /// When it is suspended.
    pauses: Pauses,
    /// The fault that suspends it.
    paused_by: Option<Planned>,
    /// Percent of the true rate, from the next life on.
    pub(crate) clock_rate: Option<u32>,
    /// Seconds, from the next life on.
    pub(crate) clock_offset: i64,
    /// The fault that has changed the clock, until the next life begins.
    clock_by: Option<Planned>,
}

impl Net {
    /// Returns a network without faults in front of `server`.
    pub fn new(server: &ApiServer, clock: &Clock) -> Self {
        Self::scripted(server, clock, Script::planned(&[]), &Trace::new(clock), 1)
    }

    pub(crate) fn scripted(
        server: &ApiServer,
        clock: &Clock,
        script: Script,
        trace: &Trace,
        replicas: usize,
    ) -> Self {
        Self(Arc::new(Shared::new(server, clock, script, trace, replicas)))
    }

    /// A network in front of the service of a listener, in real time: connections that hang break after a while.
    pub(crate) fn listening(
        server: &ApiServer,
        service: &ApiService,
        longest_stall: Duration,
        script: Script,
        trace: &Trace,
    ) -> Self {
        let shared = Shared::new(server, trace.clock(), script, trace, 1);
        let (service, longest_stall) = (service.clone(), Some(longest_stall));
        Self(Arc::new(Shared { service, longest_stall, ..shared }))
    }

    /// Returns the server as the controller sees it through this network.
    pub fn service(&self) -> NetService {
        self.service_of(0)
    }

    /// Delays all watch events of `resource` (its plural name) until [`release`](Self::release); none is lost.
    pub fn hold(&self, resource: &str) {
        self.0.state.lock().held = Some((resource.to_owned(), CancellationToken::new()));
    }

    /// Ends a [`hold`](Self::hold).
    pub fn release(&self) {
        if let Some((_, released)) = self.0.state.lock().held.take() {
            released.cancel();
        }
    }

    /// Refuses new connections and breaks existing ones.
    pub fn cut_off(&self) {
        self.0.state.lock().is_cut_off = true;
        self.break_connections(None);
    }

    /// Lets requests through again.
    pub fn restore(&self) {
        self.0.state.lock().is_cut_off = false;
    }

    pub(crate) fn service_of(&self, replica: usize) -> NetService {
        let life = self.0.state.lock().replicas[replica].life.clone();
        NetService { net: self.clone(), replica, life }
    }

    /// Starts the next life of a replica; the token is cancelled when it ends. Responses to the life before break off, and requests
    /// from what is left of it do not reach the server.
    pub(crate) fn begin_life(&self, replica: usize) -> CancellationToken {
        let mut state = self.0.state.lock();
        let replica = &mut state.replicas[replica];
        if replica.life.is_cancelled() {
            // The next process is not suspended.
            replica.pauses = Pauses::default();
        }
        replica.has_begun = true;
        std::mem::take(&mut replica.life).cancel();
        replica.life.clone()
    }

    /// The rate and the offset of a replica's clock, for the life that begins.
    pub(crate) fn clock_of(&self, replica: usize) -> (f64, i64) {
        let by = self.0.state.lock().replicas[replica].clock_by.take();
        if let Some(planned) = by {
            self.had_effect(&planned);
        }
        let state = self.0.state.lock();
        let Replica { clock_rate, clock_offset, .. } = &state.replicas[replica];
        (clock_rate.map_or(1.0, |percent| f64::from(percent) / 100.0), *clock_offset)
    }

    /// When a replica is suspended.
    pub(crate) fn pauses_of(&self, replica: usize) -> Pauses {
        self.0.state.lock().replicas[replica].pauses.clone()
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.0.trace
    }

    pub(crate) fn server(&self) -> &ApiServer {
        &self.0.server
    }

    /// Ends all faults, also those that last for a while.
    pub(crate) fn calm(&self) {
        let mut state = self.0.state.lock();
        state.script.end();
        state.windows = Windows::default();
    }

    pub(crate) fn with_script<T>(&self, look: impl FnOnce(&mut Script) -> T) -> T {
        look(&mut self.0.state.lock().script)
    }

    /// The number of requests that replicas have made so far.
    pub(crate) fn requests(&self) -> u64 {
        self.0.state.lock().requests
    }

    /// Checks these after every change from now on.
    pub(crate) fn watch_invariants(&self, invariants: &Arc<[Invariant]>) {
        self.0.state.lock().invariants = invariants.clone();
    }

    /// The first violation of an invariant.
    pub(crate) fn take_violation(&self) -> Option<Violation> {
        self.0.state.lock().violation.take()
    }

    /// Checks the invariants; the first one that does not hold, or panics, is kept.
    pub(crate) fn check_invariants(&self) {
        let invariants = self.0.state.lock().invariants.clone();
        if invariants.is_empty() {
            return;
        }
        let objects = Objects::new(&self.0.server);
        for Invariant { name, holds } in invariants.iter() {
            let held = catch_unwind(AssertUnwindSafe(|| holds(&objects)));
            let held =
                held.unwrap_or_else(|panic| Err(format!("it panicked: {}", panic_message(panic.as_ref()))));
            if let Err(problem) = held {
                let violation = Violation::Invariant { name: name.clone(), problem };
                self.0.trace.note(&violation.to_string());
                self.0.state.lock().violation.get_or_insert(violation);
            }
        }
    }

    /// Cancelled when the replicas make more requests than any story needs.
    pub(crate) fn runaway(&self) -> CancellationToken {
        self.0.state.lock().runaway.clone()
    }

    /// When a replica last changed anything but Events and Leases.
    pub(crate) fn last_change(&self) -> Instant {
        self.0.state.lock().last_change
    }

    /// Waits until no replica has sent a request, apart from watches, for `period`; or until `deadline`. Returns whether it is quiet.
    pub(crate) async fn quiet(&self, period: Duration, deadline: Instant) -> bool {
        loop {
            let now = self.0.clock.now();
            let next = {
                let state = self.0.state.lock();
                if state.in_flight == 0 { state.last_activity + period } else { now + period }
            };
            if next <= now {
                return true;
            }
            if deadline <= now {
                return false;
            }
            self.0.clock.sleep_until(next.min(deadline)).await;
        }
    }

    /// Waits while the caller of the outside world is suspended, if it is known who calls.
    pub(crate) async fn caller_is_awake(&self) {
        let pauses = match &self.0.state.lock().replicas[..] {
            [only] => only.pauses.clone(),
            _ => return,
        };
        self.is_awake(0, &pauses).await;
    }

    /// Waits while a replica is suspended.
    async fn is_awake(&self, replica: usize, pauses: &Pauses) {
        let before = self.0.clock.now();
        pauses.over().await;
        if self.0.clock.now() > before {
            let by = self.0.state.lock().replicas[replica].paused_by.take();
            if let Some(planned) = by {
                self.had_effect(&planned);
            }
        }
    }

    /// The place of a call to the outside world: what happens there.
    pub(crate) fn at_call(&self, what: &Arc<str>) -> Option<Fault> {
        let planned = {
            let mut state = self.0.state.lock();
            let knows_caller = state.replicas.len() == 1;
            let nth = state.replicas[0].count(what);
            let site = Site::Request { replica: 0, what: what.clone(), nth };
            state.last_activity = self.0.clock.now();
            state.script.at(site, || Details::Outside { knows_caller })
        }?;
        self.0.trace.add(Event::Fault(planned.clone()));
        self.happens(&planned);
        Some(planned.fault)
    }
}

impl Replica {
    fn count(&mut self, what: &Arc<str>) -> u32 {
        if self.counts.len() >= MOST_NAMES {
            self.counts.clear();
        }
        let count = self.counts.entry(what.clone()).or_default();
        *count += 1;
        *count
    }
}

/// An API server seen through a [`Net`] in one life of a controller, for `kube_client::Client::new`.
#[derive(Clone)]
pub struct NetService {
    net: Net,
    replica: usize,
    life: CancellationToken,
}

impl Service<Request<Body>> for NetService {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (net, replica, life) = (self.net.clone(), self.replica, self.life.clone());
        let carried = async move {
            tokio::select! {
                biased;
                () = life.cancelled() => std::future::pending().await,
                answer = net.carry(replica, "", &life, request) => answer,
            }
        };
        carried.boxed()
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("requests", &self.requests()).finish_non_exhaustive()
    }
}

impl fmt::Debug for NetService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NetService").field(&self.net).finish()
    }
}
