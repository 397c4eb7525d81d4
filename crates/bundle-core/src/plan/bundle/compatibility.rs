//! Condition `Compatible`: true if the content supports the Kubernetes version of the server.

use crate::diagnostic::{Finding, Severity};
use crate::package::Package;
use crate::plan::conditions::ConditionStatus;
use crate::version::{ServerVersion, fits_named};

/// The condition `Compatible`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compatibility {
    /// Status of the condition.
    pub state: ConditionStatus,
    /// Reason of the condition.
    pub reason: &'static str,
    /// Message of the condition.
    pub message: String,
}

/// Returns the condition for content of `package`; `None` if the content requires a version range
/// and the server version is unknown.
pub fn compatibility(
    package: Option<&Package>,
    server: Option<&ServerVersion>,
) -> Option<Compatibility> {
    let range = package.and_then(|package| Some((package, package.kubernetes.as_ref()?)));
    let Some((package, kubernetes)) = range else {
        return Some(Compatibility {
            state: ConditionStatus::True,
            reason: "NoRange",
            message: "the content states no range of Kubernetes versions".to_owned(),
        });
    };
    let server = server?;
    let name = format!("bundle {} {}", package.name, package.version);
    let (state, reason, message) = match fits_named(&name, kubernetes, server) {
        None => (
            ConditionStatus::True,
            "Supported",
            format!("Kubernetes {server} is supported"),
        ),
        Some(finding) if finding.severity == Severity::Warning => {
            (ConditionStatus::True, "UnsupportedWarned", line(&finding))
        }
        Some(finding) => (ConditionStatus::False, "Unsupported", line(&finding)),
    };
    Some(Compatibility {
        state,
        reason,
        message,
    })
}

/// Returns the finding with its hint, in one line.
fn line(finding: &Finding) -> String {
    match &finding.hint {
        Some(hint) => format!("{finding} ({hint})"),
        None => finding.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(kubernetes: &str) -> Package {
        let text = format!(
            "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\n{kubernetes}"
        );
        crate::package::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn compatibility_depends_on_range_and_server_version() {
        let without = package("");
        let strict = package("kubernetes:\n  supported: '>=1.30'\n");
        let lenient = package("kubernetes:\n  supported: '>=1.30'\n  unsupported: Warn\n");
        let (new, old) = ("v1.33.1", "v1.28.0");
        for (package, server, expected) in [
            (None, None, Some((ConditionStatus::True, "NoRange"))),
            (None, Some(old), Some((ConditionStatus::True, "NoRange"))),
            (
                Some(&without),
                None,
                Some((ConditionStatus::True, "NoRange")),
            ),
            (Some(&strict), None, None),
            (
                Some(&strict),
                Some(new),
                Some((ConditionStatus::True, "Supported")),
            ),
            (
                Some(&strict),
                Some(old),
                Some((ConditionStatus::False, "Unsupported")),
            ),
            (
                Some(&lenient),
                Some(old),
                Some((ConditionStatus::True, "UnsupportedWarned")),
            ),
        ] {
            let server = server.map(|text| ServerVersion::parse(text).unwrap());
            let found = compatibility(package, server.as_ref());
            let found = found.map(|found| (found.state, found.reason));
            assert_eq!(found, expected, "{package:?} {server:?}");
        }
    }
}
