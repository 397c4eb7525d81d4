//! Storage of inventories: one ConfigMap for each BundleDeployment, in the state namespace. Only
//! the pod has permission to write in this namespace. `bundle_core::plan::inventory` contains the
//! rules.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bundle_cluster::ByName;
use bundle_cluster::inventory::{self as config_map, NAME_PREFIX};
use bundle_core::plan::inventory::{
    InstallationRecord, Inventory, ObjectCounts, ObjectLimits, RecordedSeals, Reservation,
};
use bundle_core::plan::package_rules::InstalledPackage;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};

use super::adoption_claims::AdoptionClaims;
use super::error::{InventoryStoreError, Owner};
use crate::budget::limited_requester;
use crate::reconcile::api::object;

/// Number of ConfigMaps on one page of a list.
const PAGE_SIZE: u32 = 20;

#[derive(Clone)]
struct CachedInventory {
    inventory: Arc<Inventory>,
    resource_version: Option<String>,
}

impl CachedInventory {
    /// Returns the uids of the objects whose seals the inventory records.
    fn sealed_uids(&self) -> impl Iterator<Item = &str> {
        let record = self.inventory.record.iter();
        record.flat_map(InstallationRecord::sealed_uids)
    }
}

/// The cached inventories, with an index of the recorded seals.
#[derive(Default)]
struct CachedInventories {
    /// Inventories by uid of the BundleDeployment.
    by_uid: HashMap<String, CachedInventory>,
    /// The uid of the BundleDeployment whose inventory records the seals of an object, by uid of
    /// the object. If several inventories record seals of an object, the last cached inventory
    /// applies. Each seal has a MAC, which is checked when the seal is used.
    sealed_by: HashMap<String, String>,
}

impl CachedInventories {
    fn insert(&mut self, uid: &str, cached: CachedInventory) {
        self.remove(uid);
        for object in cached.sealed_uids() {
            self.sealed_by.insert(object.to_owned(), uid.to_owned());
        }
        self.by_uid.insert(uid.to_owned(), cached);
    }

    fn remove(&mut self, uid: &str) {
        let Some(removed) = self.by_uid.remove(uid) else {
            return;
        };
        for object in removed.sealed_uids() {
            if self.sealed_by.get(object).is_some_and(|owner| owner == uid) {
                self.sealed_by.remove(object);
            }
        }
    }

    /// Returns the recorded seals of the object with this uid.
    fn seals(&self, uid: &str) -> Option<&RecordedSeals> {
        let cached = self.by_uid.get(self.sealed_by.get(uid)?)?;
        cached.inventory.record.as_ref()?.seals(uid)
    }

    /// Returns the installation records of all inventories that have one.
    fn records(&self) -> impl Iterator<Item = &InstallationRecord> {
        let cached = self.by_uid.values();
        cached.filter_map(|cached| cached.inventory.record.as_ref())
    }
}

/// Reads, writes and caches all inventories. Each inventory is read once, because only the leader
/// writes inventories. If another process has written an inventory, the next write fails because of
/// the resourceVersion. After a failed write, the inventory is read again. The number of recorded
/// objects is limited, because all inventories stay in memory.
pub(in crate::reconcile) struct Inventories {
    api: Api<ConfigMap>,
    known: Mutex<CachedInventories>,
    /// Uids of BundleDeployments whose inventory was not read again after a failed write.
    unread: Mutex<HashSet<String>>,
    counts: Mutex<ObjectCounts>,
    claims: AdoptionClaims,
}

impl Inventories {
    pub(in crate::reconcile) fn new(client: Client, namespace: &str, limits: ObjectLimits) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            known: Mutex::default(),
            unread: Mutex::default(),
            counts: Mutex::new(ObjectCounts::new(limits)),
            claims: AdoptionClaims::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, CachedInventories> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unread(&self) -> MutexGuard<'_, HashSet<String>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, ObjectCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Caches an inventory after it was read or stored, and counts its objects.
    fn cache(&self, uid: &str, inventory: &Arc<Inventory>, resource_version: Option<String>) {
        self.counts()
            .record(uid, inventory.counted_objects() as u64);
        let cached = CachedInventory {
            inventory: inventory.clone(),
            resource_version,
        };
        self.known().insert(uid, cached);
        self.unread().remove(uid);
    }

    /// Counts the recorded objects of the BundleDeployment with this uid towards the limit of
    /// `requester`.
    pub(in crate::reconcile) fn set_requester(&self, uid: &str, requester: &str) {
        let requester = limited_requester(requester);
        self.counts().set_requester(uid, &requester);
    }

    /// Reserves `objects`, the number of objects that the BundleDeployment with this uid will
    /// record. Fails if a limit is exceeded. The next load or write of the inventory replaces the
    /// reservation.
    pub(in crate::reconcile) fn reserve(
        &self,
        (uid, requester): (&str, &str),
        objects: usize,
    ) -> Result<(), InventoryStoreError> {
        let requester = limited_requester(requester);
        let mut counts = self.counts();
        Ok(counts.reserve(uid, &requester, objects as u64)?)
    }

    /// Returns false only if the BundleDeployment with this uid has no recorded objects: its cached
    /// inventory is empty, or no inventory existed when this process became the leader and this
    /// process has stored none. Returns true after a failed write, until the inventory is read
    /// again.
    pub(in crate::reconcile) fn may_record_objects(&self, uid: &str) -> bool {
        if self.unread().contains(uid) {
            return true;
        }
        let known = self.known();
        let cached = known.by_uid.get(uid);
        cached.is_some_and(|cached| !cached.inventory.is_empty())
    }

    /// Returns the inventory of the BundleDeployment with this uid. Returns `None` if no inventory
    /// exists.
    pub(in crate::reconcile) async fn load(
        &self,
        uid: &str,
    ) -> Result<Option<Arc<Inventory>>, InventoryStoreError> {
        let known = self.known().by_uid.get(uid).cloned();
        if let Some(stored) = known {
            self.counts()
                .record(uid, stored.inventory.counted_objects() as u64);
            return Ok(Some(stored.inventory));
        }
        let found = ByName(&self.api)
            .get_opt(&format!("{NAME_PREFIX}{uid}"))
            .await;
        let found = found.map_err(|source| InventoryStoreError::Api {
            doing: "read",
            source,
        })?;
        let Some(found) = found else {
            self.counts().remove(uid);
            self.unread().remove(uid);
            return Ok(None);
        };
        let inventory = Arc::new(config_map::read(&found)?);
        self.cache(uid, &inventory, found.metadata.resource_version);
        Ok(Some(inventory))
    }

    /// Reads all inventories. Called before watches are opened, because watch events are assigned
    /// to BundleDeployments by inventory. A damaged inventory is skipped, and makes the reconciles
    /// of its BundleDeployment fail later.
    pub(in crate::reconcile) async fn load_all(&self) -> Result<Vec<Arc<Inventory>>, kube::Error> {
        let mut all = Vec::new();
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        loop {
            let page = self.api.list(&parameters).await?;
            for map in page.items {
                let name = map.name_any();
                let Some(uid) = name.strip_prefix(NAME_PREFIX) else {
                    continue;
                };
                match config_map::read(&map) {
                    Ok(inventory) => {
                        let inventory = Arc::new(inventory);
                        self.cache(uid, &inventory, map.metadata.resource_version);
                        let record = inventory.record.as_ref();
                        if let Some(installed) = record.and_then(|record| record.installed.as_ref())
                        {
                            self.set_requester(uid, &installed.requested_by);
                        }
                        all.push(inventory);
                    }
                    Err(error) => {
                        tracing::warn!(
                            name,
                            error = crate::chain(&error),
                            "skipped a damaged inventory; its BundleDeployment cannot be reconciled"
                        );
                    }
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok(all),
            }
        }
    }

    /// Returns the recorded seals of the Bundle or BundleDeployment with this uid. Returns `None`
    /// if no inventory records its seals.
    pub(in crate::reconcile) fn seals(&self, uid: &str) -> Option<RecordedSeals> {
        self.known().seals(uid).cloned()
    }

    /// Returns the digests of the contents that the inventories record as installed, or as healthy
    /// last.
    pub(in crate::reconcile) fn content_digests(&self) -> BTreeSet<String> {
        let known = self.known();
        let digests = known
            .records()
            .flat_map(InstallationRecord::content_digests);
        digests.map(str::to_owned).collect()
    }

    /// Returns the completely installed packages for whose name `is_wanted` returns true.
    pub(in crate::reconcile) fn packages(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<InstalledPackage> {
        let known = self.known();
        let packages = known
            .records()
            .filter_map(|record| record.installed.as_ref()?.package());
        packages
            .filter(|package| is_wanted(&package.name))
            .collect()
    }

    /// Stores `inventory` if it differs from the cached inventory. If the ConfigMap was deleted,
    /// creates it again.
    pub(in crate::reconcile) async fn save(
        &self,
        uid: &str,
        inventory: Inventory,
    ) -> Result<Arc<Inventory>, InventoryStoreError> {
        let known = self.known().by_uid.get(uid).cloned();
        if let Some(known) = &known
            && *known.inventory == inventory
        {
            self.counts()
                .record(uid, inventory.counted_objects() as u64);
            return Ok(known.inventory.clone());
        }
        let resource_version = known.and_then(|known| known.resource_version);
        let map = config_map::write(uid, &inventory, resource_version.clone())?;
        let stored = match self.store(map, resource_version.is_some()).await {
            Ok(stored) => stored,
            Err(error) => {
                // The cached inventory is removed, so that the next load reads the stored
                // inventory.
                self.unread().insert(uid.to_owned());
                self.known().remove(uid);
                return Err(error);
            }
        };
        let inventory = Arc::new(inventory);
        self.cache(uid, &inventory, stored.metadata.resource_version);
        Ok(inventory)
    }

    /// Stores the inventory of a BundleDeployment. `inventory` records objects that are about to be
    /// applied. `adopted` contains the uids of the adopted objects, by object key. Fails without a
    /// write if another BundleDeployment records one of the adopted objects, or if the number of
    /// objects exceeds a limit.
    ///
    /// During this call, the adopted objects are claimed. Therefore only one of several concurrent
    /// adoptions of an object succeeds.
    pub(in crate::reconcile) async fn save_adopting(
        &self,
        (uid, requester): (&str, &str),
        inventory: Inventory,
        adopted: &BTreeMap<String, String>,
    ) -> Result<Arc<Inventory>, InventoryStoreError> {
        if adopted.is_empty() {
            return self.save_reserved((uid, requester), inventory).await;
        }
        let _claim = self
            .claims
            .claim(adopted.keys().cloned().collect())
            .map_err(|object| InventoryStoreError::Claimed { object })?;
        if let Some((object, owner)) = self.owners(adopted, uid).await?.pop_first() {
            return Err(InventoryStoreError::Owned { object, owner });
        }
        self.save_reserved((uid, requester), inventory).await
    }

    /// Reserves the objects and stores the inventory. If the inventory cannot be stored, the
    /// reservation is released.
    async fn save_reserved(
        &self,
        (uid, requester): (&str, &str),
        inventory: Inventory,
    ) -> Result<Arc<Inventory>, InventoryStoreError> {
        self.reserve((uid, requester), inventory.counted_objects())?;
        let stored = self.save(uid, inventory).await;
        if stored.is_err() {
            let known = self
                .known()
                .by_uid
                .get(uid)
                .map(|known| known.inventory.counted_objects());
            match known {
                Some(objects) => self.counts().record(uid, objects as u64),
                None => self.counts().remove(uid),
            }
        }
        stored
    }

    async fn store(
        &self,
        mut map: ConfigMap,
        exists: bool,
    ) -> Result<ConfigMap, InventoryStoreError> {
        let parameters = PostParams::default();
        if exists {
            match ByName(&self.api).replace(&map.name_any(), &map).await {
                Err(error) if object::is_not_found(&error) => {
                    tracing::warn!(
                        name = map.name_any(),
                        "an inventory was deleted and is created again"
                    );
                    map.metadata.resource_version = None;
                }
                stored => return stored.map_err(not_written),
            }
        }
        self.api
            .create(&parameters, &map)
            .await
            .map_err(not_written)
    }

    /// Deletes the inventory of a BundleDeployment that no longer owns objects.
    pub(in crate::reconcile) async fn remove(&self, uid: &str) -> Result<(), InventoryStoreError> {
        self.known().remove(uid);
        let name = format!("{NAME_PREFIX}{uid}");
        match ByName(&self.api)
            .delete(&name, &DeleteParams::default())
            .await
        {
            Err(error) if !object::is_not_found(&error) => Err(not_written(error)),
            _ => {
                self.counts().remove(uid);
                self.unread().remove(uid);
                Ok(())
            }
        }
    }

    /// Returns the owners of those `objects` that have an owner. The owner of an object is the
    /// BundleDeployment whose inventory records the object, or the intent to create the object.
    /// `objects` contains uids by object key, and the result contains owners by object key. Ignores
    /// the BundleDeployment with uid `except`.
    ///
    /// Reads all stored inventories. No index exists, because this call is rare. Fails if an
    /// inventory is damaged, because a damaged inventory could record any object.
    pub(in crate::reconcile) async fn owners(
        &self,
        objects: &BTreeMap<String, String>,
        except: &str,
    ) -> Result<BTreeMap<String, Owner>, InventoryStoreError> {
        let own = format!("{NAME_PREFIX}{except}");
        let mut owners = BTreeMap::new();
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        loop {
            let page = self.api.list(&parameters).await;
            let page = page.map_err(|source| InventoryStoreError::Api {
                doing: "list",
                source,
            })?;
            for map in &page.items {
                if !map.name_any().starts_with(NAME_PREFIX) || map.name_any() == own {
                    continue;
                }
                let inventory = config_map::read(map)?;
                for (key, reservation) in reservations(&inventory, objects) {
                    let deployment = inventory.deployment.clone();
                    let owner = Owner {
                        deployment,
                        reservation,
                    };
                    owners.insert(key.to_owned(), owner);
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok(owners),
            }
        }
    }

    /// Returns the uids of all BundleDeployments that have an inventory.
    pub(in crate::reconcile) async fn uids(&self) -> Result<HashSet<String>, kube::Error> {
        let mut uids = HashSet::new();
        let mut parameters = ListParams::default().limit(object::PAGE_SIZE);
        loop {
            let page = self.api.list_metadata(&parameters).await?;
            let names = page.items.iter().map(kube::ResourceExt::name_any);
            uids.extend(names.filter_map(|name| Some(name.strip_prefix(NAME_PREFIX)?.to_owned())));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok(uids),
            }
        }
    }
}

/// Returns the reservations of those `objects` that `inventory` reserves, by object key. `objects`
/// contains uids by object key.
fn reservations<'o>(
    inventory: &'o Inventory,
    objects: &'o BTreeMap<String, String>,
) -> Vec<(&'o str, Reservation)> {
    let reservation = |key: &'o str, uid: &str| Some((key, inventory.reserves(key, uid)?));
    // Most inventories are small, and one installation can have thousands of objects.
    if inventory.len() < objects.len() {
        let recorded = inventory.objects().map(|(key, _)| key);
        recorded
            .filter_map(|key| reservation(key, objects.get(key)?))
            .collect()
    } else {
        let all = objects.iter();
        all.filter_map(|(key, uid)| reservation(key, uid)).collect()
    }
}

fn not_written(source: kube::Error) -> InventoryStoreError {
    match source {
        kube::Error::Api(status) if status.code == 409 => InventoryStoreError::Conflict,
        source => InventoryStoreError::Api {
            doing: "write",
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Returns a client of a server that stores the created ConfigMap, and rejects replacements.
    fn server() -> Client {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        tokio::spawn(async move {
            let mut stored = Value::Null;
            while let Some((request, reply)) = server.next_request().await {
                let (head, body) = request.into_parts();
                let (status, answer) = match head.method {
                    Method::POST => {
                        let body = body.collect_bytes().await.unwrap();
                        stored = serde_json::from_slice(&body).unwrap();
                        stored["metadata"]["resourceVersion"] = json!("1");
                        (201_u16, stored.clone())
                    }
                    Method::GET => (200, stored.clone()),
                    _ => {
                        let failure = json!({
                            "kind": "Status", "apiVersion": "v1", "status": "Failure",
                            "code": 500, "reason": "InternalError", "message": "failed",
                        });
                        (500, failure)
                    }
                };
                let body = Body::from(answer.to_string().into_bytes());
                reply.send_response(Response::builder().status(status).body(body).unwrap());
            }
        });
        Client::new(service, "default")
    }

    fn seals(admission: &str) -> RecordedSeals {
        RecordedSeals {
            admission: admission.to_owned(),
            content: None,
        }
    }

    /// Returns an inventory that records seals of these objects, with their uids as text.
    fn sealed(uids: &[&str]) -> CachedInventory {
        let mut record = InstallationRecord::default();
        record.remember(uids.iter().map(|uid| (*uid, seals(uid))));
        let mut inventory = Inventory::new("web");
        inventory.record = Some(record);
        CachedInventory {
            inventory: Arc::new(inventory),
            resource_version: None,
        }
    }

    #[test]
    fn many_small_inventories_are_not_searched_for_each_object() {
        let keys = (0..50_000).map(|number| format!("ConfigMap/team-a/{number}"));
        let objects: BTreeMap<String, String> = keys.map(|key| (key, "u".to_owned())).collect();
        let mut small = Inventory::new("web");
        small.record("ConfigMap/team-a/7", "u");
        small.record("ConfigMap/team-a/8", "other");
        small.record("ConfigMap/team-a/other", "u");
        let owned = ("ConfigMap/team-a/7", Reservation::Owned);
        for _ in 0..20_000 {
            assert_eq!(reservations(&small, &objects), [owned]);
        }
        let mut large = small.clone();
        for key in objects.keys().skip(1) {
            large.record(key, "other");
        }
        large.record_intent("ConfigMap/team-a/0", 1);
        let intended = ("ConfigMap/team-a/0", Reservation::Installing);
        assert_eq!(reservations(&large, &objects), [intended]);
    }

    #[test]
    fn seals_are_found_by_object_while_an_inventory_records_them() {
        let mut cached = CachedInventories::default();
        cached.insert("u1", sealed(&["u1", "b1"]));
        cached.insert("u2", sealed(&["u2", "b2"]));
        for uid in ["u1", "b1", "u2", "b2"] {
            assert_eq!(cached.seals(uid), Some(&seals(uid)));
        }
        cached.insert("u1", sealed(&["u1", "b3"]));
        assert_eq!(cached.seals("b1"), None);
        assert_eq!(cached.seals("b3"), Some(&seals("b3")));
        // Removing an inventory keeps the seals that another inventory records.
        cached.insert("u2", sealed(&["u2", "b3"]));
        cached.remove("u1");
        assert_eq!(cached.seals("u1"), None);
        assert_eq!(cached.seals("b3"), Some(&seals("b3")));
        cached.remove("u2");
        assert!(cached.by_uid.is_empty() && cached.sealed_by.is_empty());
    }

    #[tokio::test]
    async fn seals_are_unknown_after_a_failed_write_until_the_inventory_is_read_again() {
        let limits = ObjectLimits {
            total: 10,
            requester: 10,
        };
        let inventories = Inventories::new(server(), "bundle-system-state", limits);
        let inventory = |uids: &[&str]| (*sealed(uids).inventory).clone();
        inventories.save("u1", inventory(&["u1"])).await.unwrap();
        assert_eq!(inventories.seals("u1"), Some(seals("u1")));
        let changed = inventories.save("u1", inventory(&["u1", "b1"])).await;
        changed.unwrap_err();
        assert_eq!(inventories.seals("u1"), None);
        inventories.load("u1").await.unwrap();
        assert_eq!(inventories.seals("u1"), Some(seals("u1")));
        assert_eq!(inventories.seals("b1"), None);
    }

    #[tokio::test]
    async fn failed_write_may_have_recorded_objects_until_the_inventory_is_read_again() {
        let limits = ObjectLimits {
            total: 10,
            requester: 10,
        };
        let inventories = Inventories::new(server(), "bundle-system-state", limits);
        assert!(!inventories.may_record_objects("u1"));
        let empty = Inventory::new("web");
        inventories.save("u1", empty.clone()).await.unwrap();
        assert!(!inventories.may_record_objects("u1"));
        let mut inventory = empty;
        inventory.record("ConfigMap/team-a/web", "1");
        inventories.save("u1", inventory.clone()).await.unwrap_err();
        assert!(inventories.may_record_objects("u1"));
        assert!(inventories.load("u1").await.unwrap().is_some());
        assert!(!inventories.may_record_objects("u1"));
        inventories.save("u2", inventory).await.unwrap();
        assert!(inventories.may_record_objects("u2"));
    }
}
