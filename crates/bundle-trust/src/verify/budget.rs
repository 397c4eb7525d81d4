//! Budget of public-key operations for one examination. The operations are counted before each
//! signature is verified. The budget bounds the work that an attacker with write access to the
//! repository can cause. `bundle-oci` bounds the number and size of signatures.

use std::collections::{BTreeMap, HashSet};

use bundle_core::policy::{Fault, MOST_EVIDENCE, RawSignature, Rejection};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{MAX_SIGNATURES, TrustMaterial};
use crate::{dsse, json, legacy};

/// Maximum number of public-key operations for one signature and one trust root. A signature with
/// entries of both log versions and two timestamps needs 26 operations. Signatures of common
/// clients need fewer operations.
pub const SHARE: usize = 32;
/// Maximum number of signatures on a checkpoint that are made with the same key. A log signs a
/// checkpoint once.
const MOST_BY_ONE: usize = 8;
/// Each further 4096 bytes of a timestamp count as one operation, because a longer timestamp
/// contains more certificates.
const TIMESTAMP_BYTES: usize = 4096;

/// Remaining public-key operations of one examination. The budget has an equal share of operations
/// for each of [`MAX_SIGNATURES`] signatures. One share is reserved for each signature that is not
/// examined yet.
pub(super) struct Budget<'a> {
    left: usize,
    share: usize,
    /// Number of signatures that are not examined yet.
    waiting: usize,
    seen: HashSet<Identity<'a>>,
}

/// Complete content of a signature.
type Identity<'a> = (&'a [u8], &'a str, &'a BTreeMap<String, String>);

impl<'a> Budget<'a> {
    /// Creates the budget for `waiting` signatures. The total number of operations depends only on
    /// the keys and trust roots in `material`.
    pub(super) fn new(waiting: usize, material: &TrustMaterial) -> Self {
        let share = share(material);
        Self {
            left: MAX_SIGNATURES * share,
            share,
            waiting,
            seen: HashSet::new(),
        }
    }

    /// Subtracts the operations of `raw` from the budget. Returns an error if the remaining budget
    /// would not be sufficient for the signatures that are not examined yet. A duplicate signature
    /// is rejected.
    pub(super) fn charge(
        &mut self,
        raw: &'a RawSignature,
        material: &TrustMaterial,
    ) -> Result<(), Rejection> {
        self.waiting = self.waiting.saturating_sub(1);
        if !self
            .seen
            .insert((&raw.bytes, &raw.artifact_type, &raw.annotations))
        {
            return Err(Rejection::Duplicate);
        }
        let operations = operations(raw, material)?;
        let reserved = self.waiting * self.share;
        match self.left.checked_sub(operations) {
            Some(left) if left >= reserved => {
                self.left = left;
                Ok(())
            }
            _ => Err(Rejection::TooCostly { operations }),
        }
    }
}

/// Returns the number of operations that is reserved for each signature.
fn share(material: &TrustMaterial) -> usize {
    material.keys.len() + SHARE * material.roots.len().max(1)
}

/// Fields of a Sigstore bundle whose verification needs public-key operations. Other fields are
/// ignored. The types accept every Sigstore bundle that `crate::bundle` accepts, for example with
/// `null` instead of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CountedFields {
    #[serde(default)]
    verification_material: Material,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    #[serde(default)]
    certificate: Option<IgnoredAny>,
    #[serde(default)]
    x509_certificate_chain: Option<Chain>,
    #[serde(default)]
    tlog_entries: Option<Vec<Entry>>,
    #[serde(default)]
    timestamp_verification_data: Option<Timestamps>,
}

#[derive(Deserialize)]
struct Chain {
    #[serde(default)]
    certificates: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    log_id: Option<LogId>,
    #[serde(default)]
    canonicalized_body: Option<String>,
    #[serde(default)]
    inclusion_promise: Option<IgnoredAny>,
    #[serde(default)]
    inclusion_proof: Option<Proof>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogId {
    #[serde(default)]
    key_id: String,
}

#[derive(Deserialize)]
struct Proof {
    #[serde(default)]
    checkpoint: Option<Checkpoint>,
}

#[derive(Deserialize)]
struct Checkpoint {
    #[serde(default)]
    envelope: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timestamps {
    #[serde(default)]
    rfc3161_timestamps: Option<Vec<Timestamped>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timestamped {
    #[serde(default)]
    signed_timestamp: String,
}

/// Returns an upper bound of the public-key operations for `raw`. If the operations of a Sigstore
/// bundle cannot be counted, it costs the share of one signature. The later verification rejects
/// such a bundle with a more exact error.
pub(super) fn operations(raw: &RawSignature, material: &TrustMaterial) -> Result<usize, Rejection> {
    let keys = material.keys.len().max(1);
    let roots = material.roots.len();
    if [legacy::ENVELOPE, legacy::SIMPLE_SIGNING].contains(&raw.artifact_type.as_str()) {
        // The annotations contain at most one certificate with its chain, one SET and one
        // timestamp.
        let chain = raw.annotations.get(legacy::CHAIN);
        let certificates = chain.map_or(0, |text| text.matches("-----BEGIN").count());
        let evidence = if legacy::is_certified(raw) {
            12 + 4 * certificates.min(MOST_EVIDENCE)
        } else {
            0
        };
        return Ok(keys + roots * evidence);
    }
    let Ok(counted) = json::read::<CountedFields>(&raw.bytes, "not the JSON of a Sigstore bundle")
    else {
        return Ok(share(material));
    };
    Ok(keys + roots * counted.verification_material.operations()?)
}

impl Material {
    fn operations(&self) -> Result<usize, Rejection> {
        let entries = self.tlog_entries.as_deref().unwrap_or_default();
        let data = self.timestamp_verification_data.as_ref();
        let timestamps = data.and_then(|data| data.rfc3161_timestamps.as_deref());
        let timestamps = timestamps.unwrap_or_default();
        let chain = self.x509_certificate_chain.as_ref();
        let certificates = chain.map_or(1, |chain| chain.certificates.len());
        if certificates + entries.len() + timestamps.len() > MOST_EVIDENCE {
            // The verification rejects this Sigstore bundle before any public-key operation.
            return Ok(0);
        }
        let mut seen = HashSet::new();
        let mut operations = 0;
        for entry in entries {
            let log = entry.log_id.as_ref().map(|log| log.key_id.as_str());
            if !seen.insert((log, entry.canonicalized_body.as_deref())) {
                return Err(Rejection::Certificate {
                    fault: Fault::Entry,
                    why: "it has the same log entry twice".to_owned(),
                });
            }
            operations += entry.operations()?;
        }
        let mut stamps = HashSet::new();
        for one in timestamps {
            if !stamps.insert(one.signed_timestamp.as_str()) {
                return Err(Rejection::Certificate {
                    fault: Fault::Timestamp,
                    why: "it has the same timestamp twice".to_owned(),
                });
            }
            // Counts the signature of the timestamp, and the signatures in the certificate chain of
            // the timestamp authority.
            operations += 3 + one.signed_timestamp.len() / TIMESTAMP_BYTES;
        }
        if self.certificate.is_some() || chain.is_some() {
            // The chain is verified at each attested time. In the worst case, each certificate is
            // tried at each position of the chain.
            let times = (timestamps.len() + entries.len()).max(1);
            operations += 2 + times * 2 * certificates.max(1);
        }
        Ok(operations)
    }
}

impl Entry {
    fn operations(&self) -> Result<usize, Rejection> {
        let envelope = self.inclusion_proof.as_ref();
        let envelope = envelope.and_then(|proof| proof.checkpoint.as_ref());
        let mut by_key: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for line in envelope
            .into_iter()
            .flat_map(|checkpoint| checkpoint.envelope.lines())
        {
            // The line has the form `— NAME SIGNATURE`. The signature begins with four bytes that
            // identify the key.
            let signature = line
                .strip_prefix('\u{2014}')
                .and_then(|rest| rest.rsplit_once(' '));
            if let Some(bytes) = signature.and_then(|(_, text)| dsse::decode(text)) {
                let key = bytes.get(..4).unwrap_or_default().to_vec();
                *by_key.entry(key).or_default() += 1;
            }
        }
        if let Some(count) = by_key.values().find(|count| **count > MOST_BY_ONE) {
            return Err(Rejection::Certificate {
                fault: Fault::Checkpoint,
                why: format!(
                    "it has {count} signatures by one key, more than the limit of {MOST_BY_ONE}"
                ),
            });
        }
        // Each further signature with the same key ID costs operations. A witness signs only once,
        // and its key is not tried.
        let repeated: usize = by_key.values().map(|count| count - 1).sum();
        let checkpoint = if by_key.is_empty() {
            0
        } else {
            3 + 2 * repeated
        };
        let promise = if self.inclusion_promise.is_some() {
            2
        } else {
            0
        };
        Ok(checkpoint + promise)
    }
}
