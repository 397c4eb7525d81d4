//! Reads installed and owned objects. If there are only a few objects of a kind, they are read by
//! name. Otherwise the kind is listed in pages.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bundle_cluster::discovery::Kind;
use bundle_cluster::{ByName, namespaced};
use bundle_core::object::GroupKind;
use bundle_core::plan::inventory;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectMeta};

use super::inventory::RecordedObjects;
use super::{TreeReader, UnreadObjects};
use crate::commands::deployments::state::objects::{
    LiveObject, UnreadCause, UnreadList, has_health_of, live, live_metadata, served_kinds,
};
use crate::commands::deployments::tree::model::{ChildKind, NodeState, TreeNode};
use crate::failure::Outcome;

/// Maximum number of installed objects in a tree.
const MAX_INSTALLED: usize = 5_000;
/// Maximum number of recorded objects of one kind and namespace that are read by name. If there are
/// more objects, the kind is listed.
const MAX_BY_NAME: usize = 5;
/// Maximum number of lists.
const MAX_LISTS: usize = 500;
/// Number of objects on one page of a list.
const PAGE_SIZE: u32 = 500;
/// Maximum number of pages of a list.
const MAX_PAGES: usize = 20;
/// Maximum number of concurrent requests.
const IN_FLIGHT: usize = 16;

/// A list, with the resource version from which a watch can start.
#[derive(Debug, Clone)]
pub(in super::super) struct WatchedList {
    /// Kind.
    pub(in super::super) kind: Kind,
    /// Namespace; `None` for a cluster-scoped kind.
    pub(in super::super) namespace: Option<String>,
    /// Resource version of the list.
    pub(in super::super) version: String,
}

/// Objects of one kind and namespace.
struct ReadObjects {
    objects: Vec<LiveObject>,
    version: String,
    is_truncated: bool,
}

/// Recorded objects of one kind and namespace: key, name and uid.
type RecordGroup<'a> = Vec<(&'a str, &'a str, &'a str)>;

impl TreeReader<'_> {
    /// Returns the nodes of the recorded objects, sorted by key.
    pub(super) async fn installed(
        &self,
        recorded: &RecordedObjects,
    ) -> (Vec<TreeNode>, UnreadObjects) {
        let mut unread = UnreadObjects::default();
        let mut groups: BTreeMap<(GroupKind, Option<&str>), RecordGroup<'_>> = BTreeMap::new();
        let mut states: BTreeMap<&str, TreeNode> = BTreeMap::new();
        if recorded.objects.len() > MAX_INSTALLED {
            unread.exceeded.insert("installed objects");
        }
        for (key, uid) in recorded.objects.iter().take(MAX_INSTALLED) {
            let state = match uid {
                Some(_) => NodeState::Missing,
                None => NodeState::Installing,
            };
            let uid = uid.as_deref().unwrap_or_default();
            let Some(node) = TreeNode::new(key, uid, state) else {
                continue;
            };
            if let (false, Some((kind, namespace, name))) = (uid.is_empty(), inventory::parts(key))
            {
                let group = groups.entry((kind, namespace)).or_default();
                group.push((key.as_str(), name, uid));
            }
            states.insert(key, node);
        }
        let kinds: BTreeSet<GroupKind> = groups.keys().map(|(kind, _)| kind.clone()).collect();
        let served = served_kinds(self.cluster, &kinds, &mut unread.unread).await;
        if groups.len() > MAX_LISTS {
            unread.exceeded.insert("lists");
        }
        let answers: Vec<_> = stream::iter(groups.into_iter().take(MAX_LISTS))
            .map(async |((group_kind, namespace), records)| {
                let Some(kind) = served.get(&group_kind) else {
                    let cause = Err(UnreadCause::NotServed);
                    return (group_kind, namespace, None, records, cause);
                };
                let answer = self.read_group(kind, namespace, &records).await;
                (group_kind, namespace, Some(kind), records, answer)
            })
            .buffered(IN_FLIGHT)
            .collect()
            .await;
        for (group_kind, namespace, kind, records, answer) in answers {
            match answer {
                Ok(read) => {
                    if let Some(kind) = kind {
                        unread.add_list(kind, namespace, &read);
                    }
                    for object in &read.objects {
                        let Some(node) = states.get_mut(object.key.as_str()) else {
                            continue;
                        };
                        if node.uid != object.uid {
                            node.state = NodeState::Replaced;
                        } else if let Some(found) = TreeNode::of(object) {
                            *node = found;
                        }
                    }
                }
                Err(cause) => {
                    for (key, _, _) in records {
                        if let Some(node) = states.get_mut(key) {
                            node.state = NodeState::unread(&cause);
                        }
                    }
                    if kind.is_some() {
                        unread.unread.push(UnreadList {
                            kind: group_kind,
                            namespace: namespace.map(str::to_owned),
                            cause,
                        });
                    }
                }
            }
        }
        (states.into_values().collect(), unread)
    }

    /// Reads the recorded objects of one kind and namespace.
    async fn read_group(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        records: &[(&str, &str, &str)],
    ) -> Result<ReadObjects, UnreadCause> {
        let resource = kind.qualified_plural();
        if records.len() > MAX_BY_NAME || self.watches {
            let names: HashSet<&str> = records.iter().map(|(_, name, _)| *name).collect();
            let is_wanted = |metadata: &ObjectMeta| {
                let name = metadata.name.as_deref().unwrap_or_default();
                names.contains(name)
            };
            let read = self.list(kind, namespace, is_wanted).await;
            return read.map_err(|failure| UnreadCause::of(&failure, "list", &resource));
        }
        let mut objects = Vec::new();
        for (_, name, _) in records {
            let found = self.get(kind, namespace, name).await;
            let found = found.map_err(|failure| UnreadCause::of(&failure, "get", &resource));
            objects.extend(found?);
        }
        Ok(ReadObjects {
            objects,
            version: String::new(),
            is_truncated: false,
        })
    }

    async fn get(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Outcome<Option<LiveObject>> {
        let request = async {
            let api = namespaced::<DynamicObject>(&self.cluster.client, &kind.resource, namespace)?;
            if has_health_of(kind) {
                let item = ByName(&api).get_opt(name).await?;
                Ok(item.map(|item| whole(kind, &item)))
            } else {
                let item = ByName(&api).get_metadata_opt(name).await?;
                Ok(item.map(|item| live_metadata(kind, &item)))
            }
        };
        self.cluster.send(request).await
    }

    /// Lists a kind in pages. For kinds without health, only metadata is read.
    async fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        is_wanted: impl Fn(&ObjectMeta) -> bool,
    ) -> Outcome<ReadObjects> {
        let mut read = ReadObjects {
            objects: Vec::new(),
            version: String::new(),
            is_truncated: true,
        };
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        for _ in 0..MAX_PAGES {
            let request = async {
                let client = &self.cluster.client;
                let api = namespaced::<DynamicObject>(client, &kind.resource, namespace)?;
                if has_health_of(kind) {
                    let list = api.list(&parameters).await?;
                    let items = list.items.iter().filter(|item| is_wanted(&item.metadata));
                    let objects: Vec<_> = items.map(|item| whole(kind, item)).collect();
                    Ok((objects, list.metadata))
                } else {
                    let list = api.list_metadata(&parameters).await?;
                    let items = list.items.iter().filter(|item| is_wanted(&item.metadata));
                    let objects: Vec<_> = items.map(|item| live_metadata(kind, item)).collect();
                    Ok((objects, list.metadata))
                }
            };
            let (objects, metadata) = self.cluster.send(request).await?;
            read.objects.extend(objects);
            read.version = metadata.resource_version.unwrap_or_default();
            let next = metadata.continue_.filter(|token| !token.is_empty());
            let Some(token) = next else {
                read.is_truncated = false;
                break;
            };
            parameters.continue_token = Some(token);
        }
        Ok(read)
    }

    /// Lists the kinds in `wanted`, each in its namespace, and returns the objects that have an
    /// owner.
    pub(super) async fn owned(
        &self,
        wanted: &BTreeSet<(String, ChildKind)>,
    ) -> (Vec<LiveObject>, UnreadObjects) {
        let (mut objects, mut unread) = (Vec::new(), UnreadObjects::default());
        if wanted.len() > MAX_LISTS {
            unread.exceeded.insert("lists");
        }
        let answers: Vec<_> = stream::iter(wanted.iter().take(MAX_LISTS))
            .map(async |(namespace, child)| {
                let kind = Kind {
                    resource: resource(*child),
                    namespaced: true,
                };
                let is_owned = |metadata: &ObjectMeta| metadata.owner_references.is_some();
                let answer = self.list(&kind, Some(namespace), is_owned).await;
                (kind, namespace, answer)
            })
            .buffered(IN_FLIGHT)
            .collect()
            .await;
        for (kind, namespace, answer) in answers {
            match answer {
                Ok(read) => {
                    unread.add_list(&kind, Some(namespace), &read);
                    objects.extend(read.objects);
                }
                Err(failure) => unread.unread.push(UnreadList {
                    kind: kind.group_kind(),
                    namespace: Some(namespace.clone()),
                    cause: UnreadCause::of(&failure, "list", &kind.qualified_plural()),
                }),
            }
        }
        (objects, unread)
    }
}

impl UnreadObjects {
    fn add_list(&mut self, kind: &Kind, namespace: Option<&str>, read: &ReadObjects) {
        if read.is_truncated {
            self.exceeded.insert("objects of a kind in a namespace");
        }
        if !read.version.is_empty() {
            self.lists.push(WatchedList {
                kind: kind.clone(),
                namespace: namespace.map(str::to_owned),
                version: read.version.clone(),
            });
        }
    }
}

fn whole(kind: &Kind, item: &DynamicObject) -> LiveObject {
    let value = serde_json::to_value(item).unwrap_or_default();
    live(kind, &item.metadata, &value)
}

fn resource(child: ChildKind) -> ApiResource {
    match child {
        ChildKind::Deployment => ApiResource::erase::<Deployment>(&()),
        ChildKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        ChildKind::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        ChildKind::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
        ChildKind::Job => ApiResource::erase::<Job>(&()),
        ChildKind::Pod => ApiResource::erase::<Pod>(&()),
    }
}
