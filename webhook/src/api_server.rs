//! The version of the API server, and the project's own kinds that the API server serves.

use std::sync::Arc;
use std::time::Duration;

use bundle_api::names::API_VERSION;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::version::{OLDEST_SERVER, ServerVersion};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::readiness::Gate;
use crate::retry::{self, delays};
use crate::shared::Shared;

const KINDS: [&str; 5] = [
    "Bundle",
    "BundleDeployment",
    "ProvisionerClass",
    "SignaturePolicy",
    "BundleApproval",
];
/// Number of checks after which the message about missing CustomResourceDefinitions is repeated.
const CRD_MESSAGE_INTERVAL: u32 = 60;
/// Interval of version checks, which detect an upgrade of the control plane.
const VERSION_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The API server is too old: it does not have all fields that this program requires.
#[derive(Debug, thiserror::Error)]
#[error(
    "the API server has version {found}; bundle-webhook needs {OLDEST_SERVER} or newer: upgrade the cluster, or run an earlier version of bundle-webhook [{}]",
    codes::cluster::SERVER_TOO_OLD
)]
pub(crate) struct ServerTooOld {
    found: String,
}

/// Waits until the version of the API server is known and the API server serves the project's own
/// kinds. Logs the missing kinds. Returns an error if the version is too old.
pub(crate) async fn wait(shared: &Shared) -> Result<(), ServerTooOld> {
    let version =
        retry::until_success("read the version of the API server", || version(shared)).await;
    check(&version)?;
    for look in 0u32.. {
        let client = shared.client();
        let missing =
            retry::until_success("discover the kinds of bundle-webhook", || missing(&client)).await;
        if missing.is_empty() {
            break;
        }
        if look % CRD_MESSAGE_INTERVAL == 0 {
            tracing::error!(
                missing = missing.join(", "),
                "the CustomResourceDefinitions of {API_VERSION} are not installed: run `kubectl apply --server-side -f crds/` of this version"
            );
        }
        tokio::time::sleep(delays::DEFINITIONS).await;
    }
    shared.readiness.open(Gate::Api);
    Ok(())
}

fn check(version: &ServerVersion) -> Result<(), ServerTooOld> {
    if version.is_supported() {
        return Ok(());
    }
    Err(ServerTooOld {
        found: version.as_reported().to_owned(),
    })
}

/// Reads the version periodically until `shutdown`.
pub(crate) async fn refresh(shared: Arc<Shared>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(VERSION_CHECK_INTERVAL) => {}
        }
        if let Err(error) = version(&shared).await {
            tracing::warn!(
                error = crate::chain(&error),
                "cannot read the version of the API server; the last known version is used"
            );
        }
    }
}

/// The reason why the version is unknown.
#[derive(Debug, thiserror::Error)]
enum VersionError {
    #[error("the request failed")]
    Request(#[source] kube::Error),
    #[error("the version is invalid")]
    Unreadable(#[source] Finding),
}

/// Reads the version of the API server and stores it in `shared`.
async fn version(shared: &Shared) -> Result<ServerVersion, VersionError> {
    let answer = shared
        .client()
        .apiserver_version()
        .await
        .map_err(VersionError::Request)?;
    let version = ServerVersion::parse(&answer.git_version).map_err(VersionError::Unreadable)?;
    let before = shared.server_version();
    if before.is_none_or(|before| before.as_reported() != version.as_reported()) {
        tracing::info!(version = version.as_reported(), "version of the API server");
        shared.set_server_version(version.clone());
    }
    Ok(version)
}

/// Returns the project's own kinds that the server does not serve.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_before_the_oldest_supported_version_are_rejected() {
        for (reported, is_supported) in [
            ("v1.31.9", false),
            ("v1.32.4-gke.100", false),
            ("v1.33.0", true),
            ("v1.36.3+k3s1", true),
        ] {
            let checked = check(&ServerVersion::parse(reported).unwrap());
            assert_eq!(checked.is_ok(), is_supported, "{reported}");
            if let Err(error) = checked {
                let message = error.to_string();
                assert!(message.contains(reported), "{message}");
                assert!(message.contains("1.33"), "{message}");
            }
        }
    }
}
