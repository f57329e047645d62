//! The user of a story, whose requests have no faults.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use kube_client::client::Body;
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};
use watchkeeper::wire::ApiError;
use watchkeeper::{Client, Env, Kind, ObjectName};

use crate::net::{AnswerBody, BoxError, Net};
use crate::replay::Part;
use crate::site::{Target, Verb};
use crate::trace::Event;

/// How long [`User::settle`] and [`User::eventually`] wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// No requests for this long count as settled.
    pub(crate) quiet: Duration,
    pub(crate) settle: Duration,
    pub(crate) eventually: Duration,
}

/// The user of a story: writes objects and waits for what should become of them, on a connection without faults.
///
/// Every write is a step of the story. Its methods panic, with a sentence, where the story cannot go on; a run in which that happens has
/// failed.
#[derive(Debug)]
pub struct User {
    client: Client,
    env: Env,
    net: Net,
    patience: Patience,
}

impl User {
    pub(crate) fn new(net: &Net, env: &Env, patience: Patience, steps: &Steps) -> Self {
        let service = UserService { net: net.clone(), steps: steps.clone() };
        let client = Client::from_kube(kube_client::Client::new(service, "default"), env);
        Self { client, env: env.clone(), net: net.clone(), patience }
    }

    /// The user's client, for anything that the other methods do not do.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The clock and the randomness of the story. They are the same in every run, so that all runs tell the same story.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Creates an object, as soon as its kind is served.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub async fn create<K>(&self, object: &K) -> K
    where
        K: Kind<DynamicType: Default> + Serialize + Debug,
    {
        let deadline = self.env.clock.now() + self.patience.eventually;
        loop {
            match self.client.api::<K>().create(object).await {
                Err(error) if error.is_not_found() && self.env.clock.now() < deadline => {
                    self.env.clock.sleep(Duration::from_millis(100)).await;
                }
                created => {
                    return created.unwrap_or_else(|error| refuse("create", &describe::<K>(""), &error));
                }
            }
        }
    }

    /// Changes an object by a merge patch.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub async fn patch<K: Kind<DynamicType: Default>>(&self, key: &str, patch: Value) -> K {
        let patched = self.client.api::<K>().patch(&name(key), &Patch::Merge(patch)).await;
        patched.unwrap_or_else(|error| refuse("patch", &describe::<K>(key), &error))
    }

    /// Changes the status of an object by a merge patch.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub async fn patch_status<K: Kind<DynamicType: Default>>(&self, key: &str, patch: Value) -> K {
        let patched = self.client.api::<K>().patch_status(&name(key), &Patch::Merge(patch)).await;
        patched.unwrap_or_else(|error| refuse("patch the status of", &describe::<K>(key), &error))
    }

    /// Deletes an object, if it is there.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub async fn delete<K: Kind<DynamicType: Default>>(&self, key: &str) {
        match self.client.api::<K>().delete(&name(key)).await {
            Err(error) if !error.is_not_found() => refuse("delete", &describe::<K>(key), &error),
            _ => {}
        }
    }

    /// Reads an object.
    ///
    /// # Panics
    ///
    /// If the server does not serve the kind.
    pub async fn get<K: Kind<DynamicType: Default>>(&self, key: &str) -> Option<K> {
        let found = self.client.api::<K>().get_opt(&name(key)).await;
        found.unwrap_or_else(|error| refuse("read", &describe::<K>(key), &error))
    }

    /// Waits until an object is there and `is_met` holds for it; returns it.
    ///
    /// # Panics
    ///
    /// If that takes longer than any backoff.
    pub async fn eventually<K: Kind<DynamicType: Default>>(
        &self,
        key: &str,
        is_met: impl Fn(&K) -> bool,
    ) -> K {
        let found = self.look(async || self.get::<K>(key).await.filter(|object| is_met(object))).await;
        found.unwrap_or_else(|| give_up(format!("{} is not as the story expects", describe::<K>(key))))
    }

    /// Waits until an object is gone.
    ///
    /// # Panics
    ///
    /// If that takes longer than any backoff.
    pub async fn eventually_gone<K: Kind<DynamicType: Default>>(&self, key: &str) {
        let gone = self.look(async || self.get::<K>(key).await.is_none().then_some(())).await;
        gone.unwrap_or_else(|| give_up(format!("{} is still there", describe::<K>(key))));
    }

    /// Waits until the controller has made no request for a while; not for ever, as faults may keep it busy.
    pub async fn settle(&self) {
        let deadline = self.env.clock.now() + self.patience.settle;
        self.net.quiet(self.patience.quiet, deadline).await;
    }

    /// Waits.
    pub async fn sleep(&self, time: Duration) {
        self.env.clock.sleep(time).await;
    }

    /// Looks again after each change, until `look` finds something or the time is up.
    async fn look<T>(&self, look: impl AsyncFn() -> Option<T>) -> Option<T> {
        let deadline = self.env.clock.now() + self.patience.eventually;
        let mut seen = None;
        loop {
            let revision = self.net.server().revision();
            if seen != Some(revision) {
                seen = Some(revision);
                if let Some(found) = look().await {
                    return Some(found);
                }
            }
            if self.env.clock.now() >= deadline {
                self.net.nudge(async || look().await.is_some()).await;
                return None;
            }
            self.env.clock.sleep(Duration::from_millis(200)).await;
        }
    }
}

fn refuse(verb: &str, what: &str, error: &ApiError) -> ! {
    give_up(format!("cannot {verb} {what}: {}", watchkeeper::report::WithCauses(error)))
}

/// Panics without a line on the terminal: a failure tells it, once, in its timeline.
fn give_up(why: String) -> ! {
    std::panic::resume_unwind(Box::new(why))
}

fn describe<K: Kind<DynamicType: Default>>(key: &str) -> String {
    format!("{} {key}", K::kind(&K::DynamicType::default())).trim_end().to_owned()
}

fn name(key: &str) -> ObjectName {
    match key.split_once('/') {
        Some((namespace, name)) => ObjectName::namespaced(namespace, name),
        None => ObjectName::cluster(key),
    }
}

/// Counts the steps of a story, of which only a part may be told. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    count: Arc<Mutex<u32>>,
    most: u32,
    without: Arc<BTreeSet<u32>>,
    pub(crate) is_over: CancellationToken,
}

impl Steps {
    pub(crate) fn new(part: &Part) -> Self {
        Self {
            count: Arc::default(),
            most: part.steps.unwrap_or(u32::MAX),
            without: Arc::new(part.without.clone()),
            is_over: CancellationToken::new(),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        *self.count.lock()
    }

    /// The number of the next step; `None` if the story is not to be told further.
    fn next(&self) -> Option<u32> {
        let mut count = self.count.lock();
        if *count >= self.most {
            self.is_over.cancel();
            return None;
        }
        *count += 1;
        Some(*count)
    }
}

/// The server, with writes recorded as steps.
#[derive(Clone)]
struct UserService {
    net: Net,
    steps: Steps,
}

impl Service<Request<Body>> for UserService {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { net, steps } = self.clone();
        async move {
            let target = Target::of(request.method(), request.uri(), request.headers());
            if !target.is_write() {
                let Ok(answer) = net.server().service().oneshot(request).await;
                return Ok(answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()));
            }
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let Some(number) = steps.next() else { return std::future::pending().await };
            if steps.without.contains(&number) {
                net.after_step(number);
                return leave_out(&net, &target, parts.uri.path(), body).await;
            }
            let request = Request::from_parts(parts, Body::from(body.clone()));
            let Ok(answer) = net.server().service().oneshot(request).await;
            let (head, reply) = answer.into_parts();
            let Ok(reply) = reply.collect().await;
            let (what, status) = (target.to_string().into(), head.status.as_u16());
            net.trace().add(Event::Step { number, what, status, body });
            net.check_invariants();
            net.after_step(number);
            let reply = Full::from(reply.to_bytes()).map_err(|never| match never {}).boxed_unsync();
            Ok(Response::from_parts(head, reply))
        }
        .boxed()
    }
}

/// Answers a step that is left out as if nothing had come of it: with the object as the user sent it, or as it is.
async fn leave_out(
    net: &Net,
    target: &Target,
    path: &str,
    body: bytes::Bytes,
) -> Result<Response<AnswerBody>, BoxError> {
    let answer = |status: StatusCode, body: bytes::Bytes| {
        let body = Full::from(body).map_err(|never| match never {}).boxed_unsync();
        Response::builder().status(status).header("content-type", "application/json").body(body)
    };
    match target.verb {
        Verb::Create => Ok(answer(StatusCode::CREATED, body)?),
        Verb::Delete | Verb::DeleteCollection => {
            let why = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                "message": "the step is left out", "code": 404});
            Ok(answer(StatusCode::NOT_FOUND, serde_json::to_vec(&why)?.into())?)
        }
        _ => {
            let Ok(found) = net.server().service().oneshot(Request::get(path).body(Body::empty())?).await;
            Ok(found.map(|body| body.map_err(|never| match never {}).boxed_unsync()))
        }
    }
}
