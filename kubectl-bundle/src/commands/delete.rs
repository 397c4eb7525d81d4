//! `delete`: BundleDeployments, and waiting until they are gone.
//! Not here: what becomes of their objects, which the webhook's reconciler decides by `spec.deletion`.

use bundle_api::BundleDeployment;
use kube::api::{Api, DeleteParams};

use crate::cluster::apply::DryRun;
use crate::cluster::wait::{Seen, Wait, late};
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;

use super::deployment::obstacles;

/// What `delete` needs to know.
pub(crate) struct Delete {
    /// The BundleDeployments.
    pub(crate) names: Vec<String>,
    /// Whether to wait, and for how long at most.
    pub(crate) wait: Wait,
    /// Whether a missing one is fine.
    pub(crate) ignore_not_found: bool,
    /// Whether the cluster is changed.
    pub(crate) dry_run: DryRun,
    /// Which cluster.
    pub(crate) cluster: KubeSettings,
}

impl Delete {
    /// Deletes, says so, and waits.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
        let mut deleted = Vec::new();
        for name in &self.names {
            let answer = match self.dry_run {
                DryRun::Client => cluster.ask(api.get(name)).await.map(|_| ()),
                mode => {
                    let mut parameters = DeleteParams::background();
                    parameters.dry_run = mode == DryRun::Server;
                    cluster.ask(api.delete(name, &parameters)).await.map(|_| ())
                }
            };
            match answer {
                Ok(()) => {
                    ui.data(format!(
                        "bundledeployment.core.rukpak.io {name:?} deleted{}",
                        self.dry_run.suffix()
                    ))?;
                    deleted.push(name);
                }
                Err(Failure::Server(status)) if status.code == 404 && self.ignore_not_found => {}
                Err(failure) => return Err(failure),
            }
        }
        if self.wait != Wait::No && self.dry_run == DryRun::None {
            for name in deleted {
                gone(ui, &cluster, &api, name, self.wait).await?;
            }
        }
        Ok(())
    }
}

async fn gone(
    ui: &mut Ui,
    cluster: &Cluster,
    api: &Api<BundleDeployment>,
    name: &str,
    wait: Wait,
) -> Outcome {
    let progress = ui.progress(&format!("waiting for {name} to be cleaned up"));
    let mut last = Vec::new();
    let outcome = {
        let question = |item: Option<&BundleDeployment>| {
            let Some(item) = item else {
                return Ok(Seen::Done);
            };
            last = obstacles(item);
            if !last.is_empty() {
                progress.now(format!("{name}: {}", last.join("; ")));
            }
            Ok(Seen::NotYet)
        };
        cluster
            .wait_for(api, name, wait, question, |limit| {
                late(&format!("bundledeployment {name} was not gone"), limit)
            })
            .await
    };
    match outcome {
        Err(Failure::Findings { findings, .. }) if !last.is_empty() => Err(Failure::Findings {
            findings,
            causes: last,
        }),
        other => other,
    }
}
