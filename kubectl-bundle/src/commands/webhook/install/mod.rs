//! `install`: creates bundle-webhook and its API from the manifests in this program. Existing CRDs
//! are upgraded, and other existing objects are not changed. `uninstall` removes the objects that
//! `install` created.

mod arguments;
mod existing_objects;
mod grants;
pub(crate) mod manifests;
pub(crate) mod origin;
pub(crate) mod target;
mod values;

use std::collections::BTreeSet;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::version::{OLDEST_SERVER, ServerVersion};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::cluster::apply::DryRun;
use crate::cluster::wait::{Wait, WaitState, deleted_error, timeout_error};
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;
use existing_objects::ExistingObjects;
use manifests::{DEPLOYMENT, EmbeddedManifest, InstallPhase};
use target::InstallTarget;
pub(crate) use values::ChartValues;

/// Maximum time until the API server serves a kind after the CRD of the kind is stored.
const SERVED: Duration = Duration::from_secs(30);

/// Settings of `install`.
pub(crate) struct Install {
    /// Image, as written by the user.
    pub(crate) image: String,
    /// `true` if the reference of the image has a digest.
    pub(crate) is_pinned: bool,
    /// Values that differ from the defaults.
    pub(crate) values: ChartValues,
    /// System namespace.
    pub(crate) namespace: String,
    /// Mode of the dry run.
    pub(crate) dry_run: DryRun,
    /// Wait mode and timeout for the pods.
    pub(crate) wait: Wait,
    /// Format of the objects that `--dry-run` prints.
    pub(crate) format: Option<Format>,
    /// Connection to the cluster.
    pub(crate) cluster: KubeSettings,
}

impl Install {
    /// Checks the cluster, prints the granted permissions, applies the objects, and waits.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let mut manifests = manifests::all(&self.namespace)?;
        self.values.apply(&self.image, &mut manifests);
        for line in grants::of(&manifests) {
            ui.note(line);
        }
        if !self.is_pinned {
            ui.note(format!(
                "the image {} is named by a tag, which can move; name its digest",
                self.image
            ));
        }
        if self.dry_run == DryRun::Client {
            return self.print(ui, &manifests, &BTreeSet::new());
        }
        let target = InstallTarget::connect(&self.cluster).await?;
        check_server(&target.cluster).await?;
        let existing = ExistingObjects::find(&target, &manifests).await?;
        existing.reject_second_installation()?;
        for line in existing.notes() {
            ui.note(line);
        }
        manifests.retain(|manifest| !existing.is_unchanged(manifest));
        for manifest in &mut manifests {
            if existing.is_managed(manifest) {
                manifest.set_managed();
            }
        }
        if self.dry_run == DryRun::Server {
            let skipped = self.dry_run_all(&target, &manifests, &existing).await?;
            warn(ui, &target.cluster);
            return self.print(ui, &manifests, &skipped);
        }
        if let Err(failure) = apply_all(ui, &target, &manifests, &existing).await {
            ui.note(
                "the installation is incomplete; kubectl bundle uninstall removes what it created",
            );
            return Err(failure);
        }
        if self.wait != Wait::No {
            self.wait_ready(ui, &target.cluster).await?;
        }
        Ok(())
    }

    /// Sends each object as a server-side dry run. Skips objects whose namespace or kind does not
    /// exist yet, and returns their titles.
    async fn dry_run_all(
        &self,
        target: &InstallTarget,
        manifests: &[EmbeddedManifest],
        existing: &ExistingObjects,
    ) -> Outcome<BTreeSet<String>> {
        let mut skipped = BTreeSet::new();
        for manifest in manifests {
            let lacks_namespace = manifest
                .namespace()
                .is_some_and(|namespace| !existing.has_namespace(namespace));
            if lacks_namespace || target.kind(manifest).await?.is_none() {
                skipped.insert(manifest.title());
                continue;
            }
            target
                .apply(manifest, DryRun::Server, existing.is_upgraded(manifest))
                .await?;
        }
        Ok(skipped)
    }

    /// Prints the objects of a dry run, or one line for each object.
    fn print(
        &self,
        ui: &mut Ui,
        manifests: &[EmbeddedManifest],
        skipped: &BTreeSet<String>,
    ) -> Outcome {
        let items: Vec<&Value> = manifests.iter().map(|manifest| &manifest.object).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        if ui.structured(self.format, &list)? {
            return Ok(());
        }
        for manifest in manifests {
            let title = manifest.title();
            let suffix = if skipped.contains(&title) {
                " (dry run; the server cannot validate it before its namespace or kind exists)"
            } else {
                self.dry_run.suffix()
            };
            ui.data(format!("{title} created{suffix}"))?;
        }
        Ok(())
    }

    /// Waits until all pods are ready. Prints the number of ready pods, and the reason why other
    /// pods are not ready.
    async fn wait_ready(&self, ui: &mut Ui, cluster: &Cluster) -> Outcome {
        let api: Api<Deployment> = Api::namespaced(cluster.client.clone(), &self.namespace);
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &self.namespace);
        let mut progress = ui.steps("waiting for the pods to be ready");
        let mut last = String::new();
        let question = async |item: Option<&Deployment>| {
            let Some(item) = item else {
                return Err(deleted_error("deployment bundle-webhook"));
            };
            let wanted = item.spec.as_ref().and_then(|spec| spec.replicas);
            let wanted = wanted.unwrap_or(1);
            let status = item.status.clone().unwrap_or_default();
            let is_current = status.observed_generation == item.metadata.generation;
            let ready = status.available_replicas.unwrap_or_default();
            if is_current
                && ready >= wanted
                && status.updated_replicas.unwrap_or_default() >= wanted
            {
                return Ok(WaitState::Met);
            }
            let selector = ListParams::default().labels("app.kubernetes.io/name=bundle-webhook");
            // The reason why pods are not ready is optional. A user without permission to list Pods
            // still gets the number of ready pods.
            let reason = match cluster.send(pods.list(&selector)).await {
                Ok(found) => found.items.iter().find_map(waiting_reason),
                Err(_) => None,
            };
            last = format!("{ready} of {wanted} pods are ready");
            if let Some(reason) = reason {
                last.push_str("; ");
                last.push_str(&reason);
            }
            progress.now(ui, &last);
            Ok(WaitState::Pending)
        };
        let outcome = cluster
            .wait_for(&api, DEPLOYMENT, self.wait, question, |limit| {
                timeout_error("the pods were not ready", limit).hint(
                    "the installation continues in the cluster; see the Pods: kubectl describe pods -l app.kubernetes.io/name=bundle-webhook",
                )
            })
            .await;
        drop(progress);
        match outcome {
            Ok(()) => {
                ui.note("bundle-webhook is ready");
                Ok(())
            }
            Err(Failure::Findings { findings, causes }) if causes.is_empty() => {
                Err(Failure::Findings {
                    findings,
                    causes: Some(last)
                        .filter(|text| !text.is_empty())
                        .into_iter()
                        .collect(),
                })
            }
            Err(other) => Err(other),
        }
    }
}

/// Prints the warnings of the API server.
fn warn(ui: &mut Ui, cluster: &Cluster) {
    for warning in cluster.take_warnings() {
        ui.server_warning(&warning);
    }
}

/// Returns an error for an unsupported version of Kubernetes.
async fn check_server(cluster: &Cluster) -> Outcome {
    let info = cluster.send(cluster.client.apiserver_version()).await?;
    check_version(&cluster.name, &info.git_version)
}

fn check_version(server: &str, reported: &str) -> Outcome {
    let version = ServerVersion::parse(reported)?;
    if version.is_supported() {
        return Ok(());
    }
    Err(Finding::error(
        codes::cluster::SERVER_TOO_OLD,
        format!(
            "the API server {server} has version {}; bundle-webhook needs {OLDEST_SERVER} or newer",
            version.as_reported()
        ),
    )
    .hint("upgrade the cluster first")
    .into())
}

/// Applies the objects phase by phase. Waits until the API server serves a new kind before it
/// applies an object of the kind. Registrations are applied last.
async fn apply_all(
    ui: &mut Ui,
    target: &InstallTarget,
    manifests: &[EmbeddedManifest],
    existing: &ExistingObjects,
) -> Outcome {
    for phase in InstallPhase::ALL {
        for manifest in manifests.iter().filter(|one| one.phase() == phase) {
            let is_upgraded = existing.is_upgraded(manifest);
            target
                .apply_when_served(manifest, is_upgraded, SERVED)
                .await?;
            warn(ui, &target.cluster);
            let word = if is_upgraded { "configured" } else { "created" };
            ui.data(format!("{} {word}", manifest.title()))?;
        }
    }
    Ok(())
}

/// Returns the reason why a pod is not ready, if its status contains a reason.
pub(crate) fn waiting_reason(pod: &Pod) -> Option<String> {
    let name = pod.metadata.name.as_deref()?;
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let waiting = containers
        .filter_map(|container| container.state.as_ref()?.waiting.as_ref())
        .find_map(|waiting| Some((waiting.reason.clone()?, waiting.message.clone())));
    if let Some((reason, message)) = waiting {
        let message = message.map(|text| format!(": {text}")).unwrap_or_default();
        return Some(format!("pod {name}: {reason}{message}"));
    }
    let conditions = status.conditions.iter().flatten();
    let unscheduled = conditions
        .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        .find_map(|condition| condition.message.clone());
    unscheduled.map(|message| format!("pod {name} is not scheduled: {message}"))
}

/// Returns the findings as one value.
fn findings(all: impl IntoIterator<Item = Finding>) -> Findings {
    let mut findings = Findings::default();
    for finding in all {
        findings.push(finding);
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_unsupported_server_versions() {
        for (version, is_refused) in [
            ("v1.32.9-eks-1552ad0", true),
            ("v1.33.0", false),
            ("v1.36.3+k3s1", false),
            ("2.0", false),
        ] {
            let outcome = check_version("https://127.0.0.1", version);
            assert_eq!(outcome.is_err(), is_refused, "{version}");
        }
    }

    #[test]
    fn reason_of_a_waiting_container_or_unscheduled_pod_is_shown() {
        let pod = |status: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "a"}, "status": status})).unwrap()
        };
        let pulling = json!({"containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
        }]});
        let reason = waiting_reason(&pod(pulling));
        assert_eq!(
            reason.as_deref(),
            Some("pod a: ImagePullBackOff: not found")
        );
        let unscheduled = json!({"conditions": [{
            "type": "PodScheduled", "status": "False", "message": "no nodes",
        }]});
        let reason = waiting_reason(&pod(unscheduled));
        assert_eq!(reason.as_deref(), Some("pod a is not scheduled: no nodes"));
    }
}
