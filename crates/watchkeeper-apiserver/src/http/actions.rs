//! What is asked for that is no object? Questions about access, and what can be done with a pod beyond reading and writing it.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http_body::Body;
use serde_json::{Value, json};

use crate::failure::{self, Failure, Result};
use crate::fields::{Managers, Writer};
use crate::http::handler::{BoxError, Call};
use crate::http::negotiate::{self, Form};
use crate::http::reply::{self, Reply};
use crate::kinds::builtin::Review;
use crate::kinds::merge_type::MergeType;
use crate::kinds::meta;
use crate::kinds::registry::Kind;
use crate::state::store::Key;
use crate::types;
use crate::verbs::delete::DeleteOptions;

impl Call {
    pub(crate) async fn pod_part<B>(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        part: &str,
        form: Form,
        body: B,
    ) -> Result<Reply>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        match (part, &self.method) {
            ("log", &Method::GET) => {
                self.shared.core.lock().log(kind, key, self.query.text("container"))?;
                Ok(reply::plain(204, ""))
            }
            ("binding", &Method::POST) => {
                let write = self.write_options("CreateOptions")?;
                let body = self.read_body(body).await?;
                let binding = self.read_about(&body, ("v1", "Binding"), key)?;
                self.shared.run(|core| core.bind(kind, key, &binding, write.dry_run))?;
                Ok(reply::value(201, form, &failure::success()))
            }
            ("eviction", &Method::POST) => {
                let write = self.write_options("CreateOptions")?;
                let body = self.read_body(body).await?;
                let eviction = self.read_about(&body, ("policy/v1", "Eviction"), key)?;
                let mut options = DeleteOptions::read(&eviction["deleteOptions"])?;
                options.dry_run |= write.dry_run;
                self.shared.run(|core| core.evict(kind, key, &options))?;
                Ok(reply::value(201, form, &failure::success()))
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// The object in a body, as its type says it is.
    fn read_typed(&self, body: &[u8], kind: (&str, &str)) -> Result<Value> {
        let (mut value, _) = negotiate::read_object(&self.headers, body, kind, true)?;
        if let Some(id) = types::of_kind(kind.0, kind.1) {
            types::normalize::normalize(id, &mut value).map_err(Failure::bad_request)?;
        }
        Ok(value)
    }

    /// The object in a body, which names the pod that it is about, as the path does.
    fn read_about(&self, body: &[u8], kind: (&str, &str), key: &Key) -> Result<Value> {
        let value = self.read_typed(body, kind)?;
        if meta::text(&value, "name") != key.name {
            let message = format!("name in URL does not match name in {} object", kind.1);
            return Err(Failure::bad_request(message));
        }
        Ok(value)
    }

    /// Answers a question about access: everything is allowed.
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
            let (mut managers, now) = (Managers::default(), crate::kinds::meta::timestamp(self.now()));
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
        if review.kind == "SelfSubjectReview" {
            crate::kinds::meta::set(
                &mut value,
                "creationTimestamp",
                &crate::kinds::meta::timestamp(self.now()),
            );
        }
        value["kind"] = review.kind.into();
        value["apiVersion"] = api_version.into();
        value["status"] = match review.kind {
            "SelfSubjectReview" => json!({"userInfo": {
                "username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}}),
            "SelfSubjectRulesReview" => json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            }),
            _ => json!({"allowed": true}),
        };
        Ok(reply::value(201, form, &value))
    }
}
