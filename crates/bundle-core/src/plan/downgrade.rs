//! Whether content may follow what is installed, where a SignaturePolicy forbids to go back.
//! Not here: which policies cover the content (policy::decide), or that its version is part of what was signed (package).

use semver::Version;

use crate::diagnostic::{Finding, codes};

/// Why `wanted` may not follow `installed`, both versions from inside the content, if a policy of `forbidden_by` says so.
///
/// Content without a version, or with one that cannot be read, may not follow content that has one: nobody could tell whether it goes back.
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
            "version {after} would follow {before}, and SignaturePolicy {policy} forbids to go back"
        ),
        None => format!(
            "content without a version would follow {before}, and SignaturePolicy {policy} forbids to go back"
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
    fn only_a_lower_or_unknown_version_is_refused_and_only_where_a_policy_says_so() {
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
