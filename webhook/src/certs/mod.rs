//! The keeper of our own certificates, stamp key and webhook registrations: looks after them all the time, never stops serving on an error.
//! Not here: the TLS listener (server::admission_listener).

mod material;
mod path;
mod register;
mod resolver;
mod secret;
mod x509;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::material::MaterialError;
use self::register::Registrar;
pub use self::resolver::{Resolver, ServeError};
pub use self::secret::SecretError;
use crate::caller::Tokens;
use crate::readiness::Gate;
use crate::registrations::RegistrationError;
use crate::shared::{Shared, StampKey};

/// How often the Secrets are looked at. By content: a mounted file is not watched, and neither are these.
const LOOK: Duration = Duration::from_secs(15);
/// How soon after a look that failed.
const AGAIN: Duration = Duration::from_secs(2);
/// How soon at most after somebody touched a registration: two programs that disagree must not race.
const SETTLE: Duration = Duration::from_millis(200);

/// Why a look failed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each wraps the error that says it")]
pub enum KeeperError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Material(#[from] MaterialError),
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The stamp key in the state namespace, made if there is none.
pub async fn stamp_key(client: Client, namespace: &str) -> Result<StampKey, SecretError> {
    secret::stamp(&Api::namespaced(client, namespace)).await
}

/// The tokens of callers as they are stored now: another replica may have rotated them.
pub(crate) async fn read_tokens(shared: &Shared) -> Result<Tokens, SecretError> {
    let secrets = Api::namespaced(shared.client(), &shared.settings.state_namespace);
    path::tokens(&secrets, path::Rotation::default()).await
}

/// Looks after everything until `shutdown`.
pub async fn keep(shared: Arc<Shared>, resolver: Arc<Resolver>, shutdown: CancellationToken) {
    let mut registrar = Registrar::new(&shared);
    loop {
        let pause = match look(&shared, &resolver, &mut registrar).await {
            Ok(()) => registrar
                .rotates_in(&shared)
                .map_or(LOOK, |rotates| LOOK.min(rotates)),
            Err(error) => {
                shared.metrics.refresh_failed();
                tracing::warn!(
                    error = crate::chain(&error),
                    "certificates and registrations: trying again soon"
                );
                AGAIN
            }
        };
        let settled = Instant::now() + SETTLE;
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

async fn look(
    shared: &Shared,
    resolver: &Resolver,
    registrar: &mut Registrar,
) -> Result<(), KeeperError> {
    let settings = &shared.settings;
    let secrets: Api<Secret> = Api::namespaced(shared.client(), &settings.state_namespace);
    let material = secret::tls(&secrets, &settings.names, Timestamp::now()).await?;
    // First who is to be trusted, then what is served; but a first certificate is better served than not.
    let registered = registrar.look(shared, &secrets, &material.trusted).await;
    if registered.is_ok() || !shared.readiness.is_open(Gate::Certificate) {
        resolver.serve(&material)?;
        shared
            .metrics
            .certificate_ends(material::ends(&material)?.as_second());
        shared.readiness.open(Gate::Certificate);
    }
    registered?;
    let key = secret::stamp(&secrets).await?;
    if key.bytes() != shared.stamp_key().bytes() {
        tracing::warn!(
            "the stamp key was changed; what was stamped with the old one counts as not stamped"
        );
        shared.set_stamp_key(key);
    }
    Ok(())
}

/// For tests of the listener: a resolver that serves for `names`, and who signed it (PEM).
#[cfg(test)]
pub(crate) fn serving(names: &[&str]) -> (Arc<Resolver>, String) {
    let resolver = Arc::new(Resolver::default());
    let trusted = serve_anew(&resolver, names);
    (resolver, trusted)
}

/// For tests of the listener: another certificate of another authority, from now on.
#[cfg(test)]
pub(crate) fn serve_anew(resolver: &Resolver, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let material = material::create(&names, Timestamp::now()).unwrap();
    resolver.serve(&material).unwrap();
    material.trusted
}
