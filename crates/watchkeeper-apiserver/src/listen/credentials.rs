//! Server credentials: a CA, a server certificate and a bearer token, generated, stored or supplied by the user.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::time_provider::TimeProvider;
use watchkeeper::clock::{Clock, Generator};

use crate::persist::disk::{CA_FILE, TOKEN_FILE};
use crate::persist::private::{self, close_to_others, write_private};

/// A CA, a server identity and a bearer token. Clones share them.
///
/// Listening again with the same credentials keeps clients' kubeconfig files valid across restarts.
#[derive(Clone)]
pub struct Credentials(Arc<Secrets>);

struct Secrets {
    /// The certificates that clients trust, as PEM.
    ca: String,
    identity: Identity,
    token: String,
}

/// The source of the server certificate.
enum Identity {
    /// A certificate issued for the address.
    Issued(Box<Issuer<'static, KeyPair>>),
    /// A certificate supplied by the user.
    Own(Arc<ServerConfig>),
}

/// Why credentials could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A key or certificate could not be generated.
    #[error("cannot generate a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library refused the certificate.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// A file cannot be read or written.
    #[error("cannot use the file {}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file does not have the expected content.
    #[error("the file {} {problem}", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// What is wrong with the file, and what to do.
        problem: String,
    },
}

impl Credentials {
    /// Generates a CA and a random 256-bit token from the operating system's entropy.
    pub fn generate() -> Result<Self, CredentialsError> {
        let key = KeyPair::generate()?;
        let ca = ca_params()?.self_signed(&key)?.pem();
        Ok(Self::issuing(ca, key, new_token())?)
    }

    /// Loads the CA and token of a data directory. Missing ones are generated and stored, for the owner only.
    ///
    /// Call this while [`ApiServerBuilder::open`](crate::ApiServerBuilder::open) holds the data directory.
    pub fn kept_in(folder: &Path) -> Result<Self, CredentialsError> {
        let (ca_file, token_file) = (folder.join(CA_FILE), folder.join(TOKEN_FILE));
        let ca = match read_private(&ca_file)? {
            Some(text) => text,
            None => {
                let key = KeyPair::generate()?;
                let text = key.serialize_pem() + &ca_params()?.self_signed(&key)?.pem();
                write_private(&ca_file, &text).map_err(io_error(&ca_file))?;
                text
            }
        };
        let malformed = |file: &Path, what: &str| CredentialsError::Unusable {
            file: file.to_owned(),
            problem: format!("has no {what}: remove it to generate a new one"),
        };
        let key = KeyPair::from_pem(&ca).map_err(|_| malformed(&ca_file, "key of a CA"))?;
        let certificate = ca.find("-----BEGIN CERTIFICATE-----").map(|at| ca[at..].to_owned());
        let certificate = certificate.ok_or_else(|| malformed(&ca_file, "certificate of a CA"))?;
        let token = match read_private(&token_file)? {
            Some(token) => token.trim().to_owned(),
            None => {
                let token = new_token();
                write_private(&token_file, &format!("{token}\n")).map_err(io_error(&token_file))?;
                token
            }
        };
        if token.len() < 16 || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(malformed(&token_file, "token of at least 16 letters and digits"));
        }
        Ok(Self::issuing(certificate, key, token)?)
    }

    /// Returns the same token with a certificate of the user: `certificate` is a PEM file with the chain, `key` one
    /// with the private key.
    ///
    /// The kubeconfig trusts the certificates of the first file. They must be valid for the address at which clients
    /// reach the server.
    pub fn with_certificate(&self, certificate: &Path, key: &Path) -> Result<Self, CredentialsError> {
        let text = fs::read_to_string(certificate).map_err(io_error(certificate))?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| unreadable(certificate, "certificate", &error))?;
        if chain.is_empty() {
            return Err(unreadable(certificate, "certificate", &pem::Error::NoItemsFound));
        }
        let private = fs::read(key).map_err(io_error(key))?;
        let private = PrivateKeyDer::from_pem_slice(&private)
            .map_err(|error| unreadable(key, "unencrypted private key", &error))?;
        let config = server_config(chain, private).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => CredentialsError::Unusable {
                file: key.to_owned(),
                problem: format!("is not the key of the certificate in {}", certificate.display()),
            },
            rustls::Error::InvalidCertificate(_) => CredentialsError::Unusable {
                file: certificate.to_owned(),
                problem: format!("has no usable certificate: {error}"),
            },
            error => CredentialsError::Unusable {
                file: key.to_owned(),
                problem: format!("has no usable private key: {error}"),
            },
        })?;
        let identity = Identity::Own(Arc::new(config));
        // The file may contain the private key as well, which must not be published.
        let ca = certificates(&text);
        Ok(Self(Arc::new(Secrets { ca, identity, token: self.0.token.clone() })))
    }

    fn issuing(ca: String, key: KeyPair, token: String) -> Result<Self, rcgen::Error> {
        let identity = Identity::Issued(Box::new(Issuer::new(ca_params()?, key)));
        Ok(Self(Arc::new(Secrets { ca, identity, token })))
    }

    /// The certificates that clients trust, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.0.ca
    }

    /// The bearer token. It grants full access: keep it out of logs.
    pub fn token(&self) -> &str {
        &self.0.token
    }

    /// Returns a TLS configuration with the user's certificate, or with a new one for `address`.
    pub(crate) fn server_config(
        &self,
        address: IpAddr,
        clock: &Clock,
    ) -> Result<Arc<ServerConfig>, CredentialsError> {
        let mut config = match &self.0.identity {
            Identity::Own(config) => ServerConfig::clone(config),
            Identity::Issued(issuer) => issue(issuer, address)?,
        };
        config.time_provider = Arc::new(WallTime(clock.clone()));
        Ok(Arc::new(config))
    }

    /// Returns a kubeconfig for this server at `url`.
    pub(crate) fn kubeconfig(&self, url: &str) -> String {
        let ca = STANDARD.encode(self.ca_pem());
        let cluster = format!("    server: {url}\n    certificate-authority-data: {ca}\n");
        kubeconfig(&cluster, &format!("    token: {}\n", self.token()))
    }
}

/// A clock for TLS that accepts times before 1970; the library's own panics there.
#[derive(Debug)]
struct WallTime(Clock);

impl TimeProvider for WallTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.wall().as_second()).unwrap_or(0);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// Returns a TLS configuration with a new certificate for `address`.
fn issue(issuer: &Issuer<'static, KeyPair>, address: IpAddr) -> Result<ServerConfig, CredentialsError> {
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
    let certificate = params.signed_by(&key, issuer)?;
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(server_config(chain, key)?)
}

/// The parameters are the same for every CA of ours, so that it can be rebuilt from its key alone.
fn ca_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "watchkeeper development CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn new_token() -> String {
    let mut token = [0; 32];
    Generator::system().fill(&mut token);
    URL_SAFE_NO_PAD.encode(token)
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    // Named explicitly: a library must neither depend on nor set the process-wide default provider.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn io_error(file: &Path) -> impl FnOnce(io::Error) -> CredentialsError {
    let file = file.to_owned();
    move |source| CredentialsError::Io { file, source }
}

/// Reads a file with a secret and restricts it to its owner; `None` if it does not exist.
fn read_private(file: &Path) -> Result<Option<String>, CredentialsError> {
    if let Some(problem) = private::problem(file, false).map_err(io_error(file))? {
        let problem = format!("{problem}: remove it to generate a new one");
        return Err(CredentialsError::Unusable { file: file.to_owned(), problem });
    }
    match fs::read_to_string(file) {
        Ok(text) => {
            close_to_others(file, 0o600).map_err(io_error(file))?;
            Ok(Some(text))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(file)(error)),
    }
}

/// Returns the certificates of a PEM text, and nothing else.
fn certificates(text: &str) -> String {
    let mut within = false;
    let mut kept = String::new();
    for line in text.lines().map(str::trim) {
        within |= line == "-----BEGIN CERTIFICATE-----";
        if within {
            kept.extend([line, "\n"]);
        }
        within &= line != "-----END CERTIFICATE-----";
    }
    kept
}

fn unreadable(file: &Path, what: &str, error: &pem::Error) -> CredentialsError {
    let problem = match error {
        pem::Error::NoItemsFound => format!("has no {what} in PEM format"),
        error => format!("has no {what} in PEM format: {error}"),
    };
    CredentialsError::Unusable { file: file.to_owned(), problem }
}

/// Returns a kubeconfig with one context named `watchkeeper` and no credentials.
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
    fn neither_debug_output_nor_another_server_knows_the_token() {
        let (a, b) = (Credentials::generate().unwrap(), Credentials::generate().unwrap());
        assert_ne!(a.token(), b.token());
        assert!(!format!("{a:?}").contains(a.token()));
        assert!(a.token().len() >= 43);
    }
}
