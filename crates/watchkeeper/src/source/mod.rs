//! Sources of lists and watches, and the client that sends requests.
//!
//! A [`ListerWatcher`] is anything that can be listed and watched: [`ApiSource`] asks an API server, [`ScriptedSource`] plays a script in
//! tests. [`Client`] holds the client of a process; every other request leaves through its [`Requests`].

mod api;
mod api_source;
mod client;
mod connection;
mod path;
mod requests;
mod scripted;
mod token_file;
mod user_agent;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;

pub use api::Api;
pub(crate) use api_source::Edit;
pub use api_source::{ApiSource, Query, Scope};
pub use client::{Client, ClientError, without_userinfo};
pub use requests::{Requests, Written};
pub use scripted::{Asked, Feed, Reply, ScriptedSource};

use crate::object::ResourceVersion;
use crate::wire::ApiError;

/// The body of an answer, in the chunks in which it arrives.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, ApiError>> + Send>>;

/// Something that one kind can be listed and watched from.
pub trait ListerWatcher: Send + Sync + 'static {
    /// Asks for one page of a list. Cancel-safe: a dropped request has no effect.
    fn list(&self, options: &ListOptions) -> impl Future<Output = Result<ByteStream, ApiError>> + Send;

    /// Opens a watch. Dropping the stream ends it.
    fn watch(&self, options: &WatchOptions) -> impl Future<Output = Result<ByteStream, ApiError>> + Send;

    /// Whether it is worth asking for a watch that begins with a list.
    fn streams_lists(&self) -> bool {
        true
    }
}

/// Which objects of a kind to ask for; an empty selector asks for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selection {
    /// A label selector, such as `app=web,tier!=cache`.
    pub labels: String,
    /// A field selector, such as `spec.nodeName=n1`.
    pub fields: String,
}

/// What to list. An unset version asks for the newest state (a consistent read).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListOptions {
    /// At most this many items in one page; 0 asks for all at once.
    pub limit: u32,
    /// The token of the page before; empty for the first.
    pub continue_token: String,
    /// A state of this version, as `version_match` says.
    pub version: ResourceVersion,
    /// How `version` is meant; only with one.
    pub version_match: VersionMatch,
}

/// How the version of a list is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionMatch {
    /// The state of that version, or a newer one.
    #[default]
    NotOlderThan,
    /// The state of exactly that version.
    Exact,
}

/// What to watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchOptions {
    /// Changes after this version.
    pub version: ResourceVersion,
    /// The server ends the watch after this time.
    pub timeout: Duration,
    /// Whether the server may send bookmarks.
    pub bookmarks: bool,
    /// Whether the watch begins with all objects there are, and a bookmark that tells their end: a streamed list.
    pub initial_events: bool,
}
