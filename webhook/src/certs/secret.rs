//! Reads, creates and replaces the Secrets with the certificates and the stamp key. The API server
//! detects conflicts between replicas. The module `material` decides when a renewal is due.

use std::collections::BTreeMap;

use bundle_cluster::ByName;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use rand::RngCore as _;

use super::material::{CertificateMaterial, MaterialError, RenewalDue, create_again, due, renew};
use crate::config::stamp_key::StampKey;

/// Name of the Secret with the certificate authority and the serving certificate.
const TLS: &str = "bundle-webhook-tls";
/// Name of the Secret with the stamp key.
const STAMP: &str = "bundle-webhook-stamp";

const AUTHORITY_KEY: &str = "ca.key";
const AUTHORITY: &str = "ca.crt";
const TRUSTED: &str = "ca-bundle.crt";
const KEY: &str = "tls.key";
const CERTIFICATE: &str = "tls.crt";
const STAMP_KEY: &str = "key";

const STAMP_KEY_BYTES: usize = 32;
/// Maximum number of attempts to write a Secret. Each replica can cause one conflict.
const ATTEMPTS: usize = 10;

/// The reason why a Secret is not usable.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// A request to the API server failed.
    #[error("cannot {action} Secret {name}")]
    Api {
        /// The failed action: `read`, `create` or `replace`.
        action: &'static str,
        /// Name of the Secret.
        name: &'static str,
        /// The error of the request.
        source: kube::Error,
    },
    /// The content of the Secret is invalid, or new content cannot be created.
    #[error(transparent)]
    Material(#[from] MaterialError),
    /// Another client changed the Secret after each read.
    #[error("Secret {name} was changed by another client {ATTEMPTS} times")]
    Contended {
        /// Name of the Secret.
        name: &'static str,
    },
}

/// The decision after reading a Secret.
pub(super) enum SecretDecision<T> {
    Keep(T),
    Write(BTreeMap<String, ByteString>),
}

/// Returns the certificates that all replicas share. Creates the certificates if they do not exist,
/// and renews them if a renewal is due at `now`. `known` contains the certificates of the last
/// call.
pub(super) async fn tls(
    secrets: &Api<Secret>,
    names: &[String],
    now: Timestamp,
    known: Option<&CertificateMaterial>,
) -> Result<CertificateMaterial, SecretError> {
    let create = || create_again(known, names, now).map(write);
    read_or_write(secrets, TLS, |data| {
        let Some(old) = data.map(read) else {
            return Ok(SecretDecision::Write(create()?));
        };
        // An invalid Secret is replaced, because the listener needs a certificate.
        let step = old.as_ref().map(|old| due(old, names, now));
        match (old, step) {
            (Some(old), Some(Ok(RenewalDue::Nothing))) => Ok(SecretDecision::Keep(old)),
            (Some(old), Some(Ok(step))) => {
                tracing::info!(?step, "renewing certificates");
                Ok(SecretDecision::Write(write(renew(&old, step, names, now)?)))
            }
            _ => {
                tracing::warn!(
                    "Secret {TLS} is incomplete or invalid; the Secret is created again"
                );
                Ok(SecretDecision::Write(create()?))
            }
        }
    })
    .await
}

/// Returns the stamp key that all replicas share. Creates the key if the Secret has no valid key.
pub(super) async fn stamp(secrets: &Api<Secret>) -> Result<StampKey, SecretError> {
    read_or_write(secrets, STAMP, |data| {
        let key = data.and_then(|data| data.get(STAMP_KEY));
        if let Some(key) = key.filter(|key| key.0.len() >= STAMP_KEY_BYTES) {
            return Ok(SecretDecision::Keep(StampKey::new(key.0.clone())));
        }
        if data.is_some() {
            tracing::warn!(
                "Secret {STAMP} has no key of {STAMP_KEY_BYTES} bytes; a new key is created: \
                objects with a stamp of the former key must be written again"
            );
        }
        let mut key = vec![0; STAMP_KEY_BYTES];
        rand::rng().fill_bytes(&mut key);
        Ok(SecretDecision::Write(BTreeMap::from([(
            STAMP_KEY.to_owned(),
            ByteString(key),
        )])))
    })
    .await
}

/// Reads a Secret and calls `decide`. Writes the content that `decide` returns, and reads again,
/// until `decide` keeps the stored content. Therefore the returned value is always stored in the
/// Secret.
pub(super) async fn read_or_write<T>(
    secrets: &Api<Secret>,
    name: &'static str,
    decide: impl Fn(Option<&BTreeMap<String, ByteString>>) -> Result<SecretDecision<T>, MaterialError>,
) -> Result<T, SecretError> {
    for _ in 0..ATTEMPTS {
        let failed = |action| {
            move |source| SecretError::Api {
                action,
                name,
                source,
            }
        };
        let stored = ByName(secrets)
            .get_opt(name)
            .await
            .map_err(failed("read"))?;
        let none = BTreeMap::new();
        let data = stored
            .as_ref()
            .map(|secret| secret.data.as_ref().unwrap_or(&none));
        let data = match decide(data)? {
            SecretDecision::Keep(value) => return Ok(value),
            SecretDecision::Write(data) => data,
        };
        let (action, outcome) = match stored {
            None => {
                let secret = Secret {
                    metadata: ObjectMeta {
                        name: Some(name.to_owned()),
                        ..ObjectMeta::default()
                    },
                    data: Some(data),
                    ..Secret::default()
                };
                let created = secrets.create(&PostParams::default(), &secret).await;
                ("create", created)
            }
            // Because of the resourceVersion, the second of two concurrent writes fails with a
            // conflict.
            Some(secret) => {
                let secret = Secret {
                    data: Some(data),
                    ..secret
                };
                let replaced = ByName(secrets).replace(name, &secret).await;
                ("replace", replaced)
            }
        };
        match outcome {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(source) => return Err(failed(action)(source)),
        }
    }
    Err(SecretError::Contended { name })
}

fn read(data: &BTreeMap<String, ByteString>) -> Option<CertificateMaterial> {
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    Some(CertificateMaterial {
        authority_key: text(AUTHORITY_KEY)?,
        authority: text(AUTHORITY)?,
        trusted: text(TRUSTED)?,
        key: text(KEY)?,
        certificate: text(CERTIFICATE)?,
    })
}

fn write(material: CertificateMaterial) -> BTreeMap<String, ByteString> {
    [
        (AUTHORITY_KEY, material.authority_key),
        (AUTHORITY, material.authority),
        (TRUSTED, material.trusted),
        (KEY, material.key),
        (CERTIFICATE, material.certificate),
    ]
    .map(|(key, pem)| (key.to_owned(), ByteString(pem.into_bytes())))
    .into()
}

#[cfg(test)]
pub(super) mod tests {
    use http::{Method, Request, Response, StatusCode};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::super::material::create;
    use super::*;

    /// Returns an API server that expects these requests in this order, and sends these responses.
    /// The task returns the bodies of the requests. The body is null for a request without a body.
    pub(in crate::certs) fn scripted(
        script: Vec<(Method, &'static str, StatusCode, Value)>,
    ) -> (Api<Secret>, tokio::task::JoinHandle<Vec<Value>>) {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let serving = tokio::spawn(async move {
            let mut bodies = Vec::new();
            for (method, path, status, body) in script {
                let (request, reply) = server.next_request().await.unwrap();
                assert_eq!((request.method(), request.uri().path()), (&method, path));
                let sent = request.into_body().collect_bytes().await.unwrap();
                bodies.push(serde_json::from_slice(&sent).unwrap_or_default());
                let body = Body::from(serde_json::to_vec(&body).unwrap());
                let answer = Response::builder().status(status).body(body).unwrap();
                reply.send_response(answer);
            }
            bodies
        });
        let client = Client::new(service, "sys");
        (Api::namespaced(client, "sys"), serving)
    }

    pub(in crate::certs) fn failure(code: u16, reason: &str) -> Value {
        json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "" })
    }

    fn secret(name: &str, version: &str, data: &BTreeMap<String, ByteString>) -> Value {
        json!({ "metadata": { "name": name, "resourceVersion": version }, "data": data })
    }

    const ALL: &str = "/api/v1/namespaces/sys/secrets";
    const ONE: &str = "/api/v1/namespaces/sys/secrets/bundle-webhook-stamp";
    const TLS_ONE: &str = "/api/v1/namespaces/sys/secrets/bundle-webhook-tls";

    #[tokio::test]
    async fn replicas_that_start_together_use_the_key_that_was_stored_first() {
        let first = BTreeMap::from([(STAMP_KEY.to_owned(), ByteString(vec![7; 32]))]);
        let (secrets, serving) = scripted(vec![
            (
                Method::GET,
                ONE,
                StatusCode::NOT_FOUND,
                failure(404, "NotFound"),
            ),
            (
                Method::POST,
                ALL,
                StatusCode::CONFLICT,
                failure(409, "AlreadyExists"),
            ),
            (Method::GET, ONE, StatusCode::OK, secret(STAMP, "1", &first)),
        ]);
        let key = stamp(&secrets).await.unwrap();
        assert_eq!(key.bytes(), [7; 32]);
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn key_that_is_too_short_is_replaced() {
        let short = BTreeMap::from([(STAMP_KEY.to_owned(), ByteString(vec![7; 8]))]);
        let long = BTreeMap::from([(STAMP_KEY.to_owned(), ByteString(vec![8; 32]))]);
        let (secrets, serving) = scripted(vec![
            (Method::GET, ONE, StatusCode::OK, secret(STAMP, "1", &short)),
            (Method::PUT, ONE, StatusCode::OK, secret(STAMP, "2", &long)),
            (Method::GET, ONE, StatusCode::OK, secret(STAMP, "2", &long)),
        ]);
        assert_eq!(stamp(&secrets).await.unwrap().bytes(), [8; 32]);
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn invalid_certificates_are_created_again_and_valid_ones_kept() {
        let now = Timestamp::now();
        let names = ["hook.sys.svc".to_owned()];
        let good = write(create(&names, now).unwrap());
        let mut spoilt = good.clone();
        // The Secret contains the key of another certificate.
        let other = write(create(&names, now).unwrap());
        spoilt.insert(KEY.to_owned(), other[KEY].clone());
        let (secrets, serving) = scripted(vec![
            (
                Method::GET,
                TLS_ONE,
                StatusCode::OK,
                secret(TLS, "1", &spoilt),
            ),
            (
                Method::PUT,
                TLS_ONE,
                StatusCode::OK,
                secret(TLS, "2", &good),
            ),
            (
                Method::GET,
                TLS_ONE,
                StatusCode::OK,
                secret(TLS, "2", &good),
            ),
        ]);
        let material = tls(&secrets, &names, now, None).await.unwrap();
        assert!(write(material) == good);
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn error_names_the_action_and_the_secret() {
        let (secrets, serving) = scripted(vec![(
            Method::GET,
            ONE,
            StatusCode::FORBIDDEN,
            failure(403, "Forbidden"),
        )]);
        let Err(error) = stamp(&secrets).await else {
            panic!("a key out of nowhere");
        };
        assert_eq!(error.to_string(), "cannot read Secret bundle-webhook-stamp");
        serving.await.unwrap();
    }
}
