//! Parser of `NAME://RESOURCE`: the plugin and its key.

use std::fmt;

use bundle_core::diagnostic::{Finding, codes};

/// Maximum length of a plugin's name, in bytes.
const LONGEST_NAME: usize = 64;
/// Maximum length of a key's name, in bytes. The name is passed as an argument of a command.
const LONGEST_RESOURCE: usize = 4096;

/// A key of a KMS plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KmsKey {
    name: String,
    resource: String,
    /// `true` if a user can enter a PIN or touch a token.
    pub(super) attended: bool,
}

impl KmsKey {
    /// Parses the value of `--key`; `None` for a file.
    pub(crate) fn parse(text: &str, attended: bool) -> Result<Option<Self>, Finding> {
        if text.starts_with("pkcs11:") {
            return Err(unusable(text, "PKCS #11 tokens require a plugin"));
        }
        let Some((name, resource)) = text.split_once("://") else {
            return Ok(None);
        };
        if matches!(name, "http" | "https" | "env" | "k8s" | "github" | "gitlab") {
            return Err(unusable(
                text,
                &format!("key files are not fetched from `{name}://`"),
            ));
        }
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(fits) {
            return Err(unusable(
                text,
                "the name of a plugin consists of a-z, 0-9 and `-`",
            ));
        }
        if resource.is_empty()
            || resource.len() > LONGEST_RESOURCE
            || resource.chars().any(char::is_control)
        {
            return Err(unusable(
                text,
                "the name of the key is empty, longer than 4 KiB, or not a single line of text",
            ));
        }
        Ok(Some(Self {
            name: name.to_owned(),
            resource: resource.to_owned(),
            attended,
        }))
    }

    /// Returns the name of the program.
    pub(super) fn program(&self) -> String {
        format!("sigstore-kms-{}", self.name)
    }

    /// Returns the name of the key in the plugin.
    pub(super) fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns `true` if cosign supports these keys without a plugin.
    pub(super) fn is_built_into_cosign(&self) -> bool {
        matches!(
            self.name.as_str(),
            "awskms" | "azurekms" | "gcpkms" | "hashivault" | "openbao"
        )
    }
}

impl fmt::Display for KmsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.name, display_resource(&self.resource))
    }
}

/// Returns the key's name without its query and without the text before `@`, because these parts
/// may contain a PIN or a password.
fn display_resource(resource: &str) -> String {
    let (plain, query) = match resource.split_once('?') {
        Some((plain, _)) => (plain, "?…"),
        None => (resource, ""),
    };
    match plain.split_once('@') {
        Some((before, rest)) if !before.contains('/') => format!("…@{rest}{query}"),
        _ => format!("{plain}{query}"),
    }
}

fn unusable(text: &str, why: &str) -> Finding {
    let shown: String = display_resource(text).chars().take(80).collect();
    Finding::error(
        codes::usage::BAD_ARGUMENT,
        format!("the key `{shown}` is invalid: {why}"),
    )
    .hint("pass a file, or NAME://RESOURCE for a key of the KMS plugin sigstore-kms-NAME on PATH")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_not_a_key_of_a_plugin() {
        for file in [
            "release.key",
            "./a:b",
            "/keys/release.key",
            r"C:\keys\a",
            "-",
        ] {
            assert_eq!(KmsKey::parse(file, false), Ok(None), "{file}");
        }
    }

    #[test]
    fn resource_is_everything_after_the_scheme() {
        for (text, program, resource, shown) in [
            (
                "my-hsm://slot/1?pin=2",
                "sigstore-kms-my-hsm",
                "slot/1?pin=2",
                "my-hsm://slot/1?…",
            ),
            (
                "vault://me:secret@host/key",
                "sigstore-kms-vault",
                "me:secret@host/key",
                "vault://…@host/key",
            ),
            (
                "files:///keys/a@b.pem",
                "sigstore-kms-files",
                "/keys/a@b.pem",
                "files:///keys/a@b.pem",
            ),
            ("a://b://c", "sigstore-kms-a", "b://c", "a://b://c"),
        ] {
            let key = KmsKey::parse(text, false).unwrap().unwrap();
            assert_eq!(
                (key.program().as_str(), key.resource()),
                (program, resource)
            );
            assert_eq!(key.to_string(), shown);
        }
    }

    #[test]
    fn rejects_names_with_path_separators() {
        for text in [
            "../evil://x",
            "a/b://x",
            r"a\b://x",
            "a.exe://x",
            "A://x",
            "ä://x",
            "a b://x",
            "://x",
            "a://",
            "a://x\ny",
            "a://x\0y",
            "pkcs11:token=x",
            "https://keys.example.com/a.pub",
            "k8s://default/key",
        ] {
            let finding = KmsKey::parse(text, false).unwrap_err();
            assert_eq!(finding.code, codes::usage::BAD_ARGUMENT, "{text}");
        }
        for long in [
            format!("{}://x", "a".repeat(65)),
            format!("a://{}", "x".repeat(4097)),
        ] {
            KmsKey::parse(&long, false).unwrap_err();
        }
    }
}
