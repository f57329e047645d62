//! Subresources other than `status`: `scale`, and the actions on pods `log`, `binding` and `eviction`.

use std::sync::Arc;

use http::Method;
use jiff::SignedDuration;
use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::failure::{self, Cause, Failure, Result};
use crate::http::body::RequestBody;
use crate::http::handler::Call;
use crate::http::negotiate::{self, Form};
use crate::http::reply::{self, Reply};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::store::Key;
use crate::verbs::delete::DeleteOptions;
use crate::verbs::logs::LogOptions;

impl Call {
    /// The `scale` subresource of any scalable kind.
    pub(super) async fn scale(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        form: Form,
        body: impl RequestBody,
    ) -> Result<Reply> {
        let see = |core: &Core| Ok(core.see(kind, key));
        let (stored, _) = match self.method {
            Method::GET | Method::HEAD => (self.read(kind, |core| core.get(kind, key))?, false),
            Method::PUT => {
                let write = self.write_options("UpdateOptions")?;
                let body = self.read_body(body).await?;
                let (scale, _) =
                    negotiate::read_object(&self.headers, &body, ("autoscaling/v1", "Scale"), true)?;
                self.write(kind, see, |seen| seen.put_scale(kind, &scale, &write))?
            }
            Method::PATCH => {
                let mut write = self.write_options("PatchOptions")?;
                let patch = self.read_patch(kind, body, &mut write).await?;
                self.write(kind, see, |seen| seen.patch_scale(kind, &patch, &write))?
            }
            _ => return Err(Failure::method_not_allowed()),
        };
        Ok(reply::value(200, form, &Core::scale_of(kind, &stored)?))
    }

    /// Serves a request for `part`, a subresource of a pod.
    pub(super) async fn pod_part(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        part: &str,
        form: Form,
        body: impl RequestBody,
    ) -> Result<Reply> {
        match (part, &self.method) {
            ("log", &Method::GET) => {
                let options = self.log_options()?;
                let log = self.shared.core.lock().log(kind, key, options)?;
                Ok(if log.is_empty() { reply::plain(204, "") } else { reply::text(200, log) })
            }
            ("binding", &Method::POST) => {
                let write = self.write_options("CreateOptions")?;
                let body = self.read_body(body).await?;
                let mut binding = self.read_about(&body, ("v1", "Binding"), key)?;
                self.admit_body(kind, key, ("binding", "v1", "Binding"), &mut binding, write.dry_run)?;
                self.commit(|core| core.bind(kind, key, &binding, write.dry_run))?;
                Ok(reply::value(201, form, &failure::success()))
            }
            ("eviction", &Method::POST) => {
                let write = self.write_options("CreateOptions")?;
                let body = self.read_body(body).await?;
                let mut eviction = self.read_about(&body, ("policy/v1", "Eviction"), key)?;
                self.admit_body(
                    kind,
                    key,
                    ("eviction", "policy/v1", "Eviction"),
                    &mut eviction,
                    write.dry_run,
                )?;
                let mut options = DeleteOptions::read(&eviction["deleteOptions"])?;
                options.dry_run |= write.dry_run;
                self.commit(|core| core.evict(kind, key, &options))?;
                Ok(reply::value(201, form, &failure::success()))
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// The part of a log that the client asks for.
    fn log_options(&self) -> Result<LogOptions<'_>> {
        let count = |name: &str| {
            let number = self.query.number(name)?;
            match number {
                Some(number) if number < 0 => {
                    let cause = Cause::invalid(name, &number.into(), "must be greater than or equal to 0");
                    Err(Failure::invalid_options("PodLogOptions", vec![cause]))
                }
                number => Ok(number.and_then(|number| usize::try_from(number).ok())),
            }
        };
        let since = self.query.text("sinceTime");
        let seconds = self.query.number("sinceSeconds")?;
        if let Some(seconds) = seconds.filter(|seconds| *seconds < 1) {
            let cause = Cause::invalid("sinceSeconds", &seconds.into(), "must be greater than 0");
            return Err(Failure::invalid_options("PodLogOptions", vec![cause]));
        }
        let flag = |name: &str| self.query.flag(name).unwrap_or(false);
        Ok(LogOptions {
            container: self.query.text("container"),
            previous: flag("previous"),
            timestamps: flag("timestamps"),
            tail: count("tailLines")?,
            limit: count("limitBytes")?,
            since: match seconds {
                Some(seconds) => self.now().checked_sub(SignedDuration::from_secs(seconds)).ok(),
                None => since.parse().ok(),
            },
        })
    }

    /// Lets admission change or refuse the body of a POST to a subresource, given as its name and the kind of its body.
    pub(super) fn admit_body(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        (subresource, api_version, body): (&str, &'static str, &'static str),
        value: &mut Value,
        dry_run: bool,
    ) -> Result<()> {
        let Some(session) = &self.admission else { return Ok(()) };
        let attempt = Attempt::write(session, kind, key, None, dry_run);
        let attempt = attempt.of(subresource, Some((api_version, body)));
        attempt.mutate(value)?;
        attempt.validate(Some(value))
    }

    /// Decodes a body of `kind` whose `metadata.name` must be the pod of the path.
    fn read_about(&self, body: &[u8], kind: (&str, &str), key: &Key) -> Result<Value> {
        let value = self.read_typed(body, kind)?;
        if meta::text(&value, "name") != key.name {
            let message = format!("name in URL does not match name in {} object", kind.1);
            return Err(Failure::bad_request(message));
        }
        Ok(value)
    }
}
