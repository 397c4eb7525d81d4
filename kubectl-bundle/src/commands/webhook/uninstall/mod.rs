//! `uninstall`: removes the objects that `install` created. BundleDeployments are removed first,
//! while bundle-webhook runs. The webhook registrations are removed next, because requests would
//! otherwise wait for a pod that no longer exists. All other objects are removed in the reverse
//! order of the installation.

mod arguments;
mod custom_resources;
mod stored_state;

use bundle_core::diagnostic::{Finding, codes};
use kube::api::{DeleteParams, DynamicObject, PropagationPolicy};

use super::install::manifests::{self, DEPLOYMENT, EmbeddedManifest, InstallPhase};
use super::install::origin::InstallOrigin;
use super::install::target::InstallTarget;
use crate::cluster::KubeSettings;
use crate::cluster::apply::DryRun;
use crate::cluster::wait::{Wait, WaitState, timeout_error};
use crate::failure::Outcome;
use crate::ui::Ui;

pub(crate) use arguments::{Arguments, DeploymentsMode};

/// Settings of `uninstall`.
pub(crate) struct Uninstall {
    /// Handling of BundleDeployments.
    pub(crate) deployments: Option<DeploymentsMode>,
    /// System namespace from the flag.
    pub(crate) namespace: Option<String>,
    /// Time limit of each step.
    pub(crate) wait: Wait,
    /// Mode of the dry run.
    pub(crate) dry_run: DryRun,
    /// Connection to the cluster.
    pub(crate) cluster: KubeSettings,
}

impl Uninstall {
    /// Checks the cluster, removes the objects, and waits until they are deleted.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let target = InstallTarget::connect(&self.cluster).await?;
        let namespace = self.system_namespace(&target).await?;
        let all = manifests::all(&namespace)?;
        let installed = find(&target, &all).await?;
        let removes_kinds = installed
            .iter()
            .any(|manifest| manifest.phase() == InstallPhase::Definitions);
        custom_resources::remove(ui, &target, &self, removes_kinds).await?;
        for phase in InstallPhase::ALL.into_iter().rev() {
            let of_phase: Vec<&EmbeddedManifest> = installed
                .iter()
                .filter(|manifest| manifest.phase() == phase)
                .collect();
            for manifest in &of_phase {
                if self.dry_run != DryRun::Client {
                    target.delete(manifest, &self.parameters(phase)).await?;
                }
                ui.data(format!(
                    "{} deleted{}",
                    manifest.title(),
                    self.dry_run.suffix()
                ))?;
            }
            if self.dry_run == DryRun::None {
                for manifest in of_phase {
                    self.wait_gone(ui, &target, manifest).await?;
                }
            }
        }
        if self.dry_run == DryRun::None {
            stored_state::remove(ui, &target, &namespace).await?;
            ui.note("bundle-webhook is gone");
        }
        Ok(())
    }

    /// Returns the system namespace of the installation, from the ClusterRoleBinding of
    /// bundle-webhook. Only administrators can write this ClusterRoleBinding.
    async fn system_namespace(&self, target: &InstallTarget) -> Outcome<String> {
        let mut bound = None;
        for manifest in manifests::all(manifests::DEFAULT_SYSTEM_NAMESPACE)? {
            if manifest.kind() == "ClusterRoleBinding" && manifest.name() == DEPLOYMENT {
                let found = target.get(&manifest).await?.unwrap_or_default();
                bound = found["subjects"][0]["namespace"]
                    .as_str()
                    .map(str::to_owned);
            }
        }
        match (&self.namespace, bound) {
            (Some(given), Some(bound)) if *given != bound => Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!("the installation is in namespace {bound}, not in {given}"),
            )
            .at_field("--system-namespace")
            .hint(format!(
                "kubectl bundle uninstall --system-namespace {bound}"
            ))
            .into()),
            (Some(given), _) => Ok(given.clone()),
            (None, bound) => {
                Ok(bound.unwrap_or_else(|| manifests::DEFAULT_SYSTEM_NAMESPACE.to_owned()))
            }
        }
    }

    /// Returns the parameters of deletions. The Deployment is deleted in the foreground, so that
    /// its pods are deleted before their permissions.
    fn parameters(&self, phase: InstallPhase) -> DeleteParams {
        let mut parameters = DeleteParams::background();
        if phase == InstallPhase::Workload {
            parameters.propagation_policy = Some(PropagationPolicy::Foreground);
        }
        parameters.dry_run = self.dry_run == DryRun::Server;
        parameters
    }

    async fn wait_gone(
        &self,
        ui: &mut Ui,
        target: &InstallTarget,
        manifest: &EmbeddedManifest,
    ) -> Outcome {
        let Some(api) = target.api(manifest).await? else {
            return Ok(());
        };
        let title = manifest.title();
        let mut progress = ui.steps(&format!("waiting for the deletion of {title}"));
        let question = async |item: Option<&DynamicObject>| {
            if item.is_none() {
                return Ok(WaitState::Met);
            }
            progress.now(ui, &format!("waiting for the deletion of {title}"));
            Ok(WaitState::Pending)
        };
        target
            .cluster
            .wait_for(&api, manifest.name(), self.wait, question, |limit| {
                timeout_error(&format!("{title} was not deleted"), limit)
                    .hint("its finalizers and conditions name the reason: remove the reason, then run the command again")
            })
            .await
    }
}

/// Returns the objects that `install` created. Registrations are included even if another user
/// recreated them, because they block every write of this project's kinds when no pod runs.
async fn find(target: &InstallTarget, all: &[EmbeddedManifest]) -> Outcome<Vec<EmbeddedManifest>> {
    let mut installed = Vec::new();
    let mut others = Vec::new();
    let mut recreated = Vec::new();
    for manifest in all {
        match target.get(manifest).await?.as_ref().map(InstallOrigin::of) {
            Some(InstallOrigin::Plugin) => installed.push(manifest.clone()),
            Some(InstallOrigin::Other) if manifest.phase() == InstallPhase::Registrations => {
                recreated.push(manifest.clone());
                others.push(InstallOrigin::Other);
            }
            Some(origin) if !manifest.phase().outlives_installation() => others.push(origin),
            _ => {}
        }
    }
    if !installed.is_empty() {
        installed.append(&mut recreated);
        return Ok(installed);
    }
    let finding = match others.into_iter().min() {
        Some(InstallOrigin::Helm { release, namespace }) => Finding::error(
            codes::cluster::NOT_INSTALLED,
            format!("bundle-webhook belongs to Helm release {release} in namespace {namespace}"),
        )
        .hint(format!("helm uninstall {release} --namespace {namespace}")),
        Some(_) => Finding::error(
            codes::cluster::NOT_INSTALLED,
            "`kubectl bundle install` did not create the installation in this cluster",
        )
        .hint(
            "delete it with the tool that applied it, for example kubectl delete -f webhook/deploy",
        ),
        None => Finding::error(
            codes::cluster::NOT_INSTALLED,
            format!(
                "the cluster {} has no bundle-webhook that `kubectl bundle install` created",
                target.cluster.name
            ),
        )
        .hint("check the cluster with --context, and the namespace with --system-namespace"),
    };
    Err(finding.into())
}
