//! The certificate that TLS handshakes are answered with; replaced while serving.
//! Not here: where it comes from (secret) and when it is renewed (material).

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::material::Material;

/// Why material cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// One of the two is not what its name says.
    #[error("the {what} is not readable PEM")]
    Pem {
        /// Which.
        what: &'static str,
        /// Why.
        source: rustls_pki_types::pem::Error,
    },
    /// The key is of a kind that we do not serve, or belongs to another certificate.
    #[error("the serving key does not fit its certificate")]
    Key {
        /// Why.
        source: rustls::Error,
    },
}

/// Holds the certificate in use. Before the first one every handshake fails.
#[derive(Default)]
pub struct Resolver(ArcSwapOption<CertifiedKey>);

impl Resolver {
    /// Serves `material` from the next handshake on; on an error, what was served before stays.
    pub(super) fn serve(&self, material: &Material) -> Result<(), ServeError> {
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
        let told = |source| ServeError::Key { source };
        let certified = CertifiedKey::new(chain, any_supported_type(&key).map_err(told)?);
        certified.keys_match().map_err(told)?;
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
    fn a_key_of_another_certificate_is_refused_and_what_was_served_stays() {
        let now = Timestamp::UNIX_EPOCH;
        let names = ["hook.sys.svc".to_owned()];
        let good = create(&names, now).unwrap();
        let resolver = Resolver::default();
        resolver.serve(&good).unwrap();
        let served = resolver.0.load_full().unwrap();
        let other = create(&names, now).unwrap();
        for bad in [
            Material {
                key: other.key,
                ..good.clone()
            },
            Material {
                key: "nonsense".into(),
                ..good.clone()
            },
            Material {
                certificate: "nonsense".into(),
                ..good.clone()
            },
        ] {
            assert!(resolver.serve(&bad).is_err());
            assert!(Arc::ptr_eq(&served, &resolver.0.load_full().unwrap()));
        }
    }
}
