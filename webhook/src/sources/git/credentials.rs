//! The Secret of a git source: user and password, or a private key and host keys.

use std::fmt;

use bundle_cluster::ByName;
use bundle_core::names::KubeName;
use bundle_core::review::source::git::GitTransport;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use zeroize::Zeroizing;

use crate::clients::git::{GitCredentials, ServerVerification};

/// User name for a Secret that contains only a token as its password. Servers ignore this name.
const TOKEN_USER: &str = "git";

/// Returns the types of Secrets with credentials for a protocol. A Secret of another type, such as
/// the token of a ServiceAccount, contains credentials for other servers.
fn types(transport: GitTransport) -> [&'static str; 2] {
    match transport {
        GitTransport::Https => ["Opaque", "kubernetes.io/basic-auth"],
        GitTransport::Ssh => ["Opaque", "kubernetes.io/ssh-auth"],
    }
}

/// The Secret of a git source cannot be used.
///
/// The text is the same for all reasons, and contains only the name that the requester wrote. The
/// log has the reason.
#[derive(Debug)]
pub(crate) struct GitSecretError {
    name: Option<KubeName>,
    transport: GitTransport,
}

impl std::error::Error for GitSecretError {}

#[cfg(test)]
impl GitSecretError {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: Some(name.parse().unwrap()),
            transport: GitTransport::Https,
        }
    }
}

impl fmt::Display for GitSecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, kind] = types(self.transport);
        let entries = match self.transport {
            GitTransport::Https => "username and password",
            GitTransport::Ssh => "ssh-privatekey and ssh-knownhosts",
        };
        match &self.name {
            Some(name) => write!(
                f,
                "secret {name}: it does not exist, is not of type Opaque or {kind}, has no entries {entries}, or cannot be read"
            ),
            None => write!(
                f,
                "auth.secret is not set, and ssh requires a Secret with the entries {entries}"
            ),
        }
    }
}

/// Reads the credentials in the Secret `name` of the system namespace. Returns `None` for https
/// without a Secret. Host keys are only required for verification.
pub(super) async fn read(
    secrets: &Api<Secret>,
    (transport, verification): (GitTransport, ServerVerification),
    name: Option<&KubeName>,
) -> Result<Option<GitCredentials>, GitSecretError> {
    let Some(name) = name else {
        return match transport {
            GitTransport::Https => Ok(None),
            GitTransport::Ssh => Err(GitSecretError {
                name: None,
                transport,
            }),
        };
    };
    let found = ByName(secrets).get_opt(name).await;
    let credentials = match found {
        Ok(secret) => credentials(secret, transport, verification).map_err(str::to_owned),
        // The error does not contain the body, because a body that cannot be parsed can contain
        // other secret data.
        Err(kube::Error::SerdeError(_)) => {
            Err("the response of the API server is not a Secret".to_owned())
        }
        Err(error) => Err(crate::chain(&error)),
    };
    credentials.map(Some).map_err(|reason| {
        let name = name.clone();
        tracing::warn!(
            namespace = secrets.namespace(),
            name = name.as_str(),
            reason,
            "cannot use the Secret of a git source"
        );
        GitSecretError {
            name: Some(name),
            transport,
        }
    })
}

/// Returns the credentials in a Secret, or the reason why the Secret contains no usable
/// credentials.
fn credentials(
    secret: Option<Secret>,
    transport: GitTransport,
    verification: ServerVerification,
) -> Result<GitCredentials, &'static str> {
    let secret = secret.ok_or("the Secret does not exist")?;
    let kind = secret.type_.as_deref().unwrap_or("Opaque");
    if !types(transport).contains(&kind) {
        return Err("its type is neither Opaque nor that of credentials for the protocol");
    }
    let mut data = secret.data.unwrap_or_default();
    let mut entry = |name: &str| data.remove(name).map(|bytes| bytes.0);
    match transport {
        GitTransport::Https => {
            let text = |bytes: Vec<u8>| {
                let text = String::from_utf8(bytes).ok();
                let text = text.filter(|text| !text.chars().any(char::is_control));
                text.ok_or("username or password is not text on one line")
            };
            let username = entry("username").map_or(Ok(TOKEN_USER.to_owned()), text)?;
            let password = entry("password").ok_or("it has no entry `password`")?;
            if username.contains(':') {
                return Err("username contains a colon");
            }
            Ok(GitCredentials::Basic {
                username,
                password: Zeroizing::new(text(password)?),
            })
        }
        GitTransport::Ssh => {
            let key = entry("ssh-privatekey").filter(|key| !key.is_empty());
            let hosts = match verification {
                ServerVerification::Required => {
                    entry("ssh-knownhosts").filter(|hosts| !hosts.is_empty())
                }
                ServerVerification::Skipped => Some(Vec::new()),
            };
            Ok(GitCredentials::Ssh {
                private_key: Zeroizing::new(key.ok_or("it has no entry `ssh-privatekey`")?),
                known_hosts: hosts.ok_or("it has no entry `ssh-knownhosts`")?,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn read(
        secret: Option<Secret>,
        transport: GitTransport,
    ) -> Result<GitCredentials, &'static str> {
        credentials(secret, transport, ServerVerification::Required)
    }

    fn secret(entries: &[(&str, &[u8])]) -> Secret {
        let entries = entries.iter();
        Secret {
            data: Some(
                entries
                    .map(|(name, bytes)| ((*name).to_owned(), ByteString(bytes.to_vec())))
                    .collect(),
            ),
            ..Secret::default()
        }
    }

    #[test]
    fn https_uses_user_and_password_or_a_token_alone() {
        for (entries, expected) in [
            (
                &[("username", &b"ana"[..]), ("password", b"secret")][..],
                ("ana", "secret"),
            ),
            (&[("password", b"token")], ("git", "token")),
        ] {
            let found = read(Some(secret(entries)), GitTransport::Https).unwrap();
            let GitCredentials::Basic { username, password } = found else {
                panic!("no user");
            };
            assert_eq!((username.as_str(), password.as_str()), expected);
        }
    }

    #[test]
    fn rejects_secrets_for_other_servers() {
        let https: &[(&str, &[u8])] = &[("username", b"ana"), ("password", b"secret")];
        let ssh: &[(&str, &[u8])] = &[("ssh-privatekey", b"key"), ("ssh-knownhosts", b"host")];
        for (entries, transport, kind, is_accepted) in [
            (https, GitTransport::Https, "Opaque", true),
            (https, GitTransport::Https, "kubernetes.io/basic-auth", true),
            (https, GitTransport::Https, "kubernetes.io/ssh-auth", false),
            (https, GitTransport::Https, "example.com/login", false),
            (ssh, GitTransport::Ssh, "Opaque", true),
            (ssh, GitTransport::Ssh, "kubernetes.io/ssh-auth", true),
            (ssh, GitTransport::Ssh, "kubernetes.io/basic-auth", false),
        ] {
            let secret = Secret {
                type_: Some(kind.to_owned()),
                ..secret(entries)
            };
            let found = read(Some(secret), transport);
            assert_eq!(found.is_ok(), is_accepted, "{kind}");
        }
    }

    #[test]
    fn rejects_secrets_without_the_entries_of_the_protocol() {
        let ssh: &[(&str, &[u8])] = &[("ssh-privatekey", b"key"), ("ssh-knownhosts", b"host")];
        assert!(read(Some(secret(ssh)), GitTransport::Ssh).is_ok());
        for (entries, transport) in [
            (ssh, GitTransport::Https),
            (&ssh[..1], GitTransport::Ssh),
            (&ssh[1..], GitTransport::Ssh),
            (
                &[("ssh-privatekey", b"key"), ("ssh-knownhosts", b"")],
                GitTransport::Ssh,
            ),
            (&[("username", b"ana")], GitTransport::Https),
            (
                &[("username", b"a:b"), ("password", b"x")],
                GitTransport::Https,
            ),
            (&[("password", b"x\r\nHost: other")], GitTransport::Https),
        ] {
            assert!(read(Some(secret(entries)), transport).is_err());
        }
        assert!(read(None, GitTransport::Ssh).is_err());
    }

    #[test]
    fn host_keys_are_not_required_without_verification() {
        let key: &[(&str, &[u8])] = &[("ssh-privatekey", b"key")];
        let ssh = |entries, verification| {
            credentials(Some(secret(entries)), GitTransport::Ssh, verification).is_ok()
        };
        assert!(ssh(key, ServerVerification::Skipped));
        assert!(!ssh(key, ServerVerification::Required));
        assert!(!ssh(&[], ServerVerification::Skipped));
    }
}
