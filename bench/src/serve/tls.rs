//! TLS of the benchmark server, with a certificate of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::TlsAcceptor;

/// Returns TLS for a server at `address`, and writes the kubeconfig of its clients to `file`.
pub(super) fn acceptor(
    address: SocketAddr,
    file: &Path,
) -> Result<TlsAcceptor, Box<dyn std::error::Error + Send + Sync>> {
    let pair = rcgen::generate_simple_self_signed([address.ip().to_string()])?;
    let key = PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![pair.cert.der().clone()], key.into())?;
    let authority = BASE64_STANDARD.encode(pair.cert.pem());
    let cluster = format!("{{server: 'https://{address}', certificate-authority-data: {authority}}}");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: bench\n\
         contexts: [{{name: bench, context: {{cluster: bench, user: ''}}}}]\n\
         clusters: [{{name: bench, cluster: {cluster}}}]\n"
    );
    fs::write(file, text)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
