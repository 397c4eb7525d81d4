//! Discovery of the API server's resources: finds the URL path for a group, version and kind. The
//! responses are cached. The cache is refreshed when a kind is missing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bundle_core::object::{CustomKind, GroupKind, ObjectId};
use bundle_core::version::apis;
use kube::Client;
use kube::core::discovery::ApiResource;
use tokio::sync::Mutex;

use crate::error::error_message;
use crate::{clock, parallel};

/// Age after which a cached list without the requested kind is refreshed.
const REFRESH_IF_MISSING_AGE: Duration = Duration::from_millis(500);
/// Age after which a cached list is always refreshed, because upgrades of the server add and remove
/// versions.
const MAX_CACHE_AGE: Duration = Duration::from_secs(600);
/// Timeout of [`Apis::served`] for the list of a group that is not built-in. An aggregated API
/// server returns this list, and can stall.
const CUSTOM_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Kind that the server serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Group, version and path of the resource.
    pub resource: ApiResource,
    /// True if objects of the kind are namespaced.
    pub namespaced: bool,
}

impl Kind {
    /// Returns the kind of `id` if one of the CustomResourceDefinitions in `defined` defines it.
    /// `defined` contains the definitions in the content of the bundle.
    pub fn defined(defined: &[CustomKind], id: &ObjectId) -> Option<Self> {
        let kind = defined.iter().find(|kind| {
            kind.group == id.group && kind.kind == id.kind && kind.versions.contains(&id.version)
        })?;
        Some(Self {
            resource: ApiResource {
                group: kind.group.clone(),
                version: id.version.clone(),
                api_version: id.api_version(),
                kind: kind.kind.clone(),
                plural: kind.plural.clone(),
            },
            namespaced: kind.namespaced,
        })
    }

    /// Returns group and kind.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(&self.resource.group, &self.resource.kind)
    }

    /// Returns the resource name with its group, as in kubectl: `deployments.apps`.
    pub fn qualified_plural(&self) -> String {
        match self.resource.group.as_str() {
            "" => self.resource.plural.clone(),
            group => format!("{}.{group}", self.resource.plural),
        }
    }
}

/// API versions and kinds that an API server serves.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServedKinds {
    /// API versions (`apps/v1`) and kinds (`apps/v1/Deployment`), sorted, without duplicates.
    pub list: Vec<String>,
    /// Groups whose kinds could not be listed. `list` contains only their API versions.
    pub unlisted_groups: BTreeSet<String>,
}

struct List {
    read: Instant,
    kinds: Arc<Vec<Kind>>,
}

/// Cached list of the kinds of one group version. Only one caller at a time requests the list.
type ListSlot = Arc<Mutex<Option<List>>>;

/// Versions of each group, the preferred version first.
type Versions = HashMap<String, Vec<String>>;

/// Served kinds by `apiVersion`.
pub struct Apis {
    client: Client,
    lists: Mutex<HashMap<String, ListSlot>>,
    groups: Mutex<Option<(Instant, Versions)>>,
}

/// Returns true if the group of `api_version` can belong to CustomResourceDefinitions or to an
/// aggregated API server.
pub fn is_custom(api_version: &str) -> bool {
    let (group, _) = api_version.split_once('/').unwrap_or_default();
    apis::is_custom(group)
}

impl Apis {
    /// Returns an empty cache that sends its requests through `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            lists: Mutex::default(),
            groups: Mutex::default(),
        }
    }

    /// Returns the kind, if the server serves it.
    pub async fn find(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Kind>, kube::Error> {
        for youngest in [MAX_CACHE_AGE, REFRESH_IF_MISSING_AGE] {
            let kinds = self.list(group, version, youngest).await?;
            if let Some(found) = kinds.iter().find(|entry| entry.resource.kind == kind) {
                return Ok(Some(found.clone()));
            }
        }
        Ok(None)
    }

    /// Returns the kind, if the server serves it. Does not use the cache.
    pub async fn find_uncached(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Kind>, kube::Error> {
        let kinds = self.list(group, version, Duration::ZERO).await?;
        let found = kinds.iter().find(|entry| entry.resource.kind == kind);
        Ok(found.cloned())
    }

    /// Returns the names of the kinds of a group and version, in one request. Uses the cached names
    /// if they were read within the last half second.
    pub async fn kinds(&self, group: &str, version: &str) -> Result<BTreeSet<String>, kube::Error> {
        let kinds = self.list(group, version, REFRESH_IF_MISSING_AGE).await?;
        let names = kinds.iter().map(|kind| kind.resource.kind.clone());
        Ok(names.collect())
    }

    /// Removes all kinds that users can define from the cache. Call this function after one of
    /// these kinds was created or deleted, and after an error that stale cached kinds can cause.
    pub async fn forget_custom(&self) {
        self.lists
            .lock()
            .await
            .retain(|api_version, _| !is_custom(api_version));
        *self.groups.lock().await = None;
    }

    /// Returns the kind in the version that the server prefers. If that version does not contain
    /// the kind, returns the kind in another version.
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

    /// Returns all served API versions and their kinds. If the list of a group that is not built-in
    /// fails or does not arrive within 5 s, the result contains the API version without its kinds,
    /// and the group in [`ServedKinds::unlisted_groups`]. If the list of a built-in group fails, the
    /// result is an error. Lists that are not cached are requested in parallel.
    pub async fn served(&self) -> Result<ServedKinds, kube::Error> {
        let mut versions = vec![(String::new(), "v1".to_owned())];
        // Reads the list of groups into the cache.
        self.versions("").await?;
        if let Some((_, groups)) = &*self.groups.lock().await {
            versions.extend(groups.iter().flat_map(|(group, versions)| {
                versions
                    .iter()
                    .map(|version| (group.clone(), version.clone()))
            }));
        }
        let requests = versions.into_iter().map(|(group, version)| async move {
            let kinds = self.served_kinds(&group, &version).await;
            (group, version, kinds)
        });
        let mut served = ServedKinds::default();
        for (group, version, kinds) in parallel::all(requests).await {
            let api_version = match group.as_str() {
                "" => version,
                group => format!("{group}/{version}"),
            };
            if let Some(kinds) = kinds? {
                let names = kinds.iter().map(|kind| &kind.resource.kind);
                let names = names.map(|name| format!("{api_version}/{name}"));
                served.list.extend(names);
            } else {
                served.unlisted_groups.insert(group);
            }
            served.list.push(api_version);
        }
        served.list.sort();
        served.list.dedup();
        Ok(served)
    }

    /// Returns the kinds of an API version. Returns `None` if the group is not built-in and the list
    /// fails or does not arrive within [`CUSTOM_LIST_TIMEOUT`].
    async fn served_kinds(
        &self,
        group: &str,
        version: &str,
    ) -> Result<Option<Arc<Vec<Kind>>>, kube::Error> {
        let list = self.list(group, version, MAX_CACHE_AGE);
        if apis::is_built_in(group) {
            return list.await.map(Some);
        }
        let reason = match tokio::time::timeout(CUSTOM_LIST_TIMEOUT, list).await {
            Ok(Ok(kinds)) => return Ok(Some(kinds)),
            Ok(Err(error)) => error_message(&error),
            Err(timeout) => timeout.to_string(),
        };
        tracing::debug!(
            group,
            version,
            reason,
            "ignored the kinds of an API version"
        );
        Ok(None)
    }

    /// Returns the versions of a group, the preferred version first. Returns an empty list if the
    /// server does not serve the group.
    async fn versions(&self, group: &str) -> Result<Vec<String>, kube::Error> {
        let mut groups = self.groups.lock().await;
        let known = groups.as_ref().is_some_and(|(read, versions)| {
            let youngest = if versions.contains_key(group) {
                MAX_CACHE_AGE
            } else {
                REFRESH_IF_MISSING_AGE
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

    /// Removes the cache slot of a version that has no list, because the version is not served or
    /// the list could not be read. Otherwise content with many unknown versions would fill the
    /// cache.
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
