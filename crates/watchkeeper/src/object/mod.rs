//! Cached objects, their names and versions.
//!
//! An [`Object`] is one allocation: first the identity, then the JSON bytes that the server sent. Objects are decoded
//! only on demand.

mod cached;
mod decoded;
mod hint;
mod identity;
mod json_error;
mod key_error;
mod listing;
mod name;
mod paths;
pub(crate) mod scan;
mod transform;
mod version;

pub(crate) use cached::Maker;
pub use cached::{DecodeError, Kind, Labels, Object};
pub(crate) use decoded::Decoded;
pub use decoded::Keep;
pub(crate) use hint::name_hint;
pub use identity::IdentityError;
pub use json_error::JsonError;
pub(crate) use json_error::decode;
pub use key_error::KeyError;
pub use listing::{Listing, Unreadable};
pub use name::{KeyFormatError, ObjectName};
pub use paths::PathError;
pub(crate) use paths::{Segment, segments};
pub use scan::Malformed;
pub use transform::Transform;
pub use version::ResourceVersion;
