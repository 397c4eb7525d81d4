//! Signatures with certificates: chain, SCT, transparency log, time and signature, verified with
//! one trust root. The crate `sigstore-verify` does the cryptography. This module bounds the input
//! of that crate, adds all requirements of cosign, and converts errors to a [`Fault`]. This module
//! does not compare the identity with a policy; see `bundle_core::policy`.

mod logs;

use bundle_core::policy::{Fault, IdentityName, MOST_EVIDENCE, Rejection, SignedAt, TimeSource};
use jiff::Timestamp;
use sigstore_verify::bundle::Error as ShapeError;
use sigstore_verify::types::bundle::VerificationMaterialContent;
use sigstore_verify::types::{Artifact, Bundle, DerPublicKey};
use sigstore_verify::{
    CertificateError, Error, PublicKeyVerificationPolicy, TimestampError, TransparencyLogError,
    VerificationPolicy, VerificationResult,
};

use crate::bundle::Bundle as Form;
use crate::keys::PublicKey;
use crate::root::Root;

/// Maximum length of the subject and of the issuer of a certificate, in bytes.
const LONGEST_NAME: usize = 2048;

/// Result of verifying a signature with one trust root.
pub(crate) struct CertificateResult {
    pub(crate) name: IdentityName,
    pub(crate) signed_at: Option<SignedAt>,
    pub(crate) checked: Vec<&'static str>,
}

/// Converts a parsed Sigstore bundle to the type of sigstore-verify, so that this crate and
/// sigstore-verify read the same fields. Returns an error if the certificate or the evidence
/// exceeds its limit.
pub(crate) fn read(form: &Form) -> Result<Bundle, Rejection> {
    let text = serde_json::to_string(form).map_err(|error| fault(Fault::Unreadable, &error))?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the text is serialized from a strictly parsed value"
    )]
    let bundle = Bundle::from_json(&text).map_err(|error| fault(Fault::Unreadable, &error))?;
    let evidence = evidence(&bundle);
    if evidence > MOST_EVIDENCE {
        return Err(Rejection::TooMuchEvidence(evidence));
    }
    Ok(bundle)
}

fn evidence(bundle: &Bundle) -> usize {
    let material = &bundle.verification_material;
    let certificates = match &material.content {
        VerificationMaterialContent::X509CertificateChain { certificates } => certificates.len(),
        _ => 1,
    };
    let timestamps = &material.timestamp_verification_data.rfc3161_timestamps;
    certificates + material.tlog_entries.len() + timestamps.len()
}

/// Verifies certificate, evidence and signature of `bundle`. The meaning of the payload is not
/// checked.
pub(crate) fn verify<'a>(
    bundle: &Bundle,
    artifact: impl Into<Artifact<'a>>,
    root: &Root,
    now: Timestamp,
) -> Result<CertificateResult, Rejection> {
    logs::check(bundle, root)?;
    // The caller compares the identity with each policy later.
    let everything = VerificationPolicy::any_identity();
    let result = root
        .verifier
        .verify(artifact, bundle, &everything)
        .map_err(|error| fault(kind(&error), &error))?;
    let complete = result.certificate_verified() && result.sct_verified() && result.tlog_verified();
    if !complete || result.verified_timestamps().is_empty() {
        return Err(fault(Fault::Root, &"a part was not verified"));
    }
    if let Some(late) = result.verified_timestamps().iter().find(|at| **at > now) {
        return Err(fault(Fault::Future, late));
    }
    logs::check_windows(bundle, root, result.verified_timestamps())?;
    let (Some(subject), Some(issuer)) = (result.identity(), result.issuer()) else {
        return Err(fault(Fault::NoIdentity, &"no subject or no issuer"));
    };
    if subject.as_str().is_empty() || issuer.is_empty() {
        return Err(fault(Fault::NoIdentity, &"an empty subject or issuer"));
    }
    if subject.as_str().len().max(issuer.len()) > LONGEST_NAME {
        let why = format!("a subject or issuer of more than {LONGEST_NAME} bytes");
        return Err(fault(Fault::NoIdentity, &why));
    }
    Ok(CertificateResult {
        name: IdentityName {
            issuer: issuer.to_owned(),
            subject: subject.as_str().to_owned(),
        },
        signed_at: signed_at(&result),
        checked: checked(bundle),
    })
}

/// Returns the signing time of a signature that was made with `key`, as a log or a timestamp
/// authority of `root` confirms it. Such a signature is valid without evidence of its time.
/// Therefore the result for invalid evidence is `None` and not an error.
pub(crate) fn time_of_key<'a>(
    bundle: &Bundle,
    artifact: impl Into<Artifact<'a>>,
    key: &PublicKey,
    root: &Root,
    now: Timestamp,
) -> Option<SignedAt> {
    logs::check(bundle, root).ok()?;
    let policy = PublicKeyVerificationPolicy::new(DerPublicKey::new(key.der().to_vec()));
    let result = root.verifier.verify(artifact, bundle, &policy).ok()?;
    if result.verified_timestamps().iter().any(|at| *at > now) {
        return None;
    }
    logs::check_windows(bundle, root, result.verified_timestamps()).ok()?;
    signed_at(&result)
}

fn signed_at(result: &VerificationResult) -> Option<SignedAt> {
    let (at, source) = match result.integrated_time() {
        Some(at) => (at, TimeSource::Log),
        None => (
            *result.verified_timestamps().iter().min()?,
            TimeSource::TimestampAuthority,
        ),
    };
    Some(SignedAt {
        at: at.to_string(),
        source,
    })
}

fn checked(bundle: &Bundle) -> Vec<&'static str> {
    let material = &bundle.verification_material;
    let mut checked = vec!["certificate", "certificate log"];
    if bundle.has_inclusion_proof() {
        checked.push("log proof");
    }
    if bundle.has_inclusion_promise() {
        checked.push("log promise");
    }
    let timestamps = &material.timestamp_verification_data.rfc3161_timestamps;
    if !timestamps.is_empty() {
        checked.push("timestamp");
    }
    checked
}

fn fault(fault: Fault, why: &dyn std::fmt::Display) -> Rejection {
    Rejection::Certificate {
        fault,
        why: why.to_string(),
    }
}

/// Maps an error of sigstore-verify to a [`Fault`]. An error for which there is no special fault
/// becomes [`Fault::Unreadable`].
fn kind(error: &Error) -> Fault {
    match error {
        Error::SignatureInvalid(_) => Fault::Forged,
        Error::ArtifactMismatch(_) | Error::UnsupportedArtifact(_) => Fault::Content,
        Error::Certificate(error) => match error {
            // webpki checks validity periods while it builds the chain. sigstore-verify returns the
            // error of webpki only as text.
            CertificateError::ChainInvalid(why)
                if why.contains("CertExpired") || why.contains("CertNotValidYet") =>
            {
                Fault::Validity
            }
            CertificateError::NotYetValid { .. } | CertificateError::Expired { .. } => {
                Fault::Validity
            }
            CertificateError::ChainInvalid(_) | CertificateError::NoValidAuthority { .. } => {
                Fault::Chain
            }
            CertificateError::Sct(_) => Fault::Sct,
            _ => Fault::Unreadable,
        },
        Error::TransparencyLog(error) => match error {
            TransparencyLogError::UnknownLog { .. } => Fault::UnknownLog,
            TransparencyLogError::InclusionProof(_) => Fault::InclusionProof,
            TransparencyLogError::Checkpoint(_) => Fault::Checkpoint,
            TransparencyLogError::InclusionPromise(_) => Fault::Set,
            TransparencyLogError::IntegratedTime(_) => Fault::LogTime,
            _ => Fault::Entry,
        },
        Error::Timestamp(TimestampError::NoVerifiedTimestamp(_)) => Fault::NoTime,
        Error::Timestamp(_) => Fault::Timestamp,
        Error::Bundle(error) => match error {
            ShapeError::MissingInclusionPromise(_) => Fault::Set,
            ShapeError::MissingInclusionProof(_) | ShapeError::MissingSigningTimeEvidence => {
                Fault::NoLog
            }
            ShapeError::MissingTimestamp => Fault::NoTime,
            ShapeError::MissingCheckpoint | ShapeError::CheckpointRootMismatch => Fault::Checkpoint,
            ShapeError::LogIndexOutOfRange { .. } => Fault::InclusionProof,
            _ => Fault::Unreadable,
        },
        Error::InvalidTrustRoot(_) | Error::TrustRoot(_) | Error::TrustedCertificate(_) => {
            Fault::Root
        }
        _ => Fault::Unreadable,
    }
}
