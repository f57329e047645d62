//! Health checks: `/healthz`, `/livez` and `/readyz`, and the single checks below them.
//!
//! The checks have the names of the real server's, which clients look for. Whatever they are about is done before the
//! first request is served, and after a disk failure no request gets this far, so all of them pass.

use crate::http::reply::{self, Reply};
use crate::http::route::Query;

/// The first checks of every endpoint.
const FIRST: &[&str] = &["ping", "log", "etcd"];

/// The checks that only readiness has, before the others and after them.
const READY_FIRST: &[&str] = &["etcd-readiness", "informer-sync"];
const READY_LAST: &[&str] = &["shutdown"];

/// What the server does at its start, in the order of the real server.
const START: &[&str] = &[
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// The checks of an endpoint, in order.
fn checks(endpoint: &str) -> impl Iterator<Item = &'static str> {
    let ready = endpoint == "readyz";
    let only = move |checks: &'static [&'static str]| if ready { checks } else { &[] };
    FIRST.iter().chain(only(READY_FIRST)).chain(START).chain(only(READY_LAST)).copied()
}

/// Answers a health check: all of an endpoint, or the one that the rest of the path names.
pub(crate) fn answer(endpoint: &str, check: &[String], query: &Query) -> Reply {
    let check = check.join("/");
    match check.as_str() {
        "" if query.flag("verbose").is_some() => {
            let lines: String = checks(endpoint).map(|check| format!("[+]{check} ok\n")).collect();
            reply::text(200, format!("{lines}{endpoint} check passed\n"))
        }
        "" => reply::plain(200, "ok"),
        check if checks(endpoint).any(|known| known == check) => reply::plain(200, "ok"),
        _ => reply::page_not_found(),
    }
}
