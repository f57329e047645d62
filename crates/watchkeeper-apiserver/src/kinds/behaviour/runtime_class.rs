//! RuntimeClasses.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, text};

#[derive(Debug)]
pub(in crate::kinds) struct RuntimeClass;

impl Behaviour for RuntimeClass {
    fn headers(&self) -> &'static str {
        "Name Handler Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), text(&row.object["handler"]), row.age()])
    }
}
