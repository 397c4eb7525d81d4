//! Searches for foreign objects in namespaces that were installed with the content. A foreign
//! object is an object that the installation did not create. Foreign objects prevent the deletion
//! of their namespace. `bundle_core::plan::namespace_objects` contains the rule.

use std::collections::BTreeSet;

use bundle_core::plan::namespace_objects::{
    NamespaceObject, in_use, is_counted_owner, is_transient,
};
use bundle_core::text::bounded;
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::discovery::ApiResource;
use kube::core::metadata::PartialObjectMeta;

use crate::reconcile::api::discovery::{Kind, is_custom};
use crate::reconcile::api::object::{self, PAGE_SIZE};
use crate::reconcile::error::ReconcileError;
use crate::reconcile::inventory::present::{KeptObject, SharedPresentObject};
use crate::reconcile::removal::remove::Remover;

/// Maximum number of API group versions that are discovered.
const MAX_VERSIONS: usize = 1_000;
/// Maximum number of kinds that are listed.
const MAX_KINDS: usize = 3_000;
/// Maximum length of an error of one kind or API group version, in bytes.
const MAX_REASON: usize = 256;
/// Maximum number of list pages that are read for one kind.
const MAX_PAGES: usize = 20;
/// Number of kinds that are listed at the same time. If a foreign object is found, the next kinds
/// are not listed.
const KINDS_AT_ONCE: usize = 16;

/// The namespaced kinds of the API server.
#[derive(Default)]
struct NamespacedKinds {
    /// Kinds that can be listed and deleted.
    listed: Vec<Kind>,
    /// Group and kind of all namespaced kinds.
    all: BTreeSet<(String, String)>,
    /// Reasons why some kinds could not be discovered.
    unlisted: Vec<String>,
}

impl NamespacedKinds {
    /// Adds the kinds of one group version, except kinds that were already added.
    fn add(&mut self, group: &str, version: &str, list: APIResourceList) {
        for resource in list.resources {
            let key = (group.to_owned(), resource.kind.clone());
            let is_object = resource.namespaced && !resource.name.contains('/');
            if !is_object || !self.all.insert(key) {
                continue;
            }
            // Objects of kinds without verb `delete`, such as metrics of Pods, are removed together
            // with their source. Therefore they are not listed.
            let can = |verb: &str| resource.verbs.iter().any(|known| known == verb);
            if !can("list") || !can("delete") || is_transient(group, &resource.kind) {
                continue;
            }
            if self.listed.len() == MAX_KINDS {
                self.unlisted
                    .push(format!("there are more than {MAX_KINDS} kinds"));
                return;
            }
            self.listed.push(Kind {
                resource: ApiResource {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    api_version: list.group_version.clone(),
                    kind: resource.kind,
                    plural: resource.name,
                },
                namespaced: true,
            });
        }
    }
}

/// Returns the reason why the kinds or objects of `what` could not be listed.
fn unlisted_reason(what: &str, error: &kube::Error) -> String {
    let message = bounded(&object::error_message(error), MAX_REASON);
    format!("{what}: {message}")
}

/// The result of searching for foreign objects of one kind in a namespace.
#[derive(Default)]
struct OccupantList {
    /// True if the namespace contains foreign objects of the kind.
    is_occupied: bool,
    unlisted: Option<String>,
}

impl Remover<'_> {
    /// Returns the Namespaces among `objects` that contain foreign objects, each with the reason to
    /// keep it. Ignores terminating namespaces.
    pub(in crate::reconcile) async fn occupied(
        &self,
        objects: &[SharedPresentObject],
    ) -> Result<Vec<KeptObject>, ReconcileError> {
        let mut namespaces = Vec::new();
        for present in objects.iter().filter(|present| present.id.is_namespace()) {
            let found = self.observe(&present.kind, &present.id).await;
            let found =
                found.map_err(|error| self.failed(&format!("read {}", present.id), &error))?;
            if found.is_some_and(|found| found.metadata.deletion_timestamp.is_none()) {
                namespaces.push(present);
            }
        }
        if namespaces.is_empty() {
            return Ok(Vec::new());
        }
        let kinds = self.namespaced_kinds().await?;
        let listed = kinds.listed.iter().map(|kind| {
            let resource = &kind.resource;
            (resource.group.clone(), resource.kind.clone())
        });
        let listed = listed.collect();
        let mut kept = Vec::new();
        for present in namespaces {
            if let Some(why) = self
                .reason_in_use(&present.id.name, &kinds, &listed)
                .await?
            {
                kept.push(KeptObject {
                    id: present.id.clone(),
                    why: why.into(),
                });
            }
        }
        Ok(kept)
    }

    /// Returns the reason why the namespace is in use. Returns `None` if it contains no foreign
    /// objects. The search stops soon after the first foreign object. `listed` contains the groups
    /// and kinds whose objects are listed. An object with an owner of one of these kinds is
    /// ignored, because the owner is also listed.
    async fn reason_in_use(
        &self,
        namespace: &str,
        kinds: &NamespacedKinds,
        listed: &BTreeSet<(String, String)>,
    ) -> Result<Option<String>, ReconcileError> {
        let mut found = BTreeSet::new();
        let mut unlisted = kinds.unlisted.clone();
        for some in kinds.listed.chunks(KINDS_AT_ONCE) {
            let lists = some.iter().map(|kind| async move {
                let list = self.list_in(namespace, kind, listed).await;
                (kind, list)
            });
            for (kind, list) in crate::reconcile::api::parallel::ordered(lists).await {
                let list = list?;
                if list.is_occupied {
                    found.insert(kind.resource.kind.clone());
                }
                unlisted.extend(list.unlisted);
            }
            if !found.is_empty() {
                break;
            }
        }
        Ok(in_use(&found, &unlisted))
    }

    async fn namespaced_kinds(&self) -> Result<NamespacedKinds, ReconcileError> {
        let failed = |error: &kube::Error| self.failed("discover the served kinds", error);
        let core = self.client.list_core_api_resources("v1").await;
        let mut kinds = NamespacedKinds::default();
        kinds.add("", "v1", core.map_err(|error| failed(&error))?);
        let groups = self.client.list_api_groups().await;
        let groups = groups.map_err(|error| failed(&error))?;
        // The preferred version of each group comes first. Other versions are also read, because
        // they can contain further kinds.
        let mut versions: Vec<(String, String, String)> = groups
            .groups
            .into_iter()
            .flat_map(|group| {
                let all = group.preferred_version.into_iter().chain(group.versions);
                let name = group.name;
                all.map(move |version| (name.clone(), version.version, version.group_version))
            })
            .collect();
        let mut seen = BTreeSet::new();
        versions.retain(|(_, _, group_version)| seen.insert(group_version.clone()));
        if versions.len() > MAX_VERSIONS {
            versions.truncate(MAX_VERSIONS);
            let more = format!("there are more than {MAX_VERSIONS} versions of API groups");
            kinds.unlisted.push(more);
        }
        let lists = versions.into_iter().map(|version| async move {
            let list = self.client.list_api_group_resources(&version.2).await;
            (version, list)
        });
        let mut lists = crate::reconcile::api::parallel::ordered_stream(lists);
        while let Some(((group, version, group_version), list)) = lists.next().await {
            match list {
                Ok(list) => kinds.add(&group, &version, list),
                Err(error) if object::is_not_found(&error) => {}
                Err(error) if object::is_passing(&error) && !is_custom(&group_version) => {
                    return Err(failed(&error));
                }
                // An aggregated API can be unavailable permanently. Therefore its error does not
                // end the search and is only recorded.
                Err(error) => {
                    kinds.unlisted.push(unlisted_reason(&group_version, &error));
                }
            }
        }
        Ok(kinds)
    }

    /// Searches for objects of `kind` that prevent the deletion of the namespace. Stops after the
    /// first list page with such an object.
    async fn list_in(
        &self,
        namespace: &str,
        kind: &Kind,
        listed: &BTreeSet<(String, String)>,
    ) -> Result<OccupantList, ReconcileError> {
        let plural = &kind.resource.plural;
        let failed =
            |error: &kube::Error| self.failed(&format!("list {plural} in {namespace}"), error);
        let api = object::api::<DynamicObject>(self.client, kind, Some(namespace));
        let api: Api<DynamicObject> = api.map_err(|error| failed(&error))?;
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        let mut found = OccupantList::default();
        for _ in 0..MAX_PAGES {
            let page = match api.list_metadata(&parameters).await {
                Ok(page) => page,
                Err(error) if object::is_not_found(&error) => return Ok(found),
                Err(error)
                    if object::is_passing(&error) && !is_custom(&kind.resource.api_version) =>
                {
                    return Err(failed(&error));
                }
                Err(error) => {
                    found.unlisted = Some(unlisted_reason(plural, &error));
                    return Ok(found);
                }
            };
            for object in &page.items {
                found.is_occupied |= self.keeps_namespace(kind, object, listed);
            }
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            let Some(token) = next.filter(|_| !found.is_occupied) else {
                return Ok(found);
            };
            parameters.continue_token = Some(token);
        }
        found.unlisted = Some(format!("{plural}: too many to list"));
        Ok(found)
    }

    fn keeps_namespace(
        &self,
        kind: &Kind,
        object: &PartialObjectMeta<DynamicObject>,
        listed: &BTreeSet<(String, String)>,
    ) -> bool {
        let metadata = &object.metadata;
        let key = object::id_of(kind, object).to_string();
        let mut owners = metadata.owner_references.iter().flatten();
        NamespaceObject {
            group: &kind.resource.group,
            kind: &kind.resource.kind,
            name: metadata.name.as_deref().unwrap_or_default(),
            is_recorded: self
                .inventory
                .owns(&key, metadata.uid.as_deref().unwrap_or_default()),
            is_leaving: metadata.deletion_timestamp.is_some(),
            is_dependent: owners.any(|owner| {
                let (group, _) = owner.api_version.split_once('/').unwrap_or_default();
                let is_listed = listed.contains(&(group.to_owned(), owner.kind.clone()));
                is_counted_owner(group, &owner.kind, &owner.name, is_listed)
            }),
        }
        .keeps_namespace()
    }
}
