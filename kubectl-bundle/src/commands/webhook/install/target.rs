//! Finds, applies and deletes objects of an installation, by the kinds that the API server serves.

use std::time::{Duration, Instant};

use bundle_cluster::discovery::{Apis, Kind};
use bundle_cluster::{ByName, object};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, ValidationDirective};
use serde_json::Value;

use super::manifests::EmbeddedManifest;
use crate::cluster::apply::{DryRun, FIELD_MANAGER};
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::{Failure, Outcome};
use crate::system::delays;

/// Cluster of an installation.
pub(crate) struct InstallTarget {
    /// Connection to the cluster.
    pub(crate) cluster: Cluster,
    apis: Apis,
}

impl InstallTarget {
    /// Prepares a connection.
    pub(crate) async fn connect(settings: &KubeSettings) -> Outcome<Self> {
        let cluster = Cluster::connect(settings).await?;
        let apis = Apis::new(cluster.client.clone());
        Ok(Self { cluster, apis })
    }

    /// Returns the kind of an object. Returns `None` if the API server does not serve the kind.
    pub(crate) async fn kind(&self, manifest: &EmbeddedManifest) -> Outcome<Option<Kind>> {
        let (group, version) = manifest.group_version();
        self.served(group, version, manifest.kind()).await
    }

    /// Returns the kind with this name. Returns `None` if the API server does not serve the kind.
    pub(crate) async fn served(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Outcome<Option<Kind>> {
        self.cluster
            .send(self.apis.find_uncached(group, version, kind))
            .await
    }

    /// Returns the object on the cluster; `None` if the object, its namespace or its kind does not
    /// exist.
    pub(crate) async fn get(&self, manifest: &EmbeddedManifest) -> Outcome<Option<Value>> {
        let Some(api) = self.api(manifest).await? else {
            return Ok(None);
        };
        let found = self
            .cluster
            .send(ByName(&api).get_opt(manifest.name()))
            .await?;
        Ok(found.map(|object| serde_json::to_value(object).unwrap_or_default()))
    }

    /// Returns the client for an object; `None` if the API server does not serve the kind.
    pub(crate) async fn api(
        &self,
        manifest: &EmbeddedManifest,
    ) -> Outcome<Option<Api<DynamicObject>>> {
        let Some(kind) = self.kind(manifest).await? else {
            return Ok(None);
        };
        let api = object::api(&self.cluster.client, &kind, manifest.namespace());
        self.cluster.send(std::future::ready(api)).await.map(Some)
    }

    /// Applies the object. Unknown fields are errors. With `force`, the apply also sets fields of
    /// other managers. Returns `false` if the API server does not serve the kind.
    pub(crate) async fn apply(
        &self,
        manifest: &EmbeddedManifest,
        dry_run: DryRun,
        force: bool,
    ) -> Outcome<bool> {
        let Some(api) = self.api(manifest).await? else {
            return Ok(false);
        };
        let mut parameters = PatchParams::apply(FIELD_MANAGER);
        parameters.force = force;
        parameters.dry_run = dry_run == DryRun::Server;
        parameters.field_validation = Some(ValidationDirective::Strict);
        let patch = Patch::Apply(&manifest.object);
        self.cluster
            .send(ByName(&api).patch(manifest.name(), &parameters, &patch))
            .await?;
        Ok(true)
    }

    /// Applies the object. Retries for at most `limit` while the API server does not serve its
    /// kind.
    pub(crate) async fn apply_when_served(
        &self,
        manifest: &EmbeddedManifest,
        force: bool,
        limit: Duration,
    ) -> Outcome {
        let began = Instant::now();
        loop {
            let outcome = self.apply(manifest, DryRun::None, force).await;
            match outcome {
                Ok(true) => return Ok(()),
                Ok(false) if began.elapsed() < limit => {}
                // For a short time after the CRD is established, the API server still responds with
                // 404 when an object of the kind is written.
                Err(Failure::Server(status)) if status.code == 404 && began.elapsed() < limit => {}
                Ok(false) => {
                    return Err(crate::cluster::wait::timeout_error(
                        &format!(
                            "the API server did not serve the kind of {}",
                            manifest.title()
                        ),
                        limit,
                    )
                    .into());
                }
                Err(failure) => return Err(failure),
            }
            tokio::time::sleep(delays::UNSERVED_KIND).await;
        }
    }

    /// Deletes the object. A missing object is not an error.
    pub(crate) async fn delete(
        &self,
        manifest: &EmbeddedManifest,
        parameters: &DeleteParams,
    ) -> Outcome {
        let Some(api) = self.api(manifest).await? else {
            return Ok(());
        };
        match self
            .cluster
            .send(ByName(&api).delete(manifest.name(), parameters))
            .await
        {
            Err(Failure::Server(status)) if status.code == 404 => Ok(()),
            outcome => outcome,
        }
    }
}
