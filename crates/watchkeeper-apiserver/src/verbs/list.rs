//! Lists: complete or paged, at the current or a past revision.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::failure::{Cause, Failure, Result};
use crate::kinds::kind::Kind;
use crate::state::core::Core;
use crate::state::selector::Selector;
use crate::state::store::{Key, Stored};

/// The meaning of `resourceVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    Unset,
    Exact,
    NotOlderThan,
}

/// The options of a list or watch.
#[derive(Clone, Debug)]
pub(crate) struct ListOptions {
    pub(crate) selector: Selector,
    pub(crate) limit: usize,
    pub(crate) proceed: String,
    pub(crate) version: String,
    pub(crate) matching: Match,
    pub(crate) initial_events: Option<bool>,
}

impl ListOptions {
    /// Validates the combination of options for a list.
    pub(crate) fn check_list(&self) -> Result<()> {
        let mut causes = Vec::new();
        if self.matching != Match::Unset {
            if self.version.is_empty() {
                let problem = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(Cause::forbidden("resourceVersionMatch", problem));
            }
            if !self.proceed.is_empty() {
                let problem = "resourceVersionMatch is forbidden when continue is provided";
                causes.push(Cause::forbidden("resourceVersionMatch", problem));
            }
            if self.matching == Match::Exact && self.version == "0" {
                let problem = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(Cause::forbidden("resourceVersionMatch", problem));
            }
        }
        if self.initial_events.is_some() {
            causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_options("ListOptions", causes)) }
    }

    /// Validates the combination of options for a watch.
    pub(crate) fn check_watch(&self, streaming_lists: bool) -> Result<()> {
        let mut causes = Vec::new();
        if self.initial_events.is_some() {
            if self.matching != Match::NotOlderThan {
                let problem = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                causes.push(Cause::forbidden("resourceVersionMatch", problem));
            }
            if !streaming_lists {
                let problem =
                    "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
                causes.push(Cause::forbidden("sendInitialEvents", problem));
            }
        } else if self.matching != Match::Unset {
            let problem = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", problem));
        }
        if self.matching == Match::Exact {
            let supported = ["NotOlderThan"];
            causes.push(Cause::not_supported("resourceVersionMatch", &"Exact".into(), &supported));
        }
        if self.matching != Match::Unset && !self.proceed.is_empty() {
            let problem = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", problem));
        }
        if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_options("ListOptions", causes)) }
    }

    /// Returns the requested revision; `None` for any or the newest.
    pub(crate) fn wanted_version(&self) -> Result<Option<u64>> {
        if self.version.is_empty() {
            return Ok(None);
        }
        let version: u64 = self.version.parse().map_err(|_| {
            let version = crate::failure::quoted(&self.version);
            Failure::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {version}: strconv.ParseUint: parsing {version}: invalid syntax"
            ))
        })?;
        Ok((version != 0).then_some(version))
    }

    /// Returns whether the list must be at exactly the requested revision. A list of one name is never paged.
    pub(crate) fn is_exact(&self) -> bool {
        let paged = self.limit > 0 && !self.selector.is_of_one_name();
        self.matching == Match::Exact || (self.matching == Match::Unset && paged)
    }
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Arc<Stored>>,
    pub(crate) revision: u64,
    pub(crate) proceed: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// A continue token: where the next page starts, and at which revision; 0 is the newest.
struct Continue {
    revision: u64,
    after: Key,
}

impl Continue {
    fn encode(&self) -> String {
        let start = format!("{}/{}\0", self.after.namespace, self.after.name);
        URL_SAFE_NO_PAD
            .encode(json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": start}).to_string())
    }

    fn decode(token: &str) -> Result<Self> {
        let bad = |problem: &str| {
            Failure::bad_request(format!("invalid continue token: continue key is not valid: {problem}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|error| {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) => at,
                _ => token.len() / 4 * 4,
            };
            bad(&format!("illegal base64 data at input byte {at}"))
        })?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| bad(&error.to_string()))?;
        let revision = value["rv"].as_u64().ok_or_else(|| bad("no version"))?;
        let start = value["start"].as_str().and_then(|start| start.strip_suffix('\0'));
        let (namespace, name) =
            start.and_then(|start| start.split_once('/')).ok_or_else(|| bad("no start"))?;
        Ok(Self { revision, after: Key::new(namespace, name) })
    }
}

/// The objects from which a page is selected.
#[derive(Debug)]
pub(crate) struct Listed {
    objects: Vec<Arc<Stored>>,
    revision: u64,
    /// The maximum number of items; 0 for no limit.
    limit: usize,
}

impl Core {
    /// Lists the objects of one namespace, or of all.
    ///
    /// The caller has waited for a revision in the future; here it is refused.
    pub(crate) fn list(&self, kind: &Kind, namespace: Option<&str>, options: &ListOptions) -> Result<Listed> {
        let current = self.store.revision();
        let wanted = options.wanted_version()?;
        let mut after = None;
        let mut revision = current;
        let mut limit = options.limit;
        if !options.proceed.is_empty() {
            if wanted.is_some() {
                let problem = "specifying resource version is not allowed when using continue";
                return Err(Failure::bad_request(problem));
            }
            let token = Continue::decode(&options.proceed)?;
            if token.revision != 0 {
                revision = token.revision;
            }
            after = Some(token.after);
        } else if let Some(wanted) = wanted {
            if wanted > current {
                return Err(Failure::version_too_large(wanted, current));
            }
            if options.is_exact() {
                revision = wanted;
            }
        } else if !options.version.is_empty() {
            // resourceVersion "0" is served from the watch cache, which ignores the limit.
            limit = 0;
        }
        if revision > current {
            return Err(Failure::version_too_large(revision, current));
        }
        let objects = self.store.range_at(&kind.storage, namespace, after.as_ref(), revision);
        let objects = objects.map_err(|forgotten| match &after {
            None => Failure::expired(revision, forgotten.oldest),
            Some(after) => {
                let mut failure = Failure::new(410, "Expired", CONTINUE_EXPIRED);
                failure.proceed = Some(Continue { revision: 0, after: after.clone() }.encode());
                failure
            }
        })?;
        Ok(Listed { objects, revision, limit })
    }
}

impl Listed {
    /// Selects the page without the lock, as evaluating a selector may take long.
    pub(crate) fn page(self, selector: &Selector) -> Page {
        let Self { objects, revision, limit } = self;
        let matches = |stored: &Arc<Stored>| selector.matches(stored);
        let mut objects = objects.into_iter();
        if limit == 0 {
            return Page {
                items: objects.filter(matches).collect(),
                revision,
                proceed: None,
                remaining: None,
            };
        }
        // Remaining objects are not matched, so with a selector the remaining count is unknown.
        let items: Vec<_> = objects.by_ref().filter(matches).take(limit).collect();
        let remaining = objects.count();
        let last = items.last().filter(|_| remaining > 0);
        Page {
            proceed: last.map(|last| Continue { revision, after: last.key.clone() }.encode()),
            remaining: (remaining > 0 && selector.is_empty()).then_some(remaining),
            items,
            revision,
        }
    }
}

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
