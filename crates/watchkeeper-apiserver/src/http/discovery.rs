//! Discovery documents, aggregated and unaggregated, and `/version`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use serde_json::{Value, json};

use crate::kinds::behaviour::Subresource;
use crate::kinds::kind::{Kind, api_version};
use crate::kinds::registry::{Document, Group, Registry, Version};

/// The minor version of Kubernetes that this server reports.
pub(crate) const MINOR: &str = "36";

pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "emulationMajor": "1", "emulationMinor": MINOR,
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": format!("v1.{MINOR}.0+watchkeeper.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/`: every path that is served.
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned(), "/apis/".to_owned()];
    for group in registry.groups().iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{}", group.name, version.name)));
    }
    paths.extend(["/.well-known/openid-configuration", "/openid/v1/jwks"].map(str::to_owned));
    paths.extend(
        ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            .map(str::to_owned),
    );
    paths.sort();
    json!({"paths": paths})
}

/// `/api`, unaggregated.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`, unaggregated.
pub(crate) fn groups(registry: &Registry) -> Value {
    let groups = registry.groups();
    let groups: Vec<_> = groups.iter().filter(|group| !group.name.is_empty()).map(group_body).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`; `None` if it is not served.
pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let groups = registry.groups();
    let mut body = group_body(groups.iter().find(|group| group.name == name && !name.is_empty())?);
    body["kind"] = "APIGroup".into();
    body["apiVersion"] = "v1".into();
    Some(body)
}

fn group_body(group: &Group) -> Value {
    let named = |version: &Version| json!({"groupVersion": api_version(&group.name, &version.name), "version": version.name});
    let versions: Vec<_> = group.versions.iter().map(named).collect();
    json!({"name": group.name, "versions": versions, "preferredVersion": versions.first()})
}

/// `/api/v1` and `/apis/{group}/{version}`; `None` if it is not served.
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let groups = registry.groups();
    let versions = &groups.iter().find(|g| g.name == group)?.versions;
    let served = versions.iter().find(|v| v.name == version)?;
    let mut resources = Vec::new();
    for kind in &served.kinds {
        let mut resource = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": kind.verbs(),
        });
        add_names(&mut resource, kind);
        resource["storageVersionHash"] = storage_hash(kind).into();
        resources.push(resource);
        for part in kind.subresources() {
            let (group, version, body) = body(kind, &part);
            let mut resource = json!({
                "name": format!("{}/{}", kind.plural, part.name), "singularName": "",
                "namespaced": kind.namespaced, "kind": body, "verbs": part.verbs,
            });
            if !version.is_empty() {
                resource["group"] = group.into();
                resource["version"] = version.into();
            }
            resources.push(resource);
        }
    }
    for review in &served.reviews {
        resources.push(json!({
            "name": review.plural, "singularName": review.kind.to_lowercase(), "namespaced": review.namespaced,
            "kind": review.kind, "verbs": ["create"],
        }));
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version),
        "resources": resources,
    }))
}

/// `/api` (`core`) or `/apis`, aggregated. Encoded once per change of the kinds.
pub(crate) fn aggregated(registry: &Registry, core: bool) -> &Document {
    registry.document(core, || {
        let mut text = aggregated_groups(registry, core).to_string();
        let etag = format!("\"{}\"", fingerprint(text.as_bytes()));
        text.push('\n');
        Document { text: text.into(), etag }
    })
}

fn aggregated_groups(registry: &Registry, core: bool) -> Value {
    let groups = registry.groups();
    let items: Vec<_> = groups
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(|group| {
            let metadata = if core { json!({}) } else { json!({"name": group.name}) };
            let versions: Vec<_> = group.versions.iter().map(aggregated_version).collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn aggregated_version(version: &Version) -> Value {
    let scope = |namespaced: bool| if namespaced { "Namespaced" } else { "Cluster" };
    let mut resources = Vec::new();
    for kind in &version.kinds {
        let mut resource = json!({
            "resource": kind.plural,
            // Empty means the enclosing group and version.
            "responseKind": {"group": "", "version": "", "kind": kind.kind},
            "scope": scope(kind.namespaced), "singularResource": kind.singular, "verbs": kind.verbs(),
        });
        add_names(&mut resource, kind);
        let parts: Vec<_> = kind
            .subresources()
            .iter()
            .map(|part| {
                let (group, version, body) = body(kind, part);
                json!({
                    "subresource": part.name,
                    "responseKind": {"group": group, "version": version, "kind": body},
                    "verbs": part.verbs,
                })
            })
            .collect();
        if !parts.is_empty() {
            resource["subresources"] = parts.into();
        }
        resources.push(resource);
    }
    for review in &version.reviews {
        resources.push(json!({
            "resource": review.plural, "responseKind": {"group": "", "version": "", "kind": review.kind},
            "scope": scope(review.namespaced), "singularResource": review.kind.to_lowercase(), "verbs": ["create"],
        }));
    }
    json!({"version": version.name, "resources": resources, "freshness": "Current"})
}

fn add_names(resource: &mut Value, kind: &Kind) {
    for (field, names) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !names.is_empty() {
            resource[field] = json!(names);
        }
    }
}

/// Returns the hash by which clients notice that objects are stored in another version.
fn storage_hash(kind: &Kind) -> String {
    let stored = match &kind.custom {
        Some(custom) => custom.storage_version.clone(),
        // The core group is written as an empty one.
        None => match kind.stored_version() {
            core if !core.contains('/') => format!("/{core}"),
            version => version,
        },
    };
    let hash = digest::digest(&digest::SHA256, format!("{stored}/{}", kind.kind).as_bytes());
    STANDARD.encode(&hash.as_ref()[..8])
}

/// Group, version and kind of a subresource's body; both empty for those that the resource stands in.
fn body<'a>(kind: &'a Kind, part: &Subresource) -> (&'a str, &'a str, &'a str) {
    part.body.unwrap_or(("", "", &kind.kind))
}

/// Returns a hash of the content for ETags and URLs (FNV-1a, not cryptographic).
pub(crate) fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016X}")
}
