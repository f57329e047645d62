//! Faults between a listening server and its clients, for controllers in any language.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderMap, Request};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, ServiceExt};
use watchkeeper::clock::Clock;
use watchkeeper_apiserver::{ApiServer, ApiService};

use crate::answers::Answer;
use crate::endless::Endless;
use crate::fault::{FaultKind, Planned, names};
use crate::net::{BoxError, Net};
use crate::script::Script;
use crate::site::Target;
use crate::trace::{Listener, Trace};

/// The largest body that a fault can happen to; the server refuses larger ones itself.
const LARGEST_BODY: u64 = 3 << 20;

/// A layer that lets faults happen to requests and watches of a listening server: see [`ApiServer::listen_through`].
///
/// What happens to a request follows from the seed, the name of the client (the product of its `User-Agent`), what the request asks for,
/// and how often this client has asked for it; what happens to an event, from the watch and the number of the event in it. So two runs in
/// which the clients send the same requests meet the same faults, in whatever order several connections deliver them. Times are real, and
/// names that a server or a client generates differ between runs.
///
/// No faults happen to discovery, health checks, Events and Leases, and to kubectl.
///
/// ```
/// use watchkeeper::Env;
/// use watchkeeper_apiserver::{ApiServer, ListenOptions};
/// use watchkeeper_sim::FaultLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let env = Env::system();
/// let server = ApiServer::new(&env);
/// let faults = FaultLayer::builder(7)
///     .rate(0.05)
///     .kinds(["cut".parse()?, "lose-answer".parse()?])
///     .on_fault(|fault| eprintln!("{fault}"))
///     .build(&server, &env.clock)?;
/// let listening = server.listen_through(ListenOptions::default(), &faults).await?;
/// println!("{}", listening.kubeconfig());
/// listening.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FaultLayer {
    server: ApiServer,
    clock: Clock,
    endless: Endless,
    longest_stall: Duration,
    listener: Listener,
}

/// The settings of a [`FaultLayer`].
#[derive(Clone)]
#[must_use = "settings do nothing before `build`"]
pub struct FaultLayerBuilder {
    endless: Endless,
    longest_stall: Duration,
    listener: Listener,
}

/// Settings of a [`FaultLayer`] that make no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultLayerError {
    /// The rate is not a probability.
    #[error("a rate of faults is a number from 0 to 1, not {0}")]
    Rate(f64),
    /// Faults of this kind cannot happen between a server and its clients.
    #[error(
        "{kind} does not happen on the way between a server and its clients: there are {}",
        names(&FaultLayer::KINDS)
    )]
    Kind {
        /// The kind.
        kind: FaultKind,
    },
    /// No kinds are left.
    #[error("without any kind of fault there are no faults")]
    NoKinds,
    /// Nothing can be held up for no time.
    #[error("the longest delay must not be zero")]
    NoDelay,
}

impl FaultLayer {
    /// The kinds that can happen. The last three change objects, and do not happen by default: an annotation of an object is changed
    /// just before a request for it, or for an event that is spoiled.
    pub const KINDS: [FaultKind; 23] = [
        FaultKind("lose-request"),
        FaultKind("lose-answer"),
        FaultKind("refuse"),
        FaultKind("refuse-after"),
        FaultKind("slow-request"),
        FaultKind("slow-answer"),
        FaultKind("double"),
        FaultKind("expire"),
        FaultKind("expire-later"),
        FaultKind("never-open"),
        FaultKind("too-large"),
        FaultKind("cut"),
        FaultKind("stall"),
        FaultKind("delay"),
        FaultKind("duplicate"),
        FaultKind("hide"),
        FaultKind("no-bookmarks"),
        FaultKind("restart"),
        FaultKind("compact"),
        FaultKind("unreachable"),
        FaultKind("foreign"),
        FaultKind("undecodable"),
        FaultKind("oversized"),
    ];

    /// Returns settings for faults that follow from `seed`: at 5 % of the requests and events, of all kinds that change no objects, with
    /// delays of up to 5 s.
    pub fn builder(seed: u64) -> FaultLayerBuilder {
        let kinds = Self::KINDS[..20].iter().copied().collect();
        let endless = Endless { seed, kinds, rate: 0.05, longest: Duration::from_secs(5) };
        // As long as proxies and keep-alive probes let a dead connection be.
        let longest_stall = Duration::from_secs(60);
        FaultLayerBuilder { endless, longest_stall, listener: Listener(Arc::new(|_| {})) }
    }
}

impl FaultLayerBuilder {
    /// The share of requests and of events that a fault happens to, from 0 to 1.
    pub fn rate(mut self, rate: f64) -> Self {
        self.endless.rate = rate;
        self
    }

    /// Only faults of these kinds, out of [`FaultLayer::KINDS`].
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        self.endless.kinds = kinds.into_iter().collect();
        self
    }

    /// The longest that a request, an answer or an event is held up.
    pub fn longest_delay(mut self, longest: Duration) -> Self {
        self.endless.longest = longest;
        self
    }

    /// How long a connection hangs in the faults `stall` and `never-open` before it is reset; a minute by default.
    pub fn longest_stall(mut self, longest: Duration) -> Self {
        self.longest_stall = longest;
        self
    }

    /// Calls `told` with each fault that happens. It must not block.
    pub fn on_fault(mut self, told: impl Fn(&Planned) + Send + Sync + 'static) -> Self {
        self.listener = Listener(Arc::new(told));
        self
    }

    /// Returns the layer for a server that listens.
    ///
    /// # Errors
    ///
    /// Settings that make no sense.
    pub fn build(self, server: &ApiServer, clock: &Clock) -> Result<FaultLayer, FaultLayerError> {
        let Self { endless, longest_stall, listener } = self;
        let possible: BTreeSet<FaultKind> = FaultLayer::KINDS.into();
        if !(0.0..=1.0).contains(&endless.rate) {
            return Err(FaultLayerError::Rate(endless.rate));
        }
        if let Some(kind) = endless.kinds.difference(&possible).next() {
            return Err(FaultLayerError::Kind { kind: *kind });
        }
        if endless.kinds.is_empty() {
            return Err(FaultLayerError::NoKinds);
        }
        if endless.longest.is_zero() {
            return Err(FaultLayerError::NoDelay);
        }
        Ok(FaultLayer { server: server.clone(), clock: clock.clone(), endless, longest_stall, listener })
    }
}

impl fmt::Debug for FaultLayerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endless.fmt(f)
    }
}

impl Layer<ApiService> for FaultLayer {
    type Service = FaultService;

    fn layer(&self, service: ApiService) -> FaultService {
        let trace = Trace::told_to(self.listener.clone(), &self.clock);
        let script = Script::endless(self.endless.clone());
        let net = Net::listening(&self.server, &service, self.longest_stall, script, &trace);
        FaultService { net, service, life: CancellationToken::new() }
    }
}

/// A server behind a [`FaultLayer`]. An error means that the connection is lost.
#[derive(Clone, Debug)]
pub struct FaultService {
    net: Net,
    service: ApiService,
    /// Never cancelled: the controllers are programs of their own.
    life: CancellationToken,
}

impl<B> Service<Request<B>> for FaultService
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { net, service, life } = self.clone();
        async move {
            let client = client(request.headers());
            let target = Target::of(request.method(), request.uri(), request.headers());
            // Discovery and health checks are not about a resource.
            let is_exempt = target.resource.is_empty() || client == "kubectl";
            if is_exempt || request.body().size_hint().lower() > LARGEST_BODY {
                let Ok(answer) = service.oneshot(request).await;
                return Ok(answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()));
            }
            let request = request.map(|body| Limited::new(body, LARGEST_BODY as usize));
            net.carry(0, &client, &life, request).await
        }
        .boxed()
    }
}

/// The name of a client: the product of its `User-Agent`.
fn client(headers: &HeaderMap) -> String {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    agent.chars().take_while(|c| !c.is_whitespace() && *c != '/').take(40).collect()
}

#[cfg(test)]
mod tests {
    use watchkeeper::Env;

    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_refused_with_a_sentence() {
        let env = Env::simulated(1);
        let server = ApiServer::new(&env);
        let refused = |settings: FaultLayerBuilder| {
            settings.build(&server, &env.clock).map(|_| ()).unwrap_err().to_string()
        };
        for rate in [-0.1, 1.5, f64::NAN] {
            let text = refused(FaultLayer::builder(1).rate(rate));
            assert!(text.starts_with("a rate of faults is a number from 0 to 1, not "), "{text}");
        }
        let kill = refused(FaultLayer::builder(1).kinds(["kill".parse().unwrap()]));
        assert!(
            kill.starts_with("kill does not happen on the way between a server and its clients"),
            "{kill}"
        );
        assert!(kill.contains("there are lose-request, "), "{kill}");
        assert_eq!(
            refused(FaultLayer::builder(1).kinds([])),
            "without any kind of fault there are no faults"
        );
        let none = refused(FaultLayer::builder(1).longest_delay(Duration::ZERO));
        assert_eq!(none, "the longest delay must not be zero");
    }

    #[test]
    fn a_client_is_named_by_the_product_of_its_agent() {
        let named = |agent: &str| {
            let headers = [(USER_AGENT, agent.parse().unwrap())].into_iter().collect();
            client(&headers)
        };
        assert_eq!(named("kubectl/v1.36.3 (linux/amd64) kubernetes/abc"), "kubectl");
        assert_eq!(named("my operator"), "my");
        assert_eq!(client(&HeaderMap::new()), "");
    }
}
