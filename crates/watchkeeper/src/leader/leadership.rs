//! The leadership of a candidate, as everything around the election sees it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;

use super::status::LeaderStatus;
use crate::clock::BootTime;
use crate::record::{EventRecorder, EventType};
use crate::source::{Client, WriteGate};

/// The leadership of this process, which ends when its work has returned or when it is lost. Clones share it.
#[derive(Clone)]
pub struct Leadership(Arc<Shared>);

struct Shared {
    /// Open while this candidate leads.
    gate: WriteGate,
    status: LeaderStatus,
    recorder: OnceLock<EventRecorder>,
    /// The Lease when it was acquired. Locked while leadership begins, goes on or ends.
    lease: Mutex<Option<ObjectReference>>,
}

impl Leadership {
    pub(super) fn new(gate: WriteGate, status: LeaderStatus, recorder: Option<EventRecorder>) -> Self {
        let recorder = recorder.map(OnceLock::from).unwrap_or_default();
        Self(Arc::new(Shared { gate, status, recorder, lease: Mutex::default() }))
    }

    pub(super) fn record_with(&self, recorder: &EventRecorder) {
        self.0.recorder.get_or_init(|| recorder.clone());
    }

    /// Returns a client like `client` whose writes are refused as soon as this process does not lead; see
    /// [`LeaderElection::guard`](super::LeaderElection::guard).
    #[must_use]
    pub fn guard(&self, client: &Client) -> Client {
        client.gated(&self.0.gate)
    }

    /// Returns who leads.
    pub fn status(&self) -> &LeaderStatus {
        &self.0.status
    }

    /// Ends the writes of guarded clients, and records the event `stopped leading`, before the work returns; the lease is kept until
    /// then. For work that still has something to do that needs no leadership, such as writing its last events.
    pub fn step_down(&self) {
        let Shared { gate, status, lease, .. } = &*self.0;
        let lease = lease.lock();
        gate.close();
        if status.stopped() {
            tracing::info!(identity = status.identity(), "stopped leading");
            if let Some(lease) = &*lease {
                self.record(lease, "stopped leading");
            }
        }
    }

    /// Enters a renewal that was sent at `sent`, by which this candidate leads until then.
    pub(super) fn lead(
        &self,
        sent: BootTime,
        until: BootTime,
        slow_paths: u64,
        reference: impl FnOnce() -> ObjectReference,
    ) {
        let Shared { gate, status, lease, .. } = &*self.0;
        let mut lease = lease.lock();
        // Who has stepped down does not lead again.
        if status.has_led() && !status.is_leader() {
            return;
        }
        gate.open_until(until);
        if status.renewed(sent, slow_paths) {
            let reference = reference();
            tracing::info!(lease = reference.name, identity = status.identity(), "became leader");
            self.record(&reference, "became leader");
            *lease = Some(reference);
            status.set_won();
        }
    }

    pub(super) fn set_leader(&self, leader: &str) {
        if self.0.status.set_leader(leader) {
            tracing::info!(lease = self.0.status.name(), leader, "the lease has another holder");
        }
    }

    /// Returns whether no write of a guarded client may still reach the server.
    pub(super) fn is_settled(&self, memory: Duration) -> bool {
        self.0.gate.is_settled(memory)
    }

    fn record(&self, lease: &ObjectReference, what: &str) {
        if let Some(recorder) = self.0.recorder.get() {
            let message = format!("{} {what}", self.0.status.identity());
            recorder.about_reference(lease.clone()).send(EventType::Normal, "LeaderElection", &message);
        }
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.0.status).finish()
    }
}
