//! The context of a reconcile: reads from caches, and writes that the next reconcile is sure to see.
//!
//! `read.rs` reads, `write.rs` has the one way of all writes, `apply.rs` and `status.rs` write only what differs, `condition.rs`
//! makes conditions.

mod apply;
mod condition;
mod read;
mod status;
mod write;

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;

pub use self::condition::Conditions;
pub use self::read::{Live, ReadError};
pub(super) use self::read::{is_cluster_scoped, is_scope_unknown};
pub use self::write::WriteError;
use super::applied::Applied;
use super::caches::Caches;
use super::writes::Writes;
use crate::env::Env;
use crate::object::{Kind, Object, ObjectName};
use crate::record::{EventRecorder, EventType};
use crate::source::Requests;
use crate::workqueue::TriggerRecord;

/// What a reconcile of one object of kind `K` reads from and writes through. Clones share it.
///
/// Reads come from the caches of the manager's informers and do not wait. Writes go to the server with the controller's field
/// manager and a deadline. Each write is remembered under the object's key: reads of this context show it at once, and the
/// object's next reconcile does not start before the caches have seen it.
pub struct Context<K: Kind>(Arc<Inner<K>>);

struct Inner<K: Kind> {
    shared: Arc<Shared<K>>,
    key: ObjectName,
    attempt: u32,
    triggers: Arc<[TriggerRecord]>,
    /// The main object as this run saw or wrote it last; none where it is gone.
    main: Arc<Mutex<Option<Object<K>>>>,
    /// Whether writes set and check owner references.
    owning: bool,
}

/// What the contexts of one controller share.
pub(super) struct Shared<K: Kind> {
    /// The controller's name.
    pub(super) name: Arc<str>,
    pub(super) kind: K::DynamicType,
    pub(super) env: Env,
    pub(super) requests: Requests,
    pub(super) caches: Arc<Caches>,
    pub(super) writes: Writes,
    pub(super) applied: Applied,
    pub(super) recorder: EventRecorder,
}

impl<K: Kind> Context<K> {
    pub(super) fn new(
        shared: &Arc<Shared<K>>,
        key: &ObjectName,
        attempt: u32,
        triggers: Vec<TriggerRecord>,
    ) -> Self {
        let (shared, key, main) = (shared.clone(), key.clone(), Arc::default());
        Self(Arc::new(Inner { shared, key, attempt, triggers: triggers.into(), main, owning: true }))
    }

    /// The key of the object that is reconciled.
    pub fn key(&self) -> &ObjectName {
        &self.0.key
    }

    /// How often the key was retried since its last success.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// What led to this run, the newest first: at most four triggers, such as `Deployment default/web changed (version 7)`.
    ///
    /// For logs and metrics. What to do follows from the state of the objects alone: triggers collapse, and after a restart
    /// every object has one from the initial list.
    pub fn triggers(&self) -> &[TriggerRecord] {
        &self.0.triggers
    }

    /// The clock, generator and reporter of the controller.
    pub fn env(&self) -> &Env {
        &self.0.shared.env
    }

    /// The same context, whose writes neither set nor check owner references: for objects that outlive the main object, are
    /// shared, or are in another namespace.
    #[must_use]
    pub fn unowned(&self) -> Self {
        let Inner { shared, key, attempt, triggers, main, .. } = &*self.0;
        Self(Arc::new(Inner {
            shared: shared.clone(),
            key: key.clone(),
            attempt: *attempt,
            triggers: triggers.clone(),
            main: main.clone(),
            owning: false,
        }))
    }

    /// Records an event on the main object. Does nothing if the object is gone.
    pub fn event(&self, event: EventType, reason: &str, message: &str) {
        self.record(event, reason, message);
    }

    /// Records an event on the main object; returns whether it is there, and can be decoded.
    pub(super) fn record(&self, event: EventType, reason: &str, message: &str) -> bool {
        let Some(object) = self.main().and_then(|main| main.get().ok()) else { return false };
        self.0.shared.recorder.event_of(&*object, &self.0.shared.kind, event, reason, message);
        true
    }

    /// The main object as this run saw or wrote it last.
    pub(super) fn main(&self) -> Option<Object<K>> {
        self.0.main.lock().clone()
    }

    pub(super) fn set_main(&self, main: Option<Object<K>>) {
        *self.0.main.lock() = main;
    }

    fn shared(&self) -> &Shared<K> {
        &self.0.shared
    }

    /// A reference to the main object as the controller of what it owns.
    fn owner_reference(&self, main: &Object<K>) -> OwnerReference {
        let kind = &self.shared().kind;
        OwnerReference {
            api_version: K::api_version(kind).into_owned(),
            kind: K::kind(kind).into_owned(),
            name: main.name().to_owned(),
            uid: main.uid().to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}

impl<K: Kind> Clone for Context<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Kind> fmt::Debug for Context<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { shared, key, attempt, .. } = &*self.0;
        f.debug_struct("Context")
            .field("controller", &shared.name)
            .field("key", key)
            .field("attempt", attempt)
            .finish_non_exhaustive()
    }
}
