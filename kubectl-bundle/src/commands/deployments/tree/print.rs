//! Output of a tree. As text: a table with the objects below their owners, and a table of warning
//! Events. As data: the same content.

use bundle_core::diagnostic::{Finding, codes};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::model::TreeNode;
use super::read::ObservedTree;
use crate::commands::deployments::state::objects::unread_causes;
use crate::ui::{Table, age};

/// Returns the tree and its Events as text.
pub(super) fn text(tree: &ObservedTree, now: Timestamp) -> String {
    let since = |at: Timestamp| age::format(now.as_second() - at.as_second());
    let mut table = Table::new(["NAMESPACE", "OBJECT", "AGE", "HEALTH"]);
    let mut lines = Vec::new();
    for node in &tree.nodes {
        add_lines(node, String::new(), "", &mut lines);
    }
    for (prefix, node) in lines {
        let created = node.created.as_ref();
        table.row([
            node.namespace.clone().unwrap_or_default(),
            format!("{prefix}{}", node.title()),
            created.map_or_else(|| "-".to_owned(), |created| since(created.0)),
            match node.state.parts() {
                (word, Some(why)) if !why.is_empty() => format!("{word}: {why}"),
                (word, _) => word.to_owned(),
            },
        ]);
    }
    let mut text = table.render();
    if !tree.events.is_empty() {
        let mut table = Table::new(["LAST SEEN", "NAMESPACE", "OBJECT", "REASON", "WARNING"]);
        for event in &tree.events {
            table.row([
                since(event.at),
                event.namespace.clone().unwrap_or_default(),
                event.object.clone(),
                event.reason.clone(),
                event.message.clone(),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    text
}

/// Adds a line for the node and for all nodes below it, each with the prefix that draws the tree.
fn add_lines<'a>(
    node: &'a TreeNode,
    prefix: String,
    below: &str,
    lines: &mut Vec<(String, &'a TreeNode)>,
) {
    lines.push((prefix, node));
    for (index, child) in node.children.iter().enumerate() {
        let (branch, rest) = if index + 1 < node.children.len() {
            ("├─ ", "│  ")
        } else {
            ("└─ ", "   ")
        };
        let (prefix, below) = (format!("{below}{branch}"), format!("{below}{rest}"));
        add_lines(child, prefix, &below, lines);
    }
}

/// Returns the tree as data. Fields with unknown values are omitted.
pub(super) fn structured(tree: &ObservedTree) -> Value {
    let mut value = tree.nodes.first().map_or(Value::Null, node_data);
    let events = tree.events.iter().map(|event| {
        let mut value = json!({
            "object": event.object,
            "reason": event.reason,
            "message": event.message,
            "lastSeen": event.at.to_string(),
        });
        if let Some(namespace) = &event.namespace {
            value["namespace"] = namespace.clone().into();
        }
        value
    });
    value["events"] = events.collect();
    value["unread"] = unread_causes(&tree.unread).0.into();
    value
}

fn node_data(node: &TreeNode) -> Value {
    let (health, message) = node.state.parts();
    let mut value = json!({"kind": node.kind.to_string()});
    for (key, known) in [
        ("apiVersion", node.api_version.clone()),
        ("namespace", node.namespace.clone()),
        ("name", node.name.clone()),
        ("uid", Some(node.uid.clone()).filter(|uid| !uid.is_empty())),
        (
            "created",
            node.created.as_ref().map(|created| created.0.to_string()),
        ),
        (
            "health",
            Some(health.to_owned()).filter(|health| health != "-" && health != "?"),
        ),
        ("message", message.map(str::to_owned)),
    ] {
        if let Some(known) = known {
            value[key] = known.into();
        }
    }
    if !node.children.is_empty() {
        value["children"] = node.children.iter().map(node_data).collect();
    }
    value
}

/// Returns the warnings about objects that could not be added to the tree.
pub(super) fn findings(tree: &ObservedTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (causes, lacks_permission) = unread_causes(&tree.unread);
    if !causes.is_empty() {
        let text = format!("the tree is incomplete: {}", causes.join("; "));
        let finding = Finding::warning(codes::cluster::TREE_INCOMPLETE, text);
        findings.push(if tree.is_inventory_unread {
            finding.hint(
                "request permission to get the inventory; `kubectl bundle status` lists the objects by label",
            )
        } else if lacks_permission {
            finding.hint("request a role with these permissions; `tree` uses your permissions")
        } else {
            finding
        });
    }
    if !tree.exceeded.is_empty() {
        let limits: Vec<&str> = tree.exceeded.iter().copied().collect();
        let text = format!("the tree is incomplete: too many {}", limits.join(", "));
        findings.push(Finding::warning(codes::cluster::TREE_INCOMPLETE, text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use bundle_core::object::GroupKind;
    use bundle_core::plan::health::Health;

    use super::super::model::NodeState;
    use super::super::read::WarningEvent;
    use super::*;
    use crate::commands::deployments::state::objects::{UnreadCause, UnreadList};

    fn node(key: &str, state: NodeState, children: Vec<TreeNode>) -> TreeNode {
        TreeNode {
            children,
            ..TreeNode::new(key, "u", state).unwrap()
        }
    }

    fn tree() -> ObservedTree {
        let pod = NodeState::Known(Health::Failed("container web: ImagePullBackOff".to_owned()));
        let pod = node("Pod/team-a/web-1-a", pod, Vec::new());
        let set = NodeState::Known(Health::Waiting("0 of 1 available".to_owned()));
        let set = node("ReplicaSet.apps/team-a/web-1", set, vec![pod]);
        let waiting = NodeState::Known(Health::Waiting(String::new()));
        let deployment = node("Deployment.apps/team-a/web", waiting, vec![set]);
        let map = node("ConfigMap/team-a/web", NodeState::NoHealth, Vec::new());
        let secret = node("Secret/team-a/web", NodeState::Forbidden, Vec::new());
        let root = NodeState::Known(Health::Ready);
        ObservedTree {
            nodes: vec![node(
                "BundleDeployment.core.rukpak.io/web",
                root,
                vec![map, deployment, secret],
            )],
            events: vec![WarningEvent {
                at: "2026-01-01T10:59:00Z".parse().unwrap(),
                namespace: Some("team-a".to_owned()),
                object: "Pod/web-1-a".to_owned(),
                reason: "Failed".to_owned(),
                message: "cannot pull \u{1b}[2J".to_owned(),
            }],
            unread: vec![UnreadList {
                kind: GroupKind::new("", "Secret"),
                namespace: Some("team-a".to_owned()),
                cause: UnreadCause::Forbidden("list", "secrets".to_owned()),
            }],
            ..ObservedTree::default()
        }
    }

    #[test]
    fn owned_objects_are_below_their_owners() {
        let text = text(&tree(), "2026-01-01T11:00:00Z".parse().unwrap());
        insta::assert_snapshot!(text, @r"
        NAMESPACE   OBJECT                   AGE   HEALTH
        <none>      BundleDeployment/web     -     Ready
        team-a      ├─ ConfigMap/web         -     -
        team-a      ├─ Deployment/web        -     Waiting
        team-a      │  └─ ReplicaSet/web-1   -     Waiting: 0 of 1 available
        team-a      │     └─ Pod/web-1-a     -     Failed: container web: ImagePullBackOff
        team-a      └─ Secret/web            -     forbidden

        LAST SEEN   NAMESPACE   OBJECT        REASON   WARNING
        60s         team-a      Pod/web-1-a   Failed   cannot pull \u{1b}[2J
        ");
    }

    #[test]
    fn data_has_no_key_for_unknown_values() {
        let data = structured(&tree());
        assert_eq!(
            data["children"][0],
            json!({"kind": "ConfigMap", "namespace": "team-a", "name": "web", "uid": "u"})
        );
        assert_eq!(data["children"][2]["health"], "forbidden");
        let pod = &data["children"][1]["children"][0]["children"][0];
        assert_eq!(pod["message"], "container web: ImagePullBackOff");
        assert_eq!(
            data["unread"],
            json!(["no permission to list secrets in namespace team-a"])
        );
        assert_eq!(data["events"][0]["object"], "Pod/web-1-a");
    }
}
