//! The canonical state of a run, computed again only when something has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use watchkeeper_apiserver::ApiServer;

use crate::canonical::{State, dotted};
use crate::outside::Outside;
use crate::site::is_noise;

/// A look at the cluster and the world outside. A run looks several times, mostly at the same.
#[derive(Default)]
pub(crate) struct View(Mutex<Option<Look>>);

struct Look {
    /// Kept, so that equal addresses mean equal texts.
    objects: Vec<(String, Bytes)>,
    outside: BTreeMap<String, Value>,
    state: Arc<State>,
}

impl View {
    /// The state now.
    pub(crate) fn state(&self, server: &ApiServer, outside: &Outside) -> Arc<State> {
        let (mut objects, outside) = (server.objects(), outside.values());
        objects.retain(|(resource, _)| !is_noise(&dotted(resource)));
        let mut last = self.0.lock();
        match &*last {
            Some(look) if are_same(&look.objects, &objects) && look.outside == outside => look.state.clone(),
            _ => {
                let texts = objects.iter().map(|(resource, json)| (resource.as_str(), json.as_ref()));
                let state = Arc::new(State::of(texts, outside.clone()));
                *last = Some(Look { objects, outside, state: state.clone() });
                state
            }
        }
    }
}

/// Whether these are the same texts in memory. A server shares the text of a version among all who read it.
fn are_same(one: &[(String, Bytes)], other: &[(String, Bytes)]) -> bool {
    let is_same = |((resource, json), (again, text)): (&(String, Bytes), &(String, Bytes))| {
        resource == again && json.as_ptr() == text.as_ptr() && json.len() == text.len()
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}
