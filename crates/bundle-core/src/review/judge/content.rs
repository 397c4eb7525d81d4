//! Admission rules about content: allowed sources, signatures, ConfigMaps, Kubernetes versions.
//! This module calls the rules in `policy` and `version`.

use super::rights;
use crate::{
    diagnostic::{Finding, Findings, Outcome, Severity, codes},
    package,
    policy::{self, ClassSignatures, Mode, PolicyDecision},
    reference::Reference,
    review::{
        class::Class,
        facts::{
            AccessReviewResult, ClassFact, ConfigMapFact, ContentFact, ReviewFacts, Subject, needs,
        },
        source::{CheckedBundleSpec, Source},
    },
};

/// Source of content, with the classes that must allow the source.
pub(super) struct ContentCheck<'a> {
    /// Parsed spec of the Bundle.
    pub(super) bundle: &'a CheckedBundleSpec,
    /// Names of the classes of the object.
    pub(super) classes: &'a [&'a str],
    /// Path of the source.
    pub(super) field: &'a str,
    /// `true` if the spec accepts an unsupported server version.
    pub(super) accept_unsupported: bool,
}

pub(super) fn check(
    sourced: &ContentCheck<'_>,
    subject: &Subject<'_>,
    facts: &ReviewFacts<'_>,
    findings: &mut Findings,
) {
    let classes: Vec<&Class> = sourced
        .classes
        .iter()
        .filter_map(|name| match facts.classes.get(*name) {
            Some(ClassFact::Known(class)) if class.is_ours() => Some(class.as_ref()),
            _ => None,
        })
        .collect();
    let source = &sourced.bundle.source;
    findings.extend(
        classes
            .iter()
            .filter_map(|class| class.source_rejection(source, sourced.field)),
    );
    let is_insecure = source
        .host()
        .is_some_and(|host| classes.iter().any(|class| class.allows_insecure(host)));
    findings.extend(
        classes
            .iter()
            .filter_map(|class| class.insecure_image_rejection(source, is_insecure, sourced.field)),
    );
    if !needs::content_is_checked(subject) || is_of_other_class(sourced, facts) {
        return;
    }
    let required = classes
        .iter()
        .any(|class| class.signatures == ClassSignatures::Required);
    let signatures = if required {
        ClassSignatures::Required
    } else {
        ClassSignatures::IfPolicy
    };
    if let Some(name) = source.credentials() {
        let member = match source {
            Source::Image { .. } => "pullSecret",
            _ => "auth.secret",
        };
        let field = format!("{}.{}.{member}", sourced.field, source.kind());
        rights::read_secret(name, &field, facts, findings);
    }
    match source {
        // The requester can choose the registry. Without permission for the class or the source, no
        // request is sent to the registry.
        Source::Image { .. } if findings.has_errors() => {}
        Source::Image { reference, .. } => {
            image(sourced, reference, signatures, facts, findings);
        }
        other => {
            if let Source::ConfigMaps(files) = other {
                // The lookups end at the first denied ConfigMap.
                let is_denied =
                    |name: &str| facts.may_read.get(name) == Some(&AccessReviewResult::Denied);
                let denied = files.iter().position(|file| is_denied(&file.name));
                for (index, file) in files.iter().enumerate() {
                    if denied.is_some_and(|denied| denied != index) {
                        continue;
                    }
                    let place = format!("{}.configmaps[{index}]", sourced.field);
                    config_map(&place, &file.name, sourced, subject, facts, findings);
                }
            }
            conclude(
                policy::decide_unsignable(other.kind(), signatures),
                findings,
            );
        }
    }
}

fn is_of_other_class(sourced: &ContentCheck<'_>, facts: &ReviewFacts<'_>) -> bool {
    sourced.classes.iter().any(|name| {
        matches!(facts.classes.get(*name), Some(ClassFact::Known(class)) if !class.is_ours())
    })
}

fn config_map(
    place: &str,
    name: &str,
    sourced: &ContentCheck<'_>,
    subject: &Subject<'_>,
    facts: &ReviewFacts<'_>,
    findings: &mut Findings,
) {
    let field = format!("{}.configMaps", sourced.field);
    if facts.may_read.get(name) != Some(&AccessReviewResult::Allowed) {
        // A requester without permission to read the ConfigMap must not learn if the ConfigMap
        // exists.
        rights::read_config_map(name, &field, facts, findings);
        return;
    }
    match facts.config_maps.get(name) {
        Some(ConfigMapFact::Mutable) => findings.push(
            Finding::error(
                codes::review::CONFIGMAP_MUTABLE,
                format!(
                    "{}.{place}.configmap.name is invalid: configmap {name:?} is not immutable",
                    subject.kind.as_str().to_lowercase()
                ),
            )
            .at_field(field)
            .hint(format!(
                "kubectl patch configmap -n {} {name} -p '{{\"immutable\":true}}'",
                facts.system_namespace
            )),
        ),
        Some(ConfigMapFact::Unavailable(why)) => findings.push(why.clone().at_field(field)),
        None => findings.push(
            Finding::error(
                codes::review::RIGHTS_UNKNOWN,
                format!("ConfigMap {name:?} was not read"),
            )
            .at_field(field)
            .hint("try again"),
        ),
        // A missing ConfigMap can be created later.
        Some(ConfigMapFact::Missing | ConfigMapFact::Immutable) => {}
    }
}

fn image(
    sourced: &ContentCheck<'_>,
    reference: &Reference,
    signatures: ClassSignatures,
    facts: &ReviewFacts<'_>,
    findings: &mut Findings,
) {
    match &facts.content {
        ContentFact::Found {
            pinned,
            package,
            signatures: found,
        } => {
            let found = found.as_ref().map(Vec::as_slice);
            conclude(
                policy::decide(pinned, found, &facts.policies, signatures),
                findings,
            );
            match package {
                Ok(package) => {
                    kubernetes(package, sourced, facts, findings);
                    findings.extend(format(package, sourced, facts));
                }
                Err(why) => findings.push(why.clone().about(pinned.to_string())),
            }
        }
        ContentFact::Unavailable(why) => {
            report_unread(why, sourced, reference, signatures, facts, findings);
        }
        ContentFact::PoliciesUnknown(why) => findings.push(why.clone()),
        ContentFact::NotNeeded => {
            let why = Finding::error(
                codes::review::CONTENT_UNSEEN,
                "the registry was not queried",
            );
            report_unread(&why, sourced, reference, signatures, facts, findings);
        }
    }
}

/// Adds the finding for content that could not be fetched. The finding is an error if a signature
/// is required, and otherwise a warning.
fn report_unread(
    why: &Finding,
    sourced: &ContentCheck<'_>,
    reference: &Reference,
    signatures: ClassSignatures,
    facts: &ReviewFacts<'_>,
    findings: &mut Findings,
) {
    let demanding = facts
        .policies
        .iter()
        .find(|ready| ready.policy.mode() == Mode::Enforce && ready.policy.matches(reference));
    let field = format!("{}.image.ref", sourced.field);
    let because = match (demanding, signatures) {
        (Some(ready), _) => format!(
            "SignaturePolicy/{} requires a signature",
            ready.policy.name()
        ),
        (None, ClassSignatures::Required) => "the class requires a signature".to_owned(),
        (None, ClassSignatures::IfPolicy) => {
            let mut warning = Finding::warning(
                codes::review::CONTENT_UNSEEN,
                format!(
                    "cannot read {reference}, which is checked again before the installation: {why}"
                ),
            )
            .at_field(field);
            warning.hint.clone_from(&why.hint);
            findings.push(warning);
            return;
        }
    };
    // A missing image or a denied access is a definite result. A timeout is not a definite result.
    let code = if why.code.outcome == Outcome::Unknown {
        codes::review::CONTENT_UNSEEN
    } else {
        why.code
    };
    findings.push(
        Finding::error(
            code,
            format!("{because}, but {reference} cannot be read: {why}"),
        )
        .at_field(field)
        .hint(
            why.hint
                .clone()
                .unwrap_or_else(|| "retry; the result is not cached".to_owned()),
        ),
    );
}

fn conclude(decision: PolicyDecision, findings: &mut Findings) {
    match decision {
        PolicyDecision::Satisfied(satisfied) => findings.extend(satisfied.warnings),
        PolicyDecision::Refused(more) | PolicyDecision::Unknown(more) => {
            findings.extend(more);
        }
    }
}

/// Rejects content in a format that the class of its Bundle does not support. If the manifest does
/// not declare the format, the reconciler checks the format after unpacking.
fn format(
    package: &package::PackageDescription,
    sourced: &ContentCheck<'_>,
    facts: &ReviewFacts<'_>,
) -> Option<Finding> {
    let Some(ClassFact::Known(class)) = facts.classes.get(sourced.bundle.class.as_str()) else {
        return None;
    };
    let finding = class.reads(package.format?).err()?;
    let spec = sourced.field.trim_end_matches(".source");
    Some(finding.at_field(format!("{spec}.provisionerClassName")))
}

fn kubernetes(
    package: &package::PackageDescription,
    sourced: &ContentCheck<'_>,
    facts: &ReviewFacts<'_>,
    findings: &mut Findings,
) {
    let Some(server) = &facts.server else {
        if let Some(range) = &package.kubernetes {
            findings.push(Finding::warning(
                codes::review::SERVER_UNKNOWN,
                format!(
                    "{} supports Kubernetes {range}, but the version of the API server is unknown",
                    package.title()
                ),
            ));
        }
        return;
    };
    let Some(finding) = package.fits(server) else {
        return;
    };
    if sourced.accept_unsupported && finding.severity == Severity::Error {
        findings.push(
            Finding::warning(
                codes::review::KUBERNETES_ACCEPTED,
                format!(
                    "the value Accept allows an unsupported Kubernetes version: {}",
                    finding.message
                ),
            )
            .at_field("spec.kubernetes.unsupported"),
        );
    } else {
        findings.push(finding);
    }
}
