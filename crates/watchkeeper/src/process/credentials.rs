//! Can the certificates of a kubeconfig be used?

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The certificates in `pem`, or what is wrong with it.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let found = CertificateDer::pem_slice_iter(pem).map(|found| found.map(|der| der.to_vec()));
    found.collect::<Result<_, _>>().map_err(|error| error.to_string())
}
