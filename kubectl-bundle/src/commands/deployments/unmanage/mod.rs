//! `unmanage`: deletes a BundleDeployment and keeps its installed objects.

mod arguments;

use bundle_api::BundleDeployment;
use bundle_api::deployment::DeleteObjects;
use bundle_cluster::ByName;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;

use super::state::prediction::Goal;
use super::state::waiting;
use crate::cluster::apply::{DryRun, FIELD_MANAGER};
use crate::cluster::wait::Wait;
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Maximum number of attempts to delete an object that other clients change at the same time.
const ATTEMPTS: u32 = 5;

/// Settings of `unmanage`.
pub(crate) struct Unmanage {
    /// Name of the BundleDeployment.
    pub(crate) name: String,
    /// Wait mode and timeout.
    pub(crate) wait: Wait,
    /// Mode of a dry run.
    pub(crate) dry_run: DryRun,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

impl Unmanage {
    /// Sets the treatment of the objects, deletes the BundleDeployment, and waits.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
        let before = cluster.send(ByName(&api).get(&self.name)).await?;
        let known = waiting::known_failure(&before);
        if self.dry_run != DryRun::Client {
            self.delete(ui, &cluster, &api, &before).await?;
        }
        ui.data(format!(
            "bundledeployment.core.rukpak.io {:?} deleted{}",
            self.name,
            self.dry_run.suffix()
        ))?;
        ui.note(format!("{}: {}", self.name, kept_objects_text(&before)));
        if self.wait != Wait::No && self.dry_run == DryRun::None {
            let known = known.as_deref();
            waiting::wait_until(ui, &cluster, &self.name, Goal::Deleted, self.wait, known).await?;
            ui.note(format!(
                "{} is gone; its objects stay without the labels of bundle-webhook",
                self.name
            ));
        }
        Ok(())
    }
}

impl Unmanage {
    /// Deletes the BundleDeployment, but only a version that has `spec.deletion.objects: Orphan`.
    /// If the object changes between the patch and the deletion, the object is read again, and
    /// patched again if necessary. For example, the pod updates the status, or another user changes
    /// `spec.deletion`.
    async fn delete(
        &self,
        ui: &mut Ui,
        cluster: &Cluster,
        api: &Api<BundleDeployment>,
        before: &BundleDeployment,
    ) -> Outcome {
        let mut current = before.clone();
        let mut attempt = 1;
        loop {
            if !is_orphaning(&current) {
                // If the object was recreated, the object with the new uid is not changed.
                current = self.orphan(ui, cluster, api, before).await?;
            }
            let mut parameters = DeleteParams::background();
            parameters.dry_run = self.dry_run == DryRun::Server;
            // A dry run of the patch stores nothing, so the deletion then requires no resource
            // version.
            let is_stored = self.dry_run == DryRun::None;
            parameters.preconditions = Some(Preconditions {
                uid: before.metadata.uid.clone(),
                resource_version: current.metadata.resource_version.filter(|_| is_stored),
            });
            match cluster
                .send(ByName(api).delete(&self.name, &parameters))
                .await
            {
                Err(failure) if failure.is_stale() && attempt < ATTEMPTS => {
                    attempt += 1;
                    current = cluster.send(ByName(api).get(&self.name)).await?;
                }
                result => return result.map(drop),
            }
        }
    }

    /// Sets the treatment of the objects, and returns the changed object.
    async fn orphan(
        &self,
        ui: &mut Ui,
        cluster: &Cluster,
        api: &Api<BundleDeployment>,
        before: &BundleDeployment,
    ) -> Outcome<BundleDeployment> {
        let patch = Patch::Merge(json!({
            "metadata": {"uid": before.metadata.uid},
            "spec": {"deletion": {"objects": DeleteObjects::Orphan}},
        }));
        let parameters = PatchParams {
            dry_run: self.dry_run == DryRun::Server,
            ..field_manager()
        };
        let orphaned = cluster
            .send(ByName(api).patch(&self.name, &parameters, &patch))
            .await?;
        for warning in cluster.take_warnings() {
            ui.server_warning(&warning);
        }
        Ok(orphaned)
    }
}

fn field_manager() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Returns `true` if a deletion keeps the objects.
fn is_orphaning(item: &BundleDeployment) -> bool {
    let deletion = item.spec.deletion.as_ref();
    deletion.and_then(|deletion| deletion.objects.as_ref()) == Some(&DeleteObjects::Orphan)
}

/// Returns a text about the installed objects that remain after the deletion.
fn kept_objects_text(item: &BundleDeployment) -> String {
    let status = item.status.as_ref();
    let installed = status.and_then(|status| status.installed.as_ref());
    match installed.map(|installed| installed.objects) {
        None => "nothing is installed".to_owned(),
        Some(Some(1)) => "1 object stays".to_owned(),
        Some(Some(count)) => format!("{count} objects stay"),
        Some(None) => "its objects stay".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(spec: serde_json::Value, status: &serde_json::Value) -> BundleDeployment {
        let mut item = json!({
            "metadata": {"name": "web"},
            "spec": {"provisionerClassName": "c", "template": {"spec": {"provisionerClassName": "c", "source": {"type": "git"}}}},
            "status": status,
        });
        item["spec"]["deletion"] = spec;
        serde_json::from_value(item).unwrap()
    }

    #[test]
    fn objects_that_remain_are_counted() {
        for (status, expected) in [
            (json!({}), "nothing is installed"),
            (
                json!({"installed": {"digest": "d", "objects": 1}}),
                "1 object stays",
            ),
            (
                json!({"installed": {"digest": "d", "objects": 3}}),
                "3 objects stay",
            ),
            (json!({"installed": {"digest": "d"}}), "its objects stay"),
        ] {
            assert_eq!(kept_objects_text(&item(json!({}), &status)), expected);
        }
    }

    #[test]
    fn only_orphan_keeps_the_objects() {
        assert!(is_orphaning(&item(
            json!({"objects": "Orphan"}),
            &json!({})
        )));
        assert!(!is_orphaning(&item(
            json!({"objects": "Delete"}),
            &json!({})
        )));
        assert!(!is_orphaning(&item(json!({}), &json!({}))));
    }
}
