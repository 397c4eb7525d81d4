//! The Secret of an http source: user and password, or a token.

use bundle_cluster::ByName;
use bundle_core::names::KubeName;
use bundle_oci::registry::Login;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

/// Types of Secrets with credentials for a source. A Secret of another type, such as the token of a
/// ServiceAccount, contains credentials for other servers.
const TYPES: [&str; 2] = ["Opaque", "kubernetes.io/basic-auth"];

/// The Secret of an http source cannot be used.
///
/// The text is the same for all reasons, and contains only the name that the requester wrote. The
/// log has the reason.
#[derive(Debug, thiserror::Error)]
#[error(
    "secret {name}: it does not exist, is not of type Opaque or kubernetes.io/basic-auth, has neither username and password nor token, or cannot be read"
)]
pub(crate) struct HttpSecretError {
    name: KubeName,
}

impl HttpSecretError {
    pub(super) fn new(name: KubeName) -> Self {
        Self { name }
    }
}

/// Reads the credentials in the Secret `name`.
pub(super) async fn read(secrets: &Api<Secret>, name: &KubeName) -> Result<Login, HttpSecretError> {
    let login = match ByName(secrets).get_opt(name).await {
        Ok(Some(secret)) => login(secret).map_err(str::to_owned),
        Ok(None) => Err("the Secret does not exist".to_owned()),
        // The error does not contain the body, because a body that cannot be parsed can contain
        // other secret data.
        Err(kube::Error::SerdeError(_)) => {
            Err("the response of the API server is not a Secret".to_owned())
        }
        Err(error) => Err(crate::chain(&error)),
    };
    login.map_err(|reason| {
        tracing::warn!(
            namespace = secrets.namespace().unwrap_or_default(),
            name = name.as_str(),
            reason,
            "cannot use the Secret of an http source"
        );
        HttpSecretError::new(name.clone())
    })
}

/// Returns the credentials in a Secret, or the reason why the Secret contains no usable
/// credentials. The names of the data keys are the same as in RukPak. `token` is an additional key.
fn login(secret: Secret) -> Result<Login, &'static str> {
    let kind = secret.type_.as_deref().unwrap_or("Opaque");
    if !TYPES.contains(&kind) {
        return Err("its type is neither Opaque nor kubernetes.io/basic-auth");
    }
    let mut data = secret.data.unwrap_or_default();
    let mut entry = |name: &str| {
        let bytes = data.remove(name).map(|bytes| bytes.0);
        bytes.map(String::from_utf8).transpose()
    };
    let not_text = |_| "an entry is not text";
    let user = entry("username").map_err(not_text)?;
    let password = entry("password").map_err(not_text)?;
    let token = entry("token").map_err(not_text)?;
    match (user, password, token) {
        (Some(user), Some(password), _) if !user.contains(':') => {
            Ok(Login::Password { user, password })
        }
        (Some(_), Some(_), _) => Err("its username contains a colon"),
        (None, None, Some(token)) => {
            let token = token.trim().to_owned();
            if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err("its token is empty or has invalid characters");
            }
            Ok(Login::Bearer(token))
        }
        _ => Err("it has neither username and password nor token"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(kind: Option<&str>, entries: &[(&str, &[u8])]) -> Result<Login, &'static str> {
        let data = entries.iter().map(|(name, bytes)| {
            let bytes = k8s_openapi::ByteString(bytes.to_vec());
            ((*name).to_owned(), json!(bytes))
        });
        let data: serde_json::Map<String, Value> = data.collect();
        login(serde_json::from_value(json!({"type": kind, "data": data})).unwrap())
    }

    #[test]
    fn reads_the_entries_of_rukpak_and_tokens() {
        let entries: [(&str, &[u8]); 2] = [("username", b"ana"), ("password", b"s3cret")];
        let password = Login::Password {
            user: "ana".to_owned(),
            password: "s3cret".to_owned(),
        };
        for kind in [None, Some("Opaque"), Some("kubernetes.io/basic-auth")] {
            assert!(parse(kind, &entries) == Ok(password.clone()));
        }
        let token = parse(None, &[("token", b"t0ken\n")]);
        assert!(token == Ok(Login::Bearer("t0ken".to_owned())));
    }

    #[test]
    fn rejects_secrets_for_other_servers_and_incomplete_ones() {
        for (kind, entries, expected) in [
            (
                "kubernetes.io/service-account-token",
                &[("token", &b"t0ken"[..])][..],
                "its type is neither",
            ),
            ("kubernetes.io/tls", &[("tls.key", b"key")], "its type"),
            ("Opaque", &[], "neither username and password nor token"),
            ("Opaque", &[("username", b"ana")], "neither username"),
            (
                "Opaque",
                &[("username", b"ana"), ("token", b"t0ken")],
                "neither username",
            ),
            ("Opaque", &[("token", b"t0\nken")], "invalid characters"),
            ("Opaque", &[("token", b"\xff")], "is not text"),
            (
                "Opaque",
                &[("username", b"a:b"), ("password", b"c")],
                "a colon",
            ),
        ] {
            let Err(why) = parse(Some(kind), entries) else {
                panic!("{kind} is accepted");
            };
            assert!(why.contains(expected), "{kind}: {why}");
        }
    }
}
