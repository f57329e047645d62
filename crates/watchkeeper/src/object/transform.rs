//! Transforms: changes to objects before they are cached.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use super::json_error::JsonError;
use super::paths::{PathError, Selected};

/// A change made to every object on its way into a cache, mostly to keep the cache small. A clone copies a pointer.
///
/// It is applied once to each state that the server sends, in a list or in an event, before handlers, index functions
/// or the cache see the object. Objects that leave the cache again, in a resync or as a tombstone, are not transformed
/// again.
///
/// ```
/// use watchkeeper::object::Transform;
///
/// let lean = Transform::drop_paths([
///     r"metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration",
///     "spec.template",
///     "status.conditions[*].message",
/// ])?;
/// assert!(Transform::drop_paths(["spec..template"]).is_err());
/// # Ok::<(), watchkeeper::object::PathError>(())
/// ```
///
/// # Paths
///
/// Dots separate the keys of a path, starting at the object's root; `\.` is a dot, `\[` a bracket and `\\` a backslash
/// within a key. `[*]` after a key means every element of that array. A path that an object does not have changes
/// nothing.
///
/// `apiVersion`, `kind` and the identity in `metadata` (`name`, `namespace`, `uid`, `resourceVersion`, `generation`,
/// `labels`, `ownerReferences`, `deletionTimestamp`) always stay. Fields that a type requires must stay too, or
/// [`Object::get`](super::Object::get) fails; [`Object::view`](super::Object::view) needs only its own fields.
///
/// # Failures
///
/// A transform fails if the object's JSON is malformed, if a function returns an error or panics, or if no
/// `metadata.name` is left. The object is then reported with its name, counted ([`Transform::failures`]) and skipped;
/// other objects are not affected, and it is tried again with its next event. No untransformed object gets into the
/// cache.
///
/// The cached state of such an object stays at its last transformed one, through events and lists alike, and is stale
/// until an event or a list succeeds. A delete removes the object from the cache, even if its last state cannot be
/// transformed. (If a function changes the name, the cached state is looked up under the server's name and may not be
/// found.)
#[derive(Clone)]
pub struct Transform(Arc<Inner>);

struct Inner {
    steps: Vec<Step>,
    failures: AtomicU64,
}

#[derive(Clone)]
enum Step {
    Select(Arc<Selected>),
    Call(Arc<Function>),
}

type Function = dyn Fn(Value) -> Result<Value, Box<dyn Error + Send + Sync>> + Send + Sync;

impl Transform {
    /// Removes the parts that the paths name, in one pass over the bytes.
    ///
    /// # Errors
    ///
    /// A path is invalid; the error names it.
    pub fn drop_paths<P: AsRef<str>>(paths: impl IntoIterator<Item = P>) -> Result<Self, PathError> {
        Selected::all_but(paths).map(Self::select)
    }

    /// Removes everything but the identity and the parts that the paths name, in one pass over the bytes.
    ///
    /// An object or array that a path leads through stays, if only as `{}` or `[]`.
    ///
    /// # Errors
    ///
    /// A path is invalid; the error names it.
    pub fn keep_paths<P: AsRef<str>>(paths: impl IntoIterator<Item = P>) -> Result<Self, PathError> {
        Selected::only(paths).map(Self::select)
    }

    /// Applies a function to the object's JSON; it may change the name, and with it the key.
    ///
    /// This is many times slower than paths: the object is decoded into a tree of values and encoded again, which keeps
    /// neither the order of its members nor numbers beyond 64 bits. The function runs between the network and the cache
    /// of its kind, and must not block. `metadata.resourceVersion` is restored afterwards: without the server's
    /// version, a watch could not resume.
    ///
    /// The text of an error, and the message of a panic, go to the log and to report hooks: they must not contain
    /// values of a Secret. Of a [`serde_json::Error`], which quotes the value it found, only the place and the
    /// expectation are reported.
    pub fn value<F, E>(function: F) -> Self
    where
        F: Fn(Value) -> Result<Value, E> + Send + Sync + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self::of(vec![Step::Call(Arc::new(move |value| function(value).map_err(Into::into)))])
    }

    /// Applies this transform first, then `other` to its result. The combination counts its own failures.
    #[must_use]
    pub fn then(&self, other: &Self) -> Self {
        Self::of([self.0.steps.as_slice(), &other.0.steps].concat())
    }

    /// Returns the number of failed transforms; clones share the count.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    fn select(selected: Selected) -> Self {
        Self::of(vec![Step::Select(Arc::new(selected))])
    }

    fn of(steps: Vec<Step>) -> Self {
        Self(Arc::new(Inner { steps, failures: AtomicU64::new(0) }))
    }

    /// Writes the transformed object in `bytes` into `out`, using `spare` as scratch space. The error is the reason of
    /// the failure.
    pub(super) fn apply(&self, bytes: &[u8], out: &mut Vec<u8>, spare: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        let mut steps = self.0.steps.iter();
        if let Some(first) = steps.next() {
            first.apply(bytes, out)?;
        }
        for step in steps {
            std::mem::swap(out, spare);
            out.clear();
            step.apply(spare, out)?;
        }
        Ok(())
    }

    pub(super) fn count_failure(&self) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
    }
}

impl Step {
    fn apply(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Self::Select(selected) => selected.copy(bytes, out).map_err(|malformed| malformed.to_string()),
            Self::Call(function) => {
                let safe = |error| JsonError::from(error).to_string();
                let value = serde_json::from_slice(bytes).map_err(safe)?;
                serde_json::to_writer(out, &call(&**function, value)?).map_err(safe)
            }
        }
    }
}

fn call(function: &Function, value: Value) -> Result<Value, String> {
    let version = value.pointer("/metadata/resourceVersion").cloned();
    // Formatting the error runs user code as well.
    let called = catch_unwind(AssertUnwindSafe(|| function(value).map_err(reason_of)));
    let mut value = called.unwrap_or_else(|payload| Err(panicked(payload.as_ref())))?;
    if let (Some(version), Some(Value::Object(metadata))) = (version, value.get_mut("metadata")) {
        metadata.insert("resourceVersion".to_owned(), version);
    }
    Ok(value)
}

fn reason_of(error: Box<dyn Error + Send + Sync>) -> String {
    match error.downcast::<serde_json::Error>() {
        Ok(error) => JsonError::from(*error).to_string(),
        Err(error) => error.to_string(),
    }
}

fn panicked(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let message = text.or_else(|| payload.downcast_ref::<&str>().copied());
    format!("the function panicked: {}", message.unwrap_or("(no message)"))
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.steps.iter().map(|step| match step {
            Step::Select(_) => "paths",
            Step::Call(_) => "function",
        });
        let steps: Vec<_> = names.collect();
        f.debug_struct("Transform").field("steps", &steps).field("failures", &self.failures()).finish()
    }
}
