//! Reads: GET of an object, lists and watches, with their options.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::HeaderValue;
use serde_json::Value;

use crate::failure::{Cause, Failure, Result, quoted};
use crate::http::handler::Call;
use crate::http::negotiate::Form;
use crate::http::reply::{self, Reply, ReplyBody};
use crate::http::watch::{Start, WatchBody, WatchRequest};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::selector::Selector;
use crate::state::store::{Key, Stored};
use crate::verbs::list::{ListOptions, Match, Page};

/// How long a request for a future version waits for it.
const VERSION_PATIENCE: Duration = Duration::from_secs(3);

impl Call {
    /// GET of one object.
    pub(super) async fn get(&self, kind: &Arc<Kind>, key: &Key, form: Form) -> Result<Reply> {
        self.wait_for_get().await?;
        let stored = self.read(kind, |core| core.get(kind, key))?;
        Ok(reply::object(200, form, kind, &stored, self.now()))
    }

    /// Waits for the version that a GET requests, which may be one of the near future.
    async fn wait_for_get(&self) -> Result<()> {
        let text = self.query.text("resourceVersion");
        if text.is_empty() {
            return Ok(());
        }
        let version: u64 = text.parse().map_err(|_| bad_version(text))?;
        Box::pin(self.shared.reach(version, VERSION_PATIENCE)).await;
        let current = self.shared.core.lock().store.revision();
        if version > current { Err(Failure::version_too_large(version, current)) } else { Ok(()) }
    }

    /// A list of a collection.
    pub(super) async fn list(&self, kind: &Arc<Kind>, form: Form) -> Result<Reply> {
        let options = self.list_options(kind)?;
        options.check_list()?;
        if let Some(version) = options.wanted_version()? {
            Box::pin(self.shared.reach(version, VERSION_PATIENCE)).await;
        }
        let listed = self.read(kind, |core| core.list(kind, self.target.namespace.as_deref(), &options))?;
        Ok(reply::list(form, kind, &listed.page(&options.selector), self.now()))
    }

    /// GET of an object or a list of a kind that is not stored.
    pub(super) fn read_computed(&self, kind: &Arc<Kind>, objects: &[Value], form: Form) -> Result<Reply> {
        if self.target.subresource.is_some() {
            return Err(Failure::no_such_path());
        }
        if ![Method::GET, Method::HEAD].contains(&self.method) || self.is_watch() {
            return Err(Failure::method_not_allowed());
        }
        let selector = self.list_options(kind)?.selector;
        let stored = objects.iter().map(|object| {
            let key = Key::new("", meta::text(object, "name"));
            Arc::new(Stored::encode(kind, key, 0, object))
        });
        match &self.target.name {
            Some(name) => {
                let found = stored.into_iter().find(|stored| stored.key.name == *name);
                let found = found.ok_or_else(|| Failure::not_found(kind, name))?;
                Ok(reply::object(200, form, kind, &found, self.now()))
            }
            None => {
                let items = stored.filter(|stored| selector.matches(stored)).collect();
                let page = Page { items, revision: 0, proceed: None, remaining: None };
                Ok(reply::list(form, kind, &page, self.now()))
            }
        }
    }

    /// A watch of a collection or of one object.
    pub(super) fn watch(&self, kind: &Arc<Kind>, form: Form) -> Result<Reply> {
        if self.method != Method::GET {
            return Err(Failure::method_not_allowed());
        }
        if form == Form::Yaml {
            return Err(Failure::not_acceptable(
                "only the following media types are accepted: application/json",
            ));
        }
        let options = self.list_options(kind)?;
        options.check_watch(self.shared.streaming_lists)?;
        let start = match (options.initial_events, options.version.as_str()) {
            (Some(true), _) | (None, "" | "0") => Start::Initial,
            (Some(false), "" | "0") => Start::Now,
            (_, version) => Start::After(version.parse().map_err(|_| bad_version(version))?),
        };
        let seconds = self.query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let timeout = match seconds {
            Some(seconds) => Duration::from_secs(seconds.unsigned_abs()),
            // Spread out, so that watches do not all reconnect at once.
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
            bookmark_period: self.bookmark_period,
            timeout,
            stop: self.stop.clone(),
        };
        let body = self.read(kind, |core| Ok(WatchBody::open(&self.shared, &mut core.store, request)))?;
        let media = match form {
            Form::Protobuf | Form::Metadata { protobuf: true, .. } => {
                HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch")
            }
            _ => reply::JSON,
        };
        Ok(reply::with(200, media, ReplyBody::watch(body)))
    }

    /// Validates the options of a list or watch.
    pub(super) fn list_options(&self, kind: &Kind) -> Result<ListOptions> {
        let labels = self.query.text("labelSelector");
        let fields = self.query.text("fieldSelector");
        let matching = self.query.text("resourceVersionMatch");
        let limit = self.query.number("limit")?.unwrap_or(0);
        Ok(ListOptions {
            selector: Selector::parse(kind, labels, fields)?,
            limit: usize::try_from(limit).unwrap_or(0),
            proceed: self.query.text("continue").to_owned(),
            version: self.query.text("resourceVersion").to_owned(),
            matching: match matching {
                "" => Match::Unset,
                "Exact" => Match::Exact,
                "NotOlderThan" => Match::NotOlderThan,
                other => {
                    let supported = ["Exact", "NotOlderThan", ""];
                    let cause = Cause::not_supported("resourceVersionMatch", &other.into(), &supported);
                    return Err(Failure::invalid_options("ListOptions", vec![cause]));
                }
            },
            initial_events: self.query.flag("sendInitialEvents"),
        })
    }
}

fn bad_version(text: &str) -> Box<Failure> {
    let text = quoted(text);
    Failure::internal(format!(
        "resourceVersion: Invalid value: {text}: strconv.ParseUint: parsing {text}: invalid syntax"
    ))
}
