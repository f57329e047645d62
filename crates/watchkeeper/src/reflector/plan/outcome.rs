//! The outcomes of requests, and what they are evidence of.

use crate::wire::{ApiError, Class};

/// The end of a watch.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The request itself failed.
    NotOpened(ApiError),
    /// The stream contained or ended with an error.
    Failed(ApiError),
    /// The server closed it before its time.
    Closed,
    /// The server closed it at its time.
    TimedOut,
    /// It has left the cache in a state that differs from the server's.
    Differs,
}

impl Ended {
    pub(crate) fn error(&self) -> Option<&ApiError> {
        match self {
            Self::NotOpened(error) | Self::Failed(error) => Some(error),
            Self::Closed | Self::TimedOut | Self::Differs => None,
        }
    }

    /// Returns whether the caller may not watch, or nobody can: the kind may still be listed.
    pub(crate) fn is_refused(&self) -> bool {
        let is_refusal = |error: &ApiError| error.class() == Class::Forbidden || error.code() == Some(405);
        matches!(self, Self::NotOpened(error) if is_refusal(error))
    }

    /// Returns whether the server may have been restarted, and restored, meanwhile.
    pub(super) fn may_hide_restart(&self) -> bool {
        match self {
            Self::TimedOut | Self::Differs => false,
            Self::Closed => true,
            Self::NotOpened(error) | Self::Failed(error) => {
                let is_lost = matches!(
                    error.class(),
                    Class::ConnectionLost | Class::ConnectionRefused | Class::Unreachable | Class::Timeout
                );
                is_lost || is_unwell(error)
            }
        }
    }
}

/// Returns whether the server is away or too busy, or refuses the caller. That is no evidence about the request, which
/// is repeated.
pub(super) fn is_no_evidence(error: Option<&ApiError>) -> bool {
    error.is_some_and(|error| {
        matches!(
            error.class(),
            Class::ConnectionRefused
                | Class::Unreachable
                | Class::TooManyRequests
                | Class::Unauthorized
                | Class::Forbidden
        )
    })
}

/// Returns whether there was no answer for an unknown reason: weak evidence about the server's features.
pub(super) fn is_unanswered(error: &ApiError) -> bool {
    error.code().is_none() && matches!(error.class(), Class::Other | Class::ConnectionLost)
}

/// Returns whether the server, or a proxy before it, failed while handling the request.
pub(super) fn is_unwell(error: &ApiError) -> bool {
    error.code().is_some_and(|code| code >= 500 && code != 501)
}

/// Returns whether the same request may succeed a little later.
pub(super) fn may_pass(error: &ApiError) -> bool {
    matches!(error.class(), Class::Timeout | Class::ConnectionLost)
        || is_unwell(error)
        || is_no_evidence(Some(error))
}
