//! Lists: reads all pages, makes objects of their items, and replaces the state with them.

use std::time::Duration;

use futures::StreamExt;

use super::bad::{Bad, Failure};
use super::health::Phase;
use super::run::{PATIENCE, Reflector, silent};
use crate::clock::Instant;
use crate::object::{IdentityError, Kind, Object, ResourceVersion, name_hint};
use crate::source::{ByteStream, ListOptions, ListerWatcher};
use crate::wire::{ApiError, ListMeta, ListSplitter, Pages};

impl<K: Kind, S: ListerWatcher> Reflector<K, S> {
    /// Reads all pages of a list and replaces the state with them. Returns the delay before the next request.
    pub(super) async fn list(&mut self, mut options: ListOptions) -> Duration {
        let (mut items, mut pages) = (Vec::new(), Pages::default());
        loop {
            self.health.lock().phase = Phase::Listing;
            let whole = items.len();
            let page = self.page(&options, &mut items).await.and_then(|meta| {
                if !meta.continue_token.is_empty() {
                    pages.turn(&meta.continue_token, items.get(whole).map(Object::key))?;
                }
                Ok(meta)
            });
            match page {
                Ok(meta) => {
                    if let Some(version) = self.plan.listed(&meta) {
                        self.replace(items, version);
                        return Duration::ZERO;
                    }
                    options.continue_token = meta.continue_token;
                }
                Err(error) if self.is_gone(&error).await => return self.park(),
                Err(error) => {
                    self.failed("cannot list", &error);
                    let wait = self.plan.list_failed(&error, self.env.clock.now());
                    if !self.plan.keeps_pages() {
                        return wait;
                    }
                    // The same page again, behind the complete ones before it.
                    items.truncate(whole);
                    self.wait(wait).await;
                }
            }
        }
    }

    async fn page(
        &mut self,
        options: &ListOptions,
        items: &mut Vec<Object<K>>,
    ) -> Result<ListMeta, ApiError> {
        let asked = self.env.clock.timeout(PATIENCE, self.source.list(options));
        let mut stream = asked.await.map_err(|_| silent())??;
        let mut splitter = ListSplitter::with_cap(self.options.object_cap);
        let mut position = items.len();
        while let Some(chunk) = self.next(&mut stream, self.env.clock.now() + PATIENCE).await? {
            splitter.feed(&chunk, |bytes| {
                let place = format_args!("item {position}");
                match bytes.map_err(Bad::from).and_then(|bytes| self.make_listed(bytes)) {
                    Ok(object) => items.push(object),
                    Err(bad) => {
                        // The object exists in a form that is unusable: its old state stays.
                        items.extend(bad.name.as_ref().and_then(|name| self.queue.known(name)));
                        self.skipped(place, bad);
                    }
                }
                position += 1;
            })?;
        }
        Ok(splitter.finish()?)
    }

    /// Makes an object of a list, or returns the cached one if it has the same state.
    pub(super) fn make_listed(&mut self, bytes: &[u8]) -> Result<Object<K>, Bad> {
        let object = self.make(bytes)?;
        Ok(self.queue.unchanged(&object).unwrap_or(object))
    }

    pub(super) fn make(&mut self, bytes: &[u8]) -> Result<Object<K>, Bad> {
        self.maker.make(bytes).map_err(|error| {
            let name = match &error {
                IdentityError::Transform { name, .. } => Some(name.clone()),
                _ => name_hint(bytes),
            };
            Bad { name, source: error.into() }
        })
    }

    pub(super) fn replace(&mut self, items: Vec<Object<K>>, version: ResourceVersion) {
        if let Some(set_back) = self.plan.take_set_back() {
            let (phase, why) = ("relisted", self.set_back(&set_back).to_string());
            self.env.reporter.error("reflector", &self.name, &Failure { phase, why });
        }
        self.contact(&version);
        self.verifier.listed(&version, self.env.clock.now());
        let reason = self.plan.reason();
        self.options.metrics.listed(reason, items.len());
        {
            let mut health = self.health.lock();
            health.lists += 1;
            *health.lists_by_reason.entry(reason).or_default() += 1;
        }
        self.queue.answered(self.question, &version);
        self.queue.replace(items, version);
    }

    async fn next(
        &self,
        stream: &mut ByteStream,
        deadline: Instant,
    ) -> Result<Option<bytes::Bytes>, ApiError> {
        tokio::select! {
            biased;
            chunk = stream.next() => chunk.transpose(),
            () = self.env.clock.sleep_until(deadline) => Err(silent()),
        }
    }
}
