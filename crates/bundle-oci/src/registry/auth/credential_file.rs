//! Credential files of `docker login` and `podman login`. Selects the entry for a repository, and
//! parses the entry.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use docker_credential::{CredentialRetrievalError, DockerCredential};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::registry::auth::login::Login;
use crate::registry::credential_error::CredentialFileError;

/// Handling of the credential helpers that a file names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::registry) enum HelperUse {
    Asked,
    Ignored,
}

/// A credential file.
#[derive(Debug, Deserialize)]
pub(in crate::registry) struct CredentialFile {
    #[serde(default)]
    auths: Option<BTreeMap<String, Value>>,
    #[serde(default, rename = "credHelpers")]
    helpers: Option<BTreeMap<String, String>>,
    #[serde(default, rename = "credsStore")]
    store: Option<String>,
}

impl CredentialFile {
    /// Parses the file.
    pub(in crate::registry) fn read(content: &[u8]) -> Result<Self, CredentialFileError> {
        serde_json::from_slice(content).map_err(|_| CredentialFileError::NotAConfiguration)
    }

    /// Returns the login for a repository. As in docker and podman, the first of these sources is
    /// used: the credential helper of the registry, the entry in `auths`, the default credential
    /// store.
    pub(in crate::registry) fn login(
        &self,
        registry: &str,
        path: &str,
        helpers: HelperUse,
    ) -> Result<Option<Login>, CredentialFileError> {
        let ask = |server: &str, helper: &String| {
            decode(&json!({ "credHelpers": { server: helper } }), server)
        };
        let server = server(registry);
        if helpers == HelperUse::Asked
            && let Some(helper) = self
                .helpers
                .as_ref()
                .and_then(|helpers| helpers.get(registry).or_else(|| helpers.get(server)))
        {
            return ask(server, helper);
        }
        if let Some(login) = self
            .entry(registry, path)
            .map(|entry| from_entry(server, entry))
            .transpose()?
            .flatten()
        {
            return Ok(Some(login));
        }
        match &self.store {
            Some(store) if helpers == HelperUse::Asked && !store.is_empty() => ask(server, store),
            _ => Ok(None),
        }
    }

    /// Returns the entry for the repository. If several entries match, the entry with the longest
    /// name is used: podman writes names such as `REGISTRY/NAMESPACE`. An entry in docker's older
    /// form (`https://REGISTRY/v1/`) is used only if no other entry matches.
    fn entry(&self, registry: &str, path: &str) -> Option<&Value> {
        let auths = self.auths.as_ref()?;
        let mut name = format!("{registry}/{path}");
        loop {
            if let Some(entry) = auths.get(&name) {
                return Some(entry);
            }
            match name.rfind('/') {
                Some(end) => name.truncate(end),
                None => break,
            }
        }
        let host = |text: &str| text.split('/').next().unwrap_or_default().to_owned();
        let wanted = bare(server(registry)).map_or_else(|| registry.to_owned(), host);
        auths
            .iter()
            .find(|(key, _)| bare(key).is_some_and(|rest| host(rest) == wanted))
            .map(|(_, entry)| entry)
    }
}

/// Removes `https://` or `http://` from a key of docker's older form. Returns `None` for a key
/// without a scheme.
fn bare(key: &str) -> Option<&str> {
    key.strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
}

/// Returns the name that docker's credential files and credential helpers use for a registry.
fn server(registry: &str) -> &str {
    match registry {
        "docker.io" | "index.docker.io" => "https://index.docker.io/v1/",
        registry => registry,
    }
}

fn from_entry(server: &str, entry: &Value) -> Result<Option<Login>, CredentialFileError> {
    let text = |name: &str| {
        entry
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    if let Some(token) = text("registrytoken") {
        return Ok(Some(Login::Bearer(token.to_owned())));
    }
    if let Some(token) = text("identitytoken") {
        return Ok(Some(Login::IdentityToken(token.to_owned())));
    }
    // docker writes an empty entry if the credentials are in docker's credential store.
    if text("auth").is_none() && text("username").is_none() {
        return Ok(None);
    }
    // In an entry with `auth`, docker ignores the other fields.
    let entry = match text("auth") {
        Some(auth) => json!({ "auth": auth.trim_end_matches('\0') }),
        None => {
            json!({ "username": text("username"), "password": text("password").unwrap_or_default() })
        }
    };
    decode(&json!({ "auths": { server: entry } }), server)
}

/// Returns the login for `server` from a docker configuration. The configuration has either one
/// entry, which is decoded, or one credential helper, which is run.
fn decode(configuration: &Value, server: &str) -> Result<Option<Login>, CredentialFileError> {
    let content = Cursor::new(configuration.to_string());
    match docker_credential::get_credential_from_reader(content, server) {
        Ok(DockerCredential::IdentityToken(token)) => Ok(Some(Login::IdentityToken(token))),
        Ok(DockerCredential::UsernamePassword(user, password)) => {
            if user == "<token>" {
                // Credential helpers return an identity token as the password of the user
                // `<token>`.
                return Ok(Some(Login::IdentityToken(password)));
            }
            Ok((!user.is_empty() || !password.is_empty())
                .then_some(Login::Password { user, password }))
        }
        Err(CredentialRetrievalError::NoCredentialConfigured) => Ok(None),
        // A credential helper without credentials fails with this message. Its protocol has no
        // other way to report missing credentials.
        Err(CredentialRetrievalError::HelperFailure { stdout, stderr, .. })
            if [&stdout, &stderr]
                .iter()
                .any(|text| text.contains("credentials not found")) =>
        {
            Ok(None)
        }
        Err(CredentialRetrievalError::HelperFailure {
            helper,
            stdout,
            stderr,
        }) => {
            let said = [stderr.trim(), stdout.trim()].join(" ");
            Err(CredentialFileError::HelperFailed {
                helper,
                output: said.trim().chars().take(200).collect(),
            })
        }
        Err(CredentialRetrievalError::HelperCommunicationError) => {
            Err(CredentialFileError::HelperNotStarted(names(configuration)))
        }
        Err(CredentialRetrievalError::ConfigReadError) => {
            Err(CredentialFileError::NotAConfiguration)
        }
        Err(error) => Err(CredentialFileError::Invalid(Arc::new(error))),
    }
}

/// Returns the name of the only credential helper in a configuration.
fn names(configuration: &Value) -> String {
    configuration["credHelpers"]
        .as_object()
        .and_then(|helpers| helpers.values().next())
        .and_then(Value::as_str)
        .map(|name| format!("`docker-credential-{name}`"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(json: &str, registry: &str, path: &str) -> Option<Login> {
        let stored = CredentialFile::read(json.as_bytes()).unwrap();
        stored.login(registry, path, HelperUse::Ignored).unwrap()
    }

    fn who(json: &str, registry: &str, path: &str) -> String {
        login(json, registry, path).map_or_else(String::new, |login| login.who())
    }

    #[test]
    fn longest_matching_name_wins() {
        // The values of `auth` are the base64 forms of ana:a, ben:b and eve:e.
        let json = r#"{"auths":{
            "registry.example.com":{"auth":"YW5hOmE="},
            "registry.example.com/team":{"auth":"YmVuOmI="},
            "registry.example.com/team/web":{"auth":"ZXZlOmU="},
            "registry.example.com/te":{"auth":"%"}}}"#;
        for (path, name) in [
            ("other/web", "as ana"),
            ("team/api", "as ben"),
            ("team/web", "as eve"),
            ("team/web/sub", "as eve"),
            ("teams", "as ana"),
        ] {
            assert_eq!(who(json, "registry.example.com", path), name, "{path}");
        }
        assert_eq!(who(json, "registry.example.com:5000", "team/web"), "");
    }

    #[test]
    fn reads_older_forms_of_docker_files() {
        let json = r#"{"auths":{"https://registry.example.com/v2/":{"auth":"YW5hOmE="},
            "https://index.docker.io/v1/":{"auth":"YmVuOmI="}}}"#;
        assert_eq!(who(json, "registry.example.com", "web"), "as ana");
        assert_eq!(who(json, "docker.io", "library/web"), "as ben");
        assert_eq!(who(json, "example.com", "web"), "");
    }

    #[test]
    fn tokens_precede_passwords_and_empty_entries_are_ignored() {
        let json = r#"{"auths":{"a":{"auth":"YW5hOmE=","identitytoken":"i"},"b":{"registrytoken":"r"},"c":{},
            "d":{"username":"dan","password":"d"}}}"#;
        assert_eq!(
            login(json, "a", "x"),
            Some(Login::IdentityToken("i".into()))
        );
        assert_eq!(login(json, "b", "x"), Some(Login::Bearer("r".into())));
        assert_eq!(login(json, "c", "x"), None);
        assert_eq!(who(json, "d", "x"), "as dan");
    }
}
