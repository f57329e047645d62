//! Can the credentials of a kubeconfig be used, and if not, which field is to blame?

use std::fs;

use http::HeaderValue;
use kube_client::config::AuthInfo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::ExposeSecret;

/// A field, and what is wrong with it; never what it holds.
pub(super) type Problem = (&'static str, String);

/// Looks at all that can be known of `user` before it is used.
pub(super) fn check(user: &AuthInfo) -> Result<(), Problem> {
    let files = [
        ("client-certificate", &user.client_certificate),
        ("client-key", &user.client_key),
        ("tokenFile", &user.token_file),
    ];
    for (field, path) in files {
        let Some(path) = path else { continue };
        fs::File::open(path).map_err(|error| (field, format!("cannot read {path}: {error}")))?;
    }
    let provider = user.auth_provider.as_ref();
    let tokens = [
        ("token", user.token.as_ref().map(|token| token.expose_secret())),
        (
            "auth-provider.config.id-token",
            provider.and_then(|provider| provider.config.get("id-token")).map(|token| &**token),
        ),
    ];
    for (field, token) in tokens {
        if token.is_some_and(|token| HeaderValue::from_str(token).is_err()) {
            return Err((field, "holds what no header may, such as a line break".to_owned()));
        }
    }
    Ok(())
}

/// The certificates in `pem`, or what is wrong with it.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let found = CertificateDer::pem_slice_iter(pem).map(|found| found.map(|der| der.to_vec()));
    found.collect::<Result<_, _>>().map_err(|error| error.to_string())
}
