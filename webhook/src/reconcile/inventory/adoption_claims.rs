//! Objects that BundleDeployments are adopting at this moment. Only the leader adopts objects, so
//! one set in the memory of the leader is sufficient.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The object keys of the objects that are being adopted.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct AdoptionClaims(Mutex<HashSet<String>>);

/// Blocks other adoptions of the same objects until this value is dropped.
#[derive(Debug)]
pub(in crate::reconcile) struct AdoptionClaim<'a> {
    claims: &'a AdoptionClaims,
    keys: Vec<String>,
}

impl AdoptionClaims {
    /// Claims the objects with these object keys. If another adoption has claimed one of the
    /// objects, claims nothing and returns the key of this object as the error.
    pub(in crate::reconcile) fn claim(
        &self,
        keys: Vec<String>,
    ) -> Result<AdoptionClaim<'_>, String> {
        let mut claimed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = keys.iter().find(|key| claimed.contains(*key)) {
            return Err(taken.clone());
        }
        claimed.extend(keys.iter().cloned());
        drop(claimed);
        Ok(AdoptionClaim { claims: self, keys })
    }
}

impl Drop for AdoptionClaim<'_> {
    fn drop(&mut self) {
        let claimed = self.claims.0.lock();
        let mut claimed = claimed.unwrap_or_else(PoisonError::into_inner);
        for key in &self.keys {
            claimed.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use bundle_core::plan::inventory::{Inventory, ObjectLimits};
    use http::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::reconcile::inventory::error::InventoryStoreError;
    use crate::reconcile::inventory::store::Inventories;

    /// Returns a client of a server that stores and lists ConfigMaps.
    fn server() -> Client {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        tokio::spawn(async move {
            let mut stored: Vec<Value> = Vec::new();
            while let Some((request, reply)) = server.next_request().await {
                let answer = if request.method() == Method::GET {
                    json!({"metadata": {"resourceVersion": "1"}, "items": stored})
                } else {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let mut map: Value = serde_json::from_slice(&body).unwrap();
                    map["metadata"]["resourceVersion"] = json!("1");
                    stored.push(map.clone());
                    map
                };
                let body = Body::from(answer.to_string().into_bytes());
                reply.send_response(Response::new(body));
            }
        });
        Client::new(service, "state")
    }

    /// Returns inventories with two limits: three recorded objects in total, and two objects for
    /// each requester.
    fn inventories() -> Inventories {
        let limits = ObjectLimits {
            total: 3,
            requester: 2,
        };
        Inventories::new(server(), "state", limits)
    }

    async fn adopt(
        inventories: &Inventories,
        deployment: &str,
        key: &str,
    ) -> Result<Arc<Inventory>, InventoryStoreError> {
        let mut inventory = Inventory::new(deployment);
        let adoption = inventory.adopt(key, "uid").unwrap();
        let adopted = BTreeMap::from([(key.to_owned(), adoption.uid().to_owned())]);
        let uid = format!("uid-of-{deployment}");
        inventories
            .save_adopting((&uid, "ana"), inventory, &adopted)
            .await
    }

    #[tokio::test]
    async fn only_one_of_concurrent_adoptions_succeeds() {
        let inventories = inventories();
        let (first, second, other) = futures::join!(
            adopt(&inventories, "first", "ConfigMap/x/web"),
            adopt(&inventories, "second", "ConfigMap/x/web"),
            adopt(&inventories, "other", "ConfigMap/x/other"),
        );
        first.unwrap();
        other.unwrap();
        let claimed = matches!(second, Err(InventoryStoreError::Claimed { object }) if object == "ConfigMap/x/web");
        assert!(claimed);
        let again = adopt(&inventories, "second", "ConfigMap/x/web").await;
        assert_eq!(
            again.unwrap_err().to_string(),
            "ConfigMap/x/web belongs to BundleDeployment first"
        );
    }

    #[tokio::test]
    async fn object_that_another_deployment_is_about_to_create_is_not_adopted() {
        let inventories = inventories();
        let mut first = Inventory::new("first");
        first.record_intent("ConfigMap/x/web", 100);
        inventories.save("uid-of-first", first).await.unwrap();
        let refused = adopt(&inventories, "second", "ConfigMap/x/web").await;
        assert_eq!(
            refused.unwrap_err().to_string(),
            "ConfigMap/x/web is being installed by BundleDeployment first"
        );
        adopt(&inventories, "second", "ConfigMap/x/other")
            .await
            .unwrap();
    }

    /// Records intents to create the objects `keys`. `deployment` is the uid and the requester of
    /// the BundleDeployment.
    async fn intend(
        inventories: &Inventories,
        deployment: (&str, &str),
        keys: &[&str],
    ) -> Result<Arc<Inventory>, InventoryStoreError> {
        let mut inventory = Inventory::new(deployment.0);
        for key in keys {
            inventory.record_intent(*key, 100);
        }
        let adopted = BTreeMap::new();
        inventories
            .save_adopting(deployment, inventory, &adopted)
            .await
    }

    #[tokio::test]
    async fn objects_above_the_limit_of_a_requester_are_not_recorded() {
        let inventories = inventories();
        let (first, second) = (("first", "ana"), ("second", "ana"));
        intend(&inventories, first, &["ConfigMap/x/a"])
            .await
            .unwrap();
        let keys = ["ConfigMap/x/b", "ConfigMap/x/c"];
        let error = intend(&inventories, second, &keys).await.unwrap_err();
        let expected = "the content adds 2 objects to the 1 that are installed for requester \"ana\", who can have 2";
        assert!(error.to_string().starts_with(expected), "{error}");
        let stored = inventories.uids().await.unwrap();
        assert!(stored.contains("first") && !stored.contains("second"));
        // Another requester can record objects up to the total limit. A BundleDeployment can
        // replace its recorded objects with other objects.
        intend(&inventories, ("other", "ben"), &keys).await.unwrap();
        intend(&inventories, first, &["ConfigMap/x/d"])
            .await
            .unwrap();
        inventories.remove("other").await.unwrap();
        intend(&inventories, second, &keys[..1]).await.unwrap();
        intend(&inventories, second, &keys).await.unwrap_err();
    }

    #[tokio::test]
    async fn inventories_above_the_limit_are_loaded_and_do_not_grow() {
        let large = inventories();
        let mut inventory = Inventory::new("first");
        let keys = ["a", "b", "c", "d", "e"].map(|name| format!("ConfigMap/x/{name}"));
        for key in &keys {
            inventory.record(key, "uid");
        }
        // This inventory exceeds the limits, as if it had been stored when the limits were higher.
        large.save("first", inventory.clone()).await.unwrap();
        let loaded = large.load("first").await.unwrap().unwrap();
        assert_eq!(*loaded, inventory);
        inventory.record_intent(&keys[0], 100);
        let (first, none) = (("first", "ana"), BTreeMap::new());
        large
            .save_adopting(first, inventory.clone(), &none)
            .await
            .unwrap();
        inventory.record_intent("ConfigMap/x/f", 100);
        let error = large.save_adopting(first, inventory, &none).await;
        assert!(matches!(error, Err(InventoryStoreError::TooManyObjects(_))));
        let stored = large.load("first").await.unwrap().unwrap();
        assert_eq!(stored.len(), keys.len());
    }

    #[test]
    fn claimed_object_cannot_be_claimed_again() {
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        let claims = AdoptionClaims::default();
        let first = claims.claim(keys(&["a", "b"])).unwrap();
        let second = claims.claim(keys(&["c", "b"]));
        assert_eq!(second.unwrap_err(), "b");
        let third = claims.claim(keys(&["c"])).unwrap();
        drop(first);
        claims.claim(keys(&["a", "b"])).unwrap();
        assert_eq!(claims.claim(keys(&["c"])).unwrap_err(), "c");
        drop(third);
        claims.claim(keys(&["c"])).unwrap();
    }
}
