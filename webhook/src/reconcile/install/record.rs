//! Records objects in the inventory before and after they are applied, and writes the ApplySet
//! annotations for other tools. `inventory::store` stores the inventory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bundle_api::names;
use bundle_cluster::ByName;
use bundle_core::plan::applyset;
use bundle_core::plan::inventory::{self, Adoption, Inventory};
use bundle_core::plan::phases::Phase;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use rand::Rng as _;
use serde_json::{Value, json};

use crate::reconcile::apply::Target;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::context::Context;
use crate::reconcile::deployment_state::DeploymentReconcile;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::install::executor::ApplyResults;
use crate::reconcile::status::condition_set;

/// Objects that were recorded in one write before they are applied: objects to create (intents),
/// and objects to adopt.
#[derive(Default)]
pub(in crate::reconcile) struct Intents {
    /// The time of this write, in seconds since 1970.
    since: i64,
    /// Object keys of the objects to create.
    keys: Vec<String>,
    /// The objects to adopt.
    adoptions: Vec<Adoption>,
}

impl Intents {
    fn record<'t>(
        inventory: &mut Inventory,
        targets: impl Iterator<Item = (&'t str, &'t Target)>,
        since: i64,
    ) -> Self {
        let mut intents = Self {
            since,
            ..Self::default()
        };
        for (key, target) in targets {
            match target {
                Target::Uid(uid) => intents.adoptions.extend(inventory.adopt(key, uid)),
                Target::Absent => {
                    inventory.record_intent(key, since);
                    intents.keys.push(key.to_owned());
                }
            }
        }
        intents
    }

    /// Returns the uids of the adopted objects, by object key.
    fn adopted(&self) -> BTreeMap<String, String> {
        let adoptions = self.adoptions.iter();
        adoptions
            .map(|adoption| (adoption.key().to_owned(), adoption.uid().to_owned()))
            .collect()
    }

    /// Removes from `inventory` each intent and adoption whose apply certainly had no effect.
    /// `done` contains the results of the applies.
    fn remove_intents_without_effect(&self, inventory: &mut Inventory, done: &ApplyResults) {
        let is_undone = |key: &str| !done.uncertain.contains(key) && !done.uids.contains_key(key);
        for key in self.keys.iter().filter(|key| is_undone(key)) {
            inventory.remove_intent(key, self.since);
        }
        for adoption in &self.adoptions {
            if is_undone(adoption.key()) {
                inventory.revert_adoption(adoption);
            }
        }
    }
}

impl DeploymentReconcile<'_> {
    /// Loads the inventory of the BundleDeployment. If no inventory exists, uses an empty
    /// inventory.
    pub(in crate::reconcile) async fn load_inventory(&mut self) -> Result<(), ReconcileError> {
        let inventories = &self.ctx.inventories;
        let loaded = inventories.load(self.uid()).await;
        inventories.set_requester(self.uid(), self.limited_user());
        let reason = self.install_reason();
        let inventory = loaded.map_err(|error| ReconcileError::inventory(reason, &error))?;
        // An empty inventory also replaces the inventory of a deleted BundleDeployment of the same
        // name in `states`.
        let mut inventory = inventory.unwrap_or_else(|| Arc::new(Inventory::new(&self.name)));
        if !inventory.has_creation_key() {
            // Creation marks are computed with this key. The key is stored before the first object
            // with a creation mark is applied.
            Arc::make_mut(&mut inventory).ensure_creation_key(|| rand::rng().random());
        }
        self.set_inventory(inventory);
        Ok(())
    }

    /// Stores the inventory in the state namespace, and uses it in this reconcile.
    pub(in crate::reconcile) async fn save_inventory(
        &mut self,
        inventory: Inventory,
    ) -> Result<(), ReconcileError> {
        let saved = self.ctx.inventories.save(self.uid(), inventory).await;
        let reason = self.install_reason();
        let inventory = saved.map_err(|error| ReconcileError::inventory(reason, &error))?;
        self.set_inventory(inventory);
        Ok(())
    }

    fn set_inventory(&mut self, inventory: Arc<Inventory>) {
        let states = &self.ctx.states;
        states.set_inventory(&self.name, inventory.clone());
        self.inventory = inventory;
        self.show_record();
    }

    /// Fails if the number of recorded objects would exceed a limit. Called before objects are
    /// recorded.
    pub(in crate::reconcile) fn reserve_objects(
        &self,
        items: &[PreparedObject],
    ) -> Result<(), ReconcileError> {
        let keys = items.iter().map(|item| item.key.as_str());
        let objects = self.inventory.len_with(keys);
        let deployment = (self.uid(), self.limited_user());
        let reserved = self.ctx.inventories.reserve(deployment, objects);
        reserved.map_err(|error| ReconcileError::inventory(self.install_reason(), &error))
    }

    /// Records every unrecorded object before it is applied: an adoption for an existing object,
    /// and an intent for an object to create. Therefore the inventory contains every applied object
    /// even after a crash.
    pub(in crate::reconcile) async fn record_targets<'t>(
        &mut self,
        targets: impl Iterator<Item = (&'t str, &'t Target)>,
    ) -> Result<Intents, ReconcileError> {
        let inventory = (*self.inventory).clone();
        self.record_targets_in(inventory, targets).await
    }

    /// Like [`Self::record_targets`], for an inventory with changes that are not stored yet. One
    /// write stores these changes and the objects. If another BundleDeployment owns an object,
    /// nothing is stored.
    pub(in crate::reconcile) async fn record_targets_in<'t>(
        &mut self,
        mut inventory: Inventory,
        targets: impl Iterator<Item = (&'t str, &'t Target)>,
    ) -> Result<Intents, ReconcileError> {
        let since = condition_set::now().as_second();
        let intents = Intents::record(&mut inventory, targets, since);
        let adopted = intents.adopted();
        let inventories = &self.ctx.inventories;
        let deployment = (self.uid(), self.limited_user());
        let saved = inventories
            .save_adopting(deployment, inventory, &adopted)
            .await;
        let reason = self.install_reason();
        let inventory = saved.map_err(|error| ReconcileError::inventory(reason, &error))?;
        self.set_inventory(inventory);
        Ok(intents)
    }

    /// Records the uids of the objects that were applied so far. If a Namespace is among these
    /// objects, also records the uid of this namespace.
    pub(in crate::reconcile) async fn record_applied(
        &mut self,
        done: &ApplyResults,
    ) -> Result<(), ReconcileError> {
        let is_new = |(key, uid): (&String, &String)| !self.inventory.owns(key, uid);
        if !done.uids.iter().any(is_new) {
            return Ok(());
        }
        let mut inventory = (*self.inventory).clone();
        note_applied(&mut inventory, done);
        self.save_inventory(inventory).await
    }

    /// Records the uids of the applied objects and namespaces. Removes intents and adoptions whose
    /// apply certainly had no effect. If objects with these names exist, they belong to other
    /// actors.
    pub(in crate::reconcile) async fn record_done(
        &mut self,
        done: &ApplyResults,
        intents: &Intents,
    ) -> Result<(), ReconcileError> {
        let mut inventory = (*self.inventory).clone();
        intents.remove_intents_without_effect(&mut inventory, done);
        note_applied(&mut inventory, done);
        let digest = inventory.installation.content_digest();
        let applied = done.uids.keys().map(String::as_str);
        inventory.job_runs.applied(digest, applied);
        self.save_inventory(inventory).await
    }

    pub(in crate::reconcile) fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Writes the kinds and namespaces of the installed objects as ApplySet annotations (KEP-3659),
    /// for other tools. If the inventory is lost, these annotations also indicate that objects may
    /// have been installed.
    pub(in crate::reconcile) async fn write_applyset(&mut self) -> Result<(), ReconcileError> {
        let mut kinds = BTreeSet::new();
        let mut namespaces = BTreeSet::new();
        for (kind, namespace, _) in self
            .inventory
            .objects()
            .filter_map(|(key, _)| inventory::parts(key))
        {
            kinds.insert(kind);
            namespaces.extend(namespace.map(str::to_owned));
        }
        let wanted = [
            (
                names::ANNOTATION_APPLYSET_GROUP_KINDS,
                applyset::write_group_kinds(&kinds),
            ),
            (
                names::ANNOTATION_APPLYSET_NAMESPACES,
                applyset::write_namespaces(&namespaces),
            ),
            (
                names::ANNOTATION_APPLYSET_TOOLING,
                format!("{}/v{}", names::FIELD_MANAGER, env!("CARGO_PKG_VERSION")),
            ),
        ];
        let written = wanted
            .iter()
            .all(|(name, text)| self.annotations.get(*name) == Some(text));
        if written && self.applyset_label.as_ref() == Some(&self.applyset) {
            return Ok(());
        }
        let annotations: HashMap<&str, &str> = wanted
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        let metadata = json!({
            "uid": self.object.metadata.uid,
            "labels": { names::LABEL_APPLYSET_ID: self.applyset },
            "annotations": annotations,
        });
        patch_metadata(self.ctx, &self.name, metadata)
            .await
            .map_err(|error| {
                ReconcileError::api(
                    "write the ApplySet annotations",
                    self.install_reason(),
                    &error,
                )
            })?;
        for (name, text) in wanted {
            self.annotations.insert(name.to_owned(), text);
        }
        self.applyset_label = Some(self.applyset.clone());
        Ok(())
    }
}

fn note_applied(inventory: &mut Inventory, done: &ApplyResults) {
    for (key, uid) in &done.uids {
        inventory.record(key, uid);
        if let Some((kind, None, name)) = inventory::parts(key)
            && Phase::of(&kind.group, &kind.kind) == Phase::Namespaces
        {
            inventory.record_namespace(name, uid);
        }
    }
}

/// Applies a merge patch to the metadata of a BundleDeployment.
async fn patch_metadata(ctx: &Context, name: &str, metadata: Value) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::all_with(ctx.own.clone(), &ctx.deployments);
    let patch = json!({ "metadata": metadata });
    ByName(&api)
        .patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_intents_of_rejected_applies_only() {
        let uid = Target::Uid("a".to_owned());
        let targets = [
            ("ConfigMap/x/refused", &uid),
            ("ConfigMap/x/unsent", &Target::Absent),
            ("ConfigMap/x/lost", &uid),
            ("ConfigMap/x/done", &uid),
            ("ConfigMap/x/ours", &uid),
        ];
        let mut inventory = Inventory::new("web");
        inventory.record("ConfigMap/x/ours", "a");
        let intents = Intents::record(&mut inventory, targets.into_iter(), 100);
        assert!(!inventory.owns("ConfigMap/x/refused", "a"));
        let mut done = ApplyResults::default();
        done.uncertain.insert("ConfigMap/x/lost".to_owned());
        let answer = ("ConfigMap/x/done".to_owned(), "a".to_owned());
        done.uids.extend([answer]);
        intents.remove_intents_without_effect(&mut inventory, &done);
        let left: Vec<&str> = inventory.objects().map(|(key, _)| key).collect();
        assert_eq!(
            left,
            ["ConfigMap/x/done", "ConfigMap/x/lost", "ConfigMap/x/ours"]
        );
        assert!(inventory.owns("ConfigMap/x/ours", "a"));
    }

    #[test]
    fn removes_intents_of_replaced_objects_whose_creation_is_rejected() {
        let keys = ["ConfigMap/x/lost", "ConfigMap/x/refused"].map(str::to_owned);
        let mut inventory = Inventory::new("web");
        for key in &keys {
            inventory.record(key, "a");
        }
        let targets = keys.iter().map(|key| (key.as_str(), &Target::Absent));
        let intents = Intents::record(&mut inventory, targets, 100);
        let mut done = ApplyResults::default();
        done.uncertain.extend(keys.clone());
        done.record_replaced(keys.to_vec());
        done.uncertain.insert("ConfigMap/x/lost".to_owned());
        intents.remove_intents_without_effect(&mut inventory, &done);
        let left: Vec<&str> = inventory.objects().map(|(key, _)| key).collect();
        assert_eq!(left, ["ConfigMap/x/lost"]);
    }
}
