//! The name of a queue, for settings and flags.

use std::fmt;
use std::str::FromStr;

use super::{DeltaFifo, OrderedFifo, Queue};
use crate::env::Env;

/// The queue between reflector and store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueKind {
    /// Changes in the order of the stream: [`OrderedFifo`].
    #[default]
    Ordered,
    /// Changes collected by key: [`DeltaFifo`].
    Delta,
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ordered => "ordered",
            Self::Delta => "delta",
        })
    }
}

/// The error of a text that names no queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no queue is called {0:?}: expected `ordered` or `delta`")]
pub struct UnknownQueue(String);

impl FromStr for QueueKind {
    type Err = UnknownQueue;

    fn from_str(text: &str) -> Result<Self, UnknownQueue> {
        match text {
            "ordered" => Ok(Self::Ordered),
            "delta" => Ok(Self::Delta),
            _ => Err(UnknownQueue(text.to_owned())),
        }
    }
}

impl QueueKind {
    pub(crate) fn make<K: Send + Sync + 'static>(self, env: &Env) -> Box<dyn Queue<K>> {
        match self {
            Self::Ordered => Box::new(OrderedFifo::new()),
            Self::Delta => Box::new(DeltaFifo::new(&env.generator)),
        }
    }
}
