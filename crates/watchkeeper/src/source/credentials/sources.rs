//! The sources of a client's credentials, and one reading of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use http::HeaderValue;
use jiff::Timestamp;
use kube_client::client::ConfigExt;
use kube_client::config::AuthInfo;
use kube_client::{Config, Error};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret, SecretString};
use tokio::runtime::Builder;

use super::oidc::{self, Oidc};
use super::outside::Outside;
use super::plugin::{LIMIT, Plugin, Printed};
use super::problem::Problem;
use crate::clock::Clock;

/// Where the credentials of one user come from, and those of the authority that is trusted.
pub(super) struct Sources {
    /// The configuration without credentials, to set up TLS.
    config: Config,
    /// Whether TLS is used at all.
    is_secure: bool,
    token: Token,
    certificate: Option<(Piece, Piece)>,
    authority: Option<PathBuf>,
}

enum Token {
    None,
    Fixed(HeaderValue),
    File {
        file: PathBuf,
        /// Used until the file is read again.
        first: Option<HeaderValue>,
    },
    Plugin(Box<Plugin>),
    Oidc(Box<Oidc>),
}

/// Part of a certificate and its key.
enum Piece {
    /// In base64.
    Data(SecretString),
    File(PathBuf),
}

/// What a plugin has printed, if it has run.
#[derive(Default)]
pub(super) struct Asked(Option<Printed>);

/// What the sources had at one time.
pub(super) struct Reading {
    pub(super) authorization: Option<HeaderValue>,
    certificate: Option<Pair>,
    /// Whether a plugin gave the certificate.
    is_printed: bool,
    authority: Option<Vec<u8>>,
    /// When it must have been replaced.
    pub(super) expires: Option<Timestamp>,
}

/// A certificate and its key, as PEM.
#[derive(Clone, PartialEq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Reading {
    /// Returns when what is presented ends, if that is known, whoever replaces it.
    pub(super) fn ends(&self) -> Option<Timestamp> {
        let token = || self.authorization.as_ref()?.to_str().ok()?.strip_prefix("Bearer ");
        self.expires.or_else(|| oidc::expiry(token()?))
    }

    /// Returns whether both present the same and trust the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.authorization == other.authorization
            && self.certificate == other.certificate
            && self.authority == other.authority
    }
}

impl Sources {
    /// Returns the sources in a configuration. Those with precedence come first: a provider, a password, a token, a
    /// file, a certificate, a plugin.
    pub(super) fn new(config: &Config) -> Result<Self, Problem> {
        let user = &config.auth_info;
        let proxy = config.proxy_url.as_ref().and_then(|proxy| proxy.scheme_str());
        let is_secure = config.cluster_url.scheme_str() == Some("https") || proxy == Some("https");
        let mut bare = config.clone();
        bare.auth_info = AuthInfo::default();
        let authority = bare.root_cert_file.take();
        Ok(Self {
            config: bare,
            is_secure,
            token: token_of(user)?,
            certificate: certificate_of(user)?,
            authority: authority.filter(|_| !config.accept_invalid_certs),
        })
    }

    /// Returns whether any of them may change without an expiry.
    pub(super) fn has_files(&self) -> bool {
        let in_file = |piece: &Piece| matches!(piece, Piece::File(_));
        let pair = self.certificate.as_ref();
        matches!(self.token, Token::File { .. })
            || self.authority.is_some()
            || pair.is_some_and(|(certificate, key)| in_file(certificate) || in_file(key))
    }

    /// Returns whether reading takes a while, because a program runs or a server is asked.
    pub(super) fn are_slow(&self) -> bool {
        matches!(self.token, Token::Plugin(_) | Token::Oidc(_))
    }

    /// Runs the plugin, or asks the provider for a new ID token. Dropped, it kills the program.
    pub(super) async fn ask(&self, outside: &dyn Outside, clock: &Clock) -> Result<Asked, Problem> {
        match &self.token {
            Token::Plugin(plugin) => plugin.run(outside, clock).await.map(|printed| Asked(Some(printed))),
            Token::Oidc(oidc) => {
                let renewed = clock.timeout(LIMIT, oidc.renew(outside)).await;
                renewed.map_err(|_| Problem::Provider("it has not answered for a minute"))??;
                Ok(Asked::default())
            }
            _ => Ok(Asked::default()),
        }
    }

    /// Runs the plugin, if there is one, before the first reading. Blocks.
    pub(super) fn run_first(&self, outside: &dyn Outside, clock: &Clock) -> Result<Asked, Problem> {
        if !matches!(self.token, Token::Plugin(_)) {
            return Ok(Asked::default());
        }
        // On another thread, as this one may drive a runtime, which cannot be entered again.
        std::thread::scope(|scope| {
            let ran = scope.spawn(|| {
                let runtime = Builder::new_current_thread().enable_all().build().map_err(Problem::Start)?;
                runtime.block_on(self.ask(outside, clock))
            });
            ran.join().unwrap_or(Err(Problem::Interrupted))
        })
    }

    /// Reads all files. The rest is what was `asked` for, or else what the `last` reading had; there is none at first.
    pub(super) fn read(
        &self,
        outside: &dyn Outside,
        asked: Asked,
        last: Option<&Reading>,
    ) -> Result<Reading, Problem> {
        let authority = self.authority.as_ref().map(|file| {
            let pem = read(outside, file)?;
            certificates(&pem).map(|_| pem).ok_or_else(|| Problem::NoCertificate(file.clone()))
        });
        let mut reading = Reading {
            authorization: None,
            certificate: None,
            is_printed: false,
            authority: authority.transpose()?,
            expires: None,
        };
        if let Some((certificate, key)) = &self.certificate {
            let pair = Pair { certificate: certificate.read(outside)?, key: key.read(outside)? };
            reading.certificate = Some(pair.checked()?);
        }
        match &self.token {
            Token::None => {}
            Token::Fixed(header) => reading.authorization = Some(header.clone()),
            Token::File { first: Some(first), .. } if last.is_none() => {
                reading.authorization = Some(first.clone());
            }
            Token::File { file, .. } => {
                let text = read(outside, file)?;
                let token = std::str::from_utf8(&text).unwrap_or_default().trim();
                if token.is_empty() {
                    return Err(Problem::Empty(file.clone()));
                }
                reading.authorization = Some(bearer(token)?);
            }
            Token::Plugin(_) => match (asked.0, last) {
                (Some(printed), _) => reading.take_printed(printed)?,
                (None, Some(last)) => reading.take_last(last),
                (None, None) => {}
            },
            Token::Oidc(oidc) => {
                let (token, expires) = oidc.current();
                reading.authorization = token.map(|token| bearer(token.expose_secret())).transpose()?;
                reading.expires = expires;
            }
        }
        Ok(reading)
    }

    /// Returns TLS with what was read, if it is used.
    pub(super) fn tls(&self, reading: &Reading) -> Result<Option<Arc<ClientConfig>>, Error> {
        if !self.is_secure {
            return Ok(None);
        }
        let mut config = self.config.clone();
        if let Some(found) = reading.authority.as_deref().and_then(certificates) {
            config.root_cert = Some(found.iter().map(|certificate| certificate.to_vec()).collect());
        }
        if let Some(pair) = &reading.certificate {
            config.auth_info.client_certificate_data = Some(BASE64_STANDARD.encode(&pair.certificate));
            config.auth_info.client_key_data = Some(BASE64_STANDARD.encode(&pair.key).into());
        }
        Ok(Some(Arc::new(config.rustls_client_config()?)))
    }
}

impl Reading {
    fn take_printed(&mut self, printed: Printed) -> Result<(), Problem> {
        self.expires = printed.expires()?;
        self.authorization = printed.token.as_deref().map(bearer).transpose()?;
        if let (Some(certificate), Some(key)) = (printed.client_certificate_data, printed.client_key_data) {
            let pair = Pair { certificate: certificate.into_bytes(), key: key.into_bytes() };
            self.certificate = Some(pair.checked()?);
            self.is_printed = true;
        }
        Ok(())
    }

    /// Takes from `last` what a plugin printed.
    fn take_last(&mut self, last: &Self) {
        self.expires = last.expires;
        self.authorization.clone_from(&last.authorization);
        if last.is_printed {
            self.certificate.clone_from(&last.certificate);
            self.is_printed = true;
        }
    }
}

impl Pair {
    /// Returns the pair if its parts match. While files are replaced one by one, they may not.
    fn checked(self) -> Result<Self, Problem> {
        let chain = certificates(&self.certificate).ok_or(Problem::Pair("the certificate is none"))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| Problem::Pair("the key is none"))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map(|_| self)
            .map_err(|_| Problem::Pair("the key is not that of the certificate"))
    }
}

impl Piece {
    fn read(&self, outside: &dyn Outside) -> Result<Vec<u8>, Problem> {
        match self {
            Self::File(file) => read(outside, file),
            Self::Data(data) => {
                BASE64_STANDARD.decode(data.expose_secret()).map_err(|_| Problem::Pair("it is not base64"))
            }
        }
    }
}

fn token_of(user: &AuthInfo) -> Result<Token, Problem> {
    if let Some(provider) = &user.auth_provider {
        let id = provider.config.get("id-token").filter(|token| !token.is_empty());
        return match (Oidc::new(provider), id) {
            (Some(oidc), _) => Ok(Token::Oidc(Box::new(oidc))),
            (None, Some(id)) => Ok(Token::Fixed(bearer(id)?)),
            (None, None) => Err(Problem::Provider("neither id-token nor refresh-token is given")),
        };
    }
    if let (Some(user), Some(password)) = (&user.username, &user.password) {
        let pair = BASE64_STANDARD.encode(format!("{user}:{}", password.expose_secret()));
        return Ok(Token::Fixed(header("Basic", &pair)?));
    }
    let token = user.token.as_ref().map(|token| bearer(token.expose_secret())).transpose()?;
    match (token, &user.token_file) {
        (first, Some(file)) => return Ok(Token::File { file: file.into(), first }),
        (Some(token), None) => return Ok(Token::Fixed(token)),
        (None, None) => {}
    }
    // As in client-go, it does not run for a user with a certificate.
    let has_certificate = user.client_certificate.is_some() || user.client_certificate_data.is_some();
    let exec = user.exec.clone().filter(|_| !has_certificate);
    Ok(exec.map_or(Token::None, |exec| Token::Plugin(Box::new(Plugin(exec)))))
}

fn certificate_of(user: &AuthInfo) -> Result<Option<(Piece, Piece)>, Problem> {
    let piece = |data: Option<&str>, file: &Option<String>| match (data, file) {
        (Some(data), _) => Some(Piece::Data(data.into())),
        (None, Some(file)) => Some(Piece::File(file.into())),
        (None, None) => None,
    };
    let certificate = piece(user.client_certificate_data.as_deref(), &user.client_certificate);
    let key = piece(user.client_key_data.as_ref().map(|key| key.expose_secret()), &user.client_key);
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Problem::Pair("there is no key for the certificate")),
        (None, Some(_)) => Err(Problem::Pair("there is no certificate for the key")),
    }
}

fn read(outside: &dyn Outside, file: &Path) -> Result<Vec<u8>, Problem> {
    outside.read(file).map_err(|source| Problem::Read { file: file.to_owned(), source })
}

/// Returns the certificates in `pem`, at least one, all of them usable.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()?;
    let usable = |der: &CertificateDer<'static>| RootCertStore::empty().add(der.clone()).is_ok();
    (!found.is_empty() && found.iter().all(usable)).then_some(found)
}

fn bearer(token: &str) -> Result<HeaderValue, Problem> {
    header("Bearer", token)
}

fn header(scheme: &str, value: &str) -> Result<HeaderValue, Problem> {
    let mut header = HeaderValue::try_from(format!("{scheme} {value}")).map_err(|_| Problem::NoHeader)?;
    header.set_sensitive(true);
    Ok(header)
}
