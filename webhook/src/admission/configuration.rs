//! Reviews of ProvisionerClasses and SignaturePolicies: only those are let in that can be read, since one that cannot refuses what it is about.
//! Not here: reading them (bundle_core::review::class, bundle_core::policy).

use std::collections::{BTreeMap, BTreeSet};

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::names::KubeName;
use bundle_core::policy::{Named, Policy};
use bundle_core::review::{Class, Stamping, Verdict};
use bundle_trust::proof;
use jiff::Timestamp;
use serde_json::Value;

/// Whether the kind is one of these.
pub(super) fn is_known(kind: &str) -> bool {
    matches!(kind, "ProvisionerClass" | "SignaturePolicy")
}

/// Judges one. What is stored and being deleted or left as it is may stay as bad as it was.
pub(super) fn judge(
    kind: &str,
    name: &str,
    old: Option<&Value>,
    new: &Value,
    now: Timestamp,
) -> Verdict {
    let admit = |warnings| Verdict::Admit {
        warnings,
        stamp: Stamping::None,
    };
    let kept = old.is_some_and(|old| old["spec"] == new["spec"]);
    if kept || new["metadata"]["deletionTimestamp"].is_string() {
        return admit(Findings::default());
    }
    let problems = match kind {
        "SignaturePolicy" => policy_problems(name, &new["spec"], now),
        _ => Class::parse(name, &new["spec"]).err().unwrap_or_default(),
    };
    if problems.has_errors() {
        Verdict::Refuse(problems)
    } else {
        admit(problems)
    }
}

/// What keeps a policy from ever being ready. Keys in Secrets and trust roots in ConfigMaps are not looked at: they come and go, and the status tells.
fn policy_problems(name: &str, spec: &Value, now: Timestamp) -> Findings {
    let policy = Policy::read(name, spec);
    let later = Finding::warning(codes::trust::CANNOT_TELL, "it is read later");
    let unread = |names: BTreeSet<&KubeName>| -> BTreeMap<String, Named> {
        names
            .into_iter()
            .map(|name| (name.to_string(), Named::Unavailable(later.clone())))
            .collect()
    };
    let (secrets, roots) = (unread(policy.secrets()), unread(policy.config_maps()));
    let policy = policy.with_secrets(&secrets).with_config_maps(&roots);
    proof::ready(&policy, now).problems
}
