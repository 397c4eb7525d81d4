//! Our two Secrets: read, created if absent, replaced when due. Races between replicas are settled by the API server.
//! Not here: what a certificate is and when it is due (material).

use std::collections::BTreeMap;

use bundle_cluster::ByName;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use rand::RngCore as _;

use super::material::{Due, Material, MaterialError, create, due, renew};
use crate::shared::StampKey;

/// Authority and serving certificate.
const TLS: &str = "bundle-webhook-tls";
/// The key of the admission stamp.
const STAMP: &str = "bundle-webhook-stamp";

const AUTHORITY_KEY: &str = "ca.key";
const AUTHORITY: &str = "ca.crt";
const TRUSTED: &str = "ca-bundle.crt";
const KEY: &str = "tls.key";
const CERTIFICATE: &str = "tls.crt";
const STAMP_KEY: &str = "key";

const STAMP_KEY_BYTES: usize = 32;
/// Others win a race at most as often as there are replicas.
const ATTEMPTS: usize = 10;

/// Why a Secret of ours is not in order.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The API server refused or was not to be reached.
    #[error("cannot {action} Secret {name}")]
    Api {
        /// `read`, `create` or `replace`.
        action: &'static str,
        /// Which.
        name: &'static str,
        /// Why.
        source: kube::Error,
    },
    /// What is in it cannot be used, or nothing could be made.
    #[error(transparent)]
    Material(#[from] MaterialError),
    /// Somebody else changed it each time that we had read it.
    #[error("Secret {name} changed under our hands {ATTEMPTS} times")]
    Contended {
        /// Which.
        name: &'static str,
    },
}

/// What to do with a Secret after a look at it.
pub(super) enum Next<T> {
    Keep(T),
    Write(BTreeMap<String, ByteString>),
}

/// The certificate material that all replicas share, made or renewed if that is due at `now`.
pub(super) async fn tls(
    secrets: &Api<Secret>,
    names: &[String],
    now: Timestamp,
) -> Result<Material, SecretError> {
    settle(secrets, TLS, |data| {
        let Some(old) = data.map(read) else {
            return Ok(Next::Write(write(create(names, now)?)));
        };
        // What somebody has spoilt is made anew: serving no certificate helps nobody.
        let step = old.as_ref().map(|old| due(old, names, now));
        match (old, step) {
            (Some(old), Some(Ok(Due::Nothing))) => Ok(Next::Keep(old)),
            (Some(old), Some(Ok(step))) => {
                tracing::info!(?step, "renewing certificates");
                Ok(Next::Write(write(renew(&old, step, names, now)?)))
            }
            _ => {
                tracing::warn!("Secret {TLS} is incomplete or unreadable; making it anew");
                Ok(Next::Write(write(create(names, now)?)))
            }
        }
    })
    .await
}

/// The stamp key that all replicas share, made if there is none.
pub(super) async fn stamp(secrets: &Api<Secret>) -> Result<StampKey, SecretError> {
    settle(secrets, STAMP, |data| {
        let key = data.and_then(|data| data.get(STAMP_KEY));
        if let Some(key) = key.filter(|key| key.0.len() >= STAMP_KEY_BYTES) {
            return Ok(Next::Keep(StampKey::new(key.0.clone())));
        }
        if data.is_some() {
            tracing::warn!(
                "Secret {STAMP} holds no key of {STAMP_KEY_BYTES} bytes; making one: what was stamped before must be written again"
            );
        }
        let mut key = vec![0; STAMP_KEY_BYTES];
        rand::rng().fill_bytes(&mut key);
        Ok(Next::Write(BTreeMap::from([(
            STAMP_KEY.to_owned(),
            ByteString(key),
        )])))
    })
    .await
}

/// Reads, decides, writes; and reads again, so that what is returned is always what is stored.
pub(super) async fn settle<T>(
    secrets: &Api<Secret>,
    name: &'static str,
    decide: impl Fn(Option<&BTreeMap<String, ByteString>>) -> Result<Next<T>, MaterialError>,
) -> Result<T, SecretError> {
    for _ in 0..ATTEMPTS {
        let told = |action| {
            move |source| SecretError::Api {
                action,
                name,
                source,
            }
        };
        let stored = ByName(secrets).get_opt(name).await.map_err(told("read"))?;
        let none = BTreeMap::new();
        let data = stored
            .as_ref()
            .map(|secret| secret.data.as_ref().unwrap_or(&none));
        let data = match decide(data)? {
            Next::Keep(value) => return Ok(value),
            Next::Write(data) => data,
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
            // The resourceVersion goes along: who comes second is told so.
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
            Err(source) => return Err(told(action)(source)),
        }
    }
    Err(SecretError::Contended { name })
}

fn read(data: &BTreeMap<String, ByteString>) -> Option<Material> {
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    Some(Material {
        authority_key: text(AUTHORITY_KEY)?,
        authority: text(AUTHORITY)?,
        trusted: text(TRUSTED)?,
        key: text(KEY)?,
        certificate: text(CERTIFICATE)?,
    })
}

fn write(material: Material) -> BTreeMap<String, ByteString> {
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
mod tests {
    use http::{Method, Request, Response, StatusCode};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server that expects these requests in this order, and gives these answers.
    fn scripted(
        script: Vec<(Method, &'static str, StatusCode, Value)>,
    ) -> (Api<Secret>, tokio::task::JoinHandle<()>) {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let serving = tokio::spawn(async move {
            for (method, path, status, body) in script {
                let (request, reply) = server.next_request().await.unwrap();
                assert_eq!((request.method(), request.uri().path()), (&method, path));
                let body = Body::from(serde_json::to_vec(&body).unwrap());
                let answer = Response::builder().status(status).body(body).unwrap();
                reply.send_response(answer);
            }
        });
        let client = Client::new(service, "sys");
        (Api::namespaced(client, "sys"), serving)
    }

    fn failure(code: u16, reason: &str) -> Value {
        json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "" })
    }

    fn secret(name: &str, version: &str, data: &BTreeMap<String, ByteString>) -> Value {
        json!({ "metadata": { "name": name, "resourceVersion": version }, "data": data })
    }

    const ALL: &str = "/api/v1/namespaces/sys/secrets";
    const ONE: &str = "/api/v1/namespaces/sys/secrets/bundle-webhook-stamp";
    const TLS_ONE: &str = "/api/v1/namespaces/sys/secrets/bundle-webhook-tls";

    #[tokio::test]
    async fn of_two_replicas_that_start_at_once_both_use_what_the_first_has_stored() {
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
    async fn a_key_that_is_too_short_is_replaced() {
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
    async fn spoilt_certificates_are_made_anew_and_good_ones_kept() {
        let now = Timestamp::now();
        let names = ["hook.sys.svc".to_owned()];
        let good = write(create(&names, now).unwrap());
        let mut spoilt = good.clone();
        spoilt.insert(CERTIFICATE.to_owned(), ByteString(b"nonsense".to_vec()));
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
        let material = tls(&secrets, &names, now).await.unwrap();
        assert!(write(material) == good);
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_refusal_names_the_action_and_the_secret() {
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
