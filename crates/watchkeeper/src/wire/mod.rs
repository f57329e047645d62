//! Splitting the bytes of an API server into objects and errors.
//!
//! Lists and watches arrive in chunks cut anywhere. [`ListSplitter`] and [`WatchSplitter`] find the bounds of each
//! object, with any chunking and in pretty-printed JSON. [`ApiError`] is the one classifier of all failures and error
//! responses.

mod error;
mod list;
mod members;
mod pages;
mod pieces;
mod watch;

pub(crate) use error::CannotConnect;
pub use error::{ApiError, Class};
pub use list::{ListMeta, ListSplitter};
pub(crate) use pages::Pages;
pub(crate) use pieces::OBJECT_CAP;
pub use pieces::{SplitError, TooLarge};
pub use watch::{BadEvent, WatchEventType, WatchLine, WatchSplitter};
