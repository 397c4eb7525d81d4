//! Certificates for the webhooks of operators, derived from the stamp key. The same stamp key,
//! Service and period always result in the same certificate. Therefore each rendering of an
//! operator has the same objects, and no replica stores certificates. A deleted Secret is restored
//! unchanged.
//!
//! The serving key is an ECDSA key on P-256, which all servers support. The authority signs with
//! Ed25519, because its signatures have no random part.

use bundle_core::serving_certificate::{CertificatePeriod, ServingCertificate, WebhookService};
use hmac::{Hmac, KeyInit as _, Mac as _};
use rcgen::{CertifiedIssuer, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm};
use rustls_pki_types::PrivatePkcs8KeyDer;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::material::{self, MaterialError};
use crate::config::stamp_key::StampKey;

/// Bytes before the seed in the PKCS#8 encoding of an Ed25519 key (RFC 8410).
const ED25519: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// Bytes before the 32 key bytes in the PKCS#8 encoding of a P-256 key (RFC 5915).
const P256: [u8; 35] = [
    0x30, 0x41, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
    0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x27, 0x30, 0x25, 0x02, 0x01,
    0x01, 0x04, 0x20,
];
/// Length of the identifier of a stamp key, in bytes.
const ID_BYTES: usize = 8;
/// Number of attempts to derive a P-256 key. About one in 2^32 derived byte strings is not a valid
/// key.
const ATTEMPTS: u8 = 4;

/// Issuer of the certificates of one BundleDeployment.
pub(crate) struct OperatorCertificates<'a> {
    /// Key from which all other keys are derived.
    pub(crate) stamp_key: &'a StampKey,
    /// Uid of the BundleDeployment that installs the operator.
    pub(crate) uid: &'a str,
}

impl OperatorCertificates<'_> {
    /// Returns a text that identifies the stamp key and does not disclose it. Another stamp key
    /// results in other certificates.
    pub(crate) fn key_id(stamp_key: &StampKey) -> String {
        // This case does not occur, because HMAC accepts keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(stamp_key.bytes()) else {
            return String::new();
        };
        mac.update(b"operator certificate id\0");
        let mac: [u8; 32] = mac.finalize().into_bytes().into();
        hex::encode(mac.first_chunk::<ID_BYTES>().unwrap_or(&[0; ID_BYTES]))
    }

    /// Issues the certificate of `service` for `period`.
    pub(crate) fn issue(
        &self,
        service: &WebhookService,
        period: CertificatePeriod,
    ) -> Result<ServingCertificate, MaterialError> {
        let mut authorities = String::new();
        for period in period.neighbours() {
            authorities.push_str(&self.authority(service, period)?.pem());
        }
        let authority = self.authority(service, period)?;
        let failed = |source| MaterialError::Create {
            what: "serving certificate of a webhook",
            source,
        };
        let key = self.key(&P256, &PKCS_ECDSA_P256_SHA256, "serving", service, period)?;
        let mut params = material::params_between(period.not_before(), period.not_after());
        material::serving_params(&mut params, &service.dns_names()).map_err(failed)?;
        let certificate = params.signed_by(&key, &authority).map_err(failed)?;
        Ok(ServingCertificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            authorities,
        })
    }

    /// Returns the authority of one Service and period.
    fn authority(
        &self,
        service: &WebhookService,
        period: CertificatePeriod,
    ) -> Result<CertifiedIssuer<'static, KeyPair>, MaterialError> {
        let key = self.key(&ED25519, &PKCS_ED25519, "authority", service, period)?;
        let mut params = material::params_between(period.not_before(), period.not_after());
        // Verifiers find the authority of a certificate by the issuer name, so each period has its
        // own name.
        let name = format!("bundle-webhook-operator-ca {}", period.number());
        material::authority_params(&mut params, name);
        CertifiedIssuer::self_signed(params, key).map_err(|source| MaterialError::Create {
            what: "authority of a webhook",
            source,
        })
    }

    /// Derives a key for `purpose`. `prefix` is the PKCS#8 encoding before the 32 derived bytes.
    fn key(
        &self,
        prefix: &[u8],
        algorithm: &'static SignatureAlgorithm,
        purpose: &str,
        service: &WebhookService,
        period: CertificatePeriod,
    ) -> Result<KeyPair, MaterialError> {
        let mut last = rcgen::Error::CouldNotParseKeyPair;
        for attempt in 0..ATTEMPTS {
            // This case does not occur, because HMAC accepts keys of any length.
            let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.stamp_key.bytes()) else {
                break;
            };
            let WebhookService { namespace, name } = service;
            let number = period.number().to_string();
            for part in [
                "operator certificate",
                purpose,
                self.uid,
                namespace,
                name,
                &number,
            ] {
                mac.update(part.as_bytes());
                mac.update(b"\0");
            }
            mac.update(&[attempt]);
            let derived = Zeroizing::new(<[u8; 32]>::from(mac.finalize().into_bytes()));
            let encoded = Zeroizing::new([prefix, derived.as_slice()].concat());
            let encoded = PrivatePkcs8KeyDer::from(encoded.as_slice());
            match KeyPair::from_pkcs8_der_and_sign_algo(&encoded, algorithm) {
                Ok(key) => return Ok(key),
                Err(error) => last = error,
            }
        }
        Err(MaterialError::Create {
            what: "key of a webhook",
            source: last,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn service() -> WebhookService {
        WebhookService {
            namespace: "caches".to_owned(),
            name: "cache-operator-service".to_owned(),
        }
    }

    fn issue(key: &[u8], uid: &str, period: CertificatePeriod) -> ServingCertificate {
        issue_for(&service(), key, uid, period)
    }

    fn issue_for(
        service: &WebhookService,
        key: &[u8],
        uid: &str,
        period: CertificatePeriod,
    ) -> ServingCertificate {
        let stamp_key = &StampKey::new(key.to_vec());
        let certificates = OperatorCertificates { stamp_key, uid };
        certificates.issue(service, period).unwrap()
    }

    /// Returns true if an API server that trusts `authorities` accepts the certificate `served` for
    /// `name` at the time `at`.
    fn verify(authorities: &str, served: &str, name: &str, at: u64) -> bool {
        let mut roots = rustls::RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
            roots.add(authority.unwrap()).unwrap();
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider().into();
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(
            std::sync::Arc::new(roots),
            provider,
        );
        let served = CertificateDer::from_pem_slice(served.as_bytes()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
        rustls::client::danger::ServerCertVerifier::verify_server_cert(
            &*verifier.build().unwrap(),
            &served,
            &[],
            &name,
            &[],
            at,
        )
        .is_ok()
    }

    #[test]
    fn same_input_gives_the_same_certificate_and_other_input_another_key() {
        let period = CertificatePeriod::at(NOW, "uid");
        let first = issue(b"key", "uid", period);
        assert!(first == issue(b"key", "uid", period));
        let [_, _, next] = period.neighbours();
        for other in [
            issue(b"other", "uid", period),
            issue(b"key", "other", period),
            issue(b"key", "uid", next),
        ] {
            assert!(first.key != other.key && first.authorities != other.authorities);
        }
    }

    #[test]
    fn api_servers_trust_each_certificate_before_and_after_it_is_served() {
        let name = "cache-operator-service.caches.svc";
        let period = CertificatePeriod::at(NOW, "uid");
        let [former, this, next] = period.neighbours().map(|of| issue(b"key", "uid", of));
        for served in [&former, &this, &next] {
            let is_next = served.certificate == next.certificate;
            let at = if is_next { period.end() } else { NOW };
            assert!(verify(&this.authorities, &served.certificate, name, at));
        }
        let certificate = &this.certificate;
        assert!(!verify(&this.authorities, certificate, "other.svc", NOW));
        assert!(!verify(
            &this.authorities,
            certificate,
            name,
            period.not_after() + 1
        ));
        let other_authorities = issue(b"other", "uid", period).authorities;
        assert!(!verify(&other_authorities, certificate, name, NOW));
    }

    #[test]
    fn service_in_another_namespace_gets_another_certificate_for_its_names() {
        let period = CertificatePeriod::at(NOW, "uid");
        let first = issue(b"key", "uid", period);
        let service = WebhookService {
            namespace: "team-a".to_owned(),
            ..service()
        };
        let moved = issue_for(&service, b"key", "uid", period);
        assert!(first.key != moved.key);
        let names = [
            "cache-operator-service.caches.svc",
            "cache-operator-service.team-a.svc",
        ];
        let valid = |issued: &ServingCertificate| {
            names.map(|name| verify(&issued.authorities, &issued.certificate, name, NOW))
        };
        assert_eq!(valid(&first), [true, false]);
        assert_eq!(valid(&moved), [false, true]);
        let authorities = &first.authorities;
        assert!(!verify(authorities, &moved.certificate, names[1], NOW));
    }

    #[test]
    fn another_stamp_key_has_another_identifier() {
        let id = |key: &[u8]| OperatorCertificates::key_id(&StampKey::new(key.to_vec()));
        assert_eq!(id(b"key"), id(b"key"));
        assert_ne!(id(b"key"), id(b"other"));
        assert_eq!(id(b"key").len(), 2 * ID_BYTES);
    }

    #[test]
    fn a_server_loads_certificate_and_key() {
        let issued = issue(b"key", "uid", CertificatePeriod::at(NOW, "uid"));
        let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let loaded = rustls::sign::CertifiedKey::from_der(vec![certificate], key, &provider);
        loaded.unwrap().keys_match().unwrap();
    }
}
