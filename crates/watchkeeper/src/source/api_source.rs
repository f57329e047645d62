//! Lists and watches of an API server, through kube's `Client::send`, with the body left as bytes.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::Request;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http_body_util::BodyExt;
use kube_client::client::Body;
use kube_core::ClusterResourceScope;

use super::discovery::Discovery;
use super::path::{BadName, collection};
use super::requests::Requests;
use super::until_renewed::until_renewed;
use super::{ByteStream, Client, ListOptions, ListerWatcher, Selection, VersionMatch, WatchOptions};
use crate::object::Kind;
use crate::report::panic_message;
use crate::wire::{ApiError, Class};

/// The time that a streamed list is given to be complete after its credentials have been replaced.
const LIST_PATIENCE: Duration = Duration::from_secs(60);

/// A part of a cluster: all of it, or one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// The whole cluster.
    #[default]
    Cluster,
    /// One namespace; the empty one is the whole cluster, as in the Kubernetes API.
    Namespace(String),
}

impl Scope {
    /// Returns the namespace, if the scope is one.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Cluster => None,
            Self::Namespace(namespace) => Some(namespace.as_str()).filter(|namespace| !namespace.is_empty()),
        }
    }

    /// Returns the scope for objects of kind `K`: for a kind that is cluster-scoped by its type, always the cluster.
    pub(crate) fn of_kind<K: Kind>(&self) -> Self {
        let has_none = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        let namespace = self.namespace().filter(|_| !has_none);
        namespace.map_or(Self::Cluster, |namespace| Self::Namespace(namespace.to_owned()))
    }
}

/// One kind on an API server, cluster-wide or in one namespace, all objects or those of a selection.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::Pod;
/// # use watchkeeper::{Client, SharedInformer};
/// # use watchkeeper::source::{ApiSource, Scope, Selection};
/// # fn start(client: &Client) {
/// let web = Selection { labels: "app=web".into(), ..Selection::default() };
/// let source = ApiSource::new::<Pod>(client, &(), &Scope::Namespace("default".into())).select(web);
/// let informer = SharedInformer::<Pod>::builder(source, client.env()).build();
/// # }
/// ```
#[derive(Clone)]
pub struct ApiSource {
    requests: Requests,
    path: Result<String, BadName>,
    discovery: Discovery,
    selection: Selection,
    edit: Option<Edit>,
    metadata_only: bool,
}

/// A hook on the options of every list and watch.
pub(crate) type Edit = Arc<dyn Fn(&mut Query) + Send + Sync>;

/// The options of one list or watch, by their names in the URL, for a hook to edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(BTreeMap<&'static str, String>);

impl Query {
    /// Returns the value of an option.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Sets an option; an empty value removes it.
    pub fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.insert(name, value.into());
    }

    /// Returns whether the request is a watch.
    pub fn is_watch(&self) -> bool {
        self.get("watch") == Some("true")
    }
}

impl ApiSource {
    /// Returns a source of all objects of kind `K` in `scope`. For a kind that is cluster-scoped by its type, the scope
    /// is always the cluster.
    pub fn new<K: Kind>(client: &Client, kind: &K::DynamicType, scope: &Scope) -> Self {
        Self::over::<K>(client.requests(), kind, scope)
    }

    pub(super) fn over<K: Kind>(requests: &Requests, kind: &K::DynamicType, scope: &Scope) -> Self {
        let path = collection::<K>(kind, scope.of_kind::<K>().namespace());
        let (requests, selection) = (requests.clone(), Selection::default());
        let discovery = Discovery::of::<K>(kind);
        Self { requests, path, discovery, selection, edit: None, metadata_only: K::metadata_api() }
    }

    /// Calls `edit` with the options of every list and watch before it is sent.
    #[must_use]
    pub fn edit_options(self, edit: impl Fn(&mut Query) + Send + Sync + 'static) -> Self {
        self.edit_options_with(Arc::new(edit))
    }

    pub(crate) fn edit_options_with(mut self, edit: Edit) -> Self {
        self.edit = Some(edit);
        self
    }

    /// Restricts the source to the objects of `selection`.
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Only the metadata of objects.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    async fn get(&self, query: Query, metadata_only: bool) -> Result<ByteStream, ApiError> {
        let (is_watch, starts_with_list) = (query.is_watch(), query.get("sendInitialEvents").is_some());
        // Not every aggregated API server can send metadata only: it sends whole objects instead.
        let accept = match (self.metadata_only || metadata_only, query.is_watch()) {
            (false, _) => "application/json",
            (true, true) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            (true, false) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
            }
        };
        let request = Request::get(self.url(query)?)
            .header(ACCEPT, accept)
            // A compressed watch would sit in the compressor's buffer, and lists usually cross a short distance.
            .header(ACCEPT_ENCODING, "identity")
            .body(Body::empty())
            .map_err(|error| ApiError::new(Class::Invalid, format!("cannot build the request: {error}")))?;
        let response = self.requests.exchange(request).await?;
        let renewal = self.requests.renewal(&response).filter(|_| is_watch);
        let chunks = response.into_body().into_data_stream();
        let chunks = Box::pin(chunks.map(|chunk| chunk.map_err(ApiError::from_transport)));
        let Some(renewal) = renewal else { return Ok(chunks) };
        let clock = self.requests.clock().clone();
        Ok(until_renewed(chunks, async move {
            renewal.await;
            if starts_with_list {
                clock.sleep(LIST_PATIENCE).await;
            }
        }))
    }

    /// Returns the path with `query` and the selection; empty values are omitted. An edit that panics gives an error.
    fn url(&self, mut query: Query) -> Result<String, ApiError> {
        query.set("labelSelector", self.selection.labels.as_str());
        query.set("fieldSelector", self.selection.fields.as_str());
        if let Some(edit) = &self.edit {
            catch_unwind(AssertUnwindSafe(|| edit(&mut query))).map_err(|payload| {
                let why = panic_message(payload.as_ref());
                ApiError::new(Class::Other, format!("the hook on options panicked: {why}"))
            })?;
        }
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        pairs.extend_pairs(query.0.iter().filter(|(_, value)| !value.is_empty()));
        Ok(format!("{}?{}", self.path.clone()?, pairs.finish()))
    }
}

impl ListerWatcher for ApiSource {
    async fn list(&self, options: &ListOptions) -> Result<ByteStream, ApiError> {
        let mut query = Query::default();
        if options.limit > 0 {
            query.set("limit", options.limit.to_string());
        }
        query.set("continue", options.continue_token.as_str());
        if !options.version.is_unset() {
            query.set("resourceVersion", options.version.to_string());
            query.set(
                "resourceVersionMatch",
                match options.version_match {
                    VersionMatch::NotOlderThan => "NotOlderThan",
                    VersionMatch::Exact => "Exact",
                },
            );
        }
        self.get(query, options.metadata_only).await
    }

    async fn watch(&self, options: &WatchOptions) -> Result<ByteStream, ApiError> {
        let mut query = Query::default();
        query.set("watch", "true");
        query.set("resourceVersion", options.version.to_string());
        query.set("timeoutSeconds", options.timeout.as_secs().to_string());
        query.set("allowWatchBookmarks", options.bookmarks.to_string());
        if options.initial_events {
            query.set("sendInitialEvents", "true");
            query.set("resourceVersionMatch", "NotOlderThan");
        }
        self.get(query, false).await
    }

    async fn is_served(&self) -> Result<bool, ApiError> {
        self.discovery.ask(&self.requests).await
    }
}

impl fmt::Debug for ApiSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiSource").field("path", &self.path).field("selection", &self.selection).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::Response;
    use http::header::{RETRY_AFTER, USER_AGENT};
    use k8s_openapi::api::core::v1::Pod;
    use kube_core::dynamic::{ApiResource, DynamicObject};
    use kube_core::gvk::GroupVersionKind;
    use kube_core::metadata::PartialObjectMeta;
    use parking_lot::Mutex;

    use super::*;
    use crate::env::Env;
    use crate::object::ResourceVersion;

    fn around(kube: kube_client::Client) -> Client {
        Client::from_kube(kube, &Env::simulated(1)).program("tester", "1.0")
    }

    /// Returns a client that answers every request with `code` and `body`, and a record of the requests.
    fn client(code: u16, body: &'static str) -> (Client, Arc<Mutex<Vec<String>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            assert!(request.headers()[USER_AGENT].to_str().unwrap().starts_with("tester/1.0 ("));
            log.lock().push(request.uri().to_string());
            let response = Response::builder().status(code).header(RETRY_AFTER, "4");
            async move { Ok::<_, Infallible>(response.body(Body::from(body.as_bytes().to_vec())).unwrap()) }
        });
        (around(kube_client::Client::new(service, "default")), seen)
    }

    async fn read(mut stream: ByteStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk.unwrap());
        }
        bytes
    }

    #[tokio::test]
    async fn a_list_asks_for_pages_of_a_selection_in_a_namespace() {
        let (client, seen) = client(200, "body");
        let selection = Selection { labels: "app in (a,b)".into(), fields: "spec.nodeName=n1".into() };
        let source = ApiSource::new::<Pod>(&client, &(), &Scope::Namespace("ns".into())).select(selection);
        let options = ListOptions { limit: 500, continue_token: "t+/=".into(), ..ListOptions::default() };
        assert_eq!(read(source.list(&options).await.unwrap()).await, b"body");
        let expected = "/api/v1/namespaces/ns/pods?continue=t%2B%2F%3D&fieldSelector=spec.nodeName%3Dn1&labelSelector=app+in+%28a%2Cb%29&limit=500";
        assert_eq!(seen.lock()[..], [expected]);
    }

    #[tokio::test]
    async fn the_empty_namespace_is_all_of_them() {
        let (client, seen) = client(200, "");
        let source = ApiSource::new::<Pod>(&client, &(), &Scope::Namespace(String::new()));
        source.list(&ListOptions { limit: 7, ..ListOptions::default() }).await.map(drop).unwrap();
        assert_eq!(seen.lock()[..], ["/api/v1/pods?limit=7"]);
    }

    #[tokio::test]
    async fn a_namespace_is_escaped_and_one_that_is_another_path_is_not_asked_for() {
        let (client, seen) = client(200, "");
        let source =
            |namespace: &str| ApiSource::new::<Pod>(&client, &(), &Scope::Namespace(namespace.into()));
        source("a?b").list(&ListOptions::default()).await.map(drop).unwrap();
        for namespace in ["..", "ns/secrets", "%2e"] {
            let error = source(namespace).list(&ListOptions::default()).await.map(drop).unwrap_err();
            assert_eq!(error.class(), Class::Invalid);
            assert!(error.to_string().contains(namespace), "{error}");
        }
        assert_eq!(seen.lock()[..], ["/api/v1/namespaces/a%3Fb/pods?"]);
    }

    #[tokio::test]
    async fn a_watch_of_a_kind_known_at_run_time_asks_for_what_follows_a_version() {
        let (client, seen) = client(200, "");
        let foo = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
        let source = ApiSource::new::<DynamicObject>(&client, &foo, &Scope::Cluster);
        let options = WatchOptions {
            version: ResourceVersion::from(7),
            timeout: std::time::Duration::from_secs(301),
            bookmarks: true,
            initial_events: false,
        };
        source.watch(&options).await.map(drop).unwrap();
        let streamed = WatchOptions { initial_events: true, version: ResourceVersion::UNSET, ..options };
        source.watch(&streamed).await.map(drop).unwrap();
        let watch = "/apis/example.com/v1/foos?allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=301&watch=true";
        let stream = "/apis/example.com/v1/foos?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=301&watch=true";
        assert_eq!(seen.lock()[..], [watch, stream]);
    }

    #[tokio::test]
    async fn metadata_alone_is_asked_for_where_the_type_is_metadata() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            log.lock().push(request.headers()[ACCEPT].to_str().unwrap().to_owned());
            async { Ok::<_, Infallible>(Response::new(Body::empty())) }
        });
        let client = around(kube_client::Client::new(service, "default"));
        let source = ApiSource::new::<PartialObjectMeta<Pod>>(&client, &(), &Scope::Cluster);
        source.list(&ListOptions::default()).await.map(drop).unwrap();
        source.watch(&WatchOptions::default()).await.map(drop).unwrap();
        let accept = |kind: &str| format!("application/json;as={kind};g=meta.k8s.io;v=v1,application/json");
        assert_eq!(seen.lock()[..], [accept("PartialObjectMetadataList"), accept("PartialObjectMetadata")]);
    }

    #[tokio::test]
    async fn a_hook_edits_the_options_of_every_request() {
        let (client, seen) = client(200, "");
        let source = ApiSource::new::<Pod>(&client, &(), &Scope::Cluster).edit_options(|query| {
            assert!(query.is_watch() || query.get("limit") == Some("9"));
            query.set("limit", "");
            query.set("shardSelector", "mine");
        });
        let exact = ListOptions {
            version: 5.into(),
            version_match: VersionMatch::Exact,
            limit: 9,
            ..ListOptions::default()
        };
        source.list(&exact).await.map(drop).unwrap();
        assert_eq!(
            seen.lock()[..],
            ["/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact&shardSelector=mine"]
        );
    }

    #[tokio::test]
    async fn an_answer_that_is_no_success_becomes_a_typed_error() {
        let (client, _) =
            client(429, r#"{"kind":"Status","reason":"TooManyRequests","message":"slow","code":429}"#);
        let source = ApiSource::new::<Pod>(&client, &(), &Scope::Cluster);
        let error = source.list(&ListOptions::default()).await.map(drop).unwrap_err();
        assert_eq!((error.class(), error.retry_after().unwrap().as_secs()), (Class::TooManyRequests, 4));
    }
}
