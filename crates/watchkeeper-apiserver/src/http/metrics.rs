//! Counters for `/metrics`: requests with the labels of the real server, and encoded objects.

use std::collections::BTreeMap;
use std::fmt::Write;

use http::{Method, StatusCode};
use parking_lot::Mutex;

use crate::http::route::Target;
use crate::state::store::encodings;

/// Requests answered so far, by request labels and status code.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts(Mutex<BTreeMap<(Request, u16), u64>>);

/// All subresources that are served. Label values must not come from clients.
const SUBRESOURCES: [&str; 8] =
    ["approval", "binding", "eviction", "finalize", "log", "scale", "status", "token"];

/// The labels of a request for a served resource. Object names are no label, so cardinality is bounded by resources and
/// verbs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    group: String,
    version: String,
    resource: String,
    subresource: &'static str,
    verb: &'static str,
    scope: &'static str,
    dry_run: bool,
}

impl Request {
    pub(crate) fn new(target: &Target, method: &Method, watch: bool, apply: bool, dry_run: bool) -> Self {
        let one = target.name.is_some();
        let verb = match method.as_str() {
            "GET" | "HEAD" if watch => "WATCH",
            "GET" | "HEAD" if !one => "LIST",
            "GET" | "HEAD" => "GET",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" if apply => "APPLY",
            "PATCH" => "PATCH",
            "DELETE" if !one => "DELETECOLLECTION",
            "DELETE" => "DELETE",
            _ => "other",
        };
        let scope = match (one || verb == "POST", target.namespace.is_some()) {
            (true, _) => "resource",
            (false, true) => "namespace",
            (false, false) => "cluster",
        };
        let named = target.subresource.as_deref().unwrap_or_default();
        let subresource = SUBRESOURCES.iter().find(|known| **known == named);
        Self {
            group: target.group.clone(),
            version: target.version.clone(),
            resource: target.resource.clone(),
            subresource: subresource.copied().unwrap_or_default(),
            verb,
            scope,
            dry_run,
        }
    }
}

impl RequestCounts {
    pub(crate) fn count(&self, request: Request, status: StatusCode) {
        *self.0.lock().entry((request, status.as_u16())).or_default() += 1;
    }

    /// Returns all counters in the Prometheus text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from(
            "# HELP apiserver_request_total Requests for resources that were answered; a watch counts when it begins.\n\
             # TYPE apiserver_request_total counter\n",
        );
        for ((request, code), count) in &*self.0.lock() {
            let Request { group, version, resource, subresource, verb, scope, dry_run } = request;
            let dry_run = if *dry_run { "All" } else { "" };
            // Writing to a `String` cannot fail.
            let _ = writeln!(
                text,
                "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"{dry_run}\",group=\"{group}\",\
                 resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\"}} {count}",
            );
        }
        let _ = write!(
            text,
            "# HELP watchkeeper_encoded_objects_total Objects that this process has encoded; watches share an encoding.\n\
             # TYPE watchkeeper_encoded_objects_total counter\n\
             watchkeeper_encoded_objects_total {}\n",
            encodings(),
        );
        text
    }
}
