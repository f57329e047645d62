//! Errors of registration: what is wrong with a controller before anything runs.

use std::time::Duration;

use super::selection::SelectorError;
use crate::informer::InformerStopped;
use crate::object::PathError;
use crate::store::IndexConflict;

/// Why a controller cannot be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Two controllers of one name: their metrics and logs could not be told apart.
    #[error("there is a controller {0:?} already: give this one another name with Controller::named")]
    NameTaken(String),
    /// A name that cannot be a label value of metrics and a field manager.
    #[error("{0:?} cannot be the name of a controller: use lower case letters, digits, '-' and '.'")]
    BadName(String),
    /// A namespaced object cannot own a cluster-scoped one.
    #[error(
        "controller {controller}: {main} is namespaced and cannot own {kind}, which is not: use watches with a mapping"
    )]
    CannotOwn {
        /// The controller.
        controller: String,
        /// The main kind.
        main: String,
        /// The kind to be owned.
        kind: String,
    },
    /// A finalizer that the server would refuse.
    #[error(
        "controller {controller}: the finalizer {finalizer:?} must be a domain and a name, such as example.dev/bucket"
    )]
    BadFinalizer {
        /// The controller.
        controller: String,
        /// The finalizer.
        finalizer: String,
    },
    /// A number or period that must not be zero.
    #[error("controller {controller}: {what} must not be zero")]
    Zero {
        /// The controller.
        controller: String,
        /// Which setting.
        what: &'static str,
    },
    /// A period that is longer than anything waits.
    #[error("controller {controller}: {what} of {given:?} is too long")]
    TooLong {
        /// The controller.
        controller: String,
        /// Which setting.
        what: &'static str,
        /// What was given.
        given: Duration,
    },
    /// A watch of no namespace at all.
    #[error("controller {controller}: {kind} is watched in no namespace: name one, or leave out namespaces")]
    NoNamespace {
        /// The controller.
        controller: String,
        /// The watched kind.
        kind: String,
    },
    /// An index that is there already, or of a path that is none.
    #[error("controller {controller}: cannot add an index")]
    Index {
        /// The controller.
        controller: String,
        /// Why not.
        #[source]
        source: IndexError,
    },
    /// A selector that the server would refuse.
    #[error("controller {controller}: cannot watch {kind}")]
    Selector {
        /// The controller.
        controller: String,
        /// The watched kind.
        kind: String,
        /// What is wrong.
        #[source]
        source: SelectorError,
    },
    /// The manager's informers have stopped.
    #[error(transparent)]
    Stopped(#[from] InformerStopped),
}

/// Why an index cannot be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// There is an index of that name.
    #[error(transparent)]
    Conflict(#[from] IndexConflict),
    /// The path is none.
    #[error(transparent)]
    Path(#[from] PathError),
}
