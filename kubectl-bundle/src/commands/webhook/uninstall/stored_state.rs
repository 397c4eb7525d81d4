//! Removes objects that bundle-webhook stored in its namespaces. This is necessary if `uninstall`
//! keeps the namespaces, because they existed before the installation.

use bundle_cluster::ByName;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::commands::webhook::install::manifests::{DEPLOYMENT, state_namespace};
use crate::commands::webhook::install::target::InstallTarget;
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;

/// Secrets with the keys of bundle-webhook.
const SECRETS: [&str; 3] = [
    "bundle-webhook-tls",
    "bundle-webhook-stamp",
    "bundle-webhook-path",
];
/// Prefix of the names of inventories.
const INVENTORY: &str = "inventory-";

/// Removes the lease, keys and inventories.
pub(super) async fn remove(ui: &mut Ui, target: &InstallTarget, namespace: &str) -> Outcome {
    let state = state_namespace(namespace);
    let client = &target.cluster.client;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    delete(ui, target, &leases, DEPLOYMENT).await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &state);
    for name in SECRETS {
        delete(ui, target, &secrets, name).await?;
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &state);
    let list = target
        .cluster
        .send(maps.list_metadata(&ListParams::default()))
        .await?;
    for name in list.items.iter().map(ResourceExt::name_any) {
        if name.starts_with(INVENTORY) {
            delete(ui, target, &maps, &name).await?;
        }
    }
    Ok(())
}

async fn delete<K>(ui: &mut Ui, target: &InstallTarget, api: &Api<K>, name: &str) -> Outcome
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    match target
        .cluster
        .send(ByName(api).delete(name, &DeleteParams::default()))
        .await
    {
        Ok(()) => ui.data(format!("{}/{name} deleted", K::kind(&()).to_lowercase())),
        Err(Failure::Server(status)) if status.code == 404 => Ok(()),
        Err(failure) => Err(failure),
    }
}
