//! Deletes: DELETE of an object or of a collection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::task::yield_now;

use crate::admission::attempt::Attempt;
use crate::failure::{Failure, Result};
use crate::http::body::{LARGE, RequestBody};
use crate::http::handler::Call;
use crate::http::negotiate::{self, Form};
use crate::http::reply::{self, Reply};
use crate::http::route::Target;
use crate::http::transaction::{LARGE_TRIES, TRIES};
use crate::kinds::kind::Kind;
use crate::state::store::{Key, Stored};
use crate::verbs::delete::{DeleteOptions, Deleted, Departure};
use crate::verbs::list::Page;

impl Call {
    /// DELETE of one object.
    pub(super) async fn delete_object(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        form: Form,
        body: impl RequestBody,
    ) -> Result<Reply> {
        let body = self.read_body(body).await?;
        let options = self.delete_options(&body)?;
        match self.delete(kind, key, &options)? {
            Deleted::Gone(status) => Ok(reply::value(200, form, &status)),
            Deleted::Object(stored) => Ok(reply::object(200, form, kind, &stored, self.now())),
        }
    }

    /// DELETE of a collection.
    pub(super) async fn delete_collection(
        &self,
        kind: &Arc<Kind>,
        form: Form,
        body: impl RequestBody,
    ) -> Result<Reply> {
        let body = self.read_body(body).await?;
        let options = self.delete_options(&body)?;
        let list = self.list_options(kind)?;
        let limit = if list.limit == 0 { usize::MAX } else { list.limit };
        let (mut items, revision) = self.read(kind, |core| {
            let objects = core.store.range(&kind.storage, self.target.namespace.as_deref(), None).cloned();
            Ok((objects.collect::<Vec<_>>(), core.store.revision()))
        })?;
        items.retain(|stored| list.selector.matches(stored));
        items.truncate(limit);
        self.delete_each(kind, &items, &options).await?;
        let page = Page { items, revision, proceed: None, remaining: None };
        Ok(reply::list(form, kind, &page, self.now()))
    }

    /// Deletes an object: plans without the lock, and deletes if the object is unchanged. Otherwise the request starts
    /// over; after too many attempts it holds the lock for as long as it takes.
    fn delete(&self, kind: &Arc<Kind>, key: &Key, options: &DeleteOptions) -> Result<Deleted> {
        let tries = 1 + self.tries.fetch_add(1, Ordering::Relaxed);
        let old = self.read(kind, |core| core.get(kind, key))?;
        let limit = if old.bytes.len() > LARGE { LARGE_TRIES } else { TRIES };
        // Admission cannot run under the lock.
        if tries > limit && self.admission.is_none() {
            return self.commit_if_current(kind, |core| core.delete_one(kind, key, options));
        }
        let plan = || Departure::plan(kind, &old, options, self.now());
        let departure = self.work(old.bytes.len(), plan)?;
        self.admit_delete(kind, &key.name, &old, options)?;
        self.commit_if_current(kind, |core| core.depart(&departure))
    }

    /// Deletes objects one by one, so that other requests are not held up. An object that is gone already is skipped.
    /// Starts over only if the kind is gone, because the response lists what was deleted.
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
                match self.admit_delete(&kind, "", &stored, options) {
                    Err(failure) if failure.outdated => {
                        if !self.supply_admission().await {
                            yield_now().await;
                        }
                        continue;
                    }
                    admitted => admitted?,
                }
                match self.commit(|core| core.depart(&departure)) {
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

    /// Lets admission refuse a delete; `name` is the one of the URL.
    fn admit_delete(
        &self,
        kind: &Arc<Kind>,
        name: &str,
        old: &Stored,
        options: &DeleteOptions,
    ) -> Result<()> {
        let Some(session) = &self.admission else { return Ok(()) };
        let attempt = Attempt::write(session, kind, &old.key, None, options.dry_run);
        Attempt { name, ..attempt }.delete(&old.value_in(kind))
    }

    fn delete_options(&self, body: &[u8]) -> Result<DeleteOptions> {
        if !body.is_empty() {
            let (value, _) = negotiate::read_value(&self.headers, body, ("v1", "DeleteOptions"))?
                .map_err(|problem| Failure::bad_request(format!("couldn't get version/kind; {problem}")))?;
            // Options in a body replace those of the query.
            return self.read_options(value);
        }
        let mut value = json!({});
        if let Some(grace) = self.query.number("gracePeriodSeconds")? {
            value["gracePeriodSeconds"] = grace.into();
        }
        if let Some(policy) = self.query.get("propagationPolicy") {
            value["propagationPolicy"] = policy.into();
        }
        if let Some(orphan) = self.query.flag("orphanDependents") {
            value["orphanDependents"] = orphan.into();
        }
        let dry_run = self.query.all("dryRun");
        if !dry_run.is_empty() {
            value["dryRun"] = json!(dry_run);
        }
        self.read_options(value)
    }

    fn read_options(&self, value: Value) -> Result<DeleteOptions> {
        let options = DeleteOptions::read(&value)?;
        if let Some(session) = &self.admission {
            session.set_options(value);
        }
        Ok(options)
    }
}
