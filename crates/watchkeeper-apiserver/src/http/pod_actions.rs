//! Pod subresources that are actions: `log`, `binding` and `eviction`.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http_body::Body;
use serde_json::Value;

use crate::failure::{self, Failure, Result};
use crate::http::handler::{BoxError, Call};
use crate::http::negotiate::Form;
use crate::http::reply::{self, Reply};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::store::Key;
use crate::verbs::delete::DeleteOptions;

impl Call {
    /// Serves a request for `part`, a subresource of a pod.
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
                self.run(|core| core.bind(kind, key, &binding, write.dry_run))?;
                Ok(reply::value(201, form, &failure::success()))
            }
            ("eviction", &Method::POST) => {
                let write = self.write_options("CreateOptions")?;
                let body = self.read_body(body).await?;
                let eviction = self.read_about(&body, ("policy/v1", "Eviction"), key)?;
                let mut options = DeleteOptions::read(&eviction["deleteOptions"])?;
                options.dry_run |= write.dry_run;
                self.run(|core| core.evict(kind, key, &options))?;
                Ok(reply::value(201, form, &failure::success()))
            }
            _ => Err(Failure::method_not_allowed()),
        }
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
