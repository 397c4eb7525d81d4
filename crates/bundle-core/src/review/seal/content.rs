//! Content seal of a Bundle: the content that its source was first resolved to, with a MAC. Only
//! the pod has the key of the MAC. A user with permission to write the status of a Bundle can
//! remove or copy a seal, but cannot create a seal.

use serde::{Deserialize, Serialize};

use super::super::facts::Kind;
use super::super::stamp::{sign, verify};
use crate::reference::Digest;

const CONTENT: &str = "core.rukpak.io/content";

/// Content of one Bundle, as recorded in the content seal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SealedContent {
    /// Digest of the resolved spec ([`crate::review::spec_digest`]).
    pub spec: Digest,
    /// Digest of the content.
    pub digest: Digest,
    /// Version of the package in the content; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Commit that the content of a git repository was read from; `None` for other sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// Serialized form of a content seal.
#[derive(Serialize, Deserialize)]
struct ContentSealText {
    kind: String,
    name: String,
    uid: String,
    content: SealedContent,
}

/// Returns the content seal for the Bundle `name` with this uid, as text.
pub fn content_seal(key: &[u8], name: &str, uid: &str, content: &SealedContent) -> String {
    let text = ContentSealText {
        kind: Kind::Bundle.as_str().to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        content: content.clone(),
    };
    sign(key, CONTENT, &text)
}

/// Parses a [`content_seal`] of this Bundle and verifies it with `key`. Returns `None` for any
/// other text.
pub fn sealed_content(key: &[u8], name: &str, uid: &str, text: &str) -> Option<SealedContent> {
    let text: ContentSealText = verify(key, CONTENT, text).ok()?;
    let same = text.kind == Kind::Bundle.as_str() && text.name == name && text.uid == uid;
    same.then_some(text.content)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::review::canonical;

    const KEY: &[u8] = b"a key of the pod";

    fn content() -> SealedContent {
        SealedContent {
            spec: canonical::spec_digest(&json!({"a": 1})),
            digest: Digest::of(b"one"),
            version: Some("1.0.0".into()),
            commit: Some("c0ffee".into()),
        }
    }

    #[test]
    fn content_seal_counts_for_one_bundle_and_needs_the_key() {
        let text = content_seal(KEY, "web", "u", &content());
        assert_eq!(sealed_content(KEY, "web", "u", &text), Some(content()));
        assert_eq!(sealed_content(b"another key", "web", "u", &text), None);
        assert_eq!(sealed_content(KEY, "other", "u", &text), None);
        assert_eq!(sealed_content(KEY, "web", "another", &text), None);
        let admission = sign(
            KEY,
            "core.rukpak.io/seal",
            &json!({"kind": "Bundle", "name": "web", "uid": "u", "content": content()}),
        );
        for other in ["", "{}", "null", admission.as_str()] {
            assert_eq!(sealed_content(KEY, "web", "u", other), None, "{other}");
        }
    }

    #[test]
    fn content_seals_without_commit_stay_valid() {
        let old = json!({"kind": "Bundle", "name": "web", "uid": "u", "content": {"spec": content().spec, "digest": content().digest, "version": "1.0.0"}});
        let expected = SealedContent {
            commit: None,
            ..content()
        };
        let read = sealed_content(KEY, "web", "u", &sign(KEY, CONTENT, &old));
        assert_eq!(read, Some(expected.clone()));
        assert!(!content_seal(KEY, "web", "u", &expected).contains("commit"));
    }

    #[test]
    fn rejects_content_seals_with_any_field_altered() {
        let text = content_seal(KEY, "web", "u", &content());
        let other = Digest::of(b"two").to_string();
        for (from, to) in [
            (content().digest.to_string().as_str(), other.as_str()),
            (content().spec.to_string().as_str(), other.as_str()),
            ("\"1.0.0\"", "\"9.0.0\""),
            ("\"c0ffee\"", "\"decade\""),
            ("\"web\"", "\"other\""),
            ("\"u\"", "\"v\""),
        ] {
            let altered = text.replace(from, to);
            assert_ne!(altered, text, "{from}");
            for (name, uid) in [("web", "u"), ("other", "u"), ("web", "v")] {
                assert_eq!(sealed_content(KEY, name, uid, &altered), None, "{from}");
            }
        }
    }
}
