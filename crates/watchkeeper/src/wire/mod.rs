//! How do bytes from an API server become objects and errors?
//!
//! Lists and watches arrive in chunks cut anywhere. [`ListSplitter`] and [`WatchSplitter`] find where each object begins and ends, for
//! any chunking and for pretty-printed JSON alike; [`ApiError`] is the one classifier for everything an API server can answer instead.

mod error;
mod list;
mod members;
mod pages;
mod pieces;
mod watch;

pub use error::{ApiError, Class};
pub use list::{ListMeta, ListSplitter};
pub(crate) use pages::Pages;
pub(crate) use pieces::OBJECT_CAP;
pub use pieces::{SplitError, TooLarge};
pub use watch::{BadEvent, WatchEventType, WatchLine, WatchSplitter};
