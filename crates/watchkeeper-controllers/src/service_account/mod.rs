//! Identity in namespaces: the `default` service account, the `kube-root-ca.crt` config map, and aggregated cluster roles.

mod aggregation;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, View, Watch};
use watchkeeper::{Client, Kind, Object, ObjectName};

/// The name of the manager: the field manager of its writes.
const NAME: &str = "kube-controller-manager";
const ACCOUNT: &str = "default";
const AUTHORITY: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
/// The delay before the controllers are started again after a failure.
const RESTART: Duration = Duration::from_secs(1);

/// What runs, and for which server.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Whether each namespace gets the service account `default`.
    pub accounts: bool,
    /// The CA certificates of the server as PEM, which each namespace gets in the config map `kube-root-ca.crt`; none if it
    /// is empty.
    pub authority: String,
    /// Whether cluster roles with an `aggregationRule` get the rules of those that it selects.
    pub aggregation: bool,
}

/// Registers the controllers that `options` selects with `manager`.
///
/// # Errors
///
/// The manager has a controller of the same name.
pub fn register(manager: &mut Manager, options: &Options) -> Result<(), SetupError> {
    if options.accounts {
        Controller::<Namespace>::new(manager)
            .named("serviceaccount")
            .component("service-account-controller")
            .watches(Watch::<ServiceAccount>::new().fields("metadata.name=default"), namespace_of)
            .reconcile(ensure_account)?;
    }
    if !options.authority.is_empty() {
        let authority: Arc<str> = options.authority.as_str().into();
        Controller::<Namespace>::new(manager)
            .named("root-ca-certificate-publisher")
            .component("root-ca-cert-publisher")
            .watches(Watch::<ConfigMap>::new().fields("metadata.name=kube-root-ca.crt"), namespace_of)
            .reconcile(move |namespace, cx| publish_authority(namespace, cx, authority.clone()))?;
    }
    if options.aggregation {
        aggregation::register(manager)?;
    }
    Ok(())
}

/// Runs the controllers that `options` selects until `stop`. If one fails, that is reported, and they start again.
///
/// Returns when everything has ended. Dropping the future ends everything too.
pub async fn run(client: &Client, options: &Options, stop: CancellationToken) {
    let selects_any = options.accounts || options.aggregation || !options.authority.is_empty();
    while selects_any && !stop.is_cancelled() {
        let mut manager = Manager::builder(NAME, client).resync(Duration::ZERO).build();
        let failure = match register(&mut manager, options) {
            Ok(()) => manager.run(stop.child_token()).await.err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = failure {
            tracing::error!(error, "the controllers of service accounts failed");
            let _stopped = stop.run_until_cancelled(client.env().clock.sleep(RESTART)).await;
        }
    }
}

/// The namespace of an object.
fn namespace_of<W: Kind>(object: &Object<W>, _: &View<'_, Namespace>) -> Vec<ObjectName> {
    object.namespace().map(ObjectName::cluster).into_iter().collect()
}

/// Returns the name of a namespace that new objects may be created in.
fn open(namespace: &Namespace) -> Option<&str> {
    namespace.metadata.name.as_deref().filter(|_| namespace.metadata.deletion_timestamp.is_none())
}

fn named(namespace: &str, name: &str) -> ObjectMeta {
    let mut metadata = ObjectMeta::default();
    (metadata.namespace, metadata.name) = (Some(namespace.to_owned()), Some(name.to_owned()));
    metadata
}

async fn ensure_account(namespace: Arc<Namespace>, cx: Context<Namespace>) -> Result<Action, Error> {
    let Some(name) = open(&namespace) else { return Ok(Action::done()) };
    if cx.get_at::<ServiceAccount>(&ObjectName::namespaced(name, ACCOUNT))?.is_none() {
        let account = ServiceAccount { metadata: named(name, ACCOUNT), ..ServiceAccount::default() };
        cx.unowned().create(&account).await?;
    }
    Ok(Action::done())
}

async fn publish_authority(
    namespace: Arc<Namespace>,
    cx: Context<Namespace>,
    authority: Arc<str>,
) -> Result<Action, Error> {
    let Some(name) = open(&namespace) else { return Ok(Action::done()) };
    let data = BTreeMap::from([("ca.crt".to_owned(), authority.to_string())]);
    let found = cx.get_at::<ConfigMap>(&ObjectName::namespaced(name, AUTHORITY))?;
    let mut map = found.as_deref().cloned().unwrap_or_default();
    if found.is_some() && map.data.as_ref() == Some(&data) {
        return Ok(Action::done());
    }
    map.data = Some(data);
    let text = "The CA certificates of the API server, with which pods verify it.".to_owned();
    map.metadata.annotations.get_or_insert_default().insert(DESCRIPTION.to_owned(), text);
    let cx = cx.unowned();
    match found {
        Some(_) => cx.replace(&map).await?,
        None => {
            let annotations = map.metadata.annotations.take();
            map.metadata = ObjectMeta { annotations, ..named(name, AUTHORITY) };
            cx.create(&map).await?
        }
    };
    Ok(Action::done())
}
