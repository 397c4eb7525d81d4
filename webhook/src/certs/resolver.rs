//! The certificate for TLS handshakes. The certificate can be replaced at any time. The module
//! `secret` loads it, and the module `material` decides about its renewal.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::material::CertificateMaterial;

/// The reason why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The certificate or the key cannot be parsed.
    #[error("the {what} is invalid PEM")]
    Pem {
        /// Name of the invalid part in the message.
        what: &'static str,
        /// The error of the parser.
        source: rustls_pki_types::pem::Error,
    },
    /// The type of the key is not supported, or the key belongs to another certificate.
    #[error("the serving key does not match its certificate")]
    Key {
        /// The error of the TLS library.
        source: rustls::Error,
    },
}

/// The current serving certificate. Without a certificate, every handshake fails.
#[derive(Default)]
pub struct Resolver(ArcSwapOption<CertifiedKey>);

impl Resolver {
    /// Serves `material` from the next handshake on. After an error, the previous certificate stays
    /// in use.
    pub(super) fn serve(&self, material: &CertificateMaterial) -> Result<(), ServeError> {
        let chain = CertificateDer::pem_slice_iter(material.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| ServeError::Pem {
                what: "serving certificate",
                source,
            })?;
        let key = PrivateKeyDer::from_pem_slice(material.key.as_bytes()).map_err(|source| {
            ServeError::Pem {
                what: "serving key",
                source,
            }
        })?;
        let failed = |source| ServeError::Key { source };
        let certified = CertifiedKey::new(chain, any_supported_type(&key).map_err(failed)?);
        certified.keys_match().map_err(failed)?;
        self.0.store(Some(Arc::new(certified)));
        Ok(())
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::material::create;
    use super::*;

    #[test]
    fn rejects_key_of_another_certificate_and_keeps_the_previous_one() {
        let now = Timestamp::UNIX_EPOCH;
        let names = ["hook.sys.svc".to_owned()];
        let good = create(&names, now).unwrap();
        let resolver = Resolver::default();
        resolver.serve(&good).unwrap();
        let served = resolver.0.load_full().unwrap();
        let other = create(&names, now).unwrap();
        for bad in [
            CertificateMaterial {
                key: other.key,
                ..good.clone()
            },
            CertificateMaterial {
                key: "nonsense".into(),
                ..good.clone()
            },
            CertificateMaterial {
                certificate: "nonsense".into(),
                ..good.clone()
            },
        ] {
            assert!(resolver.serve(&bad).is_err());
            assert!(Arc::ptr_eq(&served, &resolver.0.load_full().unwrap()));
        }
    }
}
