//! LimitRanges.

use serde_json::{Value, json};

use super::Behaviour;
use crate::failure::Result;
use crate::kinds::cells::Row;
use crate::kinds::fill::{each, fill, remove_null};
use crate::kinds::kind::Kind;

#[derive(Debug)]
pub(in crate::kinds) struct LimitRange;

impl Behaviour for LimitRange {
    fn defaults(&self, _kind: &Kind, range: &mut Value) -> Result<()> {
        let limits = range["spec"].get_mut("limits").into_iter().flat_map(each);
        limits.filter(|limit| limit["type"] == "Container").for_each(default_container);
        Ok(())
    }

    fn headers(&self) -> &'static str {
        "Name Created_At:date"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), row.object["metadata"]["creationTimestamp"]])
    }
}

/// The default limit is the maximum; the default request is the default limit, or else the minimum.
fn default_container(limit: &mut Value) {
    for (field, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
        fill(limit, field, json!({}));
        for (name, amount) in limit[from].as_object().cloned().into_iter().flatten() {
            fill(&mut limit[field], &name, amount);
        }
    }
    for field in ["max", "min"] {
        remove_null(limit, field);
    }
}
