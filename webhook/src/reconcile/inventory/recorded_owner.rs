//! Finds the BundleDeployment whose inventory records an object. Used in admission reviews, which
//! every replica answers. The stored inventories are read each time, because only the leader caches
//! inventories.

use bundle_cluster::ByName;
use bundle_cluster::inventory::{self as config_map, NAME_PREFIX};
use bundle_core::plan::inventory::Inventory;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};

use super::error::InventoryStoreError;

/// Number of ConfigMaps on one page of a list.
const PAGE_SIZE: u32 = 20;

/// The BundleDeployment whose inventory records an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOwner {
    /// Uid of the BundleDeployment.
    pub uid: String,
    /// Name of the BundleDeployment.
    pub deployment: String,
    /// Namespace and name of the ServiceAccount that has installed the content. `None` if no
    /// content is completely installed.
    pub account: Option<(String, String)>,
}

impl RecordedOwner {
    /// Returns the BundleDeployment `uid` if its `inventory` records an object, or the intent to
    /// create this object. `key` is the object key, and `object` is the uid of the object.
    fn of(uid: &str, inventory: &Inventory, (key, object): (&str, &str)) -> Option<Self> {
        inventory.reserves(key, object)?;
        let record = inventory.record.as_ref();
        let installed = record.and_then(|record| record.installed.as_ref());
        Some(Self {
            uid: uid.to_owned(),
            deployment: inventory.deployment.clone(),
            account: installed.map(|installed| {
                let namespace = installed.account_namespace.clone();
                (namespace, installed.account_name.clone())
            }),
        })
    }
}

/// The stored inventories in the state namespace.
pub(crate) struct StoredInventories {
    api: Api<ConfigMap>,
}

impl StoredInventories {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
        }
    }

    /// Returns the BundleDeployment whose inventory records an object. `object` is the object key
    /// and the uid of this object. Reads the inventory of the BundleDeployment with the uid
    /// `likely` first.
    ///
    /// Fails if an inventory is damaged, because a damaged inventory could record any object.
    pub(crate) async fn owner(
        &self,
        object: (&str, &str),
        likely: Option<&str>,
    ) -> Result<Option<RecordedOwner>, String> {
        if let Some(uid) = likely {
            let name = format!("{NAME_PREFIX}{uid}");
            let found = ByName(&self.api).get_opt(&name).await;
            let found = found.map_err(|source| {
                let doing = "read";
                InventoryStoreError::Api { doing, source }.to_string()
            })?;
            if let Some(owner) = found
                .map(|map| owner_in(&map, object))
                .transpose()?
                .flatten()
            {
                return Ok(Some(owner));
            }
        }
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        loop {
            let page = self.api.list(&parameters).await.map_err(|source| {
                let doing = "list";
                InventoryStoreError::Api { doing, source }.to_string()
            })?;
            for map in &page.items {
                if let Some(owner) = owner_in(map, object)? {
                    return Ok(Some(owner));
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok(None),
            }
        }
    }
}

fn owner_in(map: &ConfigMap, object: (&str, &str)) -> Result<Option<RecordedOwner>, String> {
    let name = map.name_any();
    let Some(uid) = name.strip_prefix(NAME_PREFIX) else {
        return Ok(None);
    };
    let inventory = config_map::read(map).map_err(|error| error.to_string())?;
    Ok(RecordedOwner::of(uid, &inventory, object))
}

#[cfg(test)]
mod tests {
    use bundle_core::plan::inventory::{InstallationRecord, InstalledContent};

    use super::*;

    const KEY: &str = "CustomResourceDefinition.apiextensions.k8s.io/jugs.example.com";

    #[test]
    fn only_the_inventory_decides_and_only_for_the_recorded_uid() {
        let mut inventory = Inventory::new("shop");
        inventory.record(KEY, "1");
        let map = |inventory: &Inventory| config_map::write("u", inventory, None).unwrap();
        let expected = |account: Option<(&str, &str)>| RecordedOwner {
            uid: "u".to_owned(),
            deployment: "shop".to_owned(),
            account: account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
        };
        let found = owner_in(&map(&inventory), (KEY, "1")).unwrap();
        assert_eq!(found, Some(expected(None)));
        let mut record = InstallationRecord::default();
        record.installed = Some(InstalledContent {
            account_namespace: "bundle-system".to_owned(),
            account_name: "installer".to_owned(),
            ..InstalledContent::default()
        });
        inventory.record = Some(record);
        let map = map(&inventory);
        let found = owner_in(&map, (KEY, "1")).unwrap();
        assert_eq!(found, Some(expected(Some(("bundle-system", "installer")))));
        // An object with another uid or another name than the recorded object has no owner.
        assert_eq!(owner_in(&map, (KEY, "2")).unwrap(), None);
        assert_eq!(owner_in(&map, (KEY, "")).unwrap(), None);
        assert_eq!(owner_in(&map, ("ConfigMap/a/b", "1")).unwrap(), None);
        let mut other = map.clone();
        other.metadata.name = Some("ca".to_owned());
        assert_eq!(owner_in(&other, (KEY, "1")).unwrap(), None);
        let mut damaged = map;
        damaged.binary_data = None;
        assert!(owner_in(&damaged, (KEY, "1")).is_err());
    }
}
