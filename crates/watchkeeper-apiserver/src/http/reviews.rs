//! Access and identity reviews: virtual kinds that are answered and never stored.

use http::Method;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::fields::{Managers, Writer};
use crate::http::handler::Call;
use crate::http::negotiate;
use crate::http::reply::{self, Reply};
use crate::kinds::builtin::{Answer, Review};
use crate::kinds::merge_type::MergeType;
use crate::kinds::meta;
use crate::types;

impl Call {
    /// Answers a review. Every access is allowed, as the server does not authorize.
    pub(crate) fn review(&self, review: &Review, body: &[u8]) -> Result<Reply> {
        if review.namespaced != self.target.namespace.is_some() || self.target.name.is_some() {
            return Err(Failure::no_such_path());
        }
        if self.method != Method::POST {
            return Err(Failure::method_not_allowed());
        }
        let form = negotiate::accept_plain(&self.headers)?;
        let api_version = format!("{}/{}", review.group, review.version);
        let mut value = self.read_typed(body, (&api_version, review.kind))?;
        let write = self.write_options("CreateOptions")?;
        if let Some(id) = types::of_kind(&api_version, review.kind) {
            let (mut managers, now) = (Managers::default(), meta::timestamp(self.now()));
            let writer = Writer {
                manager: &write.manager,
                api_version: &api_version,
                subresource: "",
                now: &now,
                ignored: &["f:status"],
            };
            managers.update(MergeType::Kind(id), &types::normalize::empty(id), &value, &writer);
            managers.write(&mut value);
        }
        if review.answer == Answer::User {
            meta::set(&mut value, "creationTimestamp", &meta::timestamp(self.now()));
        }
        value["kind"] = review.kind.into();
        value["apiVersion"] = api_version.into();
        value["status"] = match review.answer {
            Answer::User => json!({"userInfo": {
                "username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}}),
            Answer::Rules => json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            }),
            Answer::Allowed => json!({"allowed": true}),
        };
        Ok(reply::value(201, form, &value))
    }
}
