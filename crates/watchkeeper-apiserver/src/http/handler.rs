//! How does a request become an answer? From the URL to a verb, with body, options and version in order.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, WARNING};
use http::{HeaderMap, Method, Request};
use http_body::Body;
use http_body_util::Full;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{block_in_place, yield_now};
use tokio_util::sync::CancellationToken;

use crate::codec::media_type::content_type;
use crate::failure::{Failure, Result, quoted};
use crate::http::backlog::Backlog;
use crate::http::metrics::Request as Counted;
use crate::http::negotiate::{self, Asked, Form};
use crate::http::parameters::collect_body;
use crate::http::reply::{self, Reply, ReplyBody};
use crate::http::route::{Query, Route, Target, route};
use crate::http::shared::Shared;
use crate::http::static_routes;
use crate::http::watch::{Start, WatchBody, WatchRequest};
use crate::kinds::builtin::Review;
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::kinds::registry::Registry;
use crate::state::core::Core;
use crate::state::store::{Key, Stored};
use crate::verbs::create::{Name, identify, place};
use crate::verbs::delete::{DeleteOptions, Deleted, Departure};
use crate::verbs::draft::{Draft, Seen};
use crate::verbs::list::Page;
use crate::verbs::patch::Patch;
use crate::verbs::update::{MODIFIED, Part};
use crate::verbs::write::Write;

/// How long a request for a version of the future waits for it.
const VERSION_PATIENCE: Duration = Duration::from_secs(3);

/// How often a write is worked out before it is given up, as the object was changed each time meanwhile. Small writes get by.
const TRIES: usize = 100;

/// The same for a write of large data, of which each try takes long. The real server gives up a patch after as many conflicts.
const LARGE_TRIES: usize = 5;

/// From which size on a body or an object is large.
const LARGE: usize = 64 * 1024;

/// From which size on something is worked on aside. Defaults can make a built-in object many times as large as it was sent.
const ASIDE: usize = 8 * 1024;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Answers one request. `stop` ends a watch that it opens.
pub(crate) async fn handle<B>(
    shared: Arc<Shared>,
    request: Request<B>,
    stop: Option<CancellationToken>,
) -> Reply
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let (head, body) = request.into_parts();
    let query = Query::parse(head.uri.query());
    let target = match route(head.uri.path()) {
        Route::Resource(target) => target,
        other => return static_routes::answer(&shared, &other, &query, &head.method, &head.headers),
    };
    let call = Call {
        shared: shared.clone(),
        method: head.method,
        headers: head.headers,
        query,
        target,
        stop,
        body: OnceLock::new(),
        tries: AtomicUsize::new(0),
        turn: OnceLock::new(),
        backlog: Mutex::new(Backlog::new(&shared)),
    };
    let found = call.find();
    // What nobody serves is not counted, as there is no end of it.
    let counted = matches!(found, Ok(Some(Named::Kind(_)))).then(|| call.counted());
    let mut answered = call.answer(found, body).await;
    while answered.as_ref().is_err_and(|failure| failure.outdated) {
        // Whoever outran it goes on, and others get their turn.
        yield_now().await;
        let body = Full::new(call.body.get().cloned().unwrap_or_default());
        answered = call.answer(call.find(), body).await;
    }
    call.work_off().await;
    let reply = match answered {
        Ok(reply) => reply,
        Err(failure) => warn(reply::failure(&failure), &failure.warnings),
    };
    if let Some(request) = counted {
        shared.requests.count(request, reply.status());
    }
    reply
}

/// Works on so many bytes, see [`Call::work`].
fn aside<T>(socket: bool, bytes: usize, work: impl FnOnce() -> T) -> T {
    let several = || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes > ASIDE && socket && several() { block_in_place(work) } else { work() }
}

/// A request for a resource.
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    pub(crate) target: Target,
    stop: Option<CancellationToken>,
    /// The body, once it has been read.
    body: OnceLock<Bytes>,
    /// How often it has tried to write.
    tries: AtomicUsize,
    /// Its turn among those with a large body.
    turn: OnceLock<OwnedSemaphorePermit>,
    /// What its writes have left to do.
    backlog: Mutex<Backlog>,
}

/// What the URL names, once the kind is known.
enum Named {
    Kind(Arc<Kind>),
    Review(&'static Review),
}

impl Call {
    async fn answer<B>(&self, named: Result<Option<Named>>, body: B) -> Result<Reply>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
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
        let reply = self.resource(&kind, form, body).await?;
        Ok(match kind.behaviour.deprecation(&kind) {
            Some(warning) => warn(reply, std::slice::from_ref(&warning)),
            None => reply,
        })
    }

    async fn resource<B>(&self, kind: &Arc<Kind>, form: Form, body: B) -> Result<Reply>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let kind = kind.clone();
        let Some(name) = &self.target.name else { return self.collection(kind, form, body).await };
        let key = Key::new(self.target.namespace.as_deref().unwrap_or_default(), name);
        match self.target.subresource.as_deref() {
            None if self.target.watch => self.watch(kind, form),
            None => self.object(kind, &key, Part::Main, form, body).await,
            Some("status") if kind.has_status() && self.method != Method::DELETE => {
                self.object(kind, &key, Part::Status, form, body).await
            }
            Some(part @ "finalize") if kind.has_own_subresource(part) => match self.method {
                Method::PUT => self.object(kind, &key, Part::Finalize, form, body).await,
                _ => Err(Failure::method_not_allowed()),
            },
            Some(part @ ("binding" | "eviction" | "log")) if kind.has_own_subresource(part) => {
                self.pod_part(&kind, &key, part, form, body).await
            }
            Some("scale") if kind.scale.is_some() => self.scale(&kind, &key, form, body).await,
            Some("status") if kind.has_status() => Err(Failure::method_not_allowed()),
            // A custom kind has one handler for all its paths, which takes what it does not know for an object that is not there.
            Some(_) if kind.custom.is_some() => Err(Failure::not_found(&kind, name)),
            Some(_) => Err(Failure::no_such_path()),
        }
    }

    fn find(&self) -> Result<Option<Named>> {
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

    /// The whole body; kept, as a request that begins anew cannot read it again.
    pub(crate) async fn read_body<B>(&self, body: B) -> Result<Bytes>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let read = collect_body(&self.shared.clock, body).await?;
        // It is waited for over a socket alone, where others are to be served meanwhile.
        if self.stop.is_some() && read.len() > LARGE && self.turn.get().is_none() {
            let turn = self.shared.large_turn(read.len()).await?;
            // No other turn has been set.
            let _set = self.turn.set(turn);
        }
        Ok(self.body.get_or_init(|| read).clone())
    }

    /// Works on so many bytes. Over a socket the runtime goes on with other requests on another thread if it has several; in process
    /// everything stays in its order.
    pub(crate) fn work<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        aside(self.stop.is_some(), bytes, work)
    }

    /// Runs a write on the core if `kind` is still what the URL names: its definition may have changed while the body came.
    fn commit_if_current<T>(
        &self,
        kind: &Arc<Kind>,
        write: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Result<T> {
        self.run(|core| self.check(core, kind).and_then(|()| write(core)))
    }

    /// Runs a write on the core, and notes what it leaves to do.
    fn run<T>(&self, write: impl FnOnce(&mut Core) -> T) -> T {
        let (result, duties) = self.shared.run_part(write);
        self.backlog.lock().extend(duties);
        result
    }

    /// Does what the writes have left to do. Over a socket that goes on though the client leaves.
    async fn work_off(&self) {
        let backlog = self.backlog.lock().take();
        if backlog.is_empty() {
            return;
        }
        let socket = self.stop.is_some();
        let finish = backlog.finish(move |backlog| aside(socket, usize::MAX, || backlog.advance()));
        if socket {
            // Its panic, if any, has been printed already.
            let _ended = tokio::spawn(finish).await;
        } else {
            finish.await;
        }
    }

    /// Writes an object: looks at the core, works without it, and stores what came out if nothing of what was seen has changed meanwhile.
    /// Otherwise the request begins anew, and fails with a conflict once that has happened too often: the core is never held for longer.
    fn write(
        &self,
        kind: &Arc<Kind>,
        see: impl FnOnce(&Core) -> Result<Seen>,
        work: impl FnOnce(&Seen) -> Result<Draft>,
    ) -> Result<(Arc<Stored>, bool)> {
        let tries = 1 + self.tries.fetch_add(1, Ordering::Relaxed);
        let seen = self.read(kind, |core| see(core))?;
        let old = seen.old.as_ref().map_or(0, |old| old.bytes.len());
        let bytes = self.body.get().map_or(0, Bytes::len).max(old);
        let draft = self.work(if self.may_grow(kind) { usize::MAX } else { bytes }, || work(&seen))?;
        let limit = if bytes > LARGE || kind.is_definition() { LARGE_TRIES } else { TRIES };
        let stored = self.commit_if_current(kind, |core| core.store(&draft));
        if tries < limit || !stored.as_ref().is_err_and(|failure| failure.outdated) {
            return stored;
        }
        let name = draft.key.name.clone();
        let stored = match kind.is_definition() {
            true => self.commit_if_current(kind, |core| core.store_definition(draft)),
            false => stored,
        };
        stored.map_err(
            |failure| {
                if failure.outdated { Failure::conflict(kind, &name, MODIFIED) } else { failure }
            },
        )
    }

    /// Deletes an object: looks at the core, works without it, and lets the object go if it has not changed meanwhile. Otherwise the request
    /// begins anew; once that has happened too often it holds the core for as long as it takes.
    fn delete(&self, kind: &Arc<Kind>, key: &Key, options: &DeleteOptions) -> Result<Deleted> {
        let tries = 1 + self.tries.fetch_add(1, Ordering::Relaxed);
        let old = self.read(kind, |core| core.get(kind, key))?;
        if tries > if old.bytes.len() > LARGE { LARGE_TRIES } else { TRIES } {
            return self.commit_if_current(kind, |core| core.delete_one(kind, key, options));
        }
        let plan = || Departure::plan(kind, &old, options, self.now());
        let departure = self.work(old.bytes.len(), plan)?;
        self.commit_if_current(kind, |core| core.depart(&departure))
    }

    /// Whether the sizes of a write do not tell how long it takes: definitions are compiled, custom objects get defaults and are checked by
    /// rules of any cost, and operations of a JSON patch copy what they find.
    fn may_grow(&self, kind: &Kind) -> bool {
        kind.is_definition()
            || kind.custom.is_some()
            || content_type(&self.headers) == "application/json-patch+json"
    }

    /// Looks at the core under the same condition.
    fn read<T>(&self, kind: &Arc<Kind>, read: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        let mut core = self.shared.core.lock();
        self.check(&core, kind)?;
        read(&mut core)
    }

    fn check(&self, core: &Core, kind: &Arc<Kind>) -> Result<()> {
        let Target { group, version, resource, .. } = &self.target;
        match core.registry.find(group, version, resource) {
            Some(found) if Arc::ptr_eq(found, kind) => Ok(()),
            _ => Err(Failure::outdated()),
        }
    }

    /// As what this is counted.
    fn counted(&self) -> Counted {
        let form = self.headers.get(http::header::CONTENT_TYPE).and_then(|form| form.to_str().ok());
        let apply = form.is_some_and(|form| form.starts_with("application/apply-patch"));
        let dry_run = self.query.text("dryRun") == "All";
        Counted::new(&self.target, &self.method, self.is_watch(), apply, dry_run)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.wall()
    }

    fn is_watch(&self) -> bool {
        self.target.watch || (self.target.name.is_none() && self.query.flag("watch").unwrap_or(false))
    }

    async fn collection<B>(&self, kind: Arc<Kind>, form: Form, body: B) -> Result<Reply>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let everywhere = kind.namespaced && self.target.namespace.is_none();
        let namespace = self.target.namespace.as_deref();
        match self.method {
            Method::GET | Method::HEAD if self.is_watch() => self.watch(kind, form),
            Method::GET | Method::HEAD => self.list(&kind, form).await,
            Method::POST if !everywhere => {
                let mut write = self.write_options("CreateOptions")?;
                let body = self.read_body(body).await?;
                let mut value = self.work(body.len(), || self.read_object(&kind, &body, &mut write))?;
                let namespace = namespace.unwrap_or_default();
                identify(&kind, &mut value);
                let name = place(&kind, namespace, &mut value).map(|()| Name::of(&value));
                let created = name.and_then(|name| {
                    let see = |core: &Core| core.see_new(&kind, namespace, &name);
                    self.write(&kind, see, |seen| seen.create(&kind, value, &write, true))
                });
                let created = created.map_err(|failure| failure.of(&write))?;
                Ok(self.written(form, &kind, Part::Main, created, write, ""))
            }
            Method::DELETE if !everywhere && kind.delete_collection => {
                let body = self.read_body(body).await?;
                let options = self.delete_options(&body)?;
                let list = self.list_options(&kind)?;
                let limit = if list.limit == 0 { usize::MAX } else { list.limit };
                let (mut items, revision) = self.read(&kind, |core| {
                    let objects = core.store.range(&kind.storage, namespace, None).cloned();
                    Ok((objects.collect::<Vec<_>>(), core.store.revision()))
                })?;
                items.retain(|stored| list.selector.matches(stored));
                items.truncate(limit);
                self.delete_each(&kind, &items, &options).await?;
                let page = Page { items, revision, proceed: None, remaining: None };
                Ok(reply::list(form, &kind, &page, self.now()))
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// Deletes these objects one by one, so that others are not held up. One that has gone meanwhile is gone as wanted. Begins anew only if the
    /// kind is gone: what has been deleted would be missing in the answer.
    async fn delete_each(&self, kind: &Kind, objects: &[Arc<Stored>], options: &DeleteOptions) -> Result<()> {
        let Target { group, version, resource, .. } = &self.target;
        let mut done = 0;
        let look = |object: &Stored| {
            let core = self.shared.core.lock();
            match core.registry.find(group, version, resource) {
                Some(found) if found.storage == kind.storage => {
                    core.get(found, &object.key).map(|stored| (found.clone(), stored))
                }
                _ => Err(Failure::outdated()),
            }
        };
        for object in objects {
            loop {
                let (kind, stored) = match look(object) {
                    Err(failure) if failure.outdated => return Err(failure),
                    Err(_) => break,
                    Ok(found) => found,
                };
                let plan = || Departure::plan(&kind, &stored, options, self.now());
                let departure = self.work(stored.bytes.len(), plan)?;
                match self.run(|core| core.depart(&departure)) {
                    Err(failure) if failure.outdated => yield_now().await,
                    Err(failure) if failure.code != 404 => return Err(failure),
                    _ => break,
                }
            }
            // A small object takes some time, too.
            done += object.bytes.len().max(LARGE / 16);
            if done >= LARGE {
                done = 0;
                yield_now().await;
            }
        }
        Ok(())
    }

    async fn object<B>(&self, kind: Arc<Kind>, key: &Key, part: Part, form: Form, body: B) -> Result<Reply>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        match self.method {
            Method::GET | Method::HEAD => {
                self.wait_for_get().await?;
                let stored = self.read(&kind, |core| core.get(&kind, key))?;
                Ok(reply::object(200, form, &kind, &stored, self.now()))
            }
            Method::PUT => {
                let mut write = self.write_options("UpdateOptions")?;
                let body = self.read_body(body).await?;
                let value = self.work(body.len(), || self.read_object(&kind, &body, &mut write))?;
                let version = meta::text(&value, "resourceVersion").to_owned();
                let see = |core: &Core| Ok(core.see(&kind, key));
                let replaced = self.write(&kind, see, |seen| seen.replace(&kind, value, part, &write));
                let replaced = replaced.map_err(|failure| failure.of(&write))?;
                Ok(self.written(form, &kind, part, replaced, write, &version))
            }
            Method::PATCH => {
                let mut write = self.write_options("PatchOptions")?;
                let patch = self.read_patch(&kind, body, &mut write).await?;
                let force = self.query.flag("force").unwrap_or(false);
                let version = match &patch {
                    Patch::Apply(config) => meta::text(config, "resourceVersion").to_owned(),
                    _ => String::new(),
                };
                let see = |core: &Core| Ok(core.see(&kind, key));
                let patched = self.write(&kind, see, |seen| match patch {
                    Patch::Apply(config) => seen.apply(&kind, config, part, force, &mut write),
                    patch => seen.patch(&kind, &patch, part, &mut write),
                });
                let patched = patched.map_err(|failure| failure.of(&write))?;
                Ok(self.written(form, &kind, part, patched, write, &version))
            }
            Method::DELETE => {
                let body = self.read_body(body).await?;
                let options = self.delete_options(&body)?;
                match self.delete(&kind, key, &options)? {
                    Deleted::Gone(status) => Ok(reply::value(200, form, &status)),
                    Deleted::Object(stored) => Ok(reply::object(200, form, &kind, &stored, self.now())),
                }
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    async fn scale<B>(&self, kind: &Arc<Kind>, key: &Key, form: Form, body: B) -> Result<Reply>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let see = |core: &Core| Ok(core.see(kind, key));
        let (stored, _) = match self.method {
            Method::GET | Method::HEAD => (self.read(kind, |core| core.get(kind, key))?, false),
            Method::PUT => {
                let write = self.write_options("UpdateOptions")?;
                let body = self.read_body(body).await?;
                let (scale, _) =
                    negotiate::read_object(&self.headers, &body, ("autoscaling/v1", "Scale"), true)?;
                self.write(kind, see, |seen| seen.put_scale(kind, &scale, &write))?
            }
            Method::PATCH => {
                let mut write = self.write_options("PatchOptions")?;
                let patch = self.read_patch(kind, body, &mut write).await?;
                self.write(kind, see, |seen| seen.patch_scale(kind, &patch, &write))?
            }
            _ => return Err(Failure::method_not_allowed()),
        };
        Ok(reply::value(200, form, &Core::scale_of(kind, &stored)?))
    }

    async fn list(&self, kind: &Arc<Kind>, form: Form) -> Result<Reply> {
        let options = self.list_options(kind)?;
        options.check_list()?;
        if let Some(version) = options.wanted_version()? {
            self.shared.reach(version, VERSION_PATIENCE).await;
        }
        let listed = self.read(kind, |core| core.list(kind, self.target.namespace.as_deref(), &options))?;
        Ok(reply::list(form, kind, &listed.page(&options.selector), self.now()))
    }

    fn watch(&self, kind: Arc<Kind>, form: Form) -> Result<Reply> {
        if self.method != Method::GET {
            return Err(Failure::method_not_allowed());
        }
        if form == Form::Yaml {
            return Err(Failure::not_acceptable(
                "only the following media types are accepted: application/json",
            ));
        }
        let options = self.list_options(&kind)?;
        options.check_watch(self.shared.streaming_lists)?;
        let start = match (options.initial_events, options.version.as_str()) {
            (Some(true), _) | (None, "" | "0") => Start::Initial,
            (Some(false), "" | "0") => Start::Now,
            (_, version) => Start::After(version.parse().map_err(|_| bad_version(version))?),
        };
        let seconds = self.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let timeout = match seconds {
            Some(seconds) => Duration::from_secs(seconds.unsigned_abs()),
            // Spread out, so that many watches do not come back at one time.
            None => self.shared.jitter(Duration::from_secs(1800)),
        };
        let selector = match &self.target.name {
            Some(name) => options.selector.and_name(name),
            None => options.selector,
        };
        let request = WatchRequest {
            kind: kind.clone(),
            namespace: self.target.namespace.clone(),
            selector,
            form,
            start,
            bookmarks: self.query.flag("allowWatchBookmarks").unwrap_or(false),
            timeout,
            stop: self.stop.clone(),
        };
        let body = self.read(&kind, |core| Ok(WatchBody::open(&self.shared, &mut core.store, request)))?;
        Ok(reply::with(200, reply::JSON, ReplyBody::watch(body)))
    }

    /// A GET may ask for a version that is not there yet.
    async fn wait_for_get(&self) -> Result<()> {
        let text = self.query.text("resourceVersion");
        if text.is_empty() {
            return Ok(());
        }
        let version: u64 = text.parse().map_err(|_| bad_version(text))?;
        self.shared.reach(version, VERSION_PATIENCE).await;
        let current = self.shared.core.lock().store.revision();
        if version > current { Err(Failure::version_too_large(version, current)) } else { Ok(()) }
    }

    /// The answer to a write of an object, which may have made it; `version` is the one that was sent with it.
    fn written(
        &self,
        form: Form,
        kind: &Kind,
        part: Part,
        (stored, new): (Arc<Stored>, bool),
        mut write: Write,
        version: &str,
    ) -> Reply {
        if part == Part::Main {
            write.warnings.extend(kind.behaviour.warnings(&|| stored.value()));
        }
        let reply = if new && write.dry_run {
            // Nothing was stored: there is no other version to tell.
            let mut value = Core::view(kind, &stored);
            meta::set(&mut value, "resourceVersion", version);
            reply::value(201, form, &value)
        } else {
            reply::object(if new { 201 } else { 200 }, form, kind, &stored, self.now())
        };
        warn(reply, &write.warnings)
    }
}

/// Tells the warnings with the answer, each in a header of its own, as many as clients can be expected to take.
fn warn(mut reply: Reply, warnings: &[String]) -> Reply {
    for warning in told(warnings) {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", quoted(warning))) {
            reply.headers_mut().append(WARNING, value);
        }
    }
    reply
}

/// Each warning once, and no more characters than the real server tells; if they are too many, each is cut.
fn told(warnings: &[String]) -> Vec<&str> {
    // Many clients take a hundred headers of an answer and fail with one more, though the object was stored.
    const COUNT: usize = 90;
    const LIMIT: usize = 4096;
    const ONE: usize = 256;
    let mut known = BTreeSet::new();
    let once = warnings.iter().map(String::as_str).filter(|text| !text.is_empty() && known.insert(*text));
    let once: Vec<_> = once.take(COUNT).collect();
    let length = |text: &str| text.chars().count();
    if once.iter().map(|text| length(text)).sum::<usize>() <= LIMIT {
        return once;
    }
    let cut = once.into_iter().map(|text| text.char_indices().nth(ONE).map_or(text, |(end, _)| &text[..end]));
    let mut total = 0;
    cut.take_while(|text| {
        let fits = total < LIMIT;
        total += length(text);
        fits
    })
    .collect()
}

fn bad_version(text: &str) -> Box<Failure> {
    let text = quoted(text);
    Failure::internal(format!(
        "resourceVersion: Invalid value: {text}: strconv.ParseUint: parsing {text}: invalid syntax"
    ))
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Empty};
    use serde_json::{Value, json};
    use watchkeeper::Env;

    use super::*;
    use crate::ApiServer;

    fn definition(version: &str) -> Value {
        json!({"metadata": {"name": "bars.example.com"}, "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"kind": "Bar", "plural": "bars"},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    }

    fn get(server: &ApiServer, path: &str) -> Call {
        let uri: http::Uri = path.parse().unwrap();
        let Route::Resource(target) = route(uri.path()) else { panic!("{path} is no resource") };
        Call {
            shared: server.shared.clone(),
            method: Method::GET,
            headers: HeaderMap::new(),
            query: Query::parse(uri.query()),
            target,
            stop: None,
            body: OnceLock::new(),
            tries: AtomicUsize::new(0),
            turn: OnceLock::new(),
            backlog: Mutex::new(Backlog::new(&server.shared)),
        }
    }

    #[test]
    fn a_write_never_works_under_the_lock_and_is_a_conflict_once_it_was_outrun_too_often() {
        let large = "x".repeat(LARGE);
        for (first, limit) in [("small", TRIES), (large.as_str(), LARGE_TRIES)] {
            let server = ApiServer::new(&Env::simulated(1));
            let call = get(&server, "/api/v1/namespaces/default/configmaps/a");
            let Ok(Some(Named::Kind(kind))) = call.find() else { panic!("a ConfigMap is a kind") };
            let key = Key::new("default", "a");
            let map = |data: &str| json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"k": data, "first": first}});
            let set = |data: &str| {
                server.shared.run(|core| {
                    let seen = core.see(&kind, &key);
                    let draft = seen.replace(&kind, map(data), Part::Main, &Write::own()).unwrap();
                    core.store(&draft).unwrap()
                })
            };
            server.shared.run(|core| core.create(&kind, "default", map(""), &Write::own()).unwrap());
            let patch = Patch::Merge(json!({"data": {"own": "x"}}));
            for attempt in 1..=limit {
                let written = call.write(
                    &kind,
                    |core| Ok(core.see(&kind, &key)),
                    |seen| {
                        assert!(server.shared.core.try_lock().is_some(), "attempt {attempt}");
                        set(&attempt.to_string());
                        seen.patch(&kind, &patch, Part::Main, &mut Write::own())
                    },
                );
                let failure = written.unwrap_err();
                assert_eq!(failure.outdated, attempt < limit, "attempt {attempt}");
                if attempt == limit {
                    assert_eq!((failure.code, failure.reason), (409, "Conflict"));
                    assert_eq!(
                        failure.message,
                        format!("Operation cannot be fulfilled on configmaps \"a\": {MODIFIED}")
                    );
                }
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn small_writes_that_may_take_long_leave_the_thread_to_others() {
        let server = ApiServer::new(&Env::simulated(1));
        server.shared.run(|core| {
            let definitions = core.registry.custom_resource_definitions().unwrap();
            let maps = core.registry.find("", "v1", "configmaps").unwrap().clone();
            core.create(&definitions, "", definition("v1"), &Write::own()).unwrap();
            let bars = core.registry.find("example.com", "v1", "bars").unwrap().clone();
            let object = || json!({"metadata": {"name": "a"}});
            core.create(&bars, "", object(), &Write::own()).unwrap();
            core.create(&maps, "default", object(), &Write::own()).unwrap();
        });
        let cases = [
            ("/apis/example.com/v1/bars/a", "", "application/merge-patch+json"),
            ("/api/v1/namespaces/default/configmaps/a", "default", "application/json-patch+json"),
        ];
        for (path, namespace, form) in cases {
            let mut call = get(&server, path);
            call.stop = Some(CancellationToken::new());
            call.headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(form));
            let written = tokio::spawn(async move {
                let Ok(Some(Named::Kind(kind))) = call.find() else { panic!("{path} is served") };
                let (sender, other) = std::sync::mpsc::channel();
                tokio::spawn(async move { sender.send(()) });
                let key = Key::new(namespace, "a");
                let see = |core: &Core| Ok(core.see(&kind, &key));
                let work = |seen: &Seen| {
                    // The runtime has one thread: nobody would send if this held it.
                    other.recv_timeout(Duration::from_secs(60)).unwrap();
                    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
                    seen.patch(&kind, &patch, Part::Main, &mut Write::own())
                };
                call.write(&kind, see, work).map(|_| ())
            });
            written.await.unwrap().unwrap();
        }
    }

    #[test]
    fn a_generated_name_that_was_taken_meanwhile_is_generated_anew() {
        let server = ApiServer::new(&Env::simulated(1));
        let mut core = server.shared.core.lock();
        let kind = core.registry.nodes().unwrap();
        let node = || json!({"apiVersion": "v1", "kind": "Node", "metadata": {"generateName": "n-"}});
        let seen = core.see_new(&kind, "", &Name::of(&node())).unwrap();
        let draft = || seen.create(&kind, node(), &Write::own(), true).unwrap();
        let (first, second) = (draft(), draft());
        core.store(&first).unwrap();
        assert!(core.store(&second).unwrap_err().outdated);
    }

    #[tokio::test]
    async fn a_collection_goes_bit_by_bit_and_is_told_whole_though_its_definition_changes() {
        let server = ApiServer::new(&Env::simulated(1));
        let (definitions, key, bars) = server.shared.run(|core| {
            let definitions = core.registry.custom_resource_definitions().unwrap();
            core.create(&definitions, "", definition("v1"), &Write::own()).unwrap();
            let bars = core.registry.find("example.com", "v1", "bars").unwrap().clone();
            for name in 0..100 {
                let bar = json!({"metadata": {"name": format!("b{name}")}});
                core.create(&bars, "", bar, &Write::own()).unwrap();
            }
            (definitions, Key::new("", "bars.example.com"), bars)
        });
        let left = || server.shared.core.lock().store.range(&bars.storage, None, None).count();
        let request = Request::delete("/apis/example.com/v1/bars").body(Empty::<Bytes>::new()).unwrap();
        let mut answer = Box::pin(handle(server.shared.clone(), request, None));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(answer.as_mut().poll(&mut context).is_pending());
        assert!((1..100).contains(&left()), "{} are left", left());
        server.shared.run(|core| {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
            let seen = core.see(&definitions, &key);
            let draft = seen.patch(&definitions, &patch, Part::Main, &mut Write::own()).unwrap();
            core.store(&draft).unwrap();
            assert!(!Arc::ptr_eq(core.registry.find("example.com", "v1", "bars").unwrap(), &bars));
        });
        let reply = answer.await;
        assert_eq!((reply.status().as_u16(), left()), (200, 0));
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 100);
    }

    #[test]
    fn what_came_to_be_meanwhile_is_in_the_way_of_a_new_object_only() {
        let server = ApiServer::new(&Env::simulated(1));
        let mut core = server.shared.core.lock();
        let kind = core.registry.nodes().unwrap();
        let node = || json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        let seen = core.see(&kind, &Key::new("", "n"));
        let draft = |posted: bool| seen.create(&kind, node(), &Write::own(), posted).unwrap();
        let (posted, put) = (draft(true), draft(false));
        core.create(&kind, "", node(), &Write::own()).unwrap();
        assert_eq!(core.store(&posted).unwrap_err().reason, "AlreadyExists");
        assert!(core.store(&put).unwrap_err().outdated);
    }

    #[test]
    fn no_two_services_get_one_address_that_was_free_for_both() {
        let server = ApiServer::new(&Env::simulated(1));
        let mut core = server.shared.core.lock();
        let kind = core.registry.services().unwrap();
        let service = |name: &str| {
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.7", "ports": [{"port": 80}]}})
        };
        let seen = core.see(&kind, &Key::new("default", "a"));
        let draft = seen.create(&kind, service("a"), &Write::own(), true).unwrap();
        core.create(&kind, "default", service("b"), &Write::own()).unwrap();
        assert!(core.store(&draft).unwrap_err().outdated);
    }

    #[test]
    fn warnings_are_told_once_and_as_far_as_clients_take_them() {
        let warnings = |count: usize, length: usize| -> Vec<_> {
            (0..count).map(|at| format!("{at:05}{}", "ü".repeat(length))).collect()
        };
        assert_eq!(told(&["a".to_owned(), String::new(), "a".to_owned(), "b".to_owned()]), ["a", "b"]);
        assert_eq!(told(&warnings(9_000, 1)).len(), 90);
        assert_eq!(told(&warnings(2, 2_000)), warnings(2, 2_000));
        let cut = warnings(3, 251).into_iter();
        assert_eq!(told(&warnings(3, 2_000)), cut.collect::<Vec<_>>());
        assert_eq!(told(&warnings(50, 2_000)).len(), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_read_is_of_the_kind_as_it_is_at_that_moment() {
        for path in ["bars", "bars?watch=1", "bars/b"] {
            let server = ApiServer::new(&Env::simulated(1));
            let define = |version: &str| {
                server.shared.run(|core| {
                    let kind = core.registry.custom_resource_definitions().unwrap();
                    let key = Key::new("", "bars.example.com");
                    let _may_be_absent = core.delete(&kind, &key, &Default::default());
                    core.create(&kind, "", definition(version), &Write::own()).unwrap();
                });
            };
            define("v1");
            let call = get(&server, &format!("/apis/example.com/v1/{path}"));
            let found = call.find();
            define("v2");
            let answer = call.answer(found, Empty::<Bytes>::new()).await;
            assert!(answer.is_err_and(|failure| failure.outdated), "{path}");
            let request = Request::builder().uri(format!("/apis/example.com/v1/{path}"));
            let reply =
                handle(server.shared.clone(), request.body(Empty::<Bytes>::new()).unwrap(), None).await;
            assert_eq!(reply.status(), 404, "{path}");
        }
    }
}
