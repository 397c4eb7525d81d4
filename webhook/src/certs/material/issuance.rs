//! Creation of keys, authorities and serving certificates, and the fields of these certificates.

use std::time::Duration as StdDuration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use super::{AUTHORITY_LIFE, MaterialError, SERVING_LIFE, SKEW};

pub(super) fn new_authority(now: Timestamp) -> Result<(String, String), MaterialError> {
    let failed = |source| MaterialError::Create {
        what: "authority",
        source,
    };
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = params(now, AUTHORITY_LIFE);
    // Each authority has a unique name, because verifiers find the authority of a certificate by
    // its issuer name.
    let name = format!("bundle-webhook-ca {:016x}", rand::random::<u64>());
    authority_params(&mut params, name);
    let key_pem = key.serialize_pem();
    let issuer = CertifiedIssuer::self_signed(params, key).map_err(failed)?;
    Ok((issuer.pem(), key_pem))
}

pub(super) fn issuer(
    authority: &str,
    key: &str,
) -> Result<Issuer<'static, KeyPair>, MaterialError> {
    let failed = |source| MaterialError::Create {
        what: "issuer from the stored authority",
        source,
    };
    let key = KeyPair::from_pem(key).map_err(failed)?;
    Issuer::from_ca_cert_pem(authority, key).map_err(failed)
}

pub(super) fn new_serving(
    issuer: &Issuer<'_, KeyPair>,
    names: &[String],
    now: Timestamp,
) -> Result<(String, String), MaterialError> {
    let failed = |source| MaterialError::Create {
        what: "serving certificate",
        source,
    };
    let mut params = params(now, SERVING_LIFE);
    serving_params(&mut params, names).map_err(failed)?;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, issuer).map_err(failed)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn params(now: Timestamp, life: SignedDuration) -> CertificateParams {
    let at = |time: Timestamp| u64::try_from(time.as_second()).unwrap_or_default();
    params_between(at(now - SKEW), at(now + life))
}

/// Returns the parameters of a certificate that is valid between these times (seconds since 1970).
pub(in crate::certs) fn params_between(not_before: u64, not_after: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + StdDuration::from_secs(not_before);
    params.not_after = epoch + StdDuration::from_secs(not_after);
    params
}

/// Adds the fields of a certificate authority with this name to `params`.
pub(in crate::certs) fn authority_params(params: &mut CertificateParams, name: String) {
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
}

/// Adds the fields of a serving certificate for these names to `params`.
pub(in crate::certs) fn serving_params(
    params: &mut CertificateParams,
    names: &[String],
) -> Result<(), rcgen::Error> {
    params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
    params
        .distinguished_name
        .push(DnType::CommonName, "bundle-webhook");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(())
}
