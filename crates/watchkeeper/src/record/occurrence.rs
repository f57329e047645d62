//! What is an event made of? An object, a type, a reason and a message, seen by somebody at some time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

use crate::object::ObjectName;

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Things go their way.
    Normal,
    /// Somebody should have a look.
    Warning,
}

impl EventType {
    /// The word that the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Something that happened to an object, as recorded: what sinks are given.
///
/// It prints as `Normal Reason message`, which is what tests of controllers like to look at.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Occurrence {
    /// A name for the Event object, should there be one: valid, and no other occurrence's.
    pub name: String,
    /// When it was recorded.
    pub at: Timestamp,
    /// Whether it is good news.
    pub event_type: EventType,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// What was done, in one CamelCase word; may be empty.
    pub action: String,
    /// What a person should know.
    pub message: String,
    /// The object that it happened to.
    pub regarding: ObjectReference,
    /// Another object that has to do with it.
    pub related: Option<ObjectReference>,
    /// Annotations for the Event object.
    pub annotations: BTreeMap<String, String>,
    /// The component that recorded it.
    pub component: Arc<str>,
    /// Where that component runs; may be empty.
    pub host: Arc<str>,
}

impl Occurrence {
    /// The namespace of the Event object: the object's own, or `default` for an object without one.
    pub fn namespace(&self) -> &str {
        self.regarding.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
    }

    /// The key of the object that it happened to.
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
