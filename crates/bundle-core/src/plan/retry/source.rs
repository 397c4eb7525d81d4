//! Retry policy for sources that could not be read. A source that names its content by digest or
//! commit is not read every few minutes, because its content cannot change.

use super::RetryPolicy;
use crate::review::Source;

/// Content that a source names when the source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedContent {
    /// Content that was not unpacked yet, and that the source names by digest or commit. Another
    /// attempt gets the same content.
    Fixed,
    /// Content that was not unpacked yet, and that the source names by tag, branch, URL or
    /// ConfigMaps. The source can name other content later.
    Movable,
    /// Content that was unpacked before. The content is valid, so the server is the reason for a
    /// failure.
    Recorded,
}

impl NamedContent {
    /// Returns the content that `source` names. `is_recorded` is `true` if the content was unpacked
    /// before.
    pub fn of(source: &Source, is_recorded: bool) -> Self {
        if is_recorded {
            Self::Recorded
        } else if source.is_fixed() {
            Self::Fixed
        } else {
            Self::Movable
        }
    }
}

/// Reason why a source of type image, git or configMaps could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFailure {
    /// A server did not respond.
    Unavailable,
    /// The named content does not exist, or is not a bundle.
    Content,
    /// Any other failure, which a user or an administrator must resolve.
    Other,
}

impl SourceFailure {
    /// Returns the policy for the next attempts.
    pub fn retry(self, named: NamedContent) -> RetryPolicy {
        match (self, named) {
            (Self::Unavailable, _) => RetryPolicy::Soon,
            (Self::Content, NamedContent::Fixed) => RetryPolicy::Hourly,
            (Self::Content, NamedContent::Movable | NamedContent::Recorded) | (Self::Other, _) => {
                RetryPolicy::Slowly
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::review::CheckedBundleSpec;

    fn source(source: &Value) -> Source {
        let spec = json!({"provisionerClassName": "plain", "source": source});
        CheckedBundleSpec::parse(&spec).unwrap().source
    }

    #[test]
    fn digests_and_commits_name_fixed_content() {
        let digest = "a".repeat(64);
        let image = |reference: &str| json!({"type": "image", "image": {"ref": reference}});
        let git = |reference: Value| json!({"type": "git", "git": {"repository": "https://git.example.com/a", "ref": reference}});
        let pinned = image(&format!("registry.example.com/web@sha256:{digest}"));
        for (found, expected) in [
            (pinned, NamedContent::Fixed),
            (image("registry.example.com/web:1"), NamedContent::Movable),
            (git(json!({"commit": "a".repeat(40)})), NamedContent::Fixed),
            (git(json!({"branch": "main"})), NamedContent::Movable),
            (git(json!({"tag": "v1"})), NamedContent::Movable),
            (
                json!({"type": "configMaps", "configMaps": [{"configMap": {"name": "a"}}]}),
                NamedContent::Movable,
            ),
            (
                json!({"type": "http", "http": {"url": "https://files.example.com/a"}}),
                NamedContent::Movable,
            ),
        ] {
            let parsed = source(&found);
            assert_eq!(NamedContent::of(&parsed, false), expected, "{found}");
            assert_eq!(NamedContent::of(&parsed, true), NamedContent::Recorded);
        }
    }

    #[test]
    fn only_failures_of_fixed_content_are_retried_hourly() {
        use NamedContent::{Fixed, Movable, Recorded};
        for named in [Fixed, Movable, Recorded] {
            let retry = |failure: SourceFailure| failure.retry(named);
            assert_eq!(retry(SourceFailure::Unavailable), RetryPolicy::Soon);
            assert_eq!(retry(SourceFailure::Other), RetryPolicy::Slowly);
            let expected = if named == Fixed {
                RetryPolicy::Hourly
            } else {
                RetryPolicy::Slowly
            };
            assert_eq!(retry(SourceFailure::Content), expected);
        }
    }
}
