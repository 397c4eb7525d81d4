//! Files of SignaturePolicies with the Secrets and ConfigMaps that they reference.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use bundle_core::base64_go::GO_BASE64;
use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::policy::{Policy, ReferencedText, key_of_secret, root_of_config_map};
use bundle_core::reference::PinnedReference;
use bundle_core::yaml;
use serde_json::Value;

use crate::failure::Outcome;
use crate::system::files;

/// Returns the policies of these files. Policies without a trust root get `root`, if `root` is
/// given.
pub(crate) fn read(paths: &[PathBuf], root: Option<&str>) -> Outcome<Vec<Policy>> {
    let mut policies = Vec::new();
    let (mut secrets, mut config_maps) = (BTreeMap::new(), BTreeMap::new());
    let mut findings = Findings::default();
    for path in paths {
        let file = path.display().to_string();
        for document in yaml::documents(&files::read(path)?, &file)? {
            let text = |pointer: &str| document.value.pointer(pointer).and_then(Value::as_str);
            let name = text("/metadata/name").unwrap_or("unnamed");
            match text("/kind") {
                Some("SignaturePolicy") => {
                    let spec = document.value.get("spec").unwrap_or(&Value::Null);
                    match Policy::parse(name, spec) {
                        Ok(policy) => policies.push(policy),
                        Err(errors) => {
                            findings.extend(errors.into_iter().map(|one| one.in_file(&file)));
                        }
                    }
                }
                Some("Secret") => {
                    secrets.insert(name.to_owned(), key_in_secret(name, &document.value));
                }
                Some("ConfigMap") => {
                    let data = texts(&document.value["data"]);
                    config_maps.insert(name.to_owned(), root_of_config_map(name, &data));
                }
                kind => findings.push(other_kind(path, document.line, kind)),
            }
        }
    }
    if findings.has_errors() {
        return Err(findings.into());
    }
    Ok(policies
        .into_iter()
        .map(|policy| {
            let policy = policy.with_secrets(&secrets).with_config_maps(&config_maps);
            match root {
                Some(root) => policy.with_default_root(root),
                None => policy,
            }
        })
        .collect())
}

/// Returns the finding for a reference that no policy matches.
pub(crate) fn no_matching_policy(pinned: &PinnedReference) -> Finding {
    Finding::error(
        codes::trust::NO_POLICY,
        format!(
            "none of these SignaturePolicies matches {}, so nothing was verified",
            pinned.reference().name()
        ),
    )
    .about(pinned.without_tag())
    .hint("check images[].glob in the policies")
}

fn texts(data: &Value) -> BTreeMap<String, String> {
    let entries = data.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// Returns the public key in the manifest of a Secret.
fn key_in_secret(name: &str, secret: &Value) -> ReferencedText {
    let mut data: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (entry, text) in texts(&secret["data"]) {
        // base64 in a YAML block can contain line breaks.
        let text: String = text.split_whitespace().collect();
        let Ok(bytes) = GO_BASE64.decode(text) else {
            return ReferencedText::Missing(format!(
                "entry `{entry}` of Secret {name} is not base64"
            ));
        };
        data.insert(entry, bytes);
    }
    let plain = texts(&secret["stringData"]).into_iter();
    data.extend(plain.map(|(entry, text)| (entry, text.into_bytes())));
    key_of_secret(name, &data)
}

fn other_kind(path: &Path, line: usize, kind: Option<&str>) -> Finding {
    Finding::error(
        codes::trust::POLICY_UNREADABLE,
        format!(
            "this is {}, not a SignaturePolicy",
            kind.unwrap_or("an object without a kind")
        ),
    )
    .in_file(path.display().to_string())
    .at_line(line)
    .hint("pass files with SignaturePolicies, and with the Secrets and ConfigMaps that they reference")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_base64_with_unused_bits_as_the_api_server_does() {
        let secret = json!({ "data": { "cosign.pub": "YR==" } });
        let ReferencedText::Found(key) = key_in_secret("release-key", &secret) else {
            panic!("the Secret has no key");
        };
        assert_eq!(key, "a");
    }
}
