//! How do client and server know each other? A CA, a server certificate, and a bearer token, made on the spot.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use subtle::ConstantTimeEq as _;
use watchkeeper::clock::Generator;

/// The CA's key and certificate, in a folder that keeps them.
pub(crate) const CA_FILE: &str = "ca.pem";
pub(crate) const TOKEN_FILE: &str = "token";

/// A CA, the means to make server certificates, and a token. Clones share them.
///
/// The same credentials can be listened with again, so that a client's kubeconfig outlives a restart.
#[derive(Clone)]
pub struct Credentials(Arc<Secrets>);

struct Secrets {
    ca: String,
    issuer: Issuer<'static, KeyPair>,
    token: String,
}

/// Why no credentials could be made.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A key or certificate could not be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library refused the certificate.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

impl Credentials {
    /// Makes a CA and a random token of 256 bits, from the operating system's entropy.
    pub fn generate() -> Result<Self, CredentialsError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "watchkeeper development CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let ca = params.self_signed(&key)?.pem();
        let mut token = [0; 32];
        Generator::system().fill(&mut token);
        let token = URL_SAFE_NO_PAD.encode(token);
        Ok(Self(Arc::new(Secrets { ca, issuer: Issuer::new(params, key), token })))
    }

    /// The CA's certificate, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.0.ca
    }

    /// The bearer token. It opens everything: keep it out of logs.
    pub fn token(&self) -> &str {
        &self.0.token
    }

    /// Whether a request carries the right token. Takes the same time wherever a wrong one differs.
    pub(crate) fn admits(&self, authorization: Option<&str>) -> bool {
        let Some((scheme, token)) = authorization.and_then(|text| text.split_once(' ')) else { return false };
        scheme.eq_ignore_ascii_case("bearer") && token.trim().as_bytes().ct_eq(self.0.token.as_bytes()).into()
    }

    /// A TLS configuration with a fresh certificate for this address.
    pub(crate) fn server_config(&self, address: IpAddr) -> Result<ServerConfig, CredentialsError> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, "watchkeeper");
        let mut addresses = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
        if !addresses.contains(&address) && !address.is_unspecified() {
            addresses.push(address);
        }
        params.subject_alt_names.extend(addresses.into_iter().map(SanType::IpAddress));
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0.issuer)?;
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        // The provider is named here: a library must not depend on, or set, the process's default.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// A kubeconfig for this server at `url`.
    pub(crate) fn kubeconfig(&self, url: &str) -> String {
        let ca = STANDARD.encode(self.ca_pem());
        let cluster = format!("    server: {url}\n    certificate-authority-data: {ca}\n");
        kubeconfig(&cluster, &format!("    token: {}\n", self.token()))
    }
}

/// A kubeconfig with one context, named `watchkeeper`; without credentials for a server that asks for none.
pub(crate) fn insecure_kubeconfig(url: &str) -> String {
    kubeconfig(&format!("    server: {url}\n"), "")
}

fn kubeconfig(cluster: &str, user: &str) -> String {
    let user = if user.is_empty() { "  user: {}\n".to_owned() } else { format!("  user:\n{user}") };
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: watchkeeper\n\
         clusters:\n- name: watchkeeper\n  cluster:\n{cluster}\
         users:\n- name: watchkeeper\n{user}\
         contexts:\n- name: watchkeeper\n  context:\n    cluster: watchkeeper\n    user: watchkeeper\n    namespace: default\n"
    )
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_token_is_admitted() {
        let credentials = Credentials::generate().unwrap();
        let right = format!("Bearer {}", credentials.token());
        assert!(credentials.admits(Some(&right)));
        for wrong in [None, Some(""), Some("Bearer x"), Some("Basic abc"), Some(&right[..right.len() - 1])] {
            assert!(!credentials.admits(wrong));
        }
    }

    #[test]
    fn neither_debug_output_nor_another_server_knows_the_token() {
        let (a, b) = (Credentials::generate().unwrap(), Credentials::generate().unwrap());
        assert_ne!(a.token(), b.token());
        assert!(!format!("{a:?}").contains(a.token()));
        assert!(a.token().len() >= 43);
    }
}
