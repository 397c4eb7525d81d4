//! The certificate authority and the serving certificate: contents, expiry and renewal. All
//! functions except key generation are pure. The module `secret` stores the certificates, and the
//! module `resolver` serves them.
//!
//! A certificate authority (CA) is replaced in two steps, so that each API server trusts the new CA
//! before a certificate of this CA is served:
//!
//! 1. The new CA is added to the trusted CAs.
//! 2. After `OVERLAP`, the new CA issues the serving certificate.
//!
//! The old CA stays trusted until it expires.

mod issuance;

use jiff::{SignedDuration, Timestamp};
use rcgen::KeyPair;

pub(super) use self::issuance::{authority_params, params_between, serving_params};
use self::issuance::{issuer, new_authority, new_serving};
use super::x509::{CertificateFacts, NotACertificate};

const DAY: SignedDuration = SignedDuration::from_hours(24);
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(24 * 365 * 3);
const SERVING_LIFE: SignedDuration = SignedDuration::from_hours(24 * 90);
/// Time from the addition of a new CA to the trusted CAs until the new CA issues its first
/// certificate.
const OVERLAP: SignedDuration = SignedDuration::from_hours(1);
/// Time between `notBefore` of a certificate and its creation, so that an API server whose clock is
/// behind accepts a new certificate.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The stored keys and certificates, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct CertificateMaterial {
    /// Key of the current certificate authority, as PKCS#8.
    pub(super) authority_key: String,
    /// Certificate of the current certificate authority.
    pub(super) authority: String,
    /// All trusted certificate authorities (PEM), the current one first.
    pub(super) trusted: String,
    /// Private key of the serving certificate, as PKCS#8.
    pub(super) key: String,
    /// Serving certificate of the pod.
    pub(super) certificate: String,
}

/// The parts that must be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RenewalDue {
    Nothing,
    /// The serving certificate, with exactly the configured names.
    Serving,
    /// The serving certificate. The new certificate has the configured names and the names of the
    /// previous certificate. Another replica may need the previous names.
    Names,
    /// The certificate authority. The new authority is added to the trusted authorities. The
    /// serving certificate does not change.
    Authority,
    /// The certificate authority and the serving certificate. Neither is valid any more.
    Everything,
}

/// A stored key or certificate is invalid, or a new one cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    /// A stored certificate cannot be parsed.
    #[error("the stored {what} cannot be parsed")]
    Unreadable {
        /// Name of the certificate in the message.
        what: &'static str,
        /// The error of the parser.
        source: NotACertificate,
    },
    /// A stored key is invalid, or belongs to another certificate.
    #[error("the stored key does not match the stored {what}")]
    OtherKey {
        /// Name of the certificate in the message.
        what: &'static str,
    },
    /// A key cannot be generated, or a certificate cannot be signed.
    #[error("cannot create the {what}")]
    Create {
        /// Name of the certificate in the message.
        what: &'static str,
        /// The error of the certificate library.
        source: rcgen::Error,
    },
}

/// Returns the parts of `material` that must be renewed at `now`. The serving certificate must
/// contain `names`. A certificate that is not valid yet was created by a replica whose clock was
/// ahead by more than `SKEW`. API servers reject such a certificate, so it is renewed too.
pub(super) fn due(
    material: &CertificateMaterial,
    names: &[String],
    now: Timestamp,
) -> Result<RenewalDue, MaterialError> {
    let authority = facts_of_pair(&material.authority, &material.authority_key, "authority")?;
    let serving = facts_of_pair(&material.certificate, &material.key, "serving certificate")?;
    Ok(
        if authority.not_after <= now + DAY || authority.not_before > now {
            RenewalDue::Everything
        } else if past_two_thirds(&authority, now) {
            RenewalDue::Authority
        } else if past_two_thirds(&serving, now)
        || serving.not_before > now
        // After the overlap, the new authority issues the serving certificates.
        || (serving.issuer != authority.subject && authority.not_before + SKEW + OVERLAP <= now)
        {
            RenewalDue::Serving
        } else if names.iter().any(|name| !serving.names.contains(name)) {
            RenewalDue::Names
        } else {
            RenewalDue::Nothing
        },
    )
}

/// Creates an authority and a serving certificate.
pub(super) fn create(
    names: &[String],
    now: Timestamp,
) -> Result<CertificateMaterial, MaterialError> {
    let (authority, authority_key) = new_authority(now)?;
    let issuer = issuer(&authority, &authority_key)?;
    let (certificate, key) = new_serving(&issuer, names, now)?;
    Ok(CertificateMaterial {
        trusted: authority.clone(),
        authority_key,
        authority,
        key,
        certificate,
    })
}

/// Creates the certificates again after their Secret was deleted or damaged. As in a planned
/// renewal, the serving certificate in `known` is served until API servers trust the new authority.
pub(super) fn create_again(
    known: Option<&CertificateMaterial>,
    names: &[String],
    now: Timestamp,
) -> Result<CertificateMaterial, MaterialError> {
    let Some(known) = known else {
        return create(names, now);
    };
    match due(known, names, now) {
        Ok(RenewalDue::Everything) => renew(known, RenewalDue::Everything, names, now),
        Ok(_) => renew(known, RenewalDue::Authority, names, now),
        Err(_) => create(names, now),
    }
}

/// Returns `old` with the parts in `due` renewed.
pub(super) fn renew(
    old: &CertificateMaterial,
    due: RenewalDue,
    names: &[String],
    now: Timestamp,
) -> Result<CertificateMaterial, MaterialError> {
    match due {
        RenewalDue::Nothing => Ok(old.clone()),
        RenewalDue::Serving | RenewalDue::Names => {
            let mut names = names.to_vec();
            if due == RenewalDue::Names {
                let had = facts(&old.certificate, "serving certificate")?.names;
                names.extend(
                    had.into_iter()
                        .filter(|name| !names.contains(name))
                        .collect::<Vec<_>>(),
                );
            }
            let issuer = issuer(&old.authority, &old.authority_key)?;
            let (certificate, key) = new_serving(&issuer, &names, now)?;
            Ok(CertificateMaterial {
                key,
                certificate,
                trusted: still_valid(&old.trusted, now),
                ..old.clone()
            })
        }
        RenewalDue::Authority => {
            let (authority, authority_key) = new_authority(now)?;
            Ok(CertificateMaterial {
                trusted: format!("{authority}{}", still_valid(&old.trusted, now)),
                authority,
                authority_key,
                ..old.clone()
            })
        }
        RenewalDue::Everything => {
            let new = create(names, now)?;
            Ok(CertificateMaterial {
                trusted: format!("{}{}", new.authority, still_valid(&old.trusted, now)),
                ..new
            })
        }
    }
}

/// Returns the expiry of the serving certificate.
pub(super) fn expiry(material: &CertificateMaterial) -> Result<Timestamp, MaterialError> {
    Ok(facts(&material.certificate, "serving certificate")?.not_after)
}

fn facts(pem: &str, what: &'static str) -> Result<CertificateFacts, MaterialError> {
    CertificateFacts::of(pem).map_err(|source| MaterialError::Unreadable { what, source })
}

/// Returns the properties of a certificate. Fails if `key` (PEM) is not the key of the certificate.
fn facts_of_pair(
    pem: &str,
    key: &str,
    what: &'static str,
) -> Result<CertificateFacts, MaterialError> {
    let facts = facts(pem, what)?;
    let matches = |key: KeyPair| key.public_key_raw() == facts.public_key;
    if KeyPair::from_pem(key).is_ok_and(matches) {
        Ok(facts)
    } else {
        Err(MaterialError::OtherKey { what })
    }
}

fn past_two_thirds(facts: &CertificateFacts, now: Timestamp) -> bool {
    let life = facts.not_after.duration_since(facts.not_before);
    now >= facts.not_before + life / 3 * 2
}

/// Returns the certificates in `trusted` that have not expired.
fn still_valid(trusted: &str, now: Timestamp) -> String {
    trusted
        .split_inclusive("-----END CERTIFICATE-----")
        .map(|block| format!("{}\n", block.trim()))
        .filter(|block| CertificateFacts::of(block).is_ok_and(|facts| facts.not_after > now))
        .collect()
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn names() -> Vec<String> {
        vec!["hook.sys.svc".to_owned(), "127.0.0.1".to_owned()]
    }

    fn trusted(material: &CertificateMaterial) -> usize {
        CertificateDer::pem_slice_iter(material.trusted.as_bytes())
            .map(Result::unwrap)
            .count()
    }

    /// Renews until nothing is due. Returns the renewed parts.
    fn renew_all(
        material: &mut CertificateMaterial,
        names: &[String],
        now: Timestamp,
    ) -> Vec<RenewalDue> {
        let mut done = Vec::new();
        loop {
            match due(material, names, now).unwrap() {
                RenewalDue::Nothing => return done,
                step => {
                    assert!(done.len() < 5, "never settles: {done:?}");
                    *material = renew(material, step, names, now).unwrap();
                    done.push(step);
                }
            }
        }
    }

    #[test]
    fn new_certificate_has_its_names_and_is_not_due() {
        let material = create(&names(), NOW).unwrap();
        let facts = CertificateFacts::of(&material.certificate).unwrap();
        assert_eq!(facts.names, names());
        assert_eq!(facts.not_before, NOW - SKEW);
        assert_eq!(due(&material, &names(), NOW).unwrap(), RenewalDue::Nothing);
        assert_eq!(expiry(&material).unwrap(), NOW + SERVING_LIFE);
    }

    #[test]
    fn serving_certificate_is_renewed_after_two_thirds_of_its_lifetime() {
        let mut material = create(&names(), NOW).unwrap();
        let before = material.clone();
        assert_eq!(renew_all(&mut material, &names(), NOW + DAY * 59), []);
        assert_eq!(
            renew_all(&mut material, &names(), NOW + DAY * 60),
            [RenewalDue::Serving]
        );
        assert_eq!(material.authority, before.authority);
        assert_eq!(material.trusted, before.trusted);
        assert_ne!(material.key, before.key);
    }

    #[test]
    fn missing_name_is_added_to_those_of_another_replica() {
        let mut material = create(&names(), NOW).unwrap();
        let other = vec!["hook.sys.svc".to_owned(), "hook.example.com".to_owned()];
        assert_eq!(renew_all(&mut material, &other, NOW), [RenewalDue::Names]);
        assert_eq!(renew_all(&mut material, &names(), NOW), []);
    }

    #[test]
    fn new_authority_is_trusted_before_it_issues_the_serving_certificate() {
        let mut material = create(&names(), NOW).unwrap();
        let day = NOW + DAY * (365 * 2 + 1);
        // The serving certificate was last renewed one day before `day`.
        material = renew(&material, RenewalDue::Serving, &names(), day - DAY).unwrap();
        let before = material.clone();

        assert_eq!(
            renew_all(&mut material, &names(), day),
            [RenewalDue::Authority]
        );
        assert_eq!(trusted(&material), 2);
        assert_eq!(material.certificate, before.certificate);
        assert_ne!(material.authority, before.authority);
        assert!(material.trusted.starts_with(&material.authority));

        let soon = day + SignedDuration::from_mins(59);
        assert_eq!(renew_all(&mut material, &names(), soon), []);
        assert_eq!(
            renew_all(&mut material, &names(), day + OVERLAP),
            [RenewalDue::Serving]
        );
        let serving = CertificateFacts::of(&material.certificate).unwrap();
        assert_eq!(
            serving.issuer,
            CertificateFacts::of(&material.authority).unwrap().subject
        );
        assert_eq!(trusted(&material), 2);

        // The expired authority is removed with the next renewal.
        let later = NOW + DAY * (365 * 3 + 1);
        assert_eq!(
            renew_all(&mut material, &names(), later),
            [RenewalDue::Serving]
        );
        assert_eq!(trusted(&material), 1);
    }

    #[test]
    fn deleted_certificates_are_replaced_in_two_steps() {
        let known = create(&names(), NOW).unwrap();
        let mut material = create_again(Some(&known), &names(), NOW).unwrap();
        assert_ne!(material.authority, known.authority);
        assert_eq!(material.certificate, known.certificate);
        assert!(material.trusted.contains(known.authority.trim()));
        assert!(material.trusted.contains(material.authority.trim()));
        assert_eq!(renew_all(&mut material, &names(), NOW), []);
        assert_eq!(
            renew_all(&mut material, &names(), NOW + OVERLAP),
            [RenewalDue::Serving]
        );

        let late = NOW + DAY * 365 * 4;
        let material = create_again(Some(&known), &names(), late).unwrap();
        assert_ne!(material.certificate, known.certificate);
        assert_eq!(trusted(&material), 1);
    }

    #[test]
    fn expired_certificates_are_created_again() {
        let mut material = create(&names(), NOW).unwrap();
        let late = NOW + DAY * 365 * 4;
        assert_eq!(
            renew_all(&mut material, &names(), late),
            [RenewalDue::Everything]
        );
        assert_eq!(trusted(&material), 1);
    }

    #[test]
    fn certificates_of_a_clock_that_was_ahead_are_replaced() {
        let mut tolerated = create(&names(), NOW + SKEW).unwrap();
        assert_eq!(renew_all(&mut tolerated, &names(), NOW), []);
        let mut ahead = create(&names(), NOW + DAY).unwrap();
        assert_eq!(
            renew_all(&mut ahead, &names(), NOW),
            [RenewalDue::Everything]
        );
        let good = create(&names(), NOW).unwrap();
        let mut ahead = renew(&good, RenewalDue::Serving, &names(), NOW + DAY).unwrap();
        assert_eq!(renew_all(&mut ahead, &names(), NOW), [RenewalDue::Serving]);
        assert_eq!(ahead.authority, good.authority);
    }

    #[test]
    fn key_of_another_certificate_is_an_error() {
        let good = create(&names(), NOW).unwrap();
        let other = create(&names(), NOW).unwrap();
        let with_key = |key: &str| CertificateMaterial {
            key: key.to_owned(),
            ..good.clone()
        };
        let with_authority_key = CertificateMaterial {
            authority_key: other.authority_key.clone(),
            ..good.clone()
        };
        for (material, what) in [
            (with_key(&other.key), "serving certificate"),
            (with_key("nonsense"), "serving certificate"),
            (with_authority_key, "authority"),
        ] {
            let error = due(&material, &names(), NOW).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("the stored key does not match the stored {what}")
            );
        }
    }

    #[test]
    fn error_names_the_invalid_certificate() {
        let material = CertificateMaterial {
            certificate: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(),
            ..create(&names(), NOW).unwrap()
        };
        let error = due(&material, &names(), NOW).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the stored serving certificate cannot be parsed"
        );
    }
}
