//! The Kubernetes clients of the pod: one group for every replica, and one group for the leader.

use bundle_cluster::connection;

use crate::budget::requests::RequestMemory;
use crate::config::settings::Settings;
use crate::lease::{Fence, of_leader};

pub(crate) use bundle_cluster::connection::with_missing_right;
pub use bundle_cluster::connection::{Clients, ClusterError, ServiceAccount};
pub(crate) use bundle_cluster::responses::{KeepFields, TOO_LARGE, WithoutData, weigh};
pub(crate) use bundle_cluster::watch::watch_events;

/// The clients of this replica, which share one connection pool.
pub struct ReplicaClients {
    /// Clients for tasks that every replica runs.
    pub(crate) replica: Clients,
    /// Clients for tasks of the leader. Writes of these clients fail while `fence` is closed.
    pub(crate) leader: Clients,
    /// The fence, which is open while this replica is the leader.
    pub(crate) fence: Fence,
    /// The memory of large requests of all clients.
    pub(crate) request_memory: RequestMemory,
}

/// Connects to the cluster of the kubeconfig or of this pod. Large requests share a memory budget.
pub async fn connect(settings: &Settings) -> Result<ReplicaClients, ClusterError> {
    let builder = connection::builder(settings.kubeconfig.as_deref()).await?;
    let (fence, request_memory) = (Fence::default(), RequestMemory::default());
    // The fence is the last layer before the request is sent, because other layers can delay a
    // request.
    let base = builder
        .with_layer(&fence)
        .with_layer(&request_memory)
        .build();
    let replica = Clients::new(base);
    Ok(ReplicaClients {
        leader: replica.through(of_leader),
        replica,
        fence,
        request_memory,
    })
}
