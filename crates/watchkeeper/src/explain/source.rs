//! What the admin server and the page ask for.

use std::fmt;

use super::key_view::Explanation;
use super::query::{ExplainError, KeysQuery};
use super::view::{InformerView, KeysPage, Overview};

/// Answers questions about a program. The calls do not block, and take locks only for moments.
pub trait ExplainSource: fmt::Debug + Send + Sync {
    /// Returns the program at this moment.
    fn overview(&self) -> Overview;

    /// Returns the name of the program.
    fn program(&self) -> String {
        self.overview().program
    }

    /// Returns a page of the keys of a controller.
    ///
    /// # Errors
    ///
    /// There is no such controller, or the page to continue from is none.
    fn keys(&self, controller: &str, query: &KeysQuery) -> Result<KeysPage, ExplainError>;

    /// Returns why an object is or is not reconciled. `kind` is a kind or its plural, in any case, with or without its
    /// group (`Deployment`, `deployments.apps`); `key` is `NAMESPACE/NAME` or `NAME`.
    ///
    /// # Errors
    ///
    /// No controller watches such a kind, or the key is none. An object that does not exist is no error.
    fn explain(&self, kind: &str, key: &str) -> Result<Explanation, ExplainError>;

    /// Has an object reconciled as soon as a worker is free, also if it waits for a retry.
    ///
    /// # Errors
    ///
    /// There is no such controller or object, or the controller starts no reconciles. By default, always
    /// [`ExplainError::NoActions`].
    fn reconcile_now(&self, controller: &str, key: &str) -> Result<(), ExplainError> {
        let _ = (controller, key);
        Err(ExplainError::NoActions)
    }

    /// Returns the informers.
    fn informers(&self) -> Vec<InformerView>;
}
