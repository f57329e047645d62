//! Requests about the objects of one kind.

use std::fmt;

use futures::TryStreamExt;
use http::Request;
use kube_core::params::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams};
use kube_core::request::{Error as RequestError, Request as Builder};
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::api_source::{ApiSource, Scope};
use super::path::{collection, name_segment};
use super::requests::Requests;
use super::{ListOptions, ListerWatcher, Selection};
use crate::object::{DecodeError, JsonError, Kind, Listing, Object, ObjectName, decode, name_hint};
use crate::report::WithCauses;
use crate::wire::{ApiError, Class, ListMeta, ListSplitter, Pages, TooLarge};

/// Requests about objects of one kind; see [`Client::api`](super::Client::api).
///
/// Dropping the future of a request stops waiting for it: whether a write was applied is then unknown.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use serde_json::json;
/// # use watchkeeper::{Client, ObjectName};
/// # async fn write(client: Client) -> Result<(), watchkeeper::wire::ApiError> {
/// let maps = client.api::<ConfigMap>();
/// let key = ObjectName::namespaced("default", "settings");
/// if maps.get_opt(&key).await?.is_some() {
///     maps.patch(&key, &kube_core::params::Patch::Merge(json!({"data": {"color": "blue"}}))).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Api<'a, K: Kind> {
    requests: &'a Requests,
    kind: K::DynamicType,
}

/// The number of items in one page of a list.
const PAGE: u32 = 500;

impl<'a, K: Kind> Api<'a, K> {
    pub(super) fn new(requests: &'a Requests, kind: K::DynamicType) -> Self {
        Self { requests, kind }
    }

    /// Reads one object from the server.
    pub async fn get(&self, key: &ObjectName) -> Result<K, ApiError> {
        let (at, name) = self.at(key)?;
        self.exchange(at.get(&name, &GetParams::default())).await
    }

    /// Reads one object from the server; `None` if there is none of that name. A kind that the server does not have is
    /// an error.
    pub async fn get_opt(&self, key: &ObjectName) -> Result<Option<K>, ApiError> {
        match self.get(key).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_missing_object() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the objects of a scope and selection from the server, in pages, each within the deadline of a request.
    ///
    /// Controllers read from the cache of an informer instead; see [`Lister::list`](crate::informer::Lister::list).
    pub async fn list(&self, scope: &Scope, selection: &Selection) -> Result<Listing<K>, ApiError> {
        let source = ApiSource::over::<K>(self.requests, &self.kind, scope).select(selection.clone());
        let (mut options, mut pages) =
            (ListOptions { limit: PAGE, ..ListOptions::default() }, Pages::default());
        let mut items = Vec::new();
        loop {
            let whole = items.len();
            let page = self.requests.within_deadline(self.page(&source, &options, &mut items)).await;
            let meta = match page {
                // The state of the first page has expired: everything is read again in one page, as informers do.
                Err(error) if error.class() == Class::Expired && !options.continue_token.is_empty() => {
                    options = ListOptions::default();
                    items.clear();
                    continue;
                }
                page => page?,
            };
            if meta.continue_token.is_empty() {
                return Ok(items.into_iter().map(|(_, object)| object).collect());
            }
            pages.turn(&meta.continue_token, items.get(whole).map(|(name, _)| name.clone()))?;
            options.continue_token = meta.continue_token;
        }
    }

    /// Reads one page and decodes it while it arrives.
    async fn page(
        &self,
        source: &ApiSource,
        options: &ListOptions,
        items: &mut Vec<(ObjectName, Result<K, DecodeError>)>,
    ) -> Result<ListMeta, ApiError> {
        let mut chunks = source.list(options).await?;
        let mut splitter = ListSplitter::default();
        let mut nameless = 0;
        while let Some(chunk) = chunks.try_next().await? {
            splitter.feed(&chunk, |item| match decoded(item) {
                Some(item) => items.push(item),
                None => nameless += 1,
            })?;
        }
        if nameless > 0 {
            let message = format!("{nameless} items of the list have no metadata.name");
            return Err(ApiError::new(Class::Undecodable, message));
        }
        Ok(splitter.finish()?)
    }

    /// Creates `object` in its namespace.
    pub async fn create(&self, object: &K) -> Result<K, ApiError>
    where
        K: Serialize,
    {
        let path = collection::<K>(&self.kind, object.meta().namespace.as_deref())?;
        self.exchange(Builder::new(path).create(&self.post(), encode(object)?)).await
    }

    /// Replaces an object; if it carries a resource version, only that version.
    pub async fn replace(&self, object: &K) -> Result<K, ApiError>
    where
        K: Serialize,
    {
        let (at, name) = self.at(&named(object)?)?;
        self.exchange(at.replace(&name, &self.post(), encode(object)?)).await
    }

    /// Replaces the status of an object through its status subresource.
    pub async fn replace_status(&self, object: &K) -> Result<K, ApiError>
    where
        K: Serialize,
    {
        self.replace_subresource("status", object).await
    }

    /// Replaces an object through one of its subresources, such as `finalize` of a namespace.
    pub async fn replace_subresource(&self, subresource: &str, object: &K) -> Result<K, ApiError>
    where
        K: Serialize,
    {
        let (at, name) = self.at(&named(object)?)?;
        self.exchange(at.replace_subresource(subresource, &name, &self.post(), encode(object)?)).await
    }

    /// Posts `body` to a subresource of an object, such as `binding` or `eviction` of a Pod. The answer is not read.
    pub async fn create_subresource<B: Serialize>(
        &self,
        subresource: &str,
        key: &ObjectName,
        body: &B,
    ) -> Result<(), ApiError> {
        let (at, name) = self.at(key)?;
        let request = at.create_subresource(subresource, &name, &self.post(), encode(body)?);
        self.requests.send(request?).await.map(drop)
    }

    /// Patches an object.
    pub async fn patch<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectName,
        patch: &Patch<P>,
    ) -> Result<K, ApiError> {
        let (at, name) = self.at(key)?;
        self.exchange(at.patch(&name, &self.patch_params(), patch)).await
    }

    /// Patches the status of an object through its status subresource.
    pub async fn patch_status<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectName,
        patch: &Patch<P>,
    ) -> Result<K, ApiError> {
        let (at, name) = self.at(key)?;
        self.exchange(at.patch_subresource("status", &name, &self.patch_params(), patch)).await
    }

    /// Applies `fields`, with their `apiVersion` and `kind`, by server-side apply, and creates the object if it does
    /// not exist. Fields of other managers are taken over, as controllers should do; to get conflicts as errors
    /// instead, use [`patch`](Self::patch) with [`Patch::Apply`].
    ///
    /// # Errors
    ///
    /// No field manager was set with [`Requests::manager`], or the server refuses.
    pub async fn force_apply<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectName,
        fields: &P,
    ) -> Result<K, ApiError> {
        let (at, name) = self.at(key)?;
        self.exchange(at.patch(&name, &self.force_params()?, &Patch::Apply(fields))).await
    }

    /// Does the same as [`force_apply`](Self::force_apply) through the status subresource.
    pub async fn force_apply_status<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectName,
        fields: &P,
    ) -> Result<K, ApiError> {
        let (at, name) = self.at(key)?;
        let request = at.patch_subresource("status", &name, &self.force_params()?, &Patch::Apply(fields));
        self.exchange(request).await
    }

    /// Deletes an object, or marks it for deletion if it has finalizers.
    pub async fn delete(&self, key: &ObjectName) -> Result<(), ApiError> {
        self.delete_with(key, &DeleteParams::default()).await
    }

    /// Deletes an object with a policy for its dependents, a grace period, or preconditions.
    pub async fn delete_with(&self, key: &ObjectName, params: &DeleteParams) -> Result<(), ApiError> {
        let (at, name) = self.at(key)?;
        self.requests.send(at.delete(&name, params)?).await.map(drop)
    }

    /// Deletes all objects of a namespace, or marks those for deletion that have finalizers or a grace period.
    ///
    /// The server may have deleted some of them if this fails, or if the deadline of a request expires first. Its
    /// answer, which repeats all of them, is read and discarded.
    pub async fn delete_collection(&self, namespace: &str, params: &DeleteParams) -> Result<(), ApiError> {
        let at = Builder::new(collection::<K>(&self.kind, Some(namespace))?);
        self.requests.send_and_discard(at.delete_collection(params, &ListParams::default())?).await
    }

    /// Reads one object from the server, not decoded; `None` where there is none of that name.
    pub(crate) async fn get_object(&self, key: &ObjectName) -> Result<Option<Object<K>>, ApiError> {
        let (at, name) = self.at(key)?;
        match self.requests.send(at.get(&name, &GetParams::default())?).await {
            Ok(body) => Object::from_json(&body).map(Some).map_err(ApiError::undecodable),
            Err(error) if error.is_missing_object() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The request that creates an object in the namespace of `key`.
    pub(crate) fn create_request(
        &self,
        key: &ObjectName,
        body: &Value,
    ) -> Result<Request<Vec<u8>>, ApiError> {
        let path = collection::<K>(&self.kind, key.namespace())?;
        Ok(Builder::new(path).create(&self.post(), body.to_string().into_bytes())?)
    }

    /// The request that replaces an object.
    pub(crate) fn replace_request(
        &self,
        key: &ObjectName,
        body: &Value,
    ) -> Result<Request<Vec<u8>>, ApiError> {
        let (at, name) = self.at(key)?;
        Ok(at.replace(&name, &self.post(), body.to_string().into_bytes())?)
    }

    /// The request that patches an object, or one of its subresources.
    pub(crate) fn patch_request<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectName,
        patch: &Patch<P>,
        subresource: Option<&str>,
    ) -> Result<Request<Vec<u8>>, ApiError> {
        let (at, name) = self.at(key)?;
        let params = match patch {
            Patch::Apply(_) => self.force_params()?,
            _ => self.patch_params(),
        };
        Ok(match subresource {
            Some(subresource) => at.patch_subresource(subresource, &name, &params, patch)?,
            None => at.patch(&name, &params, patch)?,
        })
    }

    /// The request that deletes an object.
    pub(crate) fn delete_request(
        &self,
        key: &ObjectName,
        params: &DeleteParams,
    ) -> Result<Request<Vec<u8>>, ApiError> {
        let (at, name) = self.at(key)?;
        Ok(at.delete(&name, params)?)
    }

    /// Returns the URL of the object's collection, and its name as a segment of a URL.
    fn at(&self, key: &ObjectName) -> Result<(Builder, String), ApiError> {
        let path = collection::<K>(&self.kind, key.namespace())?;
        Ok((Builder::new(path), name_segment(key.name())?))
    }

    fn post(&self) -> PostParams {
        PostParams { field_manager: self.requests.field_manager().map(Into::into), ..PostParams::default() }
    }

    fn patch_params(&self) -> PatchParams {
        PatchParams { field_manager: self.requests.field_manager().map(Into::into), ..PatchParams::default() }
    }

    fn force_params(&self) -> Result<PatchParams, ApiError> {
        if self.requests.field_manager().is_none() {
            let message = "an apply needs a field manager: set one with Requests::manager";
            return Err(ApiError::new(Class::Invalid, message));
        }
        Ok(self.patch_params().force())
    }

    /// As [`create`](Self::create), for a caller that does not read the answer. It must be JSON.
    pub(crate) async fn create_unread(&self, object: &K) -> Result<(), ApiError>
    where
        K: Serialize,
    {
        let path = collection::<K>(&self.kind, object.meta().namespace.as_deref())?;
        self.exchange_unread(Builder::new(path).create(&self.post(), encode(object)?)).await
    }

    /// As [`patch`](Self::patch), for a caller that does not read the answer. It must be JSON.
    pub(crate) async fn patch_unread<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectName,
        patch: &Patch<P>,
    ) -> Result<(), ApiError> {
        let (at, name) = self.at(key)?;
        self.exchange_unread(at.patch(&name, &self.patch_params(), patch)).await
    }

    async fn exchange_unread(&self, request: Result<Request<Vec<u8>>, RequestError>) -> Result<(), ApiError> {
        let body = self.requests.send(request?).await?;
        decode::<IgnoredAny>(&body).map(drop).map_err(ApiError::undecodable)
    }

    async fn exchange(&self, request: Result<Request<Vec<u8>>, RequestError>) -> Result<K, ApiError> {
        let body = self.requests.send(request?).await?;
        decode(&body).map_err(ApiError::undecodable)
    }
}

/// Decodes an item of a list; `None` if it has no name.
fn decoded<K: Kind>(item: Result<&[u8], TooLarge>) -> Option<(ObjectName, Result<K, DecodeError>)> {
    let (key, result) = match item {
        Ok(bytes) => (name_hint(bytes)?, decode(bytes)),
        Err(large) => (large.name.clone()?, Err(JsonError::too_large(&large))),
    };
    let kind = std::any::type_name::<K>();
    Some((key.clone(), result.map_err(|source| DecodeError { key, kind, source })))
}

fn named<K: Kind>(object: &K) -> Result<ObjectName, ApiError> {
    ObjectName::of(object).map_err(|error| ApiError::new(Class::Invalid, WithCauses(&error).to_string()))
}

fn encode<K: Serialize>(object: &K) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(object)
        .map_err(|error| ApiError::new(Class::Invalid, JsonError::from(error).to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::header::USER_AGENT;
    use http::{Response, StatusCode};
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use kube_client::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::env::Env;
    use crate::source::Client;

    fn requests(answer: &'static str) -> (Requests, Arc<Mutex<Vec<String>>>) {
        answering(move |_| (StatusCode::OK, answer.to_owned()))
    }

    /// Returns requests that `answer` answers by path and query, and a record of what was sent.
    fn answering(
        answer: impl Fn(&str) -> (StatusCode, String) + Send + Sync + 'static,
    ) -> (Requests, Arc<Mutex<Vec<String>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            assert!(request.headers()[USER_AGENT].to_str().unwrap().starts_with("tester/1.0 ("));
            log.lock().push(format!("{} {}", request.method(), request.uri()));
            let (code, body) = answer(&request.uri().to_string());
            async move {
                if body == "silence" {
                    std::future::pending::<()>().await;
                }
                let response = Response::builder().status(code).body(Body::from(body.into_bytes()));
                Ok::<_, std::convert::Infallible>(response.unwrap())
            }
        });
        let client = Client::from_kube(kube_client::Client::new(service, "default"), &Env::simulated(1));
        (client.program("tester", "1.0").requests().clone().manager("me"), seen)
    }

    fn config_map() -> ConfigMap {
        serde_json::from_str(r#"{"metadata":{"name":"a","namespace":"ns"}}"#).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_that_cannot_be_encoded_is_refused_without_its_values() {
        #[derive(Debug)]
        struct Secret;
        impl Serialize for Secret {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("the password is hunter2"))
            }
        }
        let (requests, seen) = requests("{}");
        let key = ObjectName::namespaced("ns", "a");
        let error = requests.api::<ConfigMap>().patch(&key, &Patch::Merge(Secret)).await.unwrap_err();
        let text = WithCauses(&error).to_string();
        assert!(text.starts_with("cannot encode the request: ") && !text.contains("hunter2"), "{text}");
        assert_eq!((error.class(), seen.lock().len()), (Class::Invalid, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_create_is_sent_to_the_collection_with_the_field_manager() {
        let (requests, seen) = requests(r#"{"metadata":{"name":"a","namespace":"ns"}}"#);
        requests.api::<ConfigMap>().create(&config_map()).await.unwrap();
        assert_eq!(seen.lock()[..], ["POST /api/v1/namespaces/ns/configmaps?&fieldManager=me"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_ends_at_its_deadline() {
        let (requests, _) = requests("silence");
        let (requests, clock) = (requests.deadline(Duration::from_secs(3)), Env::simulated(1).clock);
        let before = clock.now();
        let error = requests.api::<ConfigMap>().replace(&config_map()).await.unwrap_err();
        assert_eq!(error.class(), Class::Timeout);
        let listing = requests.api::<ConfigMap>().list(&Scope::Cluster, &Selection::default()).await;
        assert_eq!(listing.unwrap_err().class(), Class::Timeout);
        assert_eq!((clock.now() - before).as_secs(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unreadable_answer_is_an_error_without_the_body() {
        let (requests, _) = requests("{\"data\": \"hunter2\"");
        let error = requests.api::<ConfigMap>().create(&config_map()).await.unwrap_err();
        assert_eq!(error.class(), Class::Undecodable);
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_without_a_name_is_not_sent() {
        let (requests, seen) = requests("{}");
        let error = requests.api::<ConfigMap>().replace(&ConfigMap::default()).await.unwrap_err();
        assert_eq!(error.class(), Class::Invalid);
        assert!(seen.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_escaped_and_one_that_is_another_path_is_not_sent() {
        let (requests, seen) = requests("{}");
        let maps = requests.api::<ConfigMap>();
        maps.get(&ObjectName::namespaced("n s", "a?b")).await.unwrap();
        maps.delete(&ObjectName::namespaced("ns", "a#b")).await.unwrap();
        let path = "/api/v1/namespaces";
        assert_eq!(
            seen.lock()[..],
            [format!("GET {path}/n%20s/configmaps/a%3Fb"), format!("DELETE {path}/ns/configmaps/a%23b?")]
        );
        for key in [
            ObjectName::namespaced("ns", ".."),
            ObjectName::cluster("a/b"),
            ObjectName::namespaced("..", "a"),
        ] {
            assert_eq!(maps.get(&key).await.unwrap_err().class(), Class::Invalid, "{key}");
            assert_eq!(maps.delete(&key).await.unwrap_err().class(), Class::Invalid, "{key}");
        }
        let mut map = config_map();
        map.metadata.namespace = Some("../../secrets".into());
        assert_eq!(maps.create(&map).await.unwrap_err().class(), Class::Invalid);
        assert_eq!(maps.replace_status(&map).await.unwrap_err().class(), Class::Invalid);
        assert_eq!(seen.lock().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_not_there_is_none_but_a_kind_that_is_not_there_is_an_error() {
        let (requests, _) = answering(|path| match path.rsplit('/').next() {
            Some("there") => (StatusCode::OK, r#"{"metadata":{"name":"there"}}"#.to_owned()),
            Some("gone") => {
                (StatusCode::NOT_FOUND, r#"{"kind":"Status","code":404,"reason":"NotFound"}"#.to_owned())
            }
            _ => (StatusCode::NOT_FOUND, "404 page not found".to_owned()),
        });
        let nodes = requests.api::<Node>();
        assert!(nodes.get_opt(&ObjectName::cluster("there")).await.unwrap().is_some());
        assert!(nodes.get_opt(&ObjectName::cluster("gone")).await.unwrap().is_none());
        assert!(nodes.get(&ObjectName::cluster("gone")).await.unwrap_err().is_not_found());
        let error = nodes.get_opt(&ObjectName::cluster("kind")).await.unwrap_err();
        assert!(error.to_string().contains("is the kind's CRD installed?"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_apply_takes_fields_from_others_and_needs_a_manager() {
        let (requests, seen) = requests("{}");
        let key = ObjectName::cluster("n1");
        requests.api::<Node>().force_apply(&key, &config_map()).await.unwrap();
        requests.api::<Node>().force_apply_status(&key, &config_map()).await.unwrap();
        let query = "?&force=true&fieldManager=me";
        assert_eq!(
            seen.lock()[..],
            [format!("PATCH /api/v1/nodes/n1{query}"), format!("PATCH /api/v1/nodes/n1/status{query}")]
        );
        let service = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        });
        let client = Client::from_kube(kube_client::Client::new(service, "default"), &Env::simulated(1));
        let error = client.api::<Node>().force_apply(&key, &config_map()).await.unwrap_err();
        assert_eq!(error.class(), Class::Invalid);
        assert!(error.to_string().contains("Requests::manager"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_goes_through_all_pages_and_names_what_it_cannot_read() {
        let (requests, seen) = answering(|path| {
            let (items, token) = if path.contains("continue=two") {
                (r#"{"metadata":{"name":"c","namespace":"ns"},"data":{"k":"hunter2","l":7}}"#, "")
            } else {
                (r#"{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}"#, "two")
            };
            let metadata = format!(r#"{{"resourceVersion":"5","continue":"{token}"}}"#);
            (StatusCode::OK, format!(r#"{{"metadata":{metadata},"items":[{items}]}}"#))
        });
        let selection = Selection { labels: "app=web".into(), ..Selection::default() };
        let listing =
            requests.api::<ConfigMap>().list(&Scope::Namespace("ns".into()), &selection).await.unwrap();
        let (maps, unreadable) = listing.into_parts();
        assert_eq!(
            maps.iter().filter_map(|map| map.metadata.name.as_deref()).collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!(unreadable[0].key, ObjectName::namespaced("ns", "c"));
        assert_eq!(unreadable[0].source.to_string(), "data.l: invalid type, expected a string");
        let path = "GET /api/v1/namespaces/ns/configmaps";
        assert_eq!(
            seen.lock()[..],
            [
                format!("{path}?labelSelector=app%3Dweb&limit=500"),
                format!("{path}?continue=two&labelSelector=app%3Dweb&limit=500")
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_whose_token_expires_is_read_at_once_and_one_that_never_ends_is_given_up() {
        let (requests, seen) = answering(|path| {
            if path.contains("continue=old") {
                return (StatusCode::GONE, r#"{"kind":"Status","code":410,"reason":"Expired"}"#.to_owned());
            }
            let token = if path.contains("limit") { "old" } else { "" };
            let metadata = format!(r#"{{"resourceVersion":"5","continue":"{token}"}}"#);
            (StatusCode::OK, format!(r#"{{"metadata":{metadata},"items":[{{"metadata":{{"name":"a"}}}}]}}"#))
        });
        let listing = requests.api::<ConfigMap>().list(&Scope::Cluster, &Selection::default()).await.unwrap();
        assert_eq!((listing.complete().unwrap().len(), seen.lock().len()), (1, 3));
        let (requests, seen) = self::requests(
            r#"{"metadata":{"resourceVersion":"5","continue":"same"},"items":[{"metadata":{"name":"a"}}]}"#,
        );
        let error =
            requests.api::<ConfigMap>().list(&Scope::Cluster, &Selection::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "the list does not end: page 2 has the continue token of page 1");
        assert_eq!(seen.lock().len(), 2);
    }
}
