//! One request and its answer, with the fault that happens to it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube_client::client::Body;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};
use watchkeeper::clock::Pauses;

use super::behind;
use super::stream::{Lines, undecodable_list};
use super::windows::Stale;
use super::{BoxError, MOST_REQUESTS, MOST_RESOURCES, Net};
use crate::answers::{self, Answer};
use crate::fault::{Fault, Planned, Reason};
use crate::script::Details;
use crate::site::{Site, Target, Verb};
use crate::trace::Event;

/// A request on its way.
pub(super) struct Call {
    pub(super) net: Net,
    pub(super) replica: usize,
    pub(super) life: CancellationToken,
    pub(super) connections: CancellationToken,
    pub(super) pauses: Pauses,
    pub(super) target: Target,
    pub(super) what: Arc<str>,
    pub(super) nth: u32,
    pub(super) parts: Parts,
    body: Bytes,
}

/// How a request starts.
enum Start {
    /// The server cannot be reached.
    Unreachable,
    /// The server refuses all such requests for a while.
    Refused(u16),
    Sent(Option<Planned>),
}

/// A request that counts as activity until it is dropped.
struct InFlight(Net);

impl InFlight {
    fn begin(net: &Net) -> Self {
        let mut state = net.0.state.lock();
        state.in_flight += 1;
        state.last_activity = net.0.clock.now();
        Self(net.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.0.0.state.lock();
        state.in_flight -= 1;
        state.last_activity = self.0.0.clock.now();
    }
}

impl Net {
    /// Carries a request of a replica, or of a client with this name.
    pub(crate) async fn carry<B>(
        self,
        replica: usize,
        client: &str,
        life: &CancellationToken,
        request: Request<B>,
    ) -> Result<Answer, BoxError>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(Into::into)?.to_bytes();
        let target = Target::of(&parts.method, &parts.uri, &parts.headers);
        let what: Arc<str> = match client {
            "" => target.to_string().into(),
            client => format!("{client}: {target}").into(),
        };
        let pauses = self.pauses_of(replica);
        let (nth, connections) = self.register(replica, &target, &what);
        let _in_flight = (target.verb != Verb::Watch && !target.is_noise()).then(|| InFlight::begin(&self));
        let (net, life, paused) = (self.clone(), life.clone(), pauses.clone());
        // On the heap: the futures that carry it are moved several times.
        let call = Box::new(Call { net, replica, life, connections, pauses, target, what, nth, parts, body });
        self.is_awake(replica, &paused).await;
        call.add(|replica, what, nth| Event::Sent { replica, what, nth, body: call.body.clone() });
        let answer = match call.start() {
            Start::Unreachable => call.fail(io::ErrorKind::ConnectionRefused, "cannot reach the server"),
            Start::Refused(status) => Ok(call.refused(status)),
            Start::Sent(fault) => call.pass(fault).await,
        };
        self.is_awake(replica, &paused).await;
        answer
    }

    fn register(&self, replica: usize, target: &Target, what: &Arc<str>) -> (u32, CancellationToken) {
        let mut state = self.0.state.lock();
        state.requests += 1;
        if state.requests > MOST_REQUESTS {
            state.runaway.cancel();
        }
        let resource = &target.resource;
        let is_counted = !resource.is_empty() && !target.is_noise();
        if is_counted && state.resources.len() < MOST_RESOURCES && !state.resources.contains(resource) {
            state.resources.push(resource.clone());
        }
        (state.replicas[replica].count(what), state.connections.of(target))
    }

    /// Changes an object later that a fault has spoiled in transit, once if it is spoiled several times until then.
    pub(super) fn mend_later(&self, path: String) {
        if !self.0.state.lock().spoiled.insert(path.clone()) {
            return;
        }
        let net = self.clone();
        tokio::spawn(async move {
            net.0.clock.sleep(MENDED_AFTER).await;
            net.0.state.lock().spoiled.remove(&path);
            net.touch(&path).await;
        });
    }

    /// Changes an annotation of an object, as another writer. Returns whether there is such an object.
    pub(super) async fn touch(&self, object: &str) -> bool {
        let stamp = self.0.server.revision().to_string();
        let patch = json!({"metadata": {"annotations": {TOUCHED: stamp}}});
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("{object}?fieldManager=someone-else"))
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(Body::from(patch.to_string().into_bytes()));
        let Ok(request) = request else { return false };
        let Ok(answer) = self.0.service.clone().oneshot(request).await;
        self.0.trace.note(&format!("another writer changes {object}: {}", answer.status().as_u16()));
        self.check_invariants();
        answer.status().is_success()
    }
}

/// How long an object stays undecodable.
const MENDED_AFTER: Duration = Duration::from_secs(30);

/// The annotation that other writers change.
pub(crate) const TOUCHED: &str = "simulator.watchkeeper/touched";

impl Call {
    fn add(&self, event: impl FnOnce(usize, Arc<str>, u32) -> Event) {
        self.net.0.trace.add(event(self.replica, self.what.clone(), self.nth));
    }

    fn start(&self) -> Start {
        let mut state = self.net.0.state.lock();
        let now = self.net.0.clock.now();
        if state.is_cut_off {
            return Start::Unreachable;
        }
        if let Some(planned) = state.windows.is_unreachable(now) {
            drop(state);
            self.net.had_effect(&planned);
            return Start::Unreachable;
        }
        if let Some((status, planned)) = state.windows.refusal(&self.target.resource, now) {
            drop(state);
            self.net.had_effect(&planned);
            return Start::Refused(status);
        }
        if self.target.is_noise() {
            return Start::Sent(None);
        }
        let query = self.parts.uri.query().unwrap_or_default();
        let mut versions = query.split('&').filter_map(|part| part.strip_prefix("resourceVersion="));
        let details = Details::Request {
            verb: self.target.verb,
            named: !self.target.name.is_empty(),
            continues: query.contains("continue="),
            versioned: versions.any(|version| !matches!(version, "" | "0")),
            steps: (state.steps.len() as u32).saturating_sub(1),
        };
        let site = Site::Request { replica: self.replica, what: self.what.clone(), nth: self.nth };
        let planned = state.script.at(site, || details);
        drop(state);
        if let Some(planned) = &planned {
            self.net.0.trace.add(Event::Fault(planned.clone()));
            self.net.happens(planned);
        }
        Start::Sent(planned)
    }

    async fn pass(self: Box<Self>, planned: Option<Planned>) -> Result<Answer, BoxError> {
        let clock = self.net.0.clock.clone();
        let fault = planned.as_ref().map(|planned| planned.fault.clone());
        match &fault {
            Some(Fault::SlowRequest(time)) => clock.sleep(*time).await,
            Some(Fault::CrashBefore) => return self.die().await,
            Some(Fault::LoseRequest) => return self.fail(io::ErrorKind::ConnectionReset, "connection lost"),
            Some(Fault::NeverOpen) => return self.never().await,
            Some(Fault::Refuse(status)) => return Ok(self.refused(*status)),
            Some(Fault::Expire(reason)) => return Ok(self.expired(*reason)),
            Some(Fault::TooLarge) => return Ok(self.too_large()),
            Some(Fault::Restart | Fault::Unreachable(_)) => {
                planned.iter().for_each(|planned| self.net.carry_out(planned));
                return self.fail(io::ErrorKind::ConnectionReset, "connection lost");
            }
            Some(Fault::Compact) => planned.iter().for_each(|planned| self.net.carry_out(planned)),
            Some(Fault::Foreign) if self.net.touch(&self.object_path()).await => {
                planned.iter().for_each(|planned| self.net.had_effect(planned));
            }
            _ => {}
        }
        let stale = self.net.0.state.lock().windows.stale(self.replica, clock.now());
        let Acted { head, mut body, stream } = self.act(stale.as_ref()).await;
        if fault == Some(Fault::Double) {
            drop(self.act(stale.as_ref()).await);
        }
        if let Some(events) = stream {
            return match fault {
                Some(Fault::CrashAfter) => self.die().await,
                _ => Ok(Response::from_parts(head, self.stream(events, planned, stale))),
            };
        }
        let status = head.status.as_u16();
        if fault == Some(Fault::Undecodable)
            && let Some(spoiled) = self.spoil_item(&body)
        {
            planned.iter().for_each(|planned| self.net.had_effect(planned));
            body = spoiled;
        }
        let body = Full::from(body).map_err(|never| match never {}).boxed_unsync();
        let answer = Response::from_parts(head, body);
        match fault {
            Some(Fault::SlowAnswer(time)) => {
                clock.sleep(time).await;
                self.add(|replica, what, nth| Event::Got { replica, what, nth, status });
            }
            Some(Fault::CrashAfter) => return self.die().await,
            Some(Fault::CrashStale(step)) => {
                planned.iter().for_each(|planned| self.fall_behind(step, planned));
                return self.die().await;
            }
            Some(Fault::LoseAnswer) => return self.fail(io::ErrorKind::ConnectionReset, "answer lost"),
            Some(Fault::RefuseAfter(status)) => return Ok(self.refused(status)),
            _ => {}
        }
        Ok(answer)
    }

    /// Lets the server act. The body of a watch is not read.
    async fn act(&self, stale: Option<&Stale>) -> Acted {
        let Self { net, target, parts, body, .. } = self;
        let mut parts = parts.clone();
        let mut initial = Vec::new();
        if let Some(stale) = stale {
            let old = if let Some(uri) = behind::list_at(&parts.uri, stale.revision) {
                Some((Vec::new(), uri))
            } else {
                self.initial_events_at(stale.revision).await
            };
            if let Some((events, uri)) = old {
                (initial, parts.uri) = (events, uri);
                if net.0.server.revision() > stale.revision {
                    net.had_effect(&stale.planned);
                }
            }
        }
        let before = net.0.server.revision();
        let request = Request::from_parts(parts, Body::from(body.clone()));
        // The server is always ready.
        let Ok(answer) = net.0.service.clone().call(request).await;
        let after = net.0.server.revision();
        let changed = (target.is_write() && after > before).then_some(after);
        if changed.is_some() && !target.is_noise() {
            net.0.state.lock().last_change = net.0.clock.now();
            net.check_invariants();
        }
        let (head, reply) = answer.into_parts();
        let is_stream = target.verb == Verb::Watch && head.status.as_u16() == 200;
        let (body, stream) = match is_stream {
            true => (Bytes::new(), Some(Lines::new(initial, reply))),
            false => match reply.collect().await {
                Ok(collected) => (collected.to_bytes(), None),
            },
        };
        let status = head.status.as_u16();
        if status == 410 {
            net.has_expired();
        }
        self.add(|replica, what, nth| Event::Acted {
            replica,
            what,
            nth,
            status,
            body: body.clone(),
            changed,
        });
        Acted { head, body, stream }
    }

    /// The list with a first item that cannot be decoded, until another writer changes the object.
    fn spoil_item(&self, list: &[u8]) -> Option<Bytes> {
        let (spoiled, namespace, name) = undecodable_list(list)?;
        self.net.mend_later(self.path_of(&namespace, &name)?);
        Some(spoiled)
    }

    /// The path of the object that the request is about.
    fn object_path(&self) -> String {
        let path = self.parts.uri.path();
        match self.target.subresource.is_empty() {
            true => path.to_owned(),
            false => path.rsplit_once('/').map_or(path, |(object, _)| object).to_owned(),
        }
    }

    /// The path of an object of the collection that the request is about.
    pub(super) fn path_of(&self, namespace: &str, name: &str) -> Option<String> {
        let path = self.parts.uri.path();
        if namespace.is_empty() || path.contains("/namespaces/") {
            return Some(format!("{path}/{name}"));
        }
        let (version, plural) = path.rsplit_once('/')?;
        Some(format!("{version}/namespaces/{namespace}/{plural}/{name}"))
    }

    pub(super) fn refused(&self, status: u16) -> Answer {
        self.add(|replica, what, nth| Event::Got { replica, what, nth, status });
        answers::refused(status, &self.what)
    }

    fn expired(&self, reason: Reason) -> Answer {
        self.add(|replica, what, nth| Event::Got { replica, what, nth, status: 410 });
        answers::expired(reason)
    }

    fn too_large(&self) -> Answer {
        self.add(|replica, what, nth| Event::Got { replica, what, nth, status: 504 });
        answers::too_large()
    }

    fn fail(&self, kind: io::ErrorKind, error: &'static str) -> Result<Answer, BoxError> {
        self.add(|replica, what, nth| Event::Failed { replica, what, nth, error });
        Err(io::Error::from(kind).into())
    }

    /// Crashes the controller.
    async fn die(&self) -> Result<Answer, BoxError> {
        self.life.cancel();
        std::future::pending().await
    }

    /// Does not answer before the connection breaks.
    async fn never(&self) -> Result<Answer, BoxError> {
        tokio::select! {
            biased;
            () = self.connections.cancelled() => self.net.is_broken(),
            () = self.hang() => {}
        }
        self.fail(io::ErrorKind::ConnectionReset, "connection lost")
    }

    /// Waits as long as a connection hangs that does not break otherwise.
    pub(super) async fn hang(&self) {
        match self.net.0.longest_stall {
            Some(time) => self.net.0.clock.sleep(time).await,
            None => std::future::pending().await,
        }
    }

    /// From now on, reads of any version see the state after a step.
    fn fall_behind(&self, step: u32, planned: &Planned) {
        let mut state = self.net.0.state.lock();
        let (replica, revision) = (self.replica, state.steps.get(step as usize).copied());
        let until = self.net.0.clock.now() + Duration::from_secs(60);
        state.windows.stale = revision.map(|revision| {
            let planned = planned.clone();
            Stale { replica, revision, until, planned }
        });
    }
}

/// What the server answered.
struct Acted {
    head: http::response::Parts,
    body: Bytes,
    /// The events of a watch.
    stream: Option<Lines>,
}
