//! Rule for lower versions: rejects content with a lower version than the installed content if a
//! SignaturePolicy forbids downgrades.

use semver::Version;

use crate::diagnostic::{Finding, codes};

/// Returns a finding if `wanted` must not replace `installed`. Both versions are read from the
/// content. `forbidden_by` contains the names of the policies that forbid a downgrade.
///
/// Content without a valid version must not replace content with a valid version, because the order
/// is unknown.
pub fn refusal(
    installed: Option<&str>,
    wanted: Option<&str>,
    forbidden_by: &[String],
) -> Option<Finding> {
    let policy = forbidden_by.first()?;
    let read = |text: Option<&str>| text.and_then(|text| Version::parse(text).ok());
    let before = read(installed)?;
    let message = match read(wanted) {
        // Build metadata has no order: semver.org, section 10.
        Some(after) if after.cmp_precedence(&before).is_ge() => return None,
        Some(after) => format!(
            "version {after} is lower than the installed version {before}, and SignaturePolicy {policy} forbids downgrades"
        ),
        None => format!(
            "the content has no valid version, version {before} is installed, and SignaturePolicy {policy} forbids downgrades"
        ),
    };
    Some(Finding::error(codes::install::DOWNGRADE, message).hint(format!(
        "deploy {before} or a later version, or set versions.allowDowngrade: true on SignaturePolicy {policy}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_lower_and_unknown_versions_only_if_a_policy_forbids_downgrades() {
        let policies = ["releases".to_owned()];
        for (installed, wanted, refused) in [
            (Some("1.4.0"), Some("1.4.0"), false),
            (Some("1.4.0"), Some("1.4.0+build.1"), false),
            (Some("1.4.0"), Some("1.10.0"), false),
            (Some("1.4.0"), Some("1.3.9"), true),
            (Some("1.4.0"), Some("1.4.0-rc.1"), true),
            (Some("1.4.0"), Some("latest"), true),
            (Some("1.4.0"), None, true),
            (None, Some("0.1.0"), false),
        ] {
            assert_eq!(
                refusal(installed, wanted, &policies).is_some(),
                refused,
                "{installed:?} to {wanted:?}"
            );
            assert_eq!(refusal(installed, wanted, &[]), None);
        }
    }
}
