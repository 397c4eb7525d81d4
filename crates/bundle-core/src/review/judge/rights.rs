//! Admission rules about the requester: verbs `use`, `impersonate` and `approve`. The reconciler
//! checks permissions for the objects of the content.

use std::borrow::Cow;

use crate::diagnostic::{Code, Finding, Findings, codes};
use crate::review::{
    deployment::CheckedDeploymentSpec,
    facts::{
        AccessReviewResult, ClassFact, DeploymentFact, ReviewFacts, needs::CheckedApprovalSpec,
    },
    requester::Requester,
};

/// Checks that the class at `field` exists, and that the requester has verb `use` on the class.
pub(super) fn class(
    name: &str,
    field: &'static str,
    facts: &ReviewFacts<'_>,
    findings: &mut Findings,
) {
    match facts.classes.get(name) {
        Some(ClassFact::Known(class)) if !class.is_ours() => {
            // Verb `use` is not checked, because the other provisioner of this class has its own
            // rules.
            findings.push(
                Finding::warning(
                    codes::review::CLASS_FOREIGN,
                    format!("provisioner class {name:?} belongs to another provisioner, which reconciles this object"),
                )
                .at_field(field),
            );
            return;
        }
        Some(ClassFact::Known(_)) => {}
        Some(ClassFact::Unreadable(why)) => {
            findings.extend(why.iter().cloned());
        }
        Some(ClassFact::Unknown) => findings.push(
            Finding::warning(
                codes::review::CLASS_UNKNOWN,
                format!("provisioner class {name:?} does not exist: the object is not reconciled until the class exists"),
            )
            .at_field(field)
            .hint("`kubectl get provisionerclasses` lists the existing classes"),
        ),
        Some(ClassFact::Unavailable(why)) => findings.push(why.clone()),
        None => findings.push(
            unknown(
                codes::review::CLASSES_UNKNOWN,
                "the provisioner classes are not loaded yet",
            )
            .at_field(field),
        ),
    }
    ReviewedPermission {
        answer: facts.may_use.get(name),
        code: codes::review::USE_NOT_ALLOWED,
        act: format!("use provisioner class {name:?}"),
        right: Right::on_class("use", name),
        field,
    }
    .add_finding(facts, findings);
}

/// Checks the permission to impersonate the ServiceAccount of a BundleDeployment. `needs_check` is
/// `true` if the write changes the ServiceAccount, or changes content that is installed as this
/// ServiceAccount.
pub(super) fn check_impersonation(
    spec: &CheckedDeploymentSpec,
    needs_check: bool,
    facts: &ReviewFacts<'_>,
    findings: &mut Findings,
) {
    let field = "spec.serviceAccount";
    let Some(account) = &spec.service_account else {
        if let Some(ClassFact::Known(class)) = facts.classes.get(spec.class.as_str())
            && class.is_ours()
            && class.service_account.is_none()
        {
            findings.push(
                Finding::error(
                    codes::review::MISSING_FIELD,
                    format!("provisioner class {:?} has no ServiceAccount for the installation, so this field is required", spec.class),
                )
                .at_field(field),
            );
        }
        return;
    };
    if !needs_check {
        return;
    }
    ReviewedPermission {
        answer: facts.may_impersonate.as_ref(),
        code: codes::review::IMPERSONATE_NOT_ALLOWED,
        act: format!("install as ServiceAccount {}", account.path()),
        right: Right {
            verb: "impersonate",
            group: "",
            resource: "serviceaccounts",
            name: &account.name,
            namespace: Some(&account.namespace),
        },
        field,
    }
    .add_finding(facts, findings);
}

/// Checks that the BundleDeployment of an approval exists, and that the requester has verb
/// `approve` on its class.
pub(super) fn approve(
    spec: &CheckedApprovalSpec,
    facts: &ReviewFacts<'_>,
    findings: &mut Findings,
) {
    let field = "spec.bundleDeployment";
    let name = &spec.deployment;
    let gone = |message: String, hint: String| {
        Finding::error(codes::review::APPROVAL_TARGET, message)
            .at_field(field)
            .hint(hint)
    };
    let class = match &facts.deployment {
        Some(DeploymentFact::Found {
            uid,
            class,
            generation,
            has_default_terms,
            ..
        }) if *uid == spec.uid => {
            let unread = unread_generation(spec, *generation, *has_default_terms);
            findings.extend(unread);
            class
        }
        Some(DeploymentFact::Found { uid, .. }) => {
            findings.push(gone(
                format!(
                    "BundleDeployment {name} has uid {uid}, not {}: it was deleted and created again",
                    spec.uid
                ),
                format!(
                    "review `kubectl get bundledeployment {} -o yaml`, and set {field}.uid to its metadata.uid if you approve its spec",
                    quoted(name)
                ),
            ));
            return;
        }
        Some(DeploymentFact::Missing) => {
            findings.push(gone(
                format!("BundleDeployment {name} does not exist"),
                "`kubectl get bundledeployments` lists the existing BundleDeployments".to_owned(),
            ));
            return;
        }
        Some(DeploymentFact::Unavailable(why)) => {
            findings.push(why.clone().at_field(field));
            return;
        }
        None => {
            findings.push(
                unknown(
                    codes::review::RIGHTS_UNKNOWN,
                    "the BundleDeployment was not read",
                )
                .at_field(field),
            );
            return;
        }
    };
    ReviewedPermission {
        answer: facts.may_approve.as_ref(),
        code: codes::review::APPROVE_NOT_ALLOWED,
        act: format!("approve content for provisioner class {class:?}"),
        right: Right::on_class("approve", class),
        field,
    }
    .add_finding(facts, findings);
}

/// Returns the reason to reject an approval whose generation is not the current generation, or that
/// names no generation although one is required. The author of such an approval has not read the
/// current settings.
fn unread_generation(
    spec: &CheckedApprovalSpec,
    present: i64,
    has_default_terms: bool,
) -> Option<Finding> {
    let name = &spec.deployment;
    let message = match spec.generation {
        Some(generation) if generation == present => return None,
        None if has_default_terms => return None,
        Some(generation) => format!(
            "BundleDeployment {name} has generation {present}, not {generation}: its spec has changed"
        ),
        None => format!(
            "BundleDeployment {name} has settings in addition to class and template, so the approval must name the generation of the BundleDeployment"
        ),
    };
    let finding = Finding::error(codes::review::APPROVAL_GENERATION, message);
    Some(finding.at_field("spec.bundleDeployment.generation").hint(format!(
        "review `kubectl get bundledeployment {} -o yaml`, and set spec.bundleDeployment.generation to its metadata.generation if you approve its spec",
        quoted(name)
    )))
}

/// Checks the permission to read a ConfigMap of the system namespace, because the content shows the
/// data of the ConfigMap to the requester.
pub(super) fn read_config_map(
    name: &str,
    field: &str,
    facts: &ReviewFacts<'_>,
    findings: &mut Findings,
) {
    ReviewedPermission {
        answer: facts.may_read.get(name),
        code: codes::review::CONFIGMAP_NOT_ALLOWED,
        act: format!("read ConfigMap {name:?}"),
        right: Right {
            verb: "get",
            group: "",
            resource: "configmaps",
            name,
            namespace: Some(&facts.system_namespace),
        },
        field,
    }
    .add_finding(facts, findings);
}

/// Checks the permission to read a Secret of the system namespace. The pod uses the credentials in
/// the Secret for the requester. The host of a git or http source receives these credentials, and a
/// pull secret gives access to images.
pub(super) fn read_secret(
    name: &str,
    field: &str,
    facts: &ReviewFacts<'_>,
    findings: &mut Findings,
) {
    ReviewedPermission {
        answer: facts.may_read_secret.as_ref(),
        code: codes::review::SECRET_NOT_ALLOWED,
        act: format!("read Secret {name:?}"),
        right: Right {
            verb: "get",
            group: "",
            resource: "secrets",
            name,
            namespace: Some(&facts.system_namespace),
        },
        field,
    }
    .add_finding(facts, findings);
}

/// Access review with its result and the texts for its rejection.
struct ReviewedPermission<'a> {
    /// Result of the access review; `None` if there was no access review.
    answer: Option<&'a AccessReviewResult>,
    /// Diagnostic code of the rejection.
    code: Code,
    /// Text after "has no permission to" in the message.
    act: String,
    /// Required permission.
    right: Right<'a>,
    /// Path of the field that requires the permission.
    field: &'a str,
}

impl ReviewedPermission<'_> {
    /// Adds a finding unless the access review allowed the request.
    fn add_finding(self, facts: &ReviewFacts<'_>, findings: &mut Findings) {
        let finding = match self.answer {
            Some(AccessReviewResult::Allowed) => return,
            Some(AccessReviewResult::Denied) => {
                not_allowed(self.code, facts, &self.act, &self.right)
            }
            Some(AccessReviewResult::Unavailable(why)) => why.clone(),
            None => unknown(
                codes::review::RIGHTS_UNKNOWN,
                &format!(
                    "it is unknown if {} has permission to {}",
                    requester_name(&facts.requester),
                    self.act
                ),
            ),
        };
        findings.push(finding.at_field(self.field));
    }
}

fn unknown(code: Code, message: &str) -> Finding {
    Finding::error(code, message).hint("try again")
}

/// RBAC permission.
struct Right<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    name: &'a str,
    /// Namespace of the object; `None` if the object is cluster-scoped. For a cluster-scoped
    /// object, a RoleBinding in the namespace of the pod is sufficient.
    namespace: Option<&'a str>,
}

impl<'a> Right<'a> {
    fn on_class(verb: &'a str, name: &'a str) -> Self {
        Self {
            verb,
            group: "core.rukpak.io",
            resource: "provisionerclasses",
            name,
            namespace: None,
        }
    }
}

fn requester_name(requester: &Requester) -> String {
    match requester.service_account() {
        Some((namespace, name)) => format!("ServiceAccount {namespace}/{name}"),
        None => format!("user {:?}", requester.user),
    }
}

fn not_allowed(code: Code, facts: &ReviewFacts<'_>, what: &str, right: &Right<'_>) -> Finding {
    let Right {
        verb,
        resource,
        name,
        namespace,
        ..
    } = right;
    let place = namespace.map_or_else(String::new, |namespace| {
        format!(" in namespace {namespace}")
    });
    Finding::error(
        code,
        format!(
            "{} has no permission to {what}: verb {verb} on {resource}/{name}{place} is required",
            requester_name(&facts.requester)
        ),
    )
    .hint(grant(facts, right))
}

/// Returns the Role rule and the binding that grant only this permission. The result is not a
/// command, because `kubectl create role` rejects custom verbs.
fn grant(facts: &ReviewFacts<'_>, right: &Right<'_>) -> String {
    let Right {
        verb,
        group,
        resource,
        name,
        namespace,
    } = right;
    format!(
        "ask an administrator for a Role and RoleBinding in namespace {} with verb {verb}, apiGroup {group:?}, resource {resource} and resourceName {name:?}",
        namespace.unwrap_or(&facts.system_namespace)
    )
}

/// Quotes a text for a shell. NUL characters, which a shell cannot represent, are removed.
fn quoted(text: &str) -> String {
    let text = text.replace('\0', "");
    shlex::try_quote(&text)
        .map(Cow::into_owned)
        .unwrap_or_default()
}
