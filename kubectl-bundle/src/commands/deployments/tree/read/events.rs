//! Warning Events about the objects of a tree.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;

use super::{ObservedTree, TreeReader};
use crate::cluster::events::NAMESPACE;
use crate::commands::deployments::listing::last_seen;
use crate::commands::deployments::state::objects::{UnreadCause, UnreadList};
use bundle_core::object::GroupKind;

/// Maximum number of namespaces whose Events are read.
const MAX_NAMESPACES: usize = 50;
/// Maximum number of Events in a tree.
const MAX_EVENTS: usize = 20;
/// Maximum age of an Event. By default, API servers keep Events for one hour.
const PERIOD: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of concurrent requests.
const IN_FLIGHT: usize = 8;

/// A warning about an object of the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct WarningEvent {
    /// Time of the last occurrence.
    pub(in super::super) at: Timestamp,
    /// Namespace of the object.
    pub(in super::super) namespace: Option<String>,
    /// `Kind/name` of the object.
    pub(in super::super) object: String,
    /// Reason.
    pub(in super::super) reason: String,
    /// Message.
    pub(in super::super) message: String,
}

impl TreeReader<'_> {
    /// Adds the warnings about objects of the tree. Events and objects are matched by uid.
    pub(super) async fn add_events(&self, tree: &mut ObservedTree) {
        let mut namespaces: BTreeSet<String> = tree
            .all()
            .iter()
            .filter(|node| !node.uid.is_empty())
            .filter_map(|node| node.namespace.clone())
            .collect();
        // Events about cluster-scoped objects are in this namespace.
        namespaces.insert(NAMESPACE.to_owned());
        if namespaces.len() > MAX_NAMESPACES {
            tree.exceeded.insert("namespaces with Events");
        }
        let answers: Vec<_> = stream::iter(namespaces.into_iter().take(MAX_NAMESPACES))
            .map(async |namespace| {
                let events = self.cluster.events_in(&namespace, "type=Warning").await;
                (namespace, events)
            })
            .buffered(IN_FLIGHT)
            .collect()
            .await;
        let mut all = Vec::new();
        for (namespace, answer) in answers {
            match answer {
                Ok(events) => all.extend(events),
                Err(failure) => tree.unread.push(UnreadList {
                    kind: GroupKind::new("", "Event"),
                    namespace: Some(namespace),
                    cause: UnreadCause::of(&failure, "list", "events"),
                }),
            }
        }
        tree.events = warnings(tree, all, Timestamp::now());
    }
}

/// Returns the recent warnings about objects of the tree, newest first.
fn warnings(tree: &ObservedTree, events: Vec<Event>, now: Timestamp) -> Vec<WarningEvent> {
    let nodes = tree.by_uid();
    let mut warnings: Vec<_> = events
        .into_iter()
        .filter(|event| event.type_.as_deref() == Some("Warning"))
        .filter_map(|event| {
            let node = nodes.get(event.involved_object.uid.as_deref()?)?;
            let at = last_seen(&event).filter(|at| now.duration_since(*at) <= PERIOD)?;
            Some(WarningEvent {
                at,
                namespace: node.namespace.clone(),
                object: node.title(),
                reason: event.reason.unwrap_or_default(),
                message: event.message.unwrap_or_default(),
            })
        })
        .collect();
    warnings.sort_by(|one, other| other.cmp(one));
    warnings.truncate(MAX_EVENTS);
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::deployments::tree::model::{NodeState, TreeNode};

    #[test]
    fn warnings_are_those_of_the_last_hour_about_objects_of_the_tree() {
        let event = |uid: &str, kind: &str, at: &str| -> Event {
            serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {"uid": uid}, "type": kind, "reason": "Failed", "message": at, "eventTime": at,
            }))
            .unwrap()
        };
        let tree = ObservedTree {
            nodes: vec![TreeNode::new("Pod/team-a/web", "p", NodeState::NoHealth).unwrap()],
            ..ObservedTree::default()
        };
        let events = vec![
            event("p", "Warning", "2026-01-01T10:10:00.000000Z"),
            event("p", "Warning", "2026-01-01T10:30:00.000000Z"),
            event("p", "Warning", "2026-01-01T08:30:00.000000Z"),
            event("p", "Normal", "2026-01-01T10:30:00.000000Z"),
            event("x", "Warning", "2026-01-01T10:30:00.000000Z"),
        ];
        let warnings = warnings(&tree, events, "2026-01-01T11:00:00Z".parse().unwrap());
        let shown: Vec<_> = warnings
            .iter()
            .map(|one| format!("{} {}", one.object, one.at))
            .collect();
        assert_eq!(
            shown,
            [
                "Pod/web 2026-01-01T10:30:00Z",
                "Pod/web 2026-01-01T10:10:00Z"
            ]
        );
    }
}
