//! Outcomes of a reconcile: an [`Action`], or an [`Error`] that says whether and when to retry.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::context::ReadError;
use crate::report::WithCauses;
use crate::wire::{ApiError, Class};
use crate::workqueue::Priority;

/// What happens to a key after a successful reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a reconcile returns its action"]
pub struct Action {
    pub(super) requeue_after: Option<Duration>,
    /// That of this run if there is none.
    pub(super) priority: Option<Priority>,
}

impl Action {
    /// Nothing more to do until something changes.
    pub fn done() -> Self {
        Self { requeue_after: None, priority: None }
    }

    /// Reconciles the object again after `delay`, or earlier if something changes.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use watchkeeper::controller::Action;
    /// let action = Action::requeue_after(Duration::from_secs(300));
    /// # let _ = action;
    /// ```
    pub fn requeue_after(delay: Duration) -> Self {
        Self { requeue_after: Some(delay), priority: None }
    }

    /// Sets the priority of the run that [`requeue_after`](Self::requeue_after) asks for; that of this run by default.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use watchkeeper::controller::Action;
    /// # use watchkeeper::workqueue::Priority;
    /// let look_now_and_then = Action::requeue_after(Duration::from_secs(300)).priority(Priority::Low);
    /// # let _ = look_now_and_then;
    /// ```
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }
}

/// Why a reconcile failed, and whether it is retried.
///
/// Any [`std::error::Error`] converts into it with `?`, and is then retried with backoff. [`Error::terminal`] and
/// [`Error::requeue_after`] choose otherwise. For that conversion to exist, `Error` is not a `std::error::Error` itself.
///
/// ```
/// use watchkeeper::controller::Error;
///
/// fn port(text: &str) -> Result<u16, Error> {
///     if text.is_empty() {
///         return Err(Error::terminal("MissingPort", "spec.port is empty"));
///     }
///     Ok(text.parse()?)
/// }
/// assert!(port("").unwrap_err().is_terminal());
/// assert!(!port("x").unwrap_err().is_terminal());
/// ```
pub struct Error {
    source: Box<dyn StdError + Send + Sync>,
    retry: Retry,
}

/// When a failed reconcile runs again.
#[derive(Debug)]
enum Retry {
    Backoff,
    After(Duration),
    /// When something changes. The text is the reason of the event.
    Never(Cow<'static, str>),
}

/// What the runtime does with an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict<'a> {
    /// Report and retry with backoff.
    Retry,
    /// Retry with backoff; report only if that does not help.
    RetryQuietly,
    RetryAfter(Duration),
    /// Record an event with this reason, and do not retry.
    GiveUp(&'a str),
}

#[derive(Debug)]
struct Message(String);

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Message {}

impl Error {
    /// An error that no retry can help: the object is not reconciled until something changes, and a warning event with `reason`
    /// (one CamelCase word) and `message` is recorded on it.
    pub fn terminal(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { source: Box::new(Message(message.into())), retry: Retry::Never(reason.into()) }
    }

    /// An error that is retried after `delay` instead of the backoff, which does not grow by it.
    pub fn requeue_after(delay: Duration, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: error.into(), retry: Retry::After(delay) }
    }

    /// An error that is retried with backoff, from a message.
    pub fn message(message: impl Into<String>) -> Self {
        Self::boxed(Box::new(Message(message.into())))
    }

    /// An error that is retried with backoff, from a boxed one such as `anyhow`'s.
    pub fn boxed(source: Box<dyn StdError + Send + Sync>) -> Self {
        Self { source, retry: Retry::Backoff }
    }

    /// Whether the object is not reconciled again until something changes.
    pub fn is_terminal(&self) -> bool {
        matches!(self.verdict(), Verdict::GiveUp(_))
    }

    /// The class of the API error among the causes, if one is there.
    pub fn class(&self) -> Option<Class> {
        self.find::<ApiError>().map(ApiError::class)
    }

    /// The error without what becomes of it.
    pub fn into_inner(self) -> Box<dyn StdError + Send + Sync> {
        self.source
    }

    pub(super) fn verdict(&self) -> Verdict<'_> {
        match &self.retry {
            Retry::Never(reason) => Verdict::GiveUp(reason),
            Retry::After(delay) => Verdict::RetryAfter(*delay),
            Retry::Backoff => match self.find::<ReadError>() {
                Some(error) if error.is_mistake() => Verdict::GiveUp("ProgramError"),
                // Expected now and then: the retry comes when the cache has caught up.
                _ if matches!(self.class(), Some(Class::Conflict | Class::AlreadyExists)) => {
                    Verdict::RetryQuietly
                }
                _ => Verdict::Retry,
            },
        }
    }

    /// The first error of type `E` along the causes.
    fn find<E: StdError + 'static>(&self) -> Option<&E> {
        let first: &(dyn StdError + 'static) = &*self.source;
        std::iter::successors(Some(first), |error| (*error).source()).find_map(|error| error.downcast_ref())
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self::boxed(Box::new(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        WithCauses(&*self.source).fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("source", &self.source).field("retry", &self.retry).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot make the bucket")]
    struct Bucket(#[source] ApiError);

    #[test]
    fn any_error_is_retried_with_backoff() {
        let error = Error::from(std::io::Error::other("disk full"));
        assert_eq!((error.verdict(), error.class(), error.is_terminal()), (Verdict::Retry, None, false));
        assert_eq!(error.to_string(), "disk full");
        assert_eq!(Error::message("no").verdict(), Verdict::Retry);
    }

    #[test]
    fn a_conflict_is_found_along_the_causes_and_retried_quietly() {
        for class in [Class::Conflict, Class::AlreadyExists] {
            let error = Error::from(Bucket(ApiError::new(class, "changed meanwhile")));
            assert_eq!((error.class(), error.verdict()), (Some(class), Verdict::RetryQuietly));
        }
        let error = Error::from(Bucket(ApiError::new(Class::Forbidden, "no")));
        assert_eq!((error.class(), error.verdict()), (Some(Class::Forbidden), Verdict::Retry));
        assert_eq!(error.to_string(), "cannot make the bucket: no");
    }

    #[test]
    fn a_terminal_error_and_a_delay_are_the_authors_choice() {
        let conflict = || Bucket(ApiError::new(Class::Conflict, "changed"));
        let later = Error::requeue_after(Duration::from_secs(3), conflict());
        assert_eq!(later.verdict(), Verdict::RetryAfter(Duration::from_secs(3)));
        assert_eq!(Error::terminal("Bad", "never").verdict(), Verdict::GiveUp("Bad"));
        assert!(Error::terminal("Bad", "never").is_terminal());
    }

    #[test]
    fn reading_a_kind_that_was_not_registered_is_terminal() {
        let error = Error::from(ReadError::NotRegistered { kind: "Secret".to_owned() });
        assert_eq!(error.verdict(), Verdict::GiveUp("ProgramError"));
    }
}
