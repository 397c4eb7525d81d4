//! What a deployment has on the cluster, and how it is taken away: in the reverse order, and never with other people's custom resources.
//! Not here: which of it is no longer wanted (bundle_core::plan::inventory).

use std::collections::BTreeSet;

use bundle_api::names;
use bundle_core::diagnostic::codes;
use bundle_core::object::ObjectId;
use bundle_core::plan::applyset::GroupKind;
use bundle_core::plan::phases::{self, CustomKind, Phase};
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::discovery::ApiResource;
use serde_json::json;

use super::apis::{Apis, Kind};
use super::object::{self, Seen};
use super::scope::Scopes;
use super::trouble::{self, Retry, Trouble};
use crate::cluster::ServiceAccount;

/// How many objects a message names.
const NAMED: usize = 10;

/// An object that is there.
#[derive(Debug, Clone)]
pub(super) struct Present {
    pub(super) id: ObjectId,
    pub(super) kind: Kind,
    pub(super) seen: Seen,
}

/// Who looks and removes, and for whom.
pub(super) struct Remover<'a> {
    pub(super) apis: &'a Apis,
    pub(super) scopes: &'a Scopes,
    pub(super) client: &'a Client,
    pub(super) account: &'a ServiceAccount,
    pub(super) deployment: &'a str,
    /// The reason of the condition if something goes wrong.
    pub(super) reason: &'static str,
}

/// A definition that stays, and why.
pub(super) struct Kept {
    pub(super) id: ObjectId,
    pub(super) why: String,
}

impl Remover<'_> {
    /// Everything of these kinds with the labels of the deployment. A kind that the cluster no longer has has no objects.
    pub(super) async fn present(
        &self,
        kinds: &BTreeSet<GroupKind>,
        namespaces: &BTreeSet<String>,
    ) -> Result<Vec<Present>, Trouble> {
        let selector = format!(
            "{}={},{}={}",
            names::LABEL_OWNER_KIND,
            super::DEPLOYMENT,
            names::LABEL_OWNER_NAME,
            self.deployment
        );
        let lists: Vec<_> = super::parallel::all(
            kinds
                .iter()
                .map(|kind| self.present_of(kind, namespaces, &selector)),
        )
        .await;
        let mut all = Vec::new();
        for list in lists {
            all.extend(list?);
        }
        all.sort_by(|a: &Present, b| a.id.cmp(&b.id));
        Ok(all)
    }

    async fn present_of(
        &self,
        group_kind: &GroupKind,
        namespaces: &BTreeSet<String>,
        selector: &str,
    ) -> Result<Vec<Present>, Trouble> {
        let failed = |error: &kube::Error| self.failed(&format!("list {group_kind}"), error);
        let Some(kind) = self
            .apis
            .preferred(group_kind)
            .await
            .map_err(|e| failed(&e))?
        else {
            return Ok(Vec::new());
        };
        let everywhere = !kind.namespaced
            || self
                .scopes
                .everywhere(self.client, self.account, &kind)
                .await
                .map_err(|e| failed(&e))?;
        let places: Vec<Option<&str>> = if everywhere {
            vec![None]
        } else {
            namespaces.iter().map(|name| Some(name.as_str())).collect()
        };
        let mut all = Vec::new();
        for place in places {
            match object::list(self.client, &kind, place, Some(selector)).await {
                Ok(found) => all.extend(found.into_iter().map(|(id, seen)| Present {
                    id,
                    kind: kind.clone(),
                    seen,
                })),
                Err(error) if object::is_not_found(&error) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(all)
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
            let api = object::api(self.client, &present.kind, None);
            let doing = || format!("read {}", present.id);
            let Some(definition) = api
                .get_opt(&present.id.name)
                .await
                .map_err(|error| self.failed(&doing(), &error))?
            else {
                continue;
            };
            let Some(custom) = serde_json::to_value(&definition)
                .ok()
                .and_then(|value| CustomKind::of(&value))
            else {
                continue;
            };
            let live = self.live(&custom).await?;
            if !live.is_empty() {
                let few: Vec<_> = live.iter().take(3).map(ToString::to_string).collect();
                kept.push(Kept {
                    id: present.id.clone(),
                    why: format!(
                        "{} {} exist{} ({}{})",
                        live.len(),
                        custom.plural,
                        if live.len() == 1 { "s" } else { "" },
                        few.join(", "),
                        if live.len() > 3 { ", …" } else { "" }
                    ),
                });
            }
        }
        Ok(kept)
    }

    async fn live(&self, custom: &CustomKind) -> Result<Vec<ObjectId>, Trouble> {
        let Some(version) = custom.versions.first() else {
            return Ok(Vec::new());
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
        match object::list(self.client, &kind, None, None).await {
            Ok(objects) => Ok(objects
                .into_iter()
                .filter(|(_, seen)| seen.owner.as_deref() != Some(self.deployment))
                .map(|(id, _)| id)
                .collect()),
            Err(error) if object::is_not_found(&error) => Ok(Vec::new()),
            // Whether anything would be lost cannot be told, so nothing is torn down.
            Err(error) => Err(self.failed(&format!("list {}", custom.plural), &error)),
        }
    }

    /// Deletes `objects` and does not wait until they have gone.
    pub(super) async fn delete<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Present, IntoIter: Send>,
    ) -> Result<(), Trouble> {
        let results: Vec<_> = super::parallel::all(
            objects
                .into_iter()
                .filter(|present| !present.seen.deleting)
                .map(|present| async move {
                    let done =
                        object::delete(self.client, &present.kind, &present.id, &present.seen.uid)
                            .await;
                    (present, done)
                }),
        )
        .await;
        let failed: Vec<_> = results
            .into_iter()
            .filter_map(|(present, done)| {
                Some(format!("{}: {}", present.id, object::told(&done.err()?)))
            })
            .collect();
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

    /// Takes our labels off `objects`, so that they belong to nobody.
    pub(super) async fn release(&self, objects: &[Present]) -> Result<(), Trouble> {
        let patch = json!({ "metadata": { "labels": {
            names::LABEL_OWNER_KIND: null,
            names::LABEL_OWNER_NAME: null,
            names::LABEL_APPLYSET_PART_OF: null,
        } } });
        let results: Vec<_> = super::parallel::all(objects.iter().map(|present| {
            let patch = &patch;
            async move {
                let api = object::api(self.client, &present.kind, present.id.namespace.as_deref());
                let parameters = PatchParams {
                    field_manager: Some(names::FIELD_MANAGER.to_owned()),
                    ..PatchParams::default()
                };
                let done = api
                    .patch_metadata(&present.id.name, &parameters, &Patch::Merge(patch))
                    .await;
                (present, done)
            }
        }))
        .await;
        for (present, done) in results {
            match done {
                Ok(_) => {}
                Err(error) if object::is_not_found(&error) => {}
                Err(error) => return Err(self.failed(&format!("release {}", present.id), &error)),
            }
        }
        Ok(())
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
