//! Wire formats: JSON, YAML and protobuf to JSON values.

pub(crate) mod json;
pub(crate) mod media_type;
pub(crate) mod protobuf;
pub(crate) mod yaml;
