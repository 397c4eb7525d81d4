//! `uninstall`: removes what `install` created. BundleDeployments go first, while the pod still runs; then registrations, so that nothing waits for a
//! pod that is gone; then all else, in the opposite order of the installation.

mod arguments;
mod content;
mod leftovers;

use bundle_core::diagnostic::{Finding, codes};
use kube::api::{DeleteParams, DynamicObject, PropagationPolicy};

use super::install::manifests::{self, DEPLOYMENT, Manifest, Phase};
use super::install::origin::Origin;
use super::install::target::Target;
use crate::cluster::KubeSettings;
use crate::cluster::apply::DryRun;
use crate::cluster::wait::{Seen, Wait, late};
use crate::failure::Outcome;
use crate::ui::Ui;

pub(crate) use arguments::{Arguments, BundleDeployments};

/// Settings of `uninstall`.
pub(crate) struct Uninstall {
    /// What becomes of BundleDeployments.
    pub(crate) deployments: Option<BundleDeployments>,
    /// The system namespace, if it was given.
    pub(crate) namespace: Option<String>,
    /// The limit of each step.
    pub(crate) wait: Wait,
    /// Dry run, or not.
    pub(crate) dry_run: DryRun,
    /// The cluster.
    pub(crate) cluster: KubeSettings,
}

impl Uninstall {
    /// Checks, removes, and waits until everything is gone.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let target = Target::connect(&self.cluster).await?;
        let namespace = self.system_namespace(&target).await?;
        let all = manifests::all(&namespace)?;
        let installed = find(&target, &all).await?;
        let removes_kinds = installed
            .iter()
            .any(|manifest| manifest.phase() == Phase::Definitions);
        content::remove(ui, &target, &self, removes_kinds).await?;
        for phase in Phase::ALL.into_iter().rev() {
            let of_phase: Vec<&Manifest> = installed
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
            leftovers::remove(ui, &target, &namespace).await?;
            ui.note("bundle-webhook is gone");
        }
        Ok(())
    }

    /// The system namespace of the installation. The pod's ClusterRoleBinding names it, which nobody but administrators can write.
    async fn system_namespace(&self, target: &Target) -> Outcome<String> {
        let mut bound = None;
        for manifest in manifests::all(manifests::SYSTEM)? {
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
            (None, bound) => Ok(bound.unwrap_or_else(|| manifests::SYSTEM.to_owned())),
        }
    }

    /// Pods go with their Deployment, before the rights that they use.
    fn parameters(&self, phase: Phase) -> DeleteParams {
        let mut parameters = DeleteParams::background();
        if phase == Phase::Workload {
            parameters.propagation_policy = Some(PropagationPolicy::Foreground);
        }
        parameters.dry_run = self.dry_run == DryRun::Server;
        parameters
    }

    async fn wait_gone(&self, ui: &mut Ui, target: &Target, manifest: &Manifest) -> Outcome {
        let Some(api) = target.api(manifest).await? else {
            return Ok(());
        };
        let title = manifest.title();
        let mut progress = ui.steps(&format!("waiting for {title} to be gone"));
        let question = async |item: Option<&DynamicObject>| {
            if item.is_none() {
                return Ok(Seen::Done);
            }
            progress.now(ui, &format!("waiting for {title} to be gone"));
            Ok(Seen::NotYet)
        };
        target
            .cluster
            .wait_for(&api, manifest.name(), self.wait, question, |limit| {
                late(&format!("{title} was not gone"), limit)
                    .hint("its finalizers and conditions say what holds it; run the command again afterwards")
            })
            .await
    }
}

/// Returns the objects that `install` created, and its registrations also where somebody has made them anew: nothing of our kinds could be
/// written while they outlive the pod.
async fn find(target: &Target, all: &[Manifest]) -> Outcome<Vec<Manifest>> {
    let mut installed = Vec::new();
    let mut others = Vec::new();
    let mut renewed = Vec::new();
    for manifest in all {
        match target.get(manifest).await?.as_ref().map(Origin::of) {
            Some(Origin::Plugin) => installed.push(manifest.clone()),
            Some(Origin::Other) if manifest.phase() == Phase::Registrations => {
                renewed.push(manifest.clone());
                others.push(Origin::Other);
            }
            Some(origin) if !manifest.phase().outlives_installation() => others.push(origin),
            _ => {}
        }
    }
    if !installed.is_empty() {
        installed.append(&mut renewed);
        return Ok(installed);
    }
    let finding = match others.into_iter().min() {
        Some(Origin::Helm { release, namespace }) => Finding::error(
            codes::cluster::NOT_INSTALLED,
            format!("bundle-webhook belongs to Helm release {release} in namespace {namespace}"),
        )
        .hint(format!("helm uninstall {release} --namespace {namespace}")),
        Some(_) => Finding::error(
            codes::cluster::NOT_INSTALLED,
            "this program did not create the installation in this cluster",
        )
        .hint("delete it with what applied it, such as kubectl delete -f webhook/deploy"),
        None => Finding::error(
            codes::cluster::NOT_INSTALLED,
            format!(
                "the cluster {} has no installation by this program",
                target.cluster.name
            ),
        )
        .hint("check the cluster with --context, and the namespace with --system-namespace"),
    };
    Err(finding.into())
}
