//! Key of an installation: the content, and the ServiceAccount and settings with which the content
//! is installed. Inventories store the key as text, with one space between two words.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::reference::Digest;
use crate::service_account::ServiceAccount;

/// Placeholder for a missing target namespace. This text is not a valid name of a namespace.
const NO_NAMESPACE: &str = "-";

/// First part of a [`ContentKey`]: content digest, installing ServiceAccount and target namespace.
/// [`crate::plan::decision::Decisions`] contains such prefixes. The default is the empty prefix,
/// for unknown content. Every key starts with the empty prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentKeyPrefix(String);

impl ContentKeyPrefix {
    /// Returns the prefix of all keys for this content. `digest` is empty if the content is
    /// unknown.
    pub fn new(digest: &str, account: &ServiceAccount, target_namespace: Option<&str>) -> Self {
        let namespace = target_namespace.unwrap_or(NO_NAMESPACE);
        Self(format!("{digest} {} {namespace} ", account.user_name()))
    }
}

impl fmt::Display for ContentKeyPrefix {
    /// Writes the text of the prefix. The text ends with the space before the digest of the spec.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Key of an installation. It contains content, ServiceAccount, target namespace, settings, uid of
/// the BundleDeployment, and the version of the certificates of an operator. If the key changes,
/// the content is installed again. The default is the empty key, which inventories contain before
/// the first installation.
///
/// Every text is a valid key, because inventories of other versions of this project and damaged
/// inventories must stay readable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentKey(String);

impl ContentKey {
    /// Returns the key of an installation with this spec, for the BundleDeployment with this uid.
    /// `certificates` is the version of the certificates; `None` if the content is not an operator.
    ///
    /// Because of the uid, a BundleDeployment does not inherit the permission checks of a deleted
    /// BundleDeployment of the same name.
    pub fn new(
        prefix: &ContentKeyPrefix,
        spec: &Digest,
        uid: &str,
        certificates: Option<&str>,
    ) -> Self {
        let certificates = certificates.map(|version| format!(" {version}"));
        let certificates = certificates.unwrap_or_default();
        Self(format!("{prefix}{spec} {uid}{certificates}"))
    }

    /// Returns true if the key is empty: no installation has begun.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the key has this prefix.
    pub fn has_prefix(&self, prefix: &ContentKeyPrefix) -> bool {
        self.0.starts_with(&prefix.0)
    }

    /// Returns the prefix of the key.
    pub fn prefix(&self) -> ContentKeyPrefix {
        let words = self.0.split(' ').take(3);
        ContentKeyPrefix(words.flat_map(|word| [word, " "]).collect())
    }

    /// Returns the digest of the content; empty if the content is unknown. For a damaged text,
    /// returns the first word.
    pub fn content_digest(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }

    /// Returns the digest of the spec; `None` if the key contains no digest of the spec.
    pub fn spec_digest(&self) -> Option<&str> {
        self.0.split(' ').nth(3)
    }
}

impl From<&str> for ContentKey {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for ContentKey {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::inventory::{InstalledContent, Inventory};

    const CONTENT: &str = "sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752";
    const ACCOUNT: &str = "system:serviceaccount:team-a:deployer";

    fn prefix(target_namespace: Option<&str>) -> ContentKeyPrefix {
        let account = ServiceAccount::parse("team-a", "deployer").unwrap();
        ContentKeyPrefix::new(CONTENT, &account, target_namespace)
    }

    #[test]
    fn text_of_a_key_is_stable_and_parses_to_the_same_key() {
        let spec = Digest::of(b"spec");
        let version = Some("7 0a1b2c");
        for (namespace, uid, certificates, expected) in [
            (None, "u-1", None, format!("- {spec} u-1")),
            (Some("web"), "u-1", None, format!("web {spec} u-1")),
            (None, "u-1", version, format!("- {spec} u-1 7 0a1b2c")),
            (None, "", None, format!("- {spec} ")),
            (None, "", version, format!("- {spec}  7 0a1b2c")),
        ] {
            let key = ContentKey::new(&prefix(namespace), &spec, uid, certificates);
            let text = key.to_string();
            assert_eq!(text, format!("{CONTENT} {ACCOUNT} {expected}"));
            assert_eq!(ContentKey::from(text.as_str()), key);
            assert_eq!(key.content_digest(), CONTENT);
            assert_eq!(key.spec_digest(), Some(spec.as_str()));
            assert!(key.has_prefix(&prefix(namespace)) && !key.is_empty());
            assert!(!key.has_prefix(&prefix(Some("other"))), "{text}");
            assert_eq!(key.prefix(), prefix(namespace), "{text}");
        }
    }

    #[test]
    fn each_part_of_a_key_makes_another_key() {
        let spec = Digest::of(b"spec");
        let key = ContentKey::new(&prefix(None), &spec, "u-1", None);
        let account = |name: &str| ServiceAccount::parse("team-a", name).unwrap();
        let other_account = ContentKeyPrefix::new(CONTENT, &account("other"), None);
        let other_content = ContentKeyPrefix::new("sha256:1", &account("deployer"), None);
        for other in [
            ContentKey::new(&prefix(Some("web")), &spec, "u-1", None),
            ContentKey::new(&prefix(None), &Digest::of(b"other"), "u-1", None),
            ContentKey::new(&prefix(None), &spec, "u-2", None),
            ContentKey::new(&prefix(None), &spec, "u-1", Some("7 0a1b2c")),
            ContentKey::new(&other_account, &spec, "u-1", None),
            ContentKey::new(&other_content, &spec, "u-1", None),
            ContentKey::default(),
        ] {
            assert_ne!(key, other);
        }
    }

    #[test]
    fn key_of_unknown_content_matches_no_known_content() {
        let account = ServiceAccount::parse("team-a", "deployer").unwrap();
        let unknown = ContentKeyPrefix::new("", &account, None);
        let key = ContentKey::new(&unknown, &Digest::of(b"spec"), "u-1", None);
        assert_eq!(ContentKey::from(key.to_string()), key);
        assert_eq!(key.content_digest(), "");
        assert!(key.has_prefix(&unknown) && !key.has_prefix(&prefix(None)));
    }

    #[test]
    fn earlier_text_has_the_parts_that_it_contains() {
        // Key of an earlier version of this project, in which keys had no uid and no target
        // namespace.
        let key = ContentKey::from(format!("{CONTENT} {ACCOUNT} spec"));
        assert_eq!(key.content_digest(), CONTENT);
        assert_eq!(key.spec_digest(), None);
        assert!(!key.has_prefix(&prefix(None)) && !key.has_prefix(&prefix(Some("spec"))));
        assert_eq!(key.prefix().0, format!("{CONTENT} {ACCOUNT} spec "));
        // Key of an earlier version of this project, in which keys had no uid.
        let key = ContentKey::from(format!("{CONTENT} {ACCOUNT} - spec"));
        assert!(key.has_prefix(&prefix(None)));
        assert_eq!(key.spec_digest(), Some("spec"));
        assert_eq!(key.prefix(), prefix(None));
    }

    #[test]
    fn damaged_text_matches_nothing_and_stays_unchanged() {
        let spec = Digest::of(b"spec");
        let known = ContentKey::new(&prefix(None), &spec, "u-1", None);
        let damaged = [
            String::new(),
            " ".to_owned(),
            "   ".to_owned(),
            CONTENT.to_owned(),
            format!("{CONTENT} {ACCOUNT} -"),
            format!(" {known}"),
            known.to_string().replace(' ', "\n"),
            known.to_string().replace(' ', "  "),
            "\u{0}é ☃".to_owned(),
        ];
        for text in damaged {
            let key = ContentKey::from(text.as_str());
            assert_eq!(key.to_string(), text);
            assert_eq!(key, ContentKey::from(text.as_str()));
            assert!(!key.has_prefix(&prefix(None)), "{text:?}");
            assert_ne!(key, known, "{text:?}");
            assert_ne!(key.spec_digest(), Some(spec.as_str()), "{text:?}");
            assert_eq!(key.is_empty(), text.is_empty());
            let mut inventory = Inventory::new("web");
            inventory.installation = key.clone();
            inventory.record.get_or_insert_default().installed = Some(InstalledContent {
                installation: key,
                ..InstalledContent::default()
            });
            assert!(!inventory.was_installed(&prefix(None)), "{text:?}");
            assert!(inventory.is_new_spec(1, spec.as_str()), "{text:?}");
        }
        assert_eq!(ContentKey::from(""), ContentKey::default());
    }

    #[test]
    fn inventory_keeps_the_stored_text() {
        for text in [
            format!("{CONTENT} {ACCOUNT} - spec u-1 7 0a1b2c"),
            format!("{CONTENT} {ACCOUNT} spec"),
            "damaged".to_owned(),
        ] {
            let stored = format!(
                r#"{{"version":1,"deployment":"web","installation":"{text}","objects":{{}},"namespaces":{{}}}}"#
            );
            let inventory = Inventory::decode(stored.as_bytes()).unwrap();
            assert_eq!(inventory.installation, ContentKey::from(text));
            let written = inventory.encode().unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), stored);
        }
    }

    proptest! {
        #[test]
        fn accessors_return_the_words_of_any_text(
            words in proptest::collection::vec("[ab-]{0,1}", 0..9),
        ) {
            let text = words.join(" ");
            let words: Vec<&str> = text.split(' ').collect();
            let key = ContentKey::from(text.as_str());
            prop_assert_eq!(&key.to_string(), &text);
            prop_assert_eq!(key.is_empty(), text.is_empty());
            prop_assert_eq!(Some(key.content_digest()), words.first().copied());
            prop_assert_eq!(key.spec_digest(), words.get(3).copied());
            let first: Vec<&str> = words.iter().take(3).copied().collect();
            prop_assert_eq!(key.prefix().0, format!("{} ", first.join(" ")));
            for namespace in ["-", "b"] {
                let prefix = ContentKeyPrefix(format!("a b {namespace} "));
                let expected = text.starts_with(&prefix.to_string());
                prop_assert_eq!(key.has_prefix(&prefix), expected);
            }
        }
    }
}
