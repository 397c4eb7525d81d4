//! Foreign custom resources: custom resources that the BundleDeployment did not install. A
//! CustomResourceDefinition with foreign custom resources is never deleted.

use std::collections::{BTreeMap, BTreeSet};

use bundle_core::object::CustomKind;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::phases::Phase;
use kube::core::discovery::ApiResource;

use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::inventory::namespaces::{self, NamespaceUids};
use crate::reconcile::inventory::present::{KeptObject, SharedPresentObject};
use crate::reconcile::removal::remove::Remover;

/// Maximum number of names of custom resources of one kind in a message.
const MAX_NAMED_RESOURCES: usize = 3;

/// Custom resources of one kind that the BundleDeployment did not install.
#[derive(Default)]
struct ForeignResources {
    /// Foreign custom resources that are cluster-scoped, or that are in a namespace with objects of
    /// the BundleDeployment. Messages contain the names of the first of these.
    in_own_namespaces: ResourceList,
    /// The number of foreign custom resources in other namespaces. Recreated namespaces count as
    /// other namespaces, because they may belong to another owner.
    in_other_namespaces: usize,
}

/// Custom resources of one kind.
#[derive(Default)]
struct ResourceList {
    count: usize,
    /// Names of the first custom resources, at most [`MAX_NAMED_RESOURCES`].
    first: Vec<String>,
}

impl Remover<'_> {
    /// Returns the CustomResourceDefinitions among `objects` that have foreign custom resources,
    /// each with the reason to keep the definition.
    pub(in crate::reconcile) async fn in_use(
        &self,
        objects: &[SharedPresentObject],
    ) -> Result<Vec<KeptObject>, ReconcileError> {
        let mut kept = Vec::new();
        let namespaces = self.inventory.namespaces_of_objects();
        for present in objects
            .iter()
            .filter(|present| Phase::of(&present.id.group, &present.id.kind) == Phase::Crds)
        {
            let definition = object::read(self.client, &present.kind, None, &present.id.name)
                .await
                .map_err(|error| self.failed(&format!("read {}", present.id), &error))?;
            let Some(definition) = definition
                .filter(|found| found.metadata.uid.as_deref() == Some(present.uid.as_str()))
            else {
                continue;
            };
            let Some(custom) = serde_json::to_value(&definition)
                .ok()
                .and_then(|value| CustomKind::of(&value))
            else {
                continue;
            };
            let foreign = self.foreign(&custom, &namespaces).await?;
            if let Some(why) = foreign.why(&custom.plural) {
                kept.push(KeptObject {
                    id: present.id.clone(),
                    why: why.into(),
                });
            }
        }
        Ok(kept)
    }

    /// Returns the foreign custom resources of the definition `custom`. `recorded` contains the
    /// names of the namespaces with recorded objects.
    async fn foreign(
        &self,
        custom: &CustomKind,
        recorded: &BTreeSet<String>,
    ) -> Result<ForeignResources, ReconcileError> {
        let mut foreign = ForeignResources::default();
        let Some(version) = custom.versions.first() else {
            return Ok(foreign);
        };
        let kind = Kind {
            resource: ApiResource {
                group: custom.group.clone(),
                version: version.clone(),
                api_version: format!("{}/{version}", custom.group),
                kind: custom.kind.clone(),
                plural: custom.plural.clone(),
            },
            namespaced: custom.namespaced,
        };
        let mut in_recorded = BTreeMap::<String, ResourceList>::new();
        let listed = object::list(self.client, &kind, |id, uid| {
            let key = id.to_string();
            if self.inventory.owns(&key, uid) {
                return;
            }
            match id.namespace {
                None => foreign.in_own_namespaces.add(key),
                Some(name) if recorded.contains(&name) => {
                    in_recorded.entry(name).or_default().add(key);
                }
                Some(_) => foreign.in_other_namespaces += 1,
            }
        })
        .await;
        match listed {
            Ok(()) => {}
            Err(error) if object::is_not_found(&error) => return Ok(ForeignResources::default()),
            // If the list fails, foreign custom resources may exist. Therefore the removal fails
            // and does not delete the definition.
            Err(error) => return Err(self.failed(&format!("list {}", custom.plural), &error)),
        }
        // Only the namespaces of the listed resources are read. They are read after the list, so
        // that the uids of namespaces which were recreated before the list differ from the recorded
        // uids.
        let names = in_recorded.keys().map(String::as_str).collect();
        let live = namespaces::uids(self.own, names)
            .await
            .map_err(|error| ReconcileError::api("read the namespaces", self.reason, &error))?;
        foreign.add_recorded(in_recorded, &live, self.inventory);
        Ok(foreign)
    }
}

impl ResourceList {
    fn add(&mut self, key: String) {
        self.count += 1;
        if self.first.len() < MAX_NAMED_RESOURCES {
            self.first.push(key);
        }
    }

    fn append(&mut self, other: Self) {
        self.count += other.count;
        let free = MAX_NAMED_RESOURCES.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(free));
    }
}

impl ForeignResources {
    /// Adds `resources`, a map from the name of a namespace to its custom resources. If the uid of
    /// a namespace in `live` differs from the recorded uid, the namespace was recreated, and its
    /// resources count as resources in other namespaces.
    fn add_recorded(
        &mut self,
        resources: BTreeMap<String, ResourceList>,
        live: &NamespaceUids,
        inventory: &Inventory,
    ) {
        for (name, list) in resources {
            let uid = live.get(&name);
            if uid.is_some_and(|uid| inventory.owns_namespace(&name, uid)) {
                self.in_own_namespaces.append(list);
            } else {
                self.in_other_namespaces += list.count;
            }
        }
    }

    /// Returns the reason why the definition of `plural` is not deleted. Returns `None` if no
    /// foreign custom resources exist. The text contains only the number of resources in other
    /// namespaces, and not their names.
    fn why(&self, plural: &str) -> Option<String> {
        let own = &self.in_own_namespaces;
        let count = own.count + self.in_other_namespaces;
        if count == 0 {
            return None;
        }
        let mut parts = own.first.clone();
        if own.count > own.first.len() {
            parts.push("…".to_owned());
        }
        if self.in_other_namespaces > 0 {
            parts.push(format!("{} in other namespaces", self.in_other_namespaces));
        }
        Some(format!("{count} {plural} exist ({})", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_resources_of_other_namespaces_are_counted_and_not_named() {
        let foreign = |named: &[&str], here, elsewhere| ForeignResources {
            in_own_namespaces: ResourceList {
                count: here,
                first: named.iter().map(|&name| name.to_owned()).collect(),
            },
            in_other_namespaces: elsewhere,
        };
        for (foreign, why) in [
            (foreign(&[], 0, 0), None),
            (
                foreign(&["Queue.x/a/b"], 1, 0),
                Some("1 queues exist (Queue.x/a/b)"),
            ),
            (
                foreign(&[], 0, 2),
                Some("2 queues exist (2 in other namespaces)"),
            ),
            (
                foreign(&["a", "b", "c"], 5, 1),
                Some("6 queues exist (a, b, c, …, 1 in other namespaces)"),
            ),
        ] {
            assert_eq!(foreign.why("queues").as_deref(), why);
        }
    }

    #[test]
    fn custom_resources_of_recreated_namespaces_are_counted_and_not_named() {
        let mut inventory = Inventory::new("shop");
        for name in ["gone", "recreated", "shop", "shop-2"] {
            inventory.record_namespace(name, format!("{name}-1"));
        }
        let live = NamespaceUids::from(
            [
                ("recreated", "recreated-2"),
                ("shop", "shop-1"),
                ("shop-2", "shop-2-1"),
            ]
            .map(|(name, uid)| (name.to_owned(), uid.to_owned())),
        );
        let mut resources = BTreeMap::<String, ResourceList>::new();
        for (namespace, count) in [("gone", 1), ("recreated", 2), ("shop", 2), ("shop-2", 4)] {
            let list = resources.entry(namespace.to_owned()).or_default();
            for number in 0..count {
                list.add(format!("Queue.x/{namespace}/{number}"));
            }
        }
        let mut foreign = ForeignResources::default();
        foreign.add_recorded(resources, &live, &inventory);
        assert_eq!(
            foreign.why("queues").as_deref(),
            Some(
                "9 queues exist (Queue.x/shop/0, Queue.x/shop/1, Queue.x/shop-2/0, …, 3 in other namespaces)"
            )
        );
    }
}
