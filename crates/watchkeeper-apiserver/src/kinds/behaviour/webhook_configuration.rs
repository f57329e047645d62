//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, count};

#[derive(Debug)]
pub(in crate::kinds) struct WebhookConfiguration;

impl Behaviour for WebhookConfiguration {
    fn headers(&self) -> &'static str {
        "Name Webhooks:integer Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), count(&row.object["webhooks"]), row.age()])
    }
}
