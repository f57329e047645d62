//! What can be done about an error? One sentence, where there is something to say.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::Path;

use watchkeeper::process::ConnectError;
use watchkeeper::wire::{ApiError, Class};
use watchkeeper_apiserver::ServeError;

use crate::demo::DemoError;
use crate::plane::PlaneError;
use crate::up::UpError;

const KUBECONFIG: &str =
    "check --kubeconfig and KUBECONFIG; `watchkeeper serve` starts a cluster and writes a kubeconfig for it";

/// What to do next.
pub(crate) fn advice(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<UpError>() {
        return match error {
            UpError::Plane(error) => of_plane(error),
            UpError::Connect(error) => of_connect(error),
            UpError::Create { source, .. } => of_api(source),
            UpError::Controller(_) | UpError::View(_) | UpError::Unused => None,
        };
    }
    if let Some(DemoError::NotSeen(_)) = error.downcast_ref() {
        return Some("--log-level info shows what the controller did instead");
    }
    let plane = error.downcast_ref().and_then(of_plane);
    plane.or_else(|| error.downcast_ref().and_then(of_connect))
}

fn of_plane(error: &PlaneError) -> Option<&'static str> {
    match error {
        PlaneError::Serve(ServeError::NotLoopback(_)) => Some(
            "leave out --insecure-http: the kubeconfig has the certificate and the token that others need",
        ),
        PlaneError::Serve(ServeError::Bind { source, .. }) => of_bind(source),
        PlaneError::Credentials(_) | PlaneError::Serve(ServeError::Credentials(_)) => Some(
            "--tls-cert takes a certificate and its chain, --tls-key its private key, unencrypted, both in PEM form; without them one is made",
        ),
        PlaneError::Kubeconfig { file, .. } => match Path::new(file).parent() {
            Some(folder) if !folder.exists() => {
                Some("make its folder, or choose another file with --kubeconfig-out")
            }
            _ => Some("choose another file with --kubeconfig-out"),
        },
        _ => None,
    }
}

fn of_bind(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::AddrInUse => {
            Some("another program listens there: choose another --listen, or port 0 for a free one")
        }
        ErrorKind::PermissionDenied => {
            Some("choose a --listen with a port above 1023, or port 0 for a free one")
        }
        ErrorKind::AddrNotAvailable => {
            Some("this machine has no such address: --listen 127.0.0.1:0 always works")
        }
        _ => None,
    }
}

fn of_connect(error: &ConnectError) -> Option<&'static str> {
    match error {
        ConnectError::Unreadable { .. } | ConnectError::NoFile(_) | ConnectError::Nothing => Some(KUBECONFIG),
        _ => None,
    }
}

fn of_api(error: &ApiError) -> Option<&'static str> {
    match error.class() {
        Class::ConnectionRefused | Class::Unreachable | Class::ConnectionLost | Class::Timeout => {
            Some("is the cluster up? `kubectl get --raw /readyz` with the same kubeconfig tells")
        }
        Class::Unauthorized => {
            Some("the cluster does not know these credentials: is it the right --kubeconfig or --context?")
        }
        Class::Forbidden => {
            Some("these credentials may not do that: choose another --context, or ask for the rights")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_recognized_wherever_it_comes_from() {
        let in_use = || {
            let source = io::Error::from(ErrorKind::AddrInUse);
            PlaneError::Serve(ServeError::Bind { address: ([127, 0, 0, 1], 80).into(), source })
        };
        let wanted = Some("another program listens there: choose another --listen, or port 0 for a free one");
        assert_eq!(advice(&in_use()), wanted);
        assert_eq!(advice(&UpError::Plane(in_use())), wanted);
        assert_eq!(advice(&ConnectError::Nothing), Some(KUBECONFIG));
        assert_eq!(advice(&std::fmt::Error), None);
    }
}
