//! Authorities of a policy: a public key as text or in a Secret, or identities with a trust root.
//! `bundle-trust` parses keys and roots. The caller reads Secrets and ConfigMaps.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::identity::{Identity, Matcher};
use super::reader::Reader;
use crate::diagnostic::Finding;
use crate::names::KubeName;

/// Maximum number of identities, and of required attestations, of one authority.
const MOST: usize = 64;
/// Maximum length of a predicate type, in bytes.
const LONGEST_PREDICATE: usize = 512;
/// Predicate type of signatures. A policy cannot require this type as an attestation.
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

/// Authority of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// Name of the authority. The default is `authority-N`.
    pub name: String,
    /// Key or identities; `None` if they are invalid. In this case, the problems of the policy
    /// contain the reason.
    pub kind: Option<AuthorityKind>,
    /// Predicate types of the required attestations.
    pub attestations: Vec<String>,
}

/// Key or identities of an authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorityKind {
    /// Public key.
    Key(KeySource),
    /// Certificate for one of these identities.
    Keyless(Keyless),
}

/// Identities with the trust root of their certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyless {
    /// Accepted identities. A certificate must match at least one of them.
    pub identities: Vec<Identity>,
    /// Trust root: certificate authority and logs.
    pub root: RootSource,
}

/// Source of a trust root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootSource {
    /// Built-in root of the public Sigstore instance.
    Public,
    /// JSON text of a `trusted_root.json`, in the policy.
    Inline(String),
    /// ConfigMap of this name in the system namespace.
    ConfigMap(KubeName),
}

/// Source of a public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// PEM text in the policy.
    Inline(String),
    /// Secret of this name in the system namespace.
    Secret(KubeName),
}

/// Result of reading a Secret or ConfigMap of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferencedText {
    /// The text of the entry: the PEM of a public key, or the JSON of a trust root.
    Found(String),
    /// The object or entry does not exist, with the reason:
    /// `Secret bundle-system/release-key does not exist`.
    Missing(String),
    /// The object could not be read now.
    Unavailable(Finding),
}

/// Returns the public key in a Secret: the entry `cosign.pub`, which cosign writes, or the only
/// entry.
pub fn key_of_secret(name: &str, data: &BTreeMap<String, Vec<u8>>) -> ReferencedText {
    let entry = data
        .get("cosign.pub")
        .or_else(|| data.values().next().filter(|_| data.len() == 1));
    let Some(bytes) = entry else {
        return ReferencedText::Missing(format!(
            "Secret {name} has no entry `cosign.pub` and {} other entries, so the public key is ambiguous",
            data.len()
        ));
    };
    match String::from_utf8(bytes.clone()) {
        Ok(pem) => ReferencedText::Found(pem),
        Err(_) => ReferencedText::Missing(format!("the key in Secret {name} is not UTF-8")),
    }
}

/// Returns the trust root in a ConfigMap: the entry `trusted_root.json`, or the only entry.
pub fn root_of_config_map(name: &str, data: &BTreeMap<String, String>) -> ReferencedText {
    let entry = data
        .get("trusted_root.json")
        .or_else(|| data.values().next().filter(|_| data.len() == 1));
    match entry {
        Some(text) => ReferencedText::Found(text.clone()),
        None => ReferencedText::Missing(format!(
            "ConfigMap {name} has no entry `trusted_root.json` and {} other entries, so the trust root is ambiguous",
            data.len()
        )),
    }
}

/// Parses `spec.authorities[index]`. Errors are added to the reader's problems.
pub(super) fn read(reader: &mut Reader, index: usize, value: &Value) -> Authority {
    let path = format!("spec.authorities[{index}]");
    let mut authority = Authority {
        name: format!("authority-{index}"),
        kind: None,
        attestations: Vec::new(),
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
    authority.attestations = read_attestations(reader, &path, map);
    let key = map.get("key").filter(|value| !value.is_null());
    let keyless = map.get("keyless").filter(|value| !value.is_null());
    authority.kind = match (key, keyless) {
        (Some(key), None) => read_key(reader, &format!("{path}.key"), key).map(AuthorityKind::Key),
        (None, Some(keyless)) => {
            read_keyless(reader, &format!("{path}.keyless"), keyless).map(AuthorityKind::Keyless)
        }
        (Some(_), Some(_)) => {
            reader.problem(
                &path,
                "it has both `key` and `keyless`, but exactly one is allowed",
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
            Some(read_name(reader, &path, name)?)
        }
    };
    match (data, secret) {
        (Some(pem), None) => Some(KeySource::Inline(pem)),
        (None, Some(name)) => Some(KeySource::Secret(name)),
        (Some(_), Some(_)) => {
            reader.problem(
                path,
                "it has both `data` and `secretRef`, but exactly one is allowed",
            );
            None
        }
        (None, None) => {
            reader.problem(path, "it has neither `data` nor `secretRef`");
            None
        }
    }
}

fn read_keyless(reader: &mut Reader, path: &str, value: &Value) -> Option<Keyless> {
    let map = reader.object(path, value, &["identities", "trustRoot"])?;
    let identities = match map.get("identities") {
        Some(Value::Array(list)) if !list.is_empty() && list.len() <= MOST => list
            .iter()
            .enumerate()
            .map(|(index, value)| {
                read_identity(reader, &format!("{path}.identities[{index}]"), value)
            })
            .collect::<Option<Vec<_>>>(),
        _ => {
            reader.problem(
                &format!("{path}.identities"),
                &format!("it is not a list of 1 to {MOST} identities"),
            );
            None
        }
    };
    let root = match map.get("trustRoot").filter(|value| !value.is_null()) {
        None => Some(RootSource::Public),
        Some(value) => read_root(reader, &format!("{path}.trustRoot"), value),
    };
    Some(Keyless {
        identities: identities?,
        root: root?,
    })
}

fn read_identity(reader: &mut Reader, path: &str, value: &Value) -> Option<Identity> {
    let known = ["issuer", "issuerRegExp", "subject", "subjectRegExp"];
    let map = reader.object(path, value, &known)?;
    let issuer = read_matcher(reader, path, map, "issuer", "issuerRegExp");
    let subject = read_matcher(reader, path, map, "subject", "subjectRegExp");
    Some(Identity {
        issuer: issuer?,
        subject: subject?,
    })
}

type ReadMatcher = fn(&str) -> Result<Matcher, String>;

fn read_matcher(
    reader: &mut Reader,
    path: &str,
    map: &Map<String, Value>,
    exact: &str,
    pattern: &str,
) -> Option<Matcher> {
    let has = |field: &str| map.get(field).is_some_and(|value| !value.is_null());
    let (field, read): (&str, ReadMatcher) = match (has(exact), has(pattern)) {
        (true, false) => (exact, Matcher::exact),
        (false, true) => (pattern, Matcher::pattern),
        (true, true) => {
            let why = format!("it has both `{exact}` and `{pattern}`, but exactly one is allowed");
            reader.problem(path, &why);
            return None;
        }
        (false, false) => {
            let why = format!(
                "it has neither `{exact}` nor `{pattern}`, so it would accept every signature"
            );
            reader.problem(path, &why);
            return None;
        }
    };
    match read(reader.text(path, map, field)?) {
        Ok(matcher) => Some(matcher),
        Err(why) => {
            reader.problem(&format!("{path}.{field}"), &why);
            None
        }
    }
}

fn read_root(reader: &mut Reader, path: &str, value: &Value) -> Option<RootSource> {
    let map = reader.object(path, value, &["configMapRef"])?;
    let Some(value) = map.get("configMapRef").filter(|value| !value.is_null()) else {
        reader.problem(path, "it has no `configMapRef`");
        return None;
    };
    let path = format!("{path}.configMapRef");
    let map = reader.object(&path, value, &["name"])?;
    let name = reader.text(&path, map, "name").unwrap_or_default();
    if name.is_empty() {
        reader.problem(&path, "it names no ConfigMap");
        return None;
    }
    Some(RootSource::ConfigMap(read_name(reader, &path, name)?))
}

/// Returns the validated name of a Secret or ConfigMap at `path`. If the name is invalid, adds an
/// error and returns `None`.
fn read_name(reader: &mut Reader, path: &str, name: &str) -> Option<KubeName> {
    match name.parse() {
        Ok(name) => Some(name),
        Err(why) => {
            reader.problem(&format!("{path}.name"), &format!("invalid name: {why}"));
            None
        }
    }
}

fn read_attestations(reader: &mut Reader, path: &str, map: &Map<String, Value>) -> Vec<String> {
    let path = format!("{path}.attestations");
    let list = match map.get("attestations").filter(|value| !value.is_null()) {
        None => return Vec::new(),
        Some(Value::Array(list)) if list.len() <= MOST => list,
        Some(_) => {
            let why = format!("it is not a list of at most {MOST} attestations");
            reader.problem(&path, &why);
            return Vec::new();
        }
    };
    let mut types = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Some(map) = reader.object(&path, value, &["predicateType"]) else {
            continue;
        };
        match reader.text(&path, map, "predicateType") {
            Some(SIGNED) => reader.problem(
                &format!("{path}.predicateType"),
                "it is the predicate type of a signature, which is always required",
            ),
            Some(text) if !text.is_empty() && text.len() <= LONGEST_PREDICATE => {
                types.push(text.to_owned());
            }
            _ => reader.problem(
                &path,
                &format!("it has no `predicateType` of 1 to {LONGEST_PREDICATE} bytes"),
            ),
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_secret_must_name_one_key() {
        let entry = |name: &str| (name.to_owned(), b"pem".to_vec());
        let pick = |entries: &[&str]| {
            key_of_secret("k", &entries.iter().map(|name| entry(name)).collect())
        };
        assert_eq!(
            pick(&["cosign.pub", "x"]),
            ReferencedText::Found("pem".into())
        );
        assert_eq!(pick(&["release.pub"]), ReferencedText::Found("pem".into()));
        assert!(matches!(pick(&["a", "b"]), ReferencedText::Missing(_)));
        assert!(matches!(pick(&[]), ReferencedText::Missing(_)));
        let binary = BTreeMap::from([("cosign.pub".to_owned(), vec![0xff])]);
        assert!(matches!(
            key_of_secret("k", &binary),
            ReferencedText::Missing(_)
        ));
    }
}
