//! `unmanage`: deletes BundleDeployments and keeps their installed objects.

mod arguments;

use bundle_api::BundleDeployment;
use bundle_api::deployment::DeleteObjects;
use bundle_cluster::ByName;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;

use super::named_failures::{Deleted, NamedFailures};
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
    /// Names of the BundleDeployments.
    pub(crate) names: Vec<String>,
    /// Wait mode and timeout.
    pub(crate) wait: Wait,
    /// Mode of a dry run.
    pub(crate) dry_run: DryRun,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

impl Unmanage {
    /// Sets `spec.deletion.objects: Orphan`, deletes the BundleDeployments, and waits.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
        let mut failures = NamedFailures::new(&self.names);
        let mut deleted = Vec::new();
        for name in &self.names {
            let outcome = self.orphan_and_delete(&cluster, &api, name).await;
            for warning in cluster.take_warnings() {
                ui.server_warning(&warning);
            }
            let Some(before) = failures.check(ui, name, outcome)? else {
                continue;
            };
            ui.data(format!(
                "bundledeployment.core.rukpak.io {name:?} deleted{}",
                self.dry_run.suffix()
            ))?;
            ui.note(format!("{name}: {}", kept_objects_text(&before)));
            deleted.push(Deleted {
                name,
                consequence: "; its objects stay without the labels of bundle-webhook",
                known_failure: waiting::known_failure(&before),
            });
        }
        if self.wait != Wait::No && self.dry_run == DryRun::None {
            failures
                .wait_until_gone(ui, &cluster, self.wait, &deleted)
                .await?;
        }
        failures.finish()
    }

    /// Reads the BundleDeployment `name`, and deletes it so that its installed objects stay.
    /// Returns the object that was read. A client-side dry run deletes nothing.
    async fn orphan_and_delete(
        &self,
        cluster: &Cluster,
        api: &Api<BundleDeployment>,
        name: &str,
    ) -> Outcome<BundleDeployment> {
        let before = cluster.send(ByName(api).get(name)).await?;
        if self.dry_run != DryRun::Client {
            self.delete(cluster, api, name, &before).await?;
        }
        Ok(before)
    }

    /// Deletes the BundleDeployment, but only while it has `spec.deletion.objects: Orphan`. If
    /// bundle-webhook or another user changes the object between the patch and the deletion, the
    /// object is read again, and patched again if necessary.
    async fn delete(
        &self,
        cluster: &Cluster,
        api: &Api<BundleDeployment>,
        name: &str,
        before: &BundleDeployment,
    ) -> Outcome {
        let mut current = before.clone();
        let mut attempt = 1;
        loop {
            if !is_orphaning(&current) {
                // The patch contains the uid, so a recreated object with another uid is not
                // changed.
                current = self.orphan(cluster, api, name, before).await?;
            }
            let mut parameters = DeleteParams::background();
            parameters.dry_run = self.dry_run == DryRun::Server;
            // A dry run of the patch does not store the new resource version. Therefore the dry run
            // of the deletion requires only the uid.
            let is_stored = self.dry_run == DryRun::None;
            parameters.preconditions = Some(Preconditions {
                uid: before.metadata.uid.clone(),
                resource_version: current.metadata.resource_version.filter(|_| is_stored),
            });
            match cluster.send(ByName(api).delete(name, &parameters)).await {
                Err(failure) if failure.is_stale() && attempt < ATTEMPTS => {
                    attempt += 1;
                    current = cluster.send(ByName(api).get(name)).await?;
                }
                result => return result,
            }
        }
    }

    /// Sets `spec.deletion.objects: Orphan`, and returns the changed BundleDeployment.
    async fn orphan(
        &self,
        cluster: &Cluster,
        api: &Api<BundleDeployment>,
        name: &str,
        before: &BundleDeployment,
    ) -> Outcome<BundleDeployment> {
        let patch = Patch::Merge(json!({
            "metadata": {"uid": before.metadata.uid},
            "spec": {"deletion": {"objects": DeleteObjects::Orphan}},
        }));
        let mut parameters = PatchParams::apply(FIELD_MANAGER);
        parameters.dry_run = self.dry_run == DryRun::Server;
        cluster
            .send(ByName(api).patch(name, &parameters, &patch))
            .await
    }
}

/// Returns `true` if a deletion of the BundleDeployment keeps the installed objects.
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
