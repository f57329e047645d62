//! LimitRanges.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::Row;

#[derive(Debug)]
pub(in crate::kinds) struct LimitRange;

impl Behaviour for LimitRange {
    fn headers(&self) -> &'static str {
        "Name Created_At:date"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), row.object["metadata"]["creationTimestamp"]])
    }
}
