//! What the controller may do: tokens of its service account that are replaced and revoked, and its role.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use http::Request;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use parking_lot::Mutex;
use serde_json::{Value, json};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Client, Env, ObjectName};

use super::world::{apply, insist};
use crate::informer::Failure;

/// The service account, and the namespace that it is in.
const NAME: &str = "sample-controller";
/// Its name as a user.
pub(super) const USER: &str = "system:serviceaccount:sample-controller:sample-controller";

/// The rights of the controller.
#[derive(Debug)]
pub(super) struct Access {
    client: Client,
    env: Env,
    folder: PathBuf,
    /// The Secret that the current token is bound to: the token is void without it.
    current: Mutex<Option<ObjectName>>,
    /// The binding of the role, while it is taken away.
    taken: Mutex<Option<Value>>,
}

impl Access {
    pub(super) fn new(client: &Client, env: &Env, folder: &Path) -> Self {
        let (current, taken) = (Mutex::default(), Mutex::default());
        Self { client: client.clone(), env: env.clone(), folder: folder.to_owned(), current, taken }
    }

    fn token_file(&self) -> PathBuf {
        self.folder.join("token")
    }

    /// A kubeconfig with the file of the token, for the server behind a proxy.
    pub(super) fn kubeconfig(
        &self,
        admin: &Path,
        proxy: SocketAddr,
        number: usize,
    ) -> Result<PathBuf, Failure> {
        let mut config: Value = serde_saphyr::from_str(&fs::read_to_string(admin)?)?;
        config["clusters"][0]["cluster"]["server"] = format!("https://{proxy}").into();
        config["users"][0]["user"] = json!({"tokenFile": self.token_file()});
        let file = self.folder.join(format!("replica-{number}.kubeconfig"));
        // JSON is YAML.
        fs::write(&file, config.to_string())?;
        Ok(file)
    }

    /// Puts a new token into the file, and makes the one before void.
    pub(super) async fn rotate(&self) -> Result<(), Failure> {
        let name = format!("weather-{}", &self.env.generator.uuid()[..8]);
        let key = ObjectName::namespaced(NAME, &name);
        let secret: Secret = serde_json::from_value(json!({"metadata": {"name": name, "namespace": NAME}}))?;
        let made = insist(&self.env, || async {
            match self.client.api::<Secret>().create(&secret).await {
                Err(error) if error.class() == Class::AlreadyExists => {
                    self.client.api::<Secret>().get(&key).await
                }
                outcome => outcome,
            }
        });
        let uid = made.await?.metadata.uid;
        let bound = json!({"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid});
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "boundObjectRef": bound}});
        let path = format!("/api/v1/namespaces/{NAME}/serviceaccounts/{NAME}/token");
        let answer: Value = insist(&self.env, || async {
            let request = Request::post(&path).header("content-type", "application/json");
            // The path is one.
            let request = request.body(body.to_string().into_bytes()).unwrap_or_default();
            self.client.kube().request(request).await.map_err(ApiError::from)
        })
        .await?;
        let token = answer["status"]["token"].as_str().ok_or("the server made no token")?;
        // In one step, as a kubelet does.
        let next = self.folder.join("token.next");
        fs::write(&next, token)?;
        fs::rename(next, self.token_file())?;
        let before = self.current.lock().replace(key);
        if let Some(before) = before {
            insist(&self.env, || self.delete::<Secret>(&before)).await?;
        }
        Ok(())
    }

    /// Takes the role away.
    pub(super) async fn take(&self) -> Result<(), Failure> {
        let key = ObjectName::cluster(NAME);
        let binding = insist(&self.env, || async { self.client.api::<ClusterRoleBinding>().get(&key).await });
        let binding = binding.await?;
        let (role, subjects) = (json!(binding.role_ref), json!(binding.subjects));
        *self.taken.lock() =
            Some(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME}, "roleRef": role, "subjects": subjects}));
        Ok(insist(&self.env, || self.delete::<ClusterRoleBinding>(&key)).await?)
    }

    /// Gives the role back, if it was taken away.
    pub(super) async fn give_back(&self) -> Result<(), Failure> {
        let taken = self.taken.lock().take();
        if let Some(binding) = taken {
            insist(&self.env, || apply(&self.client, &binding)).await?;
        }
        Ok(())
    }

    async fn delete<K: watchkeeper::Kind<DynamicType: Default>>(
        &self,
        key: &ObjectName,
    ) -> Result<(), ApiError> {
        match self.client.api::<K>().delete(key).await {
            Err(error) if error.is_missing_object() => Ok(()),
            outcome => outcome,
        }
    }
}
