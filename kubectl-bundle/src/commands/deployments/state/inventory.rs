//! Reads the inventory of a BundleDeployment from the state namespace.

use bundle_api::BundleDeployment;
use bundle_cluster::{ByName, inventory, namespaced};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::plan::inventory::Inventory;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject};

use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};

/// Returns the inventory of `item` in `namespace`; `None` before the first installation.
pub(crate) async fn read(
    cluster: &Cluster,
    namespace: &str,
    item: &BundleDeployment,
) -> Outcome<Option<Inventory>> {
    let uid = item.metadata.uid.as_deref().unwrap_or_default();
    let map = format!("{}{uid}", inventory::NAME_PREFIX);
    let kind = ApiResource::erase::<ConfigMap>(&());
    let request = async {
        let api = namespaced::<DynamicObject>(&cluster.client, &kind, Some(namespace))?;
        ByName(&api).get_opt(&map).await
    };
    let found = cluster.send(request).await?;
    let Some(found) = found else {
        let status = item.status.as_ref();
        return if status.is_some_and(|status| status.installed.is_some()) {
            let why = format!("namespace {namespace} has no ConfigMap {map}");
            Err(unread(item, &why))
        } else {
            Ok(None)
        };
    };
    let found: ConfigMap = found
        .try_parse()
        .map_err(|error| unread(item, &error.to_string()))?;
    let read = inventory::read(&found).map_err(|error| unread(item, &error.to_string()))?;
    Ok(Some(read))
}

/// Returns the error for an inventory that could not be read.
fn unread(item: &BundleDeployment, why: &str) -> Failure {
    let name = item.metadata.name.as_deref().unwrap_or_default();
    Finding::error(
        codes::cluster::INVENTORY_UNREAD,
        format!("cannot read the inventory of bundledeployment {name}: {why}"),
    )
    .hint("select the namespace of the inventories with --state-namespace; `kubectl bundle status` lists the objects by label")
    .into()
}
