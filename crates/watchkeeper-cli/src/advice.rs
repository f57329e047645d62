//! Advice on errors: what the user can do next.

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

/// What to do about an error, in one sentence.
pub(crate) fn advice(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<UpError>() {
        return match error {
            UpError::Plane(error) => of_plane(error),
            UpError::Connect(error) => of_connect(error),
            UpError::Create { source, .. } => of_api(source),
            UpError::Controller(_) | UpError::View(_) | UpError::NothingToShow | UpError::Unused => None,
        };
    }
    if let Some(DemoError::NotSeen(_)) = error.downcast_ref() {
        return Some("run with --log-level info to see what the controller did");
    }
    let plane = error.downcast_ref().and_then(of_plane);
    plane.or_else(|| error.downcast_ref().and_then(of_connect))
}

fn of_plane(error: &PlaneError) -> Option<&'static str> {
    match error {
        PlaneError::Serve(ServeError::NotLoopback(_)) => Some(
            "omit --insecure-http: the kubeconfig contains the certificate and the token that clients need",
        ),
        PlaneError::Serve(ServeError::Bind { source, .. }) => of_bind(source),
        PlaneError::Credentials(_) | PlaneError::Serve(ServeError::Credentials(_)) => Some(
            "--tls-cert takes a certificate and its chain, --tls-key its unencrypted private key, both as PEM; without them a certificate is generated",
        ),
        PlaneError::Kubeconfig { file, .. } => match Path::new(file).parent() {
            Some(folder) if !folder.exists() => {
                Some("create its directory, or choose another file with --kubeconfig-out")
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
            Some("check that the cluster is up: run `kubectl get --raw /readyz` with the same kubeconfig")
        }
        Class::Unauthorized => {
            Some("the cluster rejects these credentials: check --kubeconfig and --context")
        }
        Class::Forbidden => {
            Some("these credentials lack the permission: choose another --context, or ask for the permission")
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
