//! Admission rules about the requester: verbs `use`, `impersonate` and `approve`. The reconciler
//! checks permissions for the objects of the content.

use std::borrow::Cow;

use super::{
    deployment::CheckedDeploymentSpec,
    facts::{Answer, ClassFact, DeploymentFact, Facts},
    needs::CheckedApprovalSpec,
    requester::Requester,
};
use crate::diagnostic::{Code, Finding, Findings, codes};

/// A class that a spec names at `field`: there must be one, and the requester must be allowed to
/// use it.
pub(super) fn class(name: &str, field: &'static str, facts: &Facts<'_>, findings: &mut Findings) {
    match facts.classes.get(name) {
        Some(ClassFact::Known(class)) if !class.is_ours() => {
            // That provisioner has its own rules.
            findings.push(
                Finding::warning(
                    codes::review::CLASS_FOREIGN,
                    format!("provisioner class {name:?} is of another provisioner, so this object is left to that one"),
                )
                .at_field(field),
            );
            return;
        }
        Some(ClassFact::Known(_)) => {}
        Some(ClassFact::Unreadable(why)) => {
            findings.0.extend(why.0.iter().cloned());
        }
        Some(ClassFact::Unknown) => findings.push(
            Finding::warning(
                codes::review::CLASS_UNKNOWN,
                format!("there is no provisioner class {name:?}: nothing happens until there is"),
            )
            .at_field(field)
            .hint("`kubectl get provisionerclasses` lists those that there are"),
        ),
        Some(ClassFact::Unavailable(why)) => findings.push(why.clone()),
        None => findings.push(
            unknown(
                codes::review::CLASSES_UNKNOWN,
                "it was not asked what provisioner classes there are",
            )
            .at_field(field),
        ),
    }
    Question {
        answer: facts.may_use.get(name),
        code: codes::review::USE_NOT_ALLOWED,
        act: format!("use provisioner class {name:?}"),
        right: Right::on_class("use", name),
        field,
    }
    .put(facts, findings);
}

/// Checks the permission for the ServiceAccount of a BundleDeployment. `asks` is `true` if the
/// write changes content that is installed as it, or the ServiceAccount itself.
pub(super) fn act_as(
    spec: &CheckedDeploymentSpec,
    asks: bool,
    facts: &Facts<'_>,
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
                    format!("provisioner class {:?} names no ServiceAccount to install as, so this field is required", spec.class),
                )
                .at_field(field),
            );
        }
        return;
    };
    if !asks {
        return;
    }
    Question {
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
    .put(facts, findings);
}

/// The BundleDeployment of an approval must be that one, and the requester must be allowed to
/// approve for its class.
pub(super) fn approve(spec: &CheckedApprovalSpec, facts: &Facts<'_>, findings: &mut Findings) {
    let field = "spec.bundleDeployment";
    let name = &spec.deployment;
    let gone = |message: String| {
        Finding::error(codes::review::APPROVAL_TARGET, message)
            .at_field(field)
            .hint(format!(
                "look at the one that there is now: kubectl get bundledeployment {} -o yaml",
                quoted(name)
            ))
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
            findings.0.extend(unread);
            class
        }
        Some(DeploymentFact::Found { uid, .. }) => {
            findings.push(gone(format!(
                "BundleDeployment {name} has uid {uid} and not {}: it was created again since",
                spec.uid
            )));
            return;
        }
        Some(DeploymentFact::Missing) => {
            findings.push(gone(format!("there is no BundleDeployment {name}")));
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
                    "the BundleDeployment was not looked up",
                )
                .at_field(field),
            );
            return;
        }
    };
    Question {
        answer: facts.may_approve.as_ref(),
        code: codes::review::APPROVE_NOT_ALLOWED,
        act: format!("approve content for provisioner class {class:?}"),
        right: Right::on_class("approve", class),
        field,
    }
    .put(facts, findings);
}

/// Returns the reason against an approval of another generation of the BundleDeployment than the
/// present one: its author has read other settings, or none.
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
            "BundleDeployment {name} has generation {present} and not {generation}: its spec was changed since it was read"
        ),
        None => format!(
            "BundleDeployment {name} has settings beside class and template, and the approval does not name the generation that was read"
        ),
    };
    let finding = Finding::error(codes::review::APPROVAL_GENERATION, message);
    Some(finding.at_field("spec.bundleDeployment.generation").hint(format!(
        "read `kubectl get bundledeployment {} -o yaml`, and set the field to its metadata.generation if you approve its spec",
        quoted(name)
    )))
}

/// A ConfigMap of the system namespace that a source names: its data reaches the requester through
/// the content.
pub(super) fn read_config_map(name: &str, field: &str, facts: &Facts<'_>, findings: &mut Findings) {
    Question {
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
    .put(facts, findings);
}

/// Access review with its result and the texts for its rejection.
struct Question<'a> {
    /// Result of the access review; `None` if there was none.
    answer: Option<&'a Answer>,
    /// Diagnostic code of the rejection.
    code: Code,
    /// Text after "may" in the message.
    act: String,
    /// Required permission.
    right: Right<'a>,
    /// Path of the field that requires the permission.
    field: &'a str,
}

impl Question<'_> {
    /// Adds a finding unless the access review allowed the request.
    fn put(self, facts: &Facts<'_>, findings: &mut Findings) {
        let finding = match self.answer {
            Some(Answer::Yes) => return,
            Some(Answer::No) => not_allowed(self.code, facts, &self.act, &self.right),
            Some(Answer::Unavailable(why)) => why.clone(),
            None => unknown(
                codes::review::RIGHTS_UNKNOWN,
                &format!(
                    "it was not asked whether {} may {}",
                    who(&facts.requester),
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
    /// Namespace; `None` if the object is cluster-scoped, for which a binding in the namespace of
    /// the pod is sufficient.
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

fn who(requester: &Requester) -> String {
    match requester.service_account() {
        Some((namespace, name)) => format!("ServiceAccount {namespace}/{name}"),
        None => format!("user {:?}", requester.user),
    }
}

fn not_allowed(code: Code, facts: &Facts<'_>, what: &str, right: &Right<'_>) -> Finding {
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
            "{} may not {what}: it needs verb {verb} on {resource}/{name}{place}",
            who(&facts.requester)
        ),
    )
    .hint(format!(
        "an administrator can allow it: {}",
        grant(facts, right)
    ))
}

/// Returns one command that grants only this permission. It applies a manifest, because
/// `kubectl create role` rejects custom verbs.
fn grant(facts: &Facts<'_>, right: &Right<'_>) -> String {
    let namespace = right.namespace.unwrap_or(&facts.system_namespace);
    let role = format!("{}-{}", right.verb, right.name);
    let manifest = serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": role, "namespace": namespace},
        "rules": [{"apiGroups": [right.group], "resources": [right.resource], "resourceNames": [right.name], "verbs": [right.verb]}],
    });
    let subject = match facts.requester.service_account() {
        Some((namespace, name)) => format!("--serviceaccount={namespace}:{name}"),
        None => format!("--user={}", quoted(&facts.requester.user)),
    };
    let short: String = facts
        .requester
        .user
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    format!(
        "echo {} | kubectl apply -f - && kubectl create rolebinding -n {} {} --role={} {subject}",
        quoted(&manifest.to_string()),
        quoted(namespace),
        quoted(&format!("{role}-{}", short.trim_matches('-'))),
        quoted(&role)
    )
}

/// Quotes a text for a shell. NUL characters, which a shell cannot represent, are removed.
fn quoted(text: &str) -> String {
    let text = text.replace('\0', "");
    shlex::try_quote(&text)
        .map(Cow::into_owned)
        .unwrap_or_default()
}
