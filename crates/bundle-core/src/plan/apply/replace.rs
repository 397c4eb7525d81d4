//! Objects whose immutable fields change: detects them from the response of the API server, and
//! decides which of them an upgrade replaces, that is, deletes and creates again.
//! `webhook::reconcile::install` sends the requests.

use crate::diagnostic::codes;
use crate::object::ObjectId;

use crate::plan::conditions::some_of;
use crate::plan::jobs::is_job;
pub use crate::review::deployment::ReplacePolicy;

/// Annotation of an object in the content that overrides `spec.rollout.replace`.
pub const ANNOTATION: &str = "core.rukpak.io/replace";
/// Maximum number of fields in a message.
const FIELDS: usize = 5;

impl ReplacePolicy {
    /// Parses the annotation; `None` if the value is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Always" => Some(Self::Always),
            "IfCompleted" => Some(Self::IfCompleted),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Returns true if [`Self::decide`] can return [`Replacement::Replace`] for this object,
    /// finished or not. The permissions for a replacement are checked only for such objects.
    pub fn may_replace(self, id: &ObjectId) -> bool {
        [true, false]
            .into_iter()
            .any(|is_finished| self.decide(id, is_finished) == Replacement::Replace)
    }

    /// Decides whether an object with a changed immutable field is replaced. `is_finished` is true
    /// for a Job that has completed or failed.
    pub fn decide(self, id: &ObjectId, is_finished: bool) -> Replacement {
        let is_job = is_job(&id.group, &id.kind);
        match self {
            _ if is_protected(id) => Replacement::Keep(NoReplacementReason::Protected),
            Self::Always => Replacement::Replace,
            Self::IfCompleted if is_job && is_finished => Replacement::Replace,
            Self::IfCompleted if is_job => Replacement::Keep(NoReplacementReason::Unfinished),
            Self::IfCompleted | Self::Never => Replacement::Keep(NoReplacementReason::NotRequested),
        }
    }
}

/// Decision whether an upgrade replaces an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// The object is replaced.
    Replace,
    /// The object is kept, and the upgrade fails.
    Keep(NoReplacementReason),
}

/// Reason why an object is not replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReplacementReason {
    /// The Job is still running.
    Unfinished,
    /// Neither the annotation of the object nor the spec requests a replacement.
    NotRequested,
    /// The deletion of the object would also delete data or other objects.
    Protected,
}

impl NoReplacementReason {
    /// Returns the next step for the user.
    pub fn next_step(self) -> String {
        match self {
            Self::Unfinished => format!(
                "the Job is replaced after it has finished; to replace the Job now, annotate \
                the Job with {ANNOTATION}: Always"
            ),
            Self::NotRequested => format!(
                "to let upgrades replace the object, annotate the object with {ANNOTATION}: Always, or set spec.rollout.replace: Always"
            ),
            Self::Protected => {
                "objects of this kind are never replaced; give the object another name in the content"
                    .to_owned()
            }
        }
    }
}

/// Returns true for kinds whose deletion also deletes data or other objects.
fn is_protected(id: &ObjectId) -> bool {
    matches!(
        (id.group.as_str(), id.kind.as_str()),
        (
            "",
            "Namespace" | "PersistentVolumeClaim" | "PersistentVolume"
        ) | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// Cause in the `details` of a `Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause<'a> {
    /// Reason, such as `FieldValueInvalid`.
    pub reason: &'a str,
    /// Path of the field.
    pub field: &'a str,
    /// Message of the cause. The message may contain the whole value of the field.
    pub message: &'a str,
}

/// Returns the immutable fields if a `Status` reports only changes of immutable fields. Returns
/// `None` for every other `Status`.
///
/// Only the message of each cause shows that a field is immutable. Source: `ValidateImmutableField`
/// of `k8s.io/apimachinery` ("field is immutable", also for Jobs and selectors) and
/// `pkg/apis/{core,apps,rbac,storage}/validation` of Kubernetes.
pub fn immutable_fields<'a>(
    code: u16,
    reason: &str,
    causes: impl IntoIterator<Item = Cause<'a>>,
) -> Option<Vec<&'a str>> {
    if code != 422 || reason != "Invalid" {
        return None;
    }
    let fields: Option<Vec<&str>> = causes
        .into_iter()
        .map(|cause| is_immutability(cause).then_some(cause.field))
        .collect();
    fields.filter(|fields| !fields.is_empty())
}

fn is_immutability(cause: Cause<'_>) -> bool {
    let Cause {
        reason,
        field,
        message,
    } = cause;
    match reason {
        "FieldValueInvalid" => {
            message.ends_with("field is immutable")
                || message.ends_with("may not change once set")
                || (field == "roleRef" && message.ends_with("cannot change roleRef"))
        }
        "FieldValueForbidden" => {
            message.ends_with("field is immutable when `immutable` is set")
                || (field == "spec"
                    && message.contains("updates to statefulset spec for fields other than"))
        }
        _ => false,
    }
}

/// Returns a message about an object with changed immutable fields. The messages of the API server
/// contain the values of the fields. This message contains no values.
pub fn sentence(fields: &[&str], reason: NoReplacementReason) -> String {
    let mut fields = fields.to_vec();
    fields.sort_unstable();
    fields.dedup();
    format!(
        "immutable fields change: {} ({}): {}",
        some_of(&fields, FIELDS),
        codes::install::IMMUTABLE,
        reason.next_step()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(group: &str, kind: &str) -> ObjectId {
        ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: "a".to_owned(),
        }
    }

    #[test]
    fn replaces_by_policy_kind_and_state() {
        use NoReplacementReason::{NotRequested, Protected, Unfinished};
        use ReplacePolicy::{Always, IfCompleted, Never};
        let kept = Replacement::Keep;
        for (policy, kind, finished, running) in [
            (
                Always,
                id("batch", "Job"),
                Replacement::Replace,
                Replacement::Replace,
            ),
            (
                Always,
                id("apps", "StatefulSet"),
                Replacement::Replace,
                Replacement::Replace,
            ),
            (
                Always,
                id("", "Namespace"),
                kept(Protected),
                kept(Protected),
            ),
            (
                Always,
                id("", "PersistentVolumeClaim"),
                kept(Protected),
                kept(Protected),
            ),
            (
                Always,
                id("apiextensions.k8s.io", "CustomResourceDefinition"),
                kept(Protected),
                kept(Protected),
            ),
            (
                IfCompleted,
                id("batch", "Job"),
                Replacement::Replace,
                kept(Unfinished),
            ),
            (
                IfCompleted,
                id("apps", "StatefulSet"),
                kept(NotRequested),
                kept(NotRequested),
            ),
            (
                IfCompleted,
                id("", "Namespace"),
                kept(Protected),
                kept(Protected),
            ),
            (
                Never,
                id("batch", "Job"),
                kept(NotRequested),
                kept(NotRequested),
            ),
            (Never, id("", "Namespace"), kept(Protected), kept(Protected)),
        ] {
            assert_eq!(policy.decide(&kind, true), finished, "{policy:?} {kind}");
            assert_eq!(policy.decide(&kind, false), running, "{policy:?} {kind}");
            let may = finished == Replacement::Replace || running == Replacement::Replace;
            assert_eq!(policy.may_replace(&kind), may, "{policy:?} {kind}");
        }
    }

    #[test]
    fn parses_only_exact_values_of_the_annotation() {
        let read = ["Always", "IfCompleted", "Never", "always", "true", ""];
        let read = read.map(ReplacePolicy::parse);
        let [always, completed, never, ..] = read;
        assert_eq!(always, Some(ReplacePolicy::Always));
        assert_eq!(completed, Some(ReplacePolicy::IfCompleted));
        assert_eq!(never, Some(ReplacePolicy::Never));
        assert_eq!(read[3..], [None, None, None]);
    }

    #[test]
    fn returns_immutable_fields_only_if_no_other_cause_is_reported() {
        let cause = |reason, field, message| Cause {
            reason,
            field,
            message,
        };
        let template = cause(
            "FieldValueInvalid",
            "spec.template",
            "Invalid value: {\"metadata\":{}}: field is immutable",
        );
        let image = cause("FieldValueRequired", "spec.image", "Required value");
        let data = cause(
            "FieldValueForbidden",
            "data",
            "Forbidden: field is immutable when `immutable` is set",
        );
        let stateful = cause(
            "FieldValueForbidden",
            "spec",
            "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden",
        );
        let role = cause(
            "FieldValueInvalid",
            "roleRef",
            "Invalid value: {}: cannot change roleRef",
        );
        for (causes, fields) in [
            (vec![template], Some(vec!["spec.template"])),
            (vec![data, role], Some(vec!["data", "roleRef"])),
            (vec![stateful], Some(vec!["spec"])),
            (vec![template, image], None),
            (vec![image], None),
            (vec![], None),
        ] {
            let found = immutable_fields(422, "Invalid", causes.clone());
            assert_eq!(found, fields, "{causes:?}");
            assert_eq!(immutable_fields(403, "Forbidden", causes), None);
        }
    }

    #[test]
    fn sentence_names_each_field_once_and_no_value() {
        let text = sentence(
            &["spec.b", "spec.a", "spec.a"],
            NoReplacementReason::NotRequested,
        );
        assert_eq!(
            text,
            "immutable fields change: spec.a, spec.b (BUNDLE-INSTALL-055): to let upgrades replace the object, annotate the object with \
             core.rukpak.io/replace: Always, or set spec.rollout.replace: Always"
        );
    }
}
