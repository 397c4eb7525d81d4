//! The Service, certificate authorities and tokens of this installation, which registrations must
//! contain. The module `shape` checks the other fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::caller::Token;

/// The Service that the API server calls, the certificate authorities that it must trust, and the
/// tokens that registrations must have.
pub(crate) struct Identity<'a> {
    /// Namespace of the Service that the API server calls.
    pub(crate) namespace: &'a str,
    /// Name of the Service that the API server calls.
    pub(crate) service: &'a str,
    /// The trusted certificate authorities of this installation (PEM).
    pub(crate) trusted: &'a str,
    /// The token that registrations must have.
    pub(crate) current: &'a Token,
    /// The token before the last rotation. `None` if there was no rotation.
    pub(crate) previous: Option<&'a Token>,
}

impl Identity<'_> {
    /// Returns true if a `clientConfig` contains the Service of this installation, or any URL. A
    /// URL belongs to this installation only if `caBundle` also contains the certificate authority
    /// of this installation ([`Self::trusts`]).
    pub(super) fn is_called_by(&self, client: &Value) -> bool {
        let service = &client["service"];
        client["url"].is_string()
            || (service["namespace"] == self.namespace && service["name"] == self.service)
    }

    pub(super) fn has_token(&self, token: &str) -> bool {
        let tokens = [Some(self.current), self.previous];
        tokens
            .into_iter()
            .flatten()
            .any(|known| known.as_str() == token)
    }

    /// Returns true if `bundle` (base64 of PEM) contains at least one certificate authority, and
    /// all its certificate authorities belong to this installation.
    pub(super) fn trusts(&self, bundle: &Value) -> bool {
        let ours = certificates(self.trusted.as_bytes());
        let theirs = bundle
            .as_str()
            .and_then(|text| STANDARD.decode(text).ok())
            .map(|pem| certificates(&pem))
            .unwrap_or_default();
        !theirs.is_empty() && theirs.iter().all(|found| ours.contains(found))
    }
}

/// Parses certificates. An invalid entry becomes an empty certificate, which is not equal to any
/// valid certificate.
fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .map(|certificate| certificate.unwrap_or_else(|_| CertificateDer::from(Vec::new())))
        .collect()
}
