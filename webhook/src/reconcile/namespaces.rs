//! Whether the namespaces that content lives in are still those that it was installed into: one that was deleted and made anew may be somebody else's.
//! Not here: Namespaces that the content itself has; those are objects as all others.

use std::collections::{BTreeMap, BTreeSet};

use bundle_cluster::ByName;
use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::consent::{Act, Consent};
use bundle_core::plan::phases::Phase;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use super::deployment::{LISTED, Turn};
use super::items::Item;
use super::object;
use super::place::Placing;
use super::trouble::{Retry, Trouble};

/// The uids of namespaces that exist, by name.
pub(super) type Uids = BTreeMap<String, String>;

/// The uids of those of `names` that exist, read as the pod itself: an installing identity need not be allowed to.
pub(super) async fn uids(own: &Client, names: BTreeSet<&str>) -> Result<Uids, kube::Error> {
    let api: Api<Namespace> = Api::all(own.clone());
    let looks = super::parallel::all(names.into_iter().map(|name| {
        let api = api.clone();
        async move {
            match ByName(&api).get_metadata_opt(name).await {
                Ok(found) => Ok(found.and_then(|found| Some((name.to_owned(), found.uid()?)))),
                Err(error) if object::is_not_found(&error) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }))
    .await;
    looks.into_iter().filter_map(Result::transpose).collect()
}

impl Turn<'_> {
    /// The namespaces that `items` live in, as far as they exist.
    pub(super) async fn namespaces_of(&self, items: &[&Item]) -> Result<Uids, Trouble> {
        let names = items.iter().filter_map(|item| item.id.namespace.as_deref());
        uids(&self.room.own, names.collect())
            .await
            .map_err(|error| Trouble::api("read the namespaces", self.install_reason(), &error))
    }

    /// Before anything is created: where a namespace is another one than the content was installed into, somebody has to answer for it once more.
    ///
    /// The rights of the requesters are asked again; objects that the class decides about wait for the next write of the spec.
    pub(super) async fn check_namespaces(
        &mut self,
        placing: &Placing<'_>,
        items: &[&Item],
        (act, live): (Act, &Uids),
    ) -> Result<(), Trouble> {
        let replaced: BTreeSet<&str> = live
            .iter()
            .filter(|(name, uid)| {
                self.inventory
                    .namespace(name)
                    .is_some_and(|recorded| recorded != uid.as_str())
            })
            .map(|(name, _)| name.as_str())
            .collect();
        if replaced.is_empty() {
            return Ok(());
        }
        let rule = self.consent_rule(placing);
        let is_delegated = |item: &Item| rule.consent(act, &item.id) == Consent::Delegated;
        let is_in_replaced = |item: &Item| {
            let namespace = item.id.namespace.as_deref();
            namespace.is_some_and(|namespace| replaced.contains(namespace))
        };
        let names: Vec<String> = replaced
            .iter()
            .map(|name| format!("namespace {name}"))
            .collect();
        let list = some_of(&names, LISTED);
        let said =
            format!("{list} was deleted and made anew since the content was installed into it");
        let concerned = |item: &&&Item| is_in_replaced(item);
        if items
            .iter()
            .filter(concerned)
            .any(|item| !is_delegated(item))
        {
            let items: Vec<Item> = items.iter().map(|item| (*item).clone()).collect();
            self.authorize(placing, &items, (act, true))
                .await
                .map_err(|trouble| Trouble {
                    message: format!("{said}, and nothing is created in it: {}", trouble.message),
                    ..trouble
                })?;
        }
        if !items
            .iter()
            .filter(concerned)
            .any(|item| is_delegated(item))
            // Nobody wrote the spec for what is restored.
            || (act == Act::Install && self.inventory.installation != self.content_key(placing))
        {
            return Ok(());
        }
        Err(Trouble::new(
            codes::install::NAMESPACE_REPLACED,
            self.install_reason(),
            format!(
                "{said}: nothing is created in it until spec is written again by somebody who may use the class"
            ),
            Retry::Slowly,
        ))
    }

    /// Before objects that were installed are created again, or written where somebody else made another object in their place.
    pub(super) async fn before_recreate(
        &mut self,
        placing: &Placing<'_>,
        items: &[&Item],
    ) -> Result<(), Trouble> {
        let live = self.namespaces_of(items).await?;
        self.check_namespaces(placing, items, (Act::Restore, &live))
            .await?;
        let mut inventory = (*self.inventory).clone();
        for (name, uid) in live {
            inventory.record_namespace(name, uid);
        }
        self.save_inventory(inventory).await
    }

    /// Records, before anything is applied, the namespaces that exist and which of `items` is the created target namespace.
    pub(super) async fn record_namespaces(
        &mut self,
        placing: &Placing<'_>,
        items: &[Item],
        live: Uids,
    ) -> Result<(), Trouble> {
        let mut inventory = (*self.inventory).clone();
        if inventory.installation.is_empty() || inventory.record.is_some() {
            self.note_decision(&mut inventory, placing);
            inventory.record.get_or_insert_default().is_unfinished = true;
        }
        inventory.installation = self.content_key(placing);
        for (name, uid) in live {
            inventory.record_namespace(name, uid);
        }
        for item in items.iter().filter(|item| item.phase == Phase::Namespaces) {
            let is_created = self.created_namespace.as_ref() == Some(&item.key);
            inventory.set_created_namespace(&item.key, is_created);
        }
        self.save_inventory(inventory).await
    }
}
