//! Reads the tree of a BundleDeployment with the user's permissions: inventory, installed objects,
//! owned objects and Events.

mod events;
mod inventory;
mod lists;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bundle_api::{Bundle, BundleDeployment, names};
use bundle_cluster::ByName;
use bundle_core::object::GroupKind;
use bundle_core::plan::applyset;
use bundle_core::plan::health::{Health, health};
use kube::api::{Api, ListParams};

use super::model::{NodeState, TreeNode, add_children, child_lists};
use crate::cluster::Cluster;
use crate::commands::deployments::revisions;
use crate::commands::deployments::state::inventory as state_inventory;
use crate::commands::deployments::state::objects::{UnreadCause, UnreadList};
use crate::failure::{Failure, Outcome};
pub(super) use events::WarningEvent;
use inventory::RecordedObjects;
pub(super) use lists::WatchedList;

/// The part of the tree that the user has permission to read.
#[derive(Debug, Default)]
pub(super) struct ObservedTree {
    /// BundleDeployment, with the Bundle and the installed objects below it.
    pub(super) nodes: Vec<TreeNode>,
    /// Warning Events about objects of the tree, newest first.
    pub(super) events: Vec<WarningEvent>,
    /// Lists and objects that could not be read.
    pub(super) unread: Vec<UnreadList>,
    /// `true` if the inventory could not be read.
    pub(super) is_inventory_unread: bool,
    /// Limits that the objects exceed.
    pub(super) exceeded: BTreeSet<&'static str>,
    /// Lists of the tree, for watches.
    pub(super) lists: Vec<WatchedList>,
    /// Resource version from which a watch of the BundleDeployments continues.
    pub(super) version: Option<String>,
}

/// Settings of reads.
pub(super) struct TreeReader<'a> {
    /// Connection.
    pub(super) cluster: &'a Cluster,
    /// Namespace of the inventories.
    pub(super) state_namespace: &'a str,
    /// `true` if each kind is listed, so that a watch can start from the list.
    pub(super) watches: bool,
}

impl TreeReader<'_> {
    /// Reads the tree of the BundleDeployment `name`.
    pub(super) async fn read(&self, name: &str) -> Outcome<ObservedTree> {
        let api: Api<BundleDeployment> = Api::all(self.cluster.client.clone());
        let mut tree = ObservedTree::default();
        if self.watches {
            // The resource version of a single object can be too old for a watch. The resource
            // version of a list is current.
            let one = ListParams::default().limit(1);
            let list = self.cluster.send(api.list_metadata(&one)).await.ok();
            tree.version = list.and_then(|list| list.metadata.resource_version);
        }
        let item = self.cluster.send(ByName(&api).get(name)).await?;
        let mut root = deployment_node(&item);
        let recorded = self.recorded(&item, &mut tree).await?;
        let (bundle, installed) =
            futures::join!(self.bundle_node(&item), self.installed(&recorded),);
        let (mut nodes, unread) = installed;
        tree.merge(unread);
        let owners = nodes
            .iter()
            .filter(|node| matches!(node.state, NodeState::Known(_) | NodeState::NoHealth))
            .filter_map(|node| Some((&node.kind, node.namespace.as_deref()?)));
        let wanted = child_lists(owners);
        let (children, unread) = self.owned(&wanted).await;
        let known: HashSet<&str> = recorded.uids().collect();
        let children: Vec<_> = children
            .into_iter()
            .filter(|child| !known.contains(child.uid.as_str()))
            .collect();
        add_children(&mut nodes, &children, &unread.unread);
        tree.merge(unread);
        if tree.is_inventory_unread {
            nodes.extend(unlisted_nodes(&item));
        }
        root.children = bundle.into_iter().chain(nodes).collect();
        tree.nodes.push(root);
        self.add_events(&mut tree).await;
        tree.unread.sort();
        tree.unread.dedup();
        Ok(tree)
    }

    /// Returns the records of the inventory. Returns no records if the user has no permission to
    /// read the inventory.
    async fn recorded(
        &self,
        item: &BundleDeployment,
        tree: &mut ObservedTree,
    ) -> Outcome<RecordedObjects> {
        match state_inventory::read(self.cluster, self.state_namespace, item).await {
            Ok(found) => Ok(found.as_ref().map(RecordedObjects::of).unwrap_or_default()),
            Err(Failure::Server(status)) if status.code == 403 => {
                tree.is_inventory_unread = true;
                tree.unread.push(UnreadList {
                    kind: GroupKind::new("", "ConfigMap"),
                    namespace: Some(self.state_namespace.to_owned()),
                    cause: UnreadCause::Forbidden("get", "configmaps".to_owned()),
                });
                Ok(RecordedObjects::default())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Returns the node of the active Bundle.
    async fn bundle_node(&self, item: &BundleDeployment) -> Option<TreeNode> {
        let name = item.status.as_ref()?.active_bundle.as_ref()?;
        let key = format!("Bundle.{}/{name}", names::GROUP);
        let api: Api<Bundle> = Api::all(self.cluster.client.clone());
        let bundle = match self.cluster.send(ByName(&api).get_opt(name)).await {
            Ok(Some(bundle)) if revisions::generated_hash(&bundle, item).is_some() => bundle,
            Ok(Some(_)) => return TreeNode::new(&key, "", NodeState::Replaced),
            Ok(None) => return TreeNode::new(&key, "", NodeState::Missing),
            Err(failure) => {
                let cause = UnreadCause::of(&failure, "get", "bundles.core.rukpak.io");
                return TreeNode::new(&key, "", NodeState::unread(&cause));
            }
        };
        let uid = bundle.metadata.uid.clone().unwrap_or_default();
        let node = TreeNode::new(&key, &uid, NodeState::Known(bundle_health(&bundle)))?;
        Some(TreeNode {
            api_version: Some(names::API_VERSION.to_owned()),
            created: bundle.metadata.creation_timestamp,
            ..node
        })
    }
}

/// Reads that failed, limits that were exceeded, and lists from which watches can start.
#[derive(Debug, Default)]
struct UnreadObjects {
    unread: Vec<UnreadList>,
    exceeded: BTreeSet<&'static str>,
    lists: Vec<WatchedList>,
}

impl ObservedTree {
    fn merge(&mut self, other: UnreadObjects) {
        self.unread.extend(other.unread);
        self.exceeded.extend(other.exceeded);
        self.lists.extend(other.lists);
    }

    /// Returns all nodes.
    pub(super) fn all(&self) -> Vec<&TreeNode> {
        self.nodes.iter().flat_map(TreeNode::all).collect()
    }

    /// Returns the nodes by uid.
    fn by_uid(&self) -> BTreeMap<&str, &TreeNode> {
        let nodes = self.all().into_iter();
        let known = nodes.filter(|node| !node.uid.is_empty());
        known.map(|node| (node.uid.as_str(), node)).collect()
    }
}

fn deployment_node(item: &BundleDeployment) -> TreeNode {
    let value = serde_json::to_value(item).unwrap_or_default();
    TreeNode {
        kind: GroupKind::new(names::GROUP, "BundleDeployment"),
        namespace: None,
        name: item.metadata.name.clone(),
        api_version: Some(names::API_VERSION.to_owned()),
        uid: item.metadata.uid.clone().unwrap_or_default(),
        created: item.metadata.creation_timestamp.clone(),
        state: NodeState::Known(health(names::GROUP, "BundleDeployment", &value)),
        children: Vec::new(),
    }
}

/// Returns the health of a Bundle. A Bundle is ready as soon as its content is unpacked.
fn bundle_health(bundle: &Bundle) -> Health {
    if bundle.metadata.deletion_timestamp.is_some() {
        return Health::Waiting("is being deleted".to_owned());
    }
    let mut conditions = bundle.status.iter().flat_map(|status| &status.conditions);
    match conditions.find(|condition| condition.type_ == names::condition::UNPACKED) {
        Some(condition) if condition.status == "True" => Health::Ready,
        Some(condition) => Health::Waiting(condition.message.clone()),
        None => Health::Waiting("is not unpacked".to_owned()),
    }
}

/// Returns a node for each kind of the installed objects, for a user without permission to read the
/// inventory.
fn unlisted_nodes(item: &BundleDeployment) -> Vec<TreeNode> {
    let annotations = item.metadata.annotations.as_ref();
    let kinds = annotations.and_then(|all| all.get(names::ANNOTATION_APPLYSET_GROUP_KINDS));
    let kinds = applyset::read_group_kinds(kinds.map(String::as_str).unwrap_or_default());
    let cause = UnreadCause::Forbidden("get", "configmaps".to_owned());
    let nodes = kinds
        .into_iter()
        .map(|kind| TreeNode::unlisted(kind, None, &cause));
    nodes.collect()
}
