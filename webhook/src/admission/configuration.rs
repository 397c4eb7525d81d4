//! Reviews of ProvisionerClasses and SignaturePolicies. Only valid objects are admitted, because an
//! invalid class or policy blocks every object that uses it. `bundle_core::review::class` parses
//! classes, and `bundle_core::policy` parses policies.

use std::collections::{BTreeMap, BTreeSet};

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::names::KubeName;
use bundle_core::policy::{Policy, ReferencedText};
use bundle_core::review::{Class, StampChange, Verdict};
use bundle_trust::proof;
use jiff::Timestamp;
use serde_json::Value;

/// Returns true for the kinds that this module reviews.
pub(super) fn is_known(kind: &str) -> bool {
    matches!(kind, "ProvisionerClass" | "SignaturePolicy")
}

/// Returns the verdict on a write of one object. An object that is being deleted, and a write that
/// does not change the spec, are admitted even if the spec is invalid.
pub(super) fn judge(
    kind: &str,
    name: &str,
    old: Option<&Value>,
    new: &Value,
    now: Timestamp,
) -> Verdict {
    let admit = |warnings| Verdict::Admit {
        warnings,
        stamp: StampChange::None,
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

/// Returns the problems that prevent a policy from ever being ready. Secrets with keys and
/// ConfigMaps with trust roots are not read, because their data can change later. The status of the
/// policy reports problems of these Secrets and ConfigMaps.
fn policy_problems(name: &str, spec: &Value, now: Timestamp) -> Findings {
    let policy = Policy::read(name, spec);
    let later = Finding::warning(
        codes::trust::CANNOT_TELL,
        "it is read when the policy is used",
    );
    let unread = |names: BTreeSet<&KubeName>| -> BTreeMap<String, ReferencedText> {
        names
            .into_iter()
            .map(|name| (name.to_string(), ReferencedText::Unavailable(later.clone())))
            .collect()
    };
    let (secrets, roots) = (unread(policy.secrets()), unread(policy.config_maps()));
    let policy = policy.with_secrets(&secrets).with_config_maps(&roots);
    proof::ready_policy(&policy, now).problems
}
