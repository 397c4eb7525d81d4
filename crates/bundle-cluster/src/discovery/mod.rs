//! Which resources the API server has: from a group, version and kind to a path. Remembered, and asked again when something is missing.
//! Not here: anything about single objects.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bundle_core::plan::applyset::GroupKind;
use kube::Client;
use kube::core::discovery::ApiResource;
use tokio::sync::Mutex;

use crate::clock;

/// The age of a list from which a kind that it lacks is asked for again.
const STALE: Duration = Duration::from_millis(500);
/// The age of a list from which it is asked for again in any case: versions come and go with upgrades of the server.
const OLD: Duration = Duration::from_secs(600);

/// A kind that the server has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Group, version and path of the resource.
    pub resource: ApiResource,
    /// Returns whether its objects live in namespaces.
    pub namespaced: bool,
}

impl Kind {
    /// Group and kind.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(&self.resource.group, &self.resource.kind)
    }

    /// `deployments.apps`, as RBAC rules and kubectl name it.
    pub fn qualified_plural(&self) -> String {
        match self.resource.group.as_str() {
            "" => self.resource.plural.clone(),
            group => format!("{}.{group}", self.resource.plural),
        }
    }
}

struct List {
    read: Instant,
    kinds: Arc<Vec<Kind>>,
}

/// One list, asked for by one caller at a time.
type ListSlot = Arc<Mutex<Option<List>>>;

/// The versions of each group, the preferred one first.
type Versions = HashMap<String, Vec<String>>;

/// The kinds that the API server serves, by `apiVersion`.
pub struct Apis {
    client: Client,
    lists: Mutex<HashMap<String, ListSlot>>,
    groups: Mutex<Option<(Instant, Versions)>>,
}

/// The groups with a dot that kube-apiserver itself serves.
const BUILT_IN: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Returns whether the group of `api_version` may be one of CustomResourceDefinitions or of another API server.
pub fn is_custom(api_version: &str) -> bool {
    let (group, _) = api_version.split_once('/').unwrap_or_default();
    group.contains('.') && !BUILT_IN.contains(&group)
}

impl Apis {
    /// Asks through `client`, once something is asked for.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            lists: Mutex::default(),
            groups: Mutex::default(),
        }
    }

    /// The kind, if the server has it.
    pub async fn find(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Kind>, kube::Error> {
        for youngest in [OLD, STALE] {
            let kinds = self.list(group, version, youngest).await?;
            if let Some(found) = kinds.iter().find(|entry| entry.resource.kind == kind) {
                return Ok(Some(found.clone()));
            }
        }
        Ok(None)
    }

    /// The kind, if the server has it, as it answers now.
    pub async fn find_now(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Kind>, kube::Error> {
        let kinds = self.list(group, version, Duration::ZERO).await?;
        let found = kinds.iter().find(|entry| entry.resource.kind == kind);
        Ok(found.cloned())
    }

    /// Forgets all kinds that somebody may have defined, so that they are asked for again: after such a kind came or went, and after anything that failed.
    pub async fn forget_custom(&self) {
        self.lists
            .lock()
            .await
            .retain(|api_version, _| !is_custom(api_version));
        *self.groups.lock().await = None;
    }

    /// The kind in the version that the server prefers, if it has it in any.
    pub async fn preferred(&self, kind: &GroupKind) -> Result<Option<Kind>, kube::Error> {
        if kind.group.is_empty() {
            return self.find("", "v1", &kind.kind).await;
        }
        for version in self.versions(&kind.group).await? {
            if let Some(found) = self.find(&kind.group, &version, &kind.kind).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The versions of a group, the preferred one first; none if the server does not have it.
    async fn versions(&self, group: &str) -> Result<Vec<String>, kube::Error> {
        let mut groups = self.groups.lock().await;
        let known = groups.as_ref().is_some_and(|(read, versions)| {
            let youngest = if versions.contains_key(group) {
                OLD
            } else {
                STALE
            };
            clock::instant().duration_since(*read) < youngest
        });
        if !known {
            let list = self.client.list_api_groups().await?;
            let versions = list
                .groups
                .into_iter()
                .map(|group| {
                    let mut versions: Vec<String> = Vec::new();
                    let all = group.preferred_version.into_iter().chain(group.versions);
                    for version in all.map(|version| version.version) {
                        if !versions.contains(&version) {
                            versions.push(version);
                        }
                    }
                    (group.name, versions)
                })
                .collect();
            *groups = Some((clock::instant(), versions));
        }
        Ok(groups
            .as_ref()
            .and_then(|(_, versions)| versions.get(group))
            .cloned()
            .unwrap_or_default())
    }

    async fn list(
        &self,
        group: &str,
        version: &str,
        youngest: Duration,
    ) -> Result<Arc<Vec<Kind>>, kube::Error> {
        let api_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        let slot = {
            let mut lists = self.lists.lock().await;
            Arc::clone(lists.entry(api_version.clone()).or_default())
        };
        let mut list = slot.lock().await;
        if let Some(list) = &*list
            && clock::instant().duration_since(list.read) < youngest
        {
            return Ok(list.kinds.clone());
        }
        let answer = if group.is_empty() {
            self.client.list_core_api_resources(version).await
        } else {
            self.client.list_api_group_resources(&api_version).await
        };
        let resources = match answer {
            Ok(list) => list.resources,
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => {
                if list.is_none() {
                    self.remove(&api_version, &slot).await;
                }
                return Err(error);
            }
        };
        let kinds: Arc<Vec<Kind>> = Arc::new(
            resources
                .into_iter()
                .filter(|resource| !resource.name.contains('/'))
                .map(|resource| Kind {
                    resource: ApiResource {
                        group: group.to_owned(),
                        version: version.to_owned(),
                        api_version: api_version.clone(),
                        kind: resource.kind,
                        plural: resource.name,
                    },
                    namespaced: resource.namespaced,
                })
                .collect(),
        );
        if kinds.is_empty() {
            *list = None;
            self.remove(&api_version, &slot).await;
        } else {
            *list = Some(List {
                read: clock::instant(),
                kinds: kinds.clone(),
            });
        }
        Ok(kinds)
    }

    /// Removes a slot without a list: contents may name as many versions as they like.
    async fn remove(&self, api_version: &str, slot: &ListSlot) {
        let mut lists = self.lists.lock().await;
        if lists
            .get(api_version)
            .is_some_and(|present| Arc::ptr_eq(present, slot))
        {
            lists.remove(api_version);
        }
    }
}

#[cfg(test)]
mod tests;
