//! The simulated network between replicas of a controller and the API server.
//!
//! `carry.rs` carries one request and its answer, `stream.rs` the events of a watch, `windows.rs` has the faults that last for a while,
//! `nudge.rs` makes a controller look again.

mod carry;
mod nudge;
mod stream;
mod windows;

use std::collections::BTreeMap;
use std::fmt;
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
use watchkeeper::clock::{Clock, Instant};
use watchkeeper_apiserver::{ApiServer, Checkpoint};

use crate::answers::Answer;
use crate::fault::{Fault, Planned};
use crate::objects::{Invariant, Objects};
use crate::script::{Details, Script};
use crate::site::Site;
use crate::trace::{Event, Trace};
use crate::violation::Violation;
pub(crate) use carry::TOUCHED;
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
    clock: Clock,
    trace: Trace,
    state: Mutex<State>,
}

struct State {
    script: Script,
    replicas: Vec<Replica>,
    windows: Windows,
    /// The resource whose watches are held back, and the token that releases them.
    held: Option<(String, CancellationToken)>,
    is_cut_off: bool,
    /// Cancelled to break all connections.
    connections: CancellationToken,
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

/// What the network knows of a replica.
#[derive(Default)]
pub(crate) struct Replica {
    /// Cancelled at the end of the current life, after which its clients cannot reach the server.
    life: CancellationToken,
    /// How often each request was made, over all lives.
    counts: BTreeMap<Arc<str>, u32>,
    /// Percent of the true rate, from the next life on.
    pub(crate) clock_rate: Option<u32>,
    /// Seconds, from the next life on.
    pub(crate) clock_offset: i64,
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
        let state = State {
            script,
            replicas: (0..replicas.max(1)).map(|_| Replica::default()).collect(),
            windows: Windows::default(),
            held: None,
            is_cut_off: false,
            connections: CancellationToken::new(),
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
        Self(Arc::new(Shared { server, clock, trace, state: Mutex::new(state) }))
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
        self.break_connections();
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
        std::mem::take(&mut replica.life).cancel();
        replica.life.clone()
    }

    /// The rate and the offset of a replica's clock.
    pub(crate) fn clock_of(&self, replica: usize) -> (f64, i64) {
        let state = self.0.state.lock();
        let Replica { clock_rate, clock_offset, .. } = &state.replicas[replica];
        (clock_rate.map_or(1.0, |percent| f64::from(percent) / 100.0), *clock_offset)
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

    /// Checks the invariants; the first one that does not hold is kept.
    fn check_invariants(&self) {
        let invariants = self.0.state.lock().invariants.clone();
        if invariants.is_empty() {
            return;
        }
        let objects = Objects::new(&self.0.server);
        for Invariant { name, holds } in invariants.iter() {
            if let Err(problem) = holds(&objects) {
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

    /// The place after a step of the story: what happens there.
    pub(crate) fn after_step(&self, step: u32) {
        let planned = {
            let mut state = self.0.state.lock();
            state.steps.push(self.0.server.revision());
            // The controller has had no time to react: it is not quiet yet.
            state.last_activity = self.0.clock.now();
            let resources = state.resources.clone();
            state.script.at(Site::Step(step), || Details::Step { resources })
        };
        if let Some(planned) = planned {
            self.strike(step, planned);
        }
    }

    /// Carries out a fault that is not about a request.
    fn strike(&self, step: u32, planned: Planned) {
        let fault = planned.fault.clone();
        if fault != Fault::SetBack {
            self.0.trace.add(Event::Fault(planned.clone()));
        }
        let minute = Duration::from_secs(60);
        match fault {
            Fault::Restart => {
                self.0.server.compact_now();
                self.break_connections();
            }
            Fault::Compact => self.0.server.compact_now(),
            Fault::Unreachable(time) => {
                self.window(|windows, now| windows.unreachable_until = Some(now + time));
                self.break_connections();
            }
            Fault::SetBack => {
                let (net, checkpoint) = (self.clone(), self.0.server.checkpoint());
                tokio::spawn(async move { net.set_back(step, &checkpoint, planned).await });
            }
            Fault::Forbid(resource) => {
                self.window(|windows, now| windows.refuse(&resource, 403, now + minute));
                self.break_connections();
            }
            Fault::Unserve(resource) => {
                self.window(|windows, now| windows.refuse(&resource, 404, now + minute));
                self.break_connections();
            }
            Fault::Kill => self.kill(0),
            Fault::Pause(time) => self.window(|windows, now| windows.paused_until = Some(now + time)),
            Fault::ClockRate(percent) => {
                self.0.state.lock().replicas[0].clock_rate = Some(percent);
                self.kill(0);
            }
            Fault::ClockOffset(seconds) => {
                self.0.state.lock().replicas[0].clock_offset = seconds;
                self.kill(0);
            }
            _ => {}
        }
    }

    /// Returns to the backup when the controller has had time to write, unless the story has gone on.
    async fn set_back(&self, step: u32, checkpoint: &Checkpoint, planned: Planned) {
        self.0.clock.sleep(Duration::from_secs(5)).await;
        let has_gone_on = self.0.state.lock().steps.len() as u32 > step + 1;
        if !has_gone_on && self.0.server.revision() > checkpoint.revision() {
            self.0.trace.add(Event::Fault(planned));
            self.0.trace.add(Event::Restored { revision: checkpoint.revision() });
            self.0.server.restore(checkpoint);
            self.break_connections();
        }
    }

    fn window(&self, set: impl FnOnce(&mut Windows, Instant)) {
        set(&mut self.0.state.lock().windows, self.0.clock.now());
    }

    /// Breaks all connections of all replicas.
    fn break_connections(&self) {
        let connections = std::mem::take(&mut self.0.state.lock().connections);
        connections.cancel();
    }

    /// Ends the life of a replica.
    pub(crate) fn kill(&self, replica: usize) {
        let life = self.0.state.lock().replicas[replica].life.clone();
        life.cancel();
    }

    /// The place of a call to the outside world: what happens there.
    pub(crate) fn at_call(&self, what: &Arc<str>) -> Option<Fault> {
        let planned = {
            let mut state = self.0.state.lock();
            let nth = state.replicas[0].count(what);
            let site = Site::Request { replica: 0, what: what.clone(), nth };
            state.last_activity = self.0.clock.now();
            state.script.at(site, || Details::Outside)
        }?;
        self.0.trace.add(Event::Fault(planned.clone()));
        Some(planned.fault)
    }
}

impl Replica {
    fn count(&mut self, what: &Arc<str>) -> u32 {
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
                answer = net.carry(replica, &life, request) => answer,
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
