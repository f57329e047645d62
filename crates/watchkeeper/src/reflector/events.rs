//! Events of a watch: passes on changes and bookmarks, or collects them while the initial list is incomplete.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::bad::{Bad, BadBookmark, Skipped, UnknownEvent};
use super::health::Phase;
use super::initial::Initial;
use super::plan::SetBack;
use super::run::Reflector;
use crate::object::{IdentityError, Kind, ResourceVersion};
use crate::queue::{Deleted, Delta};
use crate::source::ListerWatcher;
use crate::wire::{WatchEventType, WatchLine};

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

impl<K: Kind, S: ListerWatcher> Reflector<K, S> {
    /// Passes on one event, or collects it while the initial list is incomplete. Returns the version reached, if there
    /// is one. An event below the last version seen is not passed on.
    pub(super) fn event(
        &mut self,
        line: WatchLine<'_>,
        initial: &mut Option<Initial<K>>,
    ) -> Result<Option<ResourceVersion>, SetBack> {
        self.options.metrics.event(&line.event);
        if line.event == WatchEventType::Bookmark {
            return self.bookmark(line.object, initial);
        }
        if let WatchEventType::Unknown(event) = line.event {
            self.env.reporter.error("reflector", &self.name, &UnknownEvent(event));
            return Ok(None);
        }
        let made = if initial.is_some() { self.make_listed(line.object) } else { self.make(line.object) };
        let object = match made {
            Ok(object) => object,
            Err(bad) => {
                self.bad_event(format_args!("a {:?} event", line.event), &line.event, bad, initial);
                return Ok(None);
            }
        };
        if let Some(initial) = initial {
            initial.apply(&line.event, object);
            return Ok(None);
        }
        let version = object.version().clone();
        self.verifier.touch(|| object.key());
        self.plan.watched(&version)?;
        if planted!(DroppedEvent) && version.as_number().is_some_and(|number| number % 16 == 0) {
            return Ok(Some(version));
        }
        self.queue.push(match line.event {
            WatchEventType::Deleted => Delta::Deleted(Deleted::Final(object)),
            WatchEventType::Added => Delta::Added(object),
            _ => Delta::Updated(object),
        });
        Ok(Some(version))
    }

    /// Handles an unusable event: the old state of its object stays, unless it is a delete, which always counts.
    pub(super) fn bad_event(
        &mut self,
        place: fmt::Arguments<'_>,
        event: &WatchEventType,
        bad: Bad,
        initial: &mut Option<Initial<K>>,
    ) {
        if let Some(key) = &bad.name {
            let kept = self.queue.known(key);
            match (event, initial) {
                // An event about an object of another kind has no meaning for this kind.
                (WatchEventType::Deleted, _)
                    if matches!(bad.identity(), Some(IdentityError::OtherKind { .. })) => {}
                (WatchEventType::Deleted, Some(initial)) => initial.remove(key),
                (WatchEventType::Deleted, None) => {
                    self.verifier.touch(|| key.clone());
                    let (key, last_known) = (key.clone(), kept);
                    self.queue.push(Delta::Deleted(Deleted::Unknown { key, last_known }));
                }
                (_, Some(initial)) => kept.into_iter().for_each(|kept| initial.keep(kept)),
                (_, None) => {}
            }
        }
        self.skipped(place, bad);
    }

    fn bookmark(
        &mut self,
        object: &[u8],
        initial: &mut Option<Initial<K>>,
    ) -> Result<Option<ResourceVersion>, SetBack> {
        let bookmark = serde_json::from_slice::<Bookmark>(object).ok();
        let Some(meta) =
            bookmark.map(|bookmark| bookmark.metadata).filter(|meta| !meta.resource_version.is_empty())
        else {
            self.env.reporter.error("reflector", &self.name, &BadBookmark);
            return Ok(None);
        };
        let version = ResourceVersion::from(meta.resource_version.as_str());
        let annotations = meta.annotations.unwrap_or_default();
        let ends_list = annotations.get(INITIAL_EVENTS_END).is_some_and(|value| value == "true");
        match initial.take_if(|_| ends_list) {
            Some(initial) => {
                self.plan.synced(&version);
                self.replace(initial.into_objects(), version.clone());
                self.health.lock().phase = Phase::Watching;
            }
            // Before the list is complete its version means nothing.
            None if initial.is_some() => return Ok(None),
            None => {
                self.plan.watched(&version)?;
                self.plan.history.bookmarked();
                self.queue.push(Delta::Bookmark(version.clone()));
            }
        }
        Ok(Some(version))
    }

    pub(super) fn skipped(&self, place: fmt::Arguments<'_>, bad: Bad) {
        let place = match &bad.name {
            // The error of a transform names the object itself.
            Some(_) if matches!(bad.identity(), Some(IdentityError::Transform { .. })) => place.to_string(),
            Some(name) => format!("{place}, {name}"),
            None => place.to_string(),
        };
        self.env.reporter.error("reflector", &self.name, &Skipped { place, source: bad.source });
    }
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    #[serde(default)]
    resource_version: String,
    annotations: Option<BTreeMap<String, String>>,
}
