//! Credentials of registries: explicit credentials, pull secrets, and the credential files of
//! docker and podman.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::limits::CREDENTIAL_BYTES;
use crate::registry::auth::credential_file::{CredentialFile, HelperUse};
use crate::registry::auth::login::Login;
use crate::registry::bounded_file::read_bounded;
use crate::registry::credential_error::CredentialError;

/// Sources of credentials. They are tried in this order until one has a login: `explicit`,
/// `secrets`, `files`.
#[derive(Debug, Clone, Default)]
pub struct Logins {
    /// Explicit credentials, by registry (host and port).
    pub explicit: BTreeMap<String, Login>,
    /// Content of `.dockerconfigjson` Secrets. Credential helpers in these Secrets are ignored,
    /// because Secrets come from the cluster.
    pub secrets: Vec<Vec<u8>>,
    /// Credential files in the format of `docker login` and `podman login`, with their credential
    /// helpers. Missing files are ignored.
    pub files: Vec<PathBuf>,
}

impl Logins {
    /// Returns `true` if `content` is a docker configuration, the format of pull secrets.
    pub fn are_readable(content: &[u8]) -> bool {
        CredentialFile::read(content).is_ok()
    }

    /// Returns a value without sources, so that all requests are anonymous.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Returns the login for a repository. `None` if no source has a login. This function blocks,
    /// because it may run a credential helper. The error names the source that failed.
    pub(in crate::registry) fn find(
        &self,
        registry: &str,
        path: &str,
    ) -> Result<Option<Login>, CredentialError> {
        if let Some(login) = self.explicit.get(registry) {
            return Ok(Some(login.clone()));
        }
        for secret in &self.secrets {
            let found = CredentialFile::read(secret)
                .and_then(|stored| stored.login(registry, path, HelperUse::Ignored))
                .map_err(|_| CredentialError::PullSecret)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        for file in &self.files {
            let content = match read_bounded(file, CREDENTIAL_BYTES) {
                Ok(content) => content,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(CredentialError::Unreadable(Arc::new(error))),
            };
            let found = CredentialFile::read(&content)
                .and_then(|stored| stored.login(registry, path, HelperUse::Asked))
                .map_err(|source| CredentialError::File {
                    file: file.clone(),
                    source,
                })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logins(json: &str) -> Logins {
        Logins {
            secrets: vec![json.as_bytes().to_vec()],
            ..Logins::default()
        }
    }

    #[test]
    fn reads_files_of_docker_login() {
        let logins = logins(r#"{"auths":{"registry.example.com":{"auth":"YW5hOnMzY3JldA=="}}}"#);
        assert_eq!(
            logins.find("registry.example.com", "web").unwrap(),
            Some(Login::Password {
                user: "ana".into(),
                password: "s3cret".into()
            })
        );
        assert_eq!(logins.find("other.example.com", "web").unwrap(), None);
    }

    #[test]
    fn damaged_file_is_an_error() {
        for json in [
            "not json",
            r#"{"auths":{"registry.example.com":{"auth":"%%%"}}}"#,
        ] {
            assert!(
                logins(json).find("registry.example.com", "web").is_err(),
                "{json}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        let logins = Logins {
            files: vec![file.clone()],
            ..Logins::default()
        };
        assert_eq!(logins.find("registry.example.com", "web").unwrap(), None);
        fs_err::write(&file, "{").unwrap();
        let error = logins.find("registry.example.com", "web").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "`{}`: the file is not a docker configuration",
                file.display()
            )
        );
    }

    #[test]
    fn credential_helpers_in_pull_secrets_are_ignored() {
        let logins =
            logins(r#"{"credsStore":"evil","credHelpers":{"registry.example.com":"evil"}}"#);
        assert_eq!(logins.find("registry.example.com", "web").unwrap(), None);
    }

    #[test]
    fn debug_output_hides_secrets() {
        let login = Login::Password {
            user: "ana".into(),
            password: "s3cret".into(),
        };
        assert_eq!(format!("{login:?}"), "Login(as ana)");
    }
}
