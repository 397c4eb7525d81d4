//! The clients of the pod.

use bundle_cluster::connection;

use crate::budget::requests::RequestMemory;
use crate::config::settings::Settings;

pub(crate) use bundle_cluster::answers::{KeepFields, TOO_LARGE, WEIGHT_LIMITS, weigh};
pub(crate) use bundle_cluster::connection::with_missing_right;
pub use bundle_cluster::connection::{Clients, ClusterError, ServiceAccount};
pub(crate) use bundle_cluster::watch::watch_events;

/// Connects to the cluster of the kubeconfig or of this pod. Large requests share a memory budget.
pub async fn connect(settings: &Settings) -> Result<Clients, ClusterError> {
    let builder = connection::builder(settings.kubeconfig.as_deref()).await?;
    Ok(Clients::new(
        builder.with_layer(&RequestMemory::default()).build(),
    ))
}
