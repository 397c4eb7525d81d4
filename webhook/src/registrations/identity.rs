//! The address, authority and tokens of this installation, as registrations have to name them.
//! Not here: what else a registration has to say (shape).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::caller::Token;

/// Who the API server must call, and how it must recognise us.
pub(crate) struct Identity<'a> {
    /// Namespace of our Service.
    pub(crate) namespace: &'a str,
    /// Name of our Service.
    pub(crate) service: &'a str,
    /// The authorities to trust, PEM.
    pub(crate) trusted: &'a str,
    /// The token that registrations must have.
    pub(crate) current: &'a Token,
    /// The token before it.
    pub(crate) previous: Option<&'a Token>,
}

impl Identity<'_> {
    /// Whether a `clientConfig` names our Service or a URL. A URL is ours as long as it has our authority, which vouches for nobody else.
    pub(super) fn is_called_by(&self, client: &Value) -> bool {
        let service = &client["service"];
        client["url"].is_string()
            || (service["namespace"] == self.namespace && service["name"] == self.service)
    }

    pub(super) fn knows(&self, token: &str) -> bool {
        let tokens = [Some(self.current), self.previous];
        tokens
            .into_iter()
            .flatten()
            .any(|known| known.as_str() == token)
    }

    /// Whether `bundle` (base64 of PEM) has at least one authority, and ours only.
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

/// What cannot be read is no certificate of ours: an empty one.
fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .map(|certificate| certificate.unwrap_or_else(|_| CertificateDer::from(Vec::new())))
        .collect()
}
