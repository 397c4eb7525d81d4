//! Checks that would stop an installation, evaluated from the preview and from objects that the
//! user may read.

use bundle_core::plan::conditions::some_of;
use bundle_core::plan::steps::InstallStep;
use bundle_core::review::class::Authorization;
use bundle_core::review::{Class, class::Approval};

use crate::commands::deployments::preview::{NoteEffect, Preview, PreviewFailure};

/// Maximum number of objects in a message.
const MAX_NAMED: usize = 5;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckResult {
    /// The check does not stop the installation.
    Passes,
    /// The check stops the installation.
    Fails,
    /// The result is unknown.
    Unknown,
}

impl CheckResult {
    /// Returns the result as one word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Passes => "passes",
            Self::Fails => "fails",
            Self::Unknown => "unknown",
        }
    }
}

/// A check with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedCheck {
    /// Name.
    pub(super) name: &'static str,
    /// Result.
    pub(super) result: CheckResult,
    /// Explanation of the result.
    pub(super) message: String,
}

/// Class of the BundleDeployment.
#[derive(Debug)]
pub(super) enum ClassState {
    /// The class.
    Known(Box<Class>),
    /// The class does not exist or is invalid.
    Invalid(String),
    /// The class could not be read.
    Unread(String),
}

/// Approval of the content.
#[derive(Debug)]
pub(super) enum ApprovalState {
    /// bundle-webhook accepted an approval of this name.
    Approved(String),
    /// No approval is valid.
    Missing,
    /// The approvals could not be read, or the digest of the content is unknown.
    Unknown(String),
}

/// Input of the checks.
pub(super) struct CheckFacts<'a> {
    /// Steps of the installation.
    pub(super) steps: &'a [InstallStep],
    /// `spec.paused`.
    pub(super) is_paused: bool,
    /// Class.
    pub(super) class: &'a ClassState,
    /// Approval, for a class that requires one.
    pub(super) approval: &'a ApprovalState,
    /// Digest of the content.
    pub(super) digest: Option<&'a str>,
    /// Reason why the Bundle of the current template is not unpacked. `None` if it is unpacked.
    pub(super) bundle: Option<String>,
    /// Message of the condition `Authorized` if the requester of the current template lacks
    /// permissions.
    pub(super) unauthorized: Option<String>,
    /// Preview.
    pub(super) preview: &'a Preview,
}

impl CheckFacts<'_> {
    /// Returns the results of all checks, in the order in which the reconciler runs them.
    pub(super) fn checks(&self) -> Vec<PlannedCheck> {
        let mut checks = Vec::new();
        let mut add = |name, (result, message): (CheckResult, String)| {
            checks.push(PlannedCheck {
                name,
                result,
                message,
            });
        };
        if self.is_paused {
            add(
                "Paused",
                (CheckResult::Fails, "spec.paused is true".to_owned()),
            );
        }
        add("Class", self.class_check());
        if let Some(message) = &self.bundle {
            add("Bundle", (CheckResult::Fails, message.clone()));
        }
        let has = |step| self.is_paused || self.steps.contains(&step);
        if has(InstallStep::CheckApproval) && self.needs_approval() {
            add("Approval", self.approval_check());
        }
        if has(InstallStep::CheckDefinitions) {
            add(
                "CustomResourceDefinitions",
                self.notes(NoteEffect::UnsafeDefinition, "unsafe changes"),
            );
        }
        if has(InstallStep::Authorize) {
            add("Permissions", self.permission_check());
        }
        add("Objects", self.object_check());
        checks
    }

    fn class_check(&self) -> (CheckResult, String) {
        match self.class {
            ClassState::Known(class) => (
                CheckResult::Passes,
                format!("ProvisionerClass {}", class.name),
            ),
            ClassState::Invalid(why) => (CheckResult::Fails, why.clone()),
            ClassState::Unread(why) => (CheckResult::Unknown, why.clone()),
        }
    }

    fn needs_approval(&self) -> bool {
        match self.class {
            ClassState::Known(class) => class.approval != Approval::None,
            ClassState::Invalid(_) | ClassState::Unread(_) => false,
        }
    }

    fn approval_check(&self) -> (CheckResult, String) {
        let digest = self.digest.unwrap_or("the content");
        match self.approval {
            ApprovalState::Approved(name) => (
                CheckResult::Passes,
                format!("BundleApproval {name} is accepted"),
            ),
            ApprovalState::Missing => (
                CheckResult::Fails,
                format!("{digest} needs a BundleApproval by a user with verb approve on the class"),
            ),
            ApprovalState::Unknown(why) => (CheckResult::Unknown, why.clone()),
        }
    }

    /// Returns the result of the permission check. It checks the permissions of the requester. For
    /// new content, the requester is the user of this command.
    fn permission_check(&self) -> (CheckResult, String) {
        if let Some(message) = &self.unauthorized {
            return (CheckResult::Fails, message.clone());
        }
        let forbidden = self.failures(|failure| failure.is_forbidden);
        if forbidden.is_empty() {
            return (CheckResult::Passes, "you may apply each object".to_owned());
        }
        let message = format!(
            "you have no permission for {}",
            some_of(&forbidden, MAX_NAMED)
        );
        match self.class {
            // The class authorizes the content, so the requester needs no permissions. Only the
            // preview is incomplete.
            ClassState::Known(class) if class.authorization == Authorization::Class => {
                let message = format!("the class authorizes the content, but {message}");
                (CheckResult::Unknown, message)
            }
            _ => (CheckResult::Fails, message),
        }
    }

    fn object_check(&self) -> (CheckResult, String) {
        let rejected = self.failures(|failure| !failure.is_forbidden && !failure.is_retryable);
        if !rejected.is_empty() {
            let message = format!("the API server rejects {}", some_of(&rejected, MAX_NAMED));
            return (CheckResult::Fails, message);
        }
        let (result, message) = self.notes(NoteEffect::Failure, "collisions");
        let unknown = self.failures(|failure| failure.is_retryable);
        if result == CheckResult::Passes && !unknown.is_empty() {
            let message = format!(
                "the API server did not answer for {}",
                some_of(&unknown, MAX_NAMED)
            );
            return (CheckResult::Unknown, message);
        }
        (result, message)
    }

    fn failures(&self, is_wanted: impl Fn(&PreviewFailure) -> bool) -> Vec<String> {
        let failures = self.preview.failures.iter();
        failures
            .filter(|failure| is_wanted(failure))
            .map(|failure| format!("{}: {}", failure.key, failure.message))
            .collect()
    }

    /// Returns the result of a check that fails if at least one change has a note with the effect
    /// `effect`. The message lists these notes. Without such a note, the check passes with the
    /// message `no WHAT`.
    fn notes(&self, effect: NoteEffect, what: &str) -> (CheckResult, String) {
        let notes: Vec<String> = self
            .preview
            .changes
            .iter()
            .filter_map(|change| Some((change, change.note.as_ref()?)))
            .filter(|(_, note)| note.effect == effect)
            .map(|(change, note)| format!("{}: {}", change.key, note.text))
            .collect();
        if notes.is_empty() {
            return (CheckResult::Passes, format!("no {what}"));
        }
        (CheckResult::Fails, some_of(&notes, MAX_NAMED))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::deployments::preview::tests_support::preview_with_failure;

    const STEPS: [InstallStep; 3] = [
        InstallStep::CheckApproval,
        InstallStep::CheckDefinitions,
        InstallStep::Authorize,
    ];

    fn class(spec: &serde_json::Value) -> ClassState {
        ClassState::Known(Box::new(Class::parse("c", spec).unwrap()))
    }

    fn results(class: &ClassState, approval: &ApprovalState, preview: &Preview) -> Vec<String> {
        let facts = CheckFacts {
            steps: &STEPS,
            is_paused: false,
            class,
            approval,
            digest: Some("sha256:1"),
            bundle: None,
            unauthorized: None,
            preview,
        };
        let checks = facts.checks().into_iter();
        checks
            .map(|check| format!("{} {}", check.name, check.result.word()))
            .collect()
    }

    #[test]
    fn missing_permissions_stop_content_unless_the_class_authorizes_it() {
        let provisioner =
            json!({"provisioner": "core.rukpak.io/plain", "authorization": "Requester"});
        let missing = ApprovalState::Missing;
        assert_eq!(
            results(
                &class(&provisioner),
                &missing,
                &preview_with_failure(true, false)
            ),
            [
                "Class passes",
                "CustomResourceDefinitions passes",
                "Permissions fails",
                "Objects passes"
            ]
        );
        let by_class = json!({"provisioner": "core.rukpak.io/plain", "authorization": "Class"});
        let found = results(
            &class(&by_class),
            &missing,
            &preview_with_failure(true, false),
        );
        assert_eq!(found[2], "Permissions unknown");
    }

    #[test]
    fn approval_is_checked_for_classes_that_require_it() {
        let spec = json!({"provisioner": "core.rukpak.io/plain", "approval": {"mode": "Required", "by": "Anyone"}});
        let required = class(&spec);
        let preview = Preview::default();
        let of = |approval: ApprovalState| results(&required, &approval, &preview)[1].clone();
        assert_eq!(of(ApprovalState::Missing), "Approval fails");
        assert_eq!(
            of(ApprovalState::Approved("a".to_owned())),
            "Approval passes"
        );
        assert_eq!(
            of(ApprovalState::Unknown("x".to_owned())),
            "Approval unknown"
        );
    }

    #[test]
    fn objects_without_an_answer_are_unknown_and_rejected_ones_fail() {
        let invalid = ClassState::Invalid("x".to_owned());
        let missing = ApprovalState::Missing;
        let unknown = results(&invalid, &missing, &preview_with_failure(false, true));
        assert_eq!(unknown[0], "Class fails");
        assert_eq!(unknown[3], "Objects unknown");
        let rejected = results(&invalid, &missing, &preview_with_failure(false, false));
        assert_eq!(rejected[3], "Objects fails");
    }
}
