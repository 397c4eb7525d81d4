//! The tree of a BundleDeployment as data: nodes, and owned objects below their owners.

use std::collections::BTreeMap;

use bundle_core::object::GroupKind;
use bundle_core::plan::health::Health;
use bundle_core::plan::inventory;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::commands::deployments::state::objects::{LiveObject, UnreadCause, UnreadList};

/// Maximum depth of owned objects. Owner references can form a chain of any length.
const MAX_DEPTH: usize = 8;

/// A node of the tree.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TreeNode {
    /// Kind.
    pub(super) kind: GroupKind,
    /// Namespace; `None` for a cluster-scoped object.
    pub(super) namespace: Option<String>,
    /// Name; `None` for objects that could not be listed.
    pub(super) name: Option<String>,
    /// `apiVersion` with which the object was read.
    pub(super) api_version: Option<String>,
    /// Uid.
    pub(super) uid: String,
    /// Creation time.
    pub(super) created: Option<Time>,
    /// State.
    pub(super) state: NodeState,
    /// Owned objects.
    pub(super) children: Vec<TreeNode>,
}

/// State of a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum NodeState {
    /// Health of the object.
    Known(Health),
    /// The kind has no health.
    NoHealth,
    /// The object does not exist.
    Missing,
    /// Another object exists under the recorded name: its uid differs from the recorded uid.
    Replaced,
    /// bundle-webhook has started to create or adopt the object, according to the inventory.
    Installing,
    /// The user has no permission to read the object.
    Forbidden,
    /// The object could not be read. The text is the cause.
    Unread(String),
}

impl NodeState {
    /// Returns the state for objects that could not be read.
    pub(super) fn unread(cause: &UnreadCause) -> Self {
        match cause {
            UnreadCause::Forbidden(..) => Self::Forbidden,
            UnreadCause::NotServed => {
                Self::Unread("the API server does not serve this kind".to_owned())
            }
            UnreadCause::Failed(why) => Self::Unread(why.clone()),
        }
    }

    /// Returns the state as one word, and the message of the state, if there is a message.
    pub(super) fn parts(&self) -> (&str, Option<&str>) {
        match self {
            Self::Known(Health::Ready) => ("Ready", None),
            Self::Known(Health::Waiting(why)) => ("Waiting", Some(why)),
            Self::Known(Health::Failed(why)) => ("Failed", Some(why)),
            Self::NoHealth => ("-", None),
            Self::Missing => ("Missing", None),
            Self::Replaced => (
                "Missing",
                Some("another object of this name exists, which bundle-webhook did not create"),
            ),
            Self::Installing => (
                "Waiting",
                Some("bundle-webhook starts to create or adopt it"),
            ),
            Self::Forbidden => ("forbidden", None),
            Self::Unread(why) => ("?", Some(why)),
        }
    }
}

impl TreeNode {
    /// Returns the node of the object `key` in this state.
    pub(super) fn new(key: &str, uid: &str, state: NodeState) -> Option<Self> {
        let (kind, namespace, name) = inventory::parts(key)?;
        Some(Self {
            kind,
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            api_version: None,
            uid: uid.to_owned(),
            created: None,
            state,
            children: Vec::new(),
        })
    }

    /// Returns the node of an existing object.
    pub(super) fn of(object: &LiveObject) -> Option<Self> {
        let state = object
            .health
            .clone()
            .map_or(NodeState::NoHealth, NodeState::Known);
        let node = Self::new(&object.key, &object.uid, state)?;
        Some(Self {
            api_version: Some(object.api_version.clone()),
            created: object.created.clone(),
            ..node
        })
    }

    /// Returns the node of objects that could not be listed.
    pub(super) fn unlisted(
        kind: GroupKind,
        namespace: Option<String>,
        cause: &UnreadCause,
    ) -> Self {
        Self {
            kind,
            namespace,
            name: None,
            api_version: None,
            uid: String::new(),
            created: None,
            state: NodeState::unread(cause),
            children: Vec::new(),
        }
    }

    /// Returns the node and all nodes below it.
    pub(super) fn all(&self) -> Vec<&Self> {
        let mut nodes = vec![self];
        nodes.extend(self.children.iter().flat_map(Self::all));
        nodes
    }

    /// Returns `Kind/name`, as kubectl prints it.
    pub(super) fn title(&self) -> String {
        format!("{}/{}", self.kind.kind, self.name.as_deref().unwrap_or("?"))
    }
}

/// Kind of owned objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ChildKind {
    Deployment,
    StatefulSet,
    DaemonSet,
    ReplicaSet,
    Job,
    Pod,
}

impl ChildKind {
    /// Returns group and kind.
    pub(super) fn group_kind(self) -> GroupKind {
        match self {
            Self::Deployment => GroupKind::new("apps", "Deployment"),
            Self::StatefulSet => GroupKind::new("apps", "StatefulSet"),
            Self::DaemonSet => GroupKind::new("apps", "DaemonSet"),
            Self::ReplicaSet => GroupKind::new("apps", "ReplicaSet"),
            Self::Job => GroupKind::new("batch", "Job"),
            Self::Pod => GroupKind::new("", "Pod"),
        }
    }
}

/// Returns the kinds of the objects that objects of the kind `owner` own. For a custom resource,
/// returns all kinds, because an operator can create each of them.
pub(super) fn child_kinds(owner: &GroupKind) -> &'static [ChildKind] {
    use ChildKind::{DaemonSet, Deployment, Job, Pod, ReplicaSet, StatefulSet};
    match (owner.group.as_str(), owner.kind.as_str()) {
        ("apps", "Deployment") => &[ReplicaSet],
        ("apps", "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("", "ReplicationController")
        | ("batch", "Job") => &[Pod],
        ("batch", "CronJob") => &[Job],
        (group, _) if bundle_core::version::apis::is_custom(group) => {
            &[Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, Pod]
        }
        _ => &[],
    }
}

/// Returns pairs of namespace and kind to list. They include the kinds of owned objects at all
/// depths.
pub(super) fn child_lists<'a>(
    owners: impl Iterator<Item = (&'a GroupKind, &'a str)>,
) -> std::collections::BTreeSet<(String, ChildKind)> {
    let mut lists = std::collections::BTreeSet::new();
    let mut open: Vec<(GroupKind, String)> = owners
        .map(|(kind, namespace)| (kind.clone(), namespace.to_owned()))
        .collect();
    while let Some((kind, namespace)) = open.pop() {
        for child in child_kinds(&kind) {
            if lists.insert((namespace.clone(), *child)) {
                open.push((child.group_kind(), namespace.clone()));
            }
        }
    }
    lists
}

/// Adds owned objects below their owners, by uid and namespace. A kind that could not be listed
/// gets a node without a name below each owner, except below custom resources.
pub(super) fn add_children(nodes: &mut [TreeNode], children: &[LiveObject], unread: &[UnreadList]) {
    let mut by_owner: BTreeMap<String, Vec<TreeNode>> = BTreeMap::new();
    for object in children {
        let Some(node) = TreeNode::of(object) else {
            continue;
        };
        for owner in &object.owners {
            let owned = by_owner.entry(owner.clone()).or_default();
            owned.push(node.clone());
        }
    }
    for node in nodes {
        attach(node, &mut by_owner, unread, MAX_DEPTH);
    }
}

fn attach(
    node: &mut TreeNode,
    by_owner: &mut BTreeMap<String, Vec<TreeNode>>,
    unread: &[UnreadList],
    depth: usize,
) {
    if depth == 0 || node.uid.is_empty() {
        return;
    }
    // The owned objects are removed from the map, so that a cycle of owner references does not
    // cause endless recursion.
    let owned = by_owner.remove(&node.uid).unwrap_or_default();
    let is_near = |child: &TreeNode| node.namespace.is_none() || child.namespace == node.namespace;
    node.children = owned.into_iter().filter(is_near).collect();
    for child in &mut node.children {
        attach(child, by_owner, unread, depth - 1);
    }
    let is_custom = bundle_core::version::apis::is_custom(&node.kind.group);
    for kind in child_kinds(&node.kind).iter().filter(|_| !is_custom) {
        let kind = kind.group_kind();
        let failed = unread
            .iter()
            .find(|list| list.kind == kind && list.namespace == node.namespace);
        if let Some(failed) = failed {
            let unlisted = TreeNode::unlisted(kind, node.namespace.clone(), &failed.cause);
            node.children.push(unlisted);
        }
    }
    node.children
        .sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(key: &str, uid: &str, owners: &[&str]) -> LiveObject {
        LiveObject {
            key: key.to_owned(),
            api_version: "v1".to_owned(),
            created: None,
            health: Some(Health::Ready),
            uid: uid.to_owned(),
            owners: owners.iter().map(|&owner| owner.to_owned()).collect(),
        }
    }

    fn titles(node: &TreeNode) -> Vec<String> {
        node.all().into_iter().map(TreeNode::title).collect()
    }

    fn deployment() -> TreeNode {
        TreeNode::of(&live("Deployment.apps/team-a/web", "d", &[])).unwrap()
    }

    #[test]
    fn owned_objects_are_found_by_uid_at_each_depth() {
        let mut nodes = [deployment()];
        let children = vec![
            live("Pod/team-a/web-1-a", "p", &["r"]),
            live("ReplicaSet.apps/team-a/web-1", "r", &["d"]),
            live("ReplicaSet.apps/team-a/other", "o", &["x"]),
            live("ReplicaSet.apps/team-b/web-1", "b", &["d"]),
        ];
        add_children(&mut nodes, &children, &[]);
        assert_eq!(
            titles(&nodes[0]),
            ["Deployment/web", "ReplicaSet/web-1", "Pod/web-1-a"]
        );
    }

    #[test]
    fn cycles_and_chains_of_owners_end() {
        let mut nodes = [deployment()];
        let children = vec![
            live("ReplicaSet.apps/team-a/a", "a", &["d", "b"]),
            live("ReplicaSet.apps/team-a/b", "b", &["a"]),
        ];
        add_children(&mut nodes, &children, &[]);
        assert_eq!(titles(&nodes[0]).len(), 4);
        let mut nodes = [deployment()];
        let chain = (0..100).map(|number| {
            let owner = match number {
                0 => "d".to_owned(),
                number => format!("p{}", number - 1),
            };
            let key = format!("Pod/team-a/{number}");
            live(&key, &format!("p{number}"), &[&owner])
        });
        add_children(&mut nodes, &chain.collect::<Vec<_>>(), &[]);
        assert_eq!(titles(&nodes[0]).len(), MAX_DEPTH + 1);
    }

    #[test]
    fn kinds_without_permission_are_nodes_without_a_name() {
        let mut nodes = [deployment()];
        let forbidden = UnreadList {
            kind: GroupKind::new("apps", "ReplicaSet"),
            namespace: Some("team-a".to_owned()),
            cause: UnreadCause::Forbidden("list", "replicasets.apps".to_owned()),
        };
        add_children(&mut nodes, &[], &[forbidden]);
        assert_eq!(titles(&nodes[0]), ["Deployment/web", "ReplicaSet/?"]);
        assert_eq!(nodes[0].children[0].state.parts(), ("forbidden", None));
    }

    #[test]
    fn only_kinds_that_can_be_owned_are_listed() {
        let lists = |kinds: &[&str]| {
            let kinds: Vec<_> = kinds.iter().map(|kind| GroupKind::parse(kind)).collect();
            let owners = kinds.iter().map(|kind| (kind, "team-a"));
            let lists = child_lists(owners).into_iter();
            lists.map(|(_, kind)| kind).collect::<Vec<_>>()
        };
        assert_eq!(lists(&["ConfigMap", "Service"]), []);
        assert_eq!(
            lists(&["Deployment.apps", "CronJob.batch"]),
            [ChildKind::ReplicaSet, ChildKind::Job, ChildKind::Pod]
        );
        assert_eq!(lists(&["Queue.example.com"]).len(), 6);
    }
}
