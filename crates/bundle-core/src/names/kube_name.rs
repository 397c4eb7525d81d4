//! Validated name, and the reason why a text is not a name.

use std::{borrow::Borrow, fmt, ops::Deref, str::FromStr};

use super::rules::{MAX_LABEL, MAX_SUBDOMAIN, is_dns_label, is_dns_subdomain, is_path_segment};

/// Rule for the names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// DNS-1123 subdomain (`IsDNS1123Subdomain`), the rule of most kinds.
    Subdomain,
    /// DNS-1123 label (`IsDNS1123Label`), for namespaces and classes.
    Label,
    /// Path segment (`IsValidPathSegmentName`), for RBAC and `IPAddress`. Characters with a meaning
    /// in a URL, a selector or a shell are forbidden.
    PathSegment,
}

impl NameKind {
    /// Returns the rule for objects of a kind. `group` is empty for the core group.
    pub fn of(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("rbac.authorization.k8s.io", _) | ("networking.k8s.io", "IPAddress") => {
                Self::PathSegment
            }
            ("", "Namespace") => Self::Label,
            _ => Self::Subdomain,
        }
    }

    /// Returns the maximum length of a name, in bytes.
    pub fn limit(self) -> usize {
        match self {
            Self::Label => MAX_LABEL,
            Self::Subdomain | Self::PathSegment => MAX_SUBDOMAIN,
        }
    }

    fn accepts(self, text: &str) -> bool {
        match self {
            Self::Subdomain => is_dns_subdomain(text),
            Self::Label => is_dns_label(text),
            Self::PathSegment => is_path_segment(text),
        }
    }
}

/// Name of an object in a cluster.
///
/// A name of any kind is one segment of a URL path without escapes. The name adds no segment, query
/// or fragment to a URL, and no clause to a selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KubeName(String);

/// Reason why a text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a name cannot be empty")]
    Empty,
    /// The text is too long.
    #[error("a name has at most {limit} characters")]
    TooLong {
        /// Maximum length in bytes.
        limit: usize,
    },
    /// The text has characters that the rule forbids.
    #[error("{}", rule(*.0))]
    Characters(NameKind),
}

fn rule(kind: NameKind) -> &'static str {
    match kind {
        NameKind::Subdomain => {
            "a name has lower-case letters, digits, dashes and dots; each part begins and ends with a letter or digit"
        }
        NameKind::Label => {
            "a name has lower-case letters, digits and dashes, and begins and ends with a letter or digit"
        }
        NameKind::PathSegment => "a name has letters, digits and `-._~:@+`, and is not `.` or `..`",
    }
}

impl KubeName {
    /// Parses a name by the rule of its kind.
    pub fn parse(kind: NameKind, text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > kind.limit() {
            return Err(NameError::TooLong {
                limit: kind.limit(),
            });
        }
        if !kind.accepts(text) {
            return Err(NameError::Characters(kind));
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a field selector that matches only the object with this name.
    pub fn field_selector(&self) -> String {
        format!("metadata.name={self}")
    }
}

impl FromStr for KubeName {
    type Err = NameError;

    /// Parses a DNS subdomain, the rule of most kinds.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(NameKind::Subdomain, text)
    }
}

impl fmt::Display for KubeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Deref for KubeName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for KubeName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for KubeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<KubeName> for String {
    fn from(name: KubeName) -> Self {
        name.0
    }
}

impl PartialEq<str> for KubeName {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for KubeName {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Characters with a meaning in a URL, a selector or a shell.
    const SPECIAL: &[u8] = b"/?#%,=\\&;'\"`$*!()<>|{}[]^";
    const KINDS: [NameKind; 3] = [NameKind::Subdomain, NameKind::Label, NameKind::PathSegment];

    #[test]
    fn rejects_texts_that_would_change_the_request() {
        let long = "a".repeat(254);
        for text in [
            "",
            "?watch=true",
            "?watch=true&timeoutSeconds=3",
            "a?watch=true",
            "..",
            ".",
            "../",
            "../secrets",
            "a/b",
            "a%2fb",
            "%2e%2e",
            "a#b",
            "a\0",
            "a\n",
            "a b",
            "a,metadata.namespace!=x",
            "a=b",
            "a\\b",
            "a\u{2215}b",
            "ä",
            "$(id)",
            "a;b",
            &long,
        ] {
            for kind in KINDS {
                assert!(KubeName::parse(kind, text).is_err(), "{kind:?} {text:?}");
            }
        }
    }

    #[test]
    fn accepts_names_by_the_rule_of_their_kind() {
        let longest = "a".repeat(253);
        for (group, kind, name, fine) in [
            ("", "ConfigMap", "kube-root-ca.crt", true),
            ("", "ConfigMap", "Web", false),
            ("", "ConfigMap", "a_b", false),
            ("", "ConfigMap", "a..b", false),
            ("", "ConfigMap", "-a", false),
            ("", "ConfigMap", &longest, true),
            ("", "Namespace", "team-a", true),
            ("", "Namespace", "team.a", false),
            ("", "Namespace", &longest[..64], false),
            ("", "Namespace", &longest[..63], true),
            (
                "rbac.authorization.k8s.io",
                "ClusterRole",
                "system:Node_1",
                true,
            ),
            (
                "rbac.authorization.k8s.io",
                "RoleBinding",
                "ana@example.com",
                true,
            ),
            ("networking.k8s.io", "IPAddress", "fd00::1", true),
            ("apps", "Deployment", "a:b", false),
        ] {
            let parsed = KubeName::parse(NameKind::of(group, kind), name);
            assert_eq!(parsed.is_ok(), fine, "{kind} {name}");
        }
    }

    #[test]
    fn errors_state_the_rule_for_names() {
        let error = |kind, text: &str| KubeName::parse(kind, text).unwrap_err().to_string();
        assert_eq!(error(NameKind::Label, ""), "a name cannot be empty");
        assert_eq!(
            error(NameKind::Label, &"a".repeat(64)),
            "a name has at most 63 characters"
        );
        assert_eq!(
            error(NameKind::Subdomain, "A"),
            "a name has lower-case letters, digits, dashes and dots; each part begins and ends with a letter or digit"
        );
    }

    proptest! {
        #[test]
        fn every_name_is_one_segment_of_a_path_and_one_value_of_a_selector(text in ".{0,80}|[-a-z0-9.:@%?#/,=&+~_]{0,80}") {
            for kind in KINDS {
                let Ok(name) = KubeName::parse(kind, &text) else { continue };
                let plain = |byte: u8| byte.is_ascii_graphic() && !SPECIAL.contains(&byte);
                prop_assert!(name.bytes().all(plain));
                prop_assert!(name != "." && name != ".." && !name.is_empty());
                prop_assert_eq!(name.field_selector(), format!("metadata.name={text}"));
            }
        }
    }
}
