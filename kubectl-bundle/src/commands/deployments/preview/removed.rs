//! Installed objects that the new content does not contain.

use std::collections::{BTreeMap, BTreeSet};

use bundle_api::BundleDeployment;
use bundle_cluster::discovery::{Apis, Kind, is_custom};
use bundle_cluster::{ByName, namespaced};
use bundle_core::object::{GroupKind, ObjectId};
use bundle_core::plan::inventory;
use bundle_core::plan::phases::removal;
use bundle_core::plan::removal::needed;
use futures::{StreamExt as _, stream};
use kube::api::DynamicObject;

use super::dry_run::cleaned;
use super::objects::WantedObject;
use super::{ChangeKind, ChangeNote, IN_FLIGHT, NoteEffect, ObjectChange, Preview};
use crate::cluster::Cluster;
use crate::commands::deployments::state::objects;
use crate::failure::{Failure, Outcome, api_server};

/// Maximum number of installed objects that are read to find deletions.
const MAX_INSTALLED: usize = 10_000;

/// Adds the deletions to `preview`. The deleted objects are found by the label of the ApplySet, as
/// in `status`, because most users cannot read the inventory.
pub(super) async fn add(
    cluster: &Cluster,
    item: &BundleDeployment,
    wanted: &[WantedObject],
    preview: &mut Preview,
) {
    let status = item.status.clone().unwrap_or_default();
    let found = objects::read(
        cluster,
        item,
        &objects::keys_in_status(&status),
        MAX_INSTALLED,
    )
    .await;
    let (causes, _) = found.unread_causes(false);
    preview.incomplete = causes;
    if found.is_truncated {
        let limit = format!("more than {MAX_INSTALLED} objects or too many namespaces");
        preview.incomplete.push(limit);
    }
    let keys: BTreeSet<&str> = wanted.iter().map(|object| object.key.as_str()).collect();
    let unwanted: Vec<ObjectId> = found
        .live
        .iter()
        .filter(|live| !keys.contains(live.key.as_str()))
        .filter_map(|live| id(&live.key, &live.api_version))
        .collect();
    let content: Vec<(&ObjectId, &str)> = wanted
        .iter()
        .map(|object| (&object.id, object.kind.resource.plural.as_str()))
        .collect();
    let kept: BTreeMap<ObjectId, &str> = needed(&unwanted, &content).into_iter().collect();
    let apis = Apis::new(cluster.client.clone());
    let steps = removal(&unwanted, |id| is_custom(&id.api_version()));
    let read = stream::iter(steps.into_iter().flatten())
        .map(|id| {
            let (apis, why) = (&apis, kept.get(id).copied());
            async move { (deletion(cluster, apis, id, why).await, id) }
        })
        .buffered(IN_FLIGHT);
    let results: Vec<_> = read.collect().await;
    for (result, id) in results {
        match result {
            Ok(change) => preview.changes.extend(change),
            Err(failure) => preview.incomplete.push(format!("{id}: {}", text(&failure))),
        }
    }
}

/// Returns the change for an object that the new content does not contain; `None` if the object
/// does not exist. If `kept` is `None`, the change is a deletion. Otherwise the object is not
/// deleted, and the reason `kept` becomes a note.
async fn deletion(
    cluster: &Cluster,
    apis: &Apis,
    id: &ObjectId,
    kept: Option<&str>,
) -> Outcome<Option<ObjectChange>> {
    let found: Option<Kind> = cluster
        .send(apis.find(&id.group, &id.version, &id.kind))
        .await?;
    let Some(kind) = found else {
        return Ok(None);
    };
    let request = async {
        let namespace = id.namespace.as_deref();
        let api = namespaced::<DynamicObject>(&cluster.client, &kind.resource, namespace)?;
        ByName(&api).get_opt(&id.name).await
    };
    let Some(live) = cluster.send(request).await? else {
        return Ok(None);
    };
    let before = cleaned(serde_json::to_value(live).unwrap_or_default());
    let after = kept.map(|_| before.clone());
    Ok(Some(ObjectChange {
        key: id.to_string(),
        api_version: id.api_version(),
        kind: match kept {
            Some(_) => ChangeKind::Kept,
            None => ChangeKind::Deleted,
        },
        before: Some(before),
        after,
        note: kept.map(|why| {
            let text = format!("the object is not deleted: {why}");
            ChangeNote::new(text, NoteEffect::None)
        }),
        origin: None,
    }))
}

fn id(key: &str, api_version: &str) -> Option<ObjectId> {
    let (GroupKind { group, kind }, namespace, name) = inventory::parts(key)?;
    let version = api_version.rsplit('/').next()?.to_owned();
    Some(ObjectId {
        group,
        version,
        kind,
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    })
}

fn text(failure: &Failure) -> String {
    match failure {
        Failure::Server(status) => api_server::message(status),
        Failure::Findings { findings, .. } => findings.to_string(),
        Failure::Reported(_) | Failure::BrokenPipe => String::new(),
    }
}
