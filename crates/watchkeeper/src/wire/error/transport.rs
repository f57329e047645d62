//! Failures to send a request or to read its answer.

use std::error::Error;
use std::io;

use hyper_util::client::legacy;

use super::{ApiError, Class};

/// The error of a request for which no connection could be opened, so that nothing of it was sent.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect")]
pub(crate) struct CannotConnect(#[source] pub(crate) Box<dyn Error + Send + Sync>);

/// Returns the error without kube's wrapper around it, whose text only names the layer: `ServiceError: `.
pub(super) fn unwrapped(error: Box<dyn Error + Send + Sync>) -> Box<dyn Error + Send + Sync> {
    match error.downcast::<kube_client::Error>() {
        Ok(error) => match *error {
            kube_client::Error::Service(error) => error,
            kube_client::Error::HyperError(error) => error.into(),
            other => other.into(),
        },
        Err(error) => error,
    }
}

/// Returns the class of the failure that `error` and its causes describe.
pub(super) fn classify(error: &(dyn Error + 'static)) -> Class {
    let (mut class, mut connecting) = (Class::Other, false);
    let mut cause = Some(error);
    while let Some(link) = cause {
        connecting |=
            link.is::<CannotConnect>() || link.downcast_ref().is_some_and(legacy::Error::is_connect);
        if let Some(found) = class_of(link) {
            class = found;
        }
        cause = link.source();
    }
    if connecting && class != Class::ConnectionRefused {
        class = Class::Unreachable;
    }
    class
}

/// Returns the class of one error, regardless of its causes.
fn class_of(error: &(dyn Error + 'static)) -> Option<Class> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return match error.kind() {
            io::ErrorKind::ConnectionRefused => Some(Class::ConnectionRefused),
            io::ErrorKind::TimedOut => Some(Class::Timeout),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::UnexpectedEof => Some(Class::ConnectionLost),
            _ => None,
        };
    }
    if let Some(api) = error.downcast_ref::<ApiError>() {
        return Some(api.class);
    }
    // The errors of hyper and hyper-util have no types of their own.
    let text = error.to_string();
    let lost = [
        "connection closed",
        "incomplete message",
        "connection error",
        "canceled",
        "channel closed",
        "end of file",
    ];
    if text.contains("timed out") || text.contains("deadline") {
        return Some(Class::Timeout);
    }
    lost.iter().any(|lost| text.contains(lost)).then_some(Class::ConnectionLost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_failures_are_found_anywhere_in_the_chain() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] io::Error);
        for (kind, class) in [
            (io::ErrorKind::ConnectionRefused, Class::ConnectionRefused),
            (io::ErrorKind::ConnectionReset, Class::ConnectionLost),
            (io::ErrorKind::HostUnreachable, Class::ConnectionLost),
            (io::ErrorKind::NetworkUnreachable, Class::ConnectionLost),
            (io::ErrorKind::NetworkDown, Class::ConnectionLost),
            (io::ErrorKind::TimedOut, Class::Timeout),
            (io::ErrorKind::PermissionDenied, Class::Other),
        ] {
            let error = ApiError::from_transport(Outer(kind.into()));
            assert_eq!((error.class(), error.code()), (class, None));
            assert_eq!(error.source().unwrap().to_string(), "outer");
        }
    }

    #[tokio::test]
    async fn without_a_connection_nothing_was_sent() {
        use hyper_util::rt::{TokioExecutor, TokioIo};
        for (kind, class) in [
            (io::ErrorKind::ConnectionRefused, Class::ConnectionRefused),
            (io::ErrorKind::HostUnreachable, Class::Unreachable),
            (io::ErrorKind::TimedOut, Class::Unreachable),
            (io::ErrorKind::ConnectionReset, Class::Unreachable),
            // An error of the resolver.
            (io::ErrorKind::Other, Class::Unreachable),
        ] {
            let no_stream = move |_: http::Uri| {
                std::future::ready(Err::<TokioIo<tokio::net::TcpStream>, _>(io::Error::from(kind)))
            };
            let client = legacy::Client::builder(TokioExecutor::new()).build(tower::service_fn(no_stream));
            let client: legacy::Client<_, http_body_util::Empty<bytes::Bytes>> = client;
            let error = client.get(http::Uri::from_static("http://server.test")).await.unwrap_err();
            assert_eq!(ApiError::from_transport(error).class(), class, "{kind:?}");
            let error = CannotConnect(io::Error::from(kind).into());
            assert_eq!(ApiError::from_transport(error).class(), class, "{kind:?}");
        }
    }

    #[test]
    fn transport_failures_without_a_type_are_classified_by_their_text() {
        for (text, class) in [
            ("operation timed out", Class::Timeout),
            ("deadline has elapsed", Class::Timeout),
            ("connection closed before message completed", Class::ConnectionLost),
            ("no such host", Class::Other),
        ] {
            assert_eq!(ApiError::from_transport(text).class(), class, "{text}");
        }
        let known = ApiError::new(Class::Unauthorized, "no token");
        assert_eq!(ApiError::from_transport(known).class(), Class::Unauthorized);
    }
}
