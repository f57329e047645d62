//! Checks of the credentials of a kubeconfig, which name the invalid field.

use std::fs;

use base64::prelude::{BASE64_STANDARD, Engine};
use http::HeaderValue;
use kube_client::config::{AuthInfo, AuthProviderConfig, Cluster, ExecAuthCluster, ExecConfig};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use secrecy::{ExposeSecret, SecretString};

/// A field, and its problem; never its value, which may be a secret.
pub(super) type Problem = (&'static str, String);

type Certificates = Vec<Vec<u8>>;

/// Returns `cluster` in the form for credential plugins, and the certificates of its authority.
pub(super) fn authority(cluster: &mut Cluster) -> Result<(ExecAuthCluster, Option<Certificates>), Problem> {
    let texts = [
        &mut cluster.certificate_authority,
        &mut cluster.certificate_authority_data,
        &mut cluster.tls_server_name,
    ];
    for text in texts {
        text.take_if(|text| text.is_empty());
    }
    if let Some(name) = &cluster.tls_server_name {
        ServerName::try_from(&**name)
            .map_err(|_| ("tls-server-name", "is no name of a server".to_owned()))?;
    }
    let is_data = cluster.certificate_authority_data.is_some();
    let field = if is_data { "certificate-authority-data" } else { "certificate-authority" };
    if cluster.insecure_skip_tls_verify == Some(true) && (is_data || cluster.certificate_authority.is_some())
    {
        return Err(("insecure-skip-tls-verify", format!("and {field} are both given: leave one out")));
    }
    if is_data {
        cluster.certificate_authority = None;
    }
    let info = ExecAuthCluster::try_from(&*cluster).map_err(|error| (field, error.to_string()))?;
    let Some(pem) = &info.certificate_authority_data else { return Ok((info, None)) };
    let found = certificates(field, pem)?;
    for certificate in &found {
        RootCertStore::empty().add(certificate.clone()).map_err(|_| no_certificate(field))?;
    }
    let found = found.iter().map(|certificate| certificate.to_vec()).collect();
    Ok((info, Some(found)))
}

/// Returns `user` without empty fields, if it is usable as far as that can be checked in advance.
pub(super) fn usable(mut user: AuthInfo) -> Result<AuthInfo, Problem> {
    let texts = [
        &mut user.client_certificate,
        &mut user.client_certificate_data,
        &mut user.client_key,
        &mut user.token_file,
    ];
    for text in texts {
        text.take_if(|text| text.is_empty());
    }
    for secret in [&mut user.client_key_data, &mut user.token] {
        secret.take_if(|secret| secret.expose_secret().is_empty());
    }
    check_alternatives(&user)?;
    check_pair(&user)?;
    if let Some(file) = &user.token_file {
        let text = String::from_utf8_lossy(&read("tokenFile", file)?).trim().to_owned();
        if text.is_empty() {
            return Err(("tokenFile", "is empty".to_owned()));
        }
        check_header("tokenFile", &text)?;
    }
    user.exec.as_ref().map_or(Ok(()), check_plugin)?;
    user.auth_provider.as_ref().map_or(Ok(()), check_provider)?;
    let groups = user.impersonate_groups.iter().flatten().map(|group| ("as-groups", &**group));
    let texts = [
        ("token", exposed(&user.token)),
        ("as", user.impersonate.as_deref()),
        ("as-uid", user.impersonate_uid.as_deref()),
    ];
    for (field, text) in texts.into_iter().filter_map(|(field, text)| Some((field, text?))).chain(groups) {
        check_header(field, text)?;
    }
    Ok(user)
}

/// Checks that no exclusive fields are set together, and that dependent fields are not set alone.
fn check_alternatives(user: &AuthInfo) -> Result<(), Problem> {
    let has_extra = user.impersonate_user_extra.as_ref().is_some_and(|extra| !extra.is_empty());
    let has_groups = user.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty());
    let (is_basic, has_exec) = (user.username.is_some() || user.password.is_some(), user.exec.is_some());
    let problems = [
        (user.token.is_some() && is_basic, "token", "and username are both given: leave one out"),
        (has_exec && user.auth_provider.is_some(), "exec", "and auth-provider are both given: leave one out"),
        (
            user.client_certificate.is_some() && user.client_certificate_data.is_some(),
            "client-certificate",
            "and client-certificate-data are both given: leave one out",
        ),
        (
            user.client_key.is_some() && user.client_key_data.is_some(),
            "client-key",
            "and client-key-data are both given: leave one out",
        ),
        (
            user.impersonate.is_none() && (user.impersonate_uid.is_some() || has_groups || has_extra),
            "as",
            "is missing: there is more to be said of that user",
        ),
    ];
    let found = problems.into_iter().find(|(is_wrong, ..)| *is_wrong);
    found.map_or(Ok(()), |(_, field, problem)| Err((field, problem.to_owned())))
}

/// Checks that the client's certificate and key are both set and match, or neither is set.
fn check_pair(user: &AuthInfo) -> Result<(), Problem> {
    let data = user.client_certificate_data.as_deref();
    let certificate =
        load(("client-certificate-data", data), ("client-certificate", user.client_certificate.as_deref()))?;
    let data = exposed(&user.client_key_data);
    let key = load(("client-key-data", data), ("client-key", user.client_key.as_deref()))?;
    let ((certificate_field, certificate), (key_field, key)) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => {
            return Err(("client-key", "is missing: there is a client certificate".to_owned()));
        }
        (None, Some(_)) => {
            return Err(("client-certificate", "is missing: there is a client key".to_owned()));
        }
        (None, None) => return Ok(()),
    };
    let chain = certificates(certificate_field, &certificate)?;
    let key =
        PrivateKeyDer::from_pem_slice(&key).map_err(|_| (key_field, "holds no private key".to_owned()))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map(drop).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            (key_field, "is not the key of the client certificate".to_owned())
        }
        rustls::Error::InvalidCertificate(_) => no_certificate(certificate_field),
        _ => (key_field, "holds no private key of a known kind".to_owned()),
    })
}

fn check_plugin(exec: &ExecConfig) -> Result<(), Problem> {
    if exec.command.as_deref().is_none_or(str::is_empty) {
        return Err(("exec.command", "is missing: give the program to run".to_owned()));
    }
    match exec.api_version.as_deref() {
        None | Some("client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1") => Ok(()),
        Some(other) => {
            let problem =
                format!("is {other:?}, which is not supported: use client.authentication.k8s.io/v1");
            Err(("exec.apiVersion", problem))
        }
    }
}

fn check_provider(provider: &AuthProviderConfig) -> Result<(), Problem> {
    if provider.name != "oidc" {
        return Err((
            "auth-provider.name",
            format!("is {:?}, which is not supported: use exec", provider.name),
        ));
    }
    let set = |name: &str| provider.config.get(name).filter(|text| !text.is_empty());
    if let Some(token) = set("id-token") {
        check_header("auth-provider.config.id-token", token)?;
    }
    if set("refresh-token").is_none() {
        let missing = || ("auth-provider.config.id-token", "is missing".to_owned());
        return set("id-token").map(drop).ok_or_else(missing);
    }
    let needed = "is missing: refresh-token needs it".to_owned();
    match set("idp-issuer-url").map(|url| url.starts_with("https://")) {
        None => return Err(("auth-provider.config.idp-issuer-url", needed)),
        Some(false) => {
            return Err(("auth-provider.config.idp-issuer-url", "is not a URL of https".to_owned()));
        }
        Some(true) => {}
    }
    set("client-id").map(drop).ok_or(("auth-provider.config.client-id", needed))
}

fn check_header(field: &'static str, text: &str) -> Result<(), Problem> {
    let problem = |_| (field, "holds what no header may, such as a line break".to_owned());
    HeaderValue::from_str(text).map(drop).map_err(problem)
}

/// Returns the contents of the data field, or else of the file, and which of the two it is.
fn load(
    (data_field, data): (&'static str, Option<&str>),
    (file_field, file): (&'static str, Option<&str>),
) -> Result<Option<(&'static str, Vec<u8>)>, Problem> {
    match (data, file) {
        (Some(data), _) => {
            let bytes = BASE64_STANDARD.decode(data).map_err(|_| (data_field, "is not base64".to_owned()))?;
            Ok(Some((data_field, bytes)))
        }
        (None, Some(file)) => Ok(Some((file_field, read(file_field, file)?))),
        (None, None) => Ok(None),
    }
}

fn read(field: &'static str, path: &str) -> Result<Vec<u8>, Problem> {
    fs::read(path).map_err(|error| (field, format!("cannot read {path}: {error}")))
}

/// Returns the certificates in `pem`, at least one.
fn certificates(field: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| no_certificate(field))
}

fn no_certificate(field: &'static str) -> Problem {
    (field, "holds no certificate".to_owned())
}

fn exposed(secret: &Option<SecretString>) -> Option<&str> {
    secret.as_ref().map(|secret| secret.expose_secret())
}
