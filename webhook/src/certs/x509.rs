//! The properties of certificates that renewal decisions depend on: validity, names, issuer and
//! public key.

use std::net::IpAddr;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::BoxError;

/// The properties of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CertificateFacts {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
    /// DNS names and IP addresses, as text.
    pub(super) names: Vec<String>,
    /// Subject in DER, for the comparison with the issuer.
    pub(super) subject: Vec<u8>,
    pub(super) issuer: Vec<u8>,
    /// Bytes of the public key, without its algorithm.
    pub(super) public_key: Vec<u8>,
}

/// A certificate that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("not a certificate: {source}")]
pub struct NotACertificate {
    source: BoxError,
}

fn unreadable(error: impl Into<BoxError>) -> NotACertificate {
    NotACertificate {
        source: error.into(),
    }
}

impl CertificateFacts {
    /// Reads the first certificate in `pem`.
    pub(super) fn of(pem: &str) -> Result<Self, NotACertificate> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(unreadable)?;
        let (_, certificate) = X509Certificate::from_der(&der).map_err(unreadable)?;
        let at = |seconds| Timestamp::from_second(seconds).map_err(unreadable);
        let names = certificate
            .subject_alternative_name()
            .map_err(unreadable)?
            .map(|extension| {
                extension
                    .value
                    .general_names
                    .iter()
                    .filter_map(text)
                    .collect()
            })
            .unwrap_or_default();
        Ok(Self {
            not_before: at(certificate.validity().not_before.timestamp())?,
            not_after: at(certificate.validity().not_after.timestamp())?,
            names,
            subject: certificate.subject().as_raw().to_vec(),
            issuer: certificate.issuer().as_raw().to_vec(),
            public_key: certificate.public_key().subject_public_key.data.to_vec(),
        })
    }
}

fn text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let address = match bytes.len() {
                4 => IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?),
                16 => IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?),
                _ => return None,
            };
            Some(address.to_string())
        }
        _ => None,
    }
}
