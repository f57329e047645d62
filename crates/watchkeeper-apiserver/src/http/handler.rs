//! The path of a request: from the URL to a kind and one of its endpoints.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::Full;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use crate::access::user::User;
use crate::admission::session::Session;
use crate::failure::{Failure, Result};
use crate::http::admit::admit;
use crate::http::backlog::Backlog;
use crate::http::body::RequestBody;
use crate::http::flow::labelled;
use crate::http::metrics::Request as Counted;
use crate::http::negotiate::{self, Asked, Form};
use crate::http::reply::{self, Reply};
use crate::http::route::{Query, Route, Target, route};
use crate::http::shared::{BookmarkPeriod, Shared};
use crate::http::static_routes;
use crate::http::timeout;
use crate::http::warnings::warn;
use crate::kinds::builtin::Review;
use crate::kinds::kind::Kind;
use crate::kinds::registry::Registry;
use crate::state::store::Key;
use crate::verbs::update::Part;

/// Serves one request. `stop` ends a watch that it opens; a request from a socket has one.
///
/// Responds once every change that the response may report is durable, so that no client sees a change that a crash
/// loses.
pub(crate) async fn handle(
    shared: Arc<Shared>,
    request: Request<impl RequestBody>,
    stop: Option<CancellationToken>,
) -> Reply {
    let Some(durable) = &shared.durable else { return respond(&shared, request, stop).await };
    let refusal = |why: Arc<str>| reply::failure(&Failure::internal(&*why));
    // Fails if writing has stopped.
    if let Err(why) = durable.wait(0).await {
        return refusal(why);
    }
    let reply = respond(&shared, request, stop).await;
    let revision = shared.core.lock().store.revision();
    match durable.wait(revision).await {
        Ok(()) => reply,
        Err(why) => refusal(why),
    }
}

/// Routes a request and answers it. A write that was overtaken by another starts over.
async fn respond(
    shared: &Arc<Shared>,
    request: Request<impl RequestBody>,
    stop: Option<CancellationToken>,
) -> Reply {
    let (head, body) = request.into_parts();
    let query = Query::parse(head.uri.query());
    let route = route(head.uri.path());
    if let Err(failure) = timeout::check(&route, &query) {
        return reply::failure(&failure);
    }
    let user = match admit(shared, &head, &route, &query) {
        Ok(user) => user,
        Err(failure) => return reply::failure(&failure),
    };
    let flow = shared.flow(user.as_deref(), &head, &route, &query);
    let target = match route {
        Route::Resource(target) => target,
        other => {
            let reply = static_routes::answer(shared, &other, &query, &head.method, &head.headers);
            return labelled(reply, flow);
        }
    };
    let own_period = head.extensions.get::<BookmarkPeriod>();
    let admission = session(shared, &head.method, user.as_ref());
    let call = Call {
        shared: shared.clone(),
        bookmark_period: own_period.map_or(shared.bookmark_period, |BookmarkPeriod(period)| *period),
        method: head.method,
        headers: head.headers,
        query,
        target,
        user,
        admission,
        stop,
        body: OnceLock::new(),
        tries: AtomicUsize::new(0),
        turn: OnceLock::new(),
        backlog: Mutex::new(Backlog::new(shared)),
    };
    let found = call.find();
    // Unknown resources are not counted: the number of time series would be unbounded.
    let counted = matches!(found, Ok(Some(Named::Kind(_)))).then(|| call.counted());
    let mut answered = call.answer(found, body).await;
    while answered.as_ref().is_err_and(|failure| failure.outdated) {
        // Lets the request that changed the object continue, and others run.
        if !call.supply_admission().await {
            yield_now().await;
        }
        call.admission.iter().for_each(|session| session.begin());
        let body = Full::new(call.body.get().cloned().unwrap_or_default());
        answered = call.answer(call.find(), body).await;
    }
    call.work_off().await;
    let reply = match answered {
        Ok(reply) => reply,
        Err(failure) => {
            let form = negotiate::failure_form(&call.headers);
            warn(reply::failure_in(form, &failure), &failure.warnings)
        }
    };
    let reply = match &call.admission {
        Some(session) => warn(reply, &session.take_warnings()),
        None => reply,
    };
    if let Some(request) = counted {
        shared.requests.count(request, reply.status());
    }
    labelled(reply, flow)
}

/// Begins the admission of a request that writes, if there are plugins.
fn session(shared: &Shared, method: &Method, user: Option<&Arc<User>>) -> Option<Arc<Session>> {
    if shared.admission.is_empty()
        || ![Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method)
    {
        return None;
    }
    let user = user.cloned().unwrap_or_else(|| Arc::new(User::admin()));
    let seed = shared.generator.next_u64();
    Some(Arc::new(Session::new(shared.admission.clone(), shared.core.clone(), user, &shared.clock, seed)))
}

/// A request for a resource.
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    pub(crate) target: Target,
    /// The user who makes it; `None` for the server's own admin.
    pub(crate) user: Option<Arc<User>>,
    /// Its admission, if it writes and there are plugins.
    pub(crate) admission: Option<Arc<Session>>,
    pub(crate) stop: Option<CancellationToken>,
    /// The interval of bookmarks, if it is a watch.
    pub(crate) bookmark_period: Duration,
    /// The body, once it has been read.
    pub(crate) body: OnceLock<Bytes>,
    /// The number of attempts to write.
    pub(crate) tries: AtomicUsize,
    /// The permit for a large body.
    pub(crate) turn: OnceLock<OwnedSemaphorePermit>,
    /// The duties that its writes left behind.
    pub(crate) backlog: Mutex<Backlog>,
}

/// The resource that the URL names.
pub(crate) enum Named {
    Kind(Arc<Kind>),
    Review(&'static Review),
}

impl Call {
    /// Negotiates the form of the response, and calls the endpoint.
    pub(crate) async fn answer(&self, named: Result<Option<Named>>, body: impl RequestBody) -> Result<Reply> {
        let kind = match named? {
            None => {
                return Ok(static_routes::not_served(&self.shared.core.lock().registry, &self.target.group));
            }
            Some(_) if self.target.too_deep => return Err(Failure::no_such_path()),
            Some(Named::Review(review)) => {
                return self.review(review, &self.read_body(body).await?);
            }
            Some(Named::Kind(kind)) => kind,
        };
        if kind.namespaced != self.target.namespace.is_some()
            && (self.target.namespace.is_some() || self.target.name.is_some())
        {
            return if kind.custom.is_some() {
                Ok(reply::page_not_found())
            } else {
                Err(Failure::no_such_path())
            };
        }
        let list = self.target.name.is_none();
        let include = self.query.text("includeObject");
        let asked = Asked { list: list && !self.is_watch(), include, kind: &kind };
        let form = negotiate::accept(&self.headers, asked)?;
        let reply = match kind.behaviour.computed() {
            Some(objects) => self.read_computed(&kind, &objects, form)?,
            None => self.resource(&kind, form, body).await?,
        };
        Ok(match kind.behaviour.deprecation(&kind) {
            Some(warning) => warn(reply, std::slice::from_ref(&warning)),
            None => reply,
        })
    }

    /// Calls the endpoint that the path names.
    async fn resource(&self, kind: &Arc<Kind>, form: Form, body: impl RequestBody) -> Result<Reply> {
        let Some(name) = &self.target.name else { return self.collection(kind, form, body).await };
        let key = Key::new(self.target.namespace.as_deref().unwrap_or_default(), name);
        match self.target.subresource.as_deref() {
            None if self.target.watch => self.watch(kind, form),
            None => self.object(kind, &key, Part::Main, form, body).await,
            Some("status") if kind.has_status() && self.method != Method::DELETE => {
                self.object(kind, &key, Part::Status, form, body).await
            }
            Some(part @ "approval") if kind.has_own_subresource(part) => match self.method {
                Method::DELETE => Err(Failure::method_not_allowed()),
                _ => self.object(kind, &key, Part::Approval, form, body).await,
            },
            Some(part @ "finalize") if kind.has_own_subresource(part) => match self.method {
                Method::PUT => self.replace(kind, &key, Part::Finalize, form, body).await,
                _ => Err(Failure::method_not_allowed()),
            },
            Some(part @ "token") if kind.has_own_subresource(part) => {
                self.request_token(kind, &key, form, body).await
            }
            Some(part @ ("binding" | "eviction" | "log")) if kind.has_own_subresource(part) => {
                self.pod_part(kind, &key, part, form, body).await
            }
            Some("scale") if kind.scale.is_some() => self.scale(kind, &key, form, body).await,
            Some("status") if kind.has_status() => Err(Failure::method_not_allowed()),
            // A custom kind has one handler for all its paths; it reports an unknown subresource as a missing object.
            Some(_) if kind.custom.is_some() => Err(Failure::not_found(kind, name)),
            Some(_) => Err(Failure::no_such_path()),
        }
    }

    /// Calls the endpoint of a collection, by method.
    async fn collection(&self, kind: &Arc<Kind>, form: Form, body: impl RequestBody) -> Result<Reply> {
        // Only lists and watches span all namespaces.
        let everywhere = kind.namespaced && self.target.namespace.is_none();
        match self.method {
            Method::GET | Method::HEAD if self.is_watch() => self.watch(kind, form),
            Method::GET | Method::HEAD => self.list(kind, form).await,
            Method::POST if !everywhere => self.create(kind, form, body).await,
            Method::DELETE if !everywhere && kind.delete_collection => {
                Box::pin(self.delete_collection(kind, form, body)).await
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// Calls the endpoint of an object or of its status, by method.
    async fn object(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        part: Part,
        form: Form,
        body: impl RequestBody,
    ) -> Result<Reply> {
        match self.method {
            Method::GET | Method::HEAD => self.get(kind, key, form).await,
            Method::PUT => self.replace(kind, key, part, form, body).await,
            Method::PATCH => self.patch(kind, key, part, form, body).await,
            Method::DELETE => self.delete_object(kind, key, form, body).await,
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// Calls the webhooks whose answers the last attempt lacked, and waits for what it wants to wait for. Returns whether
    /// there was anything.
    pub(crate) async fn supply_admission(&self) -> bool {
        let Some(session) = &self.admission else { return false };
        let wait = session.take_wait();
        if let Some((revision, patience)) = wait {
            self.shared.reach(revision + 1, patience).await;
        }
        let called = session.make_calls().await;
        if called || wait.is_some() {
            // The attempt did not fail because of another write.
            self.tries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tries| tries.checked_sub(1)).ok();
        }
        called || wait.is_some()
    }

    /// Finds what the URL names; `None` if its group or version is not served.
    pub(crate) fn find(&self) -> Result<Option<Named>> {
        let Target { group, version, resource, .. } = &self.target;
        let core = self.shared.core.lock();
        if !core.registry.serves(group, version) {
            return Ok(None);
        }
        if let Some(kind) = core.registry.find(group, version, resource) {
            return Ok(Some(Named::Kind(kind.clone())));
        }
        match Registry::review(group, version, resource) {
            Some(review) => Ok(Some(Named::Review(review))),
            None => Err(Failure::no_such_path()),
        }
    }

    /// Returns the labels under which the request is counted.
    fn counted(&self) -> Counted {
        let form = self.headers.get(http::header::CONTENT_TYPE).and_then(|form| form.to_str().ok());
        let apply = form.is_some_and(|form| form.starts_with("application/apply-patch"));
        let dry_run = self.query.text("dryRun") == "All";
        Counted::new(&self.target, &self.method, self.is_watch(), apply, dry_run)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.wall()
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.target.watch || (self.target.name.is_none() && self.query.flag("watch").unwrap_or(false))
    }
}
