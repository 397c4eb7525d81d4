//! Judge: applies every admission rule to one write and its facts. The judge sends no request.

mod content;
mod rights;

use super::{
    deployment::CheckedDeploymentSpec,
    facts::{
        ClassFact, DeploymentFact, Kind, ReviewFacts, StampState, Subject,
        needs::{self, Spec},
    },
    target::check_target,
};
use crate::{
    diagnostic::{Finding, Findings, Outcome, Severity, codes},
    reference::Digest,
};

/// Decision on a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The write is admitted.
    Admit {
        /// Warnings about the write.
        warnings: Findings,
        /// Stamp to set on the object.
        stamp: StampChange,
    },
    /// At least one rule rejects the write. Contains all reasons.
    Refuse(Findings),
    /// The result is unknown because a dependency did not respond. The caller may retry, and must
    /// not cache the result.
    Unknown(Findings),
}

/// Stamp to set on an admitted object. The stamp records the requesters of a write (annotation
/// `core.rukpak.io/stamp`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StampChange {
    /// Stamp with this requester for every part of the spec. All parts were checked for this
    /// requester.
    Requester,
    /// Stamp with this requester, for an approval. Contains the digest of the approved terms of the
    /// BundleDeployment.
    Approve(Digest),
    /// Stamp for this write: the writer becomes the requester of the changed parts, and other parts
    /// keep their requesters.
    UpdateChangedParts,
    /// The existing stamp, byte for byte, if the object has a stamp.
    Unchanged,
    /// Stamp with the requesters of the BundleDeployment that the Bundle is generated for.
    Inherit,
    /// No stamp: the object is not reconciled.
    None,
}

impl Verdict {
    /// Returns all findings of the decision, errors before warnings.
    pub fn findings(&self) -> &Findings {
        match self {
            Self::Admit { warnings, .. } => warnings,
            Self::Refuse(findings) | Self::Unknown(findings) => findings,
        }
    }
}

/// Decides on a write. The same input always has the same decision, with its findings in the same
/// order.
pub fn judge(subject: &Subject<'_>, facts: &ReviewFacts<'_>) -> Verdict {
    let mut findings = Findings::default();
    if let Some(finding) = immutable(subject) {
        // Only this finding is returned, because it is the message of RukPak.
        return Verdict::Refuse(finding.into());
    }
    if subject.is_deleted_unconfirmed() || (subject.own && subject.spec_meaning_unchanged()) {
        return admit(findings, stamp_without_checks(subject));
    }
    name(subject, &mut findings);
    let spec = match needs::read(subject) {
        Ok(spec) => Some(spec),
        Err(more) => {
            findings.extend(more);
            None
        }
    };
    let mut stamp = stamping(subject, facts);
    if let Some(spec) = spec.filter(|_| needs::is_checked(subject)) {
        check(&spec, subject, facts, &mut findings);
        if belongs_to_other_provisioner(&spec, facts) {
            stamp = StampChange::None;
        } else if stamp == StampChange::None {
            findings.push(no_valid_stamp());
        }
    }
    sort(&mut findings);
    match findings.outcome() {
        None => admit(findings, stamp),
        // A write that does not change the meaning of the spec is admitted, and its errors become
        // warnings. An object without a valid stamp is still not reconciled after this write.
        Some(_) if subject.spec_meaning_unchanged() => {
            let warnings = findings.into_iter().map(|finding| Finding {
                severity: Severity::Warning,
                ..finding
            });
            admit(warnings.collect(), stamp_without_checks(subject))
        }
        Some(Outcome::Unknown) => Verdict::Unknown(findings),
        Some(_) => Verdict::Refuse(findings),
    }
}

/// Returns `true` if the registry should be queried. Returns `false` in two cases: the other facts
/// already reject the write, or a class belongs to another provisioner. For another provisioner,
/// the permissions of the requester are not checked, and the decision does not depend on the
/// content. `facts` must not contain the content.
pub fn can_read_image(subject: &Subject<'_>, facts: &ReviewFacts<'_>) -> bool {
    if needs::read(subject).is_ok_and(|spec| belongs_to_other_provisioner(&spec, facts)) {
        return false;
    }
    let verdict = judge(subject, facts);
    // A lookup is useful if the missing lookup is the only reason for a rejection.
    !verdict
        .findings()
        .errors()
        .any(|finding| finding.code != codes::review::CONTENT_UNSEEN)
}

fn admit(warnings: Findings, stamp: StampChange) -> Verdict {
    Verdict::Admit { warnings, stamp }
}

/// Returns the stamp for a write whose permissions and content are not checked.
fn stamp_without_checks(subject: &Subject<'_>) -> StampChange {
    if subject.spec_text_unchanged() {
        StampChange::Unchanged
    } else if subject.stamp_state == StampState::Stamped {
        StampChange::UpdateChangedParts
    } else {
        StampChange::None
    }
}

/// Returns the stamp for a write that no rule rejects.
fn stamping(subject: &Subject<'_>, facts: &ReviewFacts<'_>) -> StampChange {
    if subject.stamp_state == StampState::Inherited {
        return StampChange::Inherit;
    }
    if subject.old.is_some() && !(subject.admits && needs::is_checked(subject)) {
        return stamp_without_checks(subject);
    }
    match (subject.kind, &facts.deployment) {
        (Kind::BundleApproval, Some(DeploymentFact::Found { terms, .. })) => {
            StampChange::Approve(terms.clone())
        }
        _ => StampChange::Requester,
    }
}

fn no_valid_stamp() -> Finding {
    Finding::warning(
        codes::review::NOT_ADMITTED,
        "the object has no valid admission stamp; while it has none, a change of its spec does not create one",
    )
    .hint("the condition Ready of the object names the annotation with which a user confirms the whole spec")
}

/// Sorts errors before warnings. Within each severity, the order of the rules is kept.
fn sort(findings: &mut Findings) {
    findings.sort_by_key(|finding| finding.severity == Severity::Warning);
}

fn immutable(subject: &Subject<'_>) -> Option<Finding> {
    if subject.old.is_none() || subject.spec_meaning_unchanged() {
        return None;
    }
    match subject.kind {
        Kind::Bundle => Some(
            Finding::error(
                codes::review::SPEC_IMMUTABLE,
                "bundle.spec is immutable",
            )
            .hint("create another Bundle, or change the template of the BundleDeployment that owns this Bundle"),
        ),
        Kind::BundleApproval => Some(
            Finding::error(
                codes::review::APPROVAL_IMMUTABLE,
                "bundleapproval.spec is immutable",
            )
            .hint("delete the BundleApproval to withdraw the approval, and create another BundleApproval for other content"),
        ),
        Kind::BundleDeployment => None,
    }
}

fn name(subject: &Subject<'_>, findings: &mut Findings) {
    let limit = subject.kind.name_limit();
    if subject.old.is_none() && subject.name.chars().count() > limit {
        findings.push(
            Finding::error(
                codes::review::NAME_TOO_LONG,
                format!("Too long: may not be longer than {limit}"),
            )
            .at_field("metadata.name"),
        );
    }
}

fn check(spec: &Spec, subject: &Subject<'_>, facts: &ReviewFacts<'_>, findings: &mut Findings) {
    match spec {
        Spec::Bundle(bundle) => {
            rights::class(&bundle.class, "spec.provisionerClassName", facts, findings);
            let source = content::ContentCheck {
                bundle,
                classes: &[&bundle.class],
                field: "spec.source",
                accept_unsupported: false,
            };
            content::check(&source, subject, facts, findings);
        }
        Spec::Deployment(deployment) => {
            let bundle = &deployment.template.bundle;
            rights::class(
                &deployment.class,
                "spec.provisionerClassName",
                facts,
                findings,
            );
            let mut classes = vec![deployment.class.as_str()];
            if bundle.class != deployment.class {
                let field = "spec.template.spec.provisionerClassName";
                rights::class(&bundle.class, field, facts, findings);
                classes.push(&bundle.class);
            }
            target_namespace(deployment, facts, findings);
            let asks = subject.changed_parts().any_of_content();
            rights::check_impersonation(deployment, asks, facts, findings);
            let source = content::ContentCheck {
                bundle,
                classes: &classes,
                field: "spec.template.spec.source",
                accept_unsupported: deployment.accept_unsupported,
            };
            content::check(&source, subject, facts, findings);
        }
        Spec::Approval(approval) => rights::approve(approval, facts, findings),
    }
}

/// Rejects the namespaces of the webhook as target, because Pods in these namespaces could read the
/// Secrets of the webhook.
fn target_namespace(
    spec: &CheckedDeploymentSpec,
    facts: &ReviewFacts<'_>,
    findings: &mut Findings,
) {
    let target = spec.target_namespace.as_deref();
    if let Err(why) = check_target(target, &facts.system_namespace, &facts.state_namespace) {
        findings.push(
            Finding::error(codes::review::RESERVED_NAMESPACE, why.to_string())
                .at_field("spec.targetNamespace")
                .hint("set another namespace for the content"),
        );
    }
    if spec.create_namespace && target.is_none() {
        findings.push(
            Finding::error(
                codes::review::NO_NAMESPACE_TO_CREATE,
                "createNamespace is true, but targetNamespace is not set",
            )
            .at_field("spec.createNamespace")
            .hint("set spec.targetNamespace as well (deploy --create-namespace -n NAMESPACE)"),
        );
    }
}

/// Returns `true` if a class of the object belongs to another provisioner, which reconciles the
/// object. The webhook adds no stamp to such an object.
fn belongs_to_other_provisioner(spec: &Spec, facts: &ReviewFacts<'_>) -> bool {
    let is_other_class = |name: &str| {
        let class = facts.classes.get(name);
        matches!(class, Some(ClassFact::Known(class)) if !class.is_ours())
    };
    match spec {
        Spec::Bundle(bundle) => is_other_class(&bundle.class),
        Spec::Deployment(deployment) => {
            is_other_class(&deployment.class) || is_other_class(&deployment.template.bundle.class)
        }
        Spec::Approval(_) => false,
    }
}

#[cfg(test)]
mod tests;
