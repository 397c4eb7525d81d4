//! Who may sign, as a policy names them: a key in its text or in a Secret, or a keyless identity.
//! Not here: what a key's text means (bundle-trust::keys) and reading Secrets (the shells hand their contents in).

use std::collections::BTreeMap;

use serde_json::Value;

use super::document::Reader;
use crate::diagnostic::Finding;

/// One authority of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// Its name; `authority-N` where the author gave none.
    pub name: String,
    /// How it is recognised. `None` if that could not be read, which is among the policy's problems.
    pub kind: Option<AuthorityKind>,
}

/// How an authority is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorityKind {
    /// By a public key.
    Key(KeySource),
    /// By a certificate for an identity. Read, and not supported by this version: the policy is not ready.
    Keyless,
}

/// Where a public key is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In the policy: PEM text.
    Inline(String),
    /// In the Secret of this name, in the namespace of the pod.
    Secret(String),
}

/// What a shell found of a Secret that a policy names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretKey {
    /// The PEM text of its public key.
    Found(String),
    /// It is certain that there is none, and why: `Secret bundle-system/release-key does not exist`.
    Missing(String),
    /// It could not be read just now.
    Unavailable(Finding),
}

/// The entry of a Secret that holds the public key: `cosign.pub` (which cosign writes), else the only entry.
pub fn key_of_secret(name: &str, data: &BTreeMap<String, Vec<u8>>) -> SecretKey {
    let entry = data
        .get("cosign.pub")
        .or_else(|| data.values().next().filter(|_| data.len() == 1));
    let Some(bytes) = entry else {
        return SecretKey::Missing(format!(
            "Secret {name} has no entry `cosign.pub` and {} other entries, so it is not clear which is the public key",
            data.len()
        ));
    };
    match String::from_utf8(bytes.clone()) {
        Ok(pem) => SecretKey::Found(pem),
        Err(_) => SecretKey::Missing(format!("the key in Secret {name} is not text")),
    }
}

/// Reads `spec.authorities[index]`; what is wrong with it goes to the reader's problems.
pub(super) fn read(reader: &mut Reader, index: usize, value: &Value) -> Authority {
    let path = format!("spec.authorities[{index}]");
    let mut authority = Authority {
        name: format!("authority-{index}"),
        kind: None,
    };
    let known = ["name", "key", "keyless", "attestations"];
    let Some(map) = reader.object(&path, value, &known) else {
        return authority;
    };
    if let Some(name) = reader.text(&path, map, "name") {
        if name.is_empty() {
            reader.problem(&format!("{path}.name"), "it is empty");
        } else {
            name.clone_into(&mut authority.name);
        }
    }
    let nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    if map.get("attestations").is_some_and(|value| !nothing(value)) {
        reader.problem(
            &format!("{path}.attestations"),
            "required attestations are not supported by this version",
        );
    }
    let key = map.get("key").filter(|value| !value.is_null());
    let keyless = map.get("keyless").filter(|value| !value.is_null());
    authority.kind = match (key, keyless) {
        (Some(key), None) => read_key(reader, &format!("{path}.key"), key).map(AuthorityKind::Key),
        (None, Some(_)) => {
            reader.problem(
                &format!("{path}.keyless"),
                "keyless authorities are not supported by this version",
            );
            Some(AuthorityKind::Keyless)
        }
        (Some(_), Some(_)) => {
            reader.problem(
                &path,
                "it has both `key` and `keyless`, where one is wanted",
            );
            None
        }
        (None, None) => {
            reader.problem(&path, "it has neither `key` nor `keyless`");
            None
        }
    };
    authority
}

fn read_key(reader: &mut Reader, path: &str, value: &Value) -> Option<KeySource> {
    let map = reader.object(path, value, &["data", "secretRef"])?;
    let data = reader.text(path, map, "data").map(str::to_owned);
    let secret = match map.get("secretRef").filter(|value| !value.is_null()) {
        None => None,
        Some(value) => {
            let path = format!("{path}.secretRef");
            let map = reader.object(&path, value, &["name"])?;
            let name = reader.text(&path, map, "name").unwrap_or_default();
            if name.is_empty() {
                reader.problem(&path, "it names no Secret");
                return None;
            }
            Some(name.to_owned())
        }
    };
    match (data, secret) {
        (Some(pem), None) => Some(KeySource::Inline(pem)),
        (None, Some(name)) => Some(KeySource::Secret(name)),
        (Some(_), Some(_)) => {
            reader.problem(
                path,
                "it has both `data` and `secretRef`, where one is wanted",
            );
            None
        }
        (None, None) => {
            reader.problem(path, "it has neither `data` nor `secretRef`");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_says_which_entry_is_the_key() {
        let entry = |name: &str| (name.to_owned(), b"pem".to_vec());
        let pick = |entries: &[&str]| {
            key_of_secret("k", &entries.iter().map(|name| entry(name)).collect())
        };
        assert_eq!(pick(&["cosign.pub", "x"]), SecretKey::Found("pem".into()));
        assert_eq!(pick(&["release.pub"]), SecretKey::Found("pem".into()));
        assert!(matches!(pick(&["a", "b"]), SecretKey::Missing(_)));
        assert!(matches!(pick(&[]), SecretKey::Missing(_)));
        let binary = BTreeMap::from([("cosign.pub".to_owned(), vec![0xff])]);
        assert!(matches!(key_of_secret("k", &binary), SecretKey::Missing(_)));
    }
}
