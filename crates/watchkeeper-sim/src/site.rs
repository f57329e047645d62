//! The places in a run where a fault can happen, named so that they are found again in another run.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Uri};

/// A place in a run: the n-th request of its kind, an event of a watch, or a step of the story.
///
/// Places are named by what happens there and counted from 1, not by time: when a fault earlier in the run is removed, the later ones
/// mostly find their places again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Site {
    /// A request of a replica, such as `apply deployments default/web`, or a call to the outside world.
    Request {
        /// The number of the replica, from 0.
        replica: usize,
        /// Verb, resource, and namespace or name.
        what: Arc<str>,
        /// How many of these requests the replica has made, with this one.
        nth: u32,
    },
    /// An event of a watch.
    Event {
        /// The number of the replica, from 0.
        replica: usize,
        /// The watch: `watch deployments`.
        what: Arc<str>,
        /// How many of these watches the replica has opened, with this one.
        nth: u32,
        /// The number of the event in it, from 1. Bookmarks count.
        event: u32,
    },
    /// The moment after a write of the story; 0 is before the first.
    Step(u32),
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |replica: &usize| if *replica == 0 { String::new() } else { format!("replica {replica}: ") };
        match self {
            Self::Request { replica, what, nth } => write!(f, "{}{what} #{nth}", of(replica)),
            Self::Event { replica, what, nth, event } => {
                write!(f, "{}{what} #{nth} event {event}", of(replica))
            }
            Self::Step(step) => write!(f, "step {step}"),
        }
    }
}

/// A text that does not name a place or a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseError {
    text: String,
    expected: &'static str,
}

impl ParseError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

impl FromStr for Site {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::new(text, "a place, such as `apply pods default/web #1`");
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        if let Some(step) = text.strip_prefix("step ") {
            return Ok(Self::Step(number(step)?));
        }
        let (replica, rest) = match text.strip_prefix("replica ").and_then(|rest| rest.split_once(": ")) {
            Some((replica, rest)) => (number(replica)? as usize, rest),
            None => (0, text),
        };
        let (what, counts) = rest.rsplit_once(" #").ok_or_else(wrong)?;
        let what: Arc<str> = what.into();
        match counts.split_once(" event ") {
            Some((nth, event)) => Ok(Self::Event { replica, what, nth: number(nth)?, event: number(event)? }),
            None => Ok(Self::Request { replica, what, nth: number(counts)? }),
        }
    }
}

/// What a request asks for, read from its method and URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) verb: Verb,
    /// The plural, with its group: `deployments.apps`; empty for discovery.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// The path, for requests that are not about a resource.
    path: String,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Apply,
    Delete,
    DeleteCollection,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    pub(crate) fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl Target {
    pub(crate) fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let mut parts = uri.path().split('/').filter(|part| !part.is_empty());
        let group = match parts.next() {
            Some("api") => parts.next().map(|_version| ""),
            Some("apis") => parts.next().and_then(|group| parts.next().map(|_version| group)),
            _ => None,
        };
        let mut rest: Vec<&str> = parts.collect();
        let mut namespace = "";
        if let ["namespaces", name, _, ..] = rest[..]
            && !matches!(rest[..], ["namespaces", _, "status" | "finalize"])
        {
            namespace = name;
            rest.drain(..2);
        }
        let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        let (plural, name, subresource) = (part(0), part(1), part(2));
        let is_watch = uri.query().is_some_and(|query| query.split('&').any(is_watch));
        let verb = match *method {
            _ if is_watch => Verb::Watch,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH if is_apply(headers) => Verb::Apply,
            Method::PATCH => Verb::Patch,
            Method::DELETE if name.is_empty() => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ if name.is_empty() && !plural.is_empty() => Verb::List,
            _ => Verb::Get,
        };
        let resource = match group {
            Some(group) if !group.is_empty() && !plural.is_empty() => format!("{plural}.{group}"),
            Some(_) => plural,
            None => String::new(),
        };
        let path = if resource.is_empty() { uri.path().to_owned() } else { String::new() };
        Self { verb, resource, namespace: namespace.to_owned(), name, subresource, path }
    }

    /// Whether the request is about Events or Leases, which say nothing about what a controller has achieved.
    pub(crate) fn is_noise(&self) -> bool {
        is_noise(&self.resource)
    }

    /// Whether the request would change an object, if the server takes it.
    pub(crate) fn is_write(&self) -> bool {
        self.verb.is_write()
    }
}

/// Whether a parameter asks for a watch: flags are true unless they say no.
fn is_watch(parameter: &str) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    name == "watch" && value != "0" && !value.eq_ignore_ascii_case("false")
}

fn is_apply(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply-patch"))
}

/// Whether objects of a resource, with or without its group, are left out when states are compared.
pub(crate) fn is_noise(resource: &str) -> bool {
    matches!(resource, "events" | "events.events.k8s.io" | "leases.coordination.k8s.io")
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb.name(), self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        match (self.namespace.is_empty(), self.name.is_empty()) {
            (true, true) => write!(f, "{}", self.path),
            (true, false) => write!(f, " {}", self.name),
            (false, true) => write!(f, " {}/", self.namespace),
            (false, false) => write!(f, " {}/{}", self.namespace, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: Method, uri: &str) -> String {
        Target::of(&method, &uri.parse().unwrap(), &HeaderMap::new()).to_string()
    }

    #[test]
    fn a_request_is_named_by_verb_resource_and_object() {
        let named = [
            (Method::GET, "/api/v1/pods?watch=true", "watch pods"),
            (Method::GET, "/api/v1/pods?limit=1&watch=1", "watch pods"),
            (Method::GET, "/api/v1/pods?watch=false", "list pods"),
            (Method::GET, "/api/v1/namespaces/a/pods?limit=5", "list pods a/"),
            (Method::GET, "/api/v1/namespaces/a", "get namespaces a"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", "update namespaces/finalize a"),
            (Method::POST, "/apis/apps/v1/namespaces/a/deployments", "create deployments.apps a/"),
            (Method::PATCH, "/apis/x.dev/v1/namespaces/a/foos/b/status", "patch foos.x.dev/status a/b"),
            (Method::DELETE, "/api/v1/nodes/n", "delete nodes n"),
            (Method::DELETE, "/api/v1/namespaces/a/pods", "deletecollection pods a/"),
            (Method::GET, "/apis/apps/v1", "get /apis/apps/v1"),
            (Method::GET, "/version", "get /version"),
        ];
        for (method, uri, name) in named {
            assert_eq!(target(method, uri), name);
        }
    }

    #[test]
    fn a_place_is_read_back_from_its_text() {
        for text in ["step 3", "patch pods a/b #2", "replica 1: create pods a/ #1", "watch pods #2 event 7"] {
            assert_eq!(text.parse::<Site>().unwrap().to_string(), text);
        }
        for text in ["", "step x", "patch pods a/b", "patch pods #x"] {
            let error = text.parse::<Site>().unwrap_err().to_string();
            assert!(error.contains("is not a place"), "{error}");
        }
    }
}
