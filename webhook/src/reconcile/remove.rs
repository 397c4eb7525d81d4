//! What a deployment has on the cluster, by its inventory, and how it is taken away: in the reverse order, and never with other people's custom resources.
//! Not here: which of it is no longer wanted (bundle_core::plan::inventory).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bundle_core::diagnostic::codes;
use bundle_core::object::ObjectId;
use bundle_core::plan::inventory::{self, Claim, Inventory, Record};
use bundle_core::plan::phases::{self, CustomKind, Phase};
use kube::Client;
use kube::core::discovery::ApiResource;

use super::apis::{Apis, Kind};
use super::object;
use super::trouble::{self, Retry, Trouble};
use crate::cluster::ServiceAccount;

/// How many objects a message names.
const NAMED: usize = 10;
/// How many custom resources of one kind a message names.
const FEW: usize = 3;

/// An object that is recorded, so that it may be deleted if it is there.
#[derive(Debug, Clone)]
pub(super) struct Present {
    pub(super) id: ObjectId,
    /// The id in text: its key in the inventory.
    pub(super) key: String,
    pub(super) kind: Kind,
    pub(super) uid: String,
}

/// Who looks and removes, and what of.
pub(super) struct Remover<'a> {
    pub(super) apis: &'a Apis,
    pub(super) client: &'a Client,
    pub(super) account: &'a ServiceAccount,
    pub(super) inventory: &'a Inventory,
    /// The reason of the condition if something goes wrong.
    pub(super) reason: &'static str,
}

/// A definition that stays, and why.
pub(super) struct Kept {
    pub(super) id: ObjectId,
    pub(super) why: String,
}

/// Custom resources that the deployment did not install.
#[derive(Default)]
struct Foreign {
    /// A few of those without a namespace, or in one that the deployment has objects in.
    named: Vec<String>,
    /// How many there are of those.
    here: usize,
    /// How many there are in namespaces that are nobody's business here.
    elsewhere: usize,
}

impl Remover<'_> {
    /// The recorded objects among `keys`. Those of a kind that the cluster no longer has are gone, and so is what was to be created and never was.
    pub(super) async fn present(&self, keys: &[String]) -> Result<Vec<Present>, Trouble> {
        let looks: Vec<_> = super::parallel::all(keys.iter().map(|key| self.present_of(key))).await;
        let mut all = Vec::new();
        for look in looks {
            all.extend(look?);
        }
        all.sort_by(|a: &Present, b| a.id.cmp(&b.id));
        Ok(all)
    }

    async fn present_of(&self, key: &str) -> Result<Option<Present>, Trouble> {
        let failed = |error: &kube::Error| self.failed(&format!("look at {key}"), error);
        let Some((group_kind, namespace, name)) = inventory::parts(key) else {
            return Ok(None);
        };
        let kind = self.apis.preferred(&group_kind).await;
        let Some(kind) = kind.map_err(|error| failed(&error))? else {
            return Ok(None);
        };
        let id = ObjectId {
            version: kind.resource.version.clone(),
            group: group_kind.group,
            kind: group_kind.kind,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        let uid = match self.inventory.get(key) {
            Some(Record::Uid(uid)) => uid.clone(),
            Some(Record::Intent(_)) => {
                let seen = object::look(self.client, &kind, &id).await;
                match seen.map_err(|error| failed(&error))? {
                    Some(seen) if self.inventory.claim(key, seen.live()) == Claim::Ours => seen.uid,
                    _ => return Ok(None),
                }
            }
            None => return Ok(None),
        };
        Ok(Some(Present {
            id,
            key: key.to_owned(),
            kind,
            uid,
        }))
    }

    fn failed(&self, doing: &str, error: &kube::Error) -> Trouble {
        Trouble::new(
            codes::install::REMOVAL_FAILED,
            self.reason,
            format!(
                "cannot {doing} as {}: {}",
                self.account,
                object::told(error)
            ),
            if object::is_passing(error) {
                Retry::Soon
            } else {
                Retry::Slowly
            },
        )
    }

    /// The definitions among `objects` of whose kinds objects exist that the deployment did not install.
    pub(super) async fn in_use(&self, objects: &[Present]) -> Result<Vec<Kept>, Trouble> {
        let mut kept = Vec::new();
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
            let foreign = self.foreign(&custom).await?;
            if let Some(why) = foreign.why(&custom.plural) {
                kept.push(Kept {
                    id: present.id.clone(),
                    why,
                });
            }
        }
        Ok(kept)
    }

    async fn foreign(&self, custom: &CustomKind) -> Result<Foreign, Trouble> {
        let mut foreign = Foreign::default();
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
        let listed = object::list(self.client, &kind, |id, uid| {
            let key = id.to_string();
            if self.inventory.owns(&key, uid) {
                return;
            }
            let namespace = id.namespace.as_deref();
            if namespace.is_some_and(|name| self.inventory.namespace(name).is_none()) {
                foreign.elsewhere += 1;
                return;
            }
            foreign.here += 1;
            if foreign.named.len() < FEW {
                foreign.named.push(key);
            }
        })
        .await;
        match listed {
            Ok(()) => Ok(foreign),
            Err(error) if object::is_not_found(&error) => Ok(Foreign::default()),
            // Whether anything would be lost cannot be told, so nothing is torn down.
            Err(error) => Err(self.failed(&format!("list {}", custom.plural), &error)),
        }
    }

    /// Deletes `objects` and does not wait for those that something holds up. Adds the keys of those that are gone to `gone`.
    pub(super) async fn delete(
        &self,
        objects: &[Present],
        gone: &mut BTreeSet<String>,
    ) -> Result<(), Trouble> {
        let results: Vec<_> = super::parallel::all(objects.iter().map(|present| async move {
            let done = object::delete(self.client, &present.kind, &present.id, &present.uid).await;
            (present, done)
        }))
        .await;
        let mut failed = Vec::new();
        for (present, done) in results {
            match done {
                Ok(true) => {
                    gone.insert(present.key.clone());
                }
                Ok(false) => {}
                Err(error) => failed.push(format!("{}: {}", present.id, object::told(&error))),
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(Trouble::new(
            codes::install::REMOVAL_FAILED,
            self.reason,
            format!(
                "cannot remove objects as {}: {}",
                self.account,
                trouble::list(failed, NAMED)
            ),
            Retry::Soon,
        ))
    }

    /// Waits until `objects`, which were deleted, are gone, but not beyond `end`. Adds the keys of those that are to `gone`.
    pub(super) async fn until_gone(
        &self,
        objects: &[Present],
        gone: &mut BTreeSet<String>,
        end: Instant,
    ) -> Result<(), Trouble> {
        let mut pause = Duration::from_millis(20);
        loop {
            let waiting = objects
                .iter()
                .filter(|present| !gone.contains(&present.key));
            let looks: Vec<_> = super::parallel::all(waiting.map(|present| async move {
                let look = object::look(self.client, &present.kind, &present.id).await;
                (present, look)
            }))
            .await;
            for (present, look) in looks {
                let seen =
                    look.map_err(|error| self.failed(&format!("look at {}", present.id), &error))?;
                if seen.is_none_or(|seen| seen.uid != present.uid) {
                    gone.insert(present.key.clone());
                }
            }
            if objects.iter().all(|present| gone.contains(&present.key)) || Instant::now() > end {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(300));
        }
    }

    /// Takes our labels off `objects`, so that they belong to nobody.
    pub(super) async fn release(&self, objects: &[Present]) -> Result<(), Trouble> {
        let results: Vec<_> = super::parallel::all(objects.iter().map(|present| async move {
            let done = object::release(self.client, &present.kind, &present.id, &present.uid).await;
            (present, done)
        }))
        .await;
        for (present, done) in results {
            done.map_err(|error| self.failed(&format!("release {}", present.id), &error))?;
        }
        Ok(())
    }
}

impl Foreign {
    /// Why the definition of `plural` stays; none if there are no such resources. What is in namespaces of others is counted and not named.
    fn why(&self, plural: &str) -> Option<String> {
        let count = self.here + self.elsewhere;
        if count == 0 {
            return None;
        }
        let mut parts = self.named.clone();
        if self.here > self.named.len() {
            parts.push("…".to_owned());
        }
        if self.elsewhere > 0 {
            parts.push(format!("{} in other namespaces", self.elsewhere));
        }
        Some(format!("{count} {plural} exist ({})", parts.join(", ")))
    }
}

/// The next objects to go, of those that are still there: the later ones wait until these have gone.
pub(super) fn next_step(objects: &[Present]) -> Vec<&Present> {
    let defined: BTreeSet<String> = objects
        .iter()
        .filter(|present| Phase::of(&present.id.group, &present.id.kind) == Phase::Crds)
        .filter_map(|present| present.id.name.split_once('.').map(|(_, g)| g.to_owned()))
        .collect();
    let steps = phases::removal(objects.iter().map(|present| &present.id), |id| {
        defined.contains(&id.group)
    });
    let first: BTreeSet<&ObjectId> = steps
        .into_iter()
        .next()
        .unwrap_or_default()
        .into_iter()
        .collect();
    objects
        .iter()
        .filter(|present| first.contains(&present.id))
        .collect()
}

/// Up to ten of `objects` by name.
pub(super) fn name_some(objects: &[&Present]) -> String {
    let names: Vec<_> = objects
        .iter()
        .map(|present| present.id.to_string())
        .collect();
    bundle_core::plan::conditions::some_of(&names, NAMED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_resources_of_other_namespaces_are_counted_and_not_named() {
        let foreign = |named: &[&str], here, elsewhere| Foreign {
            named: named.iter().map(|&name| name.to_owned()).collect(),
            here,
            elsewhere,
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
}
