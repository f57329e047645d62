//! The world outside the cluster: what an operator keeps in other systems.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use watchkeeper::Env;

use crate::fault::Fault;
use crate::net::Net;
use crate::trace::Event;

/// The world outside the cluster, in one run: a store of named values, whose calls fail as requests do.
///
/// Fakes of other systems are built on it: then the simulator sees their state, compares it, and makes their calls fail, take long, or
/// crash the operator. Clones share it.
///
/// ```
/// use watchkeeper_sim::{Outside, OutsideError};
///
/// struct Buckets(Outside);
///
/// impl Buckets {
///     async fn ensure(&self, name: &str) -> Result<(), OutsideError> {
///         self.0.put(&format!("bucket {name}"), "empty").await
///     }
///     async fn remove(&self, name: &str) -> Result<(), OutsideError> {
///         self.0.remove(&format!("bucket {name}")).await
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Outside {
    net: Net,
    env: Env,
    values: Arc<Mutex<BTreeMap<String, Value>>>,
}

/// The error of a call to the outside world. The call may have been carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} failed: simulated")]
pub struct OutsideError {
    what: String,
}

impl Outside {
    pub(crate) fn new(net: &Net, env: &Env) -> Self {
        Self { net: net.clone(), env: env.clone(), values: Arc::default() }
    }

    /// The clock and the randomness of the run.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Sets a value.
    pub async fn put(&self, name: &str, value: impl Into<Value>) -> Result<(), OutsideError> {
        let value = value.into();
        self.call(&format!("put {name}"), || {
            self.changed(name, Some(&value));
            self.values.lock().insert(name.to_owned(), value);
        })
        .await
    }

    /// Removes a value; succeeds if there is none.
    pub async fn remove(&self, name: &str) -> Result<(), OutsideError> {
        self.call(&format!("remove {name}"), || {
            if self.values.lock().remove(name).is_some() {
                self.changed(name, None);
            }
        })
        .await
    }

    /// Reads a value.
    pub async fn get(&self, name: &str) -> Result<Option<Value>, OutsideError> {
        self.call(&format!("get {name}"), || self.values.lock().get(name).cloned()).await
    }

    /// Shows a value at once and without faults, or takes it back with `None`: for a program whose work is what it prints. Only the last
    /// value counts, not how often it was shown.
    pub fn show(&self, name: &str, value: Option<Value>) {
        let mut values = self.values.lock();
        let before = match value.clone() {
            Some(value) => values.insert(name.to_owned(), value),
            None => values.remove(name),
        };
        if before != value {
            let value = value.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
            self.net.trace().note(&format!("shows {name}: {value}"));
        }
    }

    /// Does something outside, as `act`, unless a fault prevents it. `what` names the call in traces.
    pub async fn call<T>(&self, what: &str, act: impl FnOnce() -> T) -> Result<T, OutsideError> {
        let name: Arc<str> = format!("outside {what}").into();
        let fail = || Err(OutsideError { what: what.to_owned() });
        self.net.caller_is_awake().await;
        let fault = self.net.at_call(&name);
        match &fault {
            Some(Fault::CrashBefore) => return self.die().await,
            Some(Fault::LoseRequest) => return fail(),
            _ => {}
        }
        let result = act();
        match fault {
            Some(Fault::CrashAfter) => return self.die().await,
            Some(Fault::LoseAnswer) => return fail(),
            Some(Fault::SlowAnswer(time)) => self.env.clock.sleep(time).await,
            _ => {}
        }
        self.net.caller_is_awake().await;
        Ok(result)
    }

    /// All values.
    pub(crate) fn values(&self) -> BTreeMap<String, Value> {
        self.values.lock().clone()
    }

    fn changed(&self, name: &str, value: Option<&Value>) {
        let now = value.map(|value| Bytes::from(value.to_string()));
        self.net.trace().add(Event::Outside { what: name.into(), now });
    }

    async fn die<T>(&self) -> T {
        self.net.kill(0);
        std::future::pending().await
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").field("values", &self.values.lock()).finish_non_exhaustive()
    }
}
