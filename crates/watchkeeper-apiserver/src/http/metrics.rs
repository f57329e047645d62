//! How many requests were answered, and how? Counted as the real server counts them, for `/metrics`.

use std::collections::BTreeMap;
use std::fmt::Write;

use http::{Method, StatusCode};
use parking_lot::Mutex;

use crate::http::route::Target;

/// Requests answered so far, by what they asked for and how that ended.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts(Mutex<BTreeMap<(Request, u16), u64>>);

/// All that are served: a label may not come from a client.
const SUBRESOURCES: [&str; 6] = ["binding", "eviction", "finalize", "log", "scale", "status"];

/// What a request for a served resource asks for. There are as many of them as there are resources and verbs: names are no part of it.
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

    /// All counts, in the text format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from(
            "# HELP apiserver_request_total Requests for resources that were answered; a watch counts when it begins.\n\
             # TYPE apiserver_request_total counter\n",
        );
        for ((request, code), count) in &*self.0.lock() {
            let Request { group, version, resource, subresource, verb, scope, dry_run } = request;
            let dry_run = if *dry_run { "All" } else { "" };
            // A String takes everything.
            let _ = writeln!(
                text,
                "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"{dry_run}\",group=\"{group}\",\
                 resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\"}} {count}",
            );
        }
        text
    }
}
