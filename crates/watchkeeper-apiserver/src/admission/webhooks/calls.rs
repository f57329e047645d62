//! The calls of one request, by their content.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::task::JoinSet;
use watchkeeper::clock::Clock;

use crate::admission::webhooks::client;
use crate::admission::webhooks::target::Target;
use crate::state::core::Core;

/// The SHA-256 of a target and of what is asked.
type Id = Vec<u8>;

/// A call to make.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) target: Target,
    pub(super) timeout: Duration,
    pub(super) body: Bytes,
}

/// The answer to a call, or why there is none.
pub(super) type Answer = Result<Bytes, String>;

/// The calls of one request.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    made: BTreeMap<Id, Arc<Answer>>,
    missing: BTreeMap<Id, Call>,
}

impl Calls {
    /// Returns the answer of a call, or enters it among those to make.
    pub(super) fn answer(&self, call: Call) -> Option<Arc<Answer>> {
        let mut state = self.state.lock();
        let mut text = call.target.url(call.timeout).into_bytes();
        text.extend_from_slice(&call.body);
        let id = digest(&SHA256, &text).as_ref().to_vec();
        if let Some(answer) = state.made.get(&id) {
            return Some(answer.clone());
        }
        state.missing.insert(id, call);
        None
    }

    /// Makes the calls that were entered, all at a time. Returns whether there were any.
    pub(crate) async fn make(&self, core: &Arc<Mutex<Core>>, clock: &Clock) -> bool {
        let missing = std::mem::take(&mut self.state.lock().missing);
        let any = !missing.is_empty();
        let mut running = JoinSet::new();
        for (id, call) in missing {
            let (core, clock) = (core.clone(), clock.clone());
            running.spawn(async move { (id, client::send(&call, &core, &clock).await) });
        }
        while let Some(ended) = running.join_next().await {
            // A call that panicked has no answer, and is made again.
            if let Ok((id, answer)) = ended {
                self.state.lock().made.insert(id, Arc::new(answer));
            }
        }
        any
    }
}
