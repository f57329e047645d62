//! Discovery: whether the API server serves a kind.

use http::Request;
use serde::Deserialize;

use super::requests::Requests;
use crate::object::Kind;
use crate::wire::{ApiError, Class};

/// The question whether a kind is served.
#[derive(Clone, Debug)]
pub(super) struct Discovery {
    /// The page about the kind's group and version.
    path: String,
    plural: String,
}

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}

impl Discovery {
    pub(super) fn of<K: Kind>(kind: &K::DynamicType) -> Self {
        let (group, version) = (K::group(kind), K::version(kind));
        let path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        Self { path, plural: K::plural(kind).into_owned() }
    }

    /// Asks the server. An error is no answer: a server that cannot be asked may serve the kind.
    pub(super) async fn ask(&self, requests: &Requests) -> Result<bool, ApiError> {
        let request = Request::get(&self.path).body(Vec::new());
        let request = request
            .map_err(|error| ApiError::new(Class::Invalid, format!("cannot build the request: {error}")))?;
        match requests.send(request).await {
            Ok(body) => {
                let found: Resources = serde_json::from_slice(&body).map_err(ApiError::undecodable)?;
                Ok(found.resources.iter().any(|resource| resource.name == self.plural))
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
