//! Sources of lists and watches, and the client that sends requests.
//!
//! A [`ListerWatcher`] is anything that can be listed and watched: [`ApiSource`] uses an API server, [`ScriptedSource`]
//! plays a script in tests. [`Client`] is the client of a process; it sends all other requests through its
//! [`Requests`].

mod api;
mod api_source;
mod client;
mod connection;
mod credentials;
mod discovery;
mod gate;
mod path;
mod requests;
mod scripted;
mod until_renewed;
mod user_agent;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;

pub use api::Api;
pub(crate) use api_source::Edit;
pub use api_source::{ApiSource, Query, Scope};
pub(crate) use client::without_userinfo;
pub use client::{Client, ClientError};
#[cfg(test)]
pub(crate) use connection::{Route, Socket, Tls};
pub use credentials::CredentialStatus;
#[cfg(test)]
pub(crate) use credentials::Outside;
pub(crate) use gate::WriteGate;
pub use requests::Requests;
pub use scripted::{Asked, Feed, Reply, ScriptedSource};

use crate::object::ResourceVersion;
use crate::wire::ApiError;

/// The body of an answer, in the chunks in which it arrives.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, ApiError>> + Send>>;

/// A source of lists and watches of one kind.
///
/// ```
/// use bytes::Bytes;
/// use watchkeeper::source::{ByteStream, ListOptions, ListerWatcher, WatchOptions};
/// use watchkeeper::wire::ApiError;
///
/// /// A list that never changes.
/// struct Fixed(&'static str);
///
/// impl ListerWatcher for Fixed {
///     async fn list(&self, _: &ListOptions) -> Result<ByteStream, ApiError> {
///         Ok(Box::pin(futures::stream::iter([Ok(Bytes::from_static(self.0.as_bytes()))])))
///     }
///
///     async fn watch(&self, _: &WatchOptions) -> Result<ByteStream, ApiError> {
///         Ok(Box::pin(futures::stream::pending()))
///     }
/// }
/// # let _ = Fixed(r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#);
/// ```
pub trait ListerWatcher: Send + Sync + 'static {
    /// Requests one page of a list. Cancel-safe: a dropped request has no effect.
    fn list(&self, options: &ListOptions) -> impl Future<Output = Result<ByteStream, ApiError>> + Send;

    /// Opens a watch. Dropping the stream ends it.
    fn watch(&self, options: &WatchOptions) -> impl Future<Output = Result<ByteStream, ApiError>> + Send;

    /// Returns whether the server has the kind at all; asked when a list or watch was answered with 404. An error is no
    /// answer. By default, the kind is always there.
    fn is_served(&self) -> impl Future<Output = Result<bool, ApiError>> + Send {
        std::future::ready(Ok(true))
    }

    /// Returns whether the source supports a watch that begins with a list.
    fn streams_lists(&self) -> bool {
        true
    }
}

/// The requested objects of a kind; an empty selector selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selection {
    /// A label selector, such as `app=web,tier!=cache`.
    pub labels: String,
    /// A field selector, such as `spec.nodeName=n1`.
    pub fields: String,
}

/// The options of a list. An unset version requests the newest state (a consistent read).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListOptions {
    /// The maximum number of items in a page; 0 requests all at once.
    pub limit: u32,
    /// The token of the previous page; empty for the first.
    pub continue_token: String,
    /// The requested version, interpreted by `version_match`.
    pub version: ResourceVersion,
    /// The meaning of `version`, if that is set.
    pub version_match: VersionMatch,
    /// Whether only the metadata of objects is needed. A source may send whole objects all the same.
    pub metadata_only: bool,
}

/// The meaning of the version of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionMatch {
    /// The state of that version, or a newer one.
    #[default]
    NotOlderThan,
    /// The state of exactly that version.
    Exact,
}

/// The options of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchOptions {
    /// The version after which changes are requested.
    pub version: ResourceVersion,
    /// The time after which the server ends the watch.
    pub timeout: Duration,
    /// Whether the server may send bookmarks.
    pub bookmarks: bool,
    /// Whether the watch begins with all existing objects and a bookmark that marks their end: a streamed list.
    pub initial_events: bool,
}
