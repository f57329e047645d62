//! The objects of a cluster, for invariants.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use watchkeeper::Kind;
use watchkeeper_apiserver::ApiServer;

/// The objects of a cluster at one moment.
#[derive(Debug)]
pub struct Objects(Vec<(String, Bytes)>);

impl Objects {
    pub(crate) fn new(server: &ApiServer) -> Self {
        Self(server.objects())
    }

    /// All objects of a kind, in all namespaces. Those that cannot be decoded are left out.
    pub fn list<K: Kind<DynamicType: Default> + DeserializeOwned>(&self) -> Vec<K> {
        let kind = K::DynamicType::default();
        let (group, plural) = (K::group(&kind), K::plural(&kind));
        let resource = format!("{group}/{plural}");
        let of_kind = self.0.iter().filter(|(id, _)| *id == resource);
        of_kind.filter_map(|(_, json)| serde_json::from_slice(json).ok()).collect()
    }
}

/// Something that must hold after every change.
#[derive(Clone)]
pub(crate) struct Invariant {
    pub(crate) name: String,
    pub(crate) holds: Arc<Holds>,
}

type Holds = dyn Fn(&Objects) -> Result<(), String> + Send + Sync;

impl fmt::Debug for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Invariant").field(&self.name).finish()
    }
}
