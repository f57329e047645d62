//! Recorded events: an object, a type, a reason and a message, with the component and the time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

use crate::object::ObjectName;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The event is expected.
    Normal,
    /// The event needs attention.
    Warning,
}

impl EventType {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event on an object, as it was recorded and as sinks receive it.
///
/// It displays as `Normal Reason message`, which tests of controllers can compare.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Occurrence {
    /// A valid, unique name for the Event object, if one is created.
    pub name: String,
    /// The time at which it was recorded.
    pub at: Timestamp,
    /// The type of the event.
    pub event_type: EventType,
    /// The reason, in one CamelCase word.
    pub reason: String,
    /// The action of the controller, in one CamelCase word; may be empty.
    pub action: String,
    /// The message for users.
    pub message: String,
    /// The object of the event.
    pub regarding: ObjectReference,
    /// A related object.
    pub related: Option<ObjectReference>,
    /// Annotations for the Event object.
    pub annotations: BTreeMap<String, String>,
    /// The component that recorded it.
    pub component: Arc<str>,
    /// The node or pod of that component; may be empty.
    pub host: Arc<str>,
}

impl Occurrence {
    /// Returns the namespace of the Event object: that of the object, or `default` for a cluster-scoped one.
    pub fn namespace(&self) -> &str {
        self.regarding.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
    }

    /// Returns the key of the object.
    pub fn object(&self) -> ObjectName {
        let regarding = &self.regarding;
        ObjectName::namespaced(
            regarding.namespace.as_deref().unwrap_or_default(),
            regarding.name.as_deref().unwrap_or_default(),
        )
    }
}

impl fmt::Display for Occurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.event_type.as_str(), self.reason, self.message)
    }
}
