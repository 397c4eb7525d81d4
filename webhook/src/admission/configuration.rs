//! Reviews of ProvisionerClasses and SignaturePolicies: only those are let in that can be read, since one that cannot refuses what it is about.
//! Not here: reading them (bundle_core::review::class, bundle_core::policy).

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::policy::{Policy, SecretKey};
use bundle_core::review::{Class, Stamping, Verdict};
use bundle_trust::keys::PublicKey;
use serde_json::Value;

/// Whether the kind is one of these.
pub(super) fn is_known(kind: &str) -> bool {
    matches!(kind, "ProvisionerClass" | "SignaturePolicy")
}

/// Judges one. What is stored and being deleted or left as it is may stay as bad as it was.
pub(super) fn judge(kind: &str, name: &str, old: Option<&Value>, new: &Value) -> Verdict {
    let admit = |warnings| Verdict::Admit {
        warnings,
        stamp: Stamping::None,
    };
    let kept = old.is_some_and(|old| old["spec"] == new["spec"]);
    if kept || new["metadata"]["deletionTimestamp"].is_string() {
        return admit(Findings::default());
    }
    let problems = match kind {
        "SignaturePolicy" => policy_problems(name, &new["spec"]),
        _ => Class::parse(name, &new["spec"]).err().unwrap_or_default(),
    };
    if problems.has_errors() {
        Verdict::Refuse(problems)
    } else {
        admit(problems)
    }
}

/// What keeps a policy from ever being ready. Keys in Secrets are not looked at: they come and go, and the status tells.
fn policy_problems(name: &str, spec: &Value) -> Findings {
    let policy = Policy::read(name, spec);
    let later = Finding::warning(codes::trust::CANNOT_TELL, "the Secret is read later");
    let secrets = policy
        .secrets()
        .into_iter()
        .map(|name| (name.to_owned(), SecretKey::Unavailable(later.clone())))
        .collect();
    policy
        .with_secrets(&secrets)
        .ready(|pem| PublicKey::parse(pem).map(|key| key.id().clone()))
        .problems
}
