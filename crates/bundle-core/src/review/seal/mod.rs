//! A seal has the content of a stamp, bound to uid and generation of the stored object. When the
//! leader observes an object with a recent stamp, the leader makes a seal from this stamp. A stamp
//! expires, a seal does not. This module decides whether an object may be sealed. The reconciler
//! writes the seal into the status.

mod content;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use content::{SealedContent, content_seal, sealed_content};

use super::{
    canonical,
    facts::Kind,
    owners::owners_digest,
    parts::PartRequesters,
    stamp::{GeneratedFor, Stamp, StampError, parsed_memory, sign, verify},
};
use crate::footprint::Footprint;
use crate::reference::Digest;

/// Maximum time from a write to its stamp, in milliseconds. The API server stores whole seconds,
/// reads the time of an update before it calls webhooks, and has its own clock.
pub const MAX_WRITE_BEFORE_STAMP_MS: i64 = 5_000;
/// Maximum time from a stamp to its write, in milliseconds: the maximum duration of the review plus
/// the maximum duration of later webhooks.
pub const MAX_STAMP_BEFORE_WRITE_MS: i64 = 15_000;
/// Maximum age of a stamp when the leader makes the seal, in milliseconds.
pub const MAX_STAMP_AGE_AT_SEAL_MS: i64 = 300_000;

const SEAL: &str = "core.rukpak.io/seal";
/// `apiVersion` of the owner of a generated Bundle.
const API_VERSION: &str = "core.rukpak.io/v1alpha1";

/// Stored object of a reviewed kind.
#[derive(Debug, Clone, Copy)]
pub struct StoredObject<'a> {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: &'a str,
    /// Uid of the object.
    pub uid: &'a str,
    /// Generation of the object.
    pub generation: i64,
    /// Creation time, in milliseconds since 1970; `None` if unknown.
    pub created: Option<i64>,
    /// Time of the last write, except writes of the status ([`last_written`]), in milliseconds
    /// since 1970. `None` if unknown.
    pub written: Option<i64>,
    /// `true` if the object is being deleted. The deletion increments the generation by one.
    pub deleting: bool,
    /// Spec of the object.
    pub spec: &'a Value,
    /// Value of the annotation `core.rukpak.io/stamp`; `None` if the object has no stamp.
    pub stamp: Option<&'a str>,
    /// Value of `status.admission.seal`; `None` if the object has no seal.
    pub seal: Option<&'a str>,
}

impl StoredObject<'_> {
    /// Returns an upper limit for the memory of the facts that [`seal_state`] returns: the memory
    /// of the stamp and the seal. This function does not parse the stamp or the seal.
    pub fn facts_memory(&self) -> Footprint {
        let texts = [self.stamp, self.seal].into_iter().flatten();
        let memory = texts.filter_map(parsed_memory);
        memory.fold(Footprint::default(), Footprint::plus)
    }
}

/// Returns the latest of the times in `managedFields`, in milliseconds since 1970; `None` without
/// times. Times more than [`MAX_WRITE_BEFORE_STAMP_MS`] after `now` are ignored. The API server
/// sets only the time of the field manager that writes. Clients can send any time for other field
/// managers.
pub fn last_written(times: impl IntoIterator<Item = i64>, now: i64) -> Option<i64> {
    let latest = now.saturating_add(MAX_WRITE_BEFORE_STAMP_MS);
    times.into_iter().filter(|time| *time <= latest).max()
}

/// Returns true if an update adds a time to `managedFields` that is too late for [`last_written`].
/// The API server never does this. After this time, the entry would be the last write of the object,
/// so that the stamp of an earlier write would count as too old. `old` and `new` are the times
/// before and after the update, in milliseconds since 1970.
pub fn adds_future_write(
    old: impl IntoIterator<Item = i64>,
    new: impl IntoIterator<Item = i64>,
    now: i64,
) -> bool {
    let is_future = |time: &i64| last_written([*time], now).is_none();
    let known: BTreeSet<i64> = old.into_iter().filter(is_future).collect();
    new.into_iter()
        .filter(is_future)
        .any(|time| !known.contains(&time))
}

/// Time at which a seal is checked, and the state of the webhook registrations at this time.
#[derive(Debug, Clone, Copy)]
pub struct SealCheckContext {
    /// Current time, in milliseconds since 1970.
    pub now: i64,
    /// Start of the period in which the webhook registrations have been intact without
    /// interruption, in milliseconds since 1970. `None` while the registrations are not intact.
    pub intact_since: Option<i64>,
}

/// Facts about an object that its seal or stamp confirms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfirmedFacts {
    /// Requester of each part of the spec.
    pub parts: PartRequesters,
    /// Digest of the approved terms; `None` if the object is not a BundleApproval.
    pub approves: Option<Digest>,
    /// BundleDeployment that a Bundle was generated for; `None` for other objects.
    pub generated_for: Option<GeneratedFor>,
    /// The owner references that were reviewed; `None` if the object had no owner references.
    pub owners: Option<Digest>,
    /// Start of the review of the write that admitted the spec by the annotation
    /// `core.rukpak.io/admit`, in milliseconds since 1970; `None` if there was no such write.
    pub admitted_at: Option<i64>,
    time: i64,
}

impl ConfirmedFacts {
    /// Returns `true` if the owner references of `object` are the reviewed owner references. Seals
    /// of earlier versions do not contain owners. For a generated Bundle, such a seal covers one
    /// owner: the BundleDeployment that the Bundle was generated for and is named after.
    pub fn covers_owners(&self, object: &Value) -> bool {
        let found = owners_digest(object);
        found.is_none()
            || found == self.owners
            || (self.owners.is_none() && self.is_generated_owner(object))
    }

    /// Returns `true` if each owner of `bundle` is the BundleDeployment that it was generated for.
    /// The apiVersion, kind and name must match too, because the garbage collector looks up an
    /// owner by these fields before it compares the uid.
    fn is_generated_owner(&self, bundle: &Value) -> bool {
        let metadata = &bundle["metadata"];
        let name = metadata["name"].as_str().and_then(deployment_name);
        let owners = metadata["ownerReferences"].as_array();
        let generated_for = self.generated_for.as_ref();
        let (Some(name), Some(owners), Some(of)) = (name, owners, generated_for) else {
            return false;
        };
        owners.iter().all(|owner| {
            owner["apiVersion"] == API_VERSION
                && owner["kind"] == Kind::BundleDeployment.as_str()
                && owner["name"] == name
                && owner["uid"] == of.uid.as_str()
        })
    }
}

/// Returns the name of the BundleDeployment in the name of a generated Bundle: the name without the
/// dash and the six hexadecimal digits at its end. Other users can create Bundles with such a name.
pub fn deployment_name(bundle: &str) -> Option<&str> {
    let (name, hash) = bundle.rsplit_once('-')?;
    let is_hash = hash.len() == 6 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(name)
}

/// Validity of an object's stamp and seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SealState {
    /// The object has a valid seal.
    Sealed(ConfirmedFacts),
    /// The object has a fresh stamp, and may be sealed.
    Unsealed(ConfirmedFacts),
    /// Neither the stamp nor the seal is valid.
    Invalid(StampError),
}

impl SealState {
    /// Returns the confirmed facts of an object with a valid seal or stamp. Otherwise returns the
    /// reason why neither is valid.
    pub fn confirmed_facts(self) -> Result<ConfirmedFacts, StampError> {
        match self {
            Self::Sealed(vouched) | Self::Unsealed(vouched) => Ok(vouched),
            Self::Invalid(why) => Err(why),
        }
    }
}

/// Serialized form of a seal.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SealText {
    time: i64,
    kind: String,
    name: String,
    uid: String,
    generation: i64,
    spec: Digest,
    parts: PartRequesters,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approves: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generated_for: Option<GeneratedFor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owners: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    admitted_at: Option<i64>,
}

/// Returns the seal of `object`, as text.
pub fn seal(key: &[u8], object: &StoredObject<'_>, vouched: &ConfirmedFacts) -> String {
    let text = SealText {
        time: vouched.time,
        kind: object.kind.as_str().to_owned(),
        name: object.name.to_owned(),
        uid: object.uid.to_owned(),
        generation: object.generation,
        spec: canonical::written_digest(object.spec),
        parts: vouched.parts.clone(),
        approves: vouched.approves.clone(),
        generated_for: vouched.generated_for.clone(),
        owners: vouched.owners.clone(),
        admitted_at: vouched.admitted_at,
    };
    sign(key, SEAL, &text)
}

/// Validates stamp and seal of `object` at `moment`. A stamp that is newer than the seal takes
/// precedence.
pub fn seal_state(key: &[u8], object: &StoredObject<'_>, moment: &SealCheckContext) -> SealState {
    let sealed = read_seal(key, object).filter(|(seal, age)| !is_replaced(key, object, seal, *age));
    let fresh = read_fresh(key, object, moment);
    match (sealed, fresh) {
        (Some((seal, Age::Current)), fresh) => match fresh {
            Ok(stamp) if stamp.time > seal.time => SealState::Unsealed(stamp),
            _ => SealState::Sealed(seal),
        },
        (_, Ok(stamp)) => SealState::Unsealed(stamp),
        // The spec is the same although the generation changed, and the write was reviewed.
        // Therefore the seal remains valid.
        (Some((seal, _)), Err(_))
            if is_intact(object.written, moment) || is_intact(Some(seal.time), moment) =>
        {
            SealState::Unsealed(seal)
        }
        (_, Err(why)) => SealState::Invalid(why),
    }
}

/// Returns `true` if the object has a stamp that is newer than `seal`, for the generation of
/// `seal`. In this case, `seal` is an earlier seal that a user saved and wrote back. Such a seal is
/// invalid, even if the stamp is too old to be sealed.
fn is_replaced(key: &[u8], object: &StoredObject<'_>, seal: &ConfirmedFacts, age: Age) -> bool {
    let behind = match age {
        Age::Current => 0,
        Age::OneBefore => 1,
    };
    stamp_of(key, object, behind).is_ok_and(|(stamp, _)| stamp.time > seal.time)
}

/// Generation of a seal, compared with the generation of the object: equal, or one lower.
#[derive(Clone, Copy)]
enum Age {
    Current,
    OneBefore,
}

fn read_seal(key: &[u8], object: &StoredObject<'_>) -> Option<(ConfirmedFacts, Age)> {
    let seal: SealText = verify(key, SEAL, object.seal?).ok()?;
    let same = seal.kind == object.kind.as_str()
        && seal.name == object.name
        && seal.uid == object.uid
        && seal.spec == canonical::written_digest(object.spec);
    let behind = object.generation.checked_sub(seal.generation)?;
    let age = match behind {
        0 => Age::Current,
        1 if object.deleting => Age::Current,
        1 => Age::OneBefore,
        _ => return None,
    };
    let vouched = ConfirmedFacts {
        parts: seal.parts,
        approves: seal.approves,
        generated_for: seal.generated_for,
        owners: seal.owners,
        admitted_at: seal.admitted_at,
        time: seal.time,
    };
    same.then_some((vouched, age))
}

fn read_fresh(
    key: &[u8],
    object: &StoredObject<'_>,
    moment: &SealCheckContext,
) -> Result<ConfirmedFacts, StampError> {
    let (stamp, written) = stamp_of(key, object, 0)?;
    let is_in_time = written.is_some_and(|written| is_written_with(&stamp, written))
        || is_observed_with(&stamp, object, moment);
    if !is_in_time || stamp.time > moment.now.saturating_add(MAX_WRITE_BEFORE_STAMP_MS) {
        return Err(StampError::OutOfTime);
    }
    if moment.now > stamp.time.saturating_add(MAX_STAMP_AGE_AT_SEAL_MS) {
        return Err(StampError::Expired);
    }
    if !is_intact(Some(stamp.time), moment) {
        return Err(StampError::Gap);
    }
    Ok(ConfirmedFacts {
        parts: stamp.parts,
        approves: stamp.approves,
        generated_for: stamp.generated_for,
        owners: stamp.owners,
        admitted_at: stamp.admitted_at,
        time: stamp.time,
    })
}

/// Returns the period in which the write with `stamp` may have happened, in milliseconds since
/// 1970.
fn window(stamp: &Stamp) -> RangeInclusive<i64> {
    stamp.time.saturating_sub(MAX_WRITE_BEFORE_STAMP_MS)
        ..=stamp.time.saturating_add(MAX_STAMP_BEFORE_WRITE_MS)
}

/// Returns `true` if a write at the time `written` may be the write that `stamp` was made for. The
/// time is in milliseconds since 1970.
pub fn is_written_with(stamp: &Stamp, written: i64) -> bool {
    window(stamp).contains(&written)
}

/// Returns `true` if `moment` is so close to the time of the stamp that the observed object must
/// result from the update with `stamp`. This evidence replaces a time in `managedFields`, which can
/// be missing. Kubernetes removes the entry of a manager without fields, and does not track updates
/// after a client has emptied `managedFields`. Returns `false` if an entry of `managedFields` has a
/// later time, because this entry belongs to a later write, for which the stamp is invalid.
fn is_observed_with(stamp: &Stamp, object: &StoredObject<'_>, moment: &SealCheckContext) -> bool {
    let window = window(stamp);
    let is_later = |written: i64| written > *window.end();
    stamp.target.is_some() && window.contains(&moment.now) && !object.written.is_some_and(is_later)
}

/// Returns the stamp of the object, and the time of the last write. Returns an error if the stamp
/// was made for another object, another spec, or a generation other than the current generation
/// minus `behind`. This function does not check the age of the stamp.
fn stamp_of(
    key: &[u8],
    object: &StoredObject<'_>,
    behind: i64,
) -> Result<(Stamp, Option<i64>), StampError> {
    let stamp = Stamp::read(key, object.stamp)?;
    if stamp.kind != object.kind.as_str() || stamp.name != object.name {
        return Err(StampError::Forged);
    }
    if stamp.spec != canonical::written_digest(object.spec) {
        return Err(StampError::OtherSpec);
    }
    let (leads_to, written) = match &stamp.target {
        None => (1, object.created),
        Some(target) if target.uid == object.uid => (target.generation, object.written),
        Some(_) => return Err(StampError::OtherWrite),
    };
    let generation = object.generation.saturating_sub(behind);
    let is_that_write =
        leads_to == generation || (object.deleting && generation.checked_sub(1) == Some(leads_to));
    if !is_that_write {
        return Err(StampError::OtherWrite);
    }
    Ok((stamp, written))
}

/// Returns `true` if the registrations have been intact from before `time` until now.
fn is_intact(time: Option<i64>, moment: &SealCheckContext) -> bool {
    match (time, moment.intact_since) {
        (Some(time), Some(since)) => time > since,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
