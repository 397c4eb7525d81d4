//! Waits for a change of a tree, by watches on the metadata of all kinds in the tree.

use std::collections::BTreeSet;
use std::time::Duration;

use bundle_api::BundleDeployment;
use bundle_cluster::discovery::Kind;
use bundle_cluster::namespaced;
use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt as _, stream};
use kube::api::{
    ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta, WatchEvent, WatchParams,
};

use super::read::{ObservedTree, WatchedList};
use crate::cluster::Cluster;
use crate::system::delays;

/// Maximum number of watches.
const MAX_WATCHES: usize = 50;
/// Time in seconds after which the server closes a watch. The tree is then read again.
const WATCH_SECONDS: u32 = 290;
/// Time after which the tree is read again if not every list is watched.
const FALLBACK_PERIOD: Duration = Duration::from_secs(10);
/// Delay between a change and the next read of the tree, so that several changes cause only one
/// read.
const DEBOUNCE: Duration = Duration::from_millis(300);

type Changes = SelectAll<BoxStream<'static, Option<ObjectMeta>>>;

/// Waits until an object of the tree may have changed.
pub(super) async fn wait_for_change(cluster: &Cluster, tree: &ObservedTree) {
    let mut lists = tree.lists.clone();
    lists.extend(deployments(tree));
    let count = lists.len();
    let has_deployment = tree.version.is_some();
    let mut changes: Changes = stream::select_all(Vec::new());
    for list in lists.into_iter().take(MAX_WATCHES) {
        if let Ok(stream) = open(cluster, &list).await {
            changes.push(stream);
        }
    }
    let is_complete = has_deployment && changes.len() == count && tree.unread.is_empty();
    let known: BTreeSet<&str> = tree
        .all()
        .iter()
        .map(|node| node.uid.as_str())
        .filter(|uid| !uid.is_empty())
        .collect();
    let change = async {
        while let Some(change) = changes.next().await {
            // If a watch ends, the tree is read again, and then the watch is opened again.
            let Some(metadata) = change else {
                tokio::time::sleep(delays::TREE_WATCH).await;
                return;
            };
            if is_of_tree(&metadata, &known) {
                return;
            }
        }
        // This line is reached only if no watch could be opened.
        tokio::time::sleep(FALLBACK_PERIOD).await;
    };
    if is_complete {
        change.await;
    } else {
        // A timeout also ends the wait, so the tree is read again.
        let _ = tokio::time::timeout(FALLBACK_PERIOD, change).await;
    }
    tokio::time::sleep(DEBOUNCE).await;
}

/// Returns `true` if the object, or one of its owners, is in the tree.
fn is_of_tree(metadata: &ObjectMeta, known: &BTreeSet<&str>) -> bool {
    let owners = metadata.owner_references.iter().flatten();
    let mut uids = owners.map(|owner| &owner.uid).chain(&metadata.uid);
    uids.any(|uid| known.contains(uid.as_str()))
}

/// Returns the list of BundleDeployments, for a watch.
fn deployments(tree: &ObservedTree) -> Option<WatchedList> {
    let version = tree.version.clone().filter(|version| !version.is_empty())?;
    Some(WatchedList {
        kind: Kind {
            resource: ApiResource::erase::<BundleDeployment>(&()),
            namespaced: false,
        },
        namespace: None,
        version,
    })
}

async fn open(
    cluster: &Cluster,
    list: &WatchedList,
) -> crate::failure::Outcome<BoxStream<'static, Option<ObjectMeta>>> {
    let parameters = WatchParams::default().timeout(WATCH_SECONDS);
    let request = async {
        let namespace = list.namespace.as_deref();
        let api = namespaced::<DynamicObject>(&cluster.client, &list.kind.resource, namespace)?;
        api.watch_metadata(&parameters, &list.version).await
    };
    let stream = cluster.send(request).await?;
    let changes = stream.map(|event| match event {
        Ok(WatchEvent::Added(item) | WatchEvent::Modified(item) | WatchEvent::Deleted(item)) => {
            let item: PartialObjectMeta<DynamicObject> = item;
            Some(item.metadata)
        }
        Ok(WatchEvent::Bookmark(_)) => Some(ObjectMeta::default()),
        Ok(WatchEvent::Error(_)) | Err(_) => None,
    });
    let end = stream::once(std::future::ready(None));
    Ok(changes.chain(end).boxed())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_and_their_owners_are_of_the_tree() {
        let known = ["d", "p"].into();
        let is_known = |metadata| {
            let metadata = serde_json::from_value(metadata).unwrap();
            is_of_tree(&metadata, &known)
        };
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d"}]);
        assert!(is_known(json!({"uid": "p"})));
        assert!(is_known(json!({"uid": "x", "ownerReferences": owner})));
        assert!(!is_known(json!({"uid": "x"})));
    }
}
