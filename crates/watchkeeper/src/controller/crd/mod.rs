//! Custom resource definitions at start: installed or upgraded where allowed, checked otherwise.

mod narrowing;
mod schema;
mod upgrade;

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::dynamic::{ApiResource, DynamicObject};
use serde_json::Value;
use tracing::{info, warn};

use self::narrowing::Narrowing;
use self::upgrade::{as_object, serves, upgrade};
use crate::object::{JsonError, ObjectName};
use crate::reflector::Backoff;
use crate::report::WithCauses;
use crate::source::{Client, Requests};
use crate::wire::{ApiError, Class};

/// How long [`ensure`] tries by default.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// What [`ensure`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The definition was missing.
    Created,
    /// The definition was an older one.
    Upgraded,
    /// The definition is as wanted; nothing was written.
    Unchanged,
    /// This program may not write, or not even read, definitions, and the version is served.
    Checked,
}

/// Why a kind cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CrdError {
    /// The definition cannot be encoded.
    #[error("cannot encode custom resource definition {crd}")]
    Encode { crd: String, source: JsonError },
    /// The server does not say what is installed.
    #[error("cannot read custom resource definition {crd}")]
    Read { crd: String, source: ApiError },
    /// The server refuses the definition.
    #[error("cannot create custom resource definition {crd}")]
    Create { crd: String, source: ApiError },
    /// The server refuses the upgrade.
    #[error("cannot upgrade custom resource definition {crd}")]
    Upgrade { crd: String, source: ApiError },
    /// The definition is missing, and this program has no permission to create it.
    #[error(
        "custom resource definition {crd} is not installed, and this program may not create it: install it with \
         `kubectl apply --server-side -f` and its manifest, or allow the program's service account to create \
         customresourcedefinitions.apiextensions.k8s.io"
    )]
    MayNotCreate { crd: String, source: ApiError },
    /// The upgrade would refuse or drop parts of stored objects.
    #[error(
        "custom resource definition {crd} is not upgraded, because {path} would allow less than it does now: {what}; \
         put the change into a new version, or, if no object needs what is lost, replace the definition with kubectl"
    )]
    Narrows { crd: String, path: String, what: String },
    /// The version is not served, and this program has no permission to change that.
    #[error(
        "custom resource definition {crd} does not serve version {version}, and this program may not change it: \
         upgrade it with `kubectl apply --server-side -f` and its manifest"
    )]
    NotServed { crd: String, version: String },
    /// Another definition has the same names.
    #[error("the names of custom resource definition {crd} are not accepted: {message}")]
    NamesNotAccepted { crd: String, message: String },
    /// The deadline has passed.
    #[error("custom resource definition {crd} is not established after {after:?}: {state}")]
    NotEstablished { crd: String, after: Duration, state: String },
}

/// Installs or upgrades a definition, or checks it where this program may not write, and waits until it is established.
///
/// `version` is the one that this program uses. Writes are made under the field manager `manager`. Replicas may run this at the same time.
/// An upgrade never allows less than what is installed. Cancel-safe: whatever was written is complete.
///
/// # Errors
///
/// The definition is missing and may not be created, or the upgrade would narrow it, or the version is not served, or `deadline` has
/// passed.
pub async fn ensure(
    client: &Client,
    wanted: &CustomResourceDefinition,
    version: &str,
    manager: &str,
    deadline: Duration,
) -> Result<Outcome, CrdError> {
    let crd = wanted.metadata.name.clone().unwrap_or_default();
    let object = as_object(wanted)
        .map_err(|error| CrdError::Encode { crd: crd.clone(), source: JsonError::from(error) })?;
    let definition = Definition {
        client,
        requests: client.requests().clone().manager(manager),
        kind: ApiResource::erase::<CustomResourceDefinition>(&()),
        key: ObjectName::cluster(&crd),
        crd,
        wanted: object,
        version,
    };
    definition.ensure(deadline).await
}

struct Definition<'a> {
    client: &'a Client,
    requests: Requests,
    kind: ApiResource,
    key: ObjectName,
    crd: String,
    /// With a `spec`, and without a status.
    wanted: DynamicObject,
    version: &'a str,
}

/// What one attempt came to.
enum Attempt {
    Done(Outcome),
    /// The definition is not established yet, somebody else has written it, or the server is not reachable.
    Again(String),
}

impl Definition<'_> {
    async fn ensure(&self, deadline: Duration) -> Result<Outcome, CrdError> {
        let env = self.client.env();
        let end = env.clock.now() + deadline;
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        // What this program has written: it writes once, lest two programs undo each other's work for ever.
        let mut written = None;
        let mut state = "the API server has not answered".to_owned();
        loop {
            let left = end.saturating_duration_since(env.clock.now());
            match env.clock.timeout(left, self.attempt(&mut written)).await {
                Ok(Ok(Attempt::Done(outcome))) => {
                    info!(crd = %self.crd, ?outcome, "custom resource definition is established");
                    return Ok(outcome);
                }
                Ok(Ok(Attempt::Again(why))) => state = why,
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
            let now = env.clock.now();
            let delay = backoff.draw(now, &env.generator);
            if now + delay >= end {
                return Err(CrdError::NotEstablished { crd: self.crd.clone(), after: deadline, state });
            }
            env.clock.sleep(delay).await;
        }
    }

    async fn attempt(&self, written: &mut Option<Outcome>) -> Result<Attempt, CrdError> {
        let api = self.requests.api_of::<DynamicObject>(self.kind.clone());
        let found = match api.get_opt(&self.key).await {
            Ok(found) => found,
            Err(error) if error.class() == Class::Forbidden => return self.discover(written).await,
            Err(source) => return self.again_or(source, |crd, source| CrdError::Read { crd, source }),
        };
        let Some(found) = found else {
            return match api.create(&self.wanted).await {
                Ok(created) => self.established(&created, *written.insert(Outcome::Created)),
                Err(error) if error.class() == Class::AlreadyExists => again("another program creates it"),
                Err(source) if source.class() == Class::Forbidden => {
                    Err(CrdError::MayNotCreate { crd: self.crd.clone(), source })
                }
                Err(source) => self.again_or(source, |crd, source| CrdError::Create { crd, source }),
            };
        };
        if found.metadata.deletion_timestamp.is_some() {
            return again("it is being deleted");
        }
        if let Some(outcome) = *written {
            return self.established(&found, outcome);
        }
        let Some(upgraded) = self.upgrade_of(&found)? else {
            return self.established(&found, Outcome::Unchanged);
        };
        match api.replace(&upgraded).await {
            Ok(upgraded) => self.established(&upgraded, *written.insert(Outcome::Upgraded)),
            Err(error) if error.class() == Class::Conflict => again("another program changes it"),
            Err(error) if error.class() == Class::NotFound => again("it was deleted"),
            Err(error) if error.class() == Class::Forbidden => self.check(&found, &error),
            Err(source) => self.again_or(source, |crd, source| CrdError::Upgrade { crd, source }),
        }
    }

    fn upgrade_of(&self, found: &DynamicObject) -> Result<Option<DynamicObject>, CrdError> {
        upgrade(found, &self.wanted).map_err(|Narrowing { path, what }| CrdError::Narrows {
            crd: self.crd.clone(),
            path,
            what,
        })
    }

    /// What is installed differs from what is wanted, and may not be changed.
    fn check(&self, found: &DynamicObject, error: &ApiError) -> Result<Attempt, CrdError> {
        if !serves(found, self.version) {
            return Err(self.not_served());
        }
        warn!(
            crd = %self.crd, version = self.version, error = %WithCauses(error),
            "custom resource definition differs from this program's and may not be upgraded"
        );
        self.established(found, Outcome::Checked)
    }

    /// Definitions may not be read: whether the version is served is in the discovery documents, which everybody may read.
    async fn discover(&self, written: &Option<Outcome>) -> Result<Attempt, CrdError> {
        let group = self.wanted.data["spec"]["group"].as_str().unwrap_or_default();
        let plural = self.wanted.data["spec"]["names"]["plural"].as_str().unwrap_or_default();
        let group_version = format!("{group}/{}", self.version);
        match self.client.kube().list_api_group_resources(&group_version).await.map_err(ApiError::from) {
            Ok(list) if list.resources.iter().any(|resource| resource.name == plural) => {
                Ok(Attempt::Done(written.unwrap_or(Outcome::Checked)))
            }
            Ok(_) => Err(self.not_served()),
            Err(error) if error.is_not_found() => Err(self.not_served()),
            Err(source) => self.again_or(source, |crd, source| CrdError::Read { crd, source }),
        }
    }

    fn established(&self, found: &DynamicObject, outcome: Outcome) -> Result<Attempt, CrdError> {
        let condition = |kind: &str| {
            let conditions = found.data["status"]["conditions"].as_array();
            conditions.into_iter().flatten().find(|condition| condition["type"] == kind)
        };
        let text = |condition: &Value| condition["message"].as_str().unwrap_or_default().to_owned();
        if let Some(names) = condition("NamesAccepted").filter(|names| names["status"] == "False") {
            return Err(CrdError::NamesNotAccepted { crd: self.crd.clone(), message: text(names) });
        }
        match condition("Established") {
            Some(established) if established["status"] == "True" => Ok(Attempt::Done(outcome)),
            Some(established) => again(text(established)),
            None => again("it has no condition Established"),
        }
    }

    fn not_served(&self) -> CrdError {
        CrdError::NotServed { crd: self.crd.clone(), version: self.version.to_owned() }
    }

    /// Tries again after an error that may pass.
    fn again_or(
        &self,
        error: ApiError,
        fatal: impl FnOnce(String, ApiError) -> CrdError,
    ) -> Result<Attempt, CrdError> {
        let may_pass = match error.class() {
            Class::TooManyRequests
            | Class::Timeout
            | Class::ConnectionRefused
            | Class::ConnectionLost
            | Class::Unreachable => true,
            _ => error.code().is_some_and(|code| code >= 500),
        };
        if may_pass {
            return again(WithCauses(&error).to_string());
        }
        Err(fatal(self.crd.clone(), error))
    }
}

fn again(why: impl Into<String>) -> Result<Attempt, CrdError> {
    Ok(Attempt::Again(why.into()))
}

#[cfg(test)]
mod tests;
