//! The certificate of the admin server: from files that are read again, or made at the start.

use std::error::Error;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::env::Env;
use crate::report::WithCauses;

type BoxError = Box<dyn Error + Send + Sync>;

/// A certificate with its key, as TLS uses it.
pub(super) struct Certificate {
    files: Option<Files>,
    env: Env,
    current: Mutex<Current>,
}

/// Where a certificate and its key are, as PEM.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

struct Current {
    config: Arc<ServerConfig>,
    /// What the files had.
    pair: Pair,
    /// Why the files could not be used the last time.
    problem: Option<String>,
}

#[derive(Default, PartialEq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Why files cannot be used. Never contains what they have.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot read {}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("{} has no certificate in PEM format", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} has no private key in PEM format", .0.display())]
    NoKey(PathBuf),
    #[error("{} is not the key of the certificate in {}", .0.key.display(), .0.certificate.display())]
    Mismatch(Files),
    #[error("cannot use the certificate and the key")]
    Tls(#[source] rustls::Error),
}

impl Certificate {
    /// Reads a certificate from files, which must be usable. They are read again for every connection, as there are few: a
    /// new certificate is used from the next connection on.
    pub(super) fn from_files(files: Files, env: &Env) -> Result<Self, BoxError> {
        let pair = files.read()?;
        let config = files.config(&pair)?;
        let current = Mutex::new(Current { config, pair, problem: None });
        Ok(Self { files: Some(files), env: env.clone(), current })
    }

    /// Makes a certificate for `address` that nobody has reason to trust: it protects against those who listen, not against
    /// those who pretend to be this server.
    pub(super) fn self_signed(address: IpAddr, env: &Env) -> Result<Self, BoxError> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, "watchkeeper");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names.push(SanType::IpAddress(address));
        // Keys come from the entropy of the system, whatever the environment.
        let key = KeyPair::generate()?;
        let chain = vec![params.self_signed(&key)?.der().clone()];
        let config = config(chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into())?;
        let current = Mutex::new(Current { config, pair: Pair::default(), problem: None });
        Ok(Self { files: None, env: env.clone(), current })
    }

    /// Returns the settings of TLS for a new connection. If the files cannot be used, the last certificate stays.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock();
        if let Some(files) = &self.files {
            match current.reload(files) {
                Ok(true) => {
                    tracing::info!(file = %files.certificate.display(), "the certificate was renewed")
                }
                Ok(false) => {}
                Err(problem) => {
                    let text = WithCauses(&problem).to_string();
                    if current.problem.as_ref() != Some(&text) {
                        self.env.reporter.error("admin", "certificate", &problem);
                    }
                    current.problem = Some(text);
                }
            }
        }
        current.config.clone()
    }
}

impl Current {
    /// Reads the files again. Returns whether they have changed.
    fn reload(&mut self, files: &Files) -> Result<bool, Problem> {
        let pair = files.read()?;
        let is_new = pair != self.pair;
        if is_new {
            self.config = files.config(&pair)?;
            self.pair = pair;
        }
        self.problem = None;
        Ok(is_new)
    }
}

impl Files {
    fn read(&self) -> Result<Pair, Problem> {
        let read =
            |file: &PathBuf| fs::read(file).map_err(|source| Problem::Read { file: file.clone(), source });
        Ok(Pair { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    fn config(&self, pair: &Pair) -> Result<Arc<ServerConfig>, Problem> {
        let none = || Problem::NoCertificate(self.certificate.clone());
        let chain = CertificateDer::pem_slice_iter(&pair.certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(none)?;
        let key = PrivateKeyDer::from_pem_slice(&pair.key).map_err(|_| Problem::NoKey(self.key.clone()))?;
        config(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => Problem::Mismatch(self.clone()),
            error => Problem::Tls(error),
        })
    }
}

/// Returns the settings of a server that speaks HTTP/1.1 over TLS.
fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    // Named explicitly: a library must neither depend on nor set the process-wide default provider.
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
