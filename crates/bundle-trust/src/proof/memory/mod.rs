//! Cache of examined signatures. The key of an entry contains the content digest, the keys, the
//! trust roots and the signatures. Decisions are not cached: policies are evaluated for each
//! request.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::{
    ClassSignatures, Meaning, NotReadReason, Policy, RawSignature, Rejection, SignatureResult,
    Signer, Unavailable,
};
use bundle_core::reference::{Digest, PinnedReference};
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use super::{Decided, ExaminedImage, Loader, Refusal, conclude_examined};
use crate::verify::{self, TrustMaterial};

/// Maximum number of cached examinations.
const MAX_EXAMINATIONS: usize = 4096;
/// Estimated size of a signature without its texts, in bytes.
const SIGNATURE_OVERHEAD_BYTES: usize = 512;
/// Lifetime of cached results with an invalid certificate. The certificate may become valid later,
/// for example when a log key becomes valid.
const INVALID_CERTIFICATE_TTL: SignedDuration = SignedDuration::from_mins(1);
/// Maximum time by which the clock may be set back after an examination. If the clock is set back
/// further, the cached result is not used.
const MAX_CLOCK_SETBACK: SignedDuration = SignedDuration::from_mins(1);

/// Digest of all inputs of an examination: content digest, keys, roots, and signatures. The time is
/// not included.
type Key = [u8; 32];

/// Bounded cache of examinations. An examination is valid as long as its trust roots are valid.
/// Concurrent requests for the same examination wait for the first request.
#[derive(Default)]
pub struct ExaminationCache(Mutex<CachedExaminations>);

#[derive(Default)]
struct CachedExaminations {
    entries: HashMap<Key, Entry>,
    order: VecDeque<Key>,
    weight: usize,
    made: u64,
}

struct Entry {
    cell: Arc<OnceLock<Examination>>,
    /// Size in bytes that counts towards [`ExaminationCache::MAX_BYTES`]. The value is 0 while the
    /// examination is running.
    weight: usize,
}

/// Result of an examination, and the period in which the result can be used.
struct Examination {
    from: Timestamp,
    until: Timestamp,
    /// Result of each signature. `None` if the examination was interrupted. An interrupted result
    /// is never used.
    found: Option<Vec<SignatureResult>>,
}

impl Examination {
    fn make(
        signatures: &[RawSignature],
        digest: &Digest,
        material: &TrustMaterial,
        go_on: &dyn Fn() -> bool,
    ) -> Self {
        let now = material.now;
        let found = verify::examine_while(signatures, digest, material, go_on);
        let roots = material.roots.iter().filter_map(|root| root.valid_until());
        let mut until = roots.min().unwrap_or(Timestamp::MAX);
        let mut all = found.iter().flatten();
        if all.any(|one| may_become_valid(one, material.roots.len())) {
            until = until.min(now.saturating_add(INVALID_CERTIFICATE_TTL).unwrap_or(now));
        }
        Self {
            from: now.saturating_sub(MAX_CLOCK_SETBACK).unwrap_or(now),
            until,
            found,
        }
    }

    fn is_good(&self, now: Timestamp) -> bool {
        self.found.is_some() && self.from <= now && now <= self.until
    }
}

impl ExaminationCache {
    /// Maximum size of all cached examinations, in bytes. The size is an upper estimate.
    pub const MAX_BYTES: usize = 2 << 20;

    /// Returns the same result as [`super::examine`]. New results are cached.
    pub fn examine<'a>(
        &self,
        reference: &PinnedReference,
        signatures: &Result<Vec<RawSignature>, Unavailable>,
        policies: impl IntoIterator<Item = &'a Policy>,
        now: Timestamp,
    ) -> ExaminedImage<'a> {
        self.examine_while(reference, signatures, policies, now, &|| true)
    }

    /// Does the same as [`Self::examine`], but stops when `go_on` returns `false`. `go_on` is
    /// called before each signature. An interrupted examination is reported as unavailable and is
    /// not cached.
    pub fn examine_while<'a>(
        &self,
        reference: &PinnedReference,
        signatures: &Result<Vec<RawSignature>, Unavailable>,
        policies: impl IntoIterator<Item = &'a Policy>,
        now: Timestamp,
        go_on: &dyn Fn() -> bool,
    ) -> ExaminedImage<'a> {
        let (policies, material) = Loader::load(reference, policies, now);
        let found = match signatures {
            Ok(signatures) => self
                .found(signatures, reference.digest(), &material, go_on)
                .ok_or_else(|| interrupted(signatures.len(), reference)),
            Err(why) => Err(why.clone()),
        };
        ExaminedImage { policies, found }
    }

    /// Returns the same result as [`super::decide`]. The results of the signature verifications are
    /// cached.
    pub fn decide<'a>(
        &self,
        reference: PinnedReference,
        signatures: &Result<Vec<RawSignature>, Unavailable>,
        policies: impl IntoIterator<Item = &'a Policy>,
        class: ClassSignatures,
        now: Timestamp,
    ) -> Result<Decided<PinnedReference>, Refusal> {
        self.decide_while(reference, signatures, policies, class, now, &|| true)
    }

    /// Does the same as [`Self::decide`], but stops when `go_on` returns `false`. `go_on` is called
    /// before each signature. After `false`, a decision that depends on signatures is unknown.
    pub fn decide_while<'a>(
        &self,
        reference: PinnedReference,
        signatures: &Result<Vec<RawSignature>, Unavailable>,
        policies: impl IntoIterator<Item = &'a Policy>,
        class: ClassSignatures,
        now: Timestamp,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Decided<PinnedReference>, Refusal> {
        let examined = self.examine_while(&reference, signatures, policies, now, go_on);
        conclude_examined(reference, &examined, class)
    }

    /// Returns the number of performed examinations. Results from the cache are not counted.
    pub fn examinations_performed(&self) -> u64 {
        self.cached().made
    }

    /// Returns the result of each signature, or `None` if `go_on` returned `false` before the
    /// examination was complete.
    fn found(
        &self,
        signatures: &[RawSignature],
        digest: &Digest,
        material: &TrustMaterial,
        go_on: &dyn Fn() -> bool,
    ) -> Option<Vec<SignatureResult>> {
        if signatures.is_empty() {
            return Some(Vec::new());
        }
        let key = key(signatures, digest, material);
        loop {
            let cell = self.cell(key, material.now);
            let examination =
                cell.get_or_init(|| Examination::make(signatures, digest, material, go_on));
            if let Some(found) = &examination.found {
                self.complete(key, &cell, || found.iter().map(weight).sum());
                return Some(found.clone());
            }
            self.abandon(key, &cell);
            // The examination was interrupted, because `go_on` of this caller or of another caller
            // returned `false`. If it was another caller, this caller repeats the examination.
            if !go_on() {
                return None;
            }
        }
    }

    /// Removes an incomplete examination from the cache.
    fn abandon(&self, key: Key, cell: &Arc<OnceLock<Examination>>) {
        let mut known = self.cached();
        let is_it = |entry: &Entry| Arc::ptr_eq(&entry.cell, cell);
        if known.entries.get(&key).is_some_and(is_it) {
            known.forget(&key);
        }
    }

    /// Returns the cache entry of an examination: complete, running, or new.
    fn cell(&self, key: Key, now: Timestamp) -> Arc<OnceLock<Examination>> {
        let mut known = self.cached();
        if let Some(entry) = known.entries.get(&key) {
            if entry.cell.get().is_none_or(|made| made.is_good(now)) {
                return Arc::clone(&entry.cell);
            }
            known.forget(&key);
        }
        let cell = Arc::new(OnceLock::new());
        let entry = Entry {
            cell: Arc::clone(&cell),
            weight: 0,
        };
        known.entries.insert(key, entry);
        known.order.push_back(key);
        cell
    }

    /// Counts a completed examination towards the limits of the cache. If a limit is exceeded,
    /// evicts the oldest examinations. If several callers waited for the same examination, only the
    /// first call has an effect.
    fn complete(
        &self,
        key: Key,
        cell: &Arc<OnceLock<Examination>>,
        weight: impl FnOnce() -> usize,
    ) {
        let mut known = self.cached();
        let Some(entry) = known.entries.get_mut(&key) else {
            return;
        };
        if entry.weight > 0 || !Arc::ptr_eq(&entry.cell, cell) {
            return;
        }
        entry.weight = weight().max(1);
        known.weight += known.entries[&key].weight;
        known.made += 1;
        while known.weight > Self::MAX_BYTES || known.entries.len() > MAX_EXAMINATIONS {
            let Some(oldest) = known.order.pop_front() else {
                return;
            };
            if let Some(entry) = known.entries.remove(&oldest) {
                known.weight -= entry.weight;
            }
        }
    }

    fn cached(&self) -> MutexGuard<'_, CachedExaminations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedExaminations {
    fn forget(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.weight -= entry.weight;
        }
        self.order.retain(|kept| kept != key);
    }
}

/// Returns the error of an examination that ended before it was complete.
pub(crate) fn interrupted(signatures: usize, reference: &PinnedReference) -> Unavailable {
    let message =
        format!("not all of its {signatures} signatures could be verified before the deadline");
    let finding = Finding::error(codes::trust::CANNOT_TELL, message)
        .about(reference.to_string())
        .hint("retry; if the error repeats, remove unused signatures from the registry");
    Unavailable(finding)
}

/// Returns `true` if a later examination of the same signature may have a better result, for
/// example because a log key becomes valid. `roots` is the number of trust roots.
fn may_become_valid(found: &SignatureResult, roots: usize) -> bool {
    match &found.0 {
        Err(rejection) => matches!(rejection, Rejection::Certificate { .. }),
        Ok(accepted) => match &accepted.signer {
            Signer::Key(_) => false,
            Signer::Identity { roots: held, .. } => held.len() < roots,
        },
    }
}

fn weight(found: &SignatureResult) -> usize {
    SIGNATURE_OVERHEAD_BYTES
        + match &found.0 {
            Ok(accepted) => {
                let texts = accepted.annotations.iter();
                let texts: usize = texts
                    .map(|(key, value)| key.len() + value.len() + SIGNATURE_OVERHEAD_BYTES / 4)
                    .sum();
                let signer = match &accepted.signer {
                    Signer::Key(key) => key.as_str().len(),
                    Signer::Identity { name, roots } => {
                        name.subject.len()
                            + name.issuer.len()
                            + roots.len() * SIGNATURE_OVERHEAD_BYTES
                    }
                };
                let meaning = match &accepted.meaning {
                    Meaning::Signed => 0,
                    Meaning::Attested(predicate_type) => predicate_type.len(),
                };
                texts + signer + meaning
            }
            // A rejection can contain short parts of the texts in the signature.
            Err(_) => SIGNATURE_OVERHEAD_BYTES,
        }
}

fn key(signatures: &[RawSignature], digest: &Digest, material: &TrustMaterial) -> Key {
    let mut hasher = Sha256::new();
    let mut part = |bytes: &[u8]| {
        // The length precedes each part, so that different parts never produce the same bytes.
        hasher.update((bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(digest.as_str().as_bytes());
    part(&(material.keys.len() as u64).to_le_bytes());
    for key in &material.keys {
        part(key.id().as_str().as_bytes());
    }
    part(&(material.roots.len() as u64).to_le_bytes());
    for root in &material.roots {
        part(root.id().to_string().as_bytes());
    }
    for signature in signatures {
        part(&signature.bytes);
        part(signature.artifact_type.as_bytes());
        part(&(signature.annotations.len() as u64).to_le_bytes());
        for (name, value) in &signature.annotations {
            part(name.as_bytes());
            part(value.as_bytes());
        }
        match signature.unread {
            None => part(b""),
            Some(NotReadReason::TooLarge { bytes, limit }) => {
                part(b"large");
                part(&bytes.to_le_bytes());
                part(&limit.to_le_bytes());
            }
            Some(NotReadReason::TotalSizeLimit { limit }) => {
                part(b"crowded");
                part(&limit.to_le_bytes());
            }
            Some(NotReadReason::CountLimit { limit }) => {
                part(b"beyond");
                part(&(limit as u64).to_le_bytes());
            }
        }
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests;
