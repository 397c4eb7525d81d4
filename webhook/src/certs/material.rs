//! The authority and the serving certificate: what they hold, when they are due, how they are renewed. Pure but for key generation.
//! Not here: where they are stored (secret) and how they are served (resolver).
//!
//! An authority is replaced in two steps, so that no API server ever meets a certificate whose authority it has not been
//! told: the new authority first joins the trusted ones; the serving certificate follows it after `OVERLAP`. The old
//! authority stays trusted until it ends.

use std::time::Duration as StdDuration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use super::x509::{Facts, NotACertificate};

const DAY: SignedDuration = SignedDuration::from_hours(24);
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(24 * 365 * 3);
const SERVING_LIFE: SignedDuration = SignedDuration::from_hours(24 * 90);
/// How long a new authority is announced before a certificate of it is served.
const OVERLAP: SignedDuration = SignedDuration::from_hours(1);
/// Certificates begin this much in the past, for API servers whose clock is behind.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// What is stored, all of it PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Material {
    /// The current authority's key: PKCS#8.
    pub(super) authority_key: String,
    /// The current authority.
    pub(super) authority: String,
    /// All authorities to trust, the current one first.
    pub(super) trusted: String,
    /// The serving key: PKCS#8.
    pub(super) key: String,
    /// The serving certificate.
    pub(super) certificate: String,
}

/// What has to be made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// The serving certificate, for exactly our names.
    Serving,
    /// The serving certificate, for its names and the missing ones: another replica may want those.
    Names,
    /// The authority joins the trusted ones; the serving certificate stays.
    Authority,
    /// All of it at once: there is nothing left that is valid.
    Everything,
}

/// Material that cannot be used or made.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    /// A certificate in it does not parse.
    #[error("the stored {what} is unreadable")]
    Unreadable {
        /// Which.
        what: &'static str,
        /// Why.
        source: NotACertificate,
    },
    /// A key could not be generated or a certificate not signed.
    #[error("cannot make the {what}")]
    Make {
        /// Which.
        what: &'static str,
        /// Why.
        source: rcgen::Error,
    },
}

/// What there is to do about `material` at `now`, where the serving certificate shall bear `names`.
pub(super) fn due(
    material: &Material,
    names: &[String],
    now: Timestamp,
) -> Result<Due, MaterialError> {
    let authority = facts(&material.authority, "authority")?;
    let serving = facts(&material.certificate, "serving certificate")?;
    Ok(if authority.not_after <= now + DAY {
        Due::Everything
    } else if past_two_thirds(&authority, now) {
        Due::Authority
    } else if past_two_thirds(&serving, now)
        // The announced authority takes over, once the API servers know it.
        || (serving.issuer != authority.subject && authority.not_before + SKEW + OVERLAP <= now)
    {
        Due::Serving
    } else if names.iter().any(|name| !serving.names.contains(name)) {
        Due::Names
    } else {
        Due::Nothing
    })
}

/// Makes all of it anew.
pub(super) fn create(names: &[String], now: Timestamp) -> Result<Material, MaterialError> {
    let (authority, authority_key) = new_authority(now)?;
    let issuer = issuer(&authority, &authority_key)?;
    let (certificate, key) = new_serving(&issuer, names, now)?;
    Ok(Material {
        trusted: authority.clone(),
        authority_key,
        authority,
        key,
        certificate,
    })
}

/// Makes what is due.
pub(super) fn renew(
    old: &Material,
    due: Due,
    names: &[String],
    now: Timestamp,
) -> Result<Material, MaterialError> {
    match due {
        Due::Nothing => Ok(old.clone()),
        Due::Serving | Due::Names => {
            let mut names = names.to_vec();
            if due == Due::Names {
                let had = facts(&old.certificate, "serving certificate")?.names;
                names.extend(
                    had.into_iter()
                        .filter(|name| !names.contains(name))
                        .collect::<Vec<_>>(),
                );
            }
            let issuer = issuer(&old.authority, &old.authority_key)?;
            let (certificate, key) = new_serving(&issuer, &names, now)?;
            Ok(Material {
                key,
                certificate,
                trusted: still_valid(&old.trusted, now),
                ..old.clone()
            })
        }
        Due::Authority => {
            let (authority, authority_key) = new_authority(now)?;
            Ok(Material {
                trusted: format!("{authority}{}", still_valid(&old.trusted, now)),
                authority,
                authority_key,
                ..old.clone()
            })
        }
        Due::Everything => {
            let new = create(names, now)?;
            Ok(Material {
                trusted: format!("{}{}", new.authority, still_valid(&old.trusted, now)),
                ..new
            })
        }
    }
}

/// When the serving certificate ends.
pub(super) fn ends(material: &Material) -> Result<Timestamp, MaterialError> {
    Ok(facts(&material.certificate, "serving certificate")?.not_after)
}

fn facts(pem: &str, what: &'static str) -> Result<Facts, MaterialError> {
    Facts::of(pem).map_err(|source| MaterialError::Unreadable { what, source })
}

fn past_two_thirds(facts: &Facts, now: Timestamp) -> bool {
    let life = facts.not_after.duration_since(facts.not_before);
    now >= facts.not_before + life / 3 * 2
}

/// Those of `trusted` that have not ended.
fn still_valid(trusted: &str, now: Timestamp) -> String {
    trusted
        .split_inclusive("-----END CERTIFICATE-----")
        .map(|block| format!("{}\n", block.trim()))
        .filter(|block| Facts::of(block).is_ok_and(|facts| facts.not_after > now))
        .collect()
}

fn new_authority(now: Timestamp) -> Result<(String, String), MaterialError> {
    let told = |source| MaterialError::Make {
        what: "authority",
        source,
    };
    let key = KeyPair::generate().map_err(told)?;
    let mut params = params(now, AUTHORITY_LIFE);
    // Its name is its own: certificates are told apart by the name of their issuer.
    params.distinguished_name.push(
        DnType::CommonName,
        format!("bundle-webhook-ca {:016x}", rand::random::<u64>()),
    );
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key_pem = key.serialize_pem();
    let issuer = CertifiedIssuer::self_signed(params, key).map_err(told)?;
    Ok((issuer.pem(), key_pem))
}

fn issuer(authority: &str, key: &str) -> Result<Issuer<'static, KeyPair>, MaterialError> {
    let told = |source| MaterialError::Make {
        what: "issuer from the stored authority",
        source,
    };
    let key = KeyPair::from_pem(key).map_err(told)?;
    Issuer::from_ca_cert_pem(authority, key).map_err(told)
}

fn new_serving(
    issuer: &Issuer<'_, KeyPair>,
    names: &[String],
    now: Timestamp,
) -> Result<(String, String), MaterialError> {
    let told = |source| MaterialError::Make {
        what: "serving certificate",
        source,
    };
    let mut params = params(now, SERVING_LIFE);
    params.subject_alt_names = CertificateParams::new(names)
        .map_err(told)?
        .subject_alt_names;
    params
        .distinguished_name
        .push(DnType::CommonName, "bundle-webhook");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(told)?;
    let certificate = params.signed_by(&key, issuer).map_err(told)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn params(now: Timestamp, life: SignedDuration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let epoch = date_time_ymd(1970, 1, 1);
    let at = |time: Timestamp| {
        epoch + StdDuration::from_secs(u64::try_from(time.as_second()).unwrap_or_default())
    };
    params.not_before = at(now - SKEW);
    params.not_after = at(now + life);
    params
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

    fn trusted(material: &Material) -> usize {
        CertificateDer::pem_slice_iter(material.trusted.as_bytes())
            .map(Result::unwrap)
            .count()
    }

    /// Does what is due until nothing is, and says what it was.
    fn settle(material: &mut Material, names: &[String], now: Timestamp) -> Vec<Due> {
        let mut done = Vec::new();
        loop {
            match due(material, names, now).unwrap() {
                Due::Nothing => return done,
                step => {
                    assert!(done.len() < 5, "never settles: {done:?}");
                    *material = renew(material, step, names, now).unwrap();
                    done.push(step);
                }
            }
        }
    }

    #[test]
    fn a_new_certificate_bears_its_names_and_is_not_due() {
        let material = create(&names(), NOW).unwrap();
        let facts = Facts::of(&material.certificate).unwrap();
        assert_eq!(facts.names, names());
        assert_eq!(facts.not_before, NOW - SKEW);
        assert_eq!(due(&material, &names(), NOW).unwrap(), Due::Nothing);
        assert_eq!(ends(&material).unwrap(), NOW + SERVING_LIFE);
    }

    #[test]
    fn the_serving_certificate_is_renewed_after_two_thirds_of_its_life_by_the_same_authority() {
        let mut material = create(&names(), NOW).unwrap();
        let before = material.clone();
        assert_eq!(settle(&mut material, &names(), NOW + DAY * 59), []);
        assert_eq!(
            settle(&mut material, &names(), NOW + DAY * 60),
            [Due::Serving]
        );
        assert_eq!(material.authority, before.authority);
        assert_eq!(material.trusted, before.trusted);
        assert_ne!(material.key, before.key);
    }

    #[test]
    fn a_missing_name_joins_those_that_another_replica_wanted() {
        let mut material = create(&names(), NOW).unwrap();
        let other = vec!["hook.sys.svc".to_owned(), "hook.example.com".to_owned()];
        assert_eq!(settle(&mut material, &other, NOW), [Due::Names]);
        assert_eq!(settle(&mut material, &names(), NOW), []);
    }

    #[test]
    fn a_new_authority_is_trusted_long_before_it_signs_what_is_served() {
        let mut material = create(&names(), NOW).unwrap();
        let day = NOW + DAY * (365 * 2 + 1);
        // The serving certificate has been renewed all along.
        material = renew(&material, Due::Serving, &names(), day - DAY).unwrap();
        let before = material.clone();

        assert_eq!(settle(&mut material, &names(), day), [Due::Authority]);
        assert_eq!(trusted(&material), 2);
        assert_eq!(material.certificate, before.certificate);
        assert_ne!(material.authority, before.authority);
        assert!(material.trusted.starts_with(&material.authority));

        let soon = day + SignedDuration::from_mins(59);
        assert_eq!(settle(&mut material, &names(), soon), []);
        assert_eq!(
            settle(&mut material, &names(), day + OVERLAP),
            [Due::Serving]
        );
        let serving = Facts::of(&material.certificate).unwrap();
        assert_eq!(
            serving.issuer,
            Facts::of(&material.authority).unwrap().subject
        );
        assert_eq!(trusted(&material), 2);

        // The old one is forgotten once it has ended, with the next renewal.
        let later = NOW + DAY * (365 * 3 + 1);
        assert_eq!(settle(&mut material, &names(), later), [Due::Serving]);
        assert_eq!(trusted(&material), 1);
    }

    #[test]
    fn material_that_slept_past_its_end_is_made_anew() {
        let mut material = create(&names(), NOW).unwrap();
        let late = NOW + DAY * 365 * 4;
        assert_eq!(settle(&mut material, &names(), late), [Due::Everything]);
        assert_eq!(trusted(&material), 1);
    }

    #[test]
    fn what_is_not_a_certificate_is_named() {
        let material = Material {
            certificate: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(),
            ..create(&names(), NOW).unwrap()
        };
        let error = due(&material, &names(), NOW).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the stored serving certificate is unreadable"
        );
    }
}
