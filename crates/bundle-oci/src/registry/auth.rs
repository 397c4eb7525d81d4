//! Whose name we use at a registry: credentials that were given, pull secrets, and docker's and podman's files.
//! Not here: the format of those files (stored), the tokens that logins buy (token), when to use them (transport).

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::files::read_bounded;
use super::login::Login;
use super::stored::{Helpers, Stored};
use crate::limits::CREDENTIAL_BYTES;

/// Where logins come from, first found first taken: those that were given, then the content of pull secrets, then files.
#[derive(Debug, Clone, Default)]
pub struct Logins {
    /// By registry (host and port).
    pub given: BTreeMap<String, Login>,
    /// The content of `.dockerconfigjson` secrets. What they say of helper programs is not followed: they come from the cluster.
    pub secrets: Vec<Vec<u8>>,
    /// Files as `docker login` and `podman login` write them, with their helper programs. Those that do not exist are passed over.
    pub files: Vec<PathBuf>,
}

/// Why a pull secret is not used: one text for all reasons, so that who names Secrets does not learn which exist.
pub const UNUSABLE_PULL_SECRET: &str =
    "it does not exist, is not of type kubernetes.io/dockerconfigjson, or cannot be read";

impl Logins {
    /// Whether `content` is a docker configuration, as pull secrets hold it.
    pub fn are_readable(content: &[u8]) -> bool {
        Stored::read(content).is_ok()
    }

    /// Nobody in particular, everywhere.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// The login for a repository, if there is one. Blocks: it may run a helper program. The error says which source is at fault.
    pub(super) fn find(&self, registry: &str, path: &str) -> Result<Option<Login>, String> {
        if let Some(login) = self.given.get(registry) {
            return Ok(Some(login.clone()));
        }
        for secret in &self.secrets {
            let found = Stored::read(secret)
                .and_then(|stored| stored.login(registry, path, Helpers::Ignored))
                .map_err(|_| format!("a pull secret: {UNUSABLE_PULL_SECRET}"))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        for file in &self.files {
            let content = match read_bounded(file, CREDENTIAL_BYTES) {
                Ok(content) => content,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error.to_string()),
            };
            let found = Stored::read(&content)
                .and_then(|stored| stored.login(registry, path, Helpers::Asked))
                .map_err(|why| format!("{why}, in `{}`", file.display()))?;
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
    fn reads_what_docker_login_writes() {
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
    fn a_damaged_file_is_not_taken_for_an_empty_one() {
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
        assert_eq!(logins.find("registry.example.com", "web"), Ok(None));
        fs_err::write(&file, "{").unwrap();
        let why = logins.find("registry.example.com", "web").unwrap_err();
        assert!(why.contains("config.json"), "{why}");
    }

    #[test]
    fn a_secret_starts_no_program() {
        let logins =
            logins(r#"{"credsStore":"evil","credHelpers":{"registry.example.com":"evil"}}"#);
        assert_eq!(logins.find("registry.example.com", "web"), Ok(None));
    }

    #[test]
    fn secrets_are_not_printed() {
        let login = Login::Password {
            user: "ana".into(),
            password: "s3cret".into(),
        };
        assert_eq!(format!("{login:?}"), "Login(as ana)");
    }
}
