//! The simulated network: delays, loses, refuses and cuts requests, and crashes the sender.

use std::future::ready;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::Request;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use kube_client::client::Body;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};
use watchkeeper::clock::{Clock, Generator};
use watchkeeper_apiserver::{ApiServer, ApiService};

use crate::answers::{Answer, conflict, expired, failed, may_conflict, throttled};
use crate::trace::Trace;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The probability of each fault, per request or per life of the controller, from 0 (never) to 1 (always).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// A request is lost before it reaches the server.
    pub lose_request: f64,
    /// The answer is lost after the server has acted.
    pub lose_answer: f64,
    /// A request, or its answer, is delayed by up to a second.
    pub delay: f64,
    /// A watch gets a 410.
    pub expire: f64,
    /// A watch is cut within half a minute.
    pub cut: f64,
    /// A patch, or an update with a resourceVersion, gets a 409, as if another writer had been faster.
    pub conflict: f64,
    /// A request gets a 429 with a `Retry-After` of up to five seconds.
    pub throttle: f64,
    /// A request gets a 500 before the server has acted.
    pub fail_before: f64,
    /// A request gets a 500 after the server has acted.
    pub fail_after: f64,
    /// The controller crashes at one of its next thirty requests.
    pub crash: f64,
}

impl Rates {
    /// No faults.
    pub const CALM: Self = Self {
        lose_request: 0.0,
        lose_answer: 0.0,
        delay: 0.0,
        expire: 0.0,
        cut: 0.0,
        conflict: 0.0,
        throttle: 0.0,
        fail_before: 0.0,
        fail_after: 0.0,
        crash: 0.0,
    };

    /// Frequent faults of every kind.
    pub const STORM: Self = Self {
        lose_request: 0.1,
        lose_answer: 0.1,
        delay: 0.3,
        expire: 0.2,
        cut: 0.5,
        conflict: 0.2,
        throttle: 0.05,
        fail_before: 0.05,
        fail_after: 0.05,
        crash: 0.7,
    };
}

/// The network between a controller and an API server. Clones share it.
///
/// ```
/// use watchkeeper_sim::{Rates, Simulation};
///
/// Simulation::new(7).rates(Rates::CALM).run(
///     async |_client, stop| stop.cancelled().await,
///     async |cluster| {
///         cluster.net.set_rates(Rates { conflict: 0.5, ..Rates::CALM }); // half of all updates get a 409
///         cluster.net.hold("pods"); // the controller's cache of Pods becomes stale
///         cluster.net.release();
///     },
/// );
/// ```
#[derive(Clone)]
pub struct Net(Arc<Shared>);

struct Shared {
    service: ApiService,
    clock: Clock,
    generator: Generator,
    trace: Trace,
    state: Mutex<State>,
}

struct State {
    rates: Rates,
    cut_off: bool,
    /// Cancelled when the controller is disconnected; ends the responses in flight.
    cut: CancellationToken,
    /// Requests left in this life until the controller crashes.
    until_crash: Option<u64>,
    /// Requests left, across lives, until the planned crash.
    planned_crash: Option<(u64, Moment)>,
    /// Cancelled at the end of the controller's current life, after which its clients cannot reach the server.
    life: CancellationToken,
    /// The resource whose watches are held back, and the token that releases them.
    held: Option<(String, CancellationToken)>,
}

/// The faults of one request.
#[derive(Default)]
struct Fate {
    delay_before: Duration,
    delay_after: Duration,
    lose_request: bool,
    lose_answer: bool,
    expire: bool,
    conflict: bool,
    /// Refused, with this `Retry-After` in seconds.
    throttle: Option<u64>,
    fail_before: bool,
    fail_after: bool,
    cut_after: Option<Duration>,
    crash: Option<Moment>,
}

/// The moment of a crash during a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the server receives the request.
    BeforeSending,
    /// After the server has acted, before the controller gets the response.
    AfterActing,
}

impl Net {
    /// Returns a network without faults in front of `server`.
    pub fn new(server: &ApiServer, clock: &Clock, generator: Generator, trace: &Trace) -> Self {
        let state = State {
            rates: Rates::CALM,
            cut_off: false,
            cut: CancellationToken::new(),
            until_crash: None,
            planned_crash: None,
            life: CancellationToken::new(),
            held: None,
        };
        Self(Arc::new(Shared {
            service: server.service(),
            clock: clock.clone(),
            generator,
            trace: trace.clone(),
            state: Mutex::new(state),
        }))
    }

    /// Sets the rates of faults from now on.
    pub fn set_rates(&self, rates: Rates) {
        let mut state = self.0.state.lock();
        state.rates = rates;
        if rates.crash == 0.0 {
            state.until_crash = None;
        }
    }

    /// Crashes the controller at its request number `request`, counted from 1, in addition to the rates.
    pub fn crash_at(&self, request: u64, moment: Moment) {
        self.0.state.lock().planned_crash = Some((request, moment));
    }

    /// Delays all watch events of `resource` (its plural name) until [`release`](Self::release); none is lost.
    pub fn hold(&self, resource: &str) {
        self.0.state.lock().held = Some((format!("/{resource}?"), CancellationToken::new()));
    }

    /// Ends a [`hold`](Self::hold).
    pub fn release(&self) {
        if let Some((_, released)) = self.0.state.lock().held.take() {
            released.cancel();
        }
    }

    /// Waits until responses to `what` are not held.
    async fn released(self, what: Arc<str>) {
        let held = self.0.state.lock().held.clone();
        if let Some((resource, released)) = held
            && what.contains(&resource)
        {
            released.cancelled().await;
        }
    }

    /// Refuses new connections and breaks existing ones.
    pub fn cut_off(&self) {
        let mut state = self.0.state.lock();
        state.cut_off = true;
        std::mem::take(&mut state.cut).cancel();
    }

    /// Lets requests through again.
    pub fn restore(&self) {
        self.0.state.lock().cut_off = false;
    }

    /// Ends the controller's life and starts the next one; the returned token is cancelled when that one ends.
    ///
    /// A [`service`](Self::service) belongs to the life in which it was created. When that life ends, its responses in flight break off, and
    /// requests from leftover tasks do not reach the server.
    pub fn new_life(&self) -> CancellationToken {
        let mut state = self.0.state.lock();
        std::mem::take(&mut state.life).cancel();
        let dies = self.0.generator.unit() < state.rates.crash;
        let requests = 1 + self.0.generator.below(30);
        state.until_crash = dies.then_some(requests);
        state.life.clone()
    }

    /// Returns the server as the controller sees it through this network, in its current life.
    pub fn service(&self) -> NetService {
        NetService { net: self.clone(), life: self.0.state.lock().life.clone() }
    }

    fn fate(&self, is_watch: bool) -> Result<(Fate, CancellationToken), BoxError> {
        let mut state = self.0.state.lock();
        if state.cut_off {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        let (rates, draw) = (state.rates, &self.0.generator);
        let mut fate = Fate::default();
        if rates != Rates::CALM {
            let within = |most: u64| Duration::from_millis(draw.below(most));
            let chance = |rate: f64| draw.unit() < rate;
            if chance(rates.delay) {
                fate.delay_before = within(1000);
            }
            if chance(rates.delay) {
                fate.delay_after = within(1000);
            }
            fate.lose_request = chance(rates.lose_request);
            fate.lose_answer = chance(rates.lose_answer);
            fate.conflict = chance(rates.conflict);
            fate.throttle = chance(rates.throttle).then(|| 1 + draw.below(5));
            fate.fail_before = chance(rates.fail_before);
            fate.fail_after = chance(rates.fail_after);
            if is_watch {
                fate.expire = chance(rates.expire);
                fate.cut_after = chance(rates.cut).then(|| within(30_000));
            }
            if let Some(left) = &mut state.until_crash {
                *left -= 1;
                if *left == 0 {
                    state.until_crash = None;
                    fate.crash = Some(if chance(0.5) { Moment::BeforeSending } else { Moment::AfterActing });
                }
            }
        }
        if let Some((left, moment)) = state.planned_crash {
            fate.crash = (left <= 1).then_some(moment).or(fate.crash);
            state.planned_crash = (left > 1).then(|| (left - 1, moment));
        }
        Ok((fate, state.cut.clone()))
    }

    /// Sends a request of one life; fails once that life is over.
    async fn carry_in(self, life: CancellationToken, request: Request<Body>) -> Result<Answer, BoxError> {
        if life.is_cancelled() {
            let what = format!("{} {}", request.method(), request.uri());
            self.0.trace.add(format_args!("{what} of a life that is over"));
        }
        tokio::select! {
            biased;
            () = life.cancelled() => std::future::pending().await,
            answer = self.carry(life.clone(), request) => answer,
        }
    }

    async fn carry(self, life: CancellationToken, request: Request<Body>) -> Result<Answer, BoxError> {
        let Shared { service, clock, trace, .. } = &*self.0;
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let what = format!("{} {}", request.method(), request.uri());
        let (fate, cut) = match self.fate(is_watch) {
            Ok(fate) => fate,
            Err(error) => {
                trace.add(format_args!("{what} refused"));
                return Err(error);
            }
        };
        if !fate.delay_before.is_zero() {
            clock.sleep(fate.delay_before).await;
        }
        if let Some(Moment::BeforeSending) = fate.crash {
            return self.die(&what, Moment::BeforeSending).await;
        }
        if fate.lose_request {
            trace.add(format_args!("{what} lost"));
            return Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
        }
        if fate.expire {
            trace.add(format_args!("{what} expired"));
            return Ok(expired());
        }
        if let Some(seconds) = fate.throttle {
            trace.add(format_args!("{what} throttled for {seconds} s"));
            return Ok(throttled(seconds));
        }
        if fate.fail_before {
            trace.add(format_args!("{what} failed before acting"));
            return Ok(failed());
        }
        let (may_conflict, request) =
            if fate.conflict { may_conflict(request).await? } else { (false, request) };
        if may_conflict {
            trace.add(format_args!("{what} conflict"));
            return Ok(conflict());
        }
        let response = service.clone().oneshot(request).await?;
        if let Some(Moment::AfterActing) = fate.crash {
            return self.die(&what, Moment::AfterActing).await;
        }
        if !fate.delay_after.is_zero() {
            clock.sleep(fate.delay_after).await;
        }
        if fate.lose_answer {
            trace.add(format_args!("{what} {} answer lost", response.status().as_u16()));
            return Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
        }
        if fate.fail_after {
            trace.add(format_args!("{what} {} failed after acting", response.status().as_u16()));
            return Ok(failed());
        }
        trace.add(format_args!("{what} {}", response.status().as_u16()));
        let what: Arc<str> = what.into();
        let end = self.clone().end_of_answer(what.clone(), fate.cut_after, cut, life);
        // Other answers are not held, as the sender of the request would time out.
        let gate = move || {
            if is_watch {
                self.clone().released(what.clone()).right_future()
            } else {
                ready(()).left_future()
            }
        };
        Ok(response.map(|body| cut_body(body, gate, end)))
    }

    /// Crashes the controller at this request.
    async fn die(&self, what: &str, moment: Moment) -> Result<Answer, BoxError> {
        self.0.trace.add(format_args!("{what} crash {moment:?}"));
        self.0.state.lock().life.cancel();
        std::future::pending().await
    }

    /// Completes when the response is to break off.
    async fn end_of_answer(
        self,
        what: Arc<str>,
        after: Option<Duration>,
        cut: CancellationToken,
        life: CancellationToken,
    ) {
        let in_time = async {
            match after {
                None => std::future::pending().await,
                Some(after) => self.0.clock.sleep(after).await,
            }
        };
        tokio::select! {
            biased;
            () = life.cancelled() => {}
            () = cut.cancelled() => {}
            () = in_time => {}
        }
        self.0.trace.add(format_args!("{what} cut"));
    }
}

/// Returns `body`, with each chunk passing `gate`, and cut off with an error if `end` completes first.
fn cut_body<B, G>(
    body: B,
    gate: impl Fn() -> G + Send + 'static,
    end: impl Future<Output = ()> + Send + 'static,
) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    G: Future<Output = ()> + Send + 'static,
{
    let frames = body.into_data_stream().map(|chunk| chunk.map(http_body::Frame::data).map_err(Into::into));
    let frames = frames.then(move |frame| gate().map(|()| frame));
    let broken = futures::stream::once(async move {
        end.await;
        Err(BoxError::from(io::Error::from(io::ErrorKind::ConnectionReset)))
    });
    // The body ends with its own end or with the cut, whichever comes first.
    let frames = futures::stream::select_with_strategy(
        frames.map(Some).chain(futures::stream::once(async { None })),
        broken.map(Some),
        |(): &mut ()| futures::stream::PollNext::Left,
    );
    let mut over = false;
    let frames = frames.take_while(move |frame| {
        let go_on = !over && frame.is_some();
        over = matches!(frame, Some(Err(_)));
        ready(go_on)
    });
    StreamBody::new(frames.filter_map(ready)).boxed_unsync()
}

/// An API server seen through a [`Net`] in one life of the controller, for `kube_client::Client::new`.
#[derive(Clone)]
pub struct NetService {
    net: Net,
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
        self.net.clone().carry_in(self.life.clone(), request).boxed()
    }
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net").field("rates", &self.0.state.lock().rates).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for NetService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NetService").field(&self.net).finish()
    }
}
