//! Reads the installed objects of a BundleDeployment with the caller's permissions. Lists the kinds
//! in the namespaces of the ApplySet, by label.
//!
//! The authoritative inventory is in the state namespace, which most callers cannot read. Users can
//! change labels, so an object is listed only if bundle-webhook also applied it.

use std::collections::{BTreeMap, BTreeSet};

use bundle_api::{BundleDeployment, BundleDeploymentStatus, names};
use bundle_cluster::discovery::{Apis, Kind};
use bundle_cluster::{ByName, namespaced};
use bundle_core::object::GroupKind;
use bundle_core::plan::applyset;
use bundle_core::plan::health::{Health, has_health, health};
use bundle_core::plan::inventory;
use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DynamicObject, ListParams, ObjectMeta, PartialObjectMeta};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};

/// Maximum number of causes in a message.
const MAX_CAUSES: usize = 8;
/// Maximum number of list requests.
const MAX_LISTS: usize = 500;
/// Maximum number of concurrent requests.
const IN_FLIGHT: usize = 16;

/// Objects of a BundleDeployment that the caller has permission to read.
#[derive(Debug, Default)]
pub(crate) struct InstalledObjects {
    /// Existing objects.
    pub(crate) live: Vec<LiveObject>,
    /// Keys of objects that are in the status but do not exist.
    pub(crate) missing: BTreeSet<String>,
    /// Lists that could not be read.
    pub(crate) unread: Vec<UnreadList>,
    /// `true` if there are more objects or lists than the limits allow.
    pub(crate) is_truncated: bool,
    /// Maximum number of objects.
    pub(crate) max_objects: usize,
}

impl InstalledObjects {
    /// Returns the reasons why objects could not be read, and `true` if permissions are missing.
    /// Missing permissions are first, with verb and resource as in `kubectl auth can-i`. If
    /// `are_events_unread` is `true`, the permission to list Events is included.
    pub(crate) fn unread_causes(&self, are_events_unread: bool) -> (Vec<String>, bool) {
        let events = are_events_unread.then(|| UnreadList {
            kind: GroupKind::new("", "Event"),
            namespace: Some("default".to_owned()),
            cause: UnreadCause::Forbidden("list", "events".to_owned()),
        });
        unread_causes(self.unread.iter().chain(&events))
    }
}

/// Returns the reasons why objects could not be read, and `true` if permissions are missing.
/// Missing permissions are first, with verb and resource as in `kubectl auth can-i`. Other reasons
/// follow.
pub(crate) fn unread_causes<'a>(
    unread: impl IntoIterator<Item = &'a UnreadList>,
) -> (Vec<String>, bool) {
    let mut forbidden: BTreeMap<(&str, Option<&str>), Vec<&str>> = BTreeMap::new();
    let mut others = Vec::new();
    for list in unread {
        match &list.cause {
            UnreadCause::Forbidden(verb, resource) => {
                let permission = (*verb, list.namespace.as_deref());
                forbidden.entry(permission).or_default().push(resource);
            }
            UnreadCause::NotServed => others.push(format!("{}: not served", list.kind)),
            UnreadCause::Failed(why) => others.push(format!("{}: {why}", list.kind)),
        }
    }
    let lacks_permission = !forbidden.is_empty();
    let mut causes: Vec<String> = forbidden
        .into_iter()
        .map(|((verb, namespace), mut resources)| {
            resources.dedup();
            let resources = resources.join(", ");
            match namespace {
                Some(namespace) => {
                    format!("no permission to {verb} {resources} in namespace {namespace}")
                }
                None => format!("no permission to {verb} {resources} in the cluster"),
            }
        })
        .collect();
    causes.append(&mut others);
    let more = causes.len().saturating_sub(MAX_CAUSES);
    causes.truncate(MAX_CAUSES);
    if more > 0 {
        causes.push(format!("and {more} more"));
    }
    (causes, lacks_permission)
}

/// An existing object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LiveObject {
    /// Key: `Deployment.apps/team-a/web`.
    pub(crate) key: String,
    /// `apiVersion` with which the object was read.
    pub(crate) api_version: String,
    /// Creation time.
    pub(crate) created: Option<Time>,
    /// Health; `None` for a kind without health.
    pub(crate) health: Option<Health>,
    /// Uid.
    pub(crate) uid: String,
    /// Uids of its owners, from `ownerReferences`.
    pub(crate) owners: Vec<String>,
}

/// Objects of a kind that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnreadList {
    /// Kind.
    pub(crate) kind: GroupKind,
    /// Namespace; `None` for a cluster-scoped or unknown kind.
    pub(crate) namespace: Option<String>,
    /// Cause.
    pub(crate) cause: UnreadCause,
}

/// Reason why objects could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnreadCause {
    /// The caller lacks this verb on this resource: `list`, `deployments.apps`.
    Forbidden(&'static str, String),
    /// The API server does not serve the kind.
    NotServed,
    /// The request failed.
    Failed(String),
}

impl UnreadCause {
    /// Converts the failure of a request to its cause. `verb` and `resource` name the required
    /// permission.
    pub(crate) fn of(failure: &Failure, verb: &'static str, resource: &str) -> Self {
        match failure {
            Failure::Server(status) if status.code == 403 => {
                Self::Forbidden(verb, resource.to_owned())
            }
            Failure::Server(status) => Self::Failed(crate::failure::api_server::message(status)),
            Failure::Findings { findings, .. } => Self::Failed(findings.to_string()),
            Failure::Reported(_) | Failure::BrokenPipe => Self::Failed(String::new()),
        }
    }
}

/// Returns `true` if objects of this kind have a health.
pub(crate) fn has_health_of(kind: &Kind) -> bool {
    has_health(&kind.resource.group, &kind.resource.kind)
}

/// Returns the [`LiveObject`] for an object of this kind with these metadata.
pub(crate) fn live(kind: &Kind, metadata: &ObjectMeta, object: &Value) -> LiveObject {
    let group_kind = kind.group_kind();
    let name = metadata.name.as_deref().unwrap_or_default();
    let key = match &metadata.namespace {
        Some(namespace) => format!("{group_kind}/{namespace}/{name}"),
        None => format!("{group_kind}/{name}"),
    };
    let is_judged = has_health_of(kind) || metadata.deletion_timestamp.is_some();
    LiveObject {
        key,
        api_version: kind.resource.api_version.clone(),
        created: metadata.creation_timestamp.clone(),
        health: is_judged.then(|| health(&kind.resource.group, &kind.resource.kind, object)),
        uid: metadata.uid.clone().unwrap_or_default(),
        owners: metadata
            .owner_references
            .iter()
            .flatten()
            .map(|owner| owner.uid.clone())
            .collect(),
    }
}

/// Returns `true` if `managedFields` has an entry for an apply by bundle-webhook. Any user with
/// write access to the object can forge this entry. Labels alone are not enough, because
/// controllers copy them.
fn is_applied_by_webhook(metadata: &ObjectMeta) -> bool {
    metadata.managed_fields.iter().flatten().any(|entry| {
        entry.manager.as_deref() == Some(names::FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
    })
}

/// Returns the keys of the objects in the status.
pub(crate) fn keys_in_status(status: &BundleDeploymentStatus) -> BTreeSet<String> {
    let applied = status
        .upgrade
        .iter()
        .flat_map(|upgrade| &upgrade.applied_objects);
    let drifted = status.drift.iter().map(|drifted| &drifted.object);
    applied.chain(drifted).cloned().collect()
}

/// Reads at most `most` objects of `item`. `named` contains the keys of the objects in the status
/// of `item`. An object in `named` that is in no list is read by its name.
pub(crate) async fn read(
    cluster: &Cluster,
    item: &BundleDeployment,
    named: &BTreeSet<String>,
    most: usize,
) -> InstalledObjects {
    let annotations = item.metadata.annotations.clone().unwrap_or_default();
    let text = |name: &str| {
        annotations
            .get(name)
            .map(String::as_str)
            .unwrap_or_default()
    };
    let mut kinds = applyset::read_group_kinds(text(names::ANNOTATION_APPLYSET_GROUP_KINDS));
    let namespaces = applyset::read_namespaces(text(names::ANNOTATION_APPLYSET_NAMESPACES));
    let listed = kinds.clone();
    let named: Vec<_> = named
        .iter()
        .filter_map(|key| inventory::parts(key))
        .collect();
    kinds.extend(named.iter().map(|(kind, _, _)| kind.clone()));

    let mut found = InstalledObjects {
        max_objects: most,
        ..InstalledObjects::default()
    };
    let served = served_kinds(cluster, &kinds, &mut found.unread).await;
    let name = item.metadata.name.as_deref().unwrap_or_default();
    let set = applyset::id(name, "", "BundleDeployment", names::GROUP);
    let parameters = ListParams::default()
        .labels(&format!("{}={set}", names::LABEL_APPLYSET_PART_OF))
        .limit(u32::try_from(most).unwrap_or(u32::MAX));
    let kinds = listed.iter().filter_map(|kind| served.get(kind)).collect();
    list_all(cluster, kinds, &namespaces, &parameters, &mut found).await;
    get_named(cluster, &served, &named, &mut found).await;
    found.live.sort_by(|one, other| one.key.cmp(&other.key));
    found.live.dedup_by(|one, other| one.key == other.key);
    found.unread.sort();
    found.unread.dedup();
    found
}

/// Looks up these kinds in API discovery.
pub(crate) async fn served_kinds(
    cluster: &Cluster,
    kinds: &BTreeSet<GroupKind>,
    unread: &mut Vec<UnreadList>,
) -> BTreeMap<GroupKind, Kind> {
    let apis = Apis::new(cluster.client.clone());
    let answers: Vec<_> = stream::iter(kinds)
        .map(async |kind| (kind, cluster.send(apis.preferred(kind)).await))
        .buffered(IN_FLIGHT)
        .collect()
        .await;
    let mut served = BTreeMap::new();
    for (kind, answer) in answers {
        let cause = match answer {
            Ok(Some(found)) => {
                served.insert(kind.clone(), found);
                continue;
            }
            Ok(None) => UnreadCause::NotServed,
            Err(failure) => UnreadCause::of(&failure, "get", "API discovery"),
        };
        unread.push(UnreadList {
            kind: kind.clone(),
            namespace: None,
            cause,
        });
    }
    served
}

/// Lists each kind. If the ApplySet has only one namespace, namespaced kinds are listed in this
/// namespace, otherwise in the whole cluster. Without permission for the whole cluster, the kind is
/// listed in each namespace of the ApplySet.
async fn list_all(
    cluster: &Cluster,
    kinds: Vec<&Kind>,
    namespaces: &BTreeSet<String>,
    parameters: &ListParams,
    found: &mut InstalledObjects,
) {
    let one = (namespaces.len() == 1)
        .then(|| namespaces.first().cloned())
        .flatten();
    let first = kinds
        .into_iter()
        .map(|kind| (kind, one.clone().filter(|_| kind.namespaced)))
        .collect();
    let failed = list(cluster, first, namespaces, parameters, found).await;
    let mut second = Vec::new();
    for (kind, namespace, cause) in failed {
        let is_cluster_wide = kind.namespaced && namespace.is_none();
        if is_cluster_wide && matches!(cause, UnreadCause::Forbidden(..)) {
            second.extend(namespaces.iter().map(|name| (kind, Some(name.clone()))));
        } else {
            found.unread.push(unread(kind, namespace, cause));
        }
    }
    let failed = list(cluster, second, namespaces, parameters, found).await;
    let failed = failed.into_iter();
    found
        .unread
        .extend(failed.map(|(kind, namespace, cause)| unread(kind, namespace, cause)));
}

fn unread(kind: &Kind, namespace: Option<String>, cause: UnreadCause) -> UnreadList {
    UnreadList {
        kind: kind.group_kind(),
        namespace,
        cause,
    }
}

type FailedList<'k> = (&'k Kind, Option<String>, UnreadCause);

/// Sends these list requests until the maximum number of objects is reached. Returns the lists that
/// failed.
async fn list<'k>(
    cluster: &Cluster,
    mut lists: Vec<(&'k Kind, Option<String>)>,
    namespaces: &BTreeSet<String>,
    parameters: &ListParams,
    found: &mut InstalledObjects,
) -> Vec<FailedList<'k>> {
    found.is_truncated |= lists.len() > MAX_LISTS;
    lists.truncate(MAX_LISTS);
    let mut failed = Vec::new();
    let answers = stream::iter(lists)
        .map(async |(kind, namespace)| {
            let answer = list_kind(cluster, kind, namespace.as_deref(), parameters).await;
            (kind, namespace, answer)
        })
        .buffered(IN_FLIGHT);
    let mut answers = std::pin::pin!(answers);
    while let Some((kind, namespace, answer)) = answers.next().await {
        match answer {
            Ok((objects, has_more)) => {
                found.is_truncated |= has_more;
                let applied = objects.into_iter().filter(|object| {
                    inventory::parts(&object.key).is_some_and(|(_, namespace, _)| {
                        namespace.is_none_or(|namespace| namespaces.contains(namespace))
                    })
                });
                found.live.extend(applied);
            }
            Err(failure) => {
                let cause = UnreadCause::of(&failure, "list", &kind.qualified_plural());
                failed.push((kind, namespace, cause));
            }
        }
        if found.live.len() > found.max_objects {
            found.live.truncate(found.max_objects);
            found.is_truncated = true;
            break;
        }
    }
    failed
}

/// Returns the objects of one list that bundle-webhook applied, and `true` if the list has more
/// objects. For kinds without health, only metadata is read.
async fn list_kind(
    cluster: &Cluster,
    kind: &Kind,
    namespace: Option<&str>,
    parameters: &ListParams,
) -> Outcome<(Vec<LiveObject>, bool)> {
    let request = async {
        let api = namespaced::<DynamicObject>(&cluster.client, &kind.resource, namespace)?;
        if has_health_of(kind) {
            let list = api.list(parameters).await?;
            let objects = list
                .items
                .iter()
                .filter(|item| is_applied_by_webhook(&item.metadata));
            let objects = objects.map(|item| {
                let value = serde_json::to_value(item).unwrap_or_default();
                live(kind, &item.metadata, &value)
            });
            Ok((objects.collect(), list.metadata.continue_))
        } else {
            let list = api.list_metadata(parameters).await?;
            let objects = list
                .items
                .iter()
                .filter(|item| is_applied_by_webhook(&item.metadata));
            let objects = objects.map(|item| live_metadata(kind, item));
            Ok((objects.collect(), list.metadata.continue_))
        }
    };
    let (objects, next) = cluster.send(request).await?;
    Ok((objects, next.is_some_and(|token| !token.is_empty())))
}

/// Returns the [`LiveObject`] for an object of which only the metadata was read.
pub(crate) fn live_metadata(kind: &Kind, item: &PartialObjectMeta<DynamicObject>) -> LiveObject {
    let value = serde_json::json!({"metadata": item.metadata});
    live(kind, &item.metadata, &value)
}

/// Reads the objects that are in the status but in no list, because their labels may have been
/// removed.
async fn get_named(
    cluster: &Cluster,
    served: &BTreeMap<GroupKind, Kind>,
    named: &[(GroupKind, Option<&str>, &str)],
    found: &mut InstalledObjects,
) {
    let known: BTreeSet<String> = found.live.iter().map(|object| object.key.clone()).collect();
    let wanted = named.iter().filter_map(|(kind, namespace, name)| {
        let key = match namespace {
            Some(namespace) => format!("{kind}/{namespace}/{name}"),
            None => format!("{kind}/{name}"),
        };
        (!known.contains(&key)).then_some((served.get(kind)?, key, *namespace, *name))
    });
    let answers: Vec<_> = stream::iter(wanted.take(found.max_objects))
        .map(async |(kind, key, namespace, name)| {
            let request = async {
                let api = namespaced::<DynamicObject>(&cluster.client, &kind.resource, namespace)?;
                if has_health_of(kind) {
                    let item = ByName(&api).get_opt(name).await?;
                    Ok(item.map(|item| {
                        let value = serde_json::to_value(&item).unwrap_or_default();
                        live(kind, &item.metadata, &value)
                    }))
                } else {
                    let item = ByName(&api).get_metadata_opt(name).await?;
                    Ok(item.map(|item| live_metadata(kind, &item)))
                }
            };
            (kind, key, namespace, cluster.send(request).await)
        })
        .buffer_unordered(IN_FLIGHT)
        .collect()
        .await;
    for (kind, key, namespace, answer) in answers {
        match answer {
            Ok(Some(object)) => found.live.push(object),
            Ok(None) => {
                found.missing.insert(key);
            }
            Err(failure) => {
                let cause = UnreadCause::of(&failure, "get", &kind.qualified_plural());
                let namespace = namespace.map(str::to_owned);
                found.unread.push(unread(kind, namespace, cause));
            }
        }
    }
}
