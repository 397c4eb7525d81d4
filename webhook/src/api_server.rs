//! The API server itself: which version it reports, and whether it serves our kinds.
//! Not here: any object.

use std::sync::Arc;
use std::time::Duration;

use bundle_api::names::API_VERSION;
use bundle_core::diagnostic::Finding;
use bundle_core::version::ServerVersion;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::readiness::Gate;
use crate::shared::Shared;

const KINDS: [&str; 5] = [
    "Bundle",
    "BundleDeployment",
    "ProvisionerClass",
    "SignaturePolicy",
    "BundleApproval",
];
const CRDS_AGAIN: Duration = Duration::from_secs(1);
/// Every so many looks the message about missing CRDs is said again.
const CRDS_SAID: u32 = 60;
/// An upgrade of the control plane is noticed within this time.
const VERSION_AGAIN: Duration = Duration::from_secs(60);

/// Waits until the API server has told its version and serves our kinds; says what is missing.
pub(crate) async fn wait(shared: &Shared) {
    crate::retry("ask the API server for its version", || version(shared)).await;
    for look in 0u32.. {
        let client = shared.client();
        let missing = crate::retry("ask the API server for our kinds", || missing(&client)).await;
        if missing.is_empty() {
            break;
        }
        if look % CRDS_SAID == 0 {
            tracing::error!(
                missing = missing.join(", "),
                "the custom resources of {API_VERSION} are not installed; waiting for `kubectl apply --server-side -f crds/` of this version"
            );
        }
        tokio::time::sleep(CRDS_AGAIN).await;
    }
    shared.readiness.open(Gate::Api);
}

/// Asks for the version again and again until `shutdown`.
pub(crate) async fn refresh(shared: Arc<Shared>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(VERSION_AGAIN) => {}
        }
        if let Err(error) = version(&shared).await {
            tracing::warn!(
                error = crate::chain(&error),
                "cannot ask the API server for its version; the last one stays in use"
            );
        }
    }
}

/// Why the version is not known.
#[derive(Debug, thiserror::Error)]
enum VersionError {
    #[error("no answer")]
    Request(#[source] kube::Error),
    #[error("the answer is unreadable")]
    Unreadable(#[source] Finding),
}

async fn version(shared: &Shared) -> Result<(), VersionError> {
    let answer = shared
        .client()
        .apiserver_version()
        .await
        .map_err(VersionError::Request)?;
    let version = ServerVersion::parse(&answer.git_version).map_err(VersionError::Unreadable)?;
    let before = shared.server_version();
    if before.is_none_or(|before| before.as_reported() != version.as_reported()) {
        tracing::info!(version = version.as_reported(), "the API server's version");
        shared.set_server_version(version);
    }
    Ok(())
}

/// Those of our kinds that the server does not serve.
async fn missing(client: &Client) -> Result<Vec<&'static str>, kube::Error> {
    let served = match client.list_api_group_resources(API_VERSION).await {
        Ok(list) => list.resources,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(KINDS
        .into_iter()
        .filter(|kind| served.iter().all(|resource| resource.kind != *kind))
        .collect())
}
