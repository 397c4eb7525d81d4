//! Checks of the pods and of the endpoints of the Service.

use super::{CheckResult, Observed};
use crate::diagnostic::{Finding, codes};

/// State of the Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    /// Number of pods in the spec of the Deployment.
    pub desired: i32,
    /// Number of ready pods of the current version.
    pub ready: i32,
    /// Reason why a pod is not ready; `None` if the status of the pod contains no reason.
    pub reason: Option<String>,
}

/// Checks that all pods of the Deployment are ready.
pub fn pods(deployment: &str, found: Observed<Workload>) -> CheckResult {
    const CHECK: &str = "pods";
    let code = codes::doctor::NOT_READY;
    let missing = || {
        Finding::error(code, "it does not exist")
            .about(deployment)
            .hint("install bundle-webhook, or set its namespace with --system-namespace")
    };
    let workload = match found.found_or(CHECK, deployment, missing) {
        Ok(workload) => workload,
        Err(result) => return result,
    };
    let Workload {
        desired,
        ready,
        reason,
    } = workload;
    let mut message = format!("{ready} of {desired} pods are ready");
    if desired > 0 && ready >= desired {
        return CheckResult::ok(CHECK, deployment, message);
    }
    if let Some(reason) = reason {
        message = format!("{message}; {reason}");
    }
    let finding = if ready > 0 {
        Finding::warning(code, message)
    } else {
        Finding::error(code, message)
    };
    let hint = if desired == 0 {
        "scale it up: kubectl scale deployment bundle-webhook --replicas=2"
    } else {
        "look at its pods: kubectl describe pods -l app.kubernetes.io/name=bundle-webhook"
    };
    CheckResult::of(CHECK, finding.about(deployment).hint(hint))
}

/// Checks that the Service has a ready endpoint. `is_unused` is `true` if the registrations name a
/// URL instead of the Service.
pub fn endpoints(service: &str, ready: Observed<usize>, is_unused: bool) -> CheckResult {
    const CHECK: &str = "endpoints";
    if is_unused {
        let message = "not used: the registrations name a url";
        return CheckResult::ok(CHECK, service, message);
    }
    let problem = || {
        Finding::error(codes::doctor::NOT_READY, "it has no ready endpoint")
            .about(service)
            .hint("the selector of the Service must match ready pods; see the result of the check `pods`")
    };
    match ready.found_or(CHECK, service, problem) {
        Ok(0) => CheckResult::of(CHECK, problem()),
        Ok(count) => CheckResult::ok(CHECK, service, format!("{count} ready endpoints")),
        Err(result) => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckState::{Ok as Passed, Problem, Unknown, Warning};

    #[test]
    fn pods_that_are_not_ready_are_counted_with_a_reason() {
        let with = |desired, ready, reason: Option<&str>| {
            Observed::Found(Workload {
                desired,
                ready,
                reason: reason.map(str::to_owned),
            })
        };
        for (found, state, part) in [
            (with(2, 2, None), Passed, "2 of 2 pods are ready"),
            (with(2, 3, None), Passed, "3 of 2"),
            (with(2, 1, None), Warning, "1 of 2"),
            (
                with(2, 0, Some("pod a: ImagePullBackOff")),
                Problem,
                "0 of 2 pods are ready; pod a: ImagePullBackOff",
            ),
            (with(0, 0, None), Problem, "0 of 0"),
            (Observed::Missing, Problem, "does not exist"),
            (Observed::Forbidden("no".to_owned()), Unknown, "no"),
        ] {
            let result = pods("deployment d", found);
            assert_eq!(result.state, state, "{result:?}");
            assert!(result.message.contains(part), "{result:?}");
        }
    }

    #[test]
    fn service_needs_a_ready_endpoint_unless_a_url_is_called() {
        for (ready, is_unused, state) in [
            (Observed::Found(2), false, Passed),
            (Observed::Found(0), false, Problem),
            (Observed::Missing, false, Problem),
            (Observed::Found(0), true, Passed),
            (Observed::Forbidden("no".to_owned()), false, Unknown),
        ] {
            let result = endpoints("service s", ready, is_unused);
            assert_eq!(result.state, state, "{result:?}");
        }
    }
}
