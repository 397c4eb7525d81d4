//! Removes the custom resources of this project: first BundleDeployments, as the flags select, and
//! then Bundles. All other custom resources are deleted together with their CRDs, after their names
//! are printed.

use bundle_api::{Bundle, BundleApproval, BundleDeployment, ProvisionerClass, SignaturePolicy};
use bundle_cluster::ByName;
use bundle_core::diagnostic::{Finding, codes};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{DeploymentsMode, Uninstall};
use crate::cluster::apply::DryRun;
use crate::cluster::wait::{WaitState, timeout_error};
use crate::commands::deployments::state::prediction::Goal;
use crate::commands::deployments::state::waiting;
use crate::commands::webhook::install::target::InstallTarget;
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;

/// Maximum number of names in one line.
const MAX_NAMED: usize = 5;
/// Number of objects on one page of a list.
const PAGE_SIZE: u32 = 500;

/// Removes BundleDeployments and Bundles, and lists all objects that are deleted together with
/// their CRDs. If `removes_kinds` is `false`, the CRDs and all other objects are kept, so only
/// BundleDeployments are read.
pub(super) async fn remove(
    ui: &mut Ui,
    target: &InstallTarget,
    uninstall: &Uninstall,
    removes_kinds: bool,
) -> Outcome {
    let deployments = names::<BundleDeployment>(target).await?;
    if !deployments.is_empty() {
        let Some(mode) = uninstall.deployments else {
            return Err(still_in_use(&deployments).into());
        };
        remove_deployments(ui, target, uninstall, &deployments, mode).await?;
    }
    if !removes_kinds {
        return Ok(());
    }
    remove_bundles(ui, target, uninstall).await?;
    for (kind, found) in [
        ("BundleApproval", names::<BundleApproval>(target).await?),
        ("SignaturePolicy", names::<SignaturePolicy>(target).await?),
        ("ProvisionerClass", names::<ProvisionerClass>(target).await?),
    ] {
        if !found.is_empty() {
            ui.note(format!(
                "deleted together with its CRD: {kind} {}",
                shortened(&found)
            ));
        }
    }
    Ok(())
}

/// Returns the names of all objects of a kind. The list is empty if the API server does not serve
/// the kind.
async fn names<K>(target: &InstallTarget) -> Outcome<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    if target
        .served(&K::group(&()), &K::version(&()), &K::kind(&()))
        .await?
        .is_none()
    {
        return Ok(Vec::new());
    }
    let api: Api<K> = Api::all(target.cluster.client.clone());
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    let mut names = Vec::new();
    loop {
        let page = target.cluster.send(api.list_metadata(&parameters)).await?;
        names.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(names),
        }
    }
}

fn shortened(names: &[String]) -> String {
    let shown = names[..names.len().min(MAX_NAMED)].join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn still_in_use(names: &[String]) -> Finding {
    let count = names.len();
    Finding::error(
        codes::cluster::STILL_IN_USE,
        format!(
            "{count} BundleDeployment(s) exist: {}; nothing was removed",
            shortened(names)
        ),
    )
    .hint("set the handling of their installed objects: --bundle-deployments=delete or --bundle-deployments=orphan")
}

async fn remove_deployments(
    ui: &mut Ui,
    target: &InstallTarget,
    uninstall: &Uninstall,
    names: &[String],
    mode: DeploymentsMode,
) -> Outcome {
    let cluster = &target.cluster;
    let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
    let is_dry_run = uninstall.dry_run != DryRun::None;
    for name in names {
        if mode == DeploymentsMode::Orphan && uninstall.dry_run != DryRun::Client {
            // The patch is a merge patch, because an apply would remove the other fields that
            // `deploy` has set.
            let patch = json!({"spec": {"deletion": {"objects": "Orphan"}}});
            cluster
                .merge::<BundleDeployment>(name, &patch, uninstall.dry_run)
                .await?;
        }
        if uninstall.dry_run != DryRun::Client {
            let mut parameters = DeleteParams::background();
            parameters.dry_run = is_dry_run;
            ignore_missing(cluster.send(ByName(&api).delete(name, &parameters)).await)?;
        }
        let objects = match mode {
            DeploymentsMode::Delete => "with its objects",
            DeploymentsMode::Orphan => "its objects stay",
        };
        ui.data(format!(
            "bundledeployment.core.rukpak.io/{name} deleted, {objects}{}",
            uninstall.dry_run.suffix()
        ))?;
    }
    if is_dry_run {
        return Ok(());
    }
    for name in names {
        waiting::wait_until(ui, cluster, name, Goal::Deleted, uninstall.wait, None).await?;
    }
    Ok(())
}

/// Removes Bundles. bundle-webhook removes their finalizers.
async fn remove_bundles(ui: &mut Ui, target: &InstallTarget, uninstall: &Uninstall) -> Outcome {
    let cluster = &target.cluster;
    let api: Api<Bundle> = Api::all(cluster.client.clone());
    for name in names::<Bundle>(target).await? {
        if uninstall.dry_run == DryRun::None {
            ignore_missing(
                cluster
                    .send(ByName(&api).delete(&name, &DeleteParams::background()))
                    .await,
            )?;
            let question = async |item: Option<&Bundle>| {
                Ok(if item.is_none() {
                    WaitState::Met
                } else {
                    WaitState::Pending
                })
            };
            cluster
                .wait_for(&api, &name, uninstall.wait, question, |limit| {
                    timeout_error(&format!("bundle {name} was not deleted"), limit)
                        .hint("the pod removes its finalizer; check that the pod runs, then run the command again")
                })
                .await?;
        }
        ui.data(format!(
            "bundle.core.rukpak.io/{name} deleted{}",
            uninstall.dry_run.suffix()
        ))?;
    }
    Ok(())
}

fn ignore_missing(outcome: Outcome) -> Outcome {
    match outcome {
        Err(Failure::Server(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_names_are_shortened() {
        let names: Vec<String> = (0..7).map(|number| format!("n{number}")).collect();
        assert_eq!(shortened(&names), "n0, n1, n2, n3, n4 and 2 more");
        assert_eq!(shortened(&names[..2]), "n0, n1");
    }
}
