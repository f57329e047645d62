//! Creation and deletion of the Pods of a workload.

use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use watchkeeper::Kind;
use watchkeeper::controller::{Context, Error, WriteError};
use watchkeeper::record::EventType;
use watchkeeper::wire::Class;

/// The failure to create or delete a Pod.
#[derive(Debug)]
pub(crate) struct Failure {
    /// `FailedCreate` or `FailedDelete`.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// A failure for the status, and what becomes of the reconcile.
pub(crate) type Failed = (Failure, Error);

/// Creates Pods in batches that grow as long as the server accepts them, and adds them to `pods`; stops at the first batch with a
/// failure.
pub(crate) async fn create_pods<K: Kind>(
    cx: &Context<K>,
    new: impl IntoIterator<Item = Pod>,
    pods: &mut Vec<Arc<Pod>>,
) -> Result<(), Failed> {
    let (mut new, mut size) = (new.into_iter(), 1);
    loop {
        let batch: Vec<_> = new.by_ref().take(size).collect();
        if batch.is_empty() {
            return Ok(());
        }
        let made = join_all(batch.iter().map(|pod| cx.create(pod)));
        let mut failed = None;
        for result in made.await {
            match result {
                Ok(pod) => {
                    let name = pod.metadata.name.as_deref().unwrap_or_default();
                    cx.event(EventType::Normal, "SuccessfulCreate", &format!("Created pod: {name}"));
                    pods.push(pod);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(failure(cx, "FailedCreate", "creating", error));
        }
        size *= 2;
    }
}

/// Deletes Pods, and takes them out of `pods`.
pub(crate) async fn delete_pods<K: Kind>(
    cx: &Context<K>,
    surplus: &[Arc<Pod>],
    pods: &mut Vec<Arc<Pod>>,
) -> Result<(), Failed> {
    let names = surplus.iter().map(|pod| pod.metadata.name.clone().unwrap_or_default());
    let deleted = join_all(names.map(|name| async move {
        let outcome = cx.delete::<Pod>(&name).await;
        (name, outcome)
    }));
    let mut failed = None;
    for (name, outcome) in deleted.await {
        match outcome {
            Ok(was_there) => {
                if was_there {
                    cx.event(EventType::Normal, "SuccessfulDelete", &format!("Deleted pod: {name}"));
                }
                pods.retain(|pod| pod.metadata.name.as_deref() != Some(&name));
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) => Err(failure(cx, "FailedDelete", "deleting", error)),
        None => Ok(()),
    }
}

fn failure<K: Kind>(cx: &Context<K>, reason: &'static str, doing: &str, error: WriteError) -> Failed {
    let message = match &error {
        WriteError::Api { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    // A name that is taken, and a lost answer, say nothing about what the user asked for.
    let is_news = !matches!(&error, WriteError::Api { source, .. }
        if matches!(source.class(), Class::AlreadyExists | Class::Conflict));
    if is_news {
        cx.event(EventType::Warning, reason, &format!("Error {doing}: {message}"));
    }
    (Failure { reason, message }, error.into())
}
