//! A client to which the server refuses some requests, while that is asked for.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use http::{Request, Response, StatusCode};
use http_body_util::{Either, Full};
use kube_client::client::Body;
use tower::ServiceExt;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::ApiServer;

/// A client whose requests that `is_meant` matches are forbidden while the flag is set.
pub(crate) fn refusing(
    server: &ApiServer,
    env: &Env,
    is_meant: fn(&Request<Body>) -> bool,
) -> (Client, Arc<AtomicBool>) {
    let (service, flag) = (server.service(), Arc::new(AtomicBool::new(false)));
    let is_set = flag.clone();
    let guarded = tower::service_fn(move |request: Request<Body>| {
        let (service, refused) = (service.clone(), is_meant(&request) && is_set.load(SeqCst));
        async move {
            if refused {
                let status =
                    r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"it is forbidden"}"#;
                let answer =
                    Response::builder().status(StatusCode::FORBIDDEN).body(Either::Right(Full::from(status)));
                return Ok::<_, Infallible>(answer.unwrap());
            }
            Ok(service.oneshot(request).await?.map(Either::Left))
        }
    });
    (Client::from_kube(kube_client::Client::new(guarded, "default"), env), flag)
}
