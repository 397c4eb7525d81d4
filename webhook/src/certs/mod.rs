//! Certificates, stamp key and webhook registrations of this installation. The task [`keep`]
//! periodically checks, renews and repairs all of them. An error of the task never stops the
//! listener.

mod ca_secret;
mod material;
mod operators;
mod path;
mod register;
mod resolver;
mod secret;
mod x509;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::ca_secret::CaSecretError;
pub use self::material::MaterialError;
pub(crate) use self::operators::OperatorCertificates;
use self::register::Registrar;
pub use self::resolver::{Resolver, ServeError};
pub use self::secret::SecretError;
use crate::caller::Tokens;
use crate::config::stamp_key::StampKey;
use crate::readiness::Gate;
use crate::registrations::RegistrationError;
use crate::retry::delays;
use crate::shared::Shared;

/// Interval of checks. Mounted files and Secrets are not watched, so each check compares their
/// contents.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// Minimum delay before the next check after another client changed a registration. The delay slows
/// down a loop in which two programs overwrite the values of each other.
const MIN_DELAY: Duration = Duration::from_millis(200);

/// The reason why a check of certificates, keys or registrations failed.
#[derive(Debug, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant wraps an error with its own message"
)]
pub enum CertificateTaskError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Material(#[from] MaterialError),
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    CaSecret(#[from] CaSecretError),
}

/// Returns the stamp key of the state namespace. Creates the key if the Secret does not exist or
/// has no valid key.
pub async fn stamp_key(client: Client, namespace: &str) -> Result<StampKey, SecretError> {
    secret::stamp(&Api::namespaced(client, namespace)).await
}

/// Reads the current tokens. Another replica may have rotated them.
pub(crate) async fn read_tokens(shared: &Shared) -> Result<Tokens, SecretError> {
    let secrets = Api::namespaced(shared.client(), &shared.settings.state_namespace);
    path::tokens(&secrets, path::Rotation::default()).await
}

/// Checks and renews certificates, keys and registrations until `shutdown`.
pub async fn keep(shared: Arc<Shared>, resolver: Arc<Resolver>, shutdown: CancellationToken) {
    let mut registrar = Registrar::new(&shared);
    loop {
        let pause = match check(&shared, &resolver, &mut registrar).await {
            Ok(()) => registrar
                .rotates_in(&shared)
                .map_or(CHECK_INTERVAL, |rotates| CHECK_INTERVAL.min(rotates)),
            Err(error) => {
                shared.metrics.refresh_failed();
                tracing::warn!(
                    error = crate::chain(&error),
                    "check of certificates and registrations failed; the check is retried"
                );
                delays::CERTIFICATES
            }
        };
        let settled = Instant::now() + MIN_DELAY;
        let again = (Instant::now() + pause).max(settled);
        let next = async {
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(again) => return,
                    change = registrar.changed() => {
                        if registrar.observe(&shared, change).await {
                            return tokio::time::sleep_until(settled).await;
                        }
                    }
                }
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = next => {}
        }
    }
}

async fn check(
    shared: &Shared,
    resolver: &Resolver,
    registrar: &mut Registrar,
) -> Result<(), CertificateTaskError> {
    let settings = &shared.settings;
    let secrets: Api<Secret> = Api::namespaced(shared.client(), &settings.state_namespace);
    let material = registrar.read_material(shared, &secrets).await?;
    // The authority is published before its certificate is served, so that clients trust the
    // certificate. If publishing fails, the TLS handshakes of clients of the content service can
    // fail. API servers do not use the published authority.
    let published = publish_authorities(shared, &material.trusted).await;
    // The authority is registered before its certificate is served. The first certificate is served
    // even if the registration fails.
    let registered = registrar.check(shared, &secrets).await;
    if registered.is_ok() || !shared.readiness.is_open(Gate::Certificate) {
        resolver.serve(&material)?;
        shared
            .metrics
            .certificate_ends(material::expiry(&material)?.as_second());
        shared.readiness.open(Gate::Certificate);
    }
    registered?;
    let key = secret::stamp(&secrets).await?;
    if key.bytes() != shared.stamp_key().bytes() {
        tracing::warn!("the stamp key was changed; stamps of the old key are invalid");
        shared.set_stamp_key(key);
    }
    Ok(published?)
}

/// Writes the trusted authorities into the Secret of `--ca-secret`.
async fn publish_authorities(shared: &Shared, trusted: &str) -> Result<(), CaSecretError> {
    let settings = &shared.settings;
    let Some(name) = &settings.content.ca_secret else {
        return Ok(());
    };
    let secrets = Api::namespaced(shared.client(), &settings.namespace);
    ca_secret::publish(&secrets, name, trusted).await
}

/// Returns a resolver with a certificate for `names`, and the authority of the certificate (PEM).
/// Tests of the listener use this function.
#[cfg(test)]
pub(crate) fn resolver_for(names: &[&str]) -> (Arc<Resolver>, String) {
    let resolver = Arc::new(Resolver::default());
    let trusted = serve_new_certificate(&resolver, names);
    (resolver, trusted)
}

/// Serves a certificate of a new authority, and returns this authority (PEM). Tests of the listener
/// use this function.
#[cfg(test)]
pub(crate) fn serve_new_certificate(resolver: &Resolver, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let material = material::create(&names, jiff::Timestamp::now()).unwrap();
    resolver.serve(&material).unwrap();
    material.trusted
}
