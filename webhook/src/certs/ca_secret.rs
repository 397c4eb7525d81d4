//! The Secret with the trusted certificate authorities, for clients of the content service (RukPak:
//! `rukpak-ca`). It never contains a private key. The manifests of the installation create this
//! Secret, so that the pod needs no permission to create Secrets in the system namespace.

use std::collections::BTreeMap;

use bundle_cluster::ByName;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

/// The only data key of the Secret.
const AUTHORITIES: &str = "ca.crt";
/// The only allowed type of the Secret. A Secret of another type has another purpose, and is not
/// changed.
const TYPE: &str = "Opaque";
/// Maximum number of attempts to write the Secret. Each replica can cause one conflict.
const ATTEMPTS: usize = 10;

/// The reason why the authorities are not published.
#[derive(Debug, thiserror::Error)]
pub enum CaSecretError {
    /// A request to the API server failed.
    #[error("cannot {action} Secret {name} of --ca-secret")]
    Api {
        /// The failed action: `read` or `replace`.
        action: &'static str,
        /// Name of the Secret.
        name: String,
        /// The error of the request.
        source: kube::Error,
    },
    /// The Secret does not exist.
    #[error("Secret {name} of --ca-secret does not exist; create it without data")]
    Missing {
        /// Name of the Secret.
        name: String,
    },
    /// The Secret has another type, so it has another purpose.
    #[error("Secret {name} of --ca-secret has type {found}, not {TYPE}; it is not changed")]
    OtherType {
        /// Name of the Secret.
        name: String,
        /// Type of the Secret.
        found: String,
    },
    /// Another client changed the Secret after each read.
    #[error("Secret {name} of --ca-secret was changed by another client {ATTEMPTS} times")]
    Contended {
        /// Name of the Secret.
        name: String,
    },
}

/// Writes `trusted` (PEM) into the Secret. Writes nothing if the Secret already contains exactly
/// this data.
pub(super) async fn publish(
    secrets: &Api<Secret>,
    name: &str,
    trusted: &str,
) -> Result<(), CaSecretError> {
    let named = || name.to_owned();
    let failed = |action| {
        move |source| CaSecretError::Api {
            action,
            name: named(),
            source,
        }
    };
    let value = ByteString(trusted.as_bytes().to_vec());
    let data = BTreeMap::from([(AUTHORITIES.to_owned(), value)]);
    for _ in 0..ATTEMPTS {
        let stored = ByName(secrets)
            .get_opt(name)
            .await
            .map_err(failed("read"))?;
        let stored = stored.ok_or_else(|| CaSecretError::Missing { name: named() })?;
        let found = stored.type_.as_deref().unwrap_or(TYPE);
        if found != TYPE {
            return Err(CaSecretError::OtherType {
                name: named(),
                found: found.to_owned(),
            });
        }
        if stored.data.as_ref() == Some(&data) {
            return Ok(());
        }
        // Because of the resourceVersion, the second of two concurrent writes fails with a
        // conflict.
        let secret = Secret {
            data: Some(data.clone()),
            ..stored
        };
        match ByName(secrets).replace(name, &secret).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(source) => return Err(failed("replace")(source)),
        }
    }
    Err(CaSecretError::Contended { name: named() })
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};
    use serde_json::{Value, json};

    use super::super::secret::tests::{failure, scripted};
    use super::*;

    const PATH: &str = "/api/v1/namespaces/sys/secrets/rukpak-ca";

    fn secret(kind: &str, data: &Value) -> Value {
        json!({"metadata": {"name": "rukpak-ca", "resourceVersion": "1"}, "type": kind, "data": data})
    }

    #[tokio::test]
    async fn writes_only_the_authorities() {
        let old = json!({"ca.crt": "b2xk", "tls.key": "a2V5"});
        let (secrets, serving) = scripted(vec![
            (Method::GET, PATH, StatusCode::OK, secret(TYPE, &old)),
            (
                Method::PUT,
                PATH,
                StatusCode::CONFLICT,
                failure(409, "Conflict"),
            ),
            (Method::GET, PATH, StatusCode::OK, secret(TYPE, &old)),
            (Method::PUT, PATH, StatusCode::OK, secret(TYPE, &json!({}))),
        ]);
        publish(&secrets, "rukpak-ca", "new").await.unwrap();
        let sent = serving.await.unwrap();
        assert_eq!(sent[3]["data"], json!({"ca.crt": "bmV3"}));
    }

    #[tokio::test]
    async fn current_authorities_are_not_written_again() {
        let current = secret(TYPE, &json!({"ca.crt": "bmV3"}));
        let (secrets, serving) = scripted(vec![(Method::GET, PATH, StatusCode::OK, current)]);
        publish(&secrets, "rukpak-ca", "new").await.unwrap();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn missing_secret_and_secret_of_another_type_are_not_written() {
        let pull = secret("kubernetes.io/dockerconfigjson", &json!({}));
        for (status, found, message) in [
            (
                StatusCode::NOT_FOUND,
                failure(404, "NotFound"),
                "Secret rukpak-ca of --ca-secret does not exist; create it without data",
            ),
            (
                StatusCode::OK,
                pull,
                "Secret rukpak-ca of --ca-secret has type kubernetes.io/dockerconfigjson, not Opaque; it is not changed",
            ),
            (
                StatusCode::FORBIDDEN,
                failure(403, "Forbidden"),
                "cannot read Secret rukpak-ca of --ca-secret",
            ),
        ] {
            let (secrets, serving) = scripted(vec![(Method::GET, PATH, status, found)]);
            let error = publish(&secrets, "rukpak-ca", "new").await.unwrap_err();
            assert_eq!(error.to_string(), message);
            serving.await.unwrap();
        }
    }
}
