//! How do requests leave the process? Through one seam, with a deadline each, where others can listen for writes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use kube_core::params::{DeleteParams, GetParams, Patch, PatchParams, PostParams};
use kube_core::request::{Error as RequestError, Request as Builder};
use parking_lot::RwLock;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::api::checked;
use crate::clock::Clock;
use crate::env::Env;
use crate::object::{JsonError, Kind, Object, ObjectName, ResourceVersion};
use crate::wire::{ApiError, Class};

/// Sends requests other than list and watch to an API server. Clones share client and listeners.
#[derive(Clone)]
pub struct Requests {
    client: Client,
    clock: Clock,
    deadline: Duration,
    manager: Option<Arc<str>>,
    listeners: Arc<RwLock<Vec<Listener>>>,
}

type Listener = Arc<dyn Fn(&Written) + Send + Sync>;

/// A write that the API server has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The path it was sent to, without the query.
    pub path: String,
    /// The key of the object written.
    pub key: ObjectName,
    /// Its uid.
    pub uid: String,
    /// The version that the write gave it.
    pub version: ResourceVersion,
}

impl Requests {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn new(client: Client, env: &Env) -> Self {
        Self {
            client,
            clock: env.clock.clone(),
            deadline: Duration::from_secs(30),
            manager: None,
            listeners: Arc::default(),
        }
    }

    /// Gives up on each request after `deadline`; 30 s by default.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Writes under the field manager `name`.
    #[must_use]
    pub fn manager(mut self, name: &str) -> Self {
        self.manager = Some(name.into());
        self
    }

    /// Calls `listener` with every acknowledged write from now on, before the writer learns of it; it must not block.
    pub fn on_write(&self, listener: impl Fn(&Written) + Send + Sync + 'static) {
        self.listeners.write().push(Arc::new(listener));
    }

    /// Requests about objects of kind `K`, known at compile time.
    pub fn of<K: Kind<DynamicType: Default>>(&self) -> Resources<'_, K> {
        self.of_kind(K::DynamicType::default())
    }

    /// Requests about objects of a kind known at run time.
    pub fn of_kind<K: Kind>(&self, kind: K::DynamicType) -> Resources<'_, K> {
        Resources { requests: self, kind }
    }

    /// Sends one request and reads the whole answer: the one place that does.
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Bytes, ApiError> {
        let is_write = request.method() != Method::GET;
        let path = request.uri().path().to_owned();
        let exchange = async {
            let response =
                self.client.send(request.map(Body::from)).await.map_err(ApiError::from_transport)?;
            let body = checked(response).await?.into_body().collect().await;
            body.map(|body| body.to_bytes()).map_err(ApiError::from_transport)
        };
        let late = |_| ApiError::new(Class::Timeout, format!("no answer within {:?}", self.deadline));
        let body = self.clock.timeout(self.deadline, exchange).await.map_err(late)??;
        if is_write {
            self.tell(path, &body);
        }
        Ok(body)
    }

    fn tell(&self, path: String, body: &[u8]) {
        let listeners = self.listeners.read().clone();
        if listeners.is_empty() {
            return;
        }
        // The answer to a delete may be a Status, which has no name.
        let Ok(object) = Object::<()>::from_json(body) else { return };
        let (key, version) = (object.key(), object.version().clone());
        let written = Written { path, key, uid: object.uid().to_owned(), version };
        listeners.iter().for_each(|listener| listener(&written));
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Requests about objects of one kind. Dropping a request's future gives up waiting: whether a write was applied is then unknown.
#[derive(Debug)]
pub struct Resources<'a, K: Kind> {
    requests: &'a Requests,
    kind: K::DynamicType,
}

impl<K: Kind> Resources<'_, K> {
    /// Reads one object from the server.
    pub async fn get(&self, key: &ObjectName) -> Result<K, ApiError> {
        self.exchange(self.at(key).get(key.name(), &GetParams::default())).await
    }

    /// Creates `object` in its namespace.
    pub async fn create(&self, object: &K) -> Result<K, ApiError>
    where
        K: Serialize,
    {
        let path = K::url_path(&self.kind, object.meta().namespace.as_deref());
        self.exchange(Builder::new(path).create(&self.post(), encode(object)?)).await
    }

    /// Replaces an object; where it carries a resource version, only that version.
    pub async fn replace(&self, object: &K) -> Result<K, ApiError>
    where
        K: Serialize,
    {
        let key = named(object)?;
        self.exchange(self.at(&key).replace(key.name(), &self.post(), encode(object)?)).await
    }

    /// Replaces the status of an object through its status subresource.
    pub async fn replace_status(&self, object: &K) -> Result<K, ApiError>
    where
        K: Serialize,
    {
        let key = named(object)?;
        let request = self.at(&key).replace_subresource("status", key.name(), &self.post(), encode(object)?);
        self.exchange(request).await
    }

    /// Patches an object.
    pub async fn patch<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectName,
        patch: &Patch<P>,
    ) -> Result<K, ApiError> {
        self.exchange(self.at(key).patch(key.name(), &self.patch_params(), patch)).await
    }

    /// Patches the status of an object through its status subresource.
    pub async fn patch_status<P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectName,
        patch: &Patch<P>,
    ) -> Result<K, ApiError> {
        self.exchange(self.at(key).patch_subresource("status", key.name(), &self.patch_params(), patch)).await
    }

    /// Deletes an object, or marks it for deletion if finalizers hold it.
    pub async fn delete(&self, key: &ObjectName) -> Result<(), ApiError> {
        self.delete_with(key, &DeleteParams::default()).await
    }

    /// As [`Resources::delete`], with a policy for what it owns, a grace period, or only in a given state.
    pub async fn delete_with(&self, key: &ObjectName, params: &DeleteParams) -> Result<(), ApiError> {
        let request = self.at(key).delete(key.name(), params);
        self.requests.send(request.map_err(unsendable)?).await.map(drop)
    }

    fn at(&self, key: &ObjectName) -> Builder {
        Builder::new(K::url_path(&self.kind, key.namespace()))
    }

    fn post(&self) -> PostParams {
        PostParams {
            field_manager: self.requests.manager.as_deref().map(Into::into),
            ..PostParams::default()
        }
    }

    fn patch_params(&self) -> PatchParams {
        PatchParams {
            field_manager: self.requests.manager.as_deref().map(Into::into),
            ..PatchParams::default()
        }
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        request: Result<Request<Vec<u8>>, RequestError>,
    ) -> Result<T, ApiError> {
        let body = self.requests.send(request.map_err(unsendable)?).await?;
        serde_json::from_slice(&body).map_err(|error| ApiError::undecodable(JsonError::from(error)))
    }
}

fn named<K: Kind>(object: &K) -> Result<ObjectName, ApiError> {
    ObjectName::of(object).map_err(|error| ApiError::new(Class::Invalid, error.to_string()))
}

fn encode<K: Serialize>(object: &K) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(object)
        .map_err(|error| ApiError::new(Class::Invalid, JsonError::from(error).to_string()))
}

fn unsendable(error: RequestError) -> ApiError {
    ApiError::new(Class::Invalid, format!("cannot build the request: {error}"))
}

#[cfg(test)]
mod tests {
    use http::Response;
    use k8s_openapi::api::core::v1::ConfigMap;
    use parking_lot::Mutex;

    use super::*;

    fn requests(answer: &'static str) -> (Requests, Arc<Mutex<Vec<String>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            log.lock().push(format!("{} {}", request.method(), request.uri()));
            async move {
                if answer == "silence" {
                    std::future::pending::<()>().await;
                }
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(answer.as_bytes().to_vec())))
            }
        });
        (Requests::new(Client::new(service, "default"), &Env::simulated(1)).manager("me"), seen)
    }

    fn config_map() -> ConfigMap {
        serde_json::from_str(r#"{"metadata":{"name":"a","namespace":"ns"}}"#).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_told_to_listeners_before_the_writer_learns_of_it() {
        let (requests, seen) =
            requests(r#"{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"5"}}"#);
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = told.clone();
        requests.on_write(move |written| log.lock().push(written.clone()));
        requests.of::<ConfigMap>().create(&config_map()).await.unwrap();
        requests.of::<ConfigMap>().get(&ObjectName::namespaced("ns", "a")).await.unwrap();
        let path = "/api/v1/namespaces/ns/configmaps";
        assert_eq!(seen.lock()[0], format!("POST {path}?&fieldManager=me"));
        let key = ObjectName::namespaced("ns", "a");
        let written = Written { path: path.into(), key, uid: "u".into(), version: 5.into() };
        assert_eq!(told.lock()[..], [written]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_ends_at_its_deadline() {
        let (requests, _) = requests("silence");
        let requests = requests.deadline(Duration::from_secs(3));
        let before = requests.clock.now();
        let error = requests.of::<ConfigMap>().replace(&config_map()).await.unwrap_err();
        assert_eq!(error.class(), Class::Timeout);
        assert_eq!((requests.clock.now() - before).as_secs(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unreadable_answer_is_an_error_without_the_body() {
        let (requests, _) = requests("{\"data\": \"hunter2\"");
        let error = requests.of::<ConfigMap>().create(&config_map()).await.unwrap_err();
        assert_eq!(error.class(), Class::Undecodable);
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_without_a_name_is_not_sent() {
        let (requests, seen) = requests("{}");
        let error = requests.of::<ConfigMap>().replace(&ConfigMap::default()).await.unwrap_err();
        assert_eq!(error.class(), Class::Invalid);
        assert!(seen.lock().is_empty());
    }
}
