//! The network between one replica and the server: it can be slow, cut or frozen, and the server's log has every write.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use kube_client::client::Body;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator, Instant, Pauses};

use crate::server::{AnswerBody, Server};

/// One write that the server has carried out.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) replica: usize,
    pub(crate) what: String,
    /// True time at which the replica sent it.
    pub(crate) sent: Instant,
    /// True time at which the server carried it out.
    pub(crate) done: Instant,
    /// The holder of the lease when it was sent, and when it was carried out.
    pub(crate) holders: [String; 2],
}

/// The server, and what it has carried out.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) server: Server,
    /// True time.
    pub(crate) clock: Clock,
    pub(crate) log: Arc<Mutex<Vec<Write>>>,
}

impl Cluster {
    pub(crate) fn new(env: &Env) -> Self {
        Self { server: Server::default(), clock: env.clock.clone(), log: Arc::default() }
    }
}

/// The way of one life of a replica to the server. Clones share it.
#[derive(Clone)]
pub(crate) struct Link {
    cluster: Cluster,
    replica: usize,
    generator: Generator,
    state: Arc<Mutex<State>>,
    /// Cancelled when the life ends.
    pub(crate) dead: CancellationToken,
}

#[derive(Default)]
struct State {
    frozen_until: Option<Instant>,
    cut_until: Option<Instant>,
    /// Requests about the Lease are lost, and others are not.
    lease_cut_until: Option<Instant>,
    /// The longest way of a request or an answer.
    delay: Duration,
    /// How late the events of watches are.
    lag: Duration,
    /// The events of all watches but those of the Lease are lost.
    is_deaf: bool,
    /// Requests about the Lease are refused.
    has_no_lease: bool,
    /// Watches are refused, and those that are open end at their next event.
    has_no_watches: bool,
    requests: u32,
    lease_reads: u32,
    /// The fault that is to come, and the machine that it happens to.
    planned: Option<(Fault, Machine)>,
}

/// What goes wrong at the nth request of a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) at: u32,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// It crashes, before the server gets the request or after it has acted.
    Crash { after: bool },
    /// It is suspended: requests about the Lease leave when it goes on, others have just left. No client can take back a write
    /// between its last look at the clock and the socket.
    Freeze(Duration),
    /// Its process is stopped, as by SIGSTOP: its clock goes on, and its timers fire when it goes on. Requests leave as in a suspend.
    Stop(Duration),
    /// The server cannot be reached, from this request on.
    Cut(Duration),
}

impl What {
    pub(crate) fn lasts(self) -> Duration {
        match self {
            Self::Crash { .. } => Duration::ZERO,
            Self::Freeze(time) | Self::Stop(time) | Self::Cut(time) => time,
        }
    }
}

/// The time of one life of a replica.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) clock: Clock,
    pub(crate) rate: f64,
    /// When its process is stopped.
    pub(crate) pauses: Pauses,
}

impl Link {
    pub(crate) fn new(cluster: &Cluster, replica: usize, generator: Generator, delay: Duration) -> Self {
        let state = State { delay, ..State::default() };
        let state = Arc::new(Mutex::new(state));
        Self { cluster: cluster.clone(), replica, generator, state, dead: CancellationToken::new() }
    }

    /// Lets a fault happen to the replica, which runs on that machine.
    pub(crate) fn plan(&self, fault: Fault, machine: &Machine) {
        self.state.lock().planned = Some((fault, machine.clone()));
    }

    /// Delays the events of all watches but those of the Lease.
    pub(crate) fn lag(&self, lag: Duration) {
        self.state.lock().lag = lag;
    }

    /// Loses the events of all watches but those of the Lease, or stops to.
    pub(crate) fn deafen(&self, is_deaf: bool) {
        self.state.lock().is_deaf = is_deaf;
    }

    /// Refuses requests about the Lease, or stops to.
    pub(crate) fn forbid_lease(&self, is_forbidden: bool) {
        self.state.lock().has_no_lease = is_forbidden;
    }

    /// Lists and watches are refused from now on.
    pub(crate) fn forbid_watches(&self) {
        self.state.lock().has_no_watches = true;
    }

    /// How often one Lease was read.
    pub(crate) fn lease_reads(&self) -> u32 {
        self.state.lock().lease_reads
    }

    pub(crate) fn requests(&self) -> u32 {
        self.state.lock().requests
    }

    /// Nothing passes for `time`: the machine is suspended.
    pub(crate) fn freeze(&self, time: Duration, machine: &Machine) {
        self.state.lock().frozen_until = Some(self.cluster.clock.now() + time);
        // The monotonic clock stands still, and so do all timers.
        machine.clock.suspend(time.mul_f64(machine.rate));
    }

    /// Nothing passes for `time`: the process is stopped, and no timer wakes it.
    pub(crate) fn stop(&self, time: Duration, machine: &Machine) {
        let until = self.cluster.clock.now() + time;
        self.state.lock().frozen_until = Some(until);
        machine.pauses.pause_until(until);
    }

    /// The server cannot be reached for `time`.
    pub(crate) fn cut(&self, time: Duration) {
        self.state.lock().cut_until = Some(self.cluster.clock.now() + time);
    }

    /// Requests about the Lease are lost for `time`; all others pass.
    pub(crate) fn cut_lease(&self, time: Duration) {
        self.state.lock().lease_cut_until = Some(self.cluster.clock.now() + time);
    }

    pub(crate) fn client(&self) -> kube_client::Client {
        let link = self.clone();
        kube_client::Client::new(tower::service_fn(move |request| link.clone().call(request)), "default")
    }

    async fn thawed(&self) {
        loop {
            let until = self.state.lock().frozen_until.filter(|until| *until > self.cluster.clock.now());
            match until {
                Some(until) => self.cluster.clock.sleep_until(until).await,
                None => return,
            }
        }
    }

    fn is_cut(&self) -> bool {
        self.state.lock().cut_until.is_some_and(|until| until > self.cluster.clock.now())
    }

    /// Whether a request to `uri` is lost now.
    fn loses(&self, uri: &str) -> bool {
        let until = self.state.lock().lease_cut_until.filter(|_| uri.contains("/leases"));
        self.is_cut() || until.is_some_and(|until| until > self.cluster.clock.now())
    }

    async fn travel(&self) {
        let delay = self.state.lock().delay.mul_f64(self.generator.unit());
        self.cluster.clock.sleep(delay).await;
    }

    /// Counts a request; returns the fault that happens at it, which has begun.
    fn count(&self) -> Option<What> {
        let mut state = self.state.lock();
        state.requests += 1;
        let requests = state.requests;
        let (fault, machine) = state.planned.take_if(|(fault, _)| fault.at == requests)?;
        drop(state);
        match fault.what {
            What::Crash { after: false } => self.dead.cancel(),
            What::Crash { after: true } => {}
            What::Freeze(time) => self.freeze(time, &machine),
            What::Stop(time) => self.stop(time, &machine),
            What::Cut(time) => self.cut(time),
        }
        Some(fault.what)
    }

    async fn call(self, request: Request<Body>) -> Result<Response<AnswerBody>, std::io::Error> {
        self.thawed().await;
        let (fault, uri) = (self.count(), request.uri().to_string());
        if uri.contains("/leases") {
            self.thawed().await;
        }
        let (sent, holder) = (self.cluster.clock.now(), self.cluster.server.holder());
        let is_read = request.method() == Method::GET && request.uri().path().ends_with("/leases/leader");
        self.state.lock().lease_reads += u32::from(is_read);
        if self.state.lock().has_no_watches && request.method() == Method::GET && !is_read {
            return Ok(forbidden());
        }
        if self.state.lock().has_no_lease && uri.contains("/leases") {
            return Ok(forbidden());
        }
        let is_watch = uri.contains("watch=true");
        let is_delayed = is_watch && !uri.contains("/leases");
        // A request on its way arrives, even if nobody waits for the answer any more.
        let (answer, answered) = oneshot::channel();
        let link = self.clone();
        tokio::spawn(async move {
            link.travel().await;
            if !link.loses(&uri) && !matches!(fault, Some(What::Crash { after: false })) {
                let response = link.act(request, sent, holder).await;
                if matches!(fault, Some(What::Crash { after: true })) {
                    link.dead.cancel();
                }
                link.travel().await;
                let _gone = answer.send(response);
            } else {
                // Lost: no answer for as long as anybody waits.
                link.cluster.clock.sleep(Duration::from_secs(60)).await;
            }
        });
        let reset = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let response = answered.await.map_err(|_| reset())?;
        self.thawed().await;
        let link = self.clone();
        Ok(response.map(|body| {
            let chunks = body.into_data_stream().then(move |chunk| {
                let link = link.clone();
                async move {
                    let lag = if is_delayed { link.state.lock().lag } else { Duration::ZERO };
                    link.cluster.clock.sleep(lag).await;
                    link.thawed().await;
                    let is_refused = {
                        let state = link.state.lock();
                        state.has_no_watches || (state.has_no_lease && !is_delayed)
                    };
                    if link.is_cut() || (is_watch && is_refused) {
                        Err(reset())
                    } else if is_delayed && link.state.lock().is_deaf {
                        Ok(Frame::data(Bytes::new()))
                    } else {
                        chunk.map(Frame::data)
                    }
                }
            });
            StreamBody::new(chunks).boxed_unsync()
        }))
    }

    /// The server carries out a request, and notes it if it is a write of the work.
    async fn act(&self, request: Request<Body>, sent: Instant, holder: String) -> Response<AnswerBody> {
        let what = format!("{} {}", request.method(), request.uri().path());
        let is_work =
            request.method() != Method::GET && !what.contains("/leases") && !what.contains("/events");
        let before = self.cluster.server.holder();
        let answer = self.cluster.server.answer(request).await;
        if is_work && answer.status().is_success() {
            let (done, holders) = (self.cluster.clock.now(), [holder, before]);
            self.cluster.log.lock().push(Write { replica: self.replica, what, sent, done, holders });
        }
        answer
    }
}

fn forbidden() -> Response<AnswerBody> {
    let status = r#"{"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403}"#;
    let body = Full::new(Bytes::from(status)).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(StatusCode::FORBIDDEN).body(body).unwrap()
}
