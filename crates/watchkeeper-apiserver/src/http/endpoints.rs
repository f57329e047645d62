//! The endpoints of a resource: collection, object, scale, list and watch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body::Body;
use tokio::task::yield_now;

use crate::failure::{Failure, Result, quoted};
use crate::http::handler::{BoxError, Call};
use crate::http::negotiate::{self, Form};
use crate::http::reply::{self, Reply, ReplyBody};
use crate::http::route::Target;
use crate::http::transaction::LARGE;
use crate::http::warnings::warn;
use crate::http::watch::{Start, WatchBody, WatchRequest};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::store::{Key, Stored};
use crate::verbs::create::{Name, identify, place};
use crate::verbs::delete::{DeleteOptions, Deleted, Departure};
use crate::verbs::list::Page;
use crate::verbs::patch::Patch;
use crate::verbs::update::Part;
use crate::verbs::write::Write;

/// How long a request for a version of the future waits for it.
const VERSION_PATIENCE: Duration = Duration::from_secs(3);

impl Call {
    pub(super) async fn collection<B>(&self, kind: Arc<Kind>, form: Form, body: B) -> Result<Reply>
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
    pub(super) async fn delete_each(
        &self,
        kind: &Kind,
        objects: &[Arc<Stored>],
        options: &DeleteOptions,
    ) -> Result<()> {
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

    pub(super) async fn object<B>(
        &self,
        kind: Arc<Kind>,
        key: &Key,
        part: Part,
        form: Form,
        body: B,
    ) -> Result<Reply>
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

    pub(super) async fn scale<B>(&self, kind: &Arc<Kind>, key: &Key, form: Form, body: B) -> Result<Reply>
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

    pub(super) async fn list(&self, kind: &Arc<Kind>, form: Form) -> Result<Reply> {
        let options = self.list_options(kind)?;
        options.check_list()?;
        if let Some(version) = options.wanted_version()? {
            self.shared.reach(version, VERSION_PATIENCE).await;
        }
        let listed = self.read(kind, |core| core.list(kind, self.target.namespace.as_deref(), &options))?;
        Ok(reply::list(form, kind, &listed.page(&options.selector), self.now()))
    }

    pub(super) fn watch(&self, kind: Arc<Kind>, form: Form) -> Result<Reply> {
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
    pub(super) async fn wait_for_get(&self) -> Result<()> {
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
    pub(super) fn written(
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

fn bad_version(text: &str) -> Box<Failure> {
    let text = quoted(text);
    Failure::internal(format!(
        "resourceVersion: Invalid value: {text}: strconv.ParseUint: parsing {text}: invalid syntax"
    ))
}
