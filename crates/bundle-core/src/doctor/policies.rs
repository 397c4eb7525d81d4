//! Checks of SignaturePolicies and their trust roots.

use super::{CheckResult, Observed};
use crate::diagnostic::{Finding, codes};

const CHECK: &str = "policies";
/// The check warns if the remaining validity of a trust root is shorter than this time, in seconds.
const SOON: i64 = 30 * 24 * 3600;

/// A SignaturePolicy: its condition Ready, which bundle-webhook writes, and the trust roots that
/// the caller can read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedPolicy {
    /// Name of the SignaturePolicy.
    pub name: String,
    /// Status and message of the condition Ready, for the current generation of the policy; `None`
    /// if bundle-webhook has not written the condition.
    pub ready: Option<(bool, String)>,
    /// Trust roots in ConfigMaps that the policy names.
    pub roots: Vec<ObservedRoot>,
}

/// A trust root that a SignaturePolicy names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedRoot {
    /// Name of the ConfigMap with the trust root.
    pub config_map: String,
    /// End of the validity of the trust root in Unix seconds; `None` if the validity does not end;
    /// `Err` with the reason if the trust root cannot be used.
    pub state: Observed<Result<Option<i64>, Finding>>,
}

/// Checks the policies. Returns one result for all usable policies, and one result for each
/// unusable policy.
pub fn policies(
    observed: Observed<Vec<ObservedPolicy>>,
    now: i64,
    date: impl Fn(i64) -> String,
) -> Vec<CheckResult> {
    const SUBJECT: &str = "signaturepolicies";
    let policies = match observed {
        Observed::Found(policies) => policies,
        Observed::Missing => {
            let message = "the API server does not serve SignaturePolicies";
            return vec![CheckResult::skipped(CHECK, SUBJECT, message)];
        }
        Observed::Forbidden(message) => {
            return vec![CheckResult::forbidden(CHECK, SUBJECT, message)];
        }
        Observed::Failed(message) => {
            return vec![CheckResult::no_response(CHECK, SUBJECT, message)];
        }
    };
    let count = policies.len();
    let mut results: Vec<CheckResult> = policies
        .into_iter()
        .flat_map(|policy| one(policy, now, &date))
        .collect();
    if results.is_empty() {
        let message = match count {
            0 => "no SignaturePolicy exists".to_owned(),
            count => format!("usable policies: {count}"),
        };
        results.push(CheckResult::ok(CHECK, SUBJECT, message));
    }
    results
}

/// Returns the results for a policy with a problem or a warning.
fn one(policy: ObservedPolicy, now: i64, date: &impl Fn(i64) -> String) -> Vec<CheckResult> {
    let code = codes::doctor::POLICY_UNUSABLE;
    let subject = format!("signaturepolicy {}", policy.name);
    let correct = "correct the policy, or the Secret or ConfigMap that it names; until then the policy rejects every reference that it matches";
    let of = |finding: Finding, hint: &str| {
        CheckResult::of(CHECK, finding.about(subject.as_str()).hint(hint))
    };
    match policy.ready {
        Some((true, _)) => {}
        Some((false, message)) => return vec![of(Finding::error(code, message), correct)],
        None => {
            let message = "bundle-webhook has not read the current spec of the policy";
            let hint = "wait a few seconds; if this warning stays, see the result of the check \
             `pods`";
            return vec![of(Finding::warning(code, message), hint)];
        }
    }
    let roots = policy.roots.into_iter().filter_map(|root| {
        let name = format!("trust root in ConfigMap {}", root.config_map);
        match root.state {
            Observed::Found(Ok(until)) => {
                let end = until.filter(|end| end.saturating_sub(now) < SOON)?;
                let message = format!("{name} expires on {}", date(end));
                let hint =
                    "get a current trusted_root.json from the operator of the Sigstore instance";
                Some(of(Finding::warning(code, message), hint))
            }
            Observed::Found(Err(finding)) => {
                let message = format!("{name}: {}", finding.message);
                Some(of(Finding::error(code, message), correct))
            }
            Observed::Missing => {
                let message = format!("{name}: it does not exist");
                Some(of(Finding::error(code, message), correct))
            }
            // The condition Ready of the policy already reports whether bundle-webhook can read the
            // ConfigMap.
            Observed::Forbidden(_) => None,
            Observed::Failed(message) => {
                let message = format!("{name}: {message}");
                Some(CheckResult::no_response(CHECK, subject.as_str(), message))
            }
        }
    });
    roots.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckState::{Ok as Passed, Problem, Unknown, Warning};

    const NOW: i64 = 1_000_000_000;

    fn checked(observed: Observed<Vec<ObservedPolicy>>) -> CheckResult {
        let mut results = policies(observed, NOW, |time| (time - NOW).to_string());
        assert_eq!(results.len(), 1, "{results:?}");
        results.remove(0)
    }

    fn policy(
        ready: Option<bool>,
        root: Option<Observed<Result<Option<i64>, Finding>>>,
    ) -> CheckResult {
        let root = root.map(|state| ObservedRoot {
            config_map: "root".to_owned(),
            state,
        });
        checked(Observed::Found(vec![ObservedPolicy {
            name: "p".to_owned(),
            ready: ready.map(|ready| (ready, "the key is invalid".to_owned())),
            roots: root.into_iter().collect(),
        }]))
    }

    #[test]
    fn unusable_policies_and_roots_are_named() {
        let expired = Finding::error(codes::trust::ROOT_EXPIRED, "it has expired");
        let found = |end| Some(Observed::Found(Ok(end)));
        for (result, state, part) in [
            (policy(Some(true), None), Passed, "usable policies: 1"),
            (policy(Some(true), found(None)), Passed, "usable"),
            (
                policy(Some(true), found(Some(NOW + 2 * SOON))),
                Passed,
                "usable",
            ),
            (
                policy(Some(true), Some(Observed::Forbidden("no".into()))),
                Passed,
                "usable",
            ),
            (
                policy(Some(true), found(Some(NOW + 5))),
                Warning,
                "ConfigMap root expires on 5",
            ),
            (
                policy(Some(true), Some(Observed::Found(Err(expired)))),
                Problem,
                "it has expired",
            ),
            (
                policy(Some(true), Some(Observed::Missing)),
                Problem,
                "it does not exist",
            ),
            (
                policy(Some(true), Some(Observed::Failed("late".into()))),
                Unknown,
                "late",
            ),
            (policy(Some(false), None), Problem, "the key is invalid"),
            (policy(None, None), Warning, "not read the current spec"),
            (
                checked(Observed::Found(vec![])),
                Passed,
                "no SignaturePolicy exists",
            ),
            (checked(Observed::Forbidden("no".into())), Unknown, "no"),
            (checked(Observed::Missing), Unknown, "does not serve"),
        ] {
            assert_eq!(result.state, state, "{result:?}");
            assert!(result.message.contains(part), "{result:?}");
        }
    }
}
