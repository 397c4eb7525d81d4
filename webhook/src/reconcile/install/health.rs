//! Reads installed objects and evaluates their health. The rules are in
//! `bundle_core::plan::health`.

use bundle_core::package::Probe;
use bundle_core::plan::health::{Health, has_probe, installed_health, probed_health};
use bundle_core::plan::inventory;
use bundle_core::plan::rollout::AwaitedPhase;
use kube::Client;

use crate::blocking;
use crate::reconcile::api::discovery::is_custom;
use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::context::Context;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};

/// Message for an object of a kind that the API server does not serve.
pub(in crate::reconcile) const KIND_NOT_SERVED: &str = "its kind is not served";

impl DeploymentReconcile<'_> {
    /// Returns true if all objects of the phase `awaited` with a health check are healthy, so that
    /// the next phase can begin. `items` are the objects of the content.
    pub(in crate::reconcile) async fn is_phase_ready(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
        awaited: AwaitedPhase,
    ) -> bool {
        // Expired Jobs are not in `items`. The inventory records which of these Jobs failed.
        let runs = &self.inventory.job_runs;
        if awaited.failed_jobs(runs, request.digest()).next().is_some() {
            return false;
        }
        let states = &self.ctx.states;
        let probes = &*states.probes_of_content(&self.name, request.digest());
        let awaited = items.iter().filter(|item| {
            let is_probed = inventory::parts(&item.key)
                .is_some_and(|(kind, namespace, name)| has_probe(probes, &kind, namespace, name));
            awaited.waits_for(&item.key, is_probed)
        });
        let looked: Vec<_> = crate::reconcile::api::parallel::all(awaited.map(|item| async move {
            let installed = (item.key.as_str(), self.inventory.uid(&item.key));
            let health = health_of(self.ctx, request.client, installed, probes).await;
            matches!(health, Ok(Health::Ready))
        }))
        .await;
        looked.into_iter().all(|is_ready| is_ready)
    }
}

/// Reads the object with this object key from the API server. Returns its health according to the
/// rules of its kind and to `probes`. `uid` is the recorded uid of the object.
pub(in crate::reconcile) async fn health_of(
    ctx: &Context,
    client: &Client,
    (key, uid): (&str, Option<&str>),
    probes: &[Probe],
) -> Result<Health, kube::Error> {
    let Some((group_kind, namespace, name)) = inventory::parts(key) else {
        return Ok(Health::Ready);
    };
    let Some(kind) = ctx.apis.preferred(&group_kind).await? else {
        return Ok(Health::Waiting(KIND_NOT_SERVED.to_owned()));
    };
    let mut live = object::read(client, &kind, namespace, name).await?;
    if live.is_none() && is_custom(&kind.resource.api_version) {
        // The API server may serve another version of the kind now, so the cached discovery data is
        // removed.
        ctx.apis.forget_custom().await;
        live = match ctx.apis.preferred(&group_kind).await? {
            Some(now) if now != kind => object::read(client, &now, namespace, name).await?,
            _ => None,
        };
    }
    Ok(match live {
        Some(live) => {
            let value = serde_json::to_value(&live).map_err(kube::Error::SerdeError)?;
            let health = || {
                installed_health(&value, uid, |live| {
                    probed_health(&group_kind, (namespace, name), live, probes)
                })
            };
            // Up to 256 assertions of the content can each compare two large fields.
            if has_probe(probes, &group_kind, namespace, name) {
                blocking::run(health)
            } else {
                health()
            }
        }
        None => Health::Waiting("does not exist".to_owned()),
    })
}
