//! Access and identity reviews: virtual kinds that are answered and never stored.

use http::Method;
use serde_json::{Value, json};

use crate::access::attributes::{Attributes, Object, Resource};
use crate::access::user::User;
use crate::failure::{Cause, Failure, Result};
use crate::fields::{Managers, Writer};
use crate::http::handler::Call;
use crate::http::negotiate;
use crate::http::reply::{self, Reply};
use crate::kinds::builtin::{Answer, Review};
use crate::kinds::cells::text;
use crate::kinds::merge_type::MergeType;
use crate::kinds::meta;
use crate::types;

impl Call {
    /// Answers a review.
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
        self.set_managers(&mut value, (&api_version, review.kind), "")?;
        let answer = self.answer_review(review, value)?;
        let mut reply = json!({"kind": review.kind, "apiVersion": api_version});
        for (field, value) in answer.as_object().into_iter().flatten() {
            if !["kind", "apiVersion"].contains(&field.as_str()) {
                reply[field] = value.clone();
            }
        }
        Ok(reply::value(201, form, &reply))
    }

    /// Enters the client as the manager of all fields, as for a stored object.
    pub(super) fn set_managers(
        &self,
        value: &mut Value,
        (api_version, kind): (&str, &str),
        subresource: &str,
    ) -> Result<()> {
        let write = self.write_options("CreateOptions")?;
        let Some(id) = types::of_kind(api_version, kind) else { return Ok(()) };
        let (mut managers, now) = (Managers::default(), meta::timestamp(self.now()));
        let writer =
            Writer { manager: &write.manager, api_version, subresource, now: &now, ignored: &["f:status"] };
        managers.update(MergeType::Kind(id), &types::normalize::empty(id), value, &writer);
        managers.write(value);
        Ok(())
    }

    fn answer_review(&self, review: &Review, mut value: Value) -> Result<Value> {
        let status = match review.answer {
            Answer::User => {
                let metadata = json!({"creationTimestamp": meta::timestamp(self.now())});
                return Ok(json!({"metadata": metadata, "status": {"userInfo": self.user().shown()}}));
            }
            Answer::Rules => {
                let namespace = text(&value["spec"]["namespace"]);
                if namespace.is_empty() {
                    return Err(Failure::bad_request("no namespace on request"));
                }
                let (shared, user) = (&self.shared, self.user());
                let status = shared.authorizer.rules_of(&shared.core, &user, namespace);
                return Ok(json!({"metadata": {}, "spec": {}, "status": status}));
            }
            Answer::Token => self.review_token(&value["spec"])?,
            Answer::OwnAccess => {
                validate(review, &value)?;
                self.review_access(&self.user(), &value["spec"])
            }
            Answer::Access => {
                validate(review, &value)?;
                self.review_access(&subject(&value["spec"]), &value["spec"])
            }
            Answer::LocalAccess => {
                let namespace = self.target.namespace.as_deref().unwrap_or_default();
                if !["", namespace].contains(&meta::text(&value, "namespace")) {
                    let why = "the namespace of the provided object does not match the namespace sent on the request";
                    return Err(Failure::bad_request(why));
                }
                meta::set(&mut value, "namespace", namespace);
                validate(review, &value)?;
                self.review_access(&subject(&value["spec"]), &value["spec"])
            }
        };
        value["status"] = status;
        Ok(value)
    }

    fn review_access(&self, user: &User, spec: &Value) -> Value {
        let asked = &spec["resourceAttributes"];
        let object = match asked.is_object() {
            true => Object::Resource(Resource {
                group: text(&asked["group"]),
                resource: text(&asked["resource"]),
                subresource: text(&asked["subresource"]),
                namespace: text(&asked["namespace"]),
                name: text(&asked["name"]),
            }),
            false => Object::Path(text(&spec["nonResourceAttributes"]["path"])),
        };
        let verb = match object {
            Object::Resource(_) => text(&asked["verb"]),
            Object::Path(_) => text(&spec["nonResourceAttributes"]["verb"]),
        };
        let shared = &self.shared;
        let (allowed, reason) = shared.authorizer.decide(&shared.core, user, &Attributes { verb, object });
        let mut status = json!({"allowed": allowed});
        if !reason.is_empty() {
            status["reason"] = reason.into();
        }
        status
    }

    fn review_token(&self, spec: &Value) -> Result<Value> {
        let token = text(&spec["token"]);
        if token.is_empty() {
            return Err(Failure::bad_request("token is required for TokenReview in authentication"));
        }
        let audiences = spec["audiences"].as_array().into_iter().flatten();
        let audiences: Vec<_> = audiences.map(|audience| text(audience).to_owned()).collect();
        Ok(match self.shared.tokens.verify(&self.shared.core, token, &audiences) {
            Ok(verified) => {
                json!({"authenticated": true, "user": verified.user.shown(), "audiences": verified.audiences})
            }
            Err(error) => json!({"user": {}, "error": error}),
        })
    }
}

/// The user whom a SubjectAccessReview is about.
fn subject(spec: &Value) -> User {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|text| self::text(text).to_owned()).collect()
    };
    let mut user = User::default();
    (user.name, user.uid) = (text(&spec["user"]).to_owned(), text(&spec["uid"]).to_owned());
    user.groups = texts(&spec["groups"]);
    let extra = spec["extra"].as_object().into_iter().flatten();
    user.extra = extra.map(|(key, values)| (key.clone(), texts(values))).collect();
    user
}

/// Validates an access review.
fn validate(review: &Review, value: &Value) -> Result<()> {
    let spec = &value["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    // The real server shows its internal type.
    let shown = || json!({"Path": text(&other["path"]), "Verb": text(&other["verb"])});
    let mut causes = Vec::new();
    match (resource.is_object(), other.is_object()) {
        (true, true) => {
            let why = "cannot be specified in combination with resourceAttributes";
            causes.push(Cause::invalid("spec.nonResourceAttributes", &shown(), why));
        }
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            causes.push(Cause::invalid("spec.resourceAttributes", &Value::Null, why));
        }
        _ => {}
    }
    let has_groups = spec["groups"].as_array().is_some_and(|groups| !groups.is_empty());
    if review.answer != Answer::OwnAccess && text(&spec["user"]).is_empty() && !has_groups {
        let why = "at least one of user or group must be specified";
        causes.push(Cause::invalid("spec.user", &"".into(), why));
    }
    let is_local = review.answer == Answer::LocalAccess;
    let allowed = |field: &str| field == "managedFields" || is_local && field == "namespace";
    if value["metadata"].as_object().into_iter().flatten().any(|(field, _)| !allowed(field)) {
        let why = if is_local { "must be empty except for namespace" } else { "must be empty" };
        causes.push(Cause::invalid("metadata", &value["metadata"], why));
    }
    if is_local {
        let namespace = text(&resource["namespace"]);
        if resource.is_object() && namespace != meta::text(value, "namespace") {
            let field = "spec.resourceAttributes.namespace";
            causes.push(Cause::invalid(field, &namespace.into(), "must match metadata.namespace"));
        }
        if other.is_object() {
            let why = "disallowed on this kind of request";
            causes.push(Cause::invalid("spec.nonResourceAttributes", &shown(), why));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_as(review.group, "", "", causes)) }
}
