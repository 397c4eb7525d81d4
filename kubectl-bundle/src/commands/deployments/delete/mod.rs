//! `delete`: deletes BundleDeployments and waits until they no longer exist.

mod arguments;

use bundle_api::BundleDeployment;
use bundle_api::deployment::DeleteObjects;
use bundle_cluster::ByName;
use kube::api::{Api, DeleteParams};

use super::named_failures::{Deleted, NamedFailures};
use super::state::waiting;
use crate::cluster::apply::DryRun;
use crate::cluster::wait::Wait;
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Settings of `delete`.
pub(crate) struct Delete {
    /// Names of the BundleDeployments.
    pub(crate) names: Vec<String>,
    /// Wait mode and timeout.
    pub(crate) wait: Wait,
    /// `true` if missing objects are not an error.
    pub(crate) ignore_not_found: bool,
    /// Mode of a dry run.
    pub(crate) dry_run: DryRun,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

impl Delete {
    /// Deletes the objects, prints the results, and waits.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
        let mut failures = NamedFailures::new(&self.names);
        let mut deleted = Vec::new();
        for name in &self.names {
            // A user who has no permission to read the object can delete it, but the effect on the
            // installed objects is not printed.
            let before = cluster.send(ByName(&api).get(name)).await;
            let deletion_consequence = before.as_ref().ok().map(deletion_consequence);
            let known_failure = before.as_ref().ok().and_then(waiting::known_failure);
            let answer = match self.dry_run {
                DryRun::Client => before.map(drop),
                mode => {
                    let mut parameters = DeleteParams::background();
                    parameters.dry_run = mode == DryRun::Server;
                    cluster.send(ByName(&api).delete(name, &parameters)).await
                }
            };
            let is_missing = matches!(&answer, Err(Failure::Server(status)) if status.code == 404);
            if is_missing && self.ignore_not_found {
                continue;
            }
            if failures.check(ui, name, answer)?.is_none() {
                continue;
            }
            ui.data(format!(
                "bundledeployment.core.rukpak.io {name:?} deleted{}",
                self.dry_run.suffix()
            ))?;
            let (plan, consequence) = deletion_consequence.unwrap_or_default();
            if !plan.is_empty() {
                ui.note(plan);
            }
            deleted.push(Deleted {
                name,
                consequence,
                known_failure,
            });
        }
        if self.wait != Wait::No && self.dry_run == DryRun::None {
            failures
                .wait_until_gone(ui, &cluster, self.wait, &deleted)
                .await?;
        }
        failures.finish()
    }
}

/// Returns two texts about the effect of `spec.deletion` on the installed objects: an announcement,
/// and the result after the deletion.
fn deletion_consequence(item: &BundleDeployment) -> (String, &'static str) {
    let name = item.metadata.name.as_deref().unwrap_or_default();
    let installed = item
        .status
        .as_ref()
        .and_then(|status| status.installed.as_ref());
    let Some(installed) = installed else {
        return (format!("{name}: nothing is installed"), "");
    };
    let objects = match installed.objects {
        Some(1) => "1 object".to_owned(),
        Some(count) => format!("{count} objects"),
        None => "its objects".to_owned(),
    };
    let deletion = item.spec.deletion.clone().unwrap_or_default();
    if deletion.objects == Some(DeleteObjects::Orphan) {
        return (
            format!("{name}: {objects} stay (spec.deletion.objects: Orphan)"),
            "; its objects stay",
        );
    }
    let account = installed
        .installed_as
        .as_ref()
        .map_or_else(String::new, |account| {
            format!(" as ServiceAccount {}/{}", account.namespace, account.name)
        });
    (
        format!("{name}: removes {objects}{account}"),
        ", and so are its objects",
    )
}
