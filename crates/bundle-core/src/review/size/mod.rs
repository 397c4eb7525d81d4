//! Limits for the size of reviewed objects, so that the webhook can read every object that a write
//! stores. Each part of an object has a limit that does not depend on the other parts. Therefore a
//! user who fills one part prevents no write that changes only other parts.

use bundle_api::names::{
    ANNOTATION_ADMIT, ANNOTATION_APPLYSET_GROUP_KINDS, ANNOTATION_APPLYSET_NAMESPACES,
    ANNOTATION_APPLYSET_TOOLING, ANNOTATION_PROOF, ANNOTATION_STAMP,
};
use serde_json::Value;

use crate::diagnostic::{Finding, Findings, codes};

/// Maximum number of finalizers of one object.
const FINALIZERS_LIMIT: usize = 32;
/// Maximum number of owner references of one object.
const OWNERS_LIMIT: usize = 64;
/// Maximum lengths of texts in the entries of lists of `metadata`: name of the list, JSON pointer
/// to the text in an entry, limit in bytes. API servers do not limit the texts of owner references,
/// and check finalizers only when an object is created. Uids of API servers have 36 bytes.
const ENTRY_TEXT_LIMITS: [(&str, &str, usize); 5] = [
    ("finalizers", "", 253 + 1 + 63),
    ("ownerReferences", "/apiVersion", 253 + 1 + 63),
    ("ownerReferences", "/kind", 63),
    ("ownerReferences", "/name", 253),
    ("ownerReferences", "/uid", 128),
];
/// Annotation that `kubectl apply` replaces with each write of the object.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Hint for a long annotation of `kubectl apply`.
const LAST_APPLIED_HINT: &str =
    "remove the annotation, and use kubectl apply --server-side, which does not add it";
/// Maximum length of all annotations of an object, in bytes. API servers reject longer annotations
/// (`TotalAnnotationSizeLimitB` of apimachinery).
const API_SERVER_LIMIT: usize = 256 << 10;
/// Length of the annotations that remains for stamp and `admit` if all other groups are full, in
/// bytes. This is enough for the stamp of a spec with five requesters, one for each part, if each
/// requester has 200 groups with names of 40 characters.
const STAMP_BYTES: usize = 47 << 10;
/// Maximum weight of `managedFields` above its limit, in bytes. Only writes of the spec can use it,
/// because such a write can add entries: for its field manager, and for the time of its stamp. A
/// write of the spec requires more permissions than other writes.
const GROWTH: usize = 16 << 10;
/// Maximum weight of all parts of an object after a write, in bytes. The status is not included.
pub const MAX_WEIGHT: usize = ObjectPart::Content.limit()
    + ObjectPart::Metadata.limit()
    + ObjectPart::LastApplied.limit()
    + ObjectPart::Proof.limit()
    + ObjectPart::System.limit()
    + ObjectPart::ManagedFields.limit()
    + GROWTH;

const _: () = assert!(
    AnnotationGroup::Other.limit()
        + AnnotationGroup::LastApplied.limit()
        + AnnotationGroup::Proof.limit()
        + AnnotationGroup::ApplySet.limit()
        + STAMP_BYTES
        <= API_SERVER_LIMIT,
    "annotations of other users must leave space for a stamp"
);

/// Group of annotations with its own limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnnotationGroup {
    /// The stamp, and the annotation that admits an object. The webhook writes the stamp. Only
    /// users with permission to delete the object can write the other annotation.
    Admission,
    /// The annotations that the pod writes for other tools (KEP-3659).
    ApplySet,
    /// [`LAST_APPLIED`].
    LastApplied,
    /// The proof of signatures.
    Proof,
    /// All other annotations.
    Other,
}

impl AnnotationGroup {
    /// The groups whose length a review limits.
    const LIMITED: [Self; 4] = [Self::Other, Self::LastApplied, Self::Proof, Self::ApplySet];

    fn of(name: &str) -> Self {
        match name {
            ANNOTATION_STAMP | ANNOTATION_ADMIT => Self::Admission,
            ANNOTATION_APPLYSET_GROUP_KINDS
            | ANNOTATION_APPLYSET_NAMESPACES
            | ANNOTATION_APPLYSET_TOOLING => Self::ApplySet,
            LAST_APPLIED => Self::LastApplied,
            ANNOTATION_PROOF => Self::Proof,
            _ => Self::Other,
        }
    }

    /// Returns the maximum length of keys and values, in bytes.
    const fn limit(self) -> usize {
        match self {
            Self::Admission => API_SERVER_LIMIT,
            Self::ApplySet => 16 << 10,
            Self::LastApplied => 96 << 10,
            // A proof has at most 64 KiB, without the key of the annotation.
            Self::Proof => 65 << 10,
            Self::Other => 32 << 10,
        }
    }

    /// Returns the name of the group for messages.
    fn text(self) -> &'static str {
        match self {
            Self::Admission => "the annotations of the webhook",
            Self::ApplySet => "the ApplySet annotations",
            Self::LastApplied => "annotation kubectl.kubernetes.io/last-applied-configuration",
            Self::Proof => "annotation core.rukpak.io/proof",
            Self::Other => "the annotations, except proof, last-applied and ApplySet,",
        }
    }
}

/// Part of an object with its own limit for its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectPart {
    /// All fields except `metadata` and `status`.
    Content,
    /// Labels, owner references, finalizers, and annotations that are in no other part.
    Metadata,
    /// The annotation that `kubectl apply` writes.
    LastApplied,
    /// The annotation with the proof of signatures.
    Proof,
    /// Fields of `metadata` that the pod or the API server writes, for example the stamp, the
    /// ApplySet annotations and the generation.
    System,
    /// `metadata.managedFields`.
    ManagedFields,
}

impl ObjectPart {
    /// All parts.
    pub const ALL: [Self; 6] = [
        Self::Content,
        Self::Metadata,
        Self::LastApplied,
        Self::Proof,
        Self::System,
        Self::ManagedFields,
    ];

    /// Returns the part of a field of `metadata`. Each annotation has a part of its own
    /// ([`Self::of_annotation`]).
    pub fn of_field(name: &str) -> Self {
        match name {
            "labels" | "annotations" | "ownerReferences" | "finalizers" => Self::Metadata,
            "managedFields" => Self::ManagedFields,
            _ => Self::System,
        }
    }

    /// Returns the part of an annotation.
    pub fn of_annotation(name: &str) -> Self {
        match AnnotationGroup::of(name) {
            AnnotationGroup::Admission | AnnotationGroup::ApplySet => Self::System,
            AnnotationGroup::LastApplied => Self::LastApplied,
            AnnotationGroup::Proof => Self::Proof,
            AnnotationGroup::Other => Self::Metadata,
        }
    }

    /// Returns the maximum weight after a write, in bytes.
    pub const fn limit(self) -> usize {
        match self {
            Self::Content => 2 << 20,
            Self::Metadata => 320 << 10,
            Self::LastApplied => 160 << 10,
            Self::Proof => 80 << 10,
            Self::System => 208 << 10,
            Self::ManagedFields => 240 << 10,
        }
    }

    /// Returns the path of the part, and its name for messages.
    fn location(self) -> (&'static str, &'static str) {
        match self {
            Self::Content => ("spec", "the spec"),
            Self::Metadata => (
                "metadata",
                "labels, annotations, owner references and finalizers",
            ),
            Self::LastApplied => ("metadata.annotations", AnnotationGroup::LastApplied.text()),
            Self::Proof => ("metadata.annotations", AnnotationGroup::Proof.text()),
            Self::System => (
                "metadata",
                "the stamp and other metadata of the webhook and the API server",
            ),
            Self::ManagedFields => ("metadata.managedFields", "the list of field managers"),
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Content => "use fewer and longer values: many small values need the most memory",
            Self::Metadata => {
                "remove entries; an update that removes only some of the entries is admitted too"
            }
            Self::LastApplied => LAST_APPLIED_HINT,
            Self::Proof => "remove the annotation",
            Self::System => {
                "the stamp contains the groups of each requester of a part of the spec: use requesters with fewer groups"
            }
            Self::ManagedFields => {
                "remove entries, for example all with kubectl patch --type=merge -p '{\"metadata\":{\"managedFields\":[{}]}}'"
            }
        }
    }
}

/// Estimated memory of the parts of an object (weight), in bytes. The webhook uses the same
/// estimate to limit responses of the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectWeight {
    /// Weight of each part, in the order of [`ObjectPart::ALL`].
    pub parts: [usize; ObjectPart::ALL.len()],
    /// True if values are nested so deeply that the webhook cannot read the object.
    pub is_too_deep: bool,
}

impl ObjectWeight {
    /// Returns the weight of a part, in bytes.
    pub fn of(self, part: ObjectPart) -> usize {
        let mut parts = ObjectPart::ALL.into_iter().zip(self.parts);
        let found = parts.find(|(found, _)| *found == part);
        found.map_or(0, |(_, weight)| weight)
    }
}

/// Object with its estimated memory (weight).
#[derive(Debug, Clone, Copy)]
pub struct MeasuredObject<'a> {
    /// The object itself.
    pub object: &'a Value,
    /// Weight of the object.
    pub weight: ObjectWeight,
}

/// Returns a finding for each limit that a write exceeds. If a part of the stored object already
/// exceeds its limit, an update may keep or reduce this part. Only `managedFields` may exceed its
/// limit, by up to `GROWTH` in a write that creates the object or changes its spec.
pub fn judge_size(old: Option<MeasuredObject<'_>>, new: MeasuredObject<'_>) -> Findings {
    let mut findings = Findings::default();
    let mut refuse = |field: &str, message: String, hint: &str| {
        let finding = Finding::error(codes::review::TOO_LARGE_TO_READ, message);
        findings.push(finding.hint(hint).at_field(field));
    };
    for (field, limit) in [
        ("finalizers", FINALIZERS_LIMIT),
        ("ownerReferences", OWNERS_LIMIT),
    ] {
        let count = entries(new.object, field);
        let before = old.map_or(0, |old| entries(old.object, field));
        if count > limit && count > before {
            refuse(
                &format!("metadata.{field}"),
                format!(
                    "the object has {count} entries in metadata.{field}, more than the limit of {limit}"
                ),
                "remove entries; an update that removes only some of the entries is admitted too",
            );
        }
    }
    for (list, pointer, limit) in ENTRY_TEXT_LIMITS {
        let longest = longest_text(new.object, list, pointer);
        let before = old.map_or(0, |old| longest_text(old.object, list, pointer));
        if longest > limit && longest > before {
            refuse(
                &format!("metadata.{list}{}", pointer.replace('/', ".")),
                format!(
                    "an entry of metadata.{list} has a text of {longest} bytes, more than the limit of {limit}"
                ),
                "remove the entry",
            );
        }
    }
    for group in AnnotationGroup::LIMITED {
        let size = annotation_bytes(new.object, group);
        let before = old.map_or(0, |old| annotation_bytes(old.object, group));
        let limit = group.limit();
        if size > limit.max(before) {
            let message = format!(
                "the length of {} is {} KiB, more than the limit of {} KiB",
                group.text(),
                size.div_ceil(1 << 10),
                limit >> 10
            );
            let hint = if group == AnnotationGroup::LastApplied {
                LAST_APPLIED_HINT
            } else {
                "remove annotations; an update that removes only some of them is admitted too"
            };
            refuse("metadata.annotations", message, hint);
        }
    }
    if new.weight.is_too_deep && old.is_none_or(|old| !old.weight.is_too_deep) {
        refuse(
            "",
            "values of the object are nested too deep, so the webhook could not read it".to_owned(),
            "use fewer levels of nesting",
        );
    }
    let writes_spec = old.is_none_or(|old| old.object["spec"] != new.object["spec"]);
    for part in ObjectPart::ALL {
        let weight = new.weight.of(part);
        let before = old.map_or(0, |old| old.weight.of(part));
        let growth = if part == ObjectPart::ManagedFields && writes_spec {
            GROWTH
        } else {
            0
        };
        if weight > before.max(part.limit() + growth) {
            let (field, name) = part.location();
            let message = format!(
                "the estimated memory of {name} is {} KiB, more than the limit of {} KiB",
                weight.div_ceil(1 << 10),
                part.limit() >> 10
            );
            refuse(field, message, part.hint());
        }
    }
    findings
}

fn entries(object: &Value, field: &str) -> usize {
    object["metadata"][field].as_array().map_or(0, Vec::len)
}

/// Returns the length of the longest text at `pointer` in the entries of `list`, in bytes.
fn longest_text(object: &Value, list: &str, pointer: &str) -> usize {
    let entries = object["metadata"][list].as_array().into_iter().flatten();
    let texts = entries.filter_map(|entry| entry.pointer(pointer)?.as_str());
    texts.map(str::len).max().unwrap_or_default()
}

/// Returns the length of keys and values of the annotations of a group, in bytes.
fn annotation_bytes(object: &Value, group: AnnotationGroup) -> usize {
    object["metadata"]["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| AnnotationGroup::of(key) == group)
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum()
}

#[cfg(test)]
mod tests;
