//! Wire formats: JSON, YAML and protobuf to JSON values, and the writing of protobuf.

pub(crate) mod encode;
pub(crate) mod json;
pub(crate) mod media_type;
pub(crate) mod protobuf;
pub(crate) mod wire;
pub(crate) mod yaml;
