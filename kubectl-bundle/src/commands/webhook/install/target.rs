//! Objects of an installation on the cluster: found, applied, deleted, each by the kind that the API server serves.

use std::time::{Duration, Instant};

use bundle_cluster::discovery::{Apis, Kind};
use bundle_cluster::{ByName, object};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, ValidationDirective};
use serde_json::Value;

use super::manifests::Manifest;
use crate::cluster::apply::{DryRun, FIELD_MANAGER};
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::{Failure, Outcome};

/// Pause between two attempts to use a kind that is not served yet.
const PAUSE: Duration = Duration::from_millis(200);

/// The cluster of an installation.
pub(crate) struct Target {
    /// The connection.
    pub(crate) cluster: Cluster,
    apis: Apis,
}

impl Target {
    /// Prepares a connection.
    pub(crate) async fn connect(settings: &KubeSettings) -> Outcome<Self> {
        let cluster = Cluster::connect(settings).await?;
        let apis = Apis::new(cluster.client.clone());
        Ok(Self { cluster, apis })
    }

    /// The kind of an object, if the API server serves it.
    pub(crate) async fn kind(&self, manifest: &Manifest) -> Outcome<Option<Kind>> {
        let (group, version) = manifest.group_version();
        self.served(group, version, manifest.kind()).await
    }

    /// The kind, if the API server serves it.
    pub(crate) async fn served(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Outcome<Option<Kind>> {
        self.cluster
            .ask(self.apis.find_now(group, version, kind))
            .await
    }

    /// The object as the API server has it; `None` if it, its namespace or its kind does not exist.
    pub(crate) async fn get(&self, manifest: &Manifest) -> Outcome<Option<Value>> {
        let Some(api) = self.api(manifest).await? else {
            return Ok(None);
        };
        let found = self
            .cluster
            .ask(ByName(&api).get_opt(manifest.name()))
            .await?;
        Ok(found.map(|object| serde_json::to_value(object).unwrap_or_default()))
    }

    /// The API of an object, if its kind is served.
    pub(crate) async fn api(&self, manifest: &Manifest) -> Outcome<Option<Api<DynamicObject>>> {
        let Some(kind) = self.kind(manifest).await? else {
            return Ok(None);
        };
        let api = object::api(&self.cluster.client, &kind, manifest.namespace());
        self.cluster.ask(std::future::ready(api)).await.map(Some)
    }

    /// Applies the object; unknown fields are an error. With `force`, fields of other managers are taken over.
    pub(crate) async fn apply(
        &self,
        manifest: &Manifest,
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
            .ask(ByName(&api).patch(manifest.name(), &parameters, &patch))
            .await?;
        Ok(true)
    }

    /// Applies the object, at most for `limit` again while the API server does not serve its kind.
    pub(crate) async fn apply_when_served(
        &self,
        manifest: &Manifest,
        force: bool,
        limit: Duration,
    ) -> Outcome {
        let began = Instant::now();
        loop {
            let outcome = self.apply(manifest, DryRun::None, force).await;
            match outcome {
                Ok(true) => return Ok(()),
                Ok(false) if began.elapsed() < limit => {}
                // A definition is established a moment before objects of its kind can be written.
                Err(Failure::Server(status)) if status.code == 404 && began.elapsed() < limit => {}
                Ok(false) => {
                    return Err(crate::cluster::wait::late(
                        &format!("the kind of {} was not served", manifest.title()),
                        limit,
                    )
                    .into());
                }
                Err(failure) => return Err(failure),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Deletes the object. That it does not exist is no error.
    pub(crate) async fn delete(&self, manifest: &Manifest, parameters: &DeleteParams) -> Outcome {
        let Some(api) = self.api(manifest).await? else {
            return Ok(());
        };
        match self
            .cluster
            .ask(ByName(&api).delete(manifest.name(), parameters))
            .await
        {
            Err(Failure::Server(status)) if status.code == 404 => Ok(()),
            outcome => outcome,
        }
    }
}
