//! Stamps on objects: validation of an existing stamp or seal, the stamp that a write gets, and the
//! patch that sets the stamp. `bundle_core::review` contains the formats (`stamp`, `seal`) and the
//! rules.

use bundle_api::names::{ANNOTATION_ADMIT, ANNOTATION_STAMP, API_VERSION, LABEL_TEMPLATE_HASH};
use bundle_core::reference::Digest;
use bundle_core::review::owners::owners_digest;
use bundle_core::review::stamp::admit_token;
use bundle_core::review::{
    self, CheckedDeploymentSpec, ConfirmedFacts, GeneratedFor, Kind, PartRequesters, Requester,
    SealCheckContext, SealState, Stamp, StampChange, StampTarget, Subject, seal_state,
    written_digest,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::stored_object;

/// Maximum age of a stamp when the validating call checks it, in milliseconds. This age is longer
/// than the longest timeout of a webhook call (30 s).
const MAX_STAMP_AGE_MS: i64 = 60_000;
/// Maximum clock difference between two replicas, in milliseconds.
const CLOCK_SKEW_MS: i64 = 5_000;

/// Returns the facts, such as the requesters, that the seal or a valid stamp of a stored object
/// proves.
pub(in crate::admission) fn confirmed_facts(
    key: &[u8],
    kind: Kind,
    name: &str,
    object: &Value,
    moment: &SealCheckContext,
) -> Option<ConfirmedFacts> {
    state(key, kind, name, object, moment)
        .confirmed_facts()
        .ok()
}

/// Returns the state of the seal and the stamp of a stored object.
pub(in crate::admission) fn state(
    key: &[u8],
    kind: Kind,
    name: &str,
    object: &Value,
    moment: &SealCheckContext,
) -> SealState {
    let stored = stored_object::from_review(kind, name, object, moment.now);
    seal_state(key, &stored, moment)
}

/// Returns true if the write sets the annotation that admits exactly the stored spec. An annotation
/// that was set before this write is ignored: otherwise a user who writes other fields would admit
/// the spec without intention.
pub(in crate::admission) fn admits(
    key: &[u8],
    kind: Kind,
    name: &str,
    old: &Value,
    new: &Value,
) -> bool {
    let set = |object: &Value| object["metadata"]["annotations"][ANNOTATION_ADMIT].clone();
    let uid = old["metadata"]["uid"].as_str().unwrap_or_default();
    let value = set(new);
    value.is_string()
        && value != set(old)
        && old["spec"] == new["spec"]
        && value == admit_token(key, kind.as_str(), name, uid, &new["spec"])
}

/// The BundleDeployment that owns a Bundle: name and uid from the controller owner reference of the
/// Bundle, and the hash of the template.
pub(in crate::admission) struct OwnerDeployment<'a> {
    pub(in crate::admission) name: &'a str,
    uid: &'a str,
    hash: &'a str,
}

impl<'a> OwnerDeployment<'a> {
    pub(in crate::admission) fn read(bundle: &'a Value) -> Option<Self> {
        let metadata = &bundle["metadata"];
        let owner = metadata["ownerReferences"]
            .as_array()?
            .iter()
            .find(|owner| {
                owner["controller"] == true
                    && owner["kind"] == "BundleDeployment"
                    && owner["apiVersion"] == API_VERSION
            })?;
        Some(Self {
            name: owner["name"].as_str()?,
            uid: owner["uid"].as_str()?,
            hash: metadata["labels"][LABEL_TEMPLATE_HASH].as_str()?,
        })
    }

    /// Returns the requesters of the BundleDeployment, if the stamp or seal of the BundleDeployment
    /// is valid and its template requests this Bundle.
    pub(in crate::admission) fn requesters_of(
        &self,
        key: &[u8],
        bundle: &Value,
        deployment: &Value,
        moment: &SealCheckContext,
    ) -> Option<InheritedStamp> {
        if deployment["metadata"]["uid"] != self.uid {
            return None;
        }
        let kind = Kind::BundleDeployment;
        let vouched = confirmed_facts(key, kind, self.name, deployment, moment)?;
        let spec = CheckedDeploymentSpec::parse(&deployment["spec"]).ok()?;
        let wanted = &deployment["spec"]["template"]["spec"];
        let same = spec.template.hash == self.hash && review::same(wanted, &bundle["spec"]);
        same.then(|| InheritedStamp {
            parts: vouched.parts,
            from: GeneratedFor {
                uid: self.uid.to_owned(),
                hash: self.hash.to_owned(),
            },
        })
    }
}

/// The part of the stamp that a Bundle inherits from its BundleDeployment.
pub(in crate::admission) struct InheritedStamp {
    parts: PartRequesters,
    from: GeneratedFor,
}

/// The stamp that an admitted object must have.
pub(in crate::admission) enum WantedStamp {
    /// The object must have exactly this annotation, or no stamp if the value is `None`.
    Exactly(Option<String>),
    /// The object must have a stamp with this content, created at about this time.
    Stamp(Box<Stamp>),
}

/// All facts that determine the stamp of a write.
pub(in crate::admission) struct StampInput<'a> {
    pub(in crate::admission) subject: &'a Subject<'a>,
    pub(in crate::admission) requester: &'a Requester,
    /// The facts that the stamp or seal of the stored object proves.
    pub(in crate::admission) vouched: Option<&'a ConfirmedFacts>,
    /// True if the stored object has a seal.
    pub(in crate::admission) is_sealed: bool,
    pub(in crate::admission) inherited: Option<&'a InheritedStamp>,
    /// Time at which the review began.
    pub(in crate::admission) began: Timestamp,
}

impl StampInput<'_> {
    pub(in crate::admission) fn wanted(&self, stamping: &StampChange) -> WantedStamp {
        let all = PartRequesters::all(self.requester);
        let (parts, approves, generated_for) = match (stamping, self.vouched, self.inherited) {
            // The object has no seal yet, or its owner references change. A stamp is only valid for
            // the last write, so this write gets a new stamp with the same content.
            (StampChange::Unchanged, Some(vouched), _)
                if self.subject.spec_text_unchanged()
                    && (!self.is_sealed || self.owners() != vouched.owners) =>
            {
                (
                    vouched.parts.clone(),
                    vouched.approves.clone(),
                    vouched.generated_for.clone(),
                )
            }
            (StampChange::Unchanged, ..) => {
                let kept = self.subject.old.and_then(stored_object::stamp_in_review);
                return WantedStamp::Exactly(kept.map(str::to_owned));
            }
            (StampChange::Requester, ..) => (all, None, None),
            (StampChange::Approve(terms), ..) => (all, Some(terms.clone()), None),
            (StampChange::UpdateChangedParts, Some(vouched), _) => (
                self.kept_requesters(vouched),
                vouched.approves.clone(),
                vouched.generated_for.clone(),
            ),
            (StampChange::Inherit, _, Some(inherited)) => {
                (inherited.parts.clone(), None, Some(inherited.from.clone()))
            }
            _ => return WantedStamp::Exactly(None),
        };
        WantedStamp::Stamp(Box::new(Stamp {
            time: self.began.as_millisecond(),
            kind: self.subject.kind.as_str().to_owned(),
            name: self.subject.name.to_owned(),
            target: self.target(),
            spec: written_digest(self.subject.spec()),
            parts,
            approves,
            generated_for,
            owners: self.owners(),
            admitted_at: self.admitted_at(stamping),
        }))
    }

    /// Returns the time of the write that admitted the spec: this write, or an earlier write if
    /// this write does not change the spec.
    fn admitted_at(&self, stamping: &StampChange) -> Option<i64> {
        match stamping {
            StampChange::Requester | StampChange::Approve(_) if self.subject.admits => {
                Some(self.began.as_millisecond())
            }
            StampChange::Unchanged => self.vouched.and_then(|vouched| vouched.admitted_at),
            _ => None,
        }
    }

    /// Returns the digest of the owner references that the stamp covers. If the previous stamp or
    /// seal covered the previous owner references, the result covers the owner references of the
    /// new object. Owner references that were never reviewed stay uncovered until they are removed.
    fn owners(&self) -> Option<Digest> {
        let written = || owners_digest(self.subject.new);
        match (self.subject.old, self.vouched) {
            (None, _) => written(),
            (Some(old), Some(vouched)) if vouched.covers_owners(old) => written(),
            (Some(_), vouched) => vouched.and_then(|vouched| vouched.owners.clone()),
        }
    }

    fn kept_requesters(&self, vouched: &ConfirmedFacts) -> PartRequesters {
        if self.subject.kind == Kind::BundleDeployment {
            let changed = self.subject.changed_parts();
            vouched.parts.changed_by(self.requester, changed)
        } else {
            // The spec of every other kind is immutable.
            vouched.parts.clone()
        }
    }

    fn target(&self) -> Option<StampTarget> {
        let metadata = &self.subject.old?["metadata"];
        let generation = metadata["generation"].as_i64().unwrap_or_default();
        Some(StampTarget {
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            generation: if self.subject.spec_text_unchanged() {
                generation
            } else {
                generation.saturating_add(1)
            },
        })
    }
}

impl WantedStamp {
    /// Returns the annotation that the mutating call sets. Returns `None` if the object must have
    /// no stamp.
    pub(in crate::admission) fn into_annotation(self, key: &[u8]) -> Option<String> {
        match self {
            Self::Exactly(text) => text,
            Self::Stamp(stamp) => Some(stamp.text(key)),
        }
    }

    /// Returns true if `found` is an annotation that a mutating call of any replica created for
    /// this write.
    pub(in crate::admission) fn matches(&self, key: &[u8], found: Option<&str>) -> bool {
        match self {
            Self::Exactly(text) => text.as_deref() == found,
            Self::Stamp(wanted) => {
                let Ok(stamp) = Stamp::read(key, found) else {
                    return false;
                };
                let age = wanted.time.saturating_sub(stamp.time);
                let admitted_at = if wanted.admitted_at == Some(wanted.time) {
                    Some(stamp.time)
                } else {
                    wanted.admitted_at
                };
                let of_then = Stamp {
                    time: stamp.time,
                    admitted_at,
                    ..wanted.as_ref().clone()
                };
                (-CLOCK_SKEW_MS..=MAX_STAMP_AGE_MS).contains(&age) && stamp == of_then
            }
        }
    }
}

/// Returns the patch operation that sets the stamp of `object` to `wanted`, or that removes the
/// stamp if `wanted` is `None`. Returns `None` if the stamp does not change.
pub(in crate::admission) fn patch(object: &Value, wanted: Option<&str>) -> Option<Value> {
    let path = format!(
        "/metadata/annotations/{}",
        ANNOTATION_STAMP.replace('/', "~1")
    );
    match (stored_object::stamp_in_review(object), wanted) {
        (None, None) => None,
        (Some(found), Some(wanted)) if found == wanted => None,
        (Some(_), None) => Some(json!({"op": "remove", "path": path})),
        (_, Some(wanted)) if object["metadata"]["annotations"].is_object() => {
            Some(json!({"op": "add", "path": path, "value": wanted}))
        }
        (_, Some(wanted)) => Some(
            json!({"op": "add", "path": "/metadata/annotations", "value": {ANNOTATION_STAMP: wanted}}),
        ),
    }
}

/// Returns a generated name for an object with `generateName`, and `None` for every other object.
/// The webhook generates the name, because the stamp covers it. As in Kubernetes, the name is a
/// truncated prefix and five random characters without vowels.
pub(in crate::admission) fn generated(
    object: &Value,
    kind: Kind,
    random: impl Iterator<Item = u8>,
) -> Option<String> {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const LENGTH: usize = 5;
    let prefix = object["metadata"]["generateName"].as_str()?;
    // Kubernetes truncates at 63 characters for all kinds.
    let longest = kind.name_limit().min(63) - LENGTH;
    let mut name: String = prefix.chars().take(longest).collect();
    name.extend(
        random
            .take(LENGTH)
            .map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])),
    );
    Some(name)
}
