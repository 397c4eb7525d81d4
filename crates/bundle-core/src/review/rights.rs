//! The rules about people: who may use a class, act as a ServiceAccount, approve.
//! Not here: whether the requester may write the objects of the content (rights, asked by the reconciler).

use super::{
    deployment::CheckedDeploymentSpec,
    facts::{Answer, ClassFact, DeploymentFact, Facts},
    needs::CheckedApprovalSpec,
    stamp::Requester,
};
use crate::diagnostic::{Code, Finding, Findings, codes};

/// A class that a spec names at `field`: there must be one, and the requester must be allowed to use it.
pub(super) fn class(name: &str, field: &str, facts: &Facts<'_>, findings: &mut Findings) {
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
    match facts.may_use.get(name) {
        Some(Answer::Yes) => {}
        Some(Answer::No) => findings.push(not_allowed(
            codes::review::USE_NOT_ALLOWED,
            facts,
            &format!("use provisioner class {name:?}"),
            &Right::on_class("use", name),
            field,
        )),
        Some(Answer::Unavailable(why)) => findings.push(why.clone().at_field(field)),
        None => findings.push(
            unknown(
                codes::review::RIGHTS_UNKNOWN,
                &format!(
                    "it was not asked whether {} may use provisioner class {name:?}",
                    who(&facts.requester)
                ),
            )
            .at_field(field),
        ),
    }
}

/// The ServiceAccount that a BundleDeployment wants to be installed as.
pub(super) fn act_as(spec: &CheckedDeploymentSpec, facts: &Facts<'_>, findings: &mut Findings) {
    let field = "spec.serviceAccount";
    let Some(account) = &spec.service_account else {
        if let Some(ClassFact::Known(class)) = facts.classes.get(&spec.class)
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
    match &facts.may_impersonate {
        Some(Answer::Yes) => {}
        Some(Answer::No) => findings.push(not_allowed(
            codes::review::IMPERSONATE_NOT_ALLOWED,
            facts,
            &format!("install as ServiceAccount {account}"),
            &Right {
                verb: "impersonate",
                group: "",
                resource: "serviceaccounts",
                name: &account.name,
                namespace: Some(&account.namespace),
            },
            field,
        )),
        Some(Answer::Unavailable(why)) => findings.push(why.clone().at_field(field)),
        None => findings.push(
            unknown(
                codes::review::RIGHTS_UNKNOWN,
                &format!(
                    "it was not asked whether {} may act as ServiceAccount {account}",
                    who(&facts.requester)
                ),
            )
            .at_field(field),
        ),
    }
}

/// The BundleDeployment of an approval must be that one, and the requester must be allowed to approve for its class.
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
        Some(DeploymentFact::Found { uid, class }) if *uid == spec.uid => class,
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
    match &facts.may_approve {
        Some(Answer::Yes) => {}
        Some(Answer::No) => findings.push(not_allowed(
            codes::review::APPROVE_NOT_ALLOWED,
            facts,
            &format!("approve content for provisioner class {class:?}"),
            &Right::on_class("approve", class),
            field,
        )),
        Some(Answer::Unavailable(why)) => findings.push(why.clone().at_field(field)),
        None => findings.push(
            unknown(
                codes::review::RIGHTS_UNKNOWN,
                &format!(
                    "it was not asked whether {} may approve for provisioner class {class:?}",
                    who(&facts.requester)
                ),
            )
            .at_field(field),
        ),
    }
}

fn unknown(code: Code, message: &str) -> Finding {
    Finding::error(code, message).hint("try again")
}

/// One right, as RBAC has it.
struct Right<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    name: &'a str,
    /// `None`: the object is cluster-scoped, and a binding in the namespace of the pod will do.
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

fn not_allowed(
    code: Code,
    facts: &Facts<'_>,
    what: &str,
    right: &Right<'_>,
    field: &str,
) -> Finding {
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
    .at_field(field)
    .hint(format!(
        "an administrator can allow it: {}",
        grant(facts, right)
    ))
}

/// One command that gives the right and nothing more. `kubectl create role` knows no verbs of its own making, so it is a manifest.
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

/// For a shell.
fn quoted(text: &str) -> String {
    let plain = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@' | '/'));
    if plain && !text.is_empty() {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
