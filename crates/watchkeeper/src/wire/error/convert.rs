//! Conversions of the errors of kube and of the splitters.

use http::StatusCode;
use kube_core::request::Error as RequestError;

use super::status::Status;
use super::{ApiError, Class};
use crate::object::JsonError;
use crate::wire::pieces::SplitError;

/// The reason that kube sets if a body is not a Status. The message is then that body.
const NO_STATUS: &str = "Failed to parse error data";

impl From<kube_client::Error> for ApiError {
    /// Converts an error of kube's client into the same classes, and without values of a body.
    fn from(error: kube_client::Error) -> Self {
        use kube_client::Error;
        match error {
            Error::Api(status) if status.reason == NO_STATUS => {
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                Self::from_response(code, None, b"")
            }
            Error::Api(status) => Self::from(Status::from(*status)),
            Error::SerdeError(error) => Self::undecodable(JsonError::from(error)),
            Error::FromUtf8(error) => Self::undecodable(error.utf8_error()),
            Error::BuildRequest(error) => Self::from(error),
            Error::HttpError(error) => Self::unsendable(error),
            other => Self::from_transport(other),
        }
    }
}

impl From<RequestError> for ApiError {
    /// Omits the values of a body that could not be encoded.
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::SerializeBody(error) => {
                Self::new(Class::Invalid, format!("cannot encode the request: {}", JsonError::from(error)))
            }
            other => Self::unsendable(other),
        }
    }
}

impl From<SplitError> for ApiError {
    fn from(error: SplitError) -> Self {
        match error {
            SplitError::Truncated => Self {
                source: Some(error.into()),
                ..Self::new(Class::ConnectionLost, "the answer broke off")
            },
            other => Self::undecodable(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;
    use std::time::Duration;

    use super::super::status::tests::status;
    use super::*;
    use crate::object::Malformed;

    #[test]
    fn an_error_of_kubes_client_is_classified_the_same_and_keeps_bodies_to_itself() {
        let read = |body: &[u8]| serde_json::from_slice::<kube_core::Status>(body).unwrap();
        for (code, reason, class) in [
            (404, "NotFound", Class::NotFound),
            (409, "AlreadyExists", Class::AlreadyExists),
            (409, "Conflict", Class::Conflict),
            (410, "Expired", Class::Expired),
            (429, "", Class::TooManyRequests),
        ] {
            let body = status(code, reason);
            let error = ApiError::from(kube_client::Error::Api(Box::new(read(&body))));
            let ours = ApiError::from_response(StatusCode::from_u16(code).unwrap(), None, &body);
            assert_eq!((error.class(), error.to_string()), (class, ours.to_string()));
        }
        let busy = br#"{"kind":"Status","code":504,"details":{"retryAfterSeconds":3,"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
        let error = ApiError::from(kube_client::Error::Api(Box::new(read(busy))));
        assert_eq!(
            (error.class(), error.retry_after()),
            (Class::VersionTooLarge, Some(Duration::from_secs(3)))
        );
        let page = kube_core::Status::failure("<html>secret</html>", NO_STATUS).with_code(502);
        let text = serde_json::from_str::<u32>("\"secret\"").unwrap_err();
        let bytes = String::from_utf8(b"secret\xff".to_vec()).unwrap_err();
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        for (error, class) in [
            (kube_client::Error::Api(Box::new(page)), Class::Other),
            (kube_client::Error::SerdeError(text), Class::Undecodable),
            (kube_client::Error::FromUtf8(bytes), Class::Undecodable),
            (kube_client::Error::Service(Box::new(reset)), Class::ConnectionLost),
        ] {
            let error = ApiError::from(error);
            assert_eq!(error.class(), class);
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn the_layer_of_kube_in_which_a_request_failed_is_not_told() {
        let refused =
            || kube_client::Error::Service(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused)));
        for error in [ApiError::from(refused()), ApiError::from_transport(refused())] {
            assert_eq!(error.class(), Class::ConnectionRefused);
            let text = crate::report::WithCauses(&error).to_string();
            assert_eq!(text, "cannot reach the API server: connection refused");
        }
    }

    #[test]
    fn an_answer_that_breaks_off_is_a_lost_connection_and_one_that_makes_no_sense_undecodable() {
        let broken = Malformed { what: "expected an object", at: 0 };
        for (error, class, text) in [
            (SplitError::Truncated, Class::ConnectionLost, SplitError::Truncated.to_string()),
            (broken.into(), Class::Undecodable, broken.to_string()),
        ] {
            let error = ApiError::from(error);
            assert_eq!((error.class(), error.source().unwrap().to_string()), (class, text));
        }
    }
}
