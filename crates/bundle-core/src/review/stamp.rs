//! The admission stamp: who asked for this spec, sealed with a key that only the pod has, so that a forged or copied annotation does nothing.
//! Not here: keeping the key (webhook) or when to stamp (webhook::admission).

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha256;

use super::canonical;
use crate::reference::Digest;

/// Who asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Requester {
    /// User name, as the API server authenticated it.
    pub user: String,
    /// Its uid, where there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Its groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

impl Requester {
    /// Namespace and name, if it is a ServiceAccount.
    pub fn service_account(&self) -> Option<(&str, &str)> {
        self.user
            .strip_prefix("system:serviceaccount:")?
            .split_once(':')
    }
}

/// What a stamp says: this requester asked for what this spec means, under this kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// `Bundle`, `BundleDeployment` or `BundleApproval`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Digest of what its spec means ([`canonical::spec_digest`]).
    pub spec: Digest,
    /// Who asked for it.
    pub requester: Requester,
}

/// Why a stamp does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    /// There is none.
    #[error("the object carries no admission stamp: it was written while admission was off")]
    Missing,
    /// It cannot be read.
    #[error("the admission stamp cannot be read: the annotation was changed")]
    Unreadable,
    /// It was not made with our key, or for another object or requester.
    #[error("the admission stamp was not made by this installation for this object")]
    Forged,
    /// It is for another spec.
    #[error(
        "the admission stamp is for another spec: this one was written while admission was off"
    )]
    OtherSpec,
}

/// What stands in the annotation.
#[derive(Serialize, Deserialize)]
struct Sealed {
    v: u8,
    #[serde(flatten)]
    requester: Requester,
    spec: Digest,
    mac: String,
}

const VERSION: u8 = 1;

/// The text of the annotation for a stamp.
pub fn seal(key: &[u8], stamp: &Stamp) -> String {
    let mac = mac(key, stamp).finalize().into_bytes();
    let sealed = json!({
        "v": VERSION,
        "user": stamp.requester.user,
        "uid": stamp.requester.uid,
        "groups": stamp.requester.groups,
        "spec": stamp.spec,
        "mac": hex::encode(mac),
    });
    canonical::bytes(&sealed)
}

/// Who asked for `spec` of the object `kind` `name`, if `annotation` is a stamp of ours that says so.
pub fn check(
    key: &[u8],
    annotation: Option<&str>,
    kind: &str,
    name: &str,
    spec: &Value,
) -> Result<Requester, StampError> {
    let text = annotation.ok_or(StampError::Missing)?;
    let sealed: Sealed = serde_json::from_str(text).map_err(|_| StampError::Unreadable)?;
    if sealed.v != VERSION {
        return Err(StampError::Unreadable);
    }
    let claimed = hex::decode(&sealed.mac).map_err(|_| StampError::Unreadable)?;
    let stamp = Stamp {
        kind: kind.to_owned(),
        name: name.to_owned(),
        spec: sealed.spec,
        requester: sealed.requester,
    };
    // In constant time.
    mac(key, &stamp)
        .verify_slice(&claimed)
        .map_err(|_| StampError::Forged)?;
    if stamp.spec == canonical::spec_digest(spec) {
        Ok(stamp.requester)
    } else {
        Err(StampError::OtherSpec)
    }
}

fn mac(key: &[u8], stamp: &Stamp) -> Hmac<Sha256> {
    // HMAC takes keys of any length, an empty one too.
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .unwrap_or_else(|_| Hmac::<Sha256>::new(&hmac::digest::Key::<Hmac<Sha256>>::default()));
    let said = json!({
        "v": VERSION,
        "kind": stamp.kind,
        "name": stamp.name,
        "user": stamp.requester.user,
        "uid": stamp.requester.uid,
        "groups": stamp.requester.groups,
        "spec": stamp.spec,
    });
    mac.update(canonical::bytes(&said).as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"a key of the pod";

    fn ana() -> Requester {
        Requester {
            user: "ana".into(),
            uid: "7".into(),
            groups: vec!["dev".into(), "system:authenticated".into()],
        }
    }

    fn sealed(spec: &Value) -> String {
        seal(
            KEY,
            &Stamp {
                kind: "Bundle".into(),
                name: "web".into(),
                spec: canonical::spec_digest(spec),
                requester: ana(),
            },
        )
    }

    #[test]
    fn a_stamp_is_good_for_what_it_was_made_for_only() {
        let spec = json!({"a": 1});
        let text = sealed(&spec);
        let ask = |key: &[u8], kind: &str, name: &str, spec: &Value| {
            check(key, Some(&text), kind, name, spec)
        };
        assert_eq!(ask(KEY, "Bundle", "web", &spec), Ok(ana()));
        assert_eq!(
            ask(KEY, "Bundle", "web", &json!({"a": 1, "b": null})),
            Ok(ana())
        );
        assert_eq!(
            ask(b"another key", "Bundle", "web", &spec),
            Err(StampError::Forged)
        );
        assert_eq!(
            ask(KEY, "BundleDeployment", "web", &spec),
            Err(StampError::Forged)
        );
        assert_eq!(ask(KEY, "Bundle", "other", &spec), Err(StampError::Forged));
        assert_eq!(
            ask(KEY, "Bundle", "web", &json!({"a": 2})),
            Err(StampError::OtherSpec)
        );
    }

    #[test]
    fn tampering_is_noticed_and_never_panics() {
        let spec = json!({"a": 1});
        let text = sealed(&spec);
        let with = |from: &str, to: &str| {
            let changed = text.replace(from, to);
            assert_ne!(changed, text);
            check(KEY, Some(&changed), "Bundle", "web", &spec)
        };
        assert_eq!(with("\"ana\"", "\"root\""), Err(StampError::Forged));
        assert_eq!(with("dev", "system:masters"), Err(StampError::Forged));
        assert_eq!(with("\"v\":1", "\"v\":2"), Err(StampError::Unreadable));
        assert_eq!(
            with("\"mac\":\"", "\"mac\":\"zz"),
            Err(StampError::Unreadable)
        );
        assert_eq!(
            check(KEY, None, "Bundle", "web", &spec),
            Err(StampError::Missing)
        );
        for bad in ["", "{}", "[]", "null", "{\"v\":1,\"mac\":\"\"}"] {
            assert_eq!(
                check(KEY, Some(bad), "Bundle", "web", &spec),
                Err(StampError::Unreadable),
                "{bad}"
            );
        }
    }
}
